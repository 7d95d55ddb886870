"""One fault of a schedule, and its place."""

from __future__ import annotations

from dataclasses import dataclass

from ppsim.core.draft import Draft


@dataclass(frozen=True)
class Fault:
    """One fault: the reason, the place and the remedy.

    Attributes:
        kind: missing, duplicate, placement, order, overlap, early, message, fifo, fsdp, deadlock or runtime.
        device: the device, if one is to blame.
        row: line of the file, counted from 1.
        cell: place in the line, counted from 1.
        message: one sentence, or the cycle of a deadlock.
        hint: what to change.
        also: row and cell of the other ops involved.
    """

    kind: str
    device: int | None
    row: int | None
    cell: int | None
    message: str
    hint: str = ""
    also: tuple[tuple[int, int], ...] = ()


def at(draft: Draft, op: int, kind: str, message: str, hint: str, *others: int) -> Fault:
    """Make a fault at an op of the draft, with the other ops involved."""
    also = tuple((int(draft.row[o]), int(draft.cell[o])) for o in others)
    return Fault(kind, int(draft.device[op]), int(draft.row[op]), int(draft.cell[op]), message, hint, also)
