"""A command that is refused says so once, prints no result and leaves no file."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ppsim.cli import group
from ppsim.errors import InputError
from tests.commands import ROOT, answer, invoke, refused

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
    monkeypatch.setattr("ppsim.simulation.longest_path.simulate", None)
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


def test_a_steady_run_has_no_bound_and_says_none():
    """The bound is worked out from every op, of which the shortcut runs few."""
    found = json.loads(invoke("run", "1f1b", "--devices", "2", "--mb", "400", "--steady", "--json").stdout)
    assert (found["schema"], "bound" in found) == ("ppsim.steady/1", False)


def options_of(name: str) -> set[str]:
    """The spellings of all options of a command, with those of its own commands."""
    command = group.get_command(None, name)  # type: ignore[arg-type]
    commands = [command, *getattr(command, "commands", {}).values()]
    return {word for each in commands for param in each.params for word in (*param.opts, *param.secondary_opts)}


def refusals(path: Path) -> Iterator[str]:
    """What the errors and rules of a module say; values in them count as ``1``."""
    for call in ast.walk(ast.parse(path.read_text())):
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("InputError", "PpsimError", "Need"):
            for part in ast.walk(call):
                if isinstance(part, ast.JoinedStr):
                    yield "".join(str(each.value) if isinstance(each, ast.Constant) else "1" for each in part.values)
                elif isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value


def test_every_command_and_option_that_a_refusal_names_exists():
    """In a command's own module they are options of that command, or of one that the text names."""
    own = {name: options_of(name) for name in group.list_commands(None)}  # type: ignore[arg-type]
    every = set().union(*own.values(), {"--help"})
    said = [(path.stem, text) for path in (ROOT / "cli").glob("*.py") for text in refusals(path)]
    assert len(said) > 300
    for command, text in said:
        named = re.findall(r"\bppsim ([a-z]+)\b", text)
        assert set(named) <= own.keys(), text
        known = own.get(command, every).union(*(own[name] for name in named), {"--help"})
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", text)) <= known, (command, text)


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
        assert invoke("run", "1f1b", "--devices", devices, "--mb", "4", "-q", "-o", file).exit_code == 0
    assert refused("compare", *files).hint == "files of as many devices"


def test_charts_are_not_shaped_where_none_is_drawn(tmp_path):
    error = refused("compare", "1f1b", "gpipe", *SMALL, "--tradeoff", "--memory", "-o", str(tmp_path / "a.svg"))
    assert str(error).startswith("--memory shapes charts, and --tradeoff draws time against memory")


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
    assert str(refused("diff", file, file, "--mb", "9")) == "--mb has no effect: files state their own shape"


def test_a_folder_is_no_schedule(tmp_path):
    assert str(refused("run", str(tmp_path), *SMALL)).startswith(f"'{tmp_path}' is a folder")


def test_a_folder_that_cannot_be_read_says_so(tmp_path, monkeypatch):
    def refuse(path: str) -> list[str]:
        if path == str(tmp_path):
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    listed = os.listdir
    monkeypatch.setattr("os.listdir", refuse)
    assert str(refused("explain", "--trace", str(tmp_path))).startswith(f"cannot read '{tmp_path}': Permission denied")


def test_one_device_is_no_plural(tmp_path):
    (tmp_path / "one.csv").write_text("0F0,0B0\n")
    assert invoke("check", str(tmp_path / "one.csv")).stdout.startswith("valid: 1 device, 1 stage, 1 microbatch; ")


def test_a_gallery_that_is_checked_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr("ppsim.cli.gallery._draw", lambda *_: "29 schedules and 0 figures")
    result = invoke("gallery", "-o", str(tmp_path), "--check")
    assert (result.output, list(tmp_path.iterdir())) == ("the gallery is up to date\n", [])


@pytest.mark.parametrize("command", ["run", "check", "read", "explain"])
def test_nothing_piped_in_says_so(command):
    result = invoke(command, "-", text="")
    assert str(result.exception).startswith("'standard input' is empty")


def test_help_leaves_out_what_a_command_always_refuses():
    """Times of whole stages are refused by partition, and its help does not offer them."""
    assert str(refused("partition", "1f1b", *SMALL, "--tf", "2")).startswith("partition makes the layout from")
    shown = {word for line in invoke("partition", "--help").output.splitlines() for word in line.split()[:1]}
    assert "--t-layer" in shown
    assert not shown & {"--tf", "--layout", "--cost-per"}
