"""Fill the warm-up and the cool-down of a repeated building block: its authors' greedy algorithm.

Time is in slots. Every op is tried once, earliest first, in the idle slots of its device between
its input and its slot. It moves to the first of them that does not raise the peak of any device
above the highest peak before.

A row is one pass over one device: row ``device x passes + pass`` has the slots of its op for every
microbatch. Passes are numbered in the order of a microbatch: forwards of each chunk, then
backwards. The W of a pass come after all passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ppsim.base.compiled import Functions, load, machine_code_pays, view
from ppsim.core.columns import Codes, Ints
from ppsim.search.rules import fill_kernel as kernel
from ppsim.search.rules.fill_kernel import BACKWARD, FORWARD, IDLE, WEIGHTS, Filling

# Ops that a process fills in CPython before it loads the compiled kernels.
COMPILE_FILLING_ABOVE = 100_000
STEP = 20_000  # ops that are filled in one call; an alarm or Ctrl-C takes effect between calls


@dataclass(frozen=True)
class Rows:
    """The rows of a block: its passes on its devices."""

    devices: int  # P
    passes: int  # 2V
    needs: Ints  # shape (P x 2V,), the row that makes each row's input, -1 for none
    backward: int  # slots of a backward: 1 for I, which leaves a W to run; 2 for a full one

    @property
    def splits(self) -> bool:
        """Whether backwards run as I and W."""
        return self.backward == 1

    @property
    def chunks(self) -> int:
        """Chunks per device, V."""
        return self.passes // 2


def compile_now() -> None:
    """Load the compiled kernels and use them from now on, in a process that serves requests."""
    t = _tabulate(
        Rows(devices=1, passes=2, needs=np.array([-1, 0]), backward=1), np.array([[0], [1]]), None
    )
    load(kernel.fill, t, 0, len(t.row), 0, 0, 0, parts=kernel.FILL_PARTS)
    load(kernel.squeeze, t, 0, len(t.row), parts=kernel.SQUEEZE_PARTS)
    machine_code_pays(kernel.fill, COMPILE_FILLING_ABOVE, COMPILE_FILLING_ABOVE)


def fill_phases(rows: Rows, slots: Ints) -> list[tuple[Ints, Ints]]:
    """Return the ops of each device in order, as passes and microbatches, with both phases filled.

    ``slots`` has shape (rows, microbatches). The W of pass ``p`` is pass ``p + V``.
    """
    slots = _fill(rows, slots, _place_weights(rows, slots) if rows.splits else None)
    if not rows.splits:
        return [_order(slots[rows.passes * d : rows.passes * (d + 1)]) for d in range(rows.devices)]
    slots = _fill(rows, slots, None)
    placed = _place_weights(rows, slots, by_pass=True).reshape(rows.devices, rows.chunks, -1)
    passes = slots.reshape(rows.devices, rows.passes, -1)
    return [_order(np.concatenate(each)) for each in zip(passes, placed, strict=True)]


def _order(slots: Ints) -> tuple[Ints, Ints]:
    """Return the ops of one device in the order of their slots: passes and microbatches."""
    numbers, microbatches = np.divmod(np.argsort(slots, axis=None, kind="stable"), slots.shape[1])
    return numbers, microbatches


def _lay_out(rows: Rows, slots: Ints, size: int) -> Codes:
    """Return the op of each device in each slot, shape (P, ``size``)."""
    does = np.zeros((rows.devices, size), np.uint8)
    passes = slots.reshape(rows.devices, rows.passes, -1)
    device = np.arange(rows.devices)[:, None, None]
    does[device, passes[:, : rows.chunks]] = FORWARD
    for slot in range(rows.backward):
        does[device, passes[:, rows.chunks :] + slot] = BACKWARD
    return does


def _place_weights(rows: Rows, slots: Ints, by_pass: bool = False) -> Ints:
    """Return the slots of each device's W, shape (P, V x microbatches).

    Each W gets the first idle slot after its I, the W that waits longest first. With ``by_pass``
    the W of earlier passes go first, and the slots are those of each pass.
    """
    count = rows.chunks * slots.shape[1]
    # leave a slot for each W after the last op
    busy = _lay_out(rows, slots, int(slots.max()) + 1 + count) != IDLE
    found = np.empty((rows.devices, count), np.int64)
    for device, backwards in enumerate(
        slots.reshape(rows.devices, rows.passes, -1)[:, rows.chunks :]
    ):
        idle = np.flatnonzero(~busy[device])
        groups = backwards if by_pass else np.sort(backwards, axis=None)[None]
        for number, group in enumerate(groups):
            nth = np.arange(len(group))
            taken = nth + np.maximum.accumulate(np.searchsorted(idle, group) - nth)
            found[device, number * len(group) : (number + 1) * len(group)] = idle[taken]
            idle = np.delete(idle, taken)
    return found


def _memory_by_slot(rows: Rows, slots: Ints, weights: Ints | None, size: int) -> Ints:
    """Return each device's memory in activations after each slot, shape (P, ``size``).

    ``weights`` are the slots of W.
    """
    change = np.zeros((rows.devices, size), np.int64)
    passes = slots.reshape(rows.devices, rows.passes, -1)
    released = passes[:, rows.chunks :] + rows.backward - 1 if weights is None else weights
    device = np.arange(rows.devices)[:, None]
    change[device, passes[:, : rows.chunks].reshape(rows.devices, -1)] = 1
    change[device, released.reshape(rows.devices, -1)] = -1
    return change.cumsum(axis=1)


def _fill(rows: Rows, slots: Ints, weights: Ints | None) -> Ints:
    """Return the slots of every row after moving ops to earlier idle slots, and squeezing.

    ``weights`` are the slots of W, shape (P, V x microbatches), which move like other ops in
    warm-up and cool-down. With None, W run whenever a device is idle, and only ops of the cool-down
    move.
    """
    explicit = weights is not None or not rows.splits
    t = _tabulate(rows, slots, weights)
    size = len(t.does) // rows.devices
    if weights is not None:
        t.does.reshape(rows.devices, size)[np.arange(rows.devices)[:, None], weights] = WEIGHTS
    if explicit:
        t = t._replace(held=_memory_by_slot(rows, slots, weights, size).ravel())
    cap = (
        t.held.max()
        if explicit
        else _memory_by_slot(rows, slots, _place_weights(rows, slots), size).max()
    )
    begin = int(np.argmax(t.row == rows.passes - 1))
    ends = (t.row < len(slots)) & (t.row % rows.passes == 0) & (t.nth == slots.shape[1] - 1)
    ends[: begin + 1] = False
    _run(
        kernel.fill,
        t,
        begin,
        int(np.argmax(ends)) if ends.any() else len(ends),
        int(cap),
        parts=kernel.FILL_PARTS,
    )
    moved = t.slot[: slots.size].reshape(slots.shape)
    if explicit:
        weights = None if weights is None else t.slot[slots.size :].reshape(weights.shape)
    else:
        weights = _place_weights(rows, moved)
    t = _tabulate(rows, moved, weights)
    _run(kernel.squeeze, t, parts=kernel.SQUEEZE_PARTS)
    return t.slot[: slots.size].reshape(slots.shape)


def _tabulate(rows: Rows, slots: Ints, weights: Ints | None) -> Filling:
    """Return the tables of all ops, sorted by slot and device, and of their rows."""
    P, R, M = rows.devices, len(slots), slots.shape[1]
    count = 0 if weights is None else weights.shape[1]
    slot = np.concatenate(
        [slots.ravel(), np.empty(0, np.int64) if weights is None else weights.ravel()]
    )
    row = np.concatenate([np.repeat(np.arange(R), M), np.repeat(R + np.arange(P), count)])
    nth = np.concatenate([np.tile(np.arange(M), R), np.tile(np.arange(count), P)])
    device = np.concatenate([np.arange(R) // rows.passes, np.arange(P)])
    order = np.argsort(slot * P + device[row], kind="stable")
    backward = np.arange(R) % rows.passes >= rows.chunks
    size = int(slot.max()) + rows.backward + rows.chunks * M
    return Filling(
        row=row[order],
        nth=nth[order],
        first=np.concatenate([np.arange(R) * M, R * M + np.arange(P) * count]),
        device=device,
        length=np.concatenate([np.where(backward, rows.backward, 1), np.ones(P, np.int64)]),
        what=np.concatenate([np.where(backward, BACKWARD, FORWARD), np.full(P, WEIGHTS)]).astype(
            np.uint8
        ),
        need=np.concatenate([rows.needs, np.full(P, -1)]),
        slot=slot,
        does=_lay_out(rows, slots, size).ravel(),
        held=np.empty(0, np.int64),
        backward=np.zeros(P * count, np.int64),
        tried=np.zeros(P, np.int64),
        last=slots.reshape(P, rows.passes, M)[:, : rows.chunks].max(axis=(1, 2)),
        free=np.zeros(P, np.int64),
    )


def _run(step: Callable[..., int], t: Filling, *arguments: int, parts: Functions) -> None:
    """Run a kernel over all ops of the tables in order, in CPython until compiling pays."""
    n = len(t.row)
    paid = machine_code_pays(kernel.fill, n, COMPILE_FILLING_ABOVE)
    compiled = load(step, t, 0, n, *arguments, parts=parts) if paid else None
    tables = t if compiled else view(t)
    for first in range(0, n, STEP):
        (compiled or step)(tables, first, min(first + STEP, n), *arguments)
