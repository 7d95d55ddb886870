"""Separation of the recorder from the recorded program: errors of one never reach the other."""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Callable
from functools import partial, wraps
from types import CodeType, FunctionType, MethodType
from typing import Any, Protocol, TypeVar

from ppsim.base.text import shorten

Result = TypeVar("Result")


class Guard(Protocol):
    """A recording that observes calls."""

    running: bool

    def safely(self, work: Callable[..., Result], *given: Any, **named: Any) -> Result | None:
        """Return the result of the recorder's ``work``; an error ends the recording: None."""


def observed_function(
    guard: Guard,
    original: Callable[..., Any],
    before: Callable[..., Any],
    after: Callable[[Any, Any], None],
    failed: Callable[[], None] | None = None,
) -> Callable[..., Any]:
    """Return a function that calls the original and reports the call to a recording.

    The original is called once with exactly the caller's arguments; its result or exception is
    passed on.

    Args:
        guard: the recording.
        original: the observed function.
        before: called first, with the caller's arguments; if it returns None, the call is not
            observed.
        after: called with the result of ``before`` and the original's result.
        failed: called if the original raises.
    """

    @wraps(original, updated=())
    def observe(*given: Any, **named: Any) -> Any:
        begun = guard.safely(before, *given, **named) if guard.running else None
        if begun is None:
            return original(*given, **named)
        try:
            result = original(*given, **named)
        except BaseException:
            if failed is not None:
                guard.safely(failed)
            raise
        guard.safely(after, begun, result)
        return result

    return observe


def is_of_the_program(error: BaseException) -> bool:
    """Return whether a signal handler of the program raised the error while the recorder ran."""
    handlers = {
        code for each in signal.valid_signals() if (code := _code_of(signal.getsignal(each)))
    }
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


def _code_of(handler: Any) -> CodeType | None:
    """Return the code of a signal handler, which may be any callable; None for another value."""
    handler = handler.func if isinstance(handler, partial) else handler
    if not isinstance(handler, FunctionType | MethodType) and callable(handler):
        handler = type(handler).__call__
    code = getattr(handler, "__code__", None)
    return code if isinstance(code, CodeType) else None


def warn(text: str) -> None:
    """Warn the user.

    If warnings are errors, the text goes to standard error instead: nothing may end the recorded
    program.
    """
    try:
        warnings.warn(text, stacklevel=_level_of_the_program())
    except Exception as error:
        if is_of_the_program(error):
            raise
        try:
            if sys.stderr is not None:
                print(f"warning: {text}", file=sys.stderr)
        except Exception as error:
            if is_of_the_program(error):
                raise


def _level_of_the_program() -> int:
    """Return the number of calls from the program's line down to :func:`warn`."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("ppsim."):
        frame, level = frame.f_back, level + 1
    return level


def describe(error: Exception) -> str:
    """Return a description of the error in one line."""
    try:
        if isinstance(error, OSError) and error.strerror:
            where = f"'{error.filename}': " if error.filename else ""
            return shorten(f"{where}{error.strerror}")
        lines = str(error).splitlines()
        return shorten(f"{type(error).__name__}: {lines[0]}") if lines else type(error).__name__
    except Exception:  # an error without a text
        return type(error).__name__
