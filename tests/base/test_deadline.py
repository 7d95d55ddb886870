"""Work ends by a deadline that is set around it."""

import signal
from contextlib import suppress
from time import monotonic

import numpy as np
import pytest

from ppsim.base import compiled, deadline
from ppsim.base.deadline import TimeOver, check_time, end_by, interrupt_at, seconds_left


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """The alarm rings again so soon that waiting for it takes little."""
    monkeypatch.setattr(deadline, "AGAIN_S", 0.01)


def triple(values):
    for i in range(len(values)):
        values[i] *= 3.0


def test_the_earliest_deadline_around_counts():
    now = monotonic()
    with end_by(now + 1000), end_by(now + 5000):
        assert 0 < seconds_left() <= 1000
        with end_by(now), pytest.raises(TimeOver):
            check_time()
        check_time()
    assert seconds_left() == float("inf")


def spin(seconds):
    end = monotonic() + seconds
    while monotonic() < end:
        pass


def test_the_alarm_lets_a_clean_up_end(ours):
    """One that takes longer than the alarm's interval is not cut short."""
    done = []

    def work():
        try:
            spin(30)
        finally:
            spin(4 * deadline.AGAIN_S)
            done.append("cleaned up")

    with pytest.raises(TimeOver), interrupt_at(monotonic()):
        work()
    assert done == ["cleaned up"]
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_the_alarm_rings_again_where_its_error_is_discarded(ours):
    ended = []

    def work():
        with suppress(TimeOver):
            spin(30)
            ended.append("first")
        spin(30)
        ended.append("second")

    with pytest.raises(TimeOver), interrupt_at(monotonic()):
        work()
    assert ended == []


def test_the_alarm_waits_for_the_end_of_a_librarys_function():
    with interrupt_at(monotonic()):
        spin(4 * deadline.AGAIN_S)  # of this module, which is none of the package


@pytest.fixture
def ours(monkeypatch):
    """This module counts as one of the package."""
    monkeypatch.setattr(deadline, "PACKAGE", __name__)


@pytest.fixture
def cold(monkeypatch, tmp_path):
    """A machine that has compiled nothing."""
    monkeypatch.setattr(compiled, "_loaded", {})
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.mark.slow
def test_cpython_runs_a_kernel_whose_machine_code_comes_too_late(cold):
    """Nothing is compiled, and a later call may compile."""
    values = np.ones(2)
    with end_by(monotonic()):
        compiled.call(triple, values)
    assert (values.tolist(), compiled._loaded) == ([3, 3], {})
    assert list(cold.rglob("*.nb?")) == []


@pytest.mark.slow
def test_a_kernel_is_compiled_before_a_deadline_and_loaded_after_it(cold):
    """What is kept takes no time to speak of, so that a deadline does not matter to it."""
    for ends, hits in ((monotonic() + 500, 0), (monotonic(), 1)):
        compiled._loaded.clear()
        values = np.ones(2)
        with end_by(ends):
            compiled.call(triple, values)
        assert values.tolist() == [3, 3]
        assert sum(compiled._loaded[triple].stats.cache_hits.values()) == hits  # type: ignore[attr-defined]
