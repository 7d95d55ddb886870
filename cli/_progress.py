"""A progress bar and a line on stderr, for work that a person at a terminal waits for."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE_S = 0.5  # seconds of work before the bar is shown
NAME = 32  # most letters of a step's name
LINE_AFTER_S = 1.0  # seconds of work before the line is printed

_bars: list[Any] = []


@contextmanager
def progress_bar(show: bool = True) -> Iterator[Callable[[float | None, str], None]]:
    """Show the progress of the block; yields a function to call with the finished share, from 0 to
    1, and the current step.

    The bar appears after half a second of work, reported or not, and only if ``show`` is set and
    stderr is a terminal. While the share is None or not known, it pulses, without a time left.
    """
    if not show or not sys.stderr.isatty():
        yield lambda done, what: None
        return
    bar = _make_bar()
    task, ended, turn = bar.add_task("starting", total=None), threading.Event(), threading.Lock()

    def begin() -> None:
        if ended.wait(PATIENCE_S):
            return
        with turn:
            if not ended.is_set():
                bar.start()
                _bars.append(bar)

    def report(done: float | None, what: str, **_: Any) -> None:
        bar.update(
            task, total=None if done is None else 1.0, completed=done or 0.0, description=what
        )

    threading.Thread(target=begin, daemon=True).start()
    try:
        yield report
    finally:
        with turn:
            ended.set()
            if bar in _bars:
                bar.stop()
                _bars.remove(bar)


def _make_bar() -> Any:
    """Return a bar with the step, and with the finished share and the time left if known."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column
    from rich.text import Text

    console = Console(stderr=True)
    name = min(NAME, console.width // 3)

    class Left(TimeRemainingColumn):
        def render(self, task: Task) -> Text:
            if task.total is None or not task.completed:
                return TimeElapsedColumn().render(task)
            return Text(f"{task.percentage:.0f}%  ") + super().render(task) + Text(" left")

    return Progress(
        TextColumn("{task.description}", table_column=Column(width=name, no_wrap=True)),
        BarColumn(),
        Left(table_column=Column(no_wrap=True)),
        console=console,
        transient=True,
    )


@contextmanager
def show_line(what: str) -> Iterator[None]:
    """Print the name of the block's work after one second, on a terminal without a bar."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()

    def print_late() -> None:
        if not done.wait(LINE_AFTER_S) and not _bars:
            print(f"{what} ...", file=sys.stderr, flush=True)

    printer = threading.Thread(target=print_late, daemon=True)
    printer.start()
    try:
        yield
    finally:
        done.set()
        printer.join()
