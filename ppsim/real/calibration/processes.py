"""Processes that measure together: start them, collect their messages, and end all of them.

Workers are spawned. They are called as ``worker(rank, send, rendezvous, *args)`` and report with
``send(message)``.
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

Send = Callable[[Any], None]
Worker = Callable[..., None]
LIMIT_S = 120.0  # seconds without a message after which workers are ended
START_S = 60.0  # least such limit until all workers have sent a message
GRACE_S = 0.2  # seconds in which the process that caused a failure is certain to have ended
PROCESS_BYTES = 100 << 20  # bytes of a process with torch that it does not share with others
TORCH_FOLDER = "TORCHINDUCTOR_CACHE_DIR"
TMPDIR_HINT = "TMPDIR=FOLDER with a folder that has room"
MEMORY_HINT = "free memory, or a smaller --hidden, --seq, --mbs, --layers or --message"


@dataclass(frozen=True)
class _Failure:
    """A worker's report of the exception that ended it."""

    text: str
    hint: str | None = None  # the hint of an error in the user's input or code
    memory: bool = False  # whether memory ran out


@contextmanager
def ranks(
    worker: Worker, count: int, *args: Any, limit_s: float = LIMIT_S
) -> Iterator[Iterator[tuple[int, Any]]]:
    """Run ``worker`` in ``count`` processes and give the block an iterator of their messages.

    It yields (process, message) until all processes have ended without a failure. No process
    outlives the block, however it ends. Workers get the address of a rendezvous file, for torch's
    process group, as their argument after ``send``.

    Raises:
        InputError: the processes do not fit into the free memory.
        PpsimError: a worker raised or died; no worker sent a message for ``limit_s`` seconds (or
            :data:`START_S`, if longer, until all have sent one); or the temporary folder cannot be
            written.
    """
    check_room(count)
    context = multiprocessing.get_context("spawn")
    with temporary_folder() as folder:
        meeting = f"file://{folder}/rendezvous"
        # Arguments pass through a file: a pipe blocks its writer for ever if the child dies first.
        arguments = Path(folder, "arguments")
        pickled = pickle.dumps(args)
        _write(arguments, pickled)
        pipes = [context.Pipe(duplex=False) for _ in range(count)]
        workers = [
            context.Process(
                target=_enter,
                args=(worker, rank, pipe[1], os.getpid(), meeting, arguments),
                daemon=True,
            )
            for rank, pipe in enumerate(pipes)
        ]
        try:
            with without_interrupts(), without_script(pickled):
                for process in workers:
                    process.start()
            for _, sending in pipes:
                sending.close()
            yield _messages([receiving for receiving, _ in pipes], workers, limit_s)
        finally:
            for process in workers:
                if process.pid is not None:
                    process.kill()
                    process.join()
            for receiving, _ in pipes:
                receiving.close()


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Give the block a temporary folder, which also holds torch's compiler cache.

    Raises:
        PpsimError: the folder cannot be made.
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
    """Refuse more processes than fit into the free memory (InputError)."""
    free = available_bytes("cpu")
    if free is not None and count * PROCESS_BYTES > free:
        raise InputError(
            f"{count} processes take about {format_size(count * PROCESS_BYTES, 'B')} for torch "
            f"alone, and {format_size(free, 'B')} are free",
            f"at most {free // PROCESS_BYTES} devices on this machine",
        )


