"""Draw the overlay figure: predictions above measurements for each device on one axis, residuals
below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ppsim.base.numbers import format_change, format_number
from ppsim.core.ops import TIMED, mask
from ppsim.errors import InputError
from ppsim.real.validation.verdict import Validation, Verdict
from ppsim.show.drawing.canvas import DOTS, POINT
from ppsim.show.drawing.gantt.design import HEAD, Design, design_for
from ppsim.show.drawing.gantt.figure import BELOW_AXIS, add_axes, check_look
from ppsim.show.drawing.gantt.layout import Cells, choose_labels, raster
from ppsim.show.drawing.gantt.legend import (
    LEGEND_LINE,
    draw_legend_line,
    figure_legend,
    legend_lines,
)
from ppsim.show.drawing.gantt.panel import Panel
from ppsim.show.drawing.gantt.strokes import fill_cells, fill_track, number_cells
from ppsim.show.drawing.gantt.text import draw_heading, draw_time_axis
from ppsim.show.drawing.legend import Entry
from ppsim.show.drawing.letters import text_width, tick_step
from ppsim.show.drawing.palette import DEFAULT, IN_ROW

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKS = ("pred.", "meas.")
MARK = 4.6  # font size of the marks in points
ROW = 0.13  # minimum height of half a device's row in inches, which fits a number
TALLEST = 8.0  # maximum height of one schedule's rows in inches
STRIP, GAP, BETWEEN = (round(inches * DOTS) for inches in (0.5, 0.17, 0.08))
APART = 0.14  # share of half a row that is free above and below each device
MOST_DOTS = 65_000  # maximum height of a png
INK = "#444444"


@dataclass(frozen=True)
class Overlay:
    """One schedule of the figure: its title, its verdict and its two panels, predicted and
    measured.
    """

    title: str
    verdict: Verdict
    halves: tuple[Panel, Panel]

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.halves[0].devices

    @property
    def ends(self) -> tuple[float, float]:
        """The predicted makespan and the measured median."""
        return self.verdict.best.makespan, self.verdict.makespan

    def facts(self, design: Design) -> str:
        """Return both makespans and the error if they fit right of the title, otherwise the error.

        The error states whether its costs come from the same schedule.
        """
        predicted, measured = map(_ms, self.ends)
        error = format_change(self.verdict.errors["held-out"])
        error += "" if self.verdict.held_out else ", not held out"
        full = f"measured {measured} ms, predicted {predicted} ms, {error}"
        named = text_width(self.title, design.font + 0.5, "bold") + 10
        return (
            full if named + text_width(full, design.font - 0.5) <= design.across / POINT else error
        )


def plot_overlay(
    validation: Validation,
    titles: Sequence[str],
    style: str = "screen",
    width: float = 6.75,
    note: str = "",
) -> Figure:
    """Draw all schedules of a session, stacked on one time axis in ms.

    Each device has two adjacent rows: the held-out prediction above the repetition closest to the
    median. Dotted lines show the predicted and the median measured makespan. Below, there is a dot
    for each op: its predicted minus measured start over its measured start, on the same scale for
    all schedules.

    Args:
        validation: the compared schedules.
        titles: one title per schedule.
        style: ``screen`` or ``paper``.
        width: width in inches, which determines the height.
        note: a note on the measurement below the legend.

    Raises:
        InputError: an unknown style, an impossible width, or more schedules than fit into one
            figure.
    """
    from matplotlib.figure import Figure

    check_look(style, width)
    wide = round(width * DOTS)
    overlays = [
        Overlay(title, v, (Panel(v.best.compute, title), Panel(v.measured, title)))
        for title, v in zip(titles, validation.verdicts, strict=True)
    ]
    design = _design(overlays, style, wide)
    em = design.font * POINT
    legend = legend_lines(_legend(overlays, design), wide / POINT - 8, design.font)
    legend += [[Entry(note)]] if note else []
    below, line = round(BELOW_AXIS * em), round(LEGEND_LINE * em)
    rows = [min(2 * each.devices * design.row, round(TALLEST * DOTS)) for each in overlays]
    foot = below + line * len(legend)
    height = y = sum(rows) + (design.head + GAP + STRIP + BETWEEN) * len(overlays) + foot
    if height > MOST_DOTS:
        raise InputError(
            f"{len(overlays)} schedules are too many for one figure",
            "write .html, or fewer schedules",
        )
    figure = Figure(figsize=(wide / DOTS, height / DOTS), dpi=DOTS)
    reach = _reach(overlays)
    for overlay, tall in zip(overlays, rows, strict=True):
        y -= design.head + tall
        _draw_rows(add_axes(figure, design, y, tall), overlay, design, tall)
        y -= GAP + STRIP
        axes = add_axes(figure, design, y, STRIP)
        _draw_residuals(axes, overlay.verdict, reach, design)
        y -= BETWEEN
    draw_time_axis(axes, "ms", design)
    for number, entries in enumerate(legend):
        draw_legend_line(figure, entries, design, foot - below - line * (number + 0.5))
    return figure


def _design(overlays: Sequence[Overlay], style: str, width: int) -> Design:
    """Choose the sizes of rows and fonts for a width in dots."""
    panels = [panel for each in overlays for panel in each.halves]
    design = design_for(
        panels, style, width, label_gap=max(text_width(mark, MARK) for mark in MARKS) + 4
    )
    devices = max(each.devices for each in overlays)
    row = max(1, int(DOTS * min(ROW, max(ROW if devices <= 32 else 0.0, TALLEST / 2 / devices))))
    span = max(design.span, *(end for each in overlays for end in each.ends))
    return replace(design, row=row, gap=APART, head=HEAD, span=span, arrows=False)


def _legend(overlays: Sequence[Overlay], design: Design) -> list[Entry]:
    """Return the entries of the legend; they explain the two rows of a device if these have no
    marks.
    """
    entries = figure_legend([panel for each in overlays for panel in each.halves], design)
    return (
        entries
        if _has_marks(design)
        else [*entries, Entry("Upper half of a row predicted, lower half measured")]
    )


def _has_marks(design: Design) -> bool:
    """Return whether the rows are high enough for a mark to the left of each."""
    return design.row / POINT >= 1.1 * MARK


def _draw_rows(axes: Axes, overlay: Overlay, design: Design, tall: int) -> None:
    """Draw the rows, the makespans and the heading of a schedule, ``tall`` dots high."""
    devices, row = overlay.devices, tall / overlay.devices / POINT
    axes.set_xlim(0, design.span)
    axes.set_ylim(2 * devices, 0)
    axes.set_xticks([])
    axes.spines[:].set_visible(False)
    mark_width = max(text_width(mark, MARK) for mark in MARKS) + 4 if _has_marks(design) else 0.0
    axes.tick_params(length=0, pad=mark_width + 2, labelsize=design.font)
    labelled = range(0, devices, tick_step(row, 0.95 * design.font))
    axes.set_yticks(
        [2 * device + 1 for device in labelled], [f"Device {device}" for device in labelled]
    )
    if design.vector:
        _draw_cells(axes, overlay, design)
    else:
        _draw_image(axes, overlay, design, tall)
    if _has_marks(design):
        _draw_marks(axes, devices)
    for end in overlay.ends:
        axes.plot(
            (end, end),
            (APART, 2 * devices + APART),
            color=INK,
            linewidth=0.7,
            linestyle=":",
            clip_on=False,
            zorder=4.5,
        )
    draw_heading(axes, overlay.title, (overlay.facts(design),), max(overlay.ends), design, tall)


def _draw_marks(axes: Axes, devices: int) -> None:
    """Write to the left of each row whether it is predicted or measured."""
    style: dict[str, Any] = {"fontsize": MARK, "color": INK, "ha": "right", "va": "center_baseline"}
    for half in range(2 * devices):
        at = (0, half + (0.5 + APART / 2 if half % 2 == 0 else 0.5 - APART / 2))
        axes.annotate(
            MARKS[half % 2],
            at,
            (-2, 0),
            textcoords="offset points",
            annotation_clip=False,
            **style,
        )


def _draw_cells(axes: Axes, overlay: Overlay, design: Design) -> None:
    """Draw the ops of a schedule as rectangles; the two rows of a device touch each other."""
    device, first = np.arange(overlay.devices), overlay.halves[0].cells
    size, shown = choose_labels(first, design.scale, (1 - APART) * design.row / POINT, design.font)
    numbered = _group(first)[shown]
    for half, (panel, end) in enumerate(zip(overlay.halves, overlay.ends, strict=True)):
        cells, above, below = panel.cells, (APART, 1.0)[half], (1.0, 2 - APART)[half]
        fill_track(axes, end, 2 * device + above, 2 * device + below)
        fill_cells(axes, cells, 2 * cells.device + above, 2 * cells.device + below, design)
        # measured times vary, so a measured op shows its number if the predicted one does and the
        # number fits
        if half:
            digits = len(str(cells.number.max(initial=0)))
            shown = np.isin(_group(cells), numbered) & (
                cells.width * design.scale >= text_width("0" * digits, size)
            )
        number_cells(axes, cells, 2 * cells.device + (above + below) / 2, size, shown)


def _group(cells: Cells) -> NDArray[np.int64]:
    """Return a number for each kind and stage, shape (cells,)."""
    return len(TIMED) * cells.stage.astype(np.int64) + cells.kind


def _draw_image(axes: Axes, overlay: Overlay, design: Design, tall: int) -> None:
    """Draw the ops of a schedule as one image."""
    devices = overlay.devices
    rows = min(devices, max(1, tall // 2))
    halves = [
        raster(panel.cells, devices, end, design.span, rows, design.across)
        for panel, end in zip(overlay.halves, overlay.ends, strict=True)
    ]
    image = np.stack(halves, axis=1).reshape(2 * rows, design.across, 3)
    axes.imshow(
        image,
        extent=(0, design.span, 2 * devices, 0),
        aspect="auto",
        interpolation="nearest",
        zorder=1,
    )
    free = 2 * APART * tall / (2 * devices) / POINT
    if free >= 0.2:
        axes.hlines(
            2 * np.arange(1, devices), 0, design.span, color="white", linewidth=free, zorder=2
        )


def _reach(overlays: Sequence[Overlay]) -> tuple[float, float]:
    """Return the limits of the residuals' axis: the range over all schedules and zero, with 10 %
    room.
    """
    shifts = np.concatenate([each.verdict.shift for each in overlays])
    low, high = float(shifts.min(initial=0.0)), float(shifts.max(initial=0.0))
    room = 0.1 * (high - low) or 1.0
    return low - room, high + room


def _draw_residuals(
    axes: Axes, verdict: Verdict, reach: tuple[float, float], design: Design
) -> None:
    """Draw a dot for each op: its predicted minus measured start over its measured start."""
    from matplotlib.ticker import MaxNLocator

    schedule, font = verdict.measured.schedule, design.font
    axes.set_xlim(0, design.span)
    axes.set_ylim(*reach)
    axes.set_xticks([])
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.spines["left"].set_linewidth(0.4)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 5, 10]))
    axes.tick_params(axis="y", length=2, width=0.4, pad=2, labelsize=font)
    axes.axhline(0, color=INK, linewidth=0.5, zorder=1)
    colours = np.array([DEFAULT.fill(kind)[0] if kind in IN_ROW else INK for kind in TIMED])[
        schedule.kind
    ]
    shown = schedule.leads & mask(IN_ROW)[schedule.kind]
    axes.scatter(
        verdict.measured.start[shown],
        verdict.shift[shown],
        s=5 if design.vector else 2,
        c=colours[shown],
        edgecolors=INK,
        linewidths=0.2 if design.vector else 0.0,
        clip_on=False,
        rasterized=not design.vector,
        zorder=3,
    )
    axes.text(
        0,
        1.05,
        "predicted - measured start, ms",
        transform=axes.transAxes,
        fontsize=font - 0.5,
        color=INK,
        ha="left",
        va="bottom",
    )


def _ms(value: float) -> str:
    """Format a time in ms without its unit."""
    return f"{value:,.1f}" if value >= 10 else format_number(value)
