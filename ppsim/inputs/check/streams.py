"""Faults of queues with several streams: copies without their other half, ops twice, waits in a circle."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ppsim.core.costs import costs_for
from ppsim.core.draft import Draft
from ppsim.core.lanes import MISSING, find_inputs
from ppsim.core.ops import COMPUTE, Kind
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import Deadlock
from ppsim.inputs.check import timed
from ppsim.inputs.check.faults import Fault, at


def stream_faults(draft: Draft) -> Iterator[Fault]:
    """Find the faults of ops beside those that compute; none where there are no others."""
    if draft.computes.all() or not draft.timed.all():
        return
    schedule = draft.whole_schedule()
    yield from _twice(draft)
    yield from _left_out(draft)
    inputs = find_inputs(schedule)
    op = np.repeat(np.arange(len(draft)), np.diff(inputs.offsets))
    for lost in op[inputs.op == MISSING].tolist():
        kind = Kind(draft.kind[lost])
        needed = " or ".join(need.result.value for need in kind.info.needs if need.must)
        text = f"{draft.label(lost)} needs the {needed}, which no op makes"
        yield at(draft, lost, "missing", text, "RELOAD needs an OFFLOAD" if kind == Kind.RELOAD else "add the op")
    if draft.start is not None:
        there = (inputs.op >= 0) & ~draft.computes[op]
        yield from timed.early(draft, op[there], inputs.op[there])
    elif not (inputs.op == MISSING).any():
        try:
            simulate(schedule, costs_for(schedule))
        except Deadlock as error:
            yield Fault("deadlock", str(error), error.hint)


def _twice(draft: Draft) -> Iterator[Fault]:
    beside = np.flatnonzero(draft.kind >= len(COMPUTE))
    device = np.where(np.isin(draft.kind, (Kind.EF, Kind.EB)), 0, draft.device)  # once, wherever that is
    where = np.stack([device, draft.kind, draft.stage, draft.microbatch], axis=1)[beside]
    _, first, number = np.unique(where, axis=0, return_index=True, return_inverse=True)
    for op, other in zip(beside.tolist(), beside[first[number.ravel()]].tolist(), strict=True):
        if op != other:
            text = f"{draft.label(op)} runs a second time, after {draft.where(other)}"
            yield at(draft, op, "duplicate", text, "remove one of the two", other)


def _left_out(draft: Draft) -> Iterator[Fault]:
    """Find collectives that not every device takes part in."""
    for kind in np.unique(draft.kind).tolist():
        if not Kind(kind).info.everywhere:
            continue
        ops = np.flatnonzero(draft.kind == kind)
        cells = np.stack([draft.stage, draft.microbatch], axis=1)[ops]
        for cell in np.unique(cells, axis=0):
            own = ops[(cells == cell).all(axis=1)]
            absent = np.setdiff1d(np.arange(draft.n_devices), draft.device[own])
            if len(absent):
                text = f"{draft.label(int(own[0]))} waits for all devices, and device {absent[0]} has none"
                yield at(draft, int(own[0]), "missing", text, f"add it to device {absent[0]}")
