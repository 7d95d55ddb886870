"""Queues that repeat: find the block of ops that recurs with later microbatches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ppsim.core.ops import MICROBATCH_SHIFT, Packed

Ints = NDArray[np.int64]
WINDOW = 1 << 16  # ops in which the period must show
BELOW_MICROBATCH = (1 << MICROBATCH_SHIFT) - 1


@dataclass(frozen=True)
class Body:
    """The part of a schedule's queues that repeats, one entry per device.

    Attributes:
        low: shape (devices,), first op of the range that repeats, as an index over all queues.
        high: shape (devices,), end of that range; one more block may be inserted anywhere from low to high.
        ops: shape (devices,), ops in a block.
    """

    low: Ints
    high: Ints
    ops: Ints


def fold_replicas(queue: Packed, microbatches: int, replicas: int) -> Packed:
    """Return a queue with each replica's microbatches counted from 0 and its stages distinguished by a high bit."""
    if replicas == 1:
        return queue
    each = microbatches // replicas
    replica = (queue >> MICROBATCH_SHIFT) // each
    mark: Packed = replica << (MICROBATCH_SHIFT - 4)
    return queue - ((replica * each) << MICROBATCH_SHIFT) + mark


def find_shift(queue: Packed) -> int | None:
    """Return the shift in microbatches between repetitions of the block in the middle of a queue; None without any."""
    middle = len(queue) // 2
    window = queue[middle : min(len(queue) * 3 // 4, middle + WINDOW)]
    alike = (window[: len(window) // 2] - window[:1]) & BELOW_MICROBATCH == 0
    for ops in np.flatnonzero(alike)[1:].tolist():
        steps = window[ops:] - window[:-ops]
        if (steps == steps[0]).all():
            return shift if (shift := int(steps[0] >> MICROBATCH_SHIFT)) > 0 else None
    return None


def find_body(queues: Sequence[Packed], longer: Sequence[Packed], shift: int) -> Body | None:
    """Return the part that repeats, where each longer queue is the queue with one more block, shifted by ``shift``."""
    low, high, ops, first = list[int](), list[int](), list[int](), 0
    for queue, other in zip(queues, longer, strict=True):
        more = len(other) - len(queue)
        if more <= 0:
            return None
        before = np.flatnonzero(queue != other[: len(queue)])
        after = np.flatnonzero(queue + (shift << MICROBATCH_SHIFT) != other[more:])
        until, since = (int(before[0]) if len(before) else len(queue)), (int(after[-1]) + 1 if len(after) else 0)
        if since + more > until:
            return None
        low.append(first + since)
        high.append(first + until)
        ops.append(more)
        first += len(queue)
    return Body(np.array(low), np.array(high), np.array(ops))


def extends(queue: Packed, longer: Packed, high: int, ops: int, shift: int) -> bool:
    """Whether ``longer`` is ``queue`` with any number of whole blocks inserted at ``high``, and nothing else."""
    more, moved = len(longer) - len(queue), shift << MICROBATCH_SHIFT
    return (
        more % ops == 0
        and np.array_equal(longer[:high], queue[:high])
        and np.array_equal(longer[high : high + more], longer[high - ops : high - ops + more] + moved)
        and np.array_equal(longer[high + more :], queue[high:] + more // ops * moved)
    )
