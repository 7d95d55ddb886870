"""Standard streams of a process: reopened if closed, buffered, with distinct errors."""

from __future__ import annotations

import codecs
import io
import os
import sys
from contextlib import suppress
from typing import Any

from ppsim.base.numbers import MINUS

STANDARD_OUTPUT = "standard output"
# A closed stream becomes the null device, opened the wrong way round so that reading or writing
# fails as it should; standard error is opened for writing, as there is no other place for messages.
CLOSED = (("stdin", 0, os.O_WRONLY), ("stdout", 1, os.O_RDONLY), ("stderr", 2, os.O_WRONLY))


class ReaderGone(BaseException):
    """Standard output has lost its reader; not an OSError, which click and rich turn into exit code
    1.
    """


class _Output(io.FileIO):
    """Standard output: its errors name it."""

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
    """Standard error; a message that cannot be written is dropped, and work continues."""

    def write(self, data: Any, /) -> int:
        """Write as much as goes at once, or drop it."""
        with suppress(OSError):
            return super().write(data)
        return memoryview(data).nbytes


def _ascii_replacement(error: UnicodeError) -> tuple[str, int]:
    """Return an ASCII minus for the true one if an encoding lacks it, and '?' for any other
    character.
    """
    assert isinstance(error, UnicodeEncodeError)
    lost = error.object[error.start : error.end]
    return "".join("-" if sign == MINUS else "?" for sign in lost), error.end


def repair_streams() -> None:
    """Reopen closed streams, write standard output whole, and print characters that an encoding
    lacks as '?'.
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
    """Open a stream again over another file object, with a buffer even under PYTHONUNBUFFERED.

    An unbuffered file writes a part where the disk is full, without an error. A stream in memory
    stays as it is.
    """
    with suppress(OSError, ValueError, AttributeError):
        lines = stream.line_buffering or isinstance(stream.buffer, io.RawIOBase)
        whole = io.BufferedWriter(raw(stream.fileno(), "wb", closefd=False))
        return io.TextIOWrapper(whole, stream.encoding, line_buffering=lines)
    return stream


def silence() -> None:
    """Drop unwritten standard output, so that the interpreter's own flush cannot fail."""
    try:
        sys.stdout.flush()
    except (OSError, ReaderGone):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_null_device(number: int, flags: int) -> int:
    """Open the null device under a number, or under another where Python has given that to
    something else.
    """
    handle = os.open(os.devnull, flags)
    with suppress(OSError):
        os.fstat(number)
        return handle
    os.dup2(handle, number)
    os.close(handle)
    return number
