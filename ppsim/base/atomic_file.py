"""Atomic files: a file takes its place only when it is whole."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ppsim.errors import InputError


@contextmanager
def opened(target: str) -> Iterator[IO[bytes]]:
    """A binary file that takes its place at ``target`` only when the block ends well; standard output for ``-``.

    Raises:
        InputError: the path cannot be written.
    """
    if target == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(target)
    try:
        if path.is_dir():
            raise IsADirectoryError(21, "Is a directory")
        if path.exists() and not path.is_file():  # a device or a pipe is written as it is
            with path.open("wb") as out:
                yield out
            return
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise unwritable(target, error) from error
    try:
        with os.fdopen(handle, "wb") as out:
            yield out
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise unwritable(target, error) from error
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def rehearse(target: str) -> None:
    """Refuse now what could not be written after minutes of measuring; leaves nothing behind.

    Raises:
        InputError: the path cannot be written, or is no plain file's.
    """
    if target == "-":
        return
    path = Path(target)
    if path.exists() and not path.is_file():
        raise InputError(f"cannot write '{target}': not a plain file", "give a file's name")
    with suppress(_Rehearsed), opened(target):
        raise _Rehearsed


class _Rehearsed(Exception):
    """Ends the trial of a path before anything takes its place."""


def unwritable(target: str, error: OSError) -> InputError:
    """The error for a path that cannot be written."""
    return InputError(
        f"cannot write '{target}': {error.strerror or error}", "give a path in a folder that exists and has room"
    )
