"""Machine code for kernels: plain Python functions over arrays, compiled by numba and kept on disk.

numba keeps compiled code in the user's cache folder (``~/.cache/ppsim`` on Linux), so that
uninstalling leaves no file next to the sources, or in ``NUMBA_CACHE_DIR``. It writes atomically and
tells versions, processors and changed sources apart. What it finds there it runs: a folder in which
somebody else could have put code keeps none, and each process compiles. What no process has loaded
for a month goes from the user's folder when something is compiled.
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

# When a process has run a kernel over this many entries of tables in CPython, its machine code has
# paid for its loading
# (tests/benchmarks/bench_network.py).
COMPILE_TABLES_ABOVE = 100_000

UNUSED_S = 30 * 86_400.0
_loaded: dict[Callable[..., Any], Callable[..., Any]] = {}
_entries: dict[Callable[..., Any], int] = {}  # how many each kernel has run over in this process


def call(
    kernel: Callable[..., Any], *arguments: Any, parts: Functions = (), pays: bool = True
) -> Any:
    """Run a kernel as machine code, or in CPython over the same arguments where there is none or
    none ``pays``.

    See :func:`load`.
    """
    return ((load(kernel, *arguments, parts=parts) if pays else None) or kernel)(*arguments)


def load(
    kernel: Callable[..., Any], *arguments: Any, parts: Functions = ()
) -> Callable[..., Any] | None:
    """Return the machine code of a kernel. The first call on a machine compiles it, the first call
    of a process loads it.

    None where numba does not compile, or the deadline is past and no machine code is kept; a
    compilation that has begun goes on past a deadline. ``parts`` are the functions that the kernel
    calls.
    """
    if not can_compile():
        return None
    if kernel not in _loaded:
        stamped, types = _stamp(kernel, parts), _types(arguments)
        if seconds_left() <= 0 and not _is_kept(stamped):
            return None
        _loaded[kernel] = _load(stamped, types)
    return _loaded[kernel]


def machine_code_pays(kernel: Callable[..., Any], entries: int, above: int) -> bool:
    """Return whether loading machine code has paid off in this process: a kernel has run over more
    than ``above`` entries in all, these included.
    """
    _entries[kernel] = _entries.get(kernel, 0) + entries
    return _entries[kernel] > above


def can_compile() -> bool:
    """Return whether numba compiles, and can be imported before the deadline. Without it kernels
    run in CPython.
    """
    return ("numba" in sys.modules or seconds_left() > 0) and _compiles()


@cache
def _compiles() -> bool:
    """Return whether numba may compile: ``NUMBA_DISABLE_JIT=1`` forbids it, and numba is then not
    imported.
    """
    if os.environ.get("NUMBA_DISABLE_JIT") == "1":
        return False
    import numba

    return not numba.config.DISABLE_JIT


def _types(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    import numba

    return tuple(numba.typeof(argument) for argument in arguments)


def _is_kept(stamped: Callable[..., Any]) -> bool:
    """Return whether a folder has machine code of a kernel, or cannot have any."""
    try:
        folder = Path(_keep_on_disk(stamped).stats.cache_path)
    except Exception:
        return True
    return any(folder.glob(f"*.{stamped.__qualname__}-*.nbc"))


def _load(kernel: Callable[..., Any], types: tuple[Any, ...]) -> Callable[..., Any]:
    import numba

    try:
        with long_work("compiling, once per machine"):
            kept = _compile(kernel, types)
    # no folder to write to, a full disk, a damaged file: costs a compilation, never the run
    except Exception:
        said = "compiling; NUMBA_CACHE_DIR=FOLDER, yours alone, would keep it for the next run"
        with long_work(said):
            kept = numba.njit(nogil=True)(kernel)
            kept.compile(types)
    compiled: Callable[..., Any] = kept
    return compiled


def _compile(stamped: Callable[..., Any], types: tuple[Any, ...]) -> Any:
    """Compile a kernel or load its machine code, and mark that as used."""
    kept = _keep_on_disk(stamped)
    kept.compile(types)
    with suppress(OSError):
        for file in Path(kept.stats.cache_path).glob(f"*.{stamped.__qualname__}-*"):
            os.utime(file)
        if kept.stats.cache_misses:
            remove_unused(time.time() - UNUSED_S)
    return kept


def remove_unused(before: float) -> None:
    """Remove machine code last used before a time from the user's cache. A process that needs it
    compiles it again.
    """
    kept = private_folder(cache_folder())
    for folder in filter(Path.is_dir, kept.iterdir() if kept else ()):
        for file in [] if folder.is_symlink() else folder.glob("*.nb[ci]*"):
            if file.lstat().st_mtime < before:
                file.unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            folder.rmdir()


def _keep_on_disk(kernel: Callable[..., Any]) -> Any:
    """Let numba keep a kernel's machine code in ppsim's folder; other code keeps its folder.

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
    """Return ppsim's folder in the user's cache, where the system puts such folders."""
    if os.name == "nt":
        return os.path.join(
            os.environ.get("LOCALAPPDATA") or os.path.expanduser("~"), "ppsim", "Cache"
        )
    home = os.path.expanduser("~/Library/Caches" if sys.platform == "darwin" else "~/.cache")
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or home, "ppsim")


def private_folder(name: str) -> Path | None:
    """Return a folder that only this user can write, created if missing; None if there can be none.

    Its mode and owner say so; in a folder above it that all may write anyone could replace it.
    """
    folder = Path(name)
    if not folder.is_absolute():  # as without a home folder: it would be where a user stands
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
    """Run a kernel over tables of ``size`` entries: named tuples of arrays, which receive its
    results.

    Large ones, and small ones once there have been many, run as machine code; the others in
    CPython, over views of the same memory. ``parts`` are the functions that the kernel calls.
    """
    if machine_code_pays(kernel, size, COMPILE_TABLES_ABOVE) and (
        compiled := load(kernel, *tables, parts=parts)
    ):
        return compiled(*tables)
    return kernel(*map(view, tables))


def view(table: Any) -> Any:
    """Return a table in the form that CPython runs fastest over: views of columns, objects for
    rows.
    """
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
    """Return the kernel under a name that changes with its constants and the files of its parts,
    made inlinable.

    numba keeps compiled code under the kernel's name until the kernel's own file changes; a
    constant that comes from another file is part of that code too.
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
    """Return the module's plain values that a function names."""
    names, values = function.__code__.co_names, function.__globals__
    return [
        (name, values[name])
        for name in names
        if isinstance(values.get(name), (int, float, str, tuple))
    ]


@cache
def _make_inlinable(parts: Functions) -> None:
    """Let compiled code inline functions that stay plain Python everywhere else."""
    from numba.extending import register_jitable

    for part in parts:
        register_jitable(forceinline=True)(part)
