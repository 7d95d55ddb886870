"""Gantt charts: one or several timelines on one time axis, as a matplotlib figure.

``paper`` looks like the figures of the pipeline papers, ``screen`` has a time axis. The height follows from the rows,
so that cells keep their shape, and all is placed on whole dots of 1/300 inch, so that a png is sharp and a figure
is exactly as wide as the column of text it is for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ppsim.core.curve import Curve
from ppsim.core.timeline import Timeline
from ppsim.drawing.gantt_layout import (
    BAND,
    DOTS,
    LEAST_BAND,
    MOST_VECTOR_CELLS,
    POINT,
    border_width,
    labelled,
    row_height,
)
from ppsim.drawing.gantt_legend import draw_legend_line, figure_legend, legend_lines
from ppsim.drawing.gantt_strokes import (
    Design,
    Panel,
    draw_gantt,
    draw_heading,
    draw_time_arrow,
    draw_time_axis,
    text_width,
)
from ppsim.drawing.memory_panel import GAP as MEMORY_GAP
from ppsim.drawing.memory_panel import draw_memory, memory_height
from ppsim.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ppsim.core.execution import Execution

STYLES = ("screen", "paper")
NARROWEST, WIDEST = 1.5, 100.0


def plot(
    timelines: Timeline | Sequence[Timeline],
    *,
    titles: Sequence[str] = (),
    style: str = "screen",
    width: float = 6.75,
    memory: Sequence[Curve] = (),
    cap: int | None = None,
    executions: Sequence[Execution] = (),
) -> Figure:
    """One or several timelines as a matplotlib figure, stacked on one time axis.

    Args:
        timelines: what to draw.
        titles: one per timeline; by default the schedules' names.
        style: ``screen`` or ``paper``.
        width: in inches; the height follows.
        memory: one curve per timeline (:func:`ppsim.memory.usage.curves`) to show below it.
        cap: a line across the curves.
        executions: one per timeline, whose messages and collectives to show in a lane below each device.

    Raises:
        InputError: timelines in different units, an unknown style, or a width that no figure can have.
    """
    timelines = (timelines,) if isinstance(timelines, Timeline) else tuple(timelines)
    units = sorted({timeline.unit for timeline in timelines})
    if len(units) != 1:
        raise InputError(
            f"one time axis cannot show {' and '.join(units) or 'no timeline'}",
            "draw timelines whose costs have the same unit",
        )
    check_look(style, width)
    names = titles or [timeline.schedule.name for timeline in timelines]
    held: Sequence[Curve | None] = memory or [None] * len(timelines)
    run: Sequence[Execution | None] = executions or [None] * len(timelines)
    panels = [Panel(*each) for each in zip(timelines, names, held, run, strict=True)]
    return _draw(panels, style, round(width * DOTS), cap)


def check_look(style: str, width: float) -> None:
    """Refuse a look that no figure has.

    Raises:
        InputError: an unknown style, or a width that no figure can have.
    """
    if style not in STYLES:
        raise InputError(f"unknown figure style '{style}'", f"one of {' '.join(STYLES)}")
    if not NARROWEST <= width <= WIDEST:
        raise InputError(f"a figure cannot be {width:g} inches wide", f"between {NARROWEST:g} and {WIDEST:g} inches")


def _draw(panels: Sequence[Panel], style: str, width: int, cap: int | None) -> Figure:
    from matplotlib.figure import Figure

    design = design_for(panels, style, width)
    em = design.font * POINT
    legend = legend_lines(figure_legend(panels, design), width / POINT - 8, design.font)
    below = round((3.1 if style == "screen" else 1.8) * em)
    line, top = round(1.7 * em), round((0.01 if design.head else 0.05) * DOTS)
    devices = sum(panel.devices for panel in panels)
    rows = [min(panel.devices * design.row, max(1, 8 * DOTS * panel.devices // devices)) for panel in panels]
    foot = below + line * len(legend)
    below_rows = [memory_height(panel.memory, design.row) for panel in panels]
    height = y = top + sum(rows) + sum(below_rows) + design.head * len(panels) + foot
    y -= top
    figure = Figure(figsize=(width / DOTS, height / DOTS), dpi=DOTS)
    for panel, tall, under in zip(panels, rows, below_rows, strict=True):
        y -= design.head + tall
        axes = add_axes(figure, design, y, tall)
        draw_gantt(axes, panel, design, tall)
        if design.head:
            draw_heading(axes, panel.title, panel.facts, panel.timeline.makespan, design, tall)
        if panel.memory is not None:
            y -= under
            axes = add_axes(figure, design, y, under - MEMORY_GAP)
            draw_memory(axes, panel.memory, span=design.span, font=design.font, cap=cap)
    if style == "screen":
        draw_time_axis(axes, panels[0].timeline.unit, design)
    else:
        draw_time_arrow(axes, design)
    for number, entries in enumerate(legend):
        draw_legend_line(figure, entries, design, foot - below - line * (number + 0.5))
    return figure


def add_axes(figure: Figure, design: Design, below: int, tall: int) -> Axes:
    """Axes as wide as the time axis, of so many dots, so many dots above the figure's lower edge."""
    wide, high = figure.get_size_inches() * DOTS
    axes = figure.add_axes((design.left / wide, below / high, design.across / wide, tall / high))
    axes.set_facecolor("none")
    return axes


