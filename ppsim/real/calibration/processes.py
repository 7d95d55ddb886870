"""Start processes that measure together, collect their messages, and end all of them.

Workers are spawned, take their arguments as ``worker(rank, say, *args)`` and report by
``say(message)``.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from ppsim.base.signals import without_interrupts
from ppsim.base.spawning import without_script
from ppsim.base.units import format_size
from ppsim.errors import InputError, PpsimError
from ppsim.real.calibration.machine import available_bytes

Say = Callable[[Any], None]
Worker = Callable[..., None]
LIMIT_S = 120.0
START_S = 60.0
GRACE_S = 0.2
# What a process that has loaded torch shares with no other.
PROCESS_BYTES = 100 << 20
TORCH_FOLDER = "TORCHINDUCTOR_CACHE_DIR"
TMPDIR_HINT = "TMPDIR=FOLDER names another with room"
MEMORY_HINT = "free memory, or a smaller --hidden, --seq, --mbs, --layers or --message"


@dataclass(frozen=True)
class _Failure:
    """A worker's report of the exception that ended it; errors of the user's input or code have a
    hint.
    """

    text: str
    hint: str | None = None
    memory: bool = False


@contextmanager
def ranks(
    worker: Worker, count: int, *args: Any, limit_s: float = LIMIT_S
) -> Iterator[Iterator[tuple[int, Any]]]:
    """Run ``worker`` in ``count`` processes; yields (process, message) until all have ended without
    a failure.

    However the block is left, no process is left. A worker gets a rendezvous file's address as its
    first argument after ``say``.

    Raises:
        InputError: that many processes do not fit into the memory that is free.
        PpsimError: a worker raised, died, or none of them has said anything for ``limit_s``
            seconds, or for :data:`START_S` if that is longer while not all have begun to speak; or
            there is no room for their files.
    """
    check_room(count)
    context = multiprocessing.get_context("spawn")
    with temporary_folder() as folder:
        meeting = f"file://{folder}/rendezvous"
        # Through a file: a pipe that a dying child never empties would hold its parent up for ever.
        baggage = Path(folder, "arguments")
        told = pickle.dumps(args)
        _write(baggage, told)
        pipes = [context.Pipe(duplex=False) for _ in range(count)]
        workers = [
            context.Process(
                target=_enter,
                args=(worker, rank, pipe[1], os.getpid(), meeting, baggage),
                daemon=True,
            )
            for rank, pipe in enumerate(pipes)
        ]
        try:
            with without_interrupts(), without_script(told):
                for process in workers:
                    process.start()
            for _, sending in pipes:
                sending.close()
            yield _listen([receiving for receiving, _ in pipes], workers, limit_s)
        finally:
            for process in workers:
                if process.pid is not None:
                    process.kill()
                    process.join()
            for receiving, _ in pipes:
                receiving.close()


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Make a folder, with torch's own in it, that is removed after the block (PpsimError: there is
    no place).
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="ppsim-", ignore_cleanup_errors=True)
    except OSError as error:
        raise PpsimError(f"no temporary folder: {error.strerror or error}", TMPDIR_HINT) from error
    with folder as name:
        before = os.environ.get(TORCH_FOLDER)
        os.environ[TORCH_FOLDER] = before or os.path.join(name, "torch")
        try:
            yield name
        finally:
            os.environ.pop(TORCH_FOLDER)
            if before:
                os.environ[TORCH_FOLDER] = before


def check_room(count: int) -> None:
    """Refuse more processes than fit into the memory that is free (InputError: they do not)."""
    free = available_bytes("cpu")
    if free is not None and count * PROCESS_BYTES > free:
        raise InputError(
            f"{count} processes take about {format_size(count * PROCESS_BYTES, 'B')} with torch "
            f"alone, and {format_size(free, 'B')} are free",
            f"at most {free // PROCESS_BYTES} devices here",
        )


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise PpsimError(
            f"cannot write '{path.parent.parent}': {error.strerror or error}", TMPDIR_HINT
        ) from error


def _listen(
    pipes: list[Connection], workers: list[Any], limit_s: float
) -> Iterator[tuple[int, Any]]:
    open_pipes, heard = dict(enumerate(pipes)), set[int]()
    while open_pipes:
        patience = limit_s if len(heard) == len(pipes) else max(limit_s, START_S)
        ready = wait(open_pipes.values(), timeout=patience)
        if not ready:
            raise _silence(list(open_pipes), patience, workers)
        for rank in [r for r, pipe in open_pipes.items() if pipe in ready]:
            try:
                message = open_pipes[rank].recv()
            except (EOFError, OSError):
                workers[rank].join(limit_s)
                if workers[rank].exitcode:
                    raise _process_error(rank, workers[rank].exitcode) from None
                del open_pipes[rank]
                continue
            if isinstance(message, _Failure):
                raise _cause(rank, message, workers)
            heard.add(rank)
            yield rank, message


def _silence(silent: list[int], patience: float, workers: list[Any]) -> PpsimError:
    for rank in silent:
        if _is_stopped(workers[rank].pid):
            return _timeout_error(rank, f", and all were ended after {patience:g} s")
    return PpsimError(
        f"process {', '.join(map(str, silent))} has said nothing for {patience:g} s and was ended",
        "less load on this machine, smaller messages, or fewer ranks",
    )


def _timeout_error(rank: int, after: str = "") -> PpsimError:
    return PpsimError(
        f"process {rank} was stopped by a signal{after}",
        "find what sends SIGSTOP, and leave it out",
    )


def _is_stopped(pid: int) -> bool:
    """Return whether Linux reports a process as stopped; False on other systems."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def _cause(rank: int, failure: _Failure, workers: list[Any]) -> PpsimError:
    """Choose the failure to report: a process's own, unless another one's end caused it."""
    time.sleep(GRACE_S)
    for other, process in enumerate(workers):
        if process.exitcode is not None and process.exitcode < 0:
            return _process_error(other, process.exitcode)
        if process.exitcode is None and _is_stopped(process.pid):
            return _timeout_error(other)
    if failure.hint is not None:
        return InputError(f"process {rank}: {failure.text}", failure.hint)
    if failure.memory:
        return PpsimError(
            f"process {rank} ran out of memory{': ' * bool(failure.text)}{failure.text}",
            MEMORY_HINT,
        )
    return PpsimError(f"process {rank} failed: {failure.text}")


