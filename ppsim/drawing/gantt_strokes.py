"""The strokes of a Gantt figure: cells, numbers, arrows, headings and the time axis.

Each function adds one thing to a matplotlib figure whose measures :class:`Design` holds. Never an artist per op,
except for numbers that are large enough to read and arrows that are few enough to follow.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ppsim.analysis.idle import NAMES, Idle
from ppsim.base.numbers import format_number, format_share
from ppsim.base.text import shorten
from ppsim.core.curve import Curve
from ppsim.core.timeline import Timeline
from ppsim.drawing.gantt_layout import (
    DOTS,
    HATCHES,
    LEAST_BORDERED,
    PALETTE,
    POINT,
    Cells,
    Messages,
    add_idle,
    cells_of,
    choose_labels,
    messages_of,
    raster,
    tick_step,
)
from ppsim.drawing.lanes import COLLECTIVE, Lane, lane_of
from ppsim.drawing.palette import BUBBLE, CAUSE_FILL, COMM_ARROW, COMM_LANE, text_colour
from ppsim.drawing.palette import COLLECTIVE as COLLECTIVE_LANE
from ppsim.simulation.columns import peak_share, shape_of
from ppsim.simulation.metrics import measure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.path import Path

    from ppsim.core.execution import Execution

LANE_EDGE = 0.25  # points
HATCHING = "////////"  # the more signs, the closer the lines
NARROWEST_LETTER = 0.2  # of the font's size
LONGEST_UNIT = 40  # characters


@dataclass(frozen=True)
class Panel:
    """One timeline of a figure; its memory, what goes on beside its ops and its idle time where these are shown."""

    timeline: Timeline
    title: str
    memory: Curve | None = None
    execution: Execution | None = None
    idle: Idle | None = None

    @property
    def devices(self) -> int:
        """P."""
        return self.timeline.schedule.n_devices

    @cached_property
    def cells(self) -> Cells:
        """What to draw."""
        return cells_of(self.timeline)

    @cached_property
    def messages(self) -> Messages | None:
        """The arrows to draw, if any."""
        return messages_of(self.timeline)

    @cached_property
    def lane(self) -> Lane | None:
        """The messages and collectives to draw below the rows, if any."""
        return lane_of(self.execution) if self.execution else None

    @cached_property
    def facts(self) -> str:
        """The numbers that stand above the panel; the peak counts microbatches on all of a device's stages."""
        timeline, metrics = self.timeline, measure(self.timeline)
        unit = "" if is_symbol(timeline.unit) else f" {shorten(timeline.unit, LONGEST_UNIT)}"
        peak = peak_share(metrics, shape_of(timeline.schedule))
        numbers = (
            f"T = {format_number(metrics.makespan, ',')}{unit}",
            f"bubble {format_share(metrics.bubble_rate, ' ')}",
            f"peak {format_number(peak, ',')}",
        )
        return "\u00a0\u00a0 ".join(numbers)  # browsers would draw plain spaces as one


@dataclass(frozen=True)
class Design:
    """The measures that all panels of a figure share.

    Attributes:
        style: screen or paper.
        font: size in points.
        left: dots beside the rows, where the devices' names stand.
        across: dots from time 0 to ``span``.
        span: the longest makespan.
        row: dots of a row.
        gap: share of a row that stays empty, above and below.
        head: dots above a panel for its title and facts, 0 for none.
        border: line width around cells in points.
        vector: whether cells are drawn one by one.
        arrows: whether messages are drawn as arrows.
        bands: those of the lane below each row, downwards; none where no lane is drawn.
        lane: share of a row that the lane takes, with the empty part below it; ``gap`` where there is none.
    """

    style: str
    font: float
    left: int
    across: int
    span: float
    row: int
    gap: float
    head: int
    border: float
    vector: bool
    arrows: bool
    bands: tuple[int, ...]
    lane: float

    @property
    def scale(self) -> float:
        """Points per unit of time."""
        return self.across / POINT / self.span


