"""Where ranks lie, as a picture: a row for each data-parallel replica, a column for each pipeline device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

    rows, columns, cells = (_shown(count) for count in grid.shape)
    height = ROW_IN * (len(rows) + 0.6) + KEY_IN * (len(groups) + 1)
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(-0.55, len(columns) + 0.05)
    axes.set_ylim(-KEY_IN / ROW_IN * (len(groups) + 1), len(rows) + 0.6)
    kinds = {kind: set(ranks) for kind, (ranks, _) in groups.items()}
    for x, column in enumerate(columns):
        text = "..." if column is None else f"pipeline device {column}"
        axes.text(x + 0.475, len(rows) + 0.15, text, ha="center", fontsize=FONT)
    for y, row in enumerate(rows):
        top = len(rows) - y
        axes.text(-0.03, top - 0.45, "..." if row is None else f"replica {row}", ha="right", va="center", fontsize=FONT)
        for x, column in enumerate(columns):
            if row is None or column is None:
                continue
            each = 0.95 / len(cells)
            for k, cell in enumerate(cells):
                left = x + k * each
                if cell is None:
                    axes.text(left + each / 2, top - 0.45, "...", ha="center", va="center", fontsize=FONT)
                    continue
                rank = int(grid[row, column, cell])
                axes.add_patch(Rectangle((left, top - 0.85), each, 0.8, fill=False, edgecolor=MUTED, linewidth=0.5))
                axes.text(left + each / 2, top - 0.25, str(rank), ha="center", va="center", fontsize=FONT)
                axes.text(
                    left + each / 2, top - 0.42, f"n{rank // per_node}", ha="center", va="center", fontsize=FONT - 1.5
                )
                for line, (kind, members) in enumerate(kinds.items()):
                    if rank in members:
                        place = (left + 0.1 * each, top - 0.55 - 0.05 * line)
                        axes.add_patch(Rectangle(place, 0.8 * each, 0.035, color=COLOURS[kind], linewidth=0))
    key = f"n0: node 0, of {per_node} ranks each"
    axes.text(len(columns) - 0.05, -KEY_IN / ROW_IN * 0.7, key, ha="right", va="center", fontsize=FONT)
    for line, (kind, (ranks, link)) in enumerate(groups.items()):
        low = -KEY_IN / ROW_IN * (line + 0.7)
        axes.add_patch(Rectangle((0, low - 0.03), 0.06, 0.06, color=COLOURS[kind], linewidth=0))
        axes.text(0.1, low, f"{kind}: {len(ranks)} ranks, {link} (rank 0's group)", va="center", fontsize=FONT)
    return figure


def _shown(count: int) -> list[int | None]:
    """Indices that are drawn; None for those left out."""
    return list(range(count)) if count <= MOST else [*range(MOST - 2), None, count - 1]
