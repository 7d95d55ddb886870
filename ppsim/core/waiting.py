"""The code by which a kernel's column says that a device waits for one of its entries.

An entry is zero or more once it is known: the op that left a result, or the time at which something ended. Until then
it is ``UNKNOWN``, or below: the code of the device that waits for it. Where several devices can wait for one entry, a
column with one place per device chains them: the entry holds the code of the last one, and that device's place the
code of the one before it, ``UNKNOWN`` at the end.

Kernels of several rooms inline these functions.
"""

from __future__ import annotations

UNKNOWN = -1


def wait_code(device: int) -> int:
    """Return the entry that says that ``device`` waits for it."""
    return -2 - device


def waiting_device(entry: int) -> int:
    """Return the device that waits for an entry below ``UNKNOWN``."""
    return -2 - entry


PARTS = (wait_code, waiting_device)  # for :func:`ppsim.base.compiled.call`
