"""Atomic files: a file gets its name only when it is complete.

Before that it has a short hidden name in the same folder, which only a killed process leaves. A
file that exists keeps its mode and owner; a symbolic link is followed; other hard links keep the
old contents.
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

from ppsim.errors import InputError

HINT = "give a path in a folder that exists and has room"


@dataclass
class _Staged:
    """A file that is being written."""

    target: str  # the path as the user gave it
    path: Path  # the path that it takes
    previous: os.stat_result | None  # the file that is at ``path``, if any
    name: str = ""  # its hidden name, known before the file exists
    stream: IO[bytes] | None = None  # the open file; none before it is opened


_waiting: ContextVar[list[_Staged] | None] = ContextVar("waiting", default=None)
_hidden: set[str] = set()  # names that no file may keep


@contextmanager
def open_atomically(target: str) -> Iterator[IO[bytes]]:
    """Open a binary file that takes its place at ``target`` only if the block succeeds; standard
    output for ``-``.

    A device is written directly, and so is a pipe that has a reader.

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
    """Put all files opened in the block in place if it succeeds, and none of them otherwise.

    Raises:
        InputError: a file cannot take its place; the files before it have taken theirs.
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
    """Check that a path can be written, before minutes of measuring; creates nothing.

    Args:
        target: the path; standard output, devices and pipes are not tried.
        plain: whether it must be a plain file's.

    Raises:
        InputError: the path cannot be written, or is not a plain file's.
    """
    if target == "-":
        return
    path = Path(target)
    if path.exists() and not path.is_file() and (plain or path.is_dir()):
        raise InputError(f"cannot write '{target}': not a plain file", "give a file's name")
    if path.is_file() or not path.exists():
        with suppress(_RehearsalEnd), open_atomically(target):
            raise _RehearsalEnd


class _RehearsalEnd(Exception):
    """Ends the trial of a path before anything takes its place."""


def unwritable(target: str, error: OSError) -> InputError:
    """Make the error for a path that cannot be written."""
    if target != "-" and not Path(target).parent.is_dir():
        return InputError(
            f"cannot write '{target}': no folder '{Path(target).parent}'", "make the folder first"
        )
    return InputError(f"cannot write '{target}': {error.strerror or error}", HINT)


def _follow(path: Path) -> Path:
    """Follow symbolic links to the file they name, there or not; links to a process's open files
    stay links.
    """
    with suppress(FileNotFoundError):
        path.stat()  # raises where a link leads to itself
    while path.is_symlink():
        folder = Path(os.path.realpath(path.parent))
        named = folder / os.readlink(path)
        if "proc" in (*folder.parts[1:2], *named.parts[1:2]):
            return path
        path = named
    return path


def _open_special(path: Path, found: os.stat_result) -> IO[bytes]:
    """Open a device or a pipe for writing; opening a pipe without a reader would wait without
    end.
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
    path, before = staged.path, staged.previous
    if before and not (before.st_mode & 0o222 and os.access(path, os.W_OK)):
        what = f"cannot write '{staged.target}': the file is read-only"
        raise InputError(what, "chmod u+w allows it; or another name")
    # less the umask, which the system applies
    mode = stat.S_IMODE(before.st_mode) & 0o777 if before else 0o666
    staged.name = os.path.abspath(path.parent / f".ppsim-{os.urandom(6).hex()}")
    _hidden.add(staged.name)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    staged.stream = os.fdopen(os.open(staged.name, flags, mode), "wb")
    return staged.stream


def _place(staged: _Staged) -> None:
    assert staged.stream
    staged.stream.close()
    if staged.previous:
        # the file of another user then becomes the writer's
        with suppress(AttributeError, PermissionError):
            os.chown(staged.name, staged.previous.st_uid, staged.previous.st_gid)
        os.chmod(staged.name, stat.S_IMODE(staged.previous.st_mode))
    os.replace(staged.name, staged.path)
    _hidden.discard(staged.name)


def _drop(staged: _Staged) -> None:
    """Remove a file that has not taken its place; does nothing for one that has."""
    with suppress(OSError):  # closing tries to write the rest again
        if staged.stream:
            staged.stream.close()
    if staged.name:
        with suppress(OSError):  # a disk that takes no file has none to remove
            Path(staged.name).unlink()
        _hidden.discard(staged.name)


@atexit.register
def _remove_hidden() -> None:
    """Remove hidden files whose removal was interrupted by a signal."""
    while _hidden:
        with suppress(OSError):
            Path(_hidden.pop()).unlink()
