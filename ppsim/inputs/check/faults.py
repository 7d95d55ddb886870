"""One fault of a schedule, and its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ppsim.core.draft import Draft


@dataclass(frozen=True)
class Fault:
    """One fault: the reason, the place and the remedy."""

    kind: (
        # missing, duplicate, placement, order, overlap, early, message, fifo, fsdp, deadlock,
        # replicas or runtime
        str
    )
    message: str  # one sentence, or the cycle of a deadlock
    hint: str = ""  # the suggested change
    device: int | None = None  # the device, if one is to blame
    row: int | None = None  # line of the file, counted from 1
    cell: int | None = None  # place in the line, counted from 1
    other_ops: tuple[tuple[int, int], ...] = ()  # row and cell of the other ops involved
    waits: tuple[str, ...] = ()  # of a deadlock, each wait as a sentence; the message has them all
    # of a deadlock, the ops in the order in which each waits for the next, the first again at the
    # end
    circle: tuple[str, ...] = ()


def at(draft: Draft, op: int, kind: str, message: str, hint: str, *others: int) -> Fault:
    """Make a fault at an op of the draft, with the other ops involved."""
    also = tuple((int(draft.row[o]), int(draft.cell[o])) for o in others)
    return Fault(
        kind, message, hint, int(draft.device[op]), int(draft.row[op]), int(draft.cell[op]), also
    )


def deadlock_at(
    draft: Draft,
    op: int,
    what: str,
    waits: Sequence[str],
    links: Sequence[tuple[int, int]],
    hint: str,
    *others: int,
) -> Fault:
    """Return the fault of a deadlock with its waits, as sentences and as pairs of ops; ``what``
    names its kind.
    """
    named = [draft.label(each) for link in links for each in link]
    circle = [
        name
        for name, following in zip(named, [*named[1:], named[0]], strict=True)
        if name != following
    ]
    fault = at(draft, op, "deadlock", f"deadlock {what}: " + "; ".join(waits), hint, *others)
    return replace(fault, waits=tuple(waits), circle=(*circle, circle[0]))
