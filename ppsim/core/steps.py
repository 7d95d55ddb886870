"""Ops around a training step: gathers of weights, reductions of gradients, and optimizer steps.

Megatron and torch wait for all devices before the optimizer step, as the norm of all gradients is
needed. Post-validation avoids this wait: each device updates its weights as soon as it has its
gradients, and corrects the step later if the norm was too large (Qi et al., Zero Bubble Pipeline
Parallelism, section 4).

As with the overlap of FSDP and the distributed optimizer, gradients of a stage are reduced after
its last backward, and weights are gathered at the start of a step in the order in which a device
needs them, both in parallel with compute.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ppsim.core.ops import FORWARDS, Kind, Packed, mask, pack
from ppsim.core.schedule import NONE, Schedule

Indices = NDArray[np.int64]
LEARNS = mask((Kind.B, Kind.W))


def add_optimizer(schedule: Schedule, *, barrier: bool, gathers: bool, reduces: bool) -> Schedule:
    """Return the queues of one step with an optimizer step at the end of each device's queue.

    Args:
        schedule: one training step.
        barrier: whether all devices wait for each other before and after their optimizer steps.
        gathers: whether the weights of each stage are gathered before its first forward.
        reduces: whether the gradients of each stage are reduced after its last backward.
    """
    # places, devices and ops; ops at the same place keep the order of this list
    added = list[tuple[Indices, Indices, Packed]]()
    every, ends = np.arange(schedule.n_devices), schedule.offsets[1:]
    if gathers:
        first = _first_of_stages(schedule, np.flatnonzero(mask(FORWARDS)[schedule.kind]))
        device, cell = (
            schedule.device[first].astype(np.int64),
            pack(schedule.stage[first], schedule.microbatch[first]),
        )
        added.append((schedule.offsets[device], device, cell | Kind.GATHER))
        added.append((first - ~schedule.leads[first], device, cell | Kind.WAIT_GATHER))
    if reduces:
        last = _first_of_stages(schedule, np.flatnonzero(LEARNS[schedule.kind])[::-1])[::-1]
        device, cell = (
            schedule.device[last].astype(np.int64),
            pack(schedule.stage[last], schedule.microbatch[last]),
        )
        opens_pair = schedule.leads[last] & (schedule.pair[last] != NONE)
        added.append((last + 1 + opens_pair, device, cell | Kind.REDUCE))
        added.append((ends[device], device, cell | Kind.WAIT_REDUCE))
    whole = np.full(schedule.n_devices, pack(NONE, schedule.n_microbatches - 1))
    kinds = (Kind.NORM, Kind.OPT, Kind.SYNC) if barrier else (Kind.OPT,)
    added.extend((ends, every, whole | kind) for kind in kinds)
    where, device, ops = (np.concatenate(column) for column in zip(*added, strict=True))
    order = np.lexsort((device, where))
    return schedule.insert(where[order], device[order], ops[order])


def _first_of_stages(schedule: Schedule, ops: Indices) -> Indices:
    """Return the first of these ops for each stage and device, in order."""
    cell = schedule.device[ops] * np.int64(schedule.n_stages) + schedule.stage[ops]
    _, first = np.unique(cell, return_index=True)
    return ops[np.sort(first)]
