"""Find the faults of a schedule: ops missing, out of order or on two devices, unmatched messages,
deadlocks.

Simple checks run first, and a later check ignores the parts in which an earlier one found a fault,
so one mistake is reported once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from ppsim.core.draft import Draft
from ppsim.core.ops import BACKWARDS, Kind, mask
from ppsim.core.slices import SLICE_ORDER, find_early_slices
from ppsim.inputs.check import op_times
from ppsim.inputs.check.deadlock import MODES, deadlock_faults
from ppsim.inputs.check.expected_counts import ANY, ExpectedCounts, expected_faults
from ppsim.inputs.check.faults import Fault, at
from ppsim.inputs.check.messages import ExpectedMessages, message_faults
from ppsim.inputs.check.queues import QUEUES, QUEUES_OF, queue_faults
from ppsim.inputs.check.runtime import RUNTIMES, runtime_faults, runtime_warnings
from ppsim.inputs.check.streams import sharding_faults, stream_faults
from ppsim.inputs.check.tables import Tables

MOST_FAULTS = 10_000  # of one check


@dataclass(frozen=True)
class CheckReport:
    """The faults and warnings of a check."""

    faults: list[Fault]  # empty for a valid schedule
    # faults that only appear with an option of the runtime that is off by default
    warnings: list[Fault] = field(default_factory=list)

    @property
    def valid(self) -> bool:
        """True without faults."""
        return not self.faults


def check(
    draft: Draft,
    modes: Sequence[str] = MODES,
    runtime: str = "",
    queues: str = "",
    expected: ExpectedCounts = ANY,
) -> CheckReport:
    """Return the faults of a draft.

    Args:
        draft: the draft, with or without comm ops, with or without times.
        modes: behaviours of sends and receives with which to look for deadlocks. ``overlap``:
            neither blocks, and an op waits for its data; ``batched``: neighbours are posted
            together and all must finish; ``blocking``: each waits for its other side. A schedule
            that runs with ``blocking`` also runs with ``batched``, and one that runs with
            ``batched`` also runs with ``overlap``.
        runtime: ``torch-2.13``, ``torch-2.15`` or ``megatron`` adds the limits of that runtime.
        queues: one in-order queue of sends and receives per ``edge``, ``pair`` or ``rank``; by
            default as in the runtime. Without both, a deadlock in any of the three is a warning.
        expected: the counts, or the schedule, that the file should have.
    """
    faults = [*expected_faults(draft, expected), *islice(_size(draft), MOST_FAULTS)]
    if faults:
        return CheckReport(faults)
    tables = Tables.from_draft(draft)
    messages = ExpectedMessages.from_draft(draft, tables)
    mismatched: list[Fault] = []
    found = [_placement(draft), _repeated_or_missing(draft, tables)]
    if draft.start is not None:
        found.append(op_times.overlaps(draft))
    found += [
        _dependencies(draft, tables),
        _slices(draft),
        sharding_faults(draft),
        stream_faults(draft),
    ]
    if draft.has_comms:
        found.append(message_faults(draft, tables, messages))
        mismatched = list(islice(messages.order_faults(draft), MOST_FAULTS))
    for each in found:
        faults += islice(each, MOST_FAULTS)
    if not faults and draft.start is None and (draft.computes.all() or not draft.timed.all()):
        faults += deadlock_faults(draft, tables, messages, modes)
    faults += mismatched
    warnings: list[Fault] = []
    if not faults and draft.has_comms and draft.start is None:
        per, batched = (queues, False) if queues else QUEUES_OF.get(runtime, ("", False))
        stuck = [
            fault
            for each in ([per] if per else QUEUES)
            for fault in queue_faults(draft, messages, each, batched)
        ]
        (faults if per else warnings).extend(stuck[:1])
    if runtime in RUNTIMES:
        faults += islice(runtime_faults(draft, runtime), MOST_FAULTS)
        # runtime_warnings lowers the schedule, which must be sound for that
        warnings += [] if faults else runtime_warnings(draft)
    return CheckReport(faults, [] if faults else warnings)


def _size(draft: Draft) -> Iterator[Fault]:
    """Find devices without ops, too few ops for the stages and microbatches, and a number of
    microbatches that the number of rounds does not divide.
    """
    stages, microbatches = draft.n_stages, draft.n_microbatches
    for device in np.flatnonzero(np.diff(draft.offsets) == 0):
        yield Fault(
            "missing",
            f"device {device} has no ops",
            "give every device a stage",
            device=int(device),
        )
    if stages * microbatches > len(draft) + 1000:
        op = int(np.argmax(np.where(draft.computes, draft.microbatch, -1)))
        text = (
            f"{draft.label(op)}: {stages} stages x {microbatches} microbatches need "
            f"{2 * stages * microbatches} ops or more, and there are {len(draft)}"
        )
        yield at(draft, op, "missing", text, "count stages and microbatches from 0, without gaps")
    if microbatches % draft.n_rounds:
        yield Fault(
            "missing",
            f"{microbatches} microbatch{'es' * (microbatches > 1)} in {draft.n_rounds} rounds, "
            f"which each have as many",
            "steps is how many times the queues repeat: count microbatches from 0, through all of "
            "them",
        )
    if not draft.computes.any():
        yield Fault("missing", "no op computes", "write F and B, or F, I and W, of every stage")


def _placement(draft: Draft) -> Iterator[Fault]:
    """Find ops on another device than their stage; with two replicas, microbatches in both."""
    placement, computes = draft.placement, draft.computes
    devices = placement.devices
    for stage in np.setdiff1d(np.arange(draft.n_stages), draft.stage[computes]):
        yield Fault("missing", f"no device runs stage {stage}", "count stages from 0, without gaps")
    here = devices[:, draft.stage.clip(max=draft.n_stages - 1)] == draft.device
    strays = computes & ~here.any(axis=0)
    for op, count in _firsts(draft, np.flatnonzero(strays)):
        home, others = int(devices[0, draft.stage[op]]), count - 1
        more = f" (and {others} more of stage {draft.stage[op]})" if others else ""
        text = (
            f"{draft.label(op)} runs on device {draft.device[op]}{more}, stage {draft.stage[op]} "
            f"belongs to device {home}"
        )
        yield at(
            draft,
            op,
            "placement",
            text,
            f"move it to device {home}, or all of the stage to one device",
        )
    if placement.n_replicas > 1:
        replica = np.where(here[0], 0, 1)
        ops = np.flatnonzero(computes & (here.sum(axis=0) == 1))
        first = np.zeros(draft.n_microbatches, np.int64)
        first[draft.microbatch[ops][::-1]] = replica[ops][::-1]
        for op in ops[replica[ops] != first[draft.microbatch[ops]]]:
            text = (
                f"{draft.label(int(op))} runs in the other replica than the rest of microbatch "
                f"{draft.microbatch[op]}"
            )
            yield at(draft, int(op), "placement", text, "keep each microbatch in one replica")


def _firsts(draft: Draft, ops: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return, for each stage and device, the first of these ops and their number."""
    place = draft.stage[ops].astype(np.int64) * draft.n_devices + draft.device[ops]
    _, first, count = np.unique(place, return_index=True, return_counts=True)
    return sorted(zip(ops[first].tolist(), count.tolist(), strict=True))


