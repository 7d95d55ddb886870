"""Faults of FSDP ops: compute on freed parameters, gradients reduced too early or twice."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ppsim.core.draft import Draft
from ppsim.core.ops import Kind
from ppsim.inputs.check.faults import Fault, at


def sharding_faults(draft: Draft) -> Iterator[Fault]:
    """Find UNSHARD and RESHARD out of place, and REDUCE_GRAD repeated or before the last backward of its stage."""
    if (draft.kind == Kind.UNSHARD).any() or (draft.kind == Kind.RESHARD).any():
        yield from _gathered(draft)
    reductions = np.flatnonzero(draft.kind == Kind.REDUCE_GRAD)
    finishing = np.flatnonzero((draft.kind == Kind.B) | (draft.kind == Kind.W)) if len(reductions) else reductions
    places = zip(draft.device[finishing].tolist(), draft.stage[finishing].tolist(), strict=True)
    last = dict(zip(places, finishing.tolist(), strict=True))
    reduced: dict[tuple[int, int], int] = {}
    for op in reductions.tolist():
        where = int(draft.device[op]), int(draft.stage[op])
        name, final = draft.label(op), last.get(where, -1)
        if where in reduced:
            first = reduced[where]
            message = f"{name} comes a second time, after {draft.where(first)}"
            yield at(draft, op, "fsdp", message, "remove one of the two", first)
        elif final > op:
            message = f"{name} is before {draft.label(final)} ({draft.where(final)}), whose gradients it misses"
            yield at(draft, op, "fsdp", message, f"move {name} after {draft.label(final)}", final)
        reduced.setdefault(where, op)


def _gathered(draft: Draft) -> Iterator[Fault]:
    """Follow each queue with the stages gathered so far, and find ops on stages that are not."""
    gathered: set[int] = set()
    device = -1
    columns = (draft.device, draft.kind, draft.stage, draft.computes)
    for op, (here, kind, stage, computes) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        if here != device:
            gathered, device = set(), here
        if kind == Kind.UNSHARD:
            if stage in gathered:
                message = f"{draft.label(op)} gathers parameters that are gathered"
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
