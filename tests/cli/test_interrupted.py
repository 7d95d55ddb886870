"""A signal while a command writes its files: the old ones are whole, and nothing else is left."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.commands import start_command

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals and /proc of Linux"),
]

NAMED = "import os; del os.O_TMPFILE; from ppsim.cli import main; main()"
LARGE = {
    "run": ["run", "-s", "1f1b", "--devices", "64", "--mb", "2000", "-q", "-o", "big.trace.json", "-o", "b.csv"],
    "compare": ["compare", "1f1b", "gpipe", "zb-1p", "--devices", "16", "--mb", "64", "-q", "-o", "c.svg"],
    "sweep": ["sweep", "1f1b", "--devices", "4", "--mb", "8:64:8", "-q", "-o", "s.svg"],
    "memory": ["memory", "-s", "1f1b", "--devices", "64", "--mb", "500", "-q", "-o", "m.html"],
    "gallery": ["gallery", "-o", "."],
}
ENDED = {signal.SIGINT: "Interrupted.", signal.SIGTERM: "Ended by SIGTERM.", signal.SIGHUP: "Ended by SIGHUP."}
CASES = [
    *(("run", number, way) for number in ENDED for way in ("nameless", "named")),
    *((command, signal.SIGTERM, "named") for command in LARGE if command != "run"),
]


@pytest.mark.parametrize(("command", "number", "way"), CASES)
def test_a_signal_while_a_file_is_written_leaves_the_old_one_and_nothing_else(tmp_path, command, number, way):
    """With files that have no name before they are whole, and with hidden ones where the system has no such files."""
    out, folder = tmp_path / "out", tmp_path / "temporary"
    out.mkdir()
    folder.mkdir()
    (out / "big.trace.json").write_text("old")
    how = ["-m", "ppsim"] if way == "nameless" else ["-c", NAMED]
    started = start_command(*LARGE[command], how=how, cwd=out, env={"TMPDIR": str(folder)})
    while not _writes_into(started.pid, out):
        assert started.poll() is None
    started.send_signal(number)
    _, errors = started.communicate(timeout=60)
    assert started.returncode == 128 + number
    assert errors.endswith(f"{ENDED[number]}\n")
    assert "Traceback" not in errors
    left = {path.name: path.read_text() for path in out.iterdir() if command != "gallery" or path.suffix == ""}
    assert left.pop("big.trace.json", "old") == "old"
    assert not left
    assert not [path.name for path in out.iterdir() if path.name.startswith(".")]
    assert not list(folder.iterdir())


def _writes_into(pid: int, folder: Path) -> bool:
    """Whether a process has a file open there; on Linux one without a name is '#number (deleted)'."""
    try:
        return any(os.readlink(entry).startswith(f"{folder}/") for entry in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
