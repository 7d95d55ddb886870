"""Kernels that fill a repeated building block: move ops into idle slots, and squeeze.

Plain Python over flat columns, which numba compiles for large shapes.
"""

from __future__ import annotations

from typing import NamedTuple

from ppsim.core.columns import Codes, Ints

IDLE, FORWARD, BACKWARD, WEIGHTS = 0, 1, 2, 3


class Filling(NamedTuple):
    """The tables of n ops in R rows, one for each pass on a device, and P rows of W."""

    row: Ints  # shape (n,), the row of each op, sorted by slot, then by device
    nth: Ints  # shape (n,), the op's place in its row; for a pass its microbatch
    first: Ints  # shape (R + P,), the index in ``slot`` at which each row begins
    device: Ints  # shape (R + P,), the device of each row
    length: Ints  # shape (R + P,), slots of an op of each row
    what: Codes  # shape (R + P,), the op of each row
    need: Ints  # shape (R + P,), the row that makes the input, -1 for none
    slot: Ints  # shape (n,), the slot of each op, row by row
    does: Codes  # shape (P x L,), the op of each device in each slot
    held: Ints  # shape (P x L,), the device's memory after each slot; empty if W fill idle slots
    # shape (P x ops of each device's W row,), the slots of backwards tried so far, in order
    backward: Ints
    tried: Ints  # shape (P,), the number of these
    last: Ints  # shape (P,), the last slot of each device's forwards
    free: Ints  # shape (P,), the first slot that a device has not used yet


def ready(t: Filling, row: int, nth: int) -> int:
    """Return the first slot in which an op of a pass has its input."""
    need = t.need[row]
    return 0 if need < 0 else t.slot[t.first[need] + nth] + t.length[need]


def is_within(t: Filling, device: int, cap: int) -> bool:
    """Return True if a device with its W in the first idle slots stays within ``cap``."""
    size = len(t.does) // len(t.last)
    held = waiting = 0
    for at in range(device * size, (device + 1) * size):
        what = t.does[at]
        if what == FORWARD:
            held += 1
            if held > cap:
                return False
        elif what == BACKWARD:
            waiting += 1
        elif waiting > 0:
            waiting -= 1
            held -= 1
    return True


def shift(t: Filling, row: int, to: int, slot: int) -> None:
    """Update a device's memory after an op moved from ``slot`` to ``to``."""
    by, late = 1, 0
    if t.what[row] == WEIGHTS or t.length[row] > 1:
        by, late = -1, t.length[row] - 1
    elif t.what[row] == BACKWARD:
        return
    at = t.device[row] * (len(t.does) // len(t.last)) + late
    for each in range(at + to, at + slot):
        t.held[each] += by


def move(t: Filling, row: int, slot: int, earliest: int, cap: int) -> int:
    """Move an op to the first allowed idle slot from ``earliest`` on; return its slot."""
    device, length, what = t.device[row], t.length[row], t.what[row]
    base = device * (len(t.does) // len(t.last))
    explicit = len(t.held) > 0
    if explicit and what == FORWARD:
        lowest = slot
        while lowest > earliest and t.held[base + lowest - 1] < cap:
            lowest -= 1
        earliest = lowest
    for at in range(base + slot, base + slot + length):
        t.does[at] = IDLE
    for to in range(earliest, slot):
        if t.does[base + to] != IDLE or t.does[base + to + length - 1] != IDLE:
            continue
        for at in range(base + to, base + to + length):
            t.does[at] = what
        if explicit or to > t.last[device] or is_within(t, device, cap):
            if explicit:
                shift(t, row, to, slot)
            return to
        for at in range(base + to, base + to + length):
            t.does[at] = IDLE
    for at in range(base + slot, base + slot + length):
        t.does[at] = what
    return slot


def fill(t: Filling, first: int, last: int, begin: int, end: int, cap: int) -> int:
    """Move the ops at places ``first`` to ``last`` to earlier idle slots; return ``cap``.

    The repeated block from ``begin`` to ``end`` stays. If W have no slots, only ops after ``end``
    move. No device may hold more than ``cap``.
    """
    explicit = len(t.held) > 0
    size = len(t.backward) // len(t.last)
    for at in range(first, last):
        row, nth = t.row[at], t.nth[at]
        device, op = t.device[row], t.first[row] + nth
        if at > end or (explicit and at < begin):
            earliest = (
                t.backward[device * size + nth] + 1
                if t.what[row] == WEIGHTS
                else ready(t, row, nth)
            )
            if nth > 0:
                earliest = max(earliest, t.slot[op - 1] + t.length[row])
            t.slot[op] = move(t, row, t.slot[op], earliest, cap)
        if t.what[row] == BACKWARD and size > 0:
            place = device * size + t.tried[device]
            while place > device * size and t.backward[place - 1] > t.slot[op]:
                t.backward[place] = t.backward[place - 1]
                place -= 1
            t.backward[place] = t.slot[op]
            t.tried[device] += 1
    return cap


def squeeze(t: Filling, first: int, last: int) -> int:
    """Give ops at places ``first`` to ``last`` the earliest slots, in order; return ``last``."""
    for at in range(first, last):
        row, nth = t.row[at], t.nth[at]
        device = t.device[row]
        start = max(t.free[device], ready(t, row, nth))
        t.slot[t.first[row] + nth] = start
        t.free[device] = start + t.length[row]
    return last


FILL_PARTS = (ready, is_within, shift, move)  # in the order of their calls
SQUEEZE_PARTS = (ready,)
