"""Read users' files; all content of such files is read here.

Regular files and standard input are read up to a limit of size, and gzipped content is decompressed
up to the same limit (:mod:`ppsim.base.unpack.limits`).
"""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from typing import BinaryIO

from ppsim.base.text import STANDARD_INPUT, shorten
from ppsim.base.unpack.gzipped import unzip
from ppsim.base.unpack.limits import LARGEST, size_limit, too_large
from ppsim.base.unpack.texts import decode_text
from ppsim.errors import InputError

_CHUNK = 1 << 20


def name_of(path: str) -> str:
    """Return a file's path for messages, shortened and printable."""
    return shorten(path, 1000)


def read_bytes(path: str, *, stdin: bool = False, largest: int = LARGEST) -> bytes:
    """Return a file's content, decompressed if it is gzipped.

    Args:
        path: a regular file.
        stdin: whether ``-`` is standard input.
        largest: the limit in bytes, unless the environment sets one.

    Raises:
        InputError: the file cannot be read, is not a regular file, is larger than the limit, or its
            gzip stream is damaged.
    """
    largest = size_limit(largest)
    piped = stdin and path == STANDARD_INPUT
    name = "standard input" if piped else f"'{name_of(path)}'"
    try:
        raw = _read_standard_input(largest) if piped else _read_file(path, name, largest)
    except OSError as error:
        hint = "pipe a file in" if piped else "check the path"
        raise InputError(f"cannot read {name}: {error.strerror or error}", hint) from error
    if len(raw) > largest:
        raise too_large(name, largest)
    return unzip(raw, name, largest)


def read_text(path: str, hint: str, *, stdin: bool = False, largest: int = LARGEST) -> str:
    """Return a file's content as UTF-8 text, without a byte order mark.

    Raises:
        InputError: as :func:`read_bytes`, or it is not text; ``hint`` is a suggestion.
    """
    name = "standard input" if stdin and path == STANDARD_INPUT else name_of(path)
    try:
        return decode_text(read_bytes(path, stdin=stdin, largest=largest), f"'{name}'")
    except UnicodeDecodeError:
        raise InputError(f"'{name}' is not a text file", hint) from None


def _read_standard_input(largest: int) -> bytes:
    if sys.stdin is None:
        raise InputError("standard input is closed", "pipe a file in, or give its path")
    return _read_up_to(sys.stdin.buffer, largest, _CHUNK)


def _read_file(path: str, name: str, largest: int) -> bytes:
    _check_kind(os.stat(path).st_mode, name)
    # without blocking, as the file may have become a pipe since the check
    with open(
        os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)),
        "rb",
        0,
    ) as file:
        status = os.fstat(file.fileno())
        _check_kind(status.st_mode, name)
        if status.st_size > largest:
            raise too_large(name, largest, status.st_size)
        return _read_up_to(file, largest, max(_CHUNK, status.st_size + 1))


def _check_kind(mode: int, name: str) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise InputError(
            f"{name} is a pipe or a device, not a file", "write it to a file, or pipe it to '-'"
        )


def _read_up_to(file: io.RawIOBase | BinaryIO, largest: int, chunk: int) -> bytes:
    """Return the content up to the end, or slightly more than ``largest`` bytes of it."""
    pieces, size = list[bytes](), 0
    while size <= largest and (piece := file.read(chunk)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)
