"""Work of a library that holds Ctrl-C back as long as it runs, done so that Python gets it at
once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
POLL_S = 0.05


def run_interruptibly(work: Callable[[], Result], stop: Callable[[], None]) -> Result:
    """Run blocking C code in a thread, so that Ctrl-C works; return the result."""
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
        # not a join: Python takes a thread whose join was interrupted for ended
        while not ended.wait(POLL_S):
            pass
    finally:
        if not ended.is_set():
            stop()
            ended.wait()
    if failed:
        raise failed[0]
    return done[0]
