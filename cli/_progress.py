"""A progress bar and a line on stderr, for work that a person at a terminal waits for."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE_S = 0.5
LINE_AFTER_S = 1.0

_bars: list[Any] = []


@contextmanager
def progress_bar(show: bool = True) -> Iterator[Callable[[float, str], None]]:
    """Show the progress of the block; gives a function to call with the share done, 0 to 1, and the current step.

    Nothing is shown unless ``show`` is set, stderr is a terminal and the work has taken longer than half a second.
    """
    if not show or not sys.stderr.isatty():
        yield lambda done, what: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:<32}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
    task, begin, shown = bar.add_task("starting", total=1.0), time.monotonic(), [False]

    def report(done: float, what: str, **_: Any) -> None:
        if not shown[0] and time.monotonic() - begin > PATIENCE_S:
            bar.start()
            shown[0] = True
            _bars.append(bar)
        bar.update(task, completed=done, description=what)

    try:
        yield report
    finally:
        if shown[0]:
            bar.stop()
            _bars.remove(bar)


@contextmanager
def show_line(what: str) -> Iterator[None]:
    """Print what the block does once it has taken longer than a second; on a terminal without a bar only."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()

    def tell() -> None:
        if not done.wait(LINE_AFTER_S) and not _bars:
            print(f"{what} ...", file=sys.stderr, flush=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
