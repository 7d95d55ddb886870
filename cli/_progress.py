"""A progress bar on stderr, for work that a person waits for."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE_S = 0.5


@contextmanager
def progress_bar(show: bool = True) -> Iterator[Callable[[float, str], None]]:
    """A function to call with the share done and what is going on.

    Shows nothing unless ``show``, and unless stderr is a terminal and the work has taken longer than half a second.
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
        bar.update(task, completed=done, description=what)

    try:
        yield report
    finally:
        if shown[0]:
            bar.stop()
