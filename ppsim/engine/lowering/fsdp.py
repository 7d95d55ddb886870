"""Add FSDP ops to queues of compute ops: gather and free parameters, reduce gradients."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ppsim.core.ops import Kind, pack
from ppsim.core.schedule import NONE, Schedule

TORCH_STAGES = 3  # number of stages that torch gathers at once


def add_fsdp_ops(
    schedule: Schedule, unshard: int, reduce_grad: bool, waits: bool = False
) -> tuple[Schedule, NDArray[np.int64]]:
    """Return the schedule with FSDP ops, and the original op of each entry, -1 for an FSDP op.

    ``unshard`` stages of a device are gathered at once, 0 for no UNSHARD and RESHARD. REDUCE_GRAD
    follows the last B or W of each stage on a device, or the pair that contains it. With ``waits``
    a WAIT_REDUCE_GRAD follows.
    """
    source = np.arange(len(schedule), dtype=np.int64)
    if not unshard and not reduce_grad:
        return schedule, source
    added = list[tuple[int, int, int]]()
    for device, part in enumerate(map(schedule.queue, range(schedule.n_devices))):
        here = [*(_reductions(schedule, part, waits) if reduce_grad else ())]
        here += _gathers(schedule, part, unshard) if unshard else ()
        added += [(part.start + place, device, op) for place, op in here]
    where, devices, ops = np.array(added, np.int64).reshape(-1, 3).T
    return schedule.insert(where, devices, ops), np.insert(source, where, -1)


def _op(kind: Kind, stage: int) -> int:
    return int(pack(stage, -1)) | kind


def _reductions(schedule: Schedule, part: slice, waits: bool) -> Iterator[tuple[int, int]]:
    """Yield REDUCE_GRADs with their places in the queue, after each stage's last gradient."""
    kind, stage = schedule.kind[part], schedule.stage[part]
    finishing = (kind == Kind.B) | (kind == Kind.W)
    lasts = sorted(
        (int(np.flatnonzero(finishing & (stage == s))[-1]), int(s))
        for s in np.unique(stage[finishing])
    )
    for last, s in lasts:
        after = max(last, int(schedule.pair[part.start + last]) - part.start) + 1
        yield after, _op(Kind.REDUCE_GRAD, s)
        if waits:
            yield after, _op(Kind.WAIT_REDUCE_GRAD, s)


def _gathers(schedule: Schedule, part: slice, count: int) -> Iterator[tuple[int, int]]:
    """Yield UNSHARDs of the next ``count`` stages that the queue uses, and RESHARDs of others.

    Each comes with its place in the queue.
    """
    ahead = _next_stages(schedule, part, count)
    active: set[int] = set()  # torch frees in the iteration order of such a set
    for place, coming in ahead:
        for stage in [s for s in active if s not in coming]:
            active.remove(stage)
            yield place, _op(Kind.RESHARD, stage)
        for stage in [s for s in coming if s not in active]:
            active.add(stage)
            yield place, _op(Kind.UNSHARD, stage)
    for stage in list(active):
        yield part.stop - part.start, _op(Kind.RESHARD, stage)


def _next_stages(schedule: Schedule, part: slice, count: int) -> list[tuple[int, list[int]]]:
    """Return the place of each op or pair, with the next ``count`` distinct stages from there on.

    A pair adds both its stages, even if that makes ``count`` + 1.
    """
    stage, pair = schedule.stage[part].tolist(), (schedule.pair[part] - part.start).tolist()
    coming: list[tuple[int, int]] = []  # place of next use and stage, soonest first
    ahead = []
    for place in range(len(stage) - 1, -1, -1):
        paired = schedule.pair[part.start + place] != NONE
        if paired and pair[place] < place:
            continue
        used = [stage[place], stage[pair[place]]] if paired else [stage[place]]
        coming = [(place, s) for s in dict.fromkeys(used)] + [c for c in coming if c[1] not in used]
        stop = count + (len(coming) > count and coming[count][0] == coming[count - 1][0])
        ahead.append((place, [s for _, s in coming[:stop]]))
    return ahead[::-1]
