"""Machine code for kernels: plain Python functions over arrays, compiled by numba, cached on disk.

The cache is in the user's cache folder (``~/.cache/ppsim`` on Linux), so that uninstalling leaves
no file in the installation, or in ``NUMBA_CACHE_DIR``. numba writes it atomically, and separately
for each version, processor and state of the sources. As numba runs the code it finds there, a
folder that another user can write is not used, and each process compiles instead. Code that no
process has loaded for a month is removed when something is compiled.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.base.deadline import seconds_left
from ppsim.base.notes import long_work

Functions = tuple[Callable[..., Any], ...]

# The number of table entries that a process must run a kernel over until the time saved by machine
# code exceeds the time to load it (tests/benchmarks/bench_network.py).
COMPILE_TABLES_ABOVE = 100_000

UNUSED_S = 30 * 86_400.0
_loaded: dict[Callable[..., Any], Callable[..., Any]] = {}
_entries: dict[Callable[..., Any], int] = {}  # entries that each kernel has processed so far


def call(
    kernel: Callable[..., Any], *arguments: Any, parts: Functions = (), pays: bool = True
) -> Any:
    """Run a kernel as machine code (:func:`load`), or in CPython without it or unless it
    ``pays``.
    """
    return ((load(kernel, *arguments, parts=parts) if pays else None) or kernel)(*arguments)


def load(
    kernel: Callable[..., Any], *arguments: Any, parts: Functions = ()
) -> Callable[..., Any] | None:
    """Return the machine code of a kernel, which is compiled once per machine and loaded once per
    process.

    None if numba does not compile, or if the deadline is past and no code is cached; a compilation
    continues past a deadline. ``parts`` are the functions that the kernel calls.
    """
    if not can_compile():
        return None
    if kernel not in _loaded:
        stamped, types = _stamp(kernel, parts), _types(arguments)
        if seconds_left() <= 0 and not _is_cached(stamped):
            return None
        _loaded[kernel] = _load(stamped, types)
    return _loaded[kernel]


def machine_code_pays(kernel: Callable[..., Any], entries: int, above: int) -> bool:
    """Return whether a kernel has run over more than ``above`` entries in this process, including
    these: then loading its machine code pays.
    """
    _entries[kernel] = _entries.get(kernel, 0) + entries
    return _entries[kernel] > above


def can_compile() -> bool:
    """Return whether numba compiles and is imported, or can be before the deadline."""
    return ("numba" in sys.modules or seconds_left() > 0) and _compiles()


@cache
def _compiles() -> bool:
    """Return whether numba compiles; with ``NUMBA_DISABLE_JIT=1`` it does not, nor is it
    imported.
    """
    if os.environ.get("NUMBA_DISABLE_JIT") == "1":
        return False
    import numba

    return not numba.config.DISABLE_JIT


def _types(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    import numba

    return tuple(numba.typeof(argument) for argument in arguments)


def _is_cached(stamped: Callable[..., Any]) -> bool:
    """Return whether the cache has machine code of a kernel; True if there is no cache."""
    try:
        folder = Path(_cache_on_disk(stamped).stats.cache_path)
    except Exception:
        return True
    return any(folder.glob(f"*.{stamped.__qualname__}-*.nbc"))


def _load(kernel: Callable[..., Any], types: tuple[Any, ...]) -> Callable[..., Any]:
    """Return the machine code of a kernel from the cache, or compiled."""
    import numba

    try:
        with long_work("compiling, once per machine"):
            dispatcher = _compile(kernel, types)
    # without a usable cache (no folder, full disk, damaged file), compile for this process only
    except Exception:
        words = "compiling; NUMBA_CACHE_DIR=FOLDER, yours alone, would keep it for the next run"
        with long_work(words):
            dispatcher = numba.njit(nogil=True)(kernel)
            dispatcher.compile(types)
    compiled: Callable[..., Any] = dispatcher
    return compiled


def _compile(stamped: Callable[..., Any], types: tuple[Any, ...]) -> Any:
    """Compile a kernel or load its machine code, and mark the cached files as used."""
    dispatcher = _cache_on_disk(stamped)
    dispatcher.compile(types)
    with suppress(OSError):
        for file in Path(dispatcher.stats.cache_path).glob(f"*.{stamped.__qualname__}-*"):
            os.utime(file)
        if dispatcher.stats.cache_misses:
            remove_unused(time.time() - UNUSED_S)
    return dispatcher


def remove_unused(before: float) -> None:
    """Remove machine code last used before a time from the user's cache."""
    cache_root = private_folder(cache_folder())
    for folder in filter(Path.is_dir, cache_root.iterdir() if cache_root else ()):
        for file in [] if folder.is_symlink() else folder.glob("*.nb[ci]*"):
            if file.lstat().st_mtime < before:
                file.unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            folder.rmdir()