def draw_gantt(axes: Axes, panel: Panel, design: Design, tall: int) -> None:
    """The rows of one panel in ``tall`` dots: x is time, y the device, downwards."""
    devices, cells = panel.devices, panel.cells
    axes.set_xlim(0, design.span)
    axes.set_ylim(devices, 0)
    axes.set_xticks([])
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, pad=2, labelsize=design.font)
    row = tall / devices / POINT
    named = range(0, devices, tick_step(row, 0.95 * design.font))
    middle = (1 + design.gap - design.lane) / 2
    axes.set_yticks([device + middle for device in named], [f"Device {device}" for device in named])
    if design.vector:
        track = np.arange(devices)
        fill_track(axes, panel.timeline.makespan, track + design.gap, track + 1 - design.lane)
        if panel.idle:
            _fill_idle(axes, panel.idle, design)
        fill_cells(axes, cells, cells.device + design.gap, cells.device + 1 - design.lane, design)
        inside = row * (1 - design.lane + design.gap)
        number_cells(axes, cells, cells.device + middle, *choose_labels(cells, design.scale, inside, design.font))
        if panel.lane and design.bands:
            _fill_lane(axes, panel.lane, design)
    else:
        shown = add_idle(cells, panel.idle) if panel.idle else cells
        image = raster(shown, devices, panel.timeline.makespan, design.span, min(devices, tall), design.across)
        axes.imshow(image, extent=(0, design.span, devices, 0), aspect="auto", interpolation="nearest", zorder=1)
        if design.gap:
            axes.hlines(range(1, devices), 0, design.span, color="white", linewidth=2 * design.gap * row, zorder=2)
    if design.arrows and panel.messages is not None:
        _draw_arrows(axes, panel.messages, design)


def fill_track(axes: Axes, end: float, top: NDArray[Any], bottom: NDArray[Any]) -> None:
    """The grey of the bubbles, which cells cover, from time 0 on: one row per entry of ``top`` and ``bottom``."""
    from matplotlib.patches import PathPatch

    grey = _rectangles(np.zeros(len(top)), np.full(len(top), end), top, bottom)
    axes.add_patch(PathPatch(grey, facecolor=BUBBLE, linewidth=0, snap=True, zorder=1))


def _fill_idle(axes: Axes, idle: Idle, design: Design) -> None:
    """The idle time of each cause as one path, above the grey and below the cells."""
    from matplotlib.patches import PathPatch

    for cause in np.unique(idle.cause):
        own = idle.cause == cause
        device = idle.device[own]
        path = _rectangles(idle.start[own], idle.end[own], device + design.gap, device + 1 - design.lane)
        axes.add_patch(PathPatch(path, facecolor=CAUSE_FILL[NAMES[cause]], linewidth=0, snap=True, zorder=1.5))


def fill_cells(axes: Axes, cells: Cells, top: NDArray[Any], bottom: NDArray[Any], design: Design) -> None:
    """Every cell of a colour as one path, all borders as one path above; ``top`` and ``bottom`` of shape (cells,)."""
    from matplotlib.patches import PathPatch

    for colour in np.unique(cells.colour):
        own = cells.colour == colour
        path = _rectangles(cells.left[own], cells.right[own], top[own], bottom[own])
        axes.add_patch(PathPatch(path, facecolor=PALETTE[colour], linewidth=0, snap=True, zorder=3))
        if HATCHES[colour]:
            lines = {"hatch": HATCHING, "hatch_linewidth": 0.5, "edgecolor": HATCHES[colour]}
            axes.add_patch(PathPatch(path, fill=False, linewidth=0, snap=True, zorder=3, **lines))
    if design.border:
        whole = cells.bordered & ((cells.end - cells.left) * design.scale >= LEAST_BORDERED)
        path = _rectangles(cells.left[whole], cells.end[whole], top[whole], bottom[whole])
        ink = "black" if design.style == "paper" else "white"
        border = PathPatch(path, fill=False, edgecolor=ink, linewidth=design.border, snap=True, zorder=4, clip_on=False)
        axes.add_patch(border)


def _fill_lane(axes: Axes, lane: Lane, design: Design) -> None:
    """A band for each direction of messages and for collectives; the edge keeps even the shortest visible."""
    from matplotlib.patches import PathPatch

    high = (design.lane - design.gap) / len(design.bands)
    for place, band in enumerate(design.bands):
        own = lane.band == band
        top = lane.device[own] + 1 - design.lane + place * high
        path = _rectangles(lane.left[own], lane.right[own], top, top + high)
        fill = COLLECTIVE_LANE if band == COLLECTIVE else COMM_LANE
        axes.add_patch(PathPatch(path, facecolor=fill, edgecolor=COMM_ARROW, linewidth=LANE_EDGE, snap=True, zorder=3))


def _rectangles(left: NDArray[Any], right: NDArray[Any], top: NDArray[Any], bottom: NDArray[Any]) -> Path:
    from matplotlib.path import Path

    corners = np.stack([left, top, right, top, right, bottom, left, bottom, left, top], axis=1).reshape(-1, 2)
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    return Path(corners, np.tile(np.array(codes, Path.code_type), len(left)))


