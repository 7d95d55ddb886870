"""Gantt charts: one or several timelines on one time axis, as a matplotlib figure.

Style ``paper`` looks like the figures of the pipeline papers; ``screen`` has a time axis. The
height follows from the number of rows, so that cells keep their shape. Everything is placed on
whole dots of 1/300 inch, so that a png is sharp and a figure has exactly the width asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

from ppsim.analysis.idle import Idle
from ppsim.analysis.link_use import MOST_LINKS, link_use
from ppsim.base.text import quote
from ppsim.base.units import size_of_unit
from ppsim.core.curve import Curve
from ppsim.core.execution import Execution
from ppsim.core.soundness import require_each, require_type
from ppsim.core.timeline import Timeline
from ppsim.engine.memory.usage import SHARES, share_unit
from ppsim.engine.simple.segments import OpsInside
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

STYLES = ("screen", "paper")
LEAST_LINKS = 4  # strips of links in each panel if there are many panels
NARROWEST, WIDEST = 1.5, 100.0  # inches
BELOW_AXIS, BELOW_ARROW = 3.1, 1.8  # distance of last row and legend over the font's size
ABOVE_HEAD, ABOVE_ROWS = 0.01, 0.05  # inches above the first panel, with and without a title
NEXT_LINE = 0.72  # height of a further line of the title over that of the first
LEGEND_MARGIN = 8  # points free on either side of the legend, together
TITLE_LARGER = 1.5  # points by which the title's font is larger than other texts'


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
        memory: one curve per timeline (:func:`ppsim.engine.memory.usage.curves`), drawn below it.
        cap: a memory cap to mark, in the unit of the curves.
        executions: one per timeline, whose messages and collectives are drawn in a lane below each
            device.
        idles: one per timeline, to colour bubbles by their cause.
        insides: one per timeline, the segments of its ops, drawn below cells that are wide enough.
        look: palette, labels, window and other looks (:class:`ppsim.show.drawing.look.Look`).

    Raises:
        InputError: timelines in different units, an unknown style, a width out of range, or a look
            that does not apply to the timelines.
    """
    timelines = _timelines_of(timelines)
    units = sorted({timeline.unit for timeline in timelines})
    if len(units) != 1:
        raise InputError(
            f"one time axis cannot show {' and '.join(units) or 'no timeline'}",
            "draw timelines whose costs have the same unit",
        )
    check_look(style, width)
    for name, given, kind in (
        ("titles", titles, str),
        ("memory", memory, Curve),
        ("executions", executions, Execution),
        ("idles", idles, Idle),
        ("insides", insides, OpsInside),
    ):
        unknown = name in ("executions", "idles", "insides")
        require_each(name, given, kind, len(timelines), unknown=unknown)
    if look is not None:
        require_type("look", look, Look, 'Look(palette="mono")')
    if cap is not None:
        require_type("cap", cap, Real, "6.0")
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


def _timelines_of(given: Timeline | Sequence[Timeline]) -> tuple[Timeline, ...]:
    """Return one or several timelines as a tuple (InputError: something else)."""
    timelines = tuple(given) if isinstance(given, list | tuple) else (given,)
    for each in timelines:
        require_type("timelines", each, Timeline, "simulate(schedule, costs)")
    return timelines


def check_look(style: str, width: float) -> None:
    """Raise InputError for an unknown style or a width out of range."""
    if not isinstance(style, str) or style not in STYLES:
        raise InputError(f"unknown figure style {quote(style)}", f"one of {' '.join(STYLES)}")
    require_type("width", width, Real, "6.75")
    width = float(width)
    if not NARROWEST <= width <= WIDEST:
        raise InputError(
            f"a figure cannot be {width:g} inches wide",
            f"between {NARROWEST:g} and {WIDEST:g} inches",
        )


@dataclass(frozen=True)
class _Heights:
    """Heights in dots of a panel's rows, strips of links and memory; 0 for a missing part."""

    rows: int
    links: int
    memory: int


