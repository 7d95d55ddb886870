"""The last line of defence: what nobody foresaw is one message and an exit code, and output is
whole or refused.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.clock import HANG_S
from tests.commands import SOURCE

pytestmark = pytest.mark.slow
linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="/dev/full and closed streams of Linux"
)
RUN = ["run", "--schedule", "1f1b", "--devices", "2", "--mb", "2"]
SHORT = {
    "q": [*RUN, "-q"],
    "json": [*RUN, "--json"],
    "chart": RUN,
    "help": ["--help"],
    "table": ["list"],
}
# Large enough for many writes: a raw standard output would take a part of one and say nothing.
LARGE = ["run", "--schedule", "1f1b", "--devices", "16", "--mb", "400", "-q"]

# A command that does something else: raises, warns.
INSTEAD = """
import sys, warnings
from ppsim.cli import group, main

def instead(**options):
    {code}

group.get_command(None, "list").callback = instead
main()
"""


def ppsim(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    return python("-m", "ppsim", *arguments, **options)


def python(
    *arguments: str, env: dict[str, str] | None = None, **options
) -> subprocess.CompletedProcess[str]:
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, text=True, env=SOURCE | (env or {}), timeout=HANG_S, check=False, **options
    )


def instead(code: str, *arguments: str, **options) -> subprocess.CompletedProcess[str]:
    return python("-c", INSTEAD.format(code=code), "list", *arguments, **options)


def shell(line: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A line of bash in which $P is the command."""
    environment = {**SOURCE, "P": f"{sys.executable} -m ppsim", **env}
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, env=environment, check=False
    )


# What escapes.


def test_what_nobody_foresaw_is_one_line_and_exit_70():
    done = instead("raise IndexError('list index\\x1b]0;x\\x07 out of\\nrange')")
    assert done.returncode == 70
    assert done.stderr == (
        "Error: internal error: IndexError: list index\ufffd]0;x\ufffd out of range "
        "(a fault of ppsim; please report what --debug prints)\n"
    )


@pytest.mark.parametrize("way", ["before", "after", "environment"])
def test_debug_shows_where_an_internal_error_comes_from(way):
    code, env = (
        INSTEAD.format(code="raise IndexError('gone')"),
        {"PPSIM_DEBUG": "1"} if way == "environment" else {},
    )
    words = {"before": ["--debug", "list"], "after": ["list", "--debug"], "environment": ["list"]}[
        way
    ]
    done = python("-c", code, *words, env=env)
    assert done.returncode == 70
    assert "Traceback (most recent call last)" in done.stderr
    assert "in instead" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("Error: internal error: IndexError: gone")


def test_debug_changes_nothing_else(tmp_path):
    assert (
        ppsim(*RUN, "--debug", "--json").stdout
        == ppsim("--debug", *RUN, "--json").stdout
        == ppsim(*RUN, "--json").stdout
    )
    assert ppsim("profile", "show", str(tmp_path / "none"), "--debug").returncode == 2
    for nothing in ("0", ""):
        assert "Traceback" not in instead("raise IndexError", env={"PPSIM_DEBUG": nothing}).stderr


def test_a_long_message_is_cut_to_a_line():
    done = instead("raise KeyError('x' * 10**6)")
    assert done.returncode == 70
    assert len(done.stderr) < 500


@pytest.mark.parametrize(
    ("fault", "code", "message"),
    [
        ("EOFError('early')", 70, "Error: internal error: EOFError: early"),
        ("RecursionError('too deep')", 70, "Error: internal error: RecursionError: too deep"),
        ("MemoryError()", 2, "Error: not enough memory"),
        (
            "PermissionError(13, 'Permission denied', 'x.csv')",
            2,
            "Error: Permission denied 'x.csv'",
        ),
        (
            "ImportError('numpy: no C library')",
            3,
            "Error: a package that ppsim needs cannot be imported: numpy: no C",
        ),
        ("ImportError('gone', name='ppsim.x')", 70, "Error: internal error: ImportError: gone"),
        ("KeyboardInterrupt()", 130, "\nInterrupted."),
        ("SystemExit(5)", 5, ""),
    ],
)
def test_every_fault_has_its_message_and_its_exit_code(fault, code, message):
    done = instead(f"raise {fault}")
    assert done.returncode == code
    assert done.stderr.startswith(message)
    assert "Traceback" not in done.stderr


