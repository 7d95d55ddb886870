"""Compile kernels in another process, which can be left at a deadline; nothing stops numba within this one.

The process keeps the machine code on disk and answers each request with a line; it ends when its stdin does, and so
with this process, however that ends.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

START = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from ppsim.base.compile_apart import serve; from ppsim.base.compiled import compile_kept; serve(compile_kept)"
)

Functions = tuple[Callable[..., Any], ...]


class Compiler:
    """A process that compiles, one kernel after the other."""

    def __init__(self) -> None:
        import numba

        folder = numba.config.CACHE_DIR
        more = {"NUMBA_CACHE_DIR": folder} if folder else {}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(  # type: ignore[call-overload]
            [sys.executable, "-c", START], env={**os.environ, **more}, **pipes
        )
        self.done: dict[Callable[..., Any], threading.Event] = {}
        self.ended = False
        self.send(sys.path)
        threading.Thread(target=self._listen, daemon=True).start()
        atexit.register(self.process.kill)

    def send(self, what: object) -> None:
        """Send an object; one that no longer listens has answered all."""
        with suppress(OSError):
            self.process.stdin.write(pickle.dumps(what))
            self.process.stdin.flush()

    def ask(self, kernel: Callable[..., Any], parts: Functions, types: tuple[Any, ...]) -> threading.Event:
        """Ask for a kernel once; return what is set when it is compiled, or cannot be there."""
        if kernel not in self.done:
            self.done[kernel] = threading.Event()
            self.send((kernel, parts, types))
            if self.ended:
                self.done[kernel].set()
        return self.done[kernel]

    def _listen(self) -> None:
        answered = 0
        while self.process.stdout.readline():
            list(self.done.values())[answered].set()
            answered += 1
        self.ended = True
        for waiting in list(self.done.values()):  # the caller compiles in its own process
            waiting.set()


_compilers: list[Compiler] = []  # the first for what is needed now, the second for what will be


def compile_within(seconds: float, kernel: Callable[..., Any], parts: Functions, types: tuple[Any, ...]) -> bool:
    """Have a kernel compiled and kept on disk; False where that takes longer, and goes on."""
    return seconds > 0 and _ask(0, kernel, parts, types).wait(min(seconds, threading.TIMEOUT_MAX))


def is_asked(kernel: Callable[..., Any]) -> bool:
    """Whether another process compiles a kernel, or has."""
    return any(kernel in compiler.done for compiler in _compilers)


def compile_early(kernel: Callable[..., Any], parts: Functions, types: tuple[Any, ...]) -> None:
    """Begin to compile a kernel that will be needed, beside those that are needed now."""
    _ask(1, kernel, parts, types)


def _ask(which: int, kernel: Callable[..., Any], parts: Functions, types: tuple[Any, ...]) -> threading.Event:
    asked = next((compiler for compiler in _compilers if kernel in compiler.done), None)
    while asked is None and len(_compilers) <= which:
        _compilers.append(Compiler())
    return (asked or _compilers[which]).ask(kernel, parts, types)


def serve(compile_kept: Callable[[Callable[..., Any], Functions, tuple[Any, ...]], None]) -> None:
    """Compile what stdin asks for; end at once where it ends, in the middle of a kernel too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks decides
    asked = SimpleQueue[tuple[Callable[..., Any], Functions, tuple[Any, ...]]]()

    def listen() -> None:
        try:
            while True:
                asked.put(pickle.load(sys.stdin.buffer))
        finally:
            os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        with suppress(Exception):  # the process that asks compiles itself, and meets the same
            compile_kept(*asked.get())
        sys.stdout.buffer.write(b"\n")
        sys.stdout.buffer.flush()
