"""Real-time scheduling for measurements, so that a woken thread runs at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ppsim.errors import PpsimError

PRIORITY = 10
# share of the time without real-time priority; Linux stops real-time processes that leave less than
# 5 % of a second to others
REST = 0.5


@contextmanager
def real_time_priority(wanted: bool) -> Iterator[Callable[[bool], None]]:
    """Yield a function that sets real-time priority for all threads of this process (True), or ends
    it (False); it does nothing unless ``wanted``.

    Threads that start later inherit the priority. It ends with the block.

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
