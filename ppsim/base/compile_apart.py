"""Compile kernels in other processes, which can be left at a deadline; nothing stops numba within this one.

Each compiles one kernel and keeps its machine code on disk; it ends when its stdin does, and so with this process,
however that ends.
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
from typing import Any

START = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from ppsim.base.compile_apart import serve; from ppsim.base.compiled import compile_kept; serve(compile_kept)"
)

Functions = tuple[Callable[..., Any], ...]
_compilers: dict[Callable[..., Any], subprocess.Popen[bytes]] = {}


def compile_within(seconds: float, kernel: Callable[..., Any], parts: Functions, types: tuple[Any, ...]) -> bool:
    """Have a kernel compiled and kept on disk; False where that takes longer, and goes on."""
    if seconds <= 0:
        return False
    compile_early(kernel, parts, types)
    with suppress(subprocess.TimeoutExpired):
        _compilers[kernel].wait(min(seconds, threading.TIMEOUT_MAX))
        return True  # where the process failed, this one compiles
    return False


def is_asked(kernel: Callable[..., Any]) -> bool:
    """Whether another process compiles a kernel, or has."""
    return kernel in _compilers


def compile_early(kernel: Callable[..., Any], parts: Functions, types: tuple[Any, ...]) -> None:
    """Begin to compile a kernel in a process of its own, once."""
    if is_asked(kernel):
        return
    import numba

    environment = {**os.environ, **({"NUMBA_CACHE_DIR": numba.config.CACHE_DIR} if numba.config.CACHE_DIR else {})}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    words = [sys.executable, "-P", "-c", START]  # -P: no module of the folder that one stands in
    process = subprocess.Popen(words, env=environment, **pipes)  # type: ignore[call-overload]
    _compilers[kernel] = process
    atexit.register(process.kill)
    with suppress(OSError):  # it ended
        process.stdin.write(pickle.dumps(sys.path) + pickle.dumps((kernel, parts, types)))
        process.stdin.flush()


def serve(compile_kept: Callable[[Callable[..., Any], Functions, tuple[Any, ...]], None]) -> None:
    """Compile what stdin asks for; end at once where it ends, in the middle of the kernel too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks decides
    asked = pickle.load(sys.stdin.buffer)

    def end_with_parent() -> None:
        os.read(sys.stdin.fileno(), 1)  # not the buffer, whose lock a thread must not hold as Python ends
        os._exit(0)

    threading.Thread(target=end_with_parent, daemon=True).start()
    compile_kept(*asked)
