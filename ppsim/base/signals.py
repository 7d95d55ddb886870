"""Signals that end a program: they raise an exception, so that the program cleans up first.

The first signal raises a KeyboardInterrupt; a second one is ignored, as it would interrupt the
clean-up; a third one ends the process at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

ENDING = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
    if hasattr(signal, name)
)
MOST = 3
AGAIN_S = 0.05


class Interrupted(KeyboardInterrupt):
    """A signal is to end the program.

    It is a subclass, as Python ends itself by SIGINT on a plain KeyboardInterrupt.
    """


_received: list[int] = []
_dealt_with = 0
_held = False


@contextmanager
def orderly_end() -> Iterator[None]:
    """Raise on SIGTERM, SIGHUP and SIGQUIT within the block as on Ctrl-C, so that work cleans up.

    Signals that are ignored or have a handler are unaffected.
    """
    # only the main thread may set handlers of signals
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    plain = (signal.SIG_DFL, signal.default_int_handler)
    before = {number: found for number in ENDING if (found := signal.getsignal(number)) in plain}
    hooks = sys.unraisablehook, sys.excepthook
    if before:
        _received.clear()
        resume()
        sys.unraisablehook = lambda lost: _raise_again(hooks[0], lost)
        # Extension modules print an interrupt of their imports, and raise another error.
        sys.excepthook = lambda kind, *error: (
            None if kind is Interrupted else hooks[1](kind, *error)
        )
    for number in before:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.unraisablehook, sys.excepthook = hooks


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Block Ctrl-C for this thread during the block, and for processes and threads that it starts.

    In those it stays blocked. A signal that another thread receives meanwhile, or another signal
    that ends the program, is raised at the end of the block in the main thread.
    """
    global _held
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # before, as it unblocks signals at its start
    before, held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}), _held
    _held = held or threading.current_thread() is threading.main_thread()
    try:
        yield
    finally:
        _held = held
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if not held and threading.current_thread() is threading.main_thread():
            raise_swallowed()


def first_signal() -> int:
    """Return the number of the first signal that was to end the program; 0 for none."""
    return _received[0] if _received else 0


def raise_swallowed() -> None:
    """Raise an interrupt again that a library discarded, as numpy does in some look-ups.

    Raises:
        Interrupted: a signal was received, but its exception did not end the work.
    """
    if len(_received) > _dealt_with:
        raise Interrupted


def resume() -> None:
    """Continue after a signal: the next one counts as the first again."""
    global _dealt_with
    _dealt_with = len(_received)


def _end(number: int, frame: Any) -> None:
    _received.append(number)
    waiting = len(_received) - _dealt_with
    if waiting == 1 and not _held:
        raise Interrupted
    if waiting >= MOST:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _raise_again(hook: Any, lost: Any) -> None:
    """Raise an interrupt again a moment later if Python discarded it in a finalizer or a
    callback.
    """
    if not isinstance(lost.exc_value, Interrupted) or not hasattr(signal, "setitimer"):
        hook(lost)
        return

    def interrupt(number: int, frame: Any) -> None:
        raise Interrupted

    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
