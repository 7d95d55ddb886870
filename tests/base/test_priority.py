"""Real-time priority: for all threads and only while asked for; a refusal is told."""

import pytest

from ppsim.base.priority import PRIORITY, real_time_priority
from ppsim.errors import PpsimError


@pytest.fixture
def calls(monkeypatch):
    """A system that notes what it is asked: the policy, the priority and the number of threads."""
    asked = []
    monkeypatch.setattr("os.SCHED_RR", 2, raising=False)
    monkeypatch.setattr("os.SCHED_OTHER", 0, raising=False)
    monkeypatch.setattr("os.sched_param", lambda priority: priority, raising=False)
    monkeypatch.setattr("os.listdir", lambda folder: ["7", "8"])
    monkeypatch.setattr("os.sched_setscheduler", lambda *call: asked.append(call), raising=False)
    return asked


def test_all_threads_are_raised_while_wanted_and_lowered_at_the_end(calls):
    with real_time_priority(True) as pace:
        pace(True)
        assert calls == [(7, 2, PRIORITY), (8, 2, PRIORITY)]
    assert calls[2:] == [(7, 0, 0), (8, 0, 0)]


def test_nothing_is_asked_of_the_system_unless_wanted(calls):
    with real_time_priority(False) as pace:
        pace(True)
    assert calls == []


def test_a_refusal_says_so(calls, monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr("os.sched_setscheduler", refuse)
    with (
        pytest.raises(PpsimError, match="real-time priority is not allowed"),
        real_time_priority(True) as pace,
    ):
        pace(True)