def number_cells(axes: Axes, cells: Cells, y: NDArray[Any], size: float, shown: NDArray[np.bool_]) -> None:
    """The microbatch in the middle of every cell that shows it; ``y`` of shape (cells,)."""
    middle = (cells.left + cells.right) / 2
    for cell in np.flatnonzero(shown):
        axes.text(
            middle[cell],
            y[cell],
            str(cells.number[cell]),
            fontsize=size,
            color=text_colour(PALETTE[cells.colour[cell]]),
            ha="center",
            va="center_baseline",
            zorder=5,
        )


def _draw_arrows(axes: Axes, messages: Messages, design: Design) -> None:
    """An arrow per message; one that passes other devices' rows goes behind their cells."""
    from matplotlib.patches import FancyArrowPatch

    edge = 0.5 - design.gap
    step = np.sign(messages.receiver - messages.sender)
    tail, head = messages.sender + 0.5 + step * edge, messages.receiver + 0.5 - step * edge
    for sent, y, arrived, onto in zip(messages.sent, tail, messages.arrived, head, strict=True):
        axes.add_patch(
            FancyArrowPatch(
                (sent, y),
                (arrived, onto),
                arrowstyle="-|>,head_length=1.8,head_width=0.9",
                mutation_scale=1,
                linewidth=0.55,
                color=COMM_ARROW,
                shrinkA=0,
                shrinkB=0,
                zorder=2,
            )
        )


def draw_heading(axes: Axes, title: str, facts: str, end: float, design: Design, tall: int) -> None:
    """Title on the left, cut where it must be; facts that fit end where the panel ends, or right of the title."""
    above = 1 + 0.045 * DOTS / tall
    large, small, across = design.font + 0.5, design.font - 0.5, design.across / POINT
    wide = text_width(facts, small)
    needed = wide + 10 if wide <= across else 0.0
    name = _cut(title, across - needed, large)
    end = max(end / design.span, (text_width(name, large, "bold") + needed) / across)
    common: dict[str, Any] = {"transform": axes.transAxes, "va": "baseline", "parse_math": False}
    axes.text(0, above, name, fontsize=large, fontweight="bold", ha="left", **common)
    if needed:
        axes.text(min(end, 1.0), above, facts, fontsize=small, color="#444444", ha="right", **common)


def _cut(text: str, room: float, size: float) -> str:
    """Cut a text to what fits into so many points."""
    # Nothing longer is measured, as that takes long: no figure has room for as many of the narrowest letters.
    text = shorten(text, max(4, int(room / (NARROWEST_LETTER * size))))
    if text_width(text, size, "bold") <= room:
        return text
    fits = bisect_left(
        range(len(text)), x=True, key=lambda end: text_width(f"{text[: end + 1]}...", size, "bold") > room
    )
    return f"{text[:fits].rstrip()}..." if fits else ""


def draw_time_axis(axes: Axes, unit: str, design: Design) -> None:
    """Ticks at round times, and the unit."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=max(2, design.across // 150), steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.tick_params(axis="x", length=2, width=0.4, labelsize=design.font)
    label = f"time (units of ${unit}$)" if is_symbol(unit) else f"time ({shorten(unit, LONGEST_UNIT)})"
    axes.set_xlabel(label, fontsize=design.font, labelpad=1, parse_math=is_symbol(unit))


def is_symbol(unit: str) -> bool:
    """Whether a unit is a letter with an index, such as t_F, which figures write as a formula."""
    return re.fullmatch(r"t_[A-Za-z0-9]", unit) is not None


def draw_time_arrow(axes: Axes, design: Design) -> None:
    """The word and an arrow to the right."""
    font = design.font
    begin = text_width("Time", font) + 4
    where: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "center"}
    axes.annotate("Time", (0, 0), (0, -0.95 * font), fontsize=font, **where)
    style = {"arrowstyle": "-|>,head_length=2,head_width=1", "linewidth": 0.6, "color": "black", "mutation_scale": 1}
    axes.annotate("", (begin + 28, -0.95 * font), (begin, -0.95 * font), xycoords="axes points", arrowprops=style)


def text_width(text: str, size: float, weight: str = "normal") -> float:
    """Width in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    properties = FontProperties(size=size, weight=weight)
    return float(text_to_path.get_text_width_height_descent(text, properties, ismath=False)[0])
