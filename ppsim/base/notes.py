"""What is said beside an answer: notes, how far long work is, what it does; whoever shows answers
says how.
"""

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
class Shown:
    """How it is shown: notes as Python's warnings and the rest not at all, unless a command line
    sets it.
    """

    note: Callable[[str], None] = _warn  # shows the text of a note
    # makes a bar, where one is wanted; a context manager that gives what to report to
    progress: Callable[[bool], AbstractContextManager[Report]] = lambda wanted: nullcontext(
        lambda done, what: None
    )
    # shows the words of a block, such as ``compiling``; a context manager
    work: Callable[[str], AbstractContextManager[None]] = lambda what: nullcontext()


shown = Shown()


def note(text: str) -> None:
    """Tell the user something beside the answer, such as what was left out."""
    shown.note(text)


def progress(wanted: bool = True) -> AbstractContextManager[Report]:
    """Show the progress of the block, where it is wanted and somebody shows it; gives what to
    report to.
    """
    return shown.progress(wanted)


def long_work(what: str) -> AbstractContextManager[None]:
    """Say what the block does, such as ``compiling``, where a command line shows it."""
    return shown.work(what)
