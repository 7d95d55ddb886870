"""The texts of a Gantt figure: headings and the time axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ppsim.base.text import shorten
from ppsim.show.drawing.canvas import DOTS, POINT
from ppsim.show.drawing.letters import (
    LONGEST_TITLE,
    LONGEST_UNIT,
    cut_to_width,
    is_symbol,
    text_width,
)
from ppsim.show.drawing.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ppsim.show.drawing.gantt.design import Design

BETWEEN_FACTS = "\u00a0\u00a0 "  # browsers would draw plain spaces as one
# first and last of the facts that remain: facts are left out from the start, then from the end
FEWER_FACTS = ((0, None), (2, None), (2, 4), (2, 3))
SMALLEST_FONT = 5.0  # points to which a title shrinks before it is cut


def draw_heading(
    axes: Axes,
    title: str,
    numbers: Sequence[str],
    end: float,
    design: Design,
    tall: int,
    marks: int = 0,
) -> None:
    """Write a panel's title on the left, and on the right the facts that fit.

    Facts are left out until the title fits; then the title is made smaller, and then cut. ``marks``
    dots between title and rows are for marks above the rows.
    """
    above = 1 + (0.045 * DOTS + marks) / tall
    large, small, across = design.font + 0.5, design.font - 0.5, design.across / POINT
    rows = [
        BETWEEN_FACTS.join(numbers[first:last])
        for first, last in FEWER_FACTS
        if first < max(1, len(numbers))
    ]
    named = (
        text_width(shorten(title, LONGEST_TITLE), large, "bold")
        if len(title) < LONGEST_TITLE
        else np.inf
    )
    sizes = (1.0, SMALLEST_FONT / large)
    fitting = (
        row
        for size in sizes
        for row in rows
        if size * named + text_width(row, small) + 10 <= across
    )
    facts = next(fitting, rows[min(1, len(rows) - 1)])
    wide = text_width(facts, small)
    if named + wide + 10 > across >= named * SMALLEST_FONT / large + wide + 10:
        large *= (across - wide - 10) / named
    needed = wide + 10 if wide <= across else 0.0
    name = cut_to_width(title, across - needed, large)
    end = max(end / design.span, (text_width(name, large, "bold") + needed) / across)
    common: dict[str, Any] = {"transform": axes.transAxes, "va": "baseline", "parse_math": False}
    axes.text(0, above, name, fontsize=large, fontweight="bold", ha="left", **common)
    if needed:
        axes.text(
            min(end, 1.0), above, facts, fontsize=small, color="#444444", ha="right", **common
        )


def title_fits(title: str, numbers: Sequence[str], design: Design) -> bool:
    """Return True if a title in the smallest font fits next to the fewest facts."""
    fewest = BETWEEN_FACTS.join(numbers[slice(*FEWER_FACTS[-1])])
    needed = text_width(fewest, design.font - 0.5) + 10
    room = design.across / POINT - needed
    return len(title) < LONGEST_TITLE and text_width(title, SMALLEST_FONT, "bold") <= room


def draw_time_axis(axes: Axes, unit: str, design: Design, view: View | None = None) -> None:
    """Draw ticks at round times, and the unit; a ``view`` gives the ticks' places."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    locator = MaxNLocator(nbins=max(2, design.across // 150), steps=[1, 2, 5, 10])
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    if view and not view.is_whole:
        step = np.diff(locator.tick_values(0, view.length)[:2])[0]
        shown = zip(view.start, view.end, strict=True)
        times = np.concatenate(
            [step * np.arange(np.ceil(a / step - 1e-9), b / step + 1e-9) for a, b in shown]
        )
        axes.set_xticks(view.place(times), [f"{time + 0.0:,.10g}" for time in times])
    axes.tick_params(axis="x", length=2, width=0.4, labelsize=design.font)
    label = (
        f"time (units of ${unit}$)" if is_symbol(unit) else f"time ({shorten(unit, LONGEST_UNIT)})"
    )
    axes.set_xlabel(label, fontsize=design.font, labelpad=1, parse_math=is_symbol(unit))


def draw_line_start(
    axes: Axes, window: tuple[float, float] | None, design: Design, tall: int
) -> None:
    """Write the start time of a line of a timeline above it, unless it is 0."""
    if window and window[0]:
        above, small = 1 + 0.025 * DOTS / tall, design.font - 1
        text = f"t = {window[0]:,.10g}"
        axes.text(0, above, text, fontsize=small, color="#444444", transform=axes.transAxes)


def draw_time_arrow(axes: Axes, design: Design) -> None:
    """Draw the word Time and an arrow to the right."""
    font = design.font
    begin = text_width("Time", font) + 4
    where: dict[str, Any] = {
        "xycoords": "axes fraction",
        "textcoords": "offset points",
        "va": "center",
    }
    axes.annotate("Time", (0, 0), (0, -0.95 * font), fontsize=font, **where)
    style = {
        "arrowstyle": "-|>,head_length=2,head_width=1",
        "linewidth": 0.6,
        "color": "black",
        "mutation_scale": 1,
    }
    axes.annotate(
        "",
        (begin + 28, -0.95 * font),
        (begin, -0.95 * font),
        xycoords="axes points",
        arrowprops=style,
    )
