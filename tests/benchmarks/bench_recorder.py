"""What a recording costs the program that it observes, under pytest-benchmark; not collected by a
plain pytest.

pytest -n 0 tests/benchmarks/bench_recorder.py
"""

import pytest

from ppsim.real.recorder.guard import observed_function
from ppsim.record import op, record

OPS = 1000


def mark_ops() -> None:
    """Mark ops that compute nothing."""
    for number in range(OPS):
        with op("F", 0, number & 15):
            pass


def test_marks_outside_of_a_recording(benchmark):
    """What a loop pays that is not recorded: 1,000 marks."""
    benchmark(mark_ops)


def test_marks_within_a_recording(benchmark, tmp_path):
    """1,000 marks, noted and written each second."""
    with record(tmp_path, device=0):
        benchmark(mark_ops)


def test_a_recording_from_begin_to_end(benchmark, tmp_path):
    """The file and its thread, 1,000 marks, and the last write."""
    number = iter(range(1_000_000))

    def run() -> None:
        with record(tmp_path / str(next(number)), device=0):
            mark_ops()

    benchmark(run)


@pytest.mark.parametrize("watched", [False, True], ids=["plain", "observed"])
def test_a_call_that_a_hook_observes(benchmark, watched, tmp_path):
    """1,000 calls of a stage, by themselves and with a note before and after each."""

    def compute(stage: int, microbatch: int, **_: object) -> int:
        return microbatch

    with record(tmp_path, device=0) as recording:

        def before(stage: int, microbatch: int, **_: object) -> tuple[int, int, object]:
            return stage, microbatch, recording.mark()

        def after(begun: tuple[int, int, object], result: object) -> None:
            recording.note("F", begun[0], begun[1], begun[2], recording.mark())

        call = observed_function(recording, compute, before, after) if watched else compute

        def run() -> None:
            for number in range(OPS):
                call(0, number & 15, last=False)
            if watched:
                recording.write_due()

        with op("F", 0, 0):
            pass
        benchmark(run)