def _write(path: Path, data: bytes) -> None:
    """Write a file in the temporary folder (PpsimError: it cannot be written)."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise PpsimError(
            f"cannot write '{path.parent.parent}': {error.strerror or error}", TMPDIR_HINT
        ) from error


def _messages(
    pipes: list[Connection], workers: list[Any], limit_s: float
) -> Iterator[tuple[int, Any]]:
    """Yield the workers' messages until all have ended (PpsimError: as :func:`ranks`)."""
    open_pipes, started = dict(enumerate(pipes)), set[int]()
    while open_pipes:
        patience = limit_s if len(started) == len(pipes) else max(limit_s, START_S)
        ready = wait(open_pipes.values(), timeout=patience)
        if not ready:
            raise _silence_error(list(open_pipes), patience, workers)
        for rank in [r for r, pipe in open_pipes.items() if pipe in ready]:
            try:
                message = open_pipes[rank].recv()
            except (EOFError, OSError):
                workers[rank].join(limit_s)
                if workers[rank].exitcode:
                    raise _exit_error(rank, workers[rank].exitcode) from None
                del open_pipes[rank]
                continue
            if isinstance(message, _Failure):
                raise _failure_error(rank, message, workers)
            started.add(rank)
            yield rank, message


def _silence_error(silent: list[int], patience: float, workers: list[Any]) -> PpsimError:
    """Return the error for workers that sent nothing for ``patience`` seconds."""
    for rank in silent:
        if _is_stopped(workers[rank].pid):
            return _stopped_error(rank, f", and all were ended after {patience:g} s")
    return PpsimError(
        f"process {', '.join(map(str, silent))} did not respond for {patience:g} s and was ended",
        "less load on this machine, smaller messages, or fewer ranks",
    )


def _stopped_error(rank: int, consequence: str = "") -> PpsimError:
    return PpsimError(
        f"process {rank} was stopped by a signal{consequence}",
        "find the sender of SIGSTOP, and turn it off",
    )


def _is_stopped(pid: int) -> bool:
    """Return whether Linux reports a process as stopped; False on other systems."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def _failure_error(rank: int, failure: _Failure, workers: list[Any]) -> PpsimError:
    """Return the error for a worker's failure.

    If another process was killed or stopped, that is the cause, and the error is about it.
    """
    time.sleep(GRACE_S)
    for other, process in enumerate(workers):
        if process.exitcode is not None and process.exitcode < 0:
            return _exit_error(other, process.exitcode)
        if process.exitcode is None and _is_stopped(process.pid):
            return _stopped_error(other)
    if failure.hint is not None:
        return InputError(f"process {rank}: {failure.text}", failure.hint)
    if failure.memory:
        return PpsimError(
            f"process {rank} ran out of memory{': ' * bool(failure.text)}{failure.text}",
            MEMORY_HINT,
        )
    return PpsimError(f"process {rank} failed: {failure.text}")


def _exit_error(rank: int, code: int) -> PpsimError:
    """Return the error for a process's exit code, which is negative for a signal."""
    if code < 0:
        return PpsimError(
            f"process {rank} was ended by {signal.Signals(-code).name}",
            "free memory, or a smaller shape",
        )
    return PpsimError(f"process {rank} ended with code {code}")


def _enter(
    worker: Worker, rank: int, pipe: Connection, parent: int, meeting: str, arguments: Path
) -> None:
    """Run a worker in its new process, and exit."""
    # Ctrl-C reaches the parent, which ends its workers
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _die_with_parent(parent)
    sys.stdout = sys.stderr  # the user's code may print, and only results belong on stdout
    try:
        worker(rank, pipe.send, meeting, *pickle.loads(arguments.read_bytes()))
    except BaseException as error:
        pipe.send(_failure(error))
        # The other ranks still wait for this one: exit without torch's orderly shutdown.
        pipe.close()
        time.sleep(0.1)
        os._exit(1)
    pipe.close()
    sys.stdout.flush()
    # All results are sent; a crash of torch's libraries at exit would look like a failed run.
    os._exit(0)


def _failure(error: BaseException) -> _Failure:
    """Return the report of an exception."""
    if isinstance(error, InputError):
        return _Failure(str(error), error.hint)
    text = str(error).splitlines()[0].rpartition("DefaultCPUAllocator: ")[2] if str(error) else ""
    memory = isinstance(error, MemoryError) or "memory" in text.lower()
    return _Failure(text if memory else text or type(error).__name__, memory=memory)


def _die_with_parent(parent: int) -> None:
    """Make Linux kill this process when its parent ends in any way."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
