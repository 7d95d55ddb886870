"""A figure of a sweep's metric: a row for each schedule and number of devices, a column per M."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from ppsim.analysis.heat import HeatMap, shades_of
from ppsim.base.text import shorten
from ppsim.show.drawing.canvas import SHADED
from ppsim.show.drawing.letters import text_width
from ppsim.show.drawing.palette import HEAT, MUTED, blend, text_colour

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FONT, ROW = 6.5, 0.19  # points, inches
HEAD, FOOT, EDGE = 0.34, 0.2, 0.08  # inches
LONGEST_NAME = 40
LEAST = 3.0  # smallest legible font size in points; smaller cells have a dot if they are best
POINTS = 72


def figure_of(heat: HeatMap, key: str, width: float) -> Figure:
    """Return a figure of the metric ``key`` of a sweep, ``width`` inches wide."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    number = next(n for n, column in enumerate(heat.columns) if column.key == key)
    column, values, best = heat.columns[number], heat.values[number], heat.best[number]
    names = [f"{shorten(name, LONGEST_NAME)}, P = {devices}" for name, devices in heat.rows]
    left = max(text_width(name, FONT) for name in names) / POINTS + 2 * EDGE
    count, across = values.shape
    height = HEAD + ROW * count + FOOT
    figure = Figure(figsize=(width, height))
    figure.set_gid(SHADED)
    axes = figure.add_axes(
        (left / width, FOOT / height, 1 - (left + EDGE) / width, ROW * count / height)
    )
    axes.set(xlim=(0, across), ylim=(count, 0))
    cell = (width - left - EDGE) * POINTS / across
    size = min(FONT, 0.9 * FONT * cell / _cell_width(heat, number))
    for row, line in enumerate(shades_of(values)):
        for place, shade in enumerate(line):
            refused = np.isnan(shade)
            fill = "#FFFFFF" if refused else blend(HEAT[1], HEAT[0], float(shade))
            box = Rectangle((place, row), 1, 1, facecolor=fill, edgecolor="white", linewidth=0.5)
            if refused:
                box.set(hatch="////", edgecolor=MUTED, linewidth=0)
            axes.add_patch(box)
            text = "" if refused else column.text(float(values[row, place]))
            if size < LEAST:
                text = "•" if best[row, place] else ""
            if text:
                weight = "bold" if best[row, place] else "normal"
                look = {
                    "ha": "center",
                    "va": "center",
                    "fontsize": max(size, LEAST),
                    "color": text_colour(fill),
                }
                axes.text(place + 0.5, row + 0.5, text, weight=weight, parse_math=False, **look)
    axes.set_yticks(np.arange(count) + 0.5, names, fontsize=FONT, parse_math=False)
    axes.set_xticks(np.arange(across) + 0.5, _headings(heat.microbatches, cell), fontsize=FONT)
    axes.tick_params(length=0)
    axes.xaxis.tick_top()
    axes.spines[:].set_visible(False)
    unit = f" ({heat.unit})" if column.form == "time" else ""
    title = (
        f"{column.heading}{unit}; {'dot' if size < LEAST else 'bold'}: the least of that M on "
        f"as many devices"
    )
    if size < LEAST:
        least, most = (column.text(float(end(values))) for end in (np.nanmin, np.nanmax))
        title += f"; white {least} to blue {most}"
    title += "; hatched: does not apply" * bool(np.isnan(values).any())
    figure.text(
        EDGE / width, EDGE / 2 / height, title, fontsize=FONT - 1, color=MUTED, parse_math=False
    )
    return figure


def _headings(microbatches: Sequence[int], cell: float) -> list[str]:
    """Return headings of columns ``cell`` points wide: all, or every n-th if they are too wide."""
    whole = [f"M = {m}" for m in microbatches]
    if max(text_width(name, FONT) for name in whole) < cell:
        return whole
    numbers = [f"{m:,}" for m in microbatches]
    step = ceil(1.4 * max(text_width(name, FONT) for name in (*numbers, whole[0])) / cell)
    return [
        (whole[0] if place == 0 else name) if place % step == 0 else ""
        for place, name in enumerate(numbers)
    ]


def _cell_width(heat: HeatMap, number: int) -> float:
    """Return the width in points of the widest cell's text."""
    column = heat.columns[number]
    texts = {
        column.text(float(value)) for value in heat.values[number].ravel() if not np.isnan(value)
    }
    return max(text_width(text, FONT, "bold") for text in texts)
