"""Standard streams of the process: reopened if closed, buffered, with errors of their own."""

from __future__ import annotations

import codecs
import io
import os
import sys
from contextlib import suppress
from typing import Any

from ppsim.base.numbers import MINUS

STANDARD_OUTPUT = "standard output"
# A closed stream becomes the null device, with flags that make reading or writing fail as it
# should; standard error is opened for writing, because messages have no other place.
CLOSED = (("stdin", 0, os.O_WRONLY), ("stdout", 1, os.O_RDONLY), ("stderr", 2, os.O_WRONLY))


class ReaderGone(BaseException):
    """Standard output has no reader any more.

    It is not an OSError, because click and rich turn those into exit code 1.
    """


class _Output(io.FileIO):
    """Standard output; errors name it instead of a file."""

    def write(self, data: Any, /) -> int:
        """Write as much as possible at once, and return the number of bytes."""
        try:
            return super().write(data)
        except BrokenPipeError as error:
            raise ReaderGone from error
        except OSError as error:
            error.filename = STANDARD_OUTPUT
            raise


class _Messages(io.FileIO):
    """Standard error; a message that cannot be written is dropped, and the work continues."""

    def write(self, data: Any, /) -> int:
        """Write as much as possible at once, or drop all; return the number of bytes."""
        with suppress(OSError):
            return super().write(data)
        return memoryview(data).nbytes


def _ascii_replacement(error: UnicodeError) -> tuple[str, int]:
    """Return ASCII for characters that an encoding lacks: '-' for the minus sign, else '?'."""
    assert isinstance(error, UnicodeEncodeError)
    lost = error.object[error.start : error.end]
    return "".join("-" if sign == MINUS else "?" for sign in lost), error.end


def repair_streams() -> None:
    """Reopen closed streams, buffer standard output, and print characters that an encoding lacks as
    '?'.
    """
    codecs.register_error("plainly", _ascii_replacement)
    for name, number, flags in CLOSED:
        if getattr(sys, name) is None:
            null_device = _open_null_device(number, flags)
            setattr(sys, name, open(null_device, "w" if number else "r", closefd=False))  # noqa: SIM115
    sys.stdout, sys.stderr = _reopened(sys.stdout, _Output), _reopened(sys.stderr, _Messages)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="plainly")


def _reopened(stream: Any, raw: type[io.FileIO]) -> Any:
    """Return a stream opened again over another file object, buffered even under PYTHONUNBUFFERED.

    On a full disk, an unbuffered file writes a part without an error. A stream in memory stays as
    it is.
    """
    with suppress(OSError, ValueError, AttributeError):
        lines = stream.line_buffering or isinstance(stream.buffer, io.RawIOBase)
        whole = io.BufferedWriter(raw(stream.fileno(), "wb", closefd=False))
        return io.TextIOWrapper(whole, stream.encoding, line_buffering=lines)
    return stream


def silence() -> None:
    """Drop standard output that cannot be written, so that the interpreter's flush cannot fail."""
    try:
        sys.stdout.flush()
    except (OSError, ReaderGone):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_null_device(number: int, flags: int) -> int:
    """Open the null device as a file number, or as another one if that number is in use."""
    handle = os.open(os.devnull, flags)
    with suppress(OSError):
        os.fstat(number)
        return handle
    os.dup2(handle, number)
    os.close(handle)
    return number
