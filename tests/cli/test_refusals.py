"""A command that is refused says so once, prints no result and leaves no file."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import ppsim
from ppsim.ask.options import Option
from ppsim.ask.request import read_value
from ppsim.ask.types import CountList, Counts, Numbers, ScheduleName, Share, Window
from ppsim.cli import group
from ppsim.cli._command import Question
from ppsim.errors import InputError
from tests.cases import EVERY
from tests.cli.option_fuzz import commands
from tests.commands import ROOT, answer, invoke, refused
from tests.sources import parsed

FILED = ("check", "convert", "open", "read")  # commands of a file
OPS_COLUMNS = "rank,op,stage,microbatch,start_us,end_us\n"
SMALL = ("--devices", "2", "--mb", "4")


@pytest.mark.parametrize("command", ["run", "explain"])
def test_a_file_that_the_schedule_cannot_be_leaves_nothing_printed(command, tmp_path):
    """torch's CSV has one rank per stage; the file beside it is not written either."""
    files = [tmp_path / "a.json", tmp_path / "a.csv"]
    code, out, err = answer(command, "dualpipe", *SMALL, "-o", str(files[0]), "-o", str(files[1]))
    assert (code, out) == (2, "")
    assert err.count("Error:") == 1
    assert not any(file.exists() for file in files)


@pytest.mark.parametrize("command", ["run", "explain", "memory", "diff", "compare"])
def test_an_unknown_format_is_refused_before_anything_is_timed(command, tmp_path, monkeypatch):
    monkeypatch.setattr("ppsim.engine.simple.longest_path.simulate", None)
    specs = ("1f1b", "gpipe") if command in ("diff", "compare") else ("1f1b",)
    result = invoke(command, *specs, *SMALL, "-o", str(tmp_path / "a.xyz"))
    assert isinstance(result.exception, InputError)
    assert "unknown output format '.xyz'" in str(result.exception)
    assert result.stdout == ""


def test_the_same_file_twice_is_refused(tmp_path):
    """By its place: another spelling of the path is the same file."""
    words = ["-o", str(tmp_path / "a.json"), "-o", str(tmp_path / ".." / tmp_path.name / "a.json")]
    code, out, err = answer("run", "1f1b", *SMALL, *words)
    assert (code, out, list(tmp_path.iterdir())) == (2, "", [])
    assert err.splitlines() == [
        f"Error: -o {words[1]} is given twice, and the second would replace the first",
        "  try: leave one of them out",
    ]


def test_what_trains_is_no_alternative_to_forwards_only():
    found = json.loads(invoke("explain", "forward-only", *SMALL, "--json").stdout)
    assert [each["change"] for each in found["what_if"]] == ["mb=8"]


def options_of(name: str) -> set[str]:
    """The spellings of all options of a command, with those of its own commands."""
    command = group.get_command(None, name)  # type: ignore[arg-type]
    commands = [command, *getattr(command, "commands", {}).values()]
    return {
        word
        for each in commands
        for param in each.params
        for word in (*param.opts, *param.secondary_opts)
    }


def refusals(path: Path) -> Iterator[str]:
    """What the errors and rules of a module say; values in them count as ``1``."""
    for call in ast.walk(parsed(path)):
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in (
            "InputError",
            "PpsimError",
            "Need",
        ):
            for part in ast.walk(call):
                if isinstance(part, ast.JoinedStr):
                    yield "".join(
                        str(each.value) if isinstance(each, ast.Constant) else "1"
                        for each in part.values
                    )
                elif isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value


