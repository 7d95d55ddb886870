"""The limits of torch.distributed.pipelining, versions 2.13 and 2.15, on the schedules it runs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ppsim.core.draft import Draft
from ppsim.core.ops import Kind
from ppsim.engine.lowering.lower import lower
from ppsim.inputs.check.faults import Fault, at
from ppsim.inputs.check.messages import ExpectedMessages
from ppsim.inputs.check.tables import Tables

RUNTIMES = ("torch-2.13", "torch-2.15")
NO_R = "leave R out and checkpoint the stage's module, which recomputes in its backward"

# The waits that torch 2.15 requires and earlier versions do not have.
AWAITS = {
    Kind.WAIT_SEND_F: Kind.SEND_F,
    Kind.WAIT_SEND_B: Kind.SEND_B,
    Kind.WAIT_REDUCE_GRAD: Kind.REDUCE_GRAD,
}
MATCHES = {awaited: wait for wait, awaited in AWAITS.items()}


def runtime_faults(draft: Draft, runtime: str) -> Iterator[Fault]:
    """Yield the faults that torch rejects, or that give wrong gradients without an error."""
    if draft.placement.n_replicas > 1:
        text = "torch places each stage on one device, and this schedule has two replicas"
        yield Fault("runtime", text, "dualpipe-v or hanayo, which run in a V with one replica")
        return
    if draft.n_slices > 1:
        text = (
            "torch has no slices of sequences, and would run each as a microbatch that attends "
            "to no other"
        )
        yield Fault("runtime", text, "a schedule of whole microbatches")
        return
    if draft.older:
        text = (
            "torch reads B as the full backward; this file has the older letters (BW, and B for I)"
        )
        yield Fault("runtime", text, "ppsim convert writes the letters of today")
    copies = np.flatnonzero(draft.timed & ~draft.computes)
    if len(copies):
        op = int(copies[0])
        yield at(
            draft,
            op,
            "runtime",
            f"{draft.label(op)}: torch has no action for copies and collectives",
            "leave it out",
        )
    recomputes = np.flatnonzero(draft.kind == Kind.R)
    if len(recomputes):
        op = int(recomputes[0])
        text = f"{draft.label(op)}: torch has no action to recompute"
        yield at(draft, op, "runtime", text, NO_R)
    written_out = not draft.computes.all()
    for row, cell in draft.idle if written_out else ():
        text = "torch accepts no empty cell in compute_comms"
        yield Fault("runtime", text, "remove it", device=row - 1, row=row, cell=cell)
    if written_out:
        yield from _unscaled(draft)
        yield from _waits(draft, wanted=runtime == "torch-2.15")
    yield from loss_order(draft)


def loss_order(draft: Draft) -> Iterator[Fault]:
    """Find the first forward of the last stage that is out of order.

    torch assigns losses to microbatches by position.
    """
    ops = np.flatnonzero((draft.kind == Kind.F) & (draft.stage == draft.n_stages - 1))
    late = np.flatnonzero(np.diff(draft.microbatch[ops]) < 0)
    if len(late):
        op, before = int(ops[late[0] + 1]), int(ops[late[0]])
        text = (
            f"{draft.label(op)} runs after {draft.label(before)} ({draft.where(before)}): torch "
            "takes the losses of the last stage in the order of microbatches, and would use the "
            "wrong ones without an error"
        )
        yield at(
            draft,
            op,
            "runtime",
            text,
            "run the forwards of the last stage in the order of microbatches",
            before,
        )


def _unscaled(draft: Draft) -> Iterator[Fault]:
    """Find stages without a REDUCE_GRAD.

    torch divides gradients by the number of microbatches in that op.
    """
    stages = np.setdiff1d(draft.stage[draft.computes], draft.stage[draft.kind == Kind.REDUCE_GRAD])
    if len(stages):
        device = int(draft.placement.devices[0, stages[0]])
        names = ", ".join(str(s) for s in stages[:8])
        text = (
            f"no REDUCE_GRAD of stage{'s' * (len(stages) > 1)} {names}: torch would not divide "
            f"their gradients by {draft.n_microbatches}, nor reduce them"
        )
        yield Fault(
            "runtime", text, f"add {stages[0]}REDUCE_GRAD after its last backward", device=device
        )


def _waits(draft: Draft, wanted: bool) -> Iterator[Fault]:
    """Find sends and reductions without the wait of torch 2.15, and reductions that overlap.

    With ``wanted`` False, find the first wait instead.
    """
    concerned = np.flatnonzero(np.isin(draft.kind, [*AWAITS, *MATCHES])).tolist()
    if not wanted:
        for op in concerned:
            if draft.kind[op] in AWAITS:
                message = f"{draft.label(op)}: this torch has no waits, which came with 2.15"
                yield at(
                    draft,
                    op,
                    "runtime",
                    message,
                    "lower with --order torch, or check for torch-2.15",
                )
                return
        return
    pending: dict[tuple[int, int, int, int], int] = {}
    for op in concerned:
        kind, device = Kind(draft.kind[op]), int(draft.device[op])
        ends = AWAITS.get(kind)
        key = (
            device,
            int(ends if ends is not None else kind),
            int(draft.stage[op]),
            int(draft.microbatch[op]),
        )
        if ends is not None and pending.pop(key, None) is None:
            message = f"{draft.label(op)} waits for no {ends.name} before it"
            yield at(draft, op, "runtime", message, f"move it after its {ends.name}, or remove it")
        elif (
            kind == Kind.REDUCE_GRAD and (open_ := _pending_reduction(pending, device)) is not None
        ):
            message = (
                f"{draft.label(op)} starts while {draft.label(open_)} ({draft.place(open_)}) "
                f"is under way"
            )
            yield at(
                draft,
                op,
                "runtime",
                message,
                f"wait before it: {draft.stage[open_]}WAIT_REDUCE_GRAD",
                open_,
            )
        if ends is None:
            pending[key] = op
    for (_, kind_, _, _), op in pending.items():
        wait = MATCHES[Kind(kind_)].name
        message = f"nothing waits for {draft.label(op)}, and torch 2.15 requires a {wait} for each"
        yield at(draft, op, "runtime", message, "lower with --order torch-2.15")


def _pending_reduction(pending: dict[tuple[int, int, int, int], int], device: int) -> int | None:
    """Return the reduction of a device that has no wait yet, or None."""
    return next(
        (op for (d, kind, _, _), op in pending.items() if d == device and kind == Kind.REDUCE_GRAD),
        None,
    )


def runtime_warnings(draft: Draft) -> Iterator[Fault]:
    """Find the first message that torch's option ``defer_pp_recv`` would put out of order."""
    if draft.has_comms or draft.start is not None or draft.placement.n_replicas > 1:
        return
    deferred = Draft.from_schedule(lower(draft.schedule(), "deferred", reduce_grad=True).schedule)
    if fault := next(
        ExpectedMessages.from_draft(deferred, Tables.from_draft(deferred)).order_faults(deferred),
        None,
    ):
        text = "with defer_pp_recv=True gradients would be wrong without an error: " + fault.message
        yield Fault(
            "runtime", text, "leave defer_pp_recv off for this schedule", device=fault.device
        )
