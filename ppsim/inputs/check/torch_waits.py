"""Faults of the waits that torch 2.15 needs and earlier versions do not have."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ppsim.core.draft import Draft
from ppsim.core.ops import Kind
from ppsim.inputs.check.faults import Fault, at

AWAITS = {
    Kind.WAIT_SEND_F: Kind.SEND_F,
    Kind.WAIT_SEND_B: Kind.SEND_B,
    Kind.WAIT_REDUCE_GRAD: Kind.REDUCE_GRAD,
}
MATCHES = {awaited: wait for wait, awaited in AWAITS.items()}


def wait_faults(draft: Draft, wanted: bool) -> Iterator[Fault]:
    """Find sends and reductions without a wait, and reductions that overlap; or all waits where none is ``wanted``."""
    concerned = np.flatnonzero(np.isin(draft.kind, [*AWAITS, *MATCHES])).tolist()
    if not wanted:
        for op in concerned:
            if draft.kind[op] in AWAITS:
                message = f"{draft.label(op)}: this torch knows no waits, 2.15 brought them"
                yield at(draft, op, "runtime", message, "lower with --order torch, or check for torch-2.15")
                return
        return
    pending: dict[tuple[int, int, int, int], int] = {}
    for op in concerned:
        kind, device = Kind(draft.kind[op]), int(draft.device[op])
        ends = AWAITS.get(kind)
        key = device, int(ends if ends is not None else kind), int(draft.stage[op]), int(draft.microbatch[op])
        if ends is not None and pending.pop(key, None) is None:
            message = f"{draft.label(op)} waits for no {ends.name} before it"
            yield at(draft, op, "runtime", message, f"move it after its {ends.name}, or remove it")
        elif kind == Kind.REDUCE_GRAD and (open_ := _under_way(pending, device)) is not None:
            message = f"{draft.label(op)} starts while {draft.label(open_)} ({draft.place(open_)}) is under way"
            yield at(draft, op, "runtime", message, f"wait before it: {draft.stage[open_]}WAIT_REDUCE_GRAD", open_)
        if ends is None:
            pending[key] = op
    for (_, kind_, _, _), op in pending.items():
        wait = MATCHES[Kind(kind_)].name
        message = f"nothing waits for {draft.label(op)}, and torch 2.15 wants a {wait} for each"
        yield at(draft, op, "runtime", message, "lower with --order torch-2.15")


def _under_way(pending: dict[tuple[int, int, int, int], int], device: int) -> int | None:
    """Return the reduction of a device that has no wait yet, or None."""
    return next((op for (d, kind, _, _), op in pending.items() if d == device and kind == Kind.REDUCE_GRAD), None)
