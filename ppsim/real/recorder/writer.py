"""The thread that writes a recording, so that a slow or lost disk never holds up what is recorded.

It only ever writes a file that it has made itself, and takes back what it could not write whole.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from queue import SimpleQueue

SUFFIX = ".ops.jsonl"
MOST_WAITING = 64 << 20  # bytes that wait to be written before the recording is given up
MOST_NAMES = 1000  # recordings of one process that a folder may hold
CLOSE_S = 10.0  # how long the end of a recording may take to write


class Writer:
    """Append bytes to a new file in a thread of its own.

    Attributes:
        failure: why nothing more is written; None while all is well.
        path: the file, once it has been made.
        waiting: bytes that are not written yet.
    """

    def __init__(self, folder: Path) -> None:
        self.failure: Exception | None = None
        self.path: Path | None = None
        self._folder, self._name = folder, ""
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self.waiting, self._lock = 0, threading.Lock()
        self._thread: threading.Thread | None = None

    def append(self, name: str, data: bytes) -> None:
        """Write data after what was appended before; the first call gives the file its name, without a suffix.

        Raises:
            OSError: more waits to be written than :data:`MOST_WAITING`, or an earlier write failed.
        """
        if self.failure:
            raise self.failure
        with self._lock:
            self.waiting += len(data)
            if self.waiting > MOST_WAITING:
                raise OSError(f"'{self._folder}' takes no data, and {self.waiting >> 20} MiB wait")
        self._queue.put(data)
        if self._thread is None:
            self._name = name
            self._thread = threading.Thread(target=self._write_all, name="ppsim.record", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Write what waits, and end the file.

        Raises:
            OSError: it could not be written, or not within :data:`CLOSE_S` seconds.
        """
        if self._thread is None:
            return
        self._queue.put(None)
        self._thread.join(CLOSE_S)
        if self._thread.is_alive() and self.failure is None:
            self.failure = TimeoutError(f"'{self._folder}' took no data for {CLOSE_S:g} s")
        if self.failure:
            raise self.failure

    def _write_all(self) -> None:
        try:
            file, self.path = self._create()
            try:
                self._append_to(file, os.fstat(file))
            finally:
                os.close(file)
        except Exception as error:
            self.failure = error

    def _create(self) -> tuple[int, Path]:
        """Make a file that nobody else has: an earlier recording, a link or a pipe of its name stays as it is."""
        self._folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        for number in range(1, MOST_NAMES + 1):
            path = self._folder / f"{self._name}{'' if number == 1 else f'-{number}'}{SUFFIX}"
            try:
                return os.open(path, flags, 0o644), path
            except FileExistsError:
                continue
        raise OSError(f"'{self._folder}' holds {MOST_NAMES} recordings of this process already")

    def _append_to(self, file: int, made: os.stat_result) -> None:
        """Write all that comes, whole rows only."""
        whole = 0
        while (data := self._queue.get()) is not None:
            now = os.fstat(file)
            if (now.st_dev, now.st_ino) != (made.st_dev, made.st_ino):
                raise OSError(f"'{self.path}' was closed by the program that is recorded")
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(file, rest) :]
            except OSError:
                os.ftruncate(file, whole)
                raise
            whole += len(data)
            with self._lock:
                self.waiting -= len(data)
