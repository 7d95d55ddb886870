"""Full recompute: a schedule whose backwards run their forward again first."""

from __future__ import annotations

import numpy as np

from ppsim.core.lanes import refuse_lanes
from ppsim.core.ops import BACKWARDS, KIND_MASK, PAIRED, Kind, Packed, mask, pack
from ppsim.core.schedule import Schedule


def recompute_queue(queue: Packed) -> Packed:
    """Return a device's queue with an R right before every B and I, or before the pair that holds it.

    Backwards whose R the queue has already, as one that runs it earlier, get no second one.
    """
    kind, cell = queue & KIND_MASK, queue & ~np.int64(KIND_MASK | PAIRED)
    back = np.flatnonzero(mask(BACKWARDS)[kind])
    if (kind == Kind.R).any():
        back = back[~np.isin(cell[back], cell[kind == Kind.R])]
    second = np.append(False, queue[:-1] & PAIRED)[back] != 0
    return np.insert(queue, back - second, cell[back] | Kind.R)


def add_recompute(schedule: Schedule) -> Schedule:
    """Return the schedule with full recompute, queue by queue as :func:`recompute_queue` adds it.

    Raises:
        InputError: it has several streams.
    """
    refuse_lanes(schedule, "full recompute")
    ops = pack(schedule.stage, schedule.microbatch) | schedule.kind
    ops[schedule.first_of_pairs] |= PAIRED
    queues = (recompute_queue(ops[schedule.queue(device)]) for device in range(schedule.n_devices))
    return Schedule.from_queues(schedule.name, schedule.placement, schedule.n_microbatches, queues, schedule.n_slices)
