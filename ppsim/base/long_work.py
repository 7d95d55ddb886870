"""Long work announces what it does, such as compiling; the command line shows it on a terminal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

Show = Callable[[str], AbstractContextManager[None]]


def _say_nothing(what: str) -> AbstractContextManager[None]:
    return nullcontext()


_show: Show = _say_nothing


def long_work(what: str) -> AbstractContextManager[None]:
    """Say what the block does, such as ``compiling``, where a command line shows it."""
    return _show(what)


def show_long_work(show: Show) -> None:
    """Show long work by a function of its words that gives a context manager, from now on."""
    global _show
    _show = show