def _draw(panels: Sequence[Panel], style: str, width: int, cap: float | None) -> Figure:
    """Return the panels as a figure ``width`` dots wide; ``cap`` is in the curves' unit."""
    load_matplotlib()
    from matplotlib.figure import Figure

    curves = [panel.memory for panel in panels if panel.memory is not None]
    largest = max(map(highest_shown, curves), default=0.0)
    design = design_for(panels, style, width, cap=cap)
    em = design.font * POINT
    legend = legend_lines(figure_legend(panels, design), width / POINT - LEGEND_MARGIN, design.font)
    line = round(LEGEND_LINE * em)
    below = round((BELOW_AXIS if style == "screen" else BELOW_ARROW) * em)
    foot = below + line * len(legend)
    notes = round(NOTE_LINE * em * max((line for *_, line in design.notes), default=0))
    title = _title_lines(panels, style, width, design)
    top = notes + round((ABOVE_HEAD if design.head else ABOVE_ROWS) * DOTS)
    top += bool(title) * HEAD + round(NEXT_LINE * HEAD * max(0, len(title) - 1))
    heights = _panel_heights(panels, style, design, largest)
    height = top + sum(design.head + each.rows + each.links + each.memory for each in heights)
    height += foot
    figure = Figure(figsize=(width / DOTS, height / DOTS), dpi=DOTS)
    y = height - top
    for number, (panel, tall) in enumerate(zip(panels, heights, strict=True)):
        y -= design.head + tall.rows
        axes = add_axes(figure, design, y, tall.rows)
        draw_gantt(axes, panel, design, tall.rows)
        if panel.wrapped:
            draw_line_start(axes, panel.look.window, design, tall.rows)
        elif design.head:
            name = "" if title and len(panels) == 1 else panel.title
            marks = design.marks + notes * (number == 0)
            facts = _facts(panels, number, style)
            draw_heading(axes, name, facts, panel.end, design, tall.rows, marks)
        draw_marks(axes, panel, design, tall.rows)
        if number == 0:
            write_notes(axes, panel, design, tall.rows)
        axes = _draw_below(figure, panel, design, tall, y, cap, largest) or axes
        y -= tall.links + tall.memory
    if style == "screen":
        view = panels[0].view
        draw_time_axis(axes, panels[0].timeline.unit, design, None if view.is_whole else view)
    else:
        draw_time_arrow(axes, design)
    for number, entries in enumerate(legend):
        draw_legend_line(figure, entries, design, foot - below - line * (number + 0.5))
    for number, text in enumerate(title):
        place = design.left / width, 1 - (NEXT_LINE * number + 0.7) * HEAD / height
        look: dict[str, Any] = {"fontsize": design.font + TITLE_LARGER, "fontweight": "bold"}
        figure.text(*place, text, parse_math=False, va="center", **look)
    return figure


def _title_lines(panels: Sequence[Panel], style: str, width: int, design: Design) -> list[str]:
    """Return the lines of the figure's title; empty if it is above a single panel's rows."""
    title = design.look.title
    if not title or (len(panels) == 1 and title_fits(title, _facts(panels, 0, style), design)):
        return []
    room = (width - design.left) / POINT - LEGEND_MARGIN
    return wrap_text(title, room, design.font + TITLE_LARGER)


def _panel_heights(
    panels: Sequence[Panel], style: str, design: Design, largest: float
) -> list[_Heights]:
    """Return the heights of each panel's parts; ``largest`` is the largest value of memory."""
    devices = sum(panel.devices for panel in panels)
    strips = [link_panel_height(panel.links, design.font) for panel in panels]
    limit = round(TALLEST * DOTS)
    tallest = limit - min(sum(strips), limit // 4)
    found = []
    for panel, links in zip(panels, strips, strict=True):
        rows = min(panel.devices * design.row, max(1, tallest * panel.devices // devices))
        memory = memory_height(panel.memory, design.row, _largest_curve(panel, style, largest))
        found.append(_Heights(rows, links, memory))
    return found


def _draw_below(
    figure: Figure,
    panel: Panel,
    design: Design,
    heights: _Heights,
    y: int,
    cap: float | None,
    largest: float,
) -> Axes | None:
    """Draw links and memory below a panel's rows, which end ``y`` dots above the figure's bottom.

    Return the lowest axes, None if the panel has neither.
    """
    common: dict[str, Any] = {"span": design.span, "font": design.font, "base": design.look.base}
    axes = None
    y -= heights.links
    if panel.links:
        axes = add_axes(figure, design, y, heights.links - LINK_GAP)
        use = replace(panel.links, curve=panel.view.cut_curve(panel.links.curve))
        draw_links(axes, use, **common)
    y -= heights.memory
    if panel.memory is not None:
        axes = add_axes(figure, design, y, heights.memory - MEMORY_GAP)
        curve = panel.memory if panel.view.is_whole else panel.view.cut_curve(panel.memory)
        draw_memory(axes, curve, cap=cap, top=largest, ramp=design.look.colours.ramp, **common)
    return axes


def _largest_curve(panel: Panel, style: str, largest: float) -> float:
    """Return the peak of a paper's curves in activations of a device's share; 0 for a screen."""
    if style != "paper":
        return 0.0
    schedule = panel.timeline.schedule
    if panel.memory is None or panel.memory.unit == SHARES:
        return largest
    return largest * (schedule.n_devices / (schedule.n_stages * schedule.n_slices))


def _facts(panels: Sequence[Panel], number: int, style: str) -> tuple[str, ...]:
    """Return the numbers above a panel; a paper's single panel has them in the caption."""
    return panels[number].facts if style == "screen" or len(panels) > 1 else ()


def add_axes(figure: Figure, design: Design, below: int, tall: int) -> Axes:
    """Return axes as wide as the time axis and ``tall`` dots high, ``below`` dots above bottom."""
    wide, high = figure.get_size_inches() * DOTS
    axes = figure.add_axes((design.left / wide, below / high, design.across / wide, tall / high))
    axes.set_facecolor("none")
    return axes
