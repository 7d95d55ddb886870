"""Notes to the user beside an answer, such as what was left out; whoever shows answers says where they go."""

from __future__ import annotations

import warnings
from collections.abc import Callable


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=3)


_show: Callable[[str], None] = _warn


def note(text: str) -> None:
    """Tell the user something beside the answer: a warning of Python's, unless :func:`show_notes` said otherwise."""
    _show(text)


def show_notes(show: Callable[[str], None]) -> None:
    """Show notes by a function of their text, from now on."""
    global _show
    _show = show
