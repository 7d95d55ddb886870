"""Deadlines: a command sets one, long work checks it, and an alarm interrupts other work."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from types import FrameType

AGAIN_S = 0.05
PACKAGE = __name__.partition(".")[0] + "."

_deadline: ContextVar[float] = ContextVar("deadline", default=float("inf"))
_unwanted: ContextVar[Callable[[], bool]] = ContextVar("unwanted", default=lambda: False)


class TimeOver(Exception):
    """The deadline passed before a piece of work ended, or its result is no longer needed."""


@contextmanager
def end_by(deadline: float) -> Iterator[None]:
    """Set the deadline of the block, on the monotonic clock; an earlier deadline stays in force."""
    token = _deadline.set(min(deadline, _deadline.get()))
    try:
        yield
    finally:
        _deadline.reset(token)


@contextmanager
def end_when(unwanted: Callable[[], bool]) -> Iterator[None]:
    """Cancel the block at its next :func:`check_time` once its result is no longer needed."""
    token = _unwanted.set(unwanted)
    try:
        yield
    finally:
        _unwanted.reset(token)


class interrupt_at:  # noqa: N801  (named like end_by, as it is used in the same way)
    """Raise TimeOver inside the block once the deadline is past. Such blocks must not be nested.

    It is raised only while a function of this package runs, as an exception inside a library could
    leave a lock or an incomplete change. This needs the main thread and a system with timers;
    otherwise work ends at its next :func:`check_time`.
    """

    def __init__(self, deadline: float) -> None:
        self.left = max(deadline - monotonic(), AGAIN_S)
        self.over = TimeOver()

    def __enter__(self) -> None:
        main = threading.current_thread() is threading.main_thread()
        self.timed = self.left < float("inf") and main and hasattr(signal, "setitimer")
        if self.timed:
            self.hook, sys.unraisablehook = sys.unraisablehook, self.lose
            self.before = signal.signal(signal.SIGALRM, self.ring)
            # repeatedly, as a library may be running, or a finalizer may discard the exception
            signal.setitimer(signal.ITIMER_REAL, self.left, AGAIN_S)

    def __exit__(self, *raised: object) -> None:
        if self.timed:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self.before)
            sys.unraisablehook = self.hook

    def ring(self, number: int, frame: FrameType | None) -> None:
        """Raise the exception, except in a library, in this module, or while it is handled."""
        name = frame.f_globals.get("__name__", "") if frame else ""
        if not name.startswith(PACKAGE) or name == __name__:
            return
        raised = sys.exc_info()[1]
        while raised is not None:
            if raised is self.over:
                return
            raised = raised.__context__
        raise self.over

    def lose(self, lost: sys.UnraisableHookArgs) -> None:
        """Ignore the loss of the exception in a finalizer, as the alarm raises it again."""
        if lost.exc_value is not self.over:
            self.hook(lost)


def seconds_left() -> float:
    """Return the time to the deadline, infinite without one and not positive after it."""
    return _deadline.get() - monotonic()


def check_time(needed: float = 0.0) -> None:
    """Check the deadline.

    Raises:
        TimeOver: fewer seconds are left than needed, or the result is no longer needed.
    """
    if seconds_left() <= needed or _unwanted.get()():
        raise TimeOver
