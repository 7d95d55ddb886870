"""Faults of copies and collectives, which are neither compute ops nor messages.

Streams: copies without their other half, repeated ops, cycles of waits. FSDP: compute on freed
parameters, gradients reduced too early or twice.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ppsim.core.costs import costs_for
from ppsim.core.draft import Draft
from ppsim.core.lanes import MISSING, find_inputs
from ppsim.core.ops import COMPUTE, Kind
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import Deadlock
from ppsim.inputs.check import op_times
from ppsim.inputs.check.faults import Fault, at


def stream_faults(draft: Draft) -> Iterator[Fault]:
    """Yield the faults of ops that do not compute."""
    if draft.computes.all() or not draft.timed.all():
        return
    schedule = draft.whole_schedule()
    yield from _repeated_ops(draft)
    yield from _participant_faults(draft)
    inputs = find_inputs(schedule)
    op = np.repeat(np.arange(len(draft)), np.diff(inputs.offsets))
    for lost in op[inputs.op == MISSING].tolist():
        kind = Kind(draft.kind[lost])
        needed = " or ".join(need.result.value for need in kind.info.needs if need.required)
        text = f"{draft.label(lost)} needs the {needed}, which no op makes"
        yield at(
            draft,
            lost,
            "missing",
            text,
            "RELOAD needs an OFFLOAD" if kind == Kind.RELOAD else "add the op",
        )
    if draft.start is not None:
        there = (inputs.op >= 0) & ~draft.computes[op]
        yield from op_times.early_op_faults(draft, op[there], inputs.op[there])
    elif not (inputs.op == MISSING).any():
        try:
            simulate(schedule, costs_for(schedule))
        except Deadlock as error:
            yield Fault("deadlock", str(error), error.hint)


def _repeated_ops(draft: Draft) -> Iterator[Fault]:
    """Find ops that run twice."""
    ops = np.flatnonzero(draft.kind >= len(COMPUTE))
    # the vocabulary's EF and EB run on one device only, whichever it is
    device = np.where(np.isin(draft.kind, (Kind.EF, Kind.EB)), 0, draft.device)
    key = np.stack([device, draft.kind, draft.stage, draft.microbatch], axis=1)[ops]
    _, first, number = np.unique(key, axis=0, return_index=True, return_inverse=True)
    for op, other in zip(ops.tolist(), ops[first[number.ravel()]].tolist(), strict=True):
        if op != other:
            text = f"{draft.label(op)} runs a second time, after {draft.where(other)}"
            yield at(draft, op, "duplicate", text, "remove one of the two", other)


def _participant_faults(draft: Draft) -> Iterator[Fault]:
    """Find collectives that lack a device."""
    for kind in np.unique(draft.kind).tolist():
        if not Kind(kind).info.on_all_devices:
            continue
        ops = np.flatnonzero(draft.kind == kind)
        cells = np.stack([draft.stage, draft.microbatch], axis=1)[ops]
        for cell in np.unique(cells, axis=0):
            members = ops[(cells == cell).all(axis=1)]
            absent = np.setdiff1d(np.arange(draft.n_devices), draft.device[members])
            if len(absent):
                op, lost = int(members[0]), absent[0]
                text = f"{draft.label(op)} waits for all devices, and device {lost} has none"
                yield at(draft, op, "missing", text, f"add it to device {lost}")


def sharding_faults(draft: Draft) -> Iterator[Fault]:
    """Find misplaced UNSHARD, RESHARD and REDUCE_GRAD.

    A REDUCE_GRAD must be unique, after the last backward of its stage.
    """
    if (draft.kind == Kind.UNSHARD).any() or (draft.kind == Kind.RESHARD).any():
        yield from _ungathered_faults(draft)
    reductions = np.flatnonzero(draft.kind == Kind.REDUCE_GRAD)
    finishing = (
        np.flatnonzero((draft.kind == Kind.B) | (draft.kind == Kind.W))
        if len(reductions)
        else reductions
    )
    places = zip(draft.device[finishing].tolist(), draft.stage[finishing].tolist(), strict=True)
    last = dict(zip(places, finishing.tolist(), strict=True))
    reduced: dict[tuple[int, int], int] = {}
    for op in reductions.tolist():
        place = int(draft.device[op]), int(draft.stage[op])
        name, final = draft.label(op), last.get(place, -1)
        if place in reduced:
            first = reduced[place]
            message = f"{name} comes a second time, after {draft.where(first)}"
            yield at(draft, op, "fsdp", message, "remove one of the two", first)
        elif final > op:
            message = (
                f"{name} is before {draft.label(final)} ({draft.where(final)}), whose "
                f"gradients it misses"
            )
            yield at(draft, op, "fsdp", message, f"move {name} after {draft.label(final)}", final)
        reduced.setdefault(place, op)


def _ungathered_faults(draft: Draft) -> Iterator[Fault]:
    """Find ops of stages whose parameters are not gathered at that place of the queue."""
    gathered: set[int] = set()
    device = -1
    columns = (draft.device, draft.kind, draft.stage, draft.computes)
    for op, (here, kind, stage, computes) in enumerate(
        zip(*(c.tolist() for c in columns), strict=True)
    ):
        if here != device:
            gathered, device = set(), here
        if kind == Kind.UNSHARD:
            if stage in gathered:
                message = f"{draft.label(op)} gathers parameters that are already gathered"
                yield at(draft, op, "fsdp", message, f"free them first, by {stage}RESHARD")
            gathered.add(stage)
        elif kind == Kind.RESHARD:
            if stage not in gathered:
                message = f"{draft.label(op)} frees parameters that are not gathered"
                yield at(draft, op, "fsdp", message, "remove it")
            gathered.discard(stage)
        elif computes and stage not in gathered:
            message = f"{draft.label(op)} runs on stage {stage}, whose parameters are not gathered"
            yield at(draft, op, "fsdp", message, f"add {stage}UNSHARD before it")
            gathered.add(stage)
