"""Signals that ask a program to end: it clears away, says so by its exit code, and none is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from ppsim.base.signals import ENDING, orderly_end
from tests.clock import HANG_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals as Linux has them"),
]

FRAME = """
import os, signal, sys, time
from ppsim.base import signals

def send(name):
    os.kill(os.getpid(), getattr(signal, name))

{before}
try:
    with signals.orderly_end():
        try:
{block}
        finally:
            print("cleared", flush=True)
except KeyboardInterrupt:
    sys.exit(128 + signals.first_signal())
print("went on")
"""


def run(block: str, before: str = "") -> tuple[int, list[str], str]:
    """The exit code, the lines and the errors of a program that runs the block within
    ``orderly_end``.
    """
    code = FRAME.format(
        before=before, block="\n".join(" " * 12 + line for line in block.splitlines())
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S, check=False
    )
    return done.returncode, done.stdout.split("\n")[:-1], done.stderr


@pytest.mark.parametrize("number", ENDING, ids=lambda number: number.name)
def test_each_signal_clears_away_and_is_told_by_the_exit_code(number):
    assert run(f"send('{number.name}')\ntime.sleep(60)") == (128 + number, ["cleared"], "")


def test_python_does_not_turn_the_exit_code_into_that_of_an_interrupt():
    """An interrupt inside ``exec`` of text makes CPython end itself by SIGINT, whatever the exit
    code.
    """
    assert run("exec('send(\"SIGTERM\"); time.sleep(60)')") == (143, ["cleared"], "")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_in_a_held_block_is_raised_at_its_end(name):
    """Processes are whole once they have started, although another thread got the signal."""
    thread = (
        "import threading\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    )
    held = (
        f"with signals.without_interrupts():\n    send('{name}')\n    time.sleep(0.1)\n    "
        f"print('whole')"
    )
    assert run(f"{held}\ntime.sleep(60)", thread) == (
        128 + getattr(signal, name),
        ["whole", "cleared"],
        "",
    )


def test_an_interrupt_that_falls_into_a_finalizer_comes_again():
    before = "class Falls:\n    def __del__(self):\n        send('SIGINT')\n        time.sleep(1)"
    assert run("fallen = Falls()\ndel fallen\ntime.sleep(60)", before) == (130, ["cleared"], "")


def test_other_faults_of_finalizers_are_shown_as_before():
    before = "class Falls:\n    def __del__(self):\n        raise ValueError('gone')"
    code, lines, errors = run("fallen = Falls()\ndel fallen", before)
    assert (code, lines) == (0, ["cleared", "went on"])
    assert "ValueError: gone" in errors


def test_a_second_signal_does_not_cut_the_clearing_away_short():
    block = "try:\n    send('SIGHUP')\nfinally:\n    send('SIGHUP')\n    print('whole')"
    assert run(block) == (129, ["whole", "cleared"], "")


def test_a_third_signal_ends_the_process_at_once():
    block = (
        "try:\n    send('SIGINT')\nfinally:\n    send('SIGINT')\n    send('SIGTERM')\n    "
        "time.sleep(60)"
    )
    assert run(block)[0] == -signal.SIGTERM


def test_after_a_signal_that_was_dealt_with_the_next_counts_as_the_first():
    block = (
        "try:\n    send('SIGINT')\nexcept KeyboardInterrupt:\n    "
        "signals.resume()\nsend('SIGTERM')\ntime.sleep(60)"
    )
    assert run(block) == (130, ["cleared"], "")


def test_an_interrupt_that_a_library_swallowed_is_raised_again_but_not_one_that_was_dealt_with():
    """numpy discards every error of some look-ups, about one interrupt in a hundred of a sweep."""
    block = "try:\n    send('SIGINT')\nexcept KeyboardInterrupt:\n    {}\nsignals.raise_swallowed()"
    assert run(block.format("pass")) == (130, ["cleared"], "")
    assert run(block.format("signals.resume()")) == (0, ["cleared", "went on"], "")


def test_a_signal_that_is_ignored_stays_ignored():
    """As in a job that a script starts in the background, or under nohup."""
    assert run("send('SIGHUP')", "signal.signal(signal.SIGHUP, signal.SIG_IGN)") == (
        0,
        ["cleared", "went on"],
        "",
    )


def test_handlers_are_as_before_after_the_block():
    before = [signal.getsignal(number) for number in ENDING], sys.unraisablehook, sys.excepthook
    with orderly_end(), orderly_end():
        assert signal.getsignal(signal.SIGTERM) != before[0][1]
    assert (
        [signal.getsignal(number) for number in ENDING],
        sys.unraisablehook,
        sys.excepthook,
    ) == before


def test_an_interrupt_while_the_command_line_loads_prints_nothing(tmp_path):
    (tmp_path / "click.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)]),
    }
    done = subprocess.run(
        [sys.executable, "-m", "ppsim", "list"],
        env=environment,
        capture_output=True,
        timeout=HANG_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")
