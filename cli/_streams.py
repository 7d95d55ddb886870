"""Standard streams as the commands need them, whatever whoever started the process made of them."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import Any

STANDARD_OUTPUT = "standard output"
# A closed stream's number goes to the null device the wrong way round, so that using it fails as it should; nobody
# can be told where standard error is closed.
CLOSED = (("stdin", 0, os.O_WRONLY), ("stdout", 1, os.O_RDONLY), ("stderr", 2, os.O_WRONLY))


class ReaderGone(BaseException):
    """Nobody reads standard output any more; no OSError, of which click and rich each make an exit with 1."""


class _Output(io.FileIO):
    """Standard output, which says so where it fails."""

    def write(self, data: Any, /) -> int:
        """Write as much as goes at once."""
        try:
            return super().write(data)
        except BrokenPipeError as error:
            raise ReaderGone from error
        except OSError as error:
            error.filename = STANDARD_OUTPUT
            raise


class _Messages(io.FileIO):
    """Standard error: a message that nobody can read stops no work."""

    def write(self, data: Any, /) -> int:
        """Write as much as goes at once, or drop it."""
        with suppress(OSError):
            return super().write(data)
        return memoryview(data).nbytes


def repair_streams() -> None:
    """Open streams that are closed, write standard output whole, and print what an encoding cannot as '?'."""
    for name, number, flags in CLOSED:
        if getattr(sys, name) is None:
            setattr(sys, name, open(_null(number, flags), "w" if number else "r", closefd=False))  # noqa: SIM115
    sys.stdout, sys.stderr = _renewed(sys.stdout, _Output), _renewed(sys.stderr, _Messages)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")


def _renewed(stream: Any, raw: type[io.FileIO]) -> Any:
    """A stream over another file object; with a buffer even where the environment wants none (PYTHONUNBUFFERED).

    A raw file writes as much as fits, and tells nobody. A stream that is no file's stays as it is.
    """
    with suppress(OSError, ValueError, AttributeError):
        lines = stream.line_buffering or isinstance(stream.buffer, io.RawIOBase)
        whole = io.BufferedWriter(raw(stream.fileno(), "wb", closefd=False))
        return io.TextIOWrapper(whole, stream.encoding, line_buffering=lines)
    return stream


def silence() -> None:
    """Drop what standard output still holds, so that the interpreter's own flush cannot fail."""
    try:
        sys.stdout.flush()
    except (OSError, ReaderGone):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _null(number: int, flags: int) -> int:
    """Open the null device under a number, or under another where Python has given that to something else."""
    handle = os.open(os.devnull, flags)
    with suppress(OSError):
        os.fstat(number)
        return handle
    os.dup2(handle, number)
    os.close(handle)
    return number
