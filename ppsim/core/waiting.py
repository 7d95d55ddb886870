"""Encoding of blocked devices in a kernel's columns, and cycles of waits.

An entry is zero or more once it is known: the op that left a result, or the time at which something
ended. Until then it is ``UNKNOWN``, or below: the code of the device that waits for it. Where
several devices can wait for one entry, a column with one place per device chains them: the entry
holds the code of the last one, and that device's place the code of the one before it, ``UNKNOWN``
at the end.

Kernels of several rooms inline ``PARTS``.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import dropwhile

UNKNOWN = -1


def wait_code(device: int) -> int:
    """Return the entry that stands for a wait of ``device``."""
    return -2 - device


def waiting_device(entry: int) -> int:
    """Return the device that waits for an entry below ``UNKNOWN``."""
    return -2 - entry


def follow_circle(first: int, following: Callable[[int], int]) -> list[int]:
    """Follow waits from each device to the next until one repeats; return the devices of that
    cycle, in order.
    """
    seen, at = dict[int, None](), first
    while at not in seen:
        seen[at] = None
        at = following(at)
    return list(dropwhile(lambda each: each != at, seen))


PARTS = (wait_code, waiting_device)  # for :func:`ppsim.base.compiled.call`