def design_for(panels: Sequence[Panel], style: str, width: int, beside: float = 0.0) -> Design:
    """Measures for panels in a figure of so many dots, with so many points free between names and rows."""
    font = 6.5 if width >= 5 * DOTS else 5.5
    devices, rows = max(panel.devices for panel in panels), sum(panel.devices for panel in panels)
    left = round((text_width(f"Device {devices - 1}", font) + 5 + beside) * POINT)
    span = max(panel.timeline.makespan for panel in panels) or 1.0
    last_tick = text_width(f"{span:,.0f}" if span >= 10 else "0.00", font) / 2 if style == "screen" else 0.0
    across = width - left - round(max(0.06 * DOTS, (last_tick + 1) * POINT))
    scale = across / POINT / span
    count = sum(len(panel.cells) for panel in panels)
    # Cells of less than three dots blend on the page; only a raster blends them in the right proportion.
    vector = count <= min(MOST_VECTOR_CELLS, rows * across / 3)
    bands = _bands(panels) if vector else ()
    arrows = vector and not bands and _arrows(panels)
    labels = vector and any(labelled(panel.cells, scale, font / 0.62, font)[1].any() for panel in panels)
    rows = math.ceil(rows * (1 + BAND * len(bands)))
    row = row_height(devices, rows, labels=labels, arrows=arrows, narrow=font < 6)
    band = round(BAND * row)
    bands = bands if band >= LEAST_BAND else ()
    widths = np.concatenate([panel.cells.width for panel in panels])
    # A few narrow cells leave the others their borders.
    typical = float(np.quantile(widths, 0.25)) * scale if vector and len(widths) else 0.0
    gap = 0.17 if arrows else 0.06 if (style == "screen" or bands) and row >= 15 else 0.0
    return Design(
        style=style,
        font=font,
        left=left,
        across=across,
        span=span,
        row=row + band * len(bands),
        gap=gap,
        head=round(0.19 * DOTS) if len(panels) > 1 or style == "screen" else 0,
        border=border_width(min(typical, row / POINT)),
        vector=vector,
        arrows=arrows,
        bands=bands,
        lane=gap + band * len(bands) / (row + band * len(bands)),
    )


def _bands(panels: Sequence[Panel]) -> tuple[int, ...]:
    """What occurs beside the ops."""
    return tuple(sorted({int(band) for panel in panels if panel.lane for band in np.unique(panel.lane.band)}))


def _arrows(panels: Sequence[Panel]) -> bool:
    """Whether every panel that has messages can show them."""
    talking = [panel for panel in panels if panel.timeline.schedule.crosses.any()]
    return bool(talking) and all(panel.messages is not None for panel in talking)