def test_a_truncated_module_is_named_as_what_it_is(tmp_path):
    """A disk that was full when Python kept a module: the next run said 'Interrupted.' and exit
    130.
    """
    done = instead(
        "import half",
        env={"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        cwd=_half(tmp_path),
    )
    assert done.returncode == 3
    assert "Error: a file of this installation is damaged (" in done.stderr
    assert "__pycache__" in done.stderr


def _half(folder):
    import importlib.util
    import py_compile

    source = folder / "half.py"
    source.write_text("names = " + repr([str(i) for i in range(500)]))
    kept = importlib.util.cache_from_source(str(source))
    py_compile.compile(str(source), kept)
    with open(kept, "r+b") as file:
        file.truncate(64)
    return folder


def test_a_warning_of_a_library_is_one_line_without_its_place():
    done = instead(
        "warnings.warn('Glyph 31186\\n missing'); warnings.warn('again', RuntimeWarning)"
    )
    assert done.stderr == "Warning: Glyph 31186  missing\nWarning: again\n"
    assert done.returncode == 0


# Standard output.


@linux
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", SHORT.values(), ids=SHORT)
def test_a_full_disk_is_said_once_with_exit_2(words, unbuffered):
    with open("/dev/full", "w") as full:
        done = ppsim(*words, stdout=full, env={"PYTHONUNBUFFERED": unbuffered})
    assert done.returncode == 2
    assert done.stderr.count("Error") == 1
    assert done.stderr.startswith("Error: cannot write standard output: No space left on device\n")


@linux
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "words", [["--json"], ["-o", "-", "-f", "json"], ["-o", "-", "-f", "csv"]], ids=" ".join
)
def test_output_cut_short_by_a_full_disk_is_never_exit_0(tmp_path, words, unbuffered):
    """As a full disk does, the system takes the first bytes and says how many; the next write
    fails.
    """
    resource = pytest.importorskip("resource")
    target, limit = tmp_path / "out", 20_000
    with target.open("w") as file:
        done = ppsim(
            *LARGE,
            *words,
            stdout=file,
            env={"PYTHONUNBUFFERED": unbuffered, "PYTHONDONTWRITEBYTECODE": "1"},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        )
    assert target.stat().st_size == limit
    assert done.returncode == 2
    assert done.stderr.startswith("Error: cannot write standard output: File too large\n")


@linux
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_unbuffered_output_is_whole(tmp_path, unbuffered):
    with (tmp_path / "out").open("w") as file:
        assert (
            ppsim(*LARGE, "--json", stdout=file, env={"PYTHONUNBUFFERED": unbuffered}).returncode
            == 0
        )
    assert json.loads((tmp_path / "out").read_text())["schedule"] == "1f1b"


@linux
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "words", [*SHORT.values(), [*LARGE, "--json"], [*LARGE, "-o", "-"]], ids=" ".join
)
def test_a_reader_that_has_gone_is_no_error(words, unbuffered):
    line = f"$P {' '.join(words)} | true; echo ${{PIPESTATUS[0]}}"
    done = shell(line, PYTHONUNBUFFERED=unbuffered)
    assert (done.stdout, done.stderr) == ("0\n", "")


@linux
@pytest.mark.parametrize("words", [*SHORT.values(), [*RUN, "-o", "-"]], ids=" ".join)
def test_a_closed_standard_output_is_said(words):
    done = shell(f"$P {' '.join(words)} >&-")
    assert done.returncode == 2
    assert done.stderr.startswith("Error: cannot write standard output: Bad file descriptor\n")


