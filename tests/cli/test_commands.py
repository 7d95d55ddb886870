"""The command line as a user meets it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from ppsim.base import notes
from ppsim.cli import group, main
from ppsim.questions import module_of
from ppsim.schedules import families
from ppsim.workload.hardware import hardware
from tests.cli.option_fuzz import commands
from tests.clock import HANG_S
from tests.commands import answer, invoke, process
from tests.pages import texts
from tests.real_runs import PRIMUS

README = Path(__file__).parents[2] / "README.md"
RUN = ["run", "--schedule", "1f1b", "--stages", "4", "--mb", "8"]


@pytest.mark.slow
def test_first_example_prints_what_the_picture_of_readme_shows():
    """The command of README's first block, and each line of numbers below the chart."""
    command = re.search(r"^ppsim (run .*)$", README.read_text(), re.M)
    assert command
    shown = " ".join(
        " ".join(texts((README.parent / "gallery" / "run.terminal.svg").read_text())).split()
    )
    assert f"$ ppsim {command[1]} " in shown
    lines = process(*command[1].split()).stdout.partition("\n\n")[2].splitlines()
    assert len(lines) > 5
    assert [line for line in lines if " ".join(line.split()) not in shown] == []


@pytest.mark.slow
def test_readme_python_example_runs(tmp_path, monkeypatch, capsys):
    """The comment behind each print is its output, or the beginning of it."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    (code,) = [block for block in blocks if "import ppsim as pp" in block]
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert (tmp_path / "zb.svg").stat().st_size > 1000
    printed = capsys.readouterr().out.splitlines()
    said = re.findall(r"^print\(.*\) +# (.*?)(?: \.\.\.)?$", code, re.M)
    assert len(said) == 2
    assert [line[: len(words)] for line, words in zip(printed, said, strict=True)] == said


def test_a_cluster_is_named_as_for_a_plan():
    """A name of the library gives the times that its file gives."""
    words = [*RUN, "--unit", "ms", "--message", "4MiB", "-q", "--cluster"]
    file = Path(hardware.__file__).parents[1] / "library" / "clusters" / "dgx-h100.toml"
    named, read = invoke(*words, "dgx-h100"), invoke(*words, str(file))
    assert (named.exit_code, named.stdout) == (0, read.stdout)


def test_readme_has_exactly_two_set_up_commands():
    commands = [line for line in README.read_text().splitlines() if line.startswith("python3 ")]
    assert max(map(len, commands)) < 100  # what a page 846 pixels wide shows without sliding
    assert [c.rsplit("&&", 1)[1].strip() for c in commands] == [
        "ppsim run 1f1b --stages 4 --mb 8",
        "pytest",
    ]


def test_help_shows_no_bound_that_no_user_comes_near():
    """Such a bound only keeps numbers exact: 2**53, or 1e15."""
    for names, _ in commands():
        said = invoke(*names, "--help-all").stdout
        assert not re.search(r"[0-9]{12}", said), names
        assert "[]" not in said, names
    assert "[x>=0]" in invoke("run", "--help-all").stdout


def test_an_option_has_the_same_spellings_in_every_command():
    """A command may have one of a framework more; none lacks one that the others have."""
    spellings: dict[str, dict[str, frozenset[str]]] = {}
    for names, command in commands():
        for param in command.params:
            for word in ("--chunks", "--devices", "--microbatches", "--schedule"):
                if word in param.opts:
                    spellings.setdefault(word, {})[" ".join(names)] = frozenset(param.opts)
    for word, of_command in spellings.items():
        common = frozenset.union(*of_command.values()) - {
            "--num-virtual-stages-per-pipeline-rank",
            "--pipeline-model-parallel-size",
        }
        lacking = {name: common - opts for name, opts in of_command.items() if common - opts}
        assert not lacking, word


def test_every_command_shows_all_its_options():
    """``--help-all`` is an option of every command, and of those inside one."""
    for names, _ in [*commands(), (("profile",), None)]:
        found = invoke(*names, "--help-all")
        assert found.exit_code == 0, names
        assert found.stdout.startswith(f"Usage: group {' '.join(names)} ")
    assert "  Compare two profiles: settings and times.\n" in invoke("profile", "--help").stdout


def test_every_command_has_help_with_an_example():
    for name in group.list_commands(None):  # type: ignore[arg-type]
        result = invoke(name, "--help")
        assert result.exit_code == 0, name
        assert f"  ppsim {name}" in result.output, name
        assert "\\b" not in result.output, f"{name}: examples keep their lines"


def test_the_list_of_commands_says_what_each_module_says():
    """The list reads each module's first line, and it is a sentence that fits an 80 column
    terminal.
    """
    import importlib

    listed = dict(
        re.findall(
            r"^  ([a-z]+)  +(\S.*)$", invoke("--help-all", env={"COLUMNS": "80"}).output, re.M
        )
    )
    assert sorted(listed) == group.list_commands(None)  # type: ignore[arg-type]
    for name, summary in listed.items():
        module = module_of(name) or f"ppsim.cli.{name}"
        assert (importlib.import_module(module).__doc__ or "").splitlines()[0] == summary
        assert re.fullmatch(r"[A-Z].*\.", summary), name


@pytest.mark.slow
def test_json_is_one_object_with_the_documented_keys():
    result = json.loads(process(*RUN, "--json").stdout)
    assert result["schema"] == "ppsim.run/1"
    assert (result["devices"], result["stages"], result["chunks"], result["microbatches"]) == (
        4,
        4,
        1,
        8,
    )
    assert result["makespan"] == 33
    assert result["ideal"] == 24
    assert result["peak_activations"] == [4, 3, 2, 1]
    assert {len(column) for column in result["ops"].values()} == {64}
    assert set(result["ops"]) == {"device", "kind", "stage", "microbatch", "start", "end", "pair"}


def test_quiet_prints_the_result_line_only():
    assert invoke(*RUN, "-q").output.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "suffix", ["svg", "json", "csv", "mmd", "trace.json", "html", "pdf", "png"]
)
def test_same_input_gives_the_same_bytes(tmp_path, suffix):
    for name in ("a", "b"):
        assert invoke(*RUN, "-q", "-o", str(tmp_path / f"{name}.{suffix}")).exit_code == 0
    assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()


@pytest.mark.slow
def test_dash_writes_to_stdout_and_nothing_else_does():
    result = process(*RUN, "-o", "-")
    assert json.loads(result.stdout)["makespan"] == 33
    assert process(*RUN, "-o", "-", "-f", "csv").stdout.startswith("0F0,0F1")


@pytest.mark.slow
def test_compare_all_times_every_schedule_that_trains_alike():
    """Those that do not take the shape are listed with their reason; what runs forwards only is
    left out.
    """
    found = json.loads(answer("compare", "all", "--devices", "4", "--mb", "9", "--json")[1])
    names = [row["name"] for row in found["schedules"]]
    assert names == [family.name for family in families() if family.interchangeable]
    assert {"1f1b", "zb-v", "dualpipe"} < {*names} - {"forward-only"} == {*names}


MODES = ("latency", "overlap", "batched", "blocking")
BAD = {
    "unknown schedule": (
        ["run", "-s", "zbh", "--stages", "4", "--mb", "8"],
        2,
        "Did you mean 'zb-h",
    ),
    "unknown schedule, near none": (
        ["run", "-s", "nonsense:4", "--stages", "4", "--mb", "8"],
        2,
        "'nonsense'.\n",
    ),
    "no number of microbatches": (
        ["run", "looped-bfs", "--devices", "16", "--layout", "Et|t|t|tL"],
        2,
        "multiple of the devices",
    ),
    "unknown cluster": (["model", "dgx-h10"], 2, "Did you mean 'dgx-h100'?"),
    "unknown command": (["rnu"], 2, "Did you mean 'run'"),
    "unknown option": (["run", "--stage", "4"], 2, "--stages"),
    "Megatron's option": (
        ["run", "1f1b", "--pipeline-model-parallel-size=4"],
        2,
        "Did you mean '--devices'?",
    ),
    "Megatron's option of another command": (
        ["optimize", "--tensor-model-parallel-size", "4"],
        2,
        "size'\n",
    ),
    "a short option that is none": (["memory", "1f1b", "-p", "4"], 2, "Did you mean '--devices'?"),
    "no size": (["run", "-s", "1f1b", "--mb", "8"], 2, "--stages or --devices"),
    "zero microbatches": (["run", "-s", "1f1b", "--stages", "4", "--mb", "0"], 2, "at least 1"),
    "negative stages": (["run", "-s", "1f1b", "--stages", "-4", "--mb", "8"], 2, "at least 1"),
    "absurd size": (
        ["run", "-s", "1f1b", "--stages", "4000000", "--mb", "80000000"],
        2,
        "fits in memory",
    ),
    "contradiction": (
        ["run", "-s", "1f1b", "--stages", "4", "--devices", "3", "--chunks", "2", "--mb", "8"],
        2,
        "fit",
    ),
    "rule": (["run", "-s", "dualpipe", "--devices", "4", "--mb", "7"], 2, "--mb 8"),
    "foreign option": (
        ["run", "-s", "gpipe", "--stages", "4", "--mb", "8", "--group-size", "4"],
        2,
        "group size",
    ),
    "text for a number": ([*RUN, "--tf", "fast"], 2, "not a number"),
    "repeated no times": ([*RUN, "--tf", "1*0,2"], 2, "not a number"),
    "repeated without a number": ([*RUN, "--tf", "1,*3"], 2, "not a number"),
    "repeated without end": ([*RUN, "--tf", "1*9999,1*9999,1"], 2, "not a number"),
    "nan": ([*RUN, "--tf", "nan"], 2, "finite"),
    "infinite": ([*RUN, "--comm", "inf"], 2, "finite"),
    "negative cost": ([*RUN, "--tb", "-1"], 2, "zero or more"),
    "wrong number of costs": ([*RUN, "--tf", "1,2,3"], 2, "3 values for 4 stages"),
    "unknown suffix": ([*RUN, "-o", "x.jpg"], 2, "unknown output format"),
    "no folder": ([*RUN, "-o", "/nowhere/at/all/x.svg"], 2, "make the folder"),
    "no folder for results": (
        ["sweep", *RUN[1:], "--results", "/nowhere/x.csv"],
        2,
        "make the folder",
    ),
    "json twice": ([*RUN, "--json", "-o", "-"], 2, "stdout"),
    "profile and costs": ([*RUN, "--profile", "p.toml", "--tf", "2"], 2, "--tf"),
    "segments and costs": (
        [*RUN, "--segments", "s.toml", "--tfb", "2"],
        2,
        "--segments brings the times of all ops",
    ),
    "segments and a profile": (
        [*RUN, "--segments", "s.toml", "--profile", "p.toml"],
        2,
        "--profile",
    ),
    "segments and a layout": ([*RUN, "--segments", "s.toml", "--layout", "t|t|t|t"], 2, "--layout"),
    "no segments": ([*RUN, "--segments", "gallery/cluster.toml"], 2, "expected 'ppsim.segments/1'"),
    "message without links": ([*RUN, "--message", "4MiB"], 2, "cluster"),
    "unknown order": ([*RUN, "--order", "late"], 2, "prefetch:K"),
    "cluster without a unit": ([*RUN, "--cluster", "gallery/cluster.toml"], 2, "--unit"),
    "cluster and comm": ([*RUN, "--cluster", "gallery/cluster.toml", "--comm", "1"], 2, "--comm"),
    "sweep of nothing": (["sweep", "1f1b", "--devices", "4", "--mb", "8:4"], 2, "empty"),
    "picture or table": (
        ["sweep", "1f1b", "--devices", "4", "--mb", "8", "-o", "x.mmd"],
        2,
        ".svg",
    ),
    "two at once": ([*RUN, "-o", "-", "-o", "-"], 2, "twice"),
    "no chunks": (["compare", "interleaved:0", "--devices", "4", "--mb", "8"], 2, "interleaved:2"),
    "chunks cut short": (
        ["run", "interleaved:", "--devices", "4", "--mb", "8"],
        2,
        "interleaved:2",
    ),
    "comparison as csv": (
        ["compare", "1f1b", "gpipe", "--devices", "4", "--mb", "8", "-o", "x.csv"],
        2,
        "one schedule",
    ),
    "lowered to nothing": ([*RUN, "--lowered"], 2, "csv"),
    "tradeoff to nothing": (
        ["compare", "1f1b", "gpipe", "--devices", "4", "--mb", "8", "--tradeoff"],
        2,
        "-o",
    ),
    "sweep without end": (["sweep", "1f1b", "--devices", "4", "--mb", "8:64:x1"], 2, "factor"),
    "sweep with a factor out of place": (
        ["sweep", "1f1b", "--devices", "4", "--mb", "x8:64:x2"],
        2,
        "'x8:64:x2'",
    ),
    "sweep with half a factor": (
        ["sweep", "1f1b", "--devices", "4", "--mb", "8:6x4:2"],
        2,
        "8:128:x2",
    ),
    "endless counts": (
        ["sweep", "1f1b", "--devices", "4", "--mb", "1:100000000"],
        2,
        "more than 10,000 counts",
    ),
    "missing profile": ([*RUN, "--profile", "/nowhere/p.toml"], 2, "/nowhere/p.toml"),
    "none applies": (
        ["compare", "dualpipe", "dualpipe-v", "--devices", "4", "--mb", "3"],
        2,
        "none of these",
    ),
}


@pytest.mark.parametrize(("ended", "code"), [(None, 0), (0, 0), (3, 3), ("why", 1)])
def test_what_ends_the_program_within_a_command_gives_its_code(ended, code, monkeypatch):
    """As Python itself has it: a number is the code, anything else is a failure."""

    def end(**_: object) -> None:
        raise SystemExit(ended)

    command = group.get_command(click.Context(group), "list")
    monkeypatch.setattr(command, "callback", end)
    assert answer("list")[0] == code


def test_an_error_on_a_terminal_is_in_colour_and_says_the_same(monkeypatch, capsys):
    for name, value in {"COLUMNS": "80", "FORCE_COLOR": "1", "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(notes.shown, "work", notes.shown.work)  # main sets it for the whole process
    monkeypatch.setattr("sys.argv", ["ppsim", "run", "1f1b", "--stages", "4"])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    plain = re.sub(r"\x1b\[[\d;]*m", "", said)
    assert ended.value.code == 2
    assert plain == "Error: the number of microbatches is missing\n  try: give --mb\n" != said


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_message_and_its_exit_code(case):
    args, code, says = BAD[case]
    found, out, err = answer(*args)
    assert (found, out) == (code, "")
    assert says in err
    assert "Traceback" not in err


@pytest.mark.slow
@pytest.mark.parametrize("case", ["unknown schedule", "unknown option", "infinite"])
def test_a_process_says_and_returns_what_its_entry_does(case):
    result = process(*BAD[case][0])
    assert (result.returncode, result.stdout, result.stderr) == answer(*BAD[case][0])


@pytest.mark.slow
def test_a_file_in_place_of_a_folder_cannot_be_written(tmp_path):
    (tmp_path / "x.svg").mkdir()
    result = process(*RUN, "-o", str(tmp_path / "x.svg"))
    assert result.returncode == 2
    assert "cannot write" in result.stderr


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize("suffix", ["json", "svg", "html", "csv"])
def test_a_full_disk_is_one_message(suffix):
    result = process(*RUN, "-o", "/dev/full", "-f", suffix)
    assert result.returncode == 2
    assert "No space left" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "run -s 1f1b --stages 32 --mb 400 --json",
        "run -s 1f1b --stages 32 --mb 400",  # through rich
        "sweep 1f1b gpipe --devices 1:12 --mb 1:40",
        "memory -s 1f1b --stages 40 --mb 80 --breakdown",
    ],
)
def test_a_closed_pipe_is_no_error(words):
    command = f"'{sys.executable}' -u -m ppsim {words} | head -c 10"
    result = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""


@pytest.mark.slow
def test_a_closed_pipe_takes_no_file_with_it(tmp_path):
    """What took minutes to measure is kept, whoever reads the rest."""
    words = f"calibrate --from-trace '{PRIMUS}' -o '{tmp_path}/p.toml'"
    subprocess.run(
        ["bash", "-c", f"'{sys.executable}' -u -m ppsim {words} | head -c 0"],
        check=True,
        timeout=HANG_S,
    )
    assert (tmp_path / "p.toml").stat().st_size


@pytest.mark.slow
def test_no_colour_codes_in_a_pipe():
    assert "\x1b" not in process(*RUN).stdout
    assert "\x1b[" in process(*RUN, env={"FORCE_COLOR": "1", "COLORTERM": "truecolor"}).stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "args", [RUN, ["memory", "-s", "1f1b", "--stages", "40", "--mb", "80", "--breakdown"]]
)
def test_ascii_terminals_do_not_break(args):
    result = process(*args, env={"PYTHONIOENCODING": "ascii"})
    assert result.returncode == 0
    assert result.stdout.isascii()
    assert "?" not in result.stdout


def test_compare_keeps_schedules_that_do_not_apply_with_the_reason():
    result = invoke("compare", "1f1b", "dualpipe", "--devices", "4", "--mb", "7")
    assert result.exit_code == 0
    assert "dualpipe does not apply" in result.output
    rows = json.loads(
        invoke("compare", "1f1b", "dualpipe", "--devices", "4", "--mb", "7", "--json").output
    )["schedules"]
    assert [r["applies"] for r in rows] == [True, False]


def test_compare_begins_with_one_sentence():
    lines = invoke(
        "compare", "gpipe", "1f1b", "interleaved:2", "zb-1p", "--devices", "4", "--mb", "8"
    ).output.splitlines()
    assert (
        lines[0]
        == "zb-1p is 1.22 times faster than gpipe (27 against 33 t_F), with 0.5 times the peak "
        "activations"
    )


def test_messages_as_ops_take_longer_the_more_they_block():
    spans = [
        json.loads(invoke(*RUN, "--comm", "0.5", "--p2p", mode, "--json").output)["makespan"]
        for mode in MODES
    ]
    assert spans == sorted(spans)
    assert spans[0] == 41


@pytest.mark.slow
def test_lowered_csv_holds_sends_and_receives():
    rows = process(*RUN, "--lowered", "-o", "-", "-f", "csv").stdout.splitlines()
    assert rows[0].startswith("0F0,0SEND_F0,0F1")
    assert rows[-1].startswith("3RECV_F0,3F0,3RECV_F1,3B0,3SEND_B0")
    assert all(row.endswith("REDUCE_GRAD") for row in rows)


def test_compare_ranks_with_messages_as_ops():
    options = ("--devices", "4", "--mb", "8", "--comm", "0.5", "--p2p", "overlap", "--json")
    slow, eager = json.loads(invoke("compare", "1f1b", "eager-1f1b", *options).output)["schedules"]
    assert (slow["makespan"], eager["makespan"]) == (42, 37.5)


@pytest.mark.slow
def test_compare_draws_memory_below_each_chart(tmp_path):
    target = tmp_path / "x.svg"
    words = ("compare", "gpipe", "1f1b", "--devices", "4", "--mb", "8", "-q", "-o", str(target))
    assert invoke(*words).exit_code == 0
    assert "memory" not in target.read_text().replace("--memory", "")
    assert invoke(*words, "--memory").exit_code == 0
    assert target.read_text().count("(activations)") == 2


@pytest.mark.parametrize(
    "command", [["compare", "gpipe", "1f1b", "--tradeoff"], ["sweep", "gpipe", "1f1b"]]
)
def test_time_against_memory_is_a_page_of_named_points(command, tmp_path):
    target = tmp_path / "x.html"
    assert invoke(*command, "--devices", "4", "--mb", "8", "-o", str(target)).exit_code == 0
    inputs = re.search(r'id="ppsim-data">(.*?)</script>', target.read_text(), re.S)
    assert inputs
    page = json.loads(inputs[1])
    assert page["inputs"]["command"].startswith(f"ppsim {command[0]}")
    assert [point["name"].split()[0] for point in page["points"]] == ["gpipe", "1f1b"]


@pytest.mark.slow
def test_a_closed_stdout_is_no_traceback():
    command = f"'{sys.executable}' -m ppsim run -s 1f1b --stages 4 --mb 8 >&-"
    assert (
        "Traceback"
        not in subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, timeout=HANG_S
        ).stderr
    )


def test_sweep_times_messages_and_groups_as_compare_does():
    """The detailed model and the options of interleaved schedules, shape by shape."""
    names = ["1f1b", "interleaved:2"]
    options = [
        "--devices",
        "4",
        "--p2p",
        "blocking",
        "--comm",
        "0.5",
        "--group-size",
        "6",
        "--json",
    ]
    swept = json.loads(invoke("sweep", *names, *options, "--mb", "12,18").output)["shapes"]
    for microbatches in ("12", "18"):
        compared = json.loads(invoke("compare", *names, *options, "--mb", microbatches).output)[
            "schedules"
        ]
        of_both = [row["makespan"] for row in swept if row["microbatches"] == int(microbatches)]
        assert of_both == [row["makespan"] for row in compared]
    plain = json.loads(invoke("compare", *names, "--devices", "4", "--mb", "18", "--json").output)[
        "schedules"
    ]
    assert all(row["makespan"] < late for row, late in zip(plain, of_both, strict=True))


def test_sweep_shows_every_shape_and_marks_the_best():
    result = invoke("sweep", "1f1b", "zb-1p", "--devices", "4", "--mb", "8:32:x2")
    assert [word for word in result.output.splitlines()[3].split() if word.startswith("M=")] == [
        "M=8",
        "M=16",
        "M=32",
    ]
    assert "11.1%*" in result.output
    shapes = json.loads(
        invoke("sweep", "1f1b", "--devices", "4,8", "--mb", "8:24:8", "--json").output
    )["shapes"]
    assert [(s["devices"], s["microbatches"]) for s in shapes] == [
        (p, m) for p in (4, 8) for m in (8, 16, 24)
    ]


@pytest.mark.slow
def test_a_sweep_wider_than_the_terminal_is_shown_in_several_tables():
    words = (
        "sweep",
        "1f1b",
        "gpipe",
        "--devices",
        "1,4",
        "--mb",
        "1:40",
        "--metric",
        "makespan",
        "--tf",
        "30000",
    )
    result = invoke(*words)
    assert [word for word in result.output.split() if word.startswith("M=")] == [
        f"M={m}" for m in range(1, 41)
    ]
    assert "…" not in result.output
    assert "e+06" not in result.output
    assert "1,200,080*" in result.output  # 40 microbatches of 30000 + 2 t_F each
    verdict = result.output.splitlines()[0]
    assert (
        "on 1 device with 1 microbatch has the least makespan of 80 shapes, 30,002 t_F; " in verdict
    )
    assert verdict.endswith(
        "on 4 devices with 1 microbatch has the least makespan of 80 shapes, 120,008 t_F"
    )


def test_list_names_every_schedule_and_describe_teaches_each():
    listed = json.loads(invoke("list", "--json").output)["schedules"]
    text = invoke("list").output
    for family in listed:
        assert family["name"] in text
        described = invoke("list", family["name"])
        assert described.exit_code == 0, described.output
        assert family["paper"] in described.output


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell):
    assert "_PPSIM_COMPLETE" in invoke("completion", shell).output


@pytest.mark.slow
def test_completion_offers_schedule_names():
    environment = {
        "_PPSIM_COMPLETE": "bash_complete",
        "COMP_WORDS": "ppsim run --schedule zb",
        "COMP_CWORD": "3",
    }
    assert "zb-1p" in process(env=environment).stdout


@pytest.mark.slow
@pytest.mark.parametrize("words", ["foo ", "1f1b --sta", "run --foo --devices x --unknown"])
def test_completion_of_a_wrong_line_prints_no_message(words):
    """Tab is pressed while the line is still being typed."""
    typed = f"ppsim {words}"
    environment = {"_PPSIM_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": "3"}
    ran = process(env=environment)
    assert (ran.returncode, ran.stderr) == (0, "")


def shell_commands() -> list[str]:
    """Every ppsim command in the README's shell blocks that measures nothing and installs
    nothing.
    """
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text(), re.S)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [
        line
        for line in lines
        if line.startswith("ppsim ") and line.split()[1] not in ("calibrate", "validate")
    ]


@pytest.mark.slow
@pytest.mark.parametrize("line", shell_commands())
def test_readme_commands_run(line, tmp_path, monkeypatch):
    """Every command of the README's shell blocks ends well, from files that stand where it expects
    them.
    """
    for name in ("gallery", "README.md", "tests"):
        (tmp_path / name).symlink_to(README.parent / name)
    (tmp_path / "profile.toml").symlink_to(README.parent / "gallery" / "profile-cpu.toml")
    (tmp_path / "mine.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    monkeypatch.chdir(tmp_path)
    for command in line.split(" && "):
        program, *words = shlex.split(command, comments=True)
        code, _, err = answer(*words)
        assert (program, code) == ("ppsim", 0), err


def test_a_command_without_what_it_needs_says_so():
    needy = [
        names for names, command in commands() if any(param.required for param in command.params)
    ]
    assert ("check",) in needy
    for names in needy:
        code, out, errors = answer(*names)
        assert (code, out) == (2, "")
        assert " is missing\n  try: ppsim " in errors
