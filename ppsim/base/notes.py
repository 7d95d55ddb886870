"""Progress and notes on standard error: the state of long work, and remarks on results."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

# called with the share done, 0 to 1 or unknown, and the current step
Report = Callable[[float | None, str], None]


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=3)


@dataclass
class Listeners:
    """The functions that show notes and progress.

    By default, notes are Python warnings and progress is not shown; the command line sets others.
    """

    note: Callable[[str], None] = _warn  # shows the text of a note
    # returns a context manager that shows a bar if wanted, and yields the function to report to
    progress: Callable[[bool], AbstractContextManager[Report]] = lambda wanted: nullcontext(
        lambda done, what: None
    )
    # returns a context manager that shows the name of its block's work, such as ``compiling``
    work: Callable[[str], AbstractContextManager[None]] = lambda what: nullcontext()


shown = Listeners()


def note(text: str) -> None:
    """Show a note to the user, for example that something was left out."""
    shown.note(text)


def progress(wanted: bool = True) -> AbstractContextManager[Report]:
    """Show a progress bar during the block if ``wanted``; yields the function to report to."""
    return shown.progress(wanted)


def long_work(what: str) -> AbstractContextManager[None]:
    """Show the name of the block's work, such as ``compiling``, on a command line."""
    return shown.work(what)
