"""A figure of all workers' slowdowns: a row for each device of each replica, a column per step."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ppsim.show.drawing.canvas import SHADED
from ppsim.show.drawing.letters import text_width, wrap_text
from ppsim.show.drawing.palette import HEAT, MUTED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FONT = 6.5  # points
ROW, LEAST, MOST = 0.14, 0.9, 7.0  # height in inches of a row; of all rows, at least and at most
HEAD, FOOT, LEFT, RIGHT = 0.22, 0.36, 0.95, 0.62  # inches
LINE = 0.12  # height of a further line of the title in inches
TITLE = "slowdown of each worker: the step with only its replica, or its device, as measured"
NAMED = 0.14  # height of a row's name in inches
ACROSS = 12  # most steps with names
POINTS = 72


@dataclass(frozen=True)
class WorkerMap:
    """The data of the figure."""

    slowdown: NDArray[np.float64]  # shape (workers, steps)
    workers: tuple[str, ...]  # names of the rows
    steps: tuple[int, ...]  # numbers of the columns


def figure_of(found: WorkerMap, width: float) -> Figure:
    """Return the map as a figure ``width`` inches wide."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    rows, across = found.slowdown.shape
    inner = min(max(ROW * rows, LEAST), MOST)
    lines = wrap_text(TITLE, (width - LEFT) * POINTS, FONT, "normal")
    height = HEAD + LINE * (len(lines) - 1) + inner + FOOT
    figure = Figure(figsize=(width, height))
    figure.set_gid(SHADED)
    axes = figure.add_axes(
        (LEFT / width, FOOT / height, 1 - (LEFT + RIGHT) / width, inner / height)
    )
    least, most = 1.0, max(float(found.slowdown.max()), 1.01)
    colours = LinearSegmentedColormap.from_list("heat", HEAT)
    drawn = axes.imshow(
        found.slowdown, cmap=colours, vmin=least, vmax=most, aspect="auto", interpolation="nearest"
    )
    named = [str(step) for step in found.steps]
    widest = 1.5 * max(text_width(name, FONT) for name in named)
    most_named = min(ACROSS, max(1, int((width - LEFT - RIGHT) * POINTS / widest)))
    down, along = ceil(rows * NAMED / inner), ceil(across / most_named)
    axes.set_yticks(np.arange(0, rows, down), found.workers[::down], fontsize=FONT)
    axes.set_xticks(np.arange(0, across, along), named[::along], fontsize=FONT)
    axes.set_xlabel("step", fontsize=FONT, labelpad=1)
    axes.tick_params(length=2, width=0.5, color=MUTED)
    axes.spines[:].set_visible(False)
    key = figure.add_axes((1 - (RIGHT - 0.12) / width, FOOT / height, 0.1 / width, inner / height))
    bar = figure.colorbar(drawn, cax=key)
    bar.ax.tick_params(labelsize=FONT, length=2, width=0.5, color=MUTED)
    bar.outline.set_visible(False)
    for number, line in enumerate(lines):
        place = 1 - (0.13 + LINE * number) / height
        figure.text(LEFT / width, place, line, fontsize=FONT, color=MUTED)
    return figure
