"""Marks of idle time in a terminal: its cause, or a device blocked in a send or receive."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from rich.style import Style

from ppsim.core.ops import COMPUTE, Kind
from ppsim.show.drawing.palette import (
    CAUSE_DARK,
    CAUSE_FILL,
    FEW_COLOURS,
    TERMINAL_MUTED,
    XTERM_CAUSES,
)

if TYPE_CHECKING:
    from ppsim.analysis.idle import Idle
    from ppsim.core.execution import Execution

LIGHT_GROUNDS = ("7", "15")  # light backgrounds among the sixteen colours, last in COLORFGBG
BLOCKED = "blocked in a send or receive"
# Signs of causes where colours do not tell them apart; letters and digits are those of ops.
CAUSE_SIGNS = {
    "host": "@",
    "message": "~",
    "compute": "+",
    "order": "%",
    "imbalance": "&",
    "collective": "=",
    "fill": ".",
    "turnaround": ":",
    "drain": ",",
    "copy": ">",
    "barrier": "|",
    "feedback": "^",
    "optimizer": "*",
}


@dataclass(frozen=True)
class Mark:
    """The look of one cause of waiting: sign, style and name."""

    sign: str
    style: Style
    name: str


@dataclass(frozen=True)
class Marks:
    """Intervals of waiting, ascending on each device."""

    looks: tuple[Mark, ...]  # one per cause
    device: NDArray[np.int64]  # shape (intervals,)
    start: NDArray[np.float64]  # shape (intervals,)
    end: NDArray[np.float64]  # shape (intervals,)
    look: NDArray[np.int64]  # shape (intervals,), index into ``looks``

    def __iter__(self) -> Iterator[Mark]:
        return (self.looks[look] for look in np.unique(self.look))

    def select_device(self, device: int) -> Marks:
        """Return the marks of one device."""
        own = self.device == device
        columns = {name: getattr(self, name)[own] for name in ("device", "start", "end", "look")}
        return replace(self, **columns)

    def mark_at(self, time: float) -> Mark | None:
        """Return the mark at a time, or None; needs the marks of one device only."""
        here = int(np.searchsorted(self.start, time, "right")) - 1
        return self.looks[self.look[here]] if here >= 0 and time < self.end[here] else None


def marks_of_idle(idle: Idle, colours: int) -> Marks:
    """Return idle time by cause as cells in the pages' colours for light or dark backgrounds.

    A terminal with 256 ``colours`` gets xterm's numbers, one with fewer a sign for each cause. The
    background is dark unless COLORFGBG says otherwise.
    """
    looks = _signed_causes() if colours < FEW_COLOURS else _coloured_causes(colours)
    return Marks(
        looks, idle.device.astype(np.int64), idle.start, idle.end, idle.cause.astype(np.int64)
    )


def _signed_causes() -> tuple[Mark, ...]:
    """Return the look of each cause without colours."""
    from ppsim.analysis.idle import NAMES

    return tuple(Mark(CAUSE_SIGNS[name], Style(), f"idle: {name}") for name in NAMES)


def _coloured_causes(colours: int) -> tuple[Mark, ...]:
    """Return the look of each cause on a terminal with this number of colours."""
    from ppsim.analysis.idle import NAMES

    light = os.environ.get("COLORFGBG", "").rpartition(";")[2] in LIGHT_GROUNDS
    fills: Mapping[str, str] = CAUSE_FILL if light else CAUSE_DARK
    if colours == FEW_COLOURS:
        fills = {name: f"color({pair[0 if light else 1]})" for name, pair in XTERM_CAUSES.items()}
    return tuple(Mark(" ", Style(bgcolor=fills[name]), f"idle: {name}") for name in NAMES)


def marks_of_messages(execution: Execution) -> Marks | None:
    """Return the times at which devices are blocked in sends and receives.

    None if all messages run in parallel with compute.
    """
    schedule, timeline = execution.lowered.schedule, execution.timeline
    waits = ~np.isin(schedule.kind, [*COMPUTE, Kind.UNSHARD, Kind.RESHARD, Kind.REDUCE_GRAD]) & (
        timeline.end > timeline.start
    )
    if not waits.any():
        return None
    op = np.flatnonzero(waits)
    op = op[np.lexsort((timeline.start[op], schedule.device[op]))]
    look = Mark("~", Style(color=TERMINAL_MUTED), BLOCKED)
    device = schedule.device[op].astype(np.int64)
    return Marks((look,), device, timeline.start[op], timeline.end[op], np.zeros(len(op), np.int64))
