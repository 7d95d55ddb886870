"""Reading files: the only way in which bytes of a user's file come into ppsim.

Regular files and standard input are read, up to a limit of size, and whatever is gzipped is decompressed up to the
same limit. The environment variable ``PPSIM_MAX_SIZE`` sets the limit.
"""

from __future__ import annotations

import errno
import gzip
import io
import os
import stat
import sys
import zlib
from typing import BinaryIO

from ppsim.base.text import shorten
from ppsim.base.units import format_size, parse_size
from ppsim.errors import InputError

LARGEST = 256 << 20
VARIABLE = "PPSIM_MAX_SIZE"
STANDARD_INPUT = "-"
_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 20


def name_of(path: str) -> str:
    """Name a file in messages: its path, fit to be shown."""
    return shorten(path, 1000)


def read_bytes(path: str, *, stdin: bool = False, largest: int = LARGEST) -> bytes:
    """Read a file's content, decompressed if it is gzipped.

    Args:
        path: a regular file.
        stdin: whether ``-`` is standard input.
        largest: the limit in bytes, where the environment sets none.

    Raises:
        InputError: the file cannot be read, is no regular file, is larger than the limit, or its gzip stream is
            damaged.
    """
    largest = _limit(largest)
    piped = stdin and path == STANDARD_INPUT
    name = "standard input" if piped else f"'{name_of(path)}'"
    try:
        raw = _read_standard_input(largest) if piped else _read_file(path, name, largest)
    except OSError as error:
        hint = "pipe a file in" if piped else "check the path"
        raise InputError(f"cannot read {name}: {error.strerror or error}", hint) from error
    if len(raw) > largest:
        raise _too_large(name, largest)
    return _decompress(raw, name, largest) if raw.startswith(_GZIP) else raw


def read_text(path: str, hint: str, *, stdin: bool = False, largest: int = LARGEST) -> str:
    """Read a file's content as UTF-8 text, without a byte order mark.

    Raises:
        InputError: as :func:`read_bytes`, or it is not text; ``hint`` says what to give instead.
    """
    try:
        return read_bytes(path, stdin=stdin, largest=largest).decode("utf-8-sig")
    except UnicodeDecodeError:
        name = "standard input" if stdin and path == STANDARD_INPUT else name_of(path)
        raise InputError(f"'{name}' is not a text file", hint) from None


def _limit(largest: int) -> int:
    given = os.environ.get(VARIABLE, "")
    try:
        return parse_size(given)[0] if given else largest
    except InputError as error:
        raise InputError(f"{VARIABLE}: {error}", error.hint) from None


def _read_standard_input(largest: int) -> bytes:
    if sys.stdin is None:
        raise InputError("standard input is closed", "pipe a file in, or give its path")
    return _read_up_to(sys.stdin.buffer, largest, _CHUNK)


def _read_file(path: str, name: str, largest: int) -> bytes:
    _check_kind(os.stat(path).st_mode, name)
    # Without waiting: the file may have become a pipe since.
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb", 0) as file:
        status = os.fstat(file.fileno())
        _check_kind(status.st_mode, name)
        if status.st_size > largest:
            raise _too_large(name, largest, status.st_size)
        return _read_up_to(file, largest, max(_CHUNK, status.st_size + 1))


def _check_kind(mode: int, name: str) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise InputError(f"{name} is a pipe or a device, not a file", "write it to a file, or pipe it to '-'")


def _read_up_to(file: io.RawIOBase | BinaryIO | gzip.GzipFile, largest: int, chunk: int) -> bytes:
    """Read to the end, or until there is more than ``largest`` bytes."""
    pieces, size = list[bytes](), 0
    while size <= largest and (piece := file.read(chunk)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def _decompress(raw: bytes, name: str, largest: int) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
            content = _read_up_to(file, largest, _CHUNK)
    except (EOFError, OSError, zlib.error) as error:
        raise InputError(f"{name} is gzipped, and not whole: {error}", "fetch or make it again") from error
    if len(content) > largest:
        raise _too_large(f"{name}, decompressed,", largest)
    return content


def _too_large(name: str, largest: int, size: int = 0) -> InputError:
    """Refuse a file, with a limit that lets its size in; where that is unknown, with a larger one."""
    more = 1 << (max(size, 4 * largest or LARGEST) - 1).bit_length()
    return InputError(
        f"{name} is larger than {format_size(largest)}",
        f"{VARIABLE}={format_size(more).replace(' ', '')} in the environment raises the limit",
    )