def _cache_on_disk(kernel: Callable[..., Any]) -> Any:
    """Return numba's dispatcher of a kernel, with ppsim's cache folder; other code is unaffected.

    Raises:
        OSError: there is no such folder.
    """
    import numba

    given = numba.config.CACHE_DIR
    folder = private_folder(given or cache_folder())
    if folder is None:
        raise OSError(f"not a folder of this user alone: {given or cache_folder()!r}")
    numba.config.CACHE_DIR = str(folder)
    try:
        return numba.njit(cache=True, nogil=True)(kernel)
    finally:
        numba.config.CACHE_DIR = given


def cache_folder() -> str:
    """Return ppsim's folder in the user's cache folder of the system."""
    if os.name == "nt":
        return os.path.join(
            os.environ.get("LOCALAPPDATA") or os.path.expanduser("~"), "ppsim", "Cache"
        )
    home = os.path.expanduser("~/Library/Caches" if sys.platform == "darwin" else "~/.cache")
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or home, "ppsim")


def private_folder(name: str) -> Path | None:
    """Return a folder that only this user can write, created if missing; None if impossible.

    Its mode and owner are checked, and that of the folders above it, in which others could replace
    it.
    """
    folder = Path(name)
    if not folder.is_absolute():  # without a home folder, it would be in the working directory
        return None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = folder.resolve(strict=True)
        if os.name != "nt" and not _is_ours_alone(folder):  # modes say nothing there
            return None
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return None
    return folder


def _is_ours_alone(folder: Path) -> bool:
    """Return whether only this user and the system's user can write or replace a folder."""
    own = folder.stat()
    if own.st_uid != os.geteuid() or own.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return False
    above = [parent.stat().st_mode for parent in folder.parents]
    return all(mode & stat.S_ISVTX or not mode & stat.S_IWOTH for mode in above)


def run_in_place(kernel: Callable[..., Any], size: int, *tables: Any, parts: Functions = ()) -> Any:
    """Run a kernel over tables of ``size`` entries: named tuples of arrays, which it writes.

    Large tables, and small ones once there have been many, run as machine code; others in CPython,
    over views of the same memory. ``parts`` are the functions that the kernel calls.
    """
    if machine_code_pays(kernel, size, COMPILE_TABLES_ABOVE) and (
        compiled := load(kernel, *tables, parts=parts)
    ):
        return compiled(*tables)
    return kernel(*map(view, tables))


def view(table: Any) -> Any:
    """Return a table in the form that is fastest in CPython: views of columns, objects of rows."""
    if hasattr(table, "_make"):
        return table._make(map(view, table))
    if not isinstance(table, np.ndarray):
        return table
    return _rows(table) if table.dtype.names else table.data


def _rows(table: NDArray[np.void]) -> list[Any]:
    """Return an object for each row, with the row's fields."""
    names = table.dtype.names or ()
    kind = type("Row", (), {"__slots__": names})
    rows = [kind() for _ in range(len(table))]
    for name in names:
        for row, value in zip(rows, table[name].tolist(), strict=True):
            setattr(row, name, value)
    return rows


def _stamp(kernel: Callable[..., Any], parts: Functions) -> Callable[..., Any]:
    """Return the kernel under a name that changes with its constants and the files of its parts.

    numba caches code by the kernel's name until the kernel's file changes, but the code also
    contains constants and inlined parts from other files.
    """
    if parts:
        _make_inlinable(parts)
    files = sorted({part.__code__.co_filename for part in parts})
    stamps = [
        (stat.st_mtime_ns, stat.st_size) for stat in map(os.stat, filter(os.path.exists, files))
    ]
    constants = [_constants(function) for function in (kernel, *parts)]
    stamped = FunctionType(kernel.__code__, kernel.__globals__, kernel.__name__)
    stamped.__qualname__ = (
        f"{kernel.__name__}_{sha256(repr((stamps, constants)).encode()).hexdigest()[:16]}"
    )
    return stamped


def _constants(function: Callable[..., Any]) -> list[tuple[str, Any]]:
    """Return the plain values of its module that a function uses."""
    names, values = function.__code__.co_names, function.__globals__
    return [
        (name, values[name])
        for name in names
        if isinstance(values.get(name), (int, float, str, tuple))
    ]


@cache
def _make_inlinable(parts: Functions) -> None:
    """Let compiled code inline these functions; they remain plain Python elsewhere."""
    from numba.extending import register_jitable

    for part in parts:
        register_jitable(forceinline=True)(part)