def _repeated_or_missing(draft: Draft, tables: Tables) -> Iterator[Fault]:
    """Find ops that run twice, and ops that no device runs."""
    for op in tables.repeats[draft.computes[tables.repeats]]:
        first = tables.first[draft.kind[op], draft.stage[op], draft.microbatch[op]]
        text = f"{draft.label(int(op))} runs a second time, after {draft.where(int(first))}"
        yield at(draft, int(op), "duplicate", text, "remove one of the two", int(first))
    full, split = tables.first[Kind.B], tables.first[Kind.I]
    weights = tables.first[Kind.W]
    for stage, microbatch in np.argwhere((full >= 0) & ((split >= 0) | (weights >= 0))):
        half = int(max(split[stage, microbatch], weights[stage, microbatch]))
        whole = int(full[stage, microbatch])
        text = f"{draft.label(half)} runs as well as {draft.label(whole)}, which includes it"
        yield at(draft, half, "duplicate", text, "run either B, or I and W", whole)
    has_ops = np.isin(np.arange(draft.n_stages), draft.stage[draft.computes])[:, None]
    trains = bool(mask((*BACKWARDS, Kind.W))[draft.kind].any())  # else it is inference
    for names, absent in (
        ("F", tables.first[Kind.F] < 0),
        ("B, nor I", (full < 0) & (split < 0) & trains),
        ("W", (full < 0) & (split >= 0) & (weights < 0)),
    ):
        for stage in np.flatnonzero((absent & has_ops).any(axis=1)):
            lost = np.flatnonzero(absent[stage])
            which = ", ".join(str(m) for m in lost[:8]) + (
                f" and {len(lost) - 8} more" if len(lost) > 8 else ""
            )
            device = int(draft.placement.devices[0, stage])
            text = (
                f"device {device} runs no {names} of stage {stage} for "
                f"microbatch{'es' * (len(lost) > 1)} {which}"
            )
            yield Fault(
                "missing", text, f"add {stage}{names[0]}{lost[0]} to device {device}", device=device
            )


def _slices(draft: Draft) -> Iterator[Fault]:
    """Find slices of a sequence that run before a slice that they need."""
    if draft.n_slices > 1:
        early = find_early_slices(
            draft.kind, draft.stage, draft.microbatch, draft.n_microbatches, draft.n_slices
        )
        for op, needed in early.tolist():
            text = (
                f"{draft.label(op)} runs before {draft.label(needed)}, a slice of its sequence "
                f"that it needs"
            )
            yield at(draft, op, "order", text, SLICE_ORDER, needed)


def _dependencies(draft: Draft, tables: Tables) -> Iterator[Fault]:
    """Find ops before the ops they need: in time, or else in the queue of their device."""
    op, need = tables.needs(draft)
    if draft.start is not None:
        yield from op_times.early_op_faults(draft, op, need)
        return
    wrong = (draft.device[op] == draft.device[need]) & ((need >= op) | (draft.pair[op] == need))
    for this, other in zip(op[wrong].tolist(), need[wrong].tolist(), strict=True):
        why = "in one pair with" if draft.pair[this] == other else "before"
        text = (
            f"{draft.label(this)} runs {why} {draft.label(other)} ({draft.where(other)}), which "
            f"it needs"
        )
        yield at(
            draft,
            this,
            "order",
            text,
            f"move {draft.label(this)} after {draft.label(other)}",
            other,
        )
