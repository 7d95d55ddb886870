"""Where ranks lie, as a picture: a row for each data-parallel replica, a column for each pipeline device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ppsim.drawing.canvas import write_figure
from ppsim.drawing.palette import MUTED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 6  # rows, columns and cells of a box that are drawn before the middle is left out
COLOURS = {"tp": "#234A97", "cp": "#36BBDB", "ep": "#2A9159", "pp": "#B4540A", "dp": "#D1242F", "expert-dp": "#7A4FA3"}
ROW_IN, KEY_IN, FONT = 0.55, 0.17, 6.0


def draw_ranks(
    grid: NDArray[np.int64],
    groups: Mapping[str, tuple[Sequence[int], str]],
    per_node: int,
    out: IO[bytes],
    suffix: str,
    *,
    width: float,
    inputs: Mapping[str, Any],
) -> None:
    """Draw the ranks of a plan: boxes of replicas and pipeline devices, cells of ranks with their node.

    Args:
        grid: shape (dp, pp, cp x tp), the ranks.
        groups: the first group of each kind, whose cells get its colour: its ranks, and what joins them.
        per_node: ranks on a node.
        out: the file.
        suffix: svg, png or pdf.
        width: inches.
        inputs: embedded in the file.
    """
    write_figure(lambda: _figure(grid, groups, per_node, width), out, suffix, title="ranks of a plan", inputs=inputs)


def _figure(
    grid: NDArray[np.int64], groups: Mapping[str, tuple[Sequence[int], str]], per_node: int, width: float
) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    digits = len(str(grid.size - 1))
    rows, columns, cells = (_shown(count, MOST if digits < 4 else MOST - 1) for count in grid.shape)
    height = ROW_IN * (len(rows) + 0.6) + KEY_IN * (len(groups) + 1)
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(-0.55, len(columns) + 0.05)
    axes.set_ylim(-KEY_IN / ROW_IN * (len(groups) + 1), len(rows) + 0.6)
    kinds = {kind: list(ranks) for kind, (ranks, _) in groups.items()}
    each = 0.95 / len(cells)
    size = min(FONT, each * width / (len(columns) + 0.6) * 72 / (0.62 * digits))
    for x, column in enumerate(columns):
        text = "..." if len(column) > 1 else f"pipeline device {column[0]}"
        axes.text(x + 0.475, len(rows) + 0.15, text, ha="center", fontsize=FONT)
    for y, row in enumerate(rows):
        top = len(rows) - y
        text = "..." if len(row) > 1 else f"replica {row[0]}"
        axes.text(-0.03, top - 0.45, text, ha="right", va="center", fontsize=FONT)
        for (x, column), (k, cell) in product(enumerate(columns), enumerate(cells)):
            left, middle = x + k * each, x + (k + 0.5) * each
            here = grid[np.ix_(row, column, cell)].ravel()
            if len(here) == 1:
                rank = int(here[0])
                axes.add_patch(Rectangle((left, top - 0.85), each, 0.8, fill=False, edgecolor=MUTED, linewidth=0.5))
                axes.text(middle, top - 0.25, str(rank), ha="center", va="center", fontsize=size)
                axes.text(middle, top - 0.42, f"n{rank // per_node}", ha="center", va="center", fontsize=size * 0.75)
            elif len(row) == len(column) == 1:
                axes.text(middle, top - 0.35, "...", ha="center", va="center", fontsize=FONT)
            for line, (kind, members) in enumerate(kinds.items()):
                if np.isin(members, here).any():
                    place = (left + 0.1 * each, top - 0.55 - 0.05 * line)
                    axes.add_patch(Rectangle(place, 0.8 * each, 0.035, color=COLOURS[kind], linewidth=0))
    key = f"n0: node 0, of {per_node} ranks each"
    if any(len(shown) > 1 for shown in (*rows, *columns, *cells)):
        key += "; a bar at a gap: of ranks that are left out"
    axes.text(len(columns) - 0.05, -KEY_IN / ROW_IN * 0.7, key, ha="right", va="center", fontsize=FONT)
    for line, (kind, (ranks, link)) in enumerate(groups.items()):
        low = -KEY_IN / ROW_IN * (line + 0.7)
        axes.add_patch(Rectangle((0, low - 0.03), 0.06, 0.06, color=COLOURS[kind], linewidth=0))
        axes.text(0.1, low, f"{kind}: {len(ranks)} ranks, {link} (rank 0's group)", va="center", fontsize=FONT)
    return figure


def _shown(count: int, most: int) -> list[list[int]]:
    """Group indices into those drawn, one each, and those left out between the first ones and the last."""
    if count <= most:
        return [[index] for index in range(count)]
    return [*([index] for index in range(most - 2)), list(range(most - 2, count - 1)), [count - 1]]