def test_every_command_and_option_that_a_refusal_names_exists():
    """In a command's own module they are options of that command, or of one that the text names."""
    own = {name: options_of(name) for name in group.list_commands(None)}  # type: ignore[arg-type]
    of_all = {"--help", "--help-all"}
    every = set().union(*own.values(), of_all)
    rooms = [ROOT / "cli", *(ROOT / "ppsim" / room for room in ("ask", "prices", "questions"))]
    modules = [path for room in rooms for path in room.rglob("*.py")]
    commands = [ROOT / "cli", ROOT / "ppsim" / "questions"]
    said = [
        (path.stem if any(path.is_relative_to(folder) for folder in commands) else "", text)
        for path in modules
        for text in refusals(path)
    ]
    assert len(said) > 300
    for command, text in said:
        named = re.findall(r"\bppsim ([a-z]+)\b", text)
        assert set(named) <= own.keys(), text
        known = own.get(command, every).union(
            *(own[name] for name in named), {"--help", "--help-all"}
        )
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]", text)) <= known, (
            command,
            text,
        )


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "words",
    [
        "1f1b interleaved --stages 8 --mb 8",
        "interleaved:2 interleaved:3 --stages 6 --mb 6",
        "1f1b dualpipe-v --stages 6 --mb 12",
        "1f1b interleaved --mb 8 --layout Et*3|tt||tL",
        "1f1b interleaved --stages 8 --mb 8 --tf 1,1,1,1,1,1,1,1",
    ],
)
def test_the_devices_that_compare_suggests_work(words):
    hint = refused("compare", *words.split()).hint
    assert re.fullmatch(r"--devices [0-9]+", hint)
    tried = re.sub(r"--stages [0-9]+", "", words).split() + hint.split()
    assert invoke("compare", *tried).exit_code == 0


def test_files_on_different_devices_cannot_be_given_devices(tmp_path):
    files = [str(tmp_path / f"{devices}.json") for devices in (2, 4)]
    for devices, file in zip("24", files, strict=True):
        assert (
            invoke("run", "1f1b", "--devices", devices, "--mb", "4", "-q", "-o", file).exit_code
            == 0
        )
    assert refused("compare", *files).hint == "files of as many devices"


def test_charts_are_not_shaped_where_none_is_drawn(tmp_path):
    error = refused(
        "compare", "1f1b", "gpipe", *SMALL, "--tradeoff", "--memory", "-o", str(tmp_path / "a.svg")
    )
    assert str(error).startswith("--memory is for charts, and --tradeoff draws time against memory")


def test_a_long_name_is_cut_in_its_refusal():
    assert len(str(refused("run", "n" * 5000, *SMALL))) < 1000


@pytest.mark.parametrize("specs", [(), ("1f1b",), ("1f1b",) * 3])
def test_diff_takes_two_runs(specs):
    assert str(refused("diff", *specs, *SMALL)) == f"diff takes two runs, got {len(specs)}"


def test_files_with_times_are_given_no_other_shape(tmp_path):
    """The shape is the file's: another number is refused, not passed over."""
    file = str(tmp_path / "a.json")
    assert invoke("run", "1f1b", *SMALL, "-q", "-o", file).exit_code == 0
    assert str(refused("explain", file, "--mb", "9")) == f"{file} has 4 microbatches, not 9"
    assert (
        str(refused("diff", file, file, "--mb", "9"))
        == "--mb has no effect: the files state their shape"
    )


def test_a_folder_is_no_schedule(tmp_path):
    assert str(refused("run", str(tmp_path), *SMALL)).startswith(f"'{tmp_path}' is a folder")


