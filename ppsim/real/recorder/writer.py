"""The thread that writes a recording, so that a slow or lost disk never delays the program.

It writes only to a file that it has made, and only whole rows. Between two writes the file is
closed, so that a program that closes descriptors by number cannot close it, and the thread cannot
close a descriptor of the program. Each write opens the file again, and checks that it is the same
file with the same size.

The thread ends when no data waits. A program that forks later, as torch's DataLoader does, then has
no thread of ppsim; Python 3.12 would warn of one.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path

SUFFIX = ".ops.jsonl"
MOST_WAITING = 64 << 20  # waiting bytes above which the recording is given up
MOST_NAMES = 1000  # most recordings of one process in a folder
STANDARD = 2  # the last descriptor of a standard stream
CLOSE_S = 10.0  # most seconds for writing at the end of a recording
APPEND = os.O_WRONLY | os.O_APPEND
for _flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"):
    APPEND |= getattr(os, _flag, 0)


class Writer:
    """Appends bytes to a new file in a separate thread.

    Attributes:
        failure: the error that ended writing, or None.
        path: the file, once it has been made.
        waiting: bytes that are not written yet.
    """

    def __init__(self, folder: Path) -> None:
        self.failure: Exception | None = None
        self.path: Path | None = None
        self._folder, self._name = folder, ""
        self._queue: deque[bytes] = deque()
        self.waiting, self._lock = 0, threading.Lock()
        self._thread: threading.Thread | None = None  # the latest thread
        self._is_writing = False
        self._made: tuple[int, int] = (0, 0)  # device and inode of the file
        self._size = 0

    def append(self, name: str, data: bytes) -> None:
        """Append data to the file; the first call's ``name`` is the file's, without a suffix.

        Raises:
            OSError: more than :data:`MOST_WAITING` bytes wait, or an earlier write failed.
        """
        if self.failure:
            raise self.failure
        with self._lock:
            self.waiting += len(data)
            if self.waiting > MOST_WAITING:
                self.failure = OSError(
                    f"'{self._folder}' accepts no data, and {self.waiting >> 20} MiB wait"
                )
                raise self.failure
            self._queue.append(data)
            is_idle, self._is_writing = not self._is_writing, True
        if is_idle:
            self._name = self._name or name
            self._start()

    def close(self) -> None:
        """Write all waiting data.

        Raises:
            OSError: it could not be written, or not within :data:`CLOSE_S` seconds.
        """
        if self._thread is None:
            return
        if self.failure:
            raise self.failure
        if self._thread.ident is None:  # it could not be started
            self._write_all()
        else:
            self._thread.join(CLOSE_S)
        if self._thread.is_alive() and self.failure is None:
            self.failure = TimeoutError(f"'{self._folder}' accepted no data for {CLOSE_S:g} s")
        if self.failure:
            raise self.failure

    def _start(self) -> None:
        self._thread = threading.Thread(
            target=self._write_quietly, name="ppsim.record", daemon=True
        )
        # If no thread can start (there are too many, or Python is ending), close() writes the data.
        with suppress(RuntimeError):
            self._thread.start()

    def _write_quietly(self) -> None:
        """Write all data with signals blocked, so that the program's threads receive them."""
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self._write_all()

    def _write_all(self) -> None:
        """Write data until none waits, or until a write fails."""
        try:
            while (data := self._next()) is not None:
                file = self._create() if self.path is None else self._open_again(self.path)
                try:
                    self._write(file, data)
                finally:
                    os.close(file)
                with self._lock:
                    self.waiting -= len(data)
        except Exception as error:
            self.failure = error
            self._remove_empty()

    def _next(self) -> bytes | None:
        """Return the data that has waited longest; None, which ends the thread, if none waits."""
        with self._lock:
            self._is_writing = bool(self._queue)
            return self._queue.popleft() if self._is_writing else None

    def _create(self) -> int:
        """Open a new file; an existing recording, link or pipe of the same name is left alone."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for number in range(1, MOST_NAMES + 1):
            path = self._folder / f"{self._name}{'' if number == 1 else f'-{number}'}{SUFFIX}"
            try:
                file = _open(path, APPEND | os.O_CREAT | os.O_EXCL)
            except FileExistsError:
                continue
            self._made, self.path = _identity(file)[:2], path
            return file
        raise OSError(f"'{self._folder}' already has {MOST_NAMES} recordings of this process")

    def _open_again(self, path: Path) -> int:
        """Open the file again (OSError: it is gone, or another program has changed it)."""
        file = _open(path, APPEND)
        if _identity(file) != (*self._made, self._size):
            os.close(file)
            raise OSError(errno.ESTALE, "it was changed by something else", str(path))
        return file

    def _write(self, file: int, data: bytes) -> None:
        """Append rows; if not all can be written, cut the file after the last whole one."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[_write_once(file, rest) :]
        except OSError:
            whole = data.rfind(b"\n", 0, len(data) - len(rest)) + 1
            # do not leave a header without rows
            whole = 0 if data.find(b"\n") + 1 == whole and not self._size else whole
            self._size += whole
            os.ftruncate(file, self._size)
            raise
        self._size += len(data)

    def _remove_empty(self) -> None:
        """Remove the file if it has no row."""
        with suppress(OSError):
            if self.path is not None and not self._size:
                found = os.lstat(self.path)
                if (found.st_dev, found.st_ino, found.st_size) == (*self._made, 0):
                    os.unlink(self.path)


def _open(path: Path, flags: int) -> int:
    """Open a file under a descriptor above those of standard streams.

    If the program has closed a standard stream, its prints would otherwise end up in the file.
    """
    file = os.open(path, flags, 0o644)
    if file > STANDARD or not hasattr(os, "O_CLOEXEC"):
        return file
    import fcntl

    try:
        return fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, STANDARD + 1)
    finally:
        os.close(file)


def _identity(file: int) -> tuple[int, int, int]:
    """Return device, inode and size of an open file; if that fails, close it."""
    try:
        found = os.fstat(file)
    except OSError:
        os.close(file)
        raise
    return found.st_dev, found.st_ino, found.st_size


def _write_once(file: int, data: memoryview) -> int:
    """Write some of the data and return the number of bytes.

    Beyond the limit of a file's size this raises an error, and the program does not get the signal.
    """
    if not hasattr(signal, "pthread_sigmask"):
        return os.write(file, data)
    limit = {signal.SIGXFSZ}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, limit)
    try:
        return os.write(file, data)
    finally:
        if limit & signal.sigpending():
            signal.sigwait(limit)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
