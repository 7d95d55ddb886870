"""Marks of a Gantt figure: phases, a folded middle, highlights, notes, numbers next to each row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ppsim.base.text import one_line
from ppsim.core.ops import BACKWARDS, Kind, mask
from ppsim.show.drawing.canvas import POINT
from ppsim.show.drawing.gantt.design import Design
from ppsim.show.drawing.gantt.notes import (
    NOTE_LINE,
    NOTE_PAD,
    NOTE_REACH,
    ROW_NOTE_GAP,
    row_notes,
)
from ppsim.show.drawing.gantt.panel import Panel
from ppsim.show.drawing.letters import text_width
from ppsim.show.drawing.look import CRITICAL
from ppsim.show.drawing.palette import HIGHLIGHT
from ppsim.show.drawing.paths import add_path, rectangles

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PHASES = ("warm-up", "steady", "cool-down")
INK = "#444444"  # replaced by a light grey on dark pages


def draw_marks(axes: Axes, panel: Panel, design: Design, tall: int) -> None:
    """Draw the marks above and next to the rows of a panel, which is ``tall`` dots high."""
    look = design.look
    if look.highlight and design.vector:
        _outline(axes, panel, design)
    if look.phases:
        _draw_phases(axes, panel, design, tall)
    if panel.view.period:
        _draw_fold(axes, panel, design, tall)
    if look.per_device:
        _write_rows(axes, panel, design)


def write_notes(axes: Axes, panel: Panel, design: Design, tall: int) -> None:
    """Write the notes at their positions; one above the rows has a line to its time and device."""
    box = {
        "boxstyle": f"round,pad={NOTE_PAD}",
        "facecolor": "white",
        "edgecolor": INK,
        "linewidth": 0.4,
    }
    look: dict[str, Any] = {
        "fontsize": design.font,
        "ha": "center",
        "va": "center",
        "bbox": box,
        "parse_math": False,
    }
    for note, time, line in design.notes:
        place, device = panel.place_note(note)
        if line == 0:
            axes.text(
                time,
                device + (1 + design.gap - design.lane) / 2,
                one_line(note.text),
                zorder=7,
                **look,
            )
            continue
        above = 1 + (design.marks + (line - 0.5) * NOTE_LINE * design.font * POINT) / tall
        to = place, device + design.gap + NOTE_REACH
        common: dict[str, Any] = {
            "textcoords": axes.get_xaxis_transform(),
            "annotation_clip": False,
            **look,
        }
        leader = {"arrowstyle": "-", "linewidth": 0.5, "color": INK, "shrinkA": 0, "shrinkB": 0}
        axes.annotate(
            one_line(note.text),
            to,
            (time, above),
            arrowprops=leader,
            zorder=8 - 0.1 * line,
            **common,
        )
        axes.plot(
            *to,
            marker="o",
            markersize=1.8,
            color=INK,
            markeredgecolor="white",
            markeredgewidth=0.3,
            zorder=7,
        )


def _write_rows(axes: Axes, panel: Panel, design: Design) -> None:
    style: dict[str, Any] = {
        "fontsize": design.font - 0.5,
        "color": INK,
        "ha": "left",
        "va": "center",
    }
    for device, note in enumerate(row_notes(panel)):
        place = (1, device + (1 + design.gap - design.lane) / 2)
        frame = axes.get_yaxis_transform()
        to = (ROW_NOTE_GAP, 0)
        axes.annotate(note, place, to, xycoords=frame, textcoords="offset points", **style)


def _outline(axes: Axes, panel: Panel, design: Design) -> None:
    """Draw a red outline around the highlighted cells of a microbatch or of the critical path."""
    highlight, cells = design.look.highlight, panel.cells
    if highlight is None or highlight.kind not in ("mb", CRITICAL):
        return
    top, bottom = cells.device[cells.lit] + design.gap, cells.device[cells.lit] + 1 - design.lane
    path = rectangles(cells.left[cells.lit], cells.right[cells.lit], top, bottom)
    look: dict[str, Any] = {"edgecolor": HIGHLIGHT[0], "linewidth": 0.7, "snap": None}
    add_path(axes, path, fill=False, zorder=4.6, clip_on=False, **look)


def phase_times(panel: Panel) -> NDArray[np.float64]:
    """Return start of the first backward and end of the last forward, shape (devices, 2)."""
    timeline = panel.timeline
    kind, device = timeline.schedule.kind, timeline.schedule.device
    times = np.full((panel.devices, 2), [timeline.makespan, 0.0])
    back, forward = mask(BACKWARDS)[kind], kind == Kind.F
    np.minimum.at(times[:, 0], device[back], timeline.start[back])
    np.maximum.at(times[:, 1], device[forward], timeline.end[forward])
    return times


def _draw_phases(axes: Axes, panel: Panel, design: Design, tall: int) -> None:
    """Draw a line at start and end of each row's steady phase, and names above the first row."""
    times = phase_times(panel)
    # a device on which no forward follows a backward has no steady phase
    steady = times[:, 1] > times[:, 0]
    places = panel.view.place(times.ravel()).reshape(times.shape)
    rows = np.arange(panel.devices)
    for column in (0, 1):
        shown = steady | (column == 0)
        x = places[shown, column]
        axes.vlines(
            x,
            rows[shown],
            rows[shown] + 1,
            color=INK,
            linewidth=0.8,
            linestyle=(0, (2, 1.2)),
            zorder=5,
        )
    cuts = [0.0, places[0, 0], places[0, 1] if steady[0] else places[0, 0], panel.end]
    folded = bool(panel.view.period)
    for name, left, right in zip(PHASES, cuts, cuts[1:], strict=False):
        if name == PHASES[1] and folded:
            continue  # _draw_fold writes this name
        if text_width(name, design.font - 0.5) <= (right - left) * design.scale:
            _write_above(axes, name, (left + right) / 2, design, tall)


def _draw_fold(axes: Axes, panel: Panel, design: Design, tall: int) -> None:
    """Draw a line with the number of repetitions above the period, and dots for the folded part."""
    left, right = panel.view.period
    y = 1 + 0.12 * design.marks / tall
    line: dict[str, Any] = {
        "transform": axes.get_xaxis_transform(),
        "color": INK,
        "linewidth": 0.8,
        "clip_on": False,
    }
    axes.plot((left, right), (y, y), **line)
    name = (
        f"steady \u00d7 {panel.view.repeats}"
        if design.look.phases
        else f"\u00d7 {panel.view.repeats}"
    )
    _write_above(axes, name, (left + right) / 2, design, tall)
    end = float(panel.view.place_of_start[-1])
    step = max(1, panel.devices // 8)
    axes.fill_between((right, end), 0, panel.devices, color="white", linewidth=0, zorder=4.8)
    style: dict[str, Any] = {
        "fontsize": design.font,
        "color": INK,
        "ha": "center",
        "va": "center",
        "zorder": 5,
    }
    for device in range(0, panel.devices, step):
        axes.text((right + end) / 2, device + 0.5, "\u2026", **style)


def _write_above(axes: Axes, name: str, x: float, design: Design, tall: int) -> None:
    style: dict[str, Any] = {
        "fontsize": design.font - 0.5,
        "color": INK,
        "ha": "center",
        "va": "bottom",
    }
    axes.text(
        x, 1 + 0.25 * design.marks / tall, name, transform=axes.get_xaxis_transform(), **style
    )
