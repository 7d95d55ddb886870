"""Run blocking C code so that Ctrl-C interrupts it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
POLL_S = 0.05


def run_interruptibly(work: Callable[[], Result], stop: Callable[[], None]) -> Result:
    """Return the result of blocking C code, run in a thread; Ctrl-C calls ``stop`` and raises."""
    done, failed, ended = list[Result](), list[BaseException](), threading.Event()

    def run() -> None:
        try:
            done.append(work())
        except BaseException as error:
            failed.append(error)
        finally:
            ended.set()

    threading.Thread(target=run, daemon=True).start()
    try:
        # not a join, as Python regards a thread whose join was interrupted as ended
        while not ended.wait(POLL_S):
            pass
    finally:
        if not ended.is_set():
            stop()
            ended.wait()
    if failed:
        raise failed[0]
    return done[0]
