"""The time by which work shall end: a command sets it, and what takes seconds looks at it between its steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic

_deadline: ContextVar[float] = ContextVar("deadline", default=float("inf"))


class TimeOver(Exception):
    """The time ended before a piece of work; what set the deadline goes on without it."""


@contextmanager
def end_by(deadline: float) -> Iterator[None]:
    """Set the deadline of the block, on the monotonic clock; one that is set and earlier stays."""
    token = _deadline.set(min(deadline, _deadline.get()))
    try:
        yield
    finally:
        _deadline.reset(token)


def seconds_left() -> float:
    """Return the time to the deadline, infinite without one and not positive after it."""
    return _deadline.get() - monotonic()


def check_time() -> None:
    """Raise where the deadline is past.

    Raises:
        TimeOver: it is.
    """
    if seconds_left() <= 0:
        raise TimeOver
