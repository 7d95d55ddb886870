"""Long work reports how far it is; the command line shows a bar."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

Report = Callable[[float | None, str], None]  # called with the share done, 0 to 1 or unknown, and the current step
Bar = Callable[[bool], AbstractContextManager[Report]]


def _no_bar(wanted: bool) -> AbstractContextManager[Report]:
    return nullcontext(lambda done, what: None)


_bar: Bar = _no_bar


def progress(wanted: bool = True) -> AbstractContextManager[Report]:
    """Show the progress of the block, where it is wanted and somebody shows it; gives what to report to."""
    return _bar(wanted)


def show_progress(bar: Bar) -> None:
    """Show progress by a bar of this making, from now on."""
    global _bar
    _bar = bar
