"""Atomic files: a file gets its name only when it is complete.

Until then it has a hidden name in the same folder; only a killed process leaves such a file behind.
A replaced file keeps its mode and owner; symbolic links are followed; other hard links keep the old
contents.
"""

from __future__ import annotations

import atexit
import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ppsim.base.source import name_of
from ppsim.errors import InputError

HINT = "give a path in a folder that exists and has room"


@dataclass
class _Staged:
    """A file that is being written."""

    target: str  # the path as the user gave it
    path: Path  # the final path
    previous: os.stat_result | None  # status of the existing file at ``path``, if any
    name: str = ""  # its hidden name, set before the file exists
    stream: IO[bytes] | None = None  # the open file; None before it is opened


_waiting: ContextVar[list[_Staged] | None] = ContextVar("waiting", default=None)
_hidden: set[str] = set()  # hidden names, whose files are removed at exit


@contextmanager
def open_atomically(target: str) -> Iterator[IO[bytes]]:
    """Open a binary file that is moved to ``target`` only if the block succeeds; ``-`` is standard
    output.

    Devices, and pipes that have a reader, are written directly.

    Raises:
        InputError: the path cannot be written, or its file is read-only.
    """
    if target == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        path = _follow(Path(target))
        before = path.stat() if path.exists() else None
        if before and (path.is_symlink() or not stat.S_ISREG(before.st_mode)):
            with _open_special(path, before) as out:
                yield out
            return
    except OSError as error:
        raise unwritable(target, error) from error
    waiting, staged = _waiting.get(), _Staged(target, path, before)
    try:
        out = _open_staged(staged)
        yield out
        if waiting is None:
            _place(staged)
        else:
            out.flush()
            waiting.append(staged)
    except OSError as error:
        _drop(staged)
        raise unwritable(target, error) from error
    except BaseException:
        _drop(staged)
        raise


@contextmanager
def place_together() -> Iterator[None]:
    """Move all files opened in the block to their targets if it succeeds, and none otherwise.

    Raises:
        InputError: a file cannot be moved; the files before it have been moved.
    """
    if _waiting.get() is not None:
        yield
        return
    files: list[_Staged] = []
    token = _waiting.set(files)
    try:
        yield
        for staged in files:
            try:
                _place(staged)
            except OSError as error:
                raise unwritable(staged.target, error) from error
    finally:
        _waiting.reset(token)
        for staged in files:
            _drop(staged)


def rehearse(target: str, *, plain: bool = False) -> None:
    """Check that a path can be written, before long work; leaves no file.

    Args:
        target: the path; standard output, devices and pipes are not checked.
        plain: whether it must be a plain file.

    Raises:
        InputError: the path cannot be written, or is not a plain file.
    """
    if target == "-":
        return
    # unlike the methods of Path, these never raise for an impossible name
    is_file = os.path.isfile(target)
    if os.path.exists(target) and not is_file and (plain or os.path.isdir(target)):
        raise InputError(f"cannot write '{target}': not a plain file", "give a file's name")
    if is_file or not os.path.exists(target):
        with suppress(_RehearsalEnd), open_atomically(target):
            raise _RehearsalEnd


class _RehearsalEnd(Exception):
    """Ends the block of :func:`rehearse` so that nothing is written."""


def unwritable(target: str, error: OSError) -> InputError:
    """Return the error for a path that cannot be written."""
    name, folder = name_of(target), os.path.dirname(target) or "."
    if target != "-" and error.errno != errno.ENAMETOOLONG and not os.path.isdir(folder):
        return InputError(
            f"cannot write '{name}': no folder '{name_of(folder)}'", "make the folder first"
        )
    return InputError(f"cannot write '{name}': {error.strerror or error}", HINT)


def _follow(path: Path) -> Path:
    """Return the file that symbolic links lead to, which may not exist.

    Links to a process's open files are not followed.
    """
    with suppress(FileNotFoundError):
        path.stat()  # raises for a link that leads to itself
    while path.is_symlink():
        folder = Path(os.path.realpath(path.parent))
        named = folder / os.readlink(path)
        if "proc" in (*folder.parts[1:2], *named.parts[1:2]):
            return path
        path = named
    return path


def _open_special(path: Path, found: os.stat_result) -> IO[bytes]:
    """Open a device or a pipe for writing.

    Raises:
        InputError: a pipe has no reader, so opening it would block forever.
    """
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISFIFO(found.st_mode):
        return path.open("wb")
    try:
        handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise InputError(
                f"cannot write '{path}': no process reads this pipe", "start its reader first"
            ) from error
        raise
    os.set_blocking(handle, True)
    return os.fdopen(handle, "wb")


def _open_staged(staged: _Staged) -> IO[bytes]:
    """Open the hidden file."""
    path, before = staged.path, staged.previous
    if before and not (before.st_mode & 0o222 and os.access(path, os.W_OK)):
        message = f"cannot write '{staged.target}': the file is read-only"
        raise InputError(message, "chmod u+w allows it; or another name")
    # the system subtracts the umask
    mode = stat.S_IMODE(before.st_mode) & 0o777 if before else 0o666
    staged.name = os.path.abspath(path.parent / f".ppsim-{os.urandom(6).hex()}")
    _hidden.add(staged.name)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    staged.stream = os.fdopen(os.open(staged.name, flags, mode), "wb")
    return staged.stream


def _place(staged: _Staged) -> None:
    """Move the hidden file to its target, with the mode and owner of the file it replaces."""
    assert staged.stream
    staged.stream.close()
    if staged.previous:
        # without the permission, another user's file becomes the writer's
        with suppress(AttributeError, PermissionError):
            os.chown(staged.name, staged.previous.st_uid, staged.previous.st_gid)
        os.chmod(staged.name, stat.S_IMODE(staged.previous.st_mode))
    os.replace(staged.name, staged.path)
    _hidden.discard(staged.name)


def _drop(staged: _Staged) -> None:
    """Remove the hidden file, if it has not been moved."""
    with suppress(OSError):  # close() tries to write the rest again
        if staged.stream:
            staged.stream.close()
    if staged.name:
        with suppress(OSError):  # there is no file if the disk is full
            Path(staged.name).unlink()
        _hidden.discard(staged.name)


@atexit.register
def _remove_hidden() -> None:
    """Remove hidden files whose removal was interrupted by a signal."""
    while _hidden:
        with suppress(OSError):
            Path(_hidden.pop()).unlink()
