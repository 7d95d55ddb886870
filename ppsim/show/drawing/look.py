"""The look of a chart: options of figures and pages, highlighted ops, and notes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ppsim.core.schedule import NONE
from ppsim.core.timeline import Timeline
from ppsim.errors import InputError
from ppsim.show.drawing.palette import DEFAULT, PALETTES, Palette

LABELS = ("auto", "mb", "op", "none")
EVERY = re.compile("every:[1-9][0-9]{0,5}")
CRITICAL = "critical"
PICKED = {"mb": "microbatch", "device": "device", "stage": "stage"}


@dataclass(frozen=True)
class Highlight:
    """The highlighted ops of a chart: those of a microbatch, device, stage or the critical path.

    All other ops are dimmed.
    """

    kind: str  # ``mb``, ``device``, ``stage`` or ``critical``
    value: int = 0  # its number, counted from 0; 0 for the critical path
    base: int = 0  # the number of the first one in texts

    def __str__(self) -> str:
        return CRITICAL if self.kind == CRITICAL else f"{self.kind}={self.value + self.base}"

    def count_from(self, base: int) -> Highlight:
        """Return the highlight whose value was counted from ``base``."""
        return self if self.kind == CRITICAL else replace(self, value=self.value - base, base=base)

    def ops(self, timeline: Timeline) -> NDArray[np.bool_]:
        """Return, shape (ops,), whether each op is highlighted (InputError: none is)."""
        schedule = timeline.schedule
        if self.kind == CRITICAL:
            from ppsim.analysis.critical_path import critical_path

            found = np.zeros(len(schedule), np.bool_)
            path = critical_path(timeline)
            found[path] = True
            found[schedule.pair[path][schedule.pair[path] != NONE]] = True
        else:
            found = getattr(schedule, PICKED[self.kind]) == self.value
        if not found.any():
            most, first = 0, self.base
            if self.kind in PICKED:
                most = int(getattr(schedule, PICKED[self.kind]).max(initial=0))
            raise InputError(
                f"{schedule.name} has no {PICKED.get(self.kind, self.kind)} {self.value + first}",
                f"{first} to {most + first}, counted from {first}",
            )
        return found


@dataclass(frozen=True)
class Note:
    """A text on a chart."""

    text: str
    time: float  # of its middle
    device: int  # of its row, counted from the look's ``base``

    def __str__(self) -> str:
        return f"{self.text}@{self.time!r}:dev{self.device}"


@dataclass(frozen=True)
class Look:
    """The look of a chart, except its style and width."""

    palette: str = DEFAULT.name  # a name of :data:`ppsim.show.drawing.palette.PALETTES`
    base: int = 0  # the number of the first device, stage and microbatch in texts
    title: str = ""  # of the figure or page; empty for the schedule's title
    # texts in cells: ``mb``, the microbatch; ``op``, such as 2F0; ``none``; ``auto``, the
    # microbatch, with its chunk if a device has over two; ``every:N``, every N-th microbatch, which
    # may extend over cells without a text
    labels: str = "auto"
    window: tuple[float, float] | None = None  # the times to show, from and to; None for all
    until: float = 0.0  # end of a figure's time axis, if it is after the last op
    fold: bool = False  # whether to draw a repeating middle once
    highlight: Highlight | None = None  # ops to highlight
    phases: bool = False  # whether to mark warm-up, steady phase and cool-down
    per_device: bool = False  # whether to write idle share and peak next to every row
    # of a figure's texts in points, the largest of its numbers; None for the width's default
    font_size: float | None = None
    notes: tuple[Note, ...] = ()  # texts on a figure's first chart

    def __post_init__(self) -> None:
        if self.palette not in PALETTES:
            raise InputError(f"unknown palette '{self.palette}'", f"one of {' '.join(PALETTES)}")
        if self.labels not in LABELS and not EVERY.fullmatch(self.labels):
            raise InputError(
                f"unknown labels '{self.labels}'", f"one of {' '.join(LABELS)} every:N"
            )
        if self.window and not (0 <= self.window[0] < self.window[1] < np.inf):
            raise InputError(
                f"no window from {self.window[0]:g} to {self.window[1]:g}", "A:B with 0 <= A < B"
            )
        if self.window and self.fold:
            raise InputError(
                "a window and a folded middle exclude each other", "leave one of them out"
            )

    @property
    def every(self) -> int:
        """The N of labels ``every:N``; 0 for other labels."""
        return int(self.labels.removeprefix("every:")) if EVERY.fullmatch(self.labels) else 0

    @property
    def colours(self) -> Palette:
        """The palette."""
        return PALETTES[self.palette]


PLAIN = Look()
