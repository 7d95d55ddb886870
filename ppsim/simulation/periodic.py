"""Queues that repeat: the block of ops that recurs with later microbatches, and where it stands."""

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
    """Where the queues of a schedule repeat, one entry per device.

    Attributes:
        low: shape (devices,), first op of the range that repeats, as an index over all queues.
        high: shape (devices,), end of that range; one more block may be put in anywhere from low to high.
        ops: shape (devices,), ops in a block.
    """

    low: Ints
    high: Ints
    ops: Ints


def folded(queue: Packed, microbatches: int, replicas: int) -> Packed:
    """A queue with each replica's microbatches counted from 0, and its stages told apart by a high bit."""
    if replicas == 1:
        return queue
    each = microbatches // replicas
    replica = (queue >> MICROBATCH_SHIFT) // each
    mark: Packed = replica << (MICROBATCH_SHIFT - 4)
    return queue - ((replica * each) << MICROBATCH_SHIFT) + mark


def period_of(queue: Packed) -> int | None:
    """By how many microbatches the block in the middle of a queue moves on when it recurs; None if it does not."""
    middle = len(queue) // 2
    window = queue[middle : min(len(queue) * 3 // 4, middle + WINDOW)]
    alike = (window[: len(window) // 2] - window[:1]) & BELOW_MICROBATCH == 0
    for ops in np.flatnonzero(alike)[1:].tolist():
        ahead = window[ops:] - window[:-ops]
        if (ahead == ahead[0]).all():
            return shift if (shift := int(ahead[0] >> MICROBATCH_SHIFT)) > 0 else None
    return None


def body_of(queues: Sequence[Packed], longer: Sequence[Packed], shift: int) -> Body | None:
    """The repeating part, where each longer queue is the queue with one block more that moves on by ``shift``."""
    low, high, ops, first = list[int](), list[int](), list[int](), 0
    for queue, other in zip(queues, longer, strict=True):
        more = len(other) - len(queue)
        if more <= 0:
            return None
        before = np.flatnonzero(queue != other[: len(queue)])
        behind = np.flatnonzero(queue + (shift << MICROBATCH_SHIFT) != other[more:])
        until, since = (int(before[0]) if len(before) else len(queue)), (int(behind[-1]) + 1 if len(behind) else 0)
        if since + more > until:
            return None
        low.append(first + since)
        high.append(first + until)
        ops.append(more)
        first += len(queue)
    return Body(np.array(low), np.array(high), np.array(ops))


def grown(queue: Packed, longer: Packed, high: int, ops: int, shift: int) -> bool:
    """Whether ``longer`` is ``queue`` with any number of whole blocks put in at ``high``, and nothing else."""
    more, moved = len(longer) - len(queue), shift << MICROBATCH_SHIFT
    return (
        more % ops == 0
        and np.array_equal(longer[:high], queue[:high])
        and np.array_equal(longer[high : high + more], longer[high - ops : high - ops + more] + moved)
        and np.array_equal(longer[high + more :], queue[high:] + more // ops * moved)
    )