def _process_error(rank: int, code: int) -> PpsimError:
    if code < 0:
        return PpsimError(
            f"process {rank} was ended by {signal.Signals(-code).name}",
            "free memory, or a smaller shape",
        )
    return PpsimError(f"process {rank} ended with code {code}")


def _enter(
    worker: Worker, rank: int, pipe: Connection, parent: int, meeting: str, baggage: Path
) -> None:
    # Ctrl-C reaches the parent, which ends its workers
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _die_with_parent(parent)
    sys.stdout = sys.stderr  # the user's code may print, and only results belong on stdout
    try:
        worker(rank, pipe.send, meeting, *pickle.loads(baggage.read_bytes()))
    except BaseException as error:
        pipe.send(_failure(error))
        # The other ranks still wait for this one: leave without torch's orderly shutdown.
        pipe.close()
        time.sleep(0.1)
        os._exit(1)
    pipe.close()
    sys.stdout.flush()
    # all results are sent: a fault at exit in torch's libraries would only look like a failed run
    os._exit(0)


def _failure(error: BaseException) -> _Failure:
    if isinstance(error, InputError):
        return _Failure(str(error), error.hint)
    text = str(error).splitlines()[0].rpartition("DefaultCPUAllocator: ")[2] if str(error) else ""
    memory = isinstance(error, MemoryError) or "memory" in text.lower()
    return _Failure(text if memory else text or type(error).__name__, memory=memory)


def _die_with_parent(parent: int) -> None:
    """Ask Linux to end this process when its parent ends, however that ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
