"""Processes that a command starts import nothing of the folder that one stands in."""

import pytest

from tests.clock import HANG_S
from tests.commands import start_command
from tests.real.runs.cases import write_profile

NAMES = ("pickle", "multiprocessing", "socket", "threading", "numpy", "ppsim")


@pytest.mark.torch
@pytest.mark.slow
def test_a_run_in_a_strangers_folder_runs_none_of_its_modules(tmp_path):
    """Python lets ``-c``, by which processes start, import from there first."""
    stranger, script = tmp_path / "stranger", tmp_path / "bin" / "ppsim"
    for folder in (stranger, script.parent):
        folder.mkdir()
    for name in NAMES:
        (stranger / f"{name}.py").write_text("open('planted', 'w')\nraise SystemExit(1)\n")
    script.write_text("from ppsim.__main__ import main\n\nif __name__ == '__main__':\n    main()\n")
    profile = write_profile(tmp_path / "p.toml")
    shape = ("gpipe", "--devices", "2", "--mb", "2", "--repeats", "1", "--ops", "timed")
    words = ("validate", *shape, "--profile", profile)
    started = start_command(*words, how=(str(script),), cwd=stranger)
    _, errors = started.communicate(timeout=HANG_S)
    assert not (stranger / "planted").exists(), errors
    assert started.returncode in (0, 1), errors
