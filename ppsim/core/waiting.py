"""Encoding of blocked devices in a kernel's columns, and cycles of waits.

A known entry is zero or more: the op that produced a result, or the time at which something ended.
An unknown entry is ``UNKNOWN``, or below it the code of the device that waits for it. If several
devices can wait for an entry, they form a list: the entry is the code of the last one, and a column
with one place per device has the code of the device before, ``UNKNOWN`` at the end.

Kernels of several packages inline ``PARTS``.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import dropwhile

UNKNOWN = -1


def wait_code(device: int) -> int:
    """Return the code of an entry for which ``device`` waits."""
    return -2 - device


def waiting_device(entry: int) -> int:
    """Return the device that waits for an entry below ``UNKNOWN``."""
    return -2 - entry


def follow_circle(first: int, following: Callable[[int], int]) -> list[int]:
    """Return the devices in the cycle of waits that is reached from ``first``, in order."""
    seen, at = dict[int, None](), first
    while at not in seen:
        seen[at] = None
        at = following(at)
    return list(dropwhile(lambda each: each != at, seen))


PARTS = (wait_code, waiting_device)  # for :func:`ppsim.base.compiled.call`