@linux
def test_a_closed_or_full_standard_error_stops_nothing(tmp_path):
    shape = "--devices 2 --mb 2"
    for end in ("2>&-", "2>/dev/full"):
        assert "least bubble_rate" in shell(f"$P sweep 1f1b {shape} {end}").stdout
        done = shell(f"$P run -s 1f1b {shape} -q -o {tmp_path / 'x.csv'} {end}; echo $?")
        assert done.stdout.splitlines()[-1] == "0"
        assert shell(f"$P run -s nope {shape} {end}; echo $?").stdout == "2\n"
    assert (tmp_path / "x.csv").read_text().count("\n") == 2


@linux
def test_all_streams_closed_still_writes_the_file(tmp_path):
    """The file must not become one of the closed streams' numbers."""
    target = tmp_path / "x.csv"
    # the result line
    assert shell(f"$P run -s 1f1b --devices 2 --mb 2 -q -o {target} <&- >&- 2>&-").returncode == 2
    shell(
        f"$P run -s 1f1b --devices 2 --mb 2 -q -o {target} -o {tmp_path / 'y.csv'} <&- 2>&- "
        f">/dev/null"
    )
    assert target.read_text() == (tmp_path / "y.csv").read_text()
    assert shell("$P check - <&-").returncode == 2


# Files.


def test_where_one_file_is_refused_none_is_written(tmp_path):
    """The second has no form for two replicas; it said so after the first was written."""
    words = [
        "run",
        "-s",
        "dualpipe",
        "--devices",
        "2",
        "--mb",
        "4",
        "-q",
        "-o",
        "good.svg",
        "-o",
        "bad.csv",
    ]
    done = ppsim(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert "torch's CSV has one rank per stage" in done.stderr
    assert "wrote" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_done(tmp_path):
    (tmp_path / "kept.csv").write_text("kept")
    (tmp_path / "kept.csv").chmod(0o444)
    for command in (RUN, ["compare", "1f1b", "gpipe", *RUN[3:]], ["memory", *RUN[1:]]):
        target = "kept.csv" if command is RUN else "kept.svg"
        (tmp_path / "kept.csv").rename(tmp_path / target)
        done = ppsim(*command, "-o", "good.svg", "-o", target, cwd=tmp_path)
        (tmp_path / target).rename(tmp_path / "kept.csv")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"Error: cannot write '{target}': the file is read-only\n")
    assert [path.name for path in tmp_path.iterdir()] == ["kept.csv"]


@linux
def test_a_home_that_is_read_only_is_not_mentioned(tmp_path):
    """matplotlib says in two long lines that it keeps its fonts elsewhere, and leaves nothing
    there.
    """
    env = {
        "HOME": "/proc",
        "TMPDIR": str(tmp_path),
        "MPLCONFIGDIR": "",
        "XDG_CONFIG_HOME": "",
        "XDG_CACHE_HOME": "",
    }
    done = ppsim(*RUN, "-q", "-o", os.devnull, "-f", "png", env=env)
    assert (done.returncode, done.stderr) == (0, "wrote /dev/null\n")
    assert not list(tmp_path.iterdir())


# Signs of life.


@linux
def test_a_person_who_waits_is_told_what_for(tmp_path):
    """On a terminal only; with no patience here, as nothing takes long."""
    code = "from ppsim.cli import _progress, main; _progress.LINE_AFTER_S = 0; main()"
    words = [*LARGE, "-o", str(tmp_path / "x.trace.json")]
    ours, theirs = os.openpty()
    done = python("-c", code, *words, stderr=theirs)
    os.close(theirs)
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    assert done.returncode == 0
    assert shown.splitlines() == [
        f"writing {tmp_path / 'x.trace.json'} ...",
        f"wrote {tmp_path / 'x.trace.json'}",
    ]
    assert python("-c", code, *words).stderr == f"wrote {tmp_path / 'x.trace.json'}\n"
