"""One panel of a Gantt figure: a timeline as cells, arrows and lanes, cut to its view."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ppsim.analysis.idle import Idle
from ppsim.analysis.link_use import LinkUse
from ppsim.base.numbers import format_number, format_share
from ppsim.base.text import shorten
from ppsim.base.units import format_held
from ppsim.core.curve import Curve
from ppsim.core.timeline import Timeline
from ppsim.engine.simple.columns import peak_share, shape_of
from ppsim.engine.simple.metrics import measure
from ppsim.engine.simple.segments import STREAMS, OpsInside
from ppsim.errors import InputError
from ppsim.show.drawing.gantt.layout import (
    Cells,
    Messages,
    cells_of,
    choose_labels,
    idle_cells,
    inside_cells,
    label_texts,
    messages_of,
    place_labels,
    take_cells,
    thin_labels,
)
from ppsim.show.drawing.lanes import Bars, Lane, bars_over_devices, compute_row, lane_beside
from ppsim.show.drawing.letters import LONGEST_UNIT, is_symbol
from ppsim.show.drawing.look import CRITICAL, PICKED, PLAIN, Look, Note
from ppsim.show.drawing.view import View, view_of

if TYPE_CHECKING:
    from ppsim.core.execution import Execution


ENDS = "left", "right", "end"  # columns of cells that contain times


@dataclass(frozen=True)
class Panel:
    """One timeline of a figure, with its memory, links and idle time if these are shown."""

    timeline: Timeline
    title: str
    memory: Curve | None = None
    execution: Execution | None = None
    idle: Idle | None = None
    look: Look = PLAIN
    links: LinkUse | None = None
    inside: OpsInside | None = None
    thin: bool = False  # whether every n-th cell is numbered if not all have room
    wrapped: bool = False  # whether this is one of several lines of a timeline

    @property
    def devices(self) -> int:
        """The number of devices."""
        return self.timeline.schedule.n_devices

    @cached_property
    def view(self) -> View:
        """The part of the timeline to draw."""
        return view_of(self.timeline, self.look.window, self.look.fold)

    @property
    def end(self) -> float:
        """The place of the makespan in the picture."""
        return float(self.view.place(np.array([self.timeline.makespan]))[0])

    @cached_property
    def cells(self) -> Cells:
        """The cells to draw."""
        picked = self.look.highlight.ops(self.timeline) if self.look.highlight else None
        row = compute_row(self.timeline)
        if picked is not None and row is not self.timeline:
            picked = self.look.highlight.ops(row) if self.look.highlight else None
        return self.view.cut(cells_of(row, picked), *ENDS)

    @cached_property
    def streams(self) -> list[Cells]:
        """The segments of ops on the compute and the communication stream; empty if unknown."""
        if self.inside is None or self.timeline.schedule.has_lanes:
            return []
        return [
            self.view.cut(inside_cells(self.timeline, self.inside, on), *ENDS)
            for on in range(len(STREAMS))
        ]

    @property
    def _cut_cells(self) -> NDArray[np.bool_]:
        """Shape (cells,), whether a window or a fold cuts the cell; cut cells have no text."""
        row, op = compute_row(self.timeline), self.cells.op
        schedule = row.schedule
        whole = (row.end - row.start)[op] / np.where(schedule.pair[op] >= 0, 2, 1)
        return np.asarray(self.cells.width < whole * (1 - 1e-6))

    def choose_texts(
        self, scale: float, row: float, largest: float
    ) -> tuple[float, NDArray[np.bool_], list[str]]:
        """Return the font size of the cells' texts, the cells that show theirs, and the texts.

        Texts omit chunks if some cells would otherwise have no room for their microbatch. A
        ``thin`` panel leaves out some of the numbers.
        """
        lit, shown = self.cells.lit & ~self._cut_cells, np.zeros(len(self.cells), np.bool_)
        if self.look.every:
            texts = label_texts(self.cells, self.look.labels, self.look.base)
            texts = [text if kept else "" for text, kept in zip(texts, lit.tolist(), strict=True)]
            return *place_labels(self.cells, texts, scale, row, largest), texts
        for labels in ("auto", "mb") if self.look.labels == "auto" else (self.look.labels,):
            texts = label_texts(self.cells, labels, self.look.base)
            longest = max(map(len, texts), default=0)
            if longest == 0:
                return 0.0, shown, texts
            size, shown[lit] = choose_labels(
                take_cells(self.cells, lit), scale, row, largest, longest
            )
            if shown[lit].all():
                return size, shown, texts
        if self.thin:
            size, shown[lit] = thin_labels(
                take_cells(self.cells, lit), [texts[i] for i in np.flatnonzero(lit)], scale
            )
        return size, shown, texts

    @property
    def whole_cells(self) -> int:
        """The number of cells that are in full colour and not cut by a window."""
        return int((self.cells.lit & ~self._cut_cells).sum())

    def numbered(self, scale: float, row: float, largest: float) -> float:
        """Return the share of whole cells that show their text; arguments as
        :meth:`choose_texts`.
        """
        lit = self.cells.lit & ~self._cut_cells
        return float(self.choose_texts(scale, row, largest)[1][lit].mean()) if lit.any() else 1.0

    def place_note(self, note: Note) -> tuple[float, int]:
        """Return a note's time and row in the picture (InputError: no such device or time)."""
        place = float(self.view.place(np.array([note.time]))[0])
        device = note.device - self.look.base
        first, last = self.look.window or (0.0, self.timeline.makespan)
        if not (0 <= device < self.devices and first <= note.time <= last):
            raise InputError(
                f"the chart has no place for --note '{note}'", "a time and a device that it shows"
            )
        return place, device

    @cached_property
    def idle_cells(self) -> Cells | None:
        """The idle time to colour by its cause, if any."""
        return self.view.cut(idle_cells(self.idle), *ENDS) if self.idle else None

    @cached_property
    def messages(self) -> Messages | None:
        """The arrows to draw, if any."""
        found = messages_of(self.timeline)
        return None if found is None else self.view.cut(found, "sent", "arrived")

    @cached_property
    def lane(self) -> Lane | None:
        """The messages and collectives to draw below the rows, if any."""
        lane = lane_beside(self.timeline, self.execution)
        return None if lane is None else self.view.cut(lane, "left", "right")

    @cached_property
    def bars(self) -> Bars | None:
        """The ops that all devices run together, if any."""
        bars = None if self.execution else bars_over_devices(self.timeline)
        return None if bars is None else self.view.cut(bars, "left", "right")

    @cached_property
    def lane_lit(self) -> NDArray[np.bool_]:
        """Shape (entries of the lane,), whether each is in full colour."""
        count, highlight = len(self.lane or ()), self.look.highlight
        if highlight is None or self.lane is None:
            return np.ones(count, np.bool_)
        if highlight.kind == CRITICAL:
            return np.zeros(count, np.bool_)
        return np.asarray(getattr(self.lane, PICKED[highlight.kind]) == highlight.value)

    @cached_property
    def facts(self) -> tuple[str, ...]:
        """The numbers above the panel, those that can be left out first at the start.

        The peak is in microbatches on all of a device's stages, or in the unit of the memory below.
        """
        timeline, metrics = self.timeline, measure(self.timeline)
        unit = "" if is_symbol(timeline.unit) else f" {shorten(timeline.unit, LONGEST_UNIT)}"
        peak = format_number(peak_share(metrics, shape_of(timeline.schedule)))
        if self.memory is not None:  # the largest value of the curve below, in its unit
            peak = format_held(float(self.memory.peak.max()), self.memory.unit)
        devices, whole = timeline.schedule.n_devices, timeline.schedule.whole_microbatches
        noun = "batch" if timeline.schedule.feeds_back else "microbatch"
        return (
            f"{devices} device{'s' if devices != 1 else ''}",
            f"{whole} {noun}{'es' if whole != 1 else ''}",
            f"T = {format_number(metrics.makespan)}{unit}",
            f"bubble {format_share(metrics.bubble_rate)}",
            f"peak {peak}",
        )
