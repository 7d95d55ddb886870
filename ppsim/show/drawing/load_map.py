"""A figure of the times of microbatches: a row for each replica, a column for each number."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ppsim.base.numbers import format_number
from ppsim.show.drawing.canvas import SHADED
from ppsim.show.drawing.letters import is_symbol
from ppsim.show.drawing.palette import HEAT, HEAT_DARK, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FONT = 6.5  # points
ROW, LEAST, MOST = 0.16, 0.7, 6.0  # height in inches of a row; of all rows, at least and at most
HEAD, FOOT, LEFT, RIGHT, BARS = 0.24, 0.36, 0.6, 0.55, 0.9  # inches
NAMED = 0.14  # height of a row's name in inches
ACROSS = 12  # microbatches with names


@dataclass(frozen=True)
class LoadMap:
    """The data of the figure."""

    title: str
    factors: NDArray[np.float64]  # shape (replicas, microbatches)
    ends: NDArray[np.float64]  # shape (replicas,), the end of each replica's pipeline
    unit: str  # of the ends


def figure_of(maps: tuple[LoadMap, ...], width: float) -> Figure:
    """Return the maps below each other, ``width`` inches wide, with the same scales."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    inner = [min(max(ROW * len(each.factors), LEAST), MOST) for each in maps]
    height = sum(inner) + len(maps) * (HEAD + FOOT)
    figure = Figure(figsize=(width, height))
    figure.set_gid(SHADED)
    colours = LinearSegmentedColormap.from_list("heat", HEAT)
    most = max(float(each.factors.max()) for each in maps) or 1.0
    longest = max(float(each.ends.max()) for each in maps) or 1.0
    top, drawn = height, None
    for each, tall in zip(maps, inner, strict=True):
        low = top - HEAD - tall
        wide = width - LEFT - RIGHT - BARS - 0.1
        axes = figure.add_axes((LEFT / width, low / height, wide / width, tall / height))
        drawn = axes.imshow(
            each.factors, cmap=colours, vmin=0.0, vmax=most, aspect="auto", interpolation="nearest"
        )
        _name(axes, each, tall)
        bars = figure.add_axes(
            ((LEFT + wide + 0.1) / width, low / height, BARS / width, tall / height)
        )
        _draw_ends(bars, each, longest)
        step = f"{each.title}: a step of {format_number(float(each.ends.max()))} {_unit_text(each)}"
        figure.text(LEFT / width, (top - 0.15) / height, step, fontsize=FONT, color=MUTED)
        key = figure.add_axes(
            ((width - RIGHT + 0.1) / width, low / height, 0.08 / width, tall / height)
        )
        bar = figure.colorbar(drawn, cax=key)
        bar.ax.tick_params(labelsize=FONT, length=2, width=0.5, color=MUTED)
        bar.outline.set_visible(False)
        top = low - FOOT
    return figure


def _unit_text(each: LoadMap) -> str:
    return f"${each.unit}$" if is_symbol(each.unit) else each.unit.replace("$", r"\$")


def _name(axes: Axes, each: LoadMap, tall: float) -> None:
    """Name some of the replicas and microbatches."""
    rows, across = each.factors.shape
    down, along = ceil(rows * NAMED / tall), ceil(across / ACROSS)
    names = [f"replica {row}" for row in range(0, rows, down)]
    axes.set_yticks(np.arange(0, rows, down), names, fontsize=FONT)
    axes.set_xticks(
        np.arange(0, across, along), [str(n) for n in range(0, across, along)], fontsize=FONT
    )
    axes.set_xlabel("microbatch", fontsize=FONT, labelpad=1)
    axes.tick_params(length=2, width=0.5, color=MUTED)
    axes.spines[:].set_visible(False)


def _draw_ends(axes: Axes, each: LoadMap, longest: float) -> None:
    """Draw the end of each replica's pipeline, and a line at the last end."""
    rows = np.arange(len(each.ends))
    style: dict[str, Any] = {"height": 0.8, "linewidth": 0}
    axes.barh(rows, each.ends, color=HEAT_DARK[1], **style)
    axes.axvline(float(each.ends.max()), color=MUTED, linewidth=0.6)
    axes.set(xlim=(0, longest * 1.02), ylim=(len(rows) - 0.5, -0.5), yticks=[])
    axes.set_xticks([0, longest], ["0", format_number(longest)], fontsize=FONT)
    axes.set_xlabel(f"end, {_unit_text(each)}", fontsize=FONT, labelpad=1)
    axes.tick_params(length=2, width=0.5, color=MUTED)
    axes.spines[["top", "right", "left"]].set_visible(False)
