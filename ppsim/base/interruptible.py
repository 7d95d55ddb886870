"""Run blocking C code so that Ctrl-C interrupts it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
POLL_S = 0.05


def run_interruptibly(work: Callable[[], Result], stop: Callable[[], None]) -> Result:
    """Return the result of blocking C code, run in a thread; Ctrl-C calls ``stop`` and raises."""
    done, failed = list[Result](), list[BaseException]()
    # A plain lock, held until the work ends: Ctrl-C inside the wait of an Event may leave the
    # event's lock held, for which both threads would then wait forever.
    running = threading.Lock()
    running.acquire()

    def run() -> None:
        try:
            done.append(work())
        except BaseException as error:
            failed.append(error)
        finally:
            running.release()

    threading.Thread(target=run, daemon=True).start()
    try:
        # not a join, as Python regards a thread whose join was interrupted as ended
        while not (done or failed):
            running.acquire(timeout=POLL_S)
    finally:
        if not (done or failed):
            stop()
        while not (done or failed):
            running.acquire(timeout=POLL_S)
    if failed:
        raise failed[0]
    return done[0]