def test_a_path_that_shows_no_schedule_says_what_is_there(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    (tmp_path / "plain").write_text("0F0,0B0\n")
    for name, said in (
        ("pipe.csv", "' is a pipe or a device, not a file"),
        ("loop.csv", "': Too many levels of symbolic links"),
        ("plain", "' does not say its format"),
        ("none.csv", "': No such file or directory"),
    ):
        assert str(refused("run", str(tmp_path / name))).endswith(name + said)


def test_a_folder_that_cannot_be_read_says_so(tmp_path, monkeypatch):
    def refuse(path: str) -> list[str]:
        if path == str(tmp_path):
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    listed = os.listdir
    monkeypatch.setattr("os.listdir", refuse)
    assert str(refused("explain", "--trace", str(tmp_path))).startswith(
        f"cannot read '{tmp_path}': Permission denied"
    )


def test_one_device_is_no_plural(tmp_path):
    (tmp_path / "one.csv").write_text("0F0,0B0\n")
    assert invoke("check", str(tmp_path / "one.csv")).stdout.startswith(
        "valid: 1 device, 1 stage, 1 microbatch; "
    )


@pytest.mark.parametrize("command", ["run", "check", "read", "explain"])
def test_nothing_piped_in_says_so(command):
    result = invoke(command, "-", text="")
    assert str(result.exception).startswith("'standard input' is empty")


def test_help_leaves_out_what_a_command_always_refuses():
    """Times of whole stages are refused by partition, and its help does not offer them."""
    assert str(refused("partition", "1f1b", *SMALL, "--tf", "2")).startswith(
        "partition makes the layout from"
    )
    shown = {
        word
        for line in invoke("partition", "--help-all").output.splitlines()
        for word in line.split()[:1]
    }
    assert "--t-layer" in shown
    assert not shown & {"--tf", "--layout", "--cost-per"}


def numbers_of_commands() -> list[tuple[str, str]]:
    """Every option of every command whose value is one number or a list of them, by its first
    spelling.
    """
    kinds = (
        click.types.FloatParamType,
        click.FloatRange,
        click.types.IntParamType,
        Numbers,
        Counts,
        CountList,
        Share,
        Window,
    )
    names = [name for name in group.list_commands(None) if name != "profile"]  # type: ignore[arg-type]
    return [
        (name, param.opts[0])
        for name in names
        for param in group.get_command(None, name).params  # type: ignore[arg-type,union-attr]
        if isinstance(param.type, kinds)
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("number", ["nan", "1e999"])
def test_every_option_refuses_numbers_that_are_not_finite(number):
    """Comparisons let nan through, and a search that ends at infinity never ends."""
    options = numbers_of_commands()
    assert {
        ("optimize", "--cap"),
        ("optimize", "--time-limit"),
        ("run", "--comm"),
        ("plan", "--offload"),
    } <= {*options}
    for command, option in options[::EVERY]:
        words = ["x", "y"] if command == "diff" else ["x"] if command in FILED else []
        value = f"{number}:1" if option == "--window" else number
        code, out, err = answer(command, *words, option, value)
        assert (code, out) == (2, ""), (command, option, err)
        assert option in err or number in err, (command, option, err)


@pytest.mark.parametrize(
    "text", ["--link=0-1=nan", "--link=0-1=1,infGB/s", "--mb-scale=nan,1,1,1", "--message=nan"]
)
def test_numbers_in_texts_are_finite_too(text):
    assert answer("run", "1f1b", *SMALL, text)[:2] == (2, "")


def test_a_flowchart_of_ranks_is_told_from_a_schedule(tmp_path):
    """plan -o ranks.mmd writes it: read gives its sizes, and it has no times for the others."""
    file = tmp_path / "ranks.mmd"
    plan = (
        "plan",
        "--model",
        "llama3-8b",
        "--cluster",
        "dgx-h100",
        "--gpus",
        "2",
        "--gbs",
        "2",
        "--pp",
        "2",
    )
    assert (
        invoke(
            *plan, "--tp", "1", "--schedules", "1f1b", "--recomputes", "full", "-o", str(file)
        ).exit_code
        == 0
    )
    for words in (["check"], ["run"], ["explain"], ["convert", "-o", str(tmp_path / "x.json")]):
        error = refused(words[0], str(file), *words[1:])
        assert "is a flowchart: where the ranks of a plan lie, not when they run" in str(error)
        assert error.exit_code == 2
    assert "standard input' is a flowchart" in str(
        invoke("check", "-", text=file.read_text()).exception
    )
    assert "is a flowchart, not a gantt" in str(
        invoke("check", "-", text="graph TD\n a --> b\n").exception
    )


def test_launch_flags_may_follow_the_result_line():
    plan = (
        "plan",
        "--model",
        "llama3-8b",
        "--cluster",
        "dgx-h100",
        "--gpus",
        "2",
        "--gbs",
        "2",
        "--pp",
        "2",
        "-q",
    )
    lines = invoke(
        *plan, "--tp", "1", "--recomputes", "full", "--flags", "megatron"
    ).stdout.splitlines()
    assert lines[0].startswith("best: ")
    assert any("--pipeline-model-parallel-size 2" in line for line in lines[1:])


def test_the_first_screen_has_the_main_commands_and_names_the_others():
    every = group.list_commands(None)  # type: ignore[arg-type]
    first, whole = invoke("--help").stdout, invoke("--help-all").stdout
    assert len(first.splitlines()) <= 55
    for name in every:
        assert re.search(rf"^  {name} +[A-Z]", whole, re.M), name
        assert re.search(rf"^  {name} +[A-Z]", first, re.M) or re.search(
            rf"--help-all .*\b{name}\b", first
        ), name
    assert invoke("help", "run").stdout == invoke("run", "--help").stdout


def test_the_short_help_of_run_fits_two_screens_and_the_whole_has_every_option():
    assert len(invoke("run", "--help").stdout.splitlines()) <= 80
    whole = invoke("run", "--help-all").stdout
    kept = options_of("run") - {"--debug"}
    assert [word for word in sorted(kept) if word.startswith("--") and word not in whole] == []


@pytest.mark.parametrize("word", ["1f1b", "ZBV", "interleaved:2"])
def test_a_schedule_typed_as_a_command_is_told_of_run(word):
    error = refused(word, "--devices", "4", "--mb", "8")
    assert error.hint == f"ppsim run {word} --devices 4 --mb 8"
    assert invoke("run", word, "--devices", "4", "--mb", "8").exit_code == 0


@pytest.mark.parametrize(
    ("name", "offload"), [("1f1b", "0.5"), ("interleaved", "1.5"), ("interleaved", "3")]
)
def test_a_hint_for_offload_names_values_that_work(name, offload):
    words = ["run", name, "--devices", "4", "--mb", "8", "--offload"]
    hint = refused(*words, offload).hint
    for value in ("0", "all", "50%"):
        assert value in hint
        assert invoke(*words, value).exit_code == 0
    assert "whole" in hint or "0 or 1," in hint


@pytest.mark.parametrize(
    "words",
    [
        "memory -s a -s b",
        "run 1f1b --devices 4 --devices 2 --mb 8",
        "run 1f1b --devices 4 --pp 4 --mb 8",
        "run 1f1b --devices 4 --mb 8 --recompute --recompute none",
        "run 1f1b --devices 4 --mb 8 --memory --no-memory",
        "plan llama3-8b dgx-h100 --gpus 8 --gpus 16 --gbs 8",
        "serve --port 1 --port 2",
    ],
)
def test_an_option_of_one_value_given_twice_is_refused(words):
    """The first value would go unnoticed."""
    code, _, err = answer(*words.split())
    assert code == 2
    assert "is given twice, and takes one value" in err


def test_every_option_of_one_value_is_refused_twice():
    """In every command there is: --json twice asks for nothing else, another number does."""
    for _, command in commands():
        for param in command.params:
            if isinstance(param, click.Option) and not param.is_flag and not param.multiple:
                context = click.Context(command, info_name=command.name)
                with pytest.raises(InputError, match="given twice"):
                    command.parse_args(context, [f"{param.opts[0]}=1", f"{param.opts[-1]}=1"])


def test_a_word_of_python_that_is_another_of_the_same_option_is_refused():
    both: dict[str, Any] = {"mb": 4, "microbatches": 8}
    with pytest.raises(InputError, match="'mb' and 'microbatches' are one option"):
        ppsim.run("1f1b", devices=2, **both)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, in which one stands."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def declared_options() -> Iterator[tuple[str, Option]]:
    """Every option and argument of every question, with its command."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, Question):
            yield from ((name, each) for each in command.declared)


def test_what_click_refuses_is_no_message_that_a_terminal_obeys():
    code, _, errors = answer("optimize", "--devices", "2", "\x1b]0;x\x07")
    assert code == 2
    assert "unexpected extra argument" in errors
    assert errors.replace("\n", "").isprintable()


def test_bytes_that_are_no_text_are_refused_in_every_word_of_every_command(folder):
    """Python reads them as halves of characters, which no file and no terminal can hold."""
    for command, param in declared_options():
        words = [] if param.is_argument else [param.spelling]
        for typed in (
            [*words, "\udcff\udcfe"],
            [*words[:1], "x\udcff"],
            [f"{''.join(words)}=\udcff"],
        ):
            code, out, errors = answer(command, *typed)
            assert (code, out) == (2, "")
            assert "is not text in utf-8\n  try: " in errors


def test_a_nul_is_refused_in_every_word_of_every_command_and_in_python(folder):
    """No path has one: what opens a file would raise."""
    for command, param in declared_options():
        words = [] if param.is_argument else [param.spelling]
        for typed in ([*words, "a\0b"], [f"{''.join(words)}=\0"]):
            code, out, errors = answer(command, *typed)
            assert (code, out) == (2, "")
            assert "has a NUL character\n  try: " in errors
        with pytest.raises(InputError, match="has a NUL character"):
            read_value(param, ["a\0b"] if param.many else "a\0b")


def test_half_a_character_is_refused_in_every_word_of_python():
    """No file system encodes one, so what opens a file would raise."""
    for _, param in declared_options():
        with pytest.raises(InputError, match=r"has U\+D800, half a character"):
            read_value(param, ["a\ud800"] if param.many else "a\ud800")


def test_a_name_longer_than_any_file_has_is_refused_in_every_word_of_a_path(folder):
    """The system has its own error for such a name, which is not that there is no file."""
    for command, param in declared_options():
        if isinstance(param.type, click.Path | ScheduleName) or param.name == "output":
            words = [] if param.is_argument else [param.spelling]
            for name in (f"{'x' * 300}.csv", f"{'x/' * 3000}x.csv"):
                code, out, errors = answer(command, *words, name)
                assert (code, out) == (2, ""), (command, words, errors)
                assert len(errors) < 2000, (command, words)


LONG = f"{'x' * 300}.csv"


@pytest.mark.parametrize(
    "call",
    [
        lambda: ppsim.read(LONG),
        lambda: ppsim.check(LONG),
        lambda: ppsim.convert(LONG, "x.svg"),
        lambda: ppsim.diff(LONG, LONG),
        lambda: ppsim.explain(LONG, devices=2, microbatches=4),
        lambda: ppsim.model(LONG),
        lambda: ppsim.plan(LONG, "dgx-h100", gpus=8, gbs=8),
        lambda: ppsim.plan("llama3-8b", LONG, gpus=8, gbs=8),
        lambda: ppsim.validate(trace=LONG),
        lambda: ppsim.validate(from_record=LONG),
        lambda: ppsim.run("1f1b", devices=2, microbatches=4, profile=LONG),
        lambda: ppsim.run("1f1b", devices=2, microbatches=4).save(LONG),
        lambda: ppsim.run("1f1b", devices=2, microbatches=4).save("a\ud800.csv"),
        lambda: ppsim.read("a\ud800.csv"),
    ],
)
def test_python_refuses_a_name_that_no_file_has(call, folder):
    with pytest.raises(InputError) as caught:
        call()
    assert caught.value.hint
    assert len(str(caught.value)) < 1100


@pytest.mark.parametrize(
    ("call", "missing"),
    [
        (lambda: ppsim.read(None), "files"),  # type: ignore[arg-type]
        (lambda: ppsim.read([]), "files"),
        (lambda: ppsim.check(None), "file"),  # type: ignore[arg-type]
        (lambda: ppsim.convert(None, "x.svg"), "file"),  # type: ignore[arg-type]
    ],
)
def test_python_names_the_file_that_is_missing(call, missing):
    with pytest.raises(InputError, match=f"(?m)^{missing} is missing$"):
        call()


@pytest.mark.parametrize("digits", ["1_0", "\uff12", "\u0663", "1\u0660"])
def test_every_number_is_in_ascii_digits(digits):
    """Python reads 1_0 as 10, and the digits of every script: a slip would go unnoticed."""
    numbers = (click.types.IntParamType, click.types.FloatParamType, Numbers)
    kinds = (*numbers, Counts, CountList, Share)
    options = [param for _, param in declared_options() if isinstance(param.type, kinds)]
    assert {"devices", "tf", "comm", "tp", "width", "tolerance"} <= {each.name for each in options}
    for param in options:
        with pytest.raises(InputError, match=rf"{param.keyword}: not a.*{digits}.*; expected "):
            read_value(param, [digits] if param.many else digits)


@pytest.mark.parametrize(
    ("words", "content"),
    [
        ("run 1f1b --devices 2 --mb 4 --replicas 1_0", ""),
        ("run 1f1b --devices 2 --mb 4 --replicas 2,1=1_0", ""),
        ("run 1f1b --devices 2 --mb 4 --mb-scale factors.csv", "1,1_0,1,1"),
        ("run 1f1b --devices 2 --mb 4 --lengths lengths.csv --law 0,1,0", "length\n1_0\n2\n3\n4\n"),
        ("explain 1f1b --devices 2 --mb 4 --what-if tf.0=1_0", ""),
        (
            "read ops.csv",
            "rank,op,stage,microbatch,start_us,end_us\n0,F,0,0,0,1_0\n0,B,0,0,20,30\n",
        ),
        (
            "read ops.csv --iteration \u0661",
            "rank,op,stage,mb,start_us,end_us\n0,F,0,0,0,1\n0,B,0,0,2,3",
        ),
    ],
)
def test_numbers_in_texts_and_files_are_in_ascii_digits(words, content, folder):
    files = [word for word in words.split() if word.endswith(".csv")]
    for file in files:
        (folder / file).write_text(content)
    code, out, errors = answer(*words.split())
    assert (code, out) == (2, ""), errors
    assert "1_0" in errors or "\u0661" in errors or "factors.csv" in errors


@pytest.mark.parametrize("links", [("0-1=2", "0-1=3"), ("0-1=2", "1-0=3"), ("1>0=2", "0-1=3")])
@pytest.mark.parametrize("how", [(), ("--p2p", "blocking")])
def test_two_links_of_one_pair_are_refused(links, how):
    """The last one would count, in silence."""
    typed = [word for link in links for word in ("--link", link)]
    error = refused("run", "1f1b", *SMALL, *how, *typed)
    assert "is set twice" in str(error)
    assert "leave one --link out" in error.hint
    assert not invoke("run", "1f1b", *SMALL, "--link", "0>1=2", "--link", "1>0=3").exit_code


@pytest.mark.parametrize(
    ("words", "content"),
    [
        ("plan --against x.json", '[{"model": "a", "model": "b"}]'),
        ("plan --against x.json", '[{"model" : "a", "model"\n: "b"}]'),
        ("read x.jsonl", '{"rank":0,"op":"F","stage":0,"mb":0,"start_us":0,"end_us":5,"rank":1}\n'),
        ("model x.json", '{"model_type": "llama", "hidden_size": 8, "hidden_size": 16}'),
        (
            "run 1f1b --devices 2 --mb 1 --lengths x.jsonl --law 0,1,0",
            '{"length":1,"length":2}\n{"length":3}\n',
        ),
    ],
)
def test_a_key_twice_in_an_object_is_refused_with_its_name(words, content, folder):
    """Readers take the last one, and what the writer meant stays unknown."""
    name = next(word for word in words.split() if word.startswith("x."))
    (folder / name).write_text(content)
    error = refused(*words.split())
    assert name in str(error)
    assert "twice" in str(error)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", "a,b\n1,2\n", "no column of a training run; it has ['a', 'b']"),
        ("x.csv", "model,gpu\n", "has no rows"),
        ("x.json", '{"rows": [{"a": 1}]}', "no column of a training run; it has ['a']"),
        ("x.json", "[{}]", "no column of a training run; its rows are empty"),
    ],
)
def test_a_table_of_no_runs_is_refused_with_the_columns_that_it_needs(
    name, content, message, folder
):
    (folder / name).write_text(content)
    error = refused("plan", "--against", name)
    assert message in str(error)
    assert "model, gpu, gpus" in error.hint


@pytest.mark.parametrize("words", [("run", "1f1b", "--devices"), ("validate", "-o")])
def test_an_option_without_its_value_names_the_help_of_its_command(words):
    code, out, err = answer(*words)
    assert (code, out) == (2, "")
    assert err == f"Error: {words[-1]} needs a value\n  try: ppsim {words[0]} --help\n"


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        ("run --mb x", "--mb: not a whole number: 'x'; expected e.g. 4", "run --help"),
        ("run --tf x", "--tf: not a number or a list of numbers: 'x'; expected e.g.", "run --"),
        ("optimize --cap x", "--cap: not a number or a list of numbers: 'x'; expected", "optim"),
        ("run --width x", "--width: not a number: 'x'; expected e.g. 6.75", "run --help"),
        (
            "run --width 999",
            "--width: not a number from 1 to 100: '999'; expected e.g. 6.75",
            "run",
        ),
        ("jitter --samples x", "--samples: not a whole number: 'x'; expected e.g. 10000", "jit"),
        ("run --after-i 2", "--after-i: not a number from 0 to 1: '2'; expected e.g. 0.5", "run"),
        ("run --steps 0", "--steps: not a whole number of at least 1: '0'; expected e.g. 4", "run"),
        (f"run --limit {2**60}", f"--limit: not a whole number of at most {2**53}: '", "run"),
        ("run --palette x", "--palette: not a choice: 'x'; expected default, zb", "run --help"),
        ("run --stage 4", "there is no option '--stage'. Did you mean '--stages'?", "run --help-"),
        ("run 1f1b x", "expected one schedule, got 2: 1f1b, x\n", "leave out x, or ppsim compare"),
        ("run --fake", "there is no option '--fake'\n", "run --help-all"),
        ("run -x", "there is no option '-x'\n", "run --help-all"),
        ("run --json=3", "--json takes no value", "run --help"),
        ("check", "FILE is missing", "check --help"),
        ("read", "FILE is missing", "read --help"),
        ("check a b", "got unexpected extra argument (b)\n", "check --help"),
        ("plan --gpus 8 --gpus 9", "--gpus is given twice, and takes one value", "give it once"),
        ("rnu", "there is no command 'rnu'. Did you mean 'run'?", "--help"),
        ("xyz", "there is no command 'xyz'\n", "--help"),
        ("--fake", "there is no option '--fake'\n", "--help"),
        ("serve --port x", "--port: not a whole number: 'x'; expected e.g. 8765", "serve --help"),
        ("serve --fake", "there is no option '--fake'\n", "serve --help-all"),
    ],
)
def test_a_refusal_of_words_has_the_form_of_all_others(words, says, hint):
    """One sentence and a hint, with exit code 2; no usage line comes first."""
    code, out, err = answer(*words.split())
    assert (code, out) == (2, "")
    assert err.startswith(f"Error: {says}")
    _, line = err.splitlines()
    assert line.removeprefix("  try: ").removeprefix("ppsim ").startswith(hint)
