"""Blocking work in a thread ends with its result, its error, or with Ctrl-C."""

import subprocess
import sys

import pytest

from ppsim.base.interruptible import run_interruptibly
from tests.clock import HANG_S
from tests.commands import ROOT

# Ctrl-C before each bytecode of the wait in turn, also in the functions that it calls.
AT_EVERY_POINT = """
import sys, time
from ppsim.base.interruptible import run_interruptibly

code = run_interruptibly.__code__
lines = open(code.co_filename).read().splitlines()
first = next(n for n, line in enumerate(lines, 1) if ".start()" in line) + 1
points = 0
for point in range(1, 60):
    stopped, seen = [], 0

    def work():
        while not stopped:
            time.sleep(0.001)

    def count(frame, event, _):
        global seen
        outer = frame
        while outer and outer.f_code is not code:
            outer = outer.f_back
        if not outer:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and outer.f_lineno > first and not stopped:
            seen += 1
            if seen == point:
                raise KeyboardInterrupt
        return count

    sys.settrace(count)
    try:
        run_interruptibly(work, lambda: stopped.append(1))
    except KeyboardInterrupt:
        points += 1
    sys.settrace(None)
    assert stopped
print(points)
"""


def test_the_result_and_the_error_are_those_of_the_work():
    assert run_interruptibly(lambda: 3, lambda: None) == 3
    with pytest.raises(ZeroDivisionError):
        run_interruptibly(lambda: 1 // 0, lambda: None)


@pytest.mark.slow
def test_an_interrupt_at_any_point_of_the_wait_ends_it():
    """None leaves a lock behind for which both threads wait."""
    ran = subprocess.run(
        [sys.executable, "-c", AT_EVERY_POINT],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=HANG_S,
        check=False,
    )
    assert (ran.stdout, ran.stderr) == ("59\n", "")
