"""Real-time priority, under which a thread that a message or a timer wakes runs at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ppsim.errors import PpsimError

PRIORITY = 10
# of the time at real-time priority: Linux stops processes that leave less than 5 % of a second to
# others
REST = 0.5


@contextmanager
def real_time_priority(wanted: bool) -> Iterator[Callable[[bool], None]]:
    """Give a function that raises all threads of this process to real-time priority, or lowers
    them; if ``wanted``.

    Threads that start later inherit the priority. At the end all are lowered.

    Raises:
        PpsimError: the system does not allow it.
    """

    def pace(raised: bool) -> None:
        if not wanted:
            return
        try:
            policy, priority = (os.SCHED_RR, PRIORITY) if raised else (os.SCHED_OTHER, 0)
            for thread in os.listdir("/proc/self/task"):
                try:
                    os.sched_setscheduler(int(thread), policy, os.sched_param(priority))
                except ProcessLookupError:
                    continue
        except (AttributeError, PermissionError) as error:
            raise PpsimError(
                "real-time priority is not allowed here", "leave out --real-time"
            ) from error

    try:
        yield pace
    finally:
        pace(False)
