"""The wall between the recorder and the program that it observes: neither one's errors reach the
other.
"""

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
        """Call work of the recorder; a fault of it gives None and ends the recording."""


def observed_function(
    guard: Guard,
    original: Callable[..., Any],
    before: Callable[..., Any],
    after: Callable[[Any, Any], None],
    failed: Callable[[], None] | None = None,
) -> Callable[..., Any]:
    """Return a function that calls the original and is observed by a recording while the original
    runs.

    The original is called once, with exactly the caller's arguments; whatever it returns or raises
    is passed on.

    Args:
        guard: the recording.
        original: the observed function.
        before: is called first with what is given; where it returns None, this call is not
            observed.
        after: is called with what ``before`` returned and with the result.
        failed: is called where the original raises.
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
    """Tell whether a signal handler of the program raised an error while the recorder was at
    work.
    """
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
    """Return the code that a signal's handler runs: of a function, a method, a partial one, or an
    object's call.
    """
    handler = handler.func if isinstance(handler, partial) else handler
    if not isinstance(handler, FunctionType | MethodType) and callable(handler):
        handler = type(handler).__call__
    code = getattr(handler, "__code__", None)
    return code if isinstance(code, CodeType) else None


def warn(text: str) -> None:
    """Warn; on standard error where warnings are errors, as nothing may end the program that is
    recorded.
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
    """Return how many calls above :func:`warn` the line of the program is that the recorder was
    called from.
    """
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("ppsim."):
        frame, level = frame.f_back, level + 1
    return level


def describe(error: Exception) -> str:
    """Describe the error in one line."""
    try:
        if isinstance(error, OSError) and error.strerror:
            where = f"'{error.filename}': " if error.filename else ""
            return shorten(f"{where}{error.strerror}")
        lines = str(error).splitlines()
        return shorten(f"{type(error).__name__}: {lines[0]}") if lines else type(error).__name__
    except Exception:  # an error that cannot be written
        return type(error).__name__
