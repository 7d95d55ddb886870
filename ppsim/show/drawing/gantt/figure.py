"""Gantt charts: one or several timelines on one time axis, as a matplotlib figure.

``paper`` looks like the figures of the pipeline papers, ``screen`` has a time axis. The height
follows from the rows, so that cells keep their shape, and all is placed on whole dots of 1/300
inch, so that a png is sharp and a figure is exactly as wide as the column of text it is for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ppsim.analysis.link_use import MOST_LINKS, link_use
from ppsim.base.units import size_of_unit
from ppsim.core.curve import Curve
from ppsim.core.timeline import Timeline
from ppsim.engine.memory.usage import SHARES, share_unit
from ppsim.errors import InputError
from ppsim.show.drawing.canvas import DOTS, POINT, load_matplotlib
from ppsim.show.drawing.gantt.design import HEAD, Design, design_for
from ppsim.show.drawing.gantt.layout import TALLEST
from ppsim.show.drawing.gantt.legend import (
    LEGEND_LINE,
    draw_legend_line,
    figure_legend,
    legend_lines,
)
from ppsim.show.drawing.gantt.marks import draw_marks, write_notes
from ppsim.show.drawing.gantt.notes import NOTE_LINE
from ppsim.show.drawing.gantt.panel import Panel
from ppsim.show.drawing.gantt.paper import fit_for_paper
from ppsim.show.drawing.gantt.strokes import draw_gantt
from ppsim.show.drawing.gantt.text import (
    draw_heading,
    draw_line_start,
    draw_time_arrow,
    draw_time_axis,
    title_fits,
)
from ppsim.show.drawing.letters import wrap_text
from ppsim.show.drawing.link_panel import GAP as LINK_GAP
from ppsim.show.drawing.link_panel import draw_links, link_panel_height
from ppsim.show.drawing.look import PLAIN, Look
from ppsim.show.drawing.memory_panel import GAP as MEMORY_GAP
from ppsim.show.drawing.memory_panel import draw_memory, highest_shown, memory_height

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ppsim.analysis.idle import Idle
    from ppsim.core.execution import Execution
    from ppsim.engine.simple.segments import OpsInside

STYLES = ("screen", "paper")
LEAST_LINKS = 4  # strips of links in each of many panels
NARROWEST, WIDEST = 1.5, 100.0  # inches
BELOW_AXIS, BELOW_ARROW = 3.1, 1.8  # between the last row and the legend, in heights of the font
ABOVE_HEAD, ABOVE_ROWS = 0.01, 0.05  # inches above the first panel
NEXT_LINE = 0.72  # of the height of a title's first line
LEGEND_MARGIN = 8  # points free beside the legend


def plot(
    timelines: Timeline | Sequence[Timeline],
    *,
    titles: Sequence[str] = (),
    style: str = "screen",
    width: float = 6.75,
    memory: Sequence[Curve] = (),
    cap: float | None = None,
    executions: Sequence[Execution] = (),
    idles: Sequence[Idle] = (),
    insides: Sequence[OpsInside] = (),
    look: Look | None = None,
) -> Figure:
    """Return one or several timelines as a matplotlib figure, stacked on one time axis.

    Args:
        timelines: to draw.
        titles: one per timeline; by default the schedules' names.
        style: ``screen`` or ``paper``.
        width: in inches; the height follows.
        memory: one curve per timeline (:func:`ppsim.engine.memory.usage.curves`) to show below it.
        cap: a line across the curves, in bytes where they are.
        executions: one per timeline, whose messages and collectives to show in a lane below each
            device.
        idles: one per timeline, to colour bubbles by their cause.
        insides: one per timeline, the segments of its ops, to show below cells that are wide
            enough.
        look: palette, labels, window and what else a figure can show
            (:class:`ppsim.show.drawing.look.Look`).

    Raises:
        InputError: timelines in different units, an unknown style, a width that no figure can have,
            or a look that the timelines cannot have.
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
    schedules = [timeline.schedule for timeline in timelines]
    held: Sequence[Curve | None] = (
        share_unit(memory, schedules) if memory else [None] * len(timelines)
    )
    run: Sequence[Execution | None] = executions or [None] * len(timelines)
    waits: Sequence[Idle | None] = idles or [None] * len(timelines)
    within: Sequence[OpsInside | None] = insides or [None] * len(timelines)
    look = look or PLAIN
    if len(timelines) > 1 and look.fold:
        raise InputError(
            "several schedules have no repeating middle in common to fold",
            "one schedule, or a window",
        )
    longest = max(timeline.makespan for timeline in timelines)
    if look.window and look.window[0] < longest < look.window[1]:
        look = replace(look, window=(look.window[0], longest))
    most = max(LEAST_LINKS, MOST_LINKS // len(timelines))
    uses = [link_use(each, most, most) if each and style == "screen" else None for each in run]
    if look.title and len(timelines) == 1:
        names = [look.title]
    panels = [
        Panel(timeline, name, curve, execution, idle, look, links, inside)
        for timeline, name, curve, execution, idle, links, inside in zip(
            timelines, names, held, run, waits, uses, within, strict=True
        )
    ]
    scale = size_of_unit(held[0].unit) if held[0] is not None else 1
    if style == "paper":
        panels = fit_for_paper(panels, round(width * DOTS))
    return _draw(panels, style, round(width * DOTS), None if cap is None else cap / scale)


def check_look(style: str, width: float) -> None:
    """Refuse a look that no figure has (InputError: an unknown style, or a width that no figure can
    have).
    """
    if style not in STYLES:
        raise InputError(f"unknown figure style '{style}'", f"one of {' '.join(STYLES)}")
    if not NARROWEST <= width <= WIDEST:
        raise InputError(
            f"a figure cannot be {width:g} inches wide",
            f"between {NARROWEST:g} and {WIDEST:g} inches",
        )


def _draw(panels: Sequence[Panel], style: str, width: int, cap: float | None) -> Figure:
    load_matplotlib()
    from matplotlib.figure import Figure

    most_held = max(
        (highest_shown(panel.memory) for panel in panels if panel.memory is not None), default=0.0
    )
    design = design_for(panels, style, width, cap=cap)
    em = design.font * POINT
    legend = legend_lines(figure_legend(panels, design), width / POINT - LEGEND_MARGIN, design.font)
    below = round((BELOW_AXIS if style == "screen" else BELOW_ARROW) * em)
    notes = round(NOTE_LINE * em * max((line for *_, line in design.notes), default=0))
    line, top = (
        round(LEGEND_LINE * em),
        notes + round((ABOVE_HEAD if design.head else ABOVE_ROWS) * DOTS),
    )
    look = design.look
    above = look.title and (
        len(panels) > 1 or not title_fits(look.title, _facts(panels, 0, style), design)
    )
    title_font = design.font + 1.5
    whole = (
        wrap_text(look.title, (width - design.left) / POINT - LEGEND_MARGIN, title_font)
        if above
        else []
    )
    top += bool(whole) * HEAD + round(NEXT_LINE * HEAD * max(0, len(whole) - 1))
    devices = sum(panel.devices for panel in panels)
    strips = [link_panel_height(panel.links, design.font) for panel in panels]
    tallest = round(TALLEST * DOTS) - min(sum(strips), round(TALLEST * DOTS) // 4)
    rows = [
        min(panel.devices * design.row, max(1, tallest * panel.devices // devices))
        for panel in panels
    ]
    foot = below + line * len(legend)
    below_rows = [
        memory_height(panel.memory, design.row, _largest_curve(panel, style, most_held))
        for panel in panels
    ]
    height = y = top + sum(rows) + sum(below_rows) + sum(strips) + design.head * len(panels) + foot
    y -= top
    figure = Figure(figsize=(width / DOTS, height / DOTS), dpi=DOTS)
    for number, (panel, tall, strip, under) in enumerate(
        zip(panels, rows, strips, below_rows, strict=True)
    ):
        y -= design.head + tall
        axes = add_axes(figure, design, y, tall)
        draw_gantt(axes, panel, design, tall)
        if panel.wrapped:
            draw_line_start(axes, panel.look.window, design, tall)
        elif design.head:
            name = "" if above and len(panels) == 1 else panel.title
            marks = design.marks + notes * (number == 0)
            draw_heading(axes, name, _facts(panels, number, style), panel.end, design, tall, marks)
        draw_marks(axes, panel, design, tall)
        if number == 0:
            write_notes(axes, panel, design, tall)
        common: dict[str, Any] = {"span": design.span, "font": design.font, "base": look.base}
        if panel.links:
            y -= strip
            axes = add_axes(figure, design, y, strip - LINK_GAP)
            use = replace(panel.links, curve=panel.view.cut_curve(panel.links.curve))
            draw_links(axes, use, **common)
        if panel.memory is not None:
            y -= under
            axes = add_axes(figure, design, y, under - MEMORY_GAP)
            curve = panel.memory if panel.view.is_whole else panel.view.cut_curve(panel.memory)
            draw_memory(axes, curve, cap=cap, top=most_held, ramp=look.colours.ramp, **common)
    if style == "screen":
        draw_time_axis(
            axes,
            panels[0].timeline.unit,
            design,
            panels[0].view if not panels[0].view.is_whole else None,
        )
    else:
        draw_time_arrow(axes, design)
    for number, entries in enumerate(legend):
        draw_legend_line(figure, entries, design, foot - below - line * (number + 0.5))
    for number, text in enumerate(whole):
        common = {"fontsize": title_font, "fontweight": "bold", "parse_math": False, "va": "center"}
        figure.text(
            design.left / width, 1 - (NEXT_LINE * number + 0.7) * HEAD / height, text, **common
        )
    return figure


def _largest_curve(panel: Panel, style: str, most_held: float) -> float:
    """Return the most that a paper's curves hold, in activations of a device's share of the model;
    0 for a screen's.
    """
    schedule = panel.timeline.schedule
    shared = panel.memory is None or panel.memory.unit == SHARES
    held = 1.0 if shared else schedule.n_devices / (schedule.n_stages * schedule.n_slices)
    return most_held * held * (style == "paper")


def _facts(panels: Sequence[Panel], number: int, style: str) -> tuple[str, ...]:
    """Return the numbers above a panel; a single one of a paper has them in its caption."""
    return panels[number].facts if style == "screen" or len(panels) > 1 else ()


def add_axes(figure: Figure, design: Design, below: int, tall: int) -> Axes:
    """Return axes as wide as the time axis and ``tall`` dots high, ``below`` dots above the
    figure's lower edge.
    """
    wide, high = figure.get_size_inches() * DOTS
    axes = figure.add_axes((design.left / wide, below / high, design.across / wide, tall / high))
    axes.set_facecolor("none")
    return axes
