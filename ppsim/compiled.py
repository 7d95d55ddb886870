"""Machine code for kernels: plain Python functions over arrays, compiled by numba and kept on disk.

numba keeps compiled code beside the source, or in the user's cache folder where that cannot be written; it writes
atomically and tells versions, processors and changed sources apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_loaded: dict[Callable[..., Any], Callable[..., Any]] = {}


def call(kernel: Callable[..., Any], *arguments: Any) -> Any:
    """Run a kernel as machine code; the first call on a machine compiles it, the first of a process loads it."""
    if kernel not in _loaded:
        _loaded[kernel] = _load(kernel, arguments)
    return _loaded[kernel](*arguments)


def _load(kernel: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[..., Any]:
    import numba

    try:
        kept = numba.njit(cache=True, nogil=True)(kernel)
        kept.compile(tuple(numba.typeof(a) for a in arguments))
    except Exception:  # no folder to write to, a full disk, a damaged file: costs a compilation, never the run
        kept = numba.njit(nogil=True)(kernel)
    compiled: Callable[..., Any] = kept
    return compiled
