"""A fault of a schedule, and its place in the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ppsim.core.draft import Draft


@dataclass(frozen=True)
class Fault:
    """One fault: the reason, the place and the remedy."""

    # missing, duplicate, placement, order, overlap, early, message, fifo, fsdp, deadlock, replicas
    # or runtime
    kind: str
    message: str  # one sentence, or the cycle of a deadlock
    hint: str = ""  # the suggested change
    device: int | None = None  # the device with the fault, if there is one
    row: int | None = None  # line of the file, counted from 1
    cell: int | None = None  # place in the line, counted from 1
    other_ops: tuple[tuple[int, int], ...] = ()  # row and cell of the other ops involved
    waits: tuple[str, ...] = ()  # the waits of a deadlock, a sentence each; also in the message
    # the ops of a deadlock, each of which waits for the next; the last is the first again
    circle: tuple[str, ...] = ()


def at(draft: Draft, op: int, kind: str, message: str, hint: str, *others: int) -> Fault:
    """Return a fault at an op of the draft; ``others`` are the other ops involved."""
    also = tuple((int(draft.row[o]), int(draft.cell[o])) for o in others)
    return Fault(
        kind, message, hint, int(draft.device[op]), int(draft.row[op]), int(draft.cell[op]), also
    )


def deadlock_at(
    draft: Draft,
    op: int,
    cause: str,
    waits: Sequence[str],
    links: Sequence[tuple[int, int]],
    hint: str,
    *others: int,
) -> Fault:
    """Return the fault of a deadlock.

    Args:
        draft: the draft.
        op: the op at which the fault is reported.
        cause: the words after "deadlock" in the message.
        waits: a sentence for each wait.
        links: for each wait, the op that waits and the op awaited.
        hint: the suggested change.
        others: the other ops involved.
    """
    named = [draft.label(each) for link in links for each in link]
    cycle = [
        name
        for name, following in zip(named, [*named[1:], named[0]], strict=True)
        if name != following
    ]
    fault = at(draft, op, "deadlock", f"deadlock {cause}: " + "; ".join(waits), hint, *others)
    return replace(fault, waits=tuple(waits), circle=(*cycle, cycle[0]))
