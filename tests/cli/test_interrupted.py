"""A signal while a command writes its files: the old ones are whole, and nothing else is left."""

from __future__ import annotations

import signal
import sys

import pytest

from tests.clock import HANG_S
from tests.commands import start_command
from tests.real.runs.cases import wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals as Linux has them"),
]

# A command whose first file is half written until a signal comes; it says so by a file of its own.
HALF_WRITTEN = """
import io, sys, time
from pathlib import Path
from ppsim.base import atomic_file
from ppsim.cli import main

said = Path(sys.argv.pop(1))
open_staged = atomic_file._open_staged

class Half(io.BufferedWriter):
    def write(self, data):
        super().write(bytes(data)[: len(data) // 2])
        self.flush()
        said.touch()
        time.sleep(600)

def open_half(staged):
    open_staged(staged)
    staged.stream = Half(staged.stream.detach())
    return staged.stream

atomic_file._open_staged = open_half
main()
"""
COMMANDS = {
    "run": [
        "run",
        "-s",
        "1f1b",
        "--devices",
        "4",
        "--mb",
        "8",
        "-q",
        "-o",
        "old.trace.json",
        "-o",
        "b.csv",
    ],
    "compare": ["compare", "1f1b", "gpipe", "--devices", "2", "--mb", "2", "-q", "-o", "c.svg"],
    "sweep": ["sweep", "1f1b", "--devices", "4", "--mb", "8,16", "-q", "-o", "s.svg"],
    "memory": ["memory", "-s", "1f1b", "--devices", "4", "--mb", "8", "-q", "-o", "m.html"],
}
ENDED = {
    signal.SIGINT: "Interrupted.",
    signal.SIGTERM: "Ended by SIGTERM.",
    signal.SIGHUP: "Ended by SIGHUP.",
}
CASES = [
    *(("run", number) for number in ENDED),
    *((command, signal.SIGTERM) for command in COMMANDS if command != "run"),
]


@pytest.mark.parametrize(("command", "number"), CASES)
def test_a_signal_while_a_file_is_written_leaves_the_old_one_and_nothing_else(
    tmp_path, command, number
):
    out, folder, said = tmp_path / "out", tmp_path / "temporary", tmp_path / "half"
    out.mkdir()
    folder.mkdir()
    (out / "old.trace.json").write_text("old")
    how = ["-c", HALF_WRITTEN, str(said)]
    started = start_command(*COMMANDS[command], how=how, cwd=out, env={"TMPDIR": str(folder)})
    wait_for(lambda: said.exists() or started.poll() is not None, "a file half written")
    assert len([path for path in out.iterdir() if path.name.startswith(".")]) == 1
    started.send_signal(number)
    _, errors = started.communicate(timeout=HANG_S)
    assert started.returncode == 128 + number
    assert errors.endswith(f"{ENDED[number]}\n")
    assert "Traceback" not in errors
    assert {path.name: path.read_text() for path in out.iterdir()} == {"old.trace.json": "old"}
    assert not list(folder.iterdir())
