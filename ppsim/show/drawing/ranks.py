"""Where ranks lie, as a picture: a row for each data-parallel replica, a column for each pipeline device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ppsim.show.drawing.canvas import write_figure
from ppsim.show.drawing.letters import text_width
from ppsim.show.drawing.palette import BUBBLE, GROUP_COLOURS, MUTED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 6  # rows, columns and cells of a box that are drawn before the middle is left out
ROW_IN, KEY_IN, FONT, POINTS = 0.55, 0.17, 6.0, 72


def draw_ranks(
    grid: NDArray[np.int64],  # shape (dp, pp, cp x tp), the ranks
    # the first group of each kind, whose cells get its colour: its ranks, and what joins them
    groups: Mapping[str, tuple[Sequence[int], str]],
    nodes: NDArray[np.int64],  # shaped as the grid, the node of each rank
    out: IO[bytes],  # the file
    suffix: str,  # svg, png or pdf
    *,
    width: float,  # inches
    inputs: Mapping[str, Any],  # embedded in the file
) -> None:
    """Draw the ranks of a plan: boxes of replicas and pipeline devices, cells of ranks with their node."""
    write_figure(lambda: _figure(grid, groups, nodes, width), out, suffix, title="ranks of a plan", inputs=inputs)


def _figure(
    grid: NDArray[np.int64], groups: Mapping[str, tuple[Sequence[int], str]], nodes: NDArray[np.int64], width: float
) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    digits = len(str(grid.size - 1))
    rows, columns, cells = (_shown(count, MOST if digits < 4 else MOST - 1) for count in grid.shape)
    gaps = any(len(shown) > 1 for shown in (*rows, *columns, *cells))
    notes = _notes(np.bincount(nodes.ravel()), gaps, width)
    height = ROW_IN * (len(rows) + 0.6) + KEY_IN * (len(groups) + len(notes) + 1)
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    named = text_width(f"replica {grid.shape[0] - 1}", FONT) + 6
    before = max(0.55, named * (len(columns) + 0.05) / (width * POINTS - named))
    axes.set_xlim(-before, len(columns) + 0.05)
    column_width = width * POINTS / (len(columns) + before + 0.05)
    heading = "pipeline device" if text_width(f"pipeline device {grid.shape[1]}", FONT) < column_width else "device"
    axes.set_ylim(-KEY_IN / ROW_IN * (len(groups) + len(notes) + 1), len(rows) + 0.6)
    kinds = {kind: list(ranks) for kind, (ranks, _) in groups.items()}
    each = 0.95 / len(cells)
    size = FONT * min(1.0, 0.9 * each * column_width / text_width("0" * digits, FONT))
    for x, column in enumerate(columns):
        text = "..." if len(column) > 1 else f"{heading} {column[0]}"
        axes.text(x + 0.475, len(rows) + 0.15, text, ha="center", fontsize=FONT)
    for y, row in enumerate(rows):
        top = len(rows) - y
        text = "..." if len(row) > 1 else f"replica {row[0]}"
        axes.text(-0.03, top - 0.45, text, ha="right", va="center", fontsize=FONT)
        for (x, column), (k, cell) in product(enumerate(columns), enumerate(cells)):
            left, middle = x + k * each, x + (k + 0.5) * each
            here = grid[np.ix_(row, column, cell)].ravel()
            if len(here) == 1:
                rank, node = int(here[0]), int(nodes[row[0], column[0], cell[0]])
                fill = BUBBLE if node % 2 else "white"
                axes.add_patch(Rectangle((left, top - 0.85), each, 0.8, facecolor=fill, edgecolor=MUTED, linewidth=0.5))
                axes.text(middle, top - 0.25, str(rank), ha="center", va="center", fontsize=size)
                axes.text(middle, top - 0.42, f"n{node}", ha="center", va="center", fontsize=size * 0.75)
            elif len(row) == len(column) == 1:
                axes.text(middle, top - 0.35, "...", ha="center", va="center", fontsize=FONT)
            elif k == 0 and (len(row) == 1 or len(column) == 1):  # a box that is left out
                axes.text(x + 0.475, top - 0.35, "...", ha="center", va="center", fontsize=FONT, color=MUTED)
            for line, (kind, members) in enumerate(kinds.items()):
                if np.isin(members, here).any():
                    place = (left + 0.1 * each, top - 0.55 - 0.05 * line)
                    axes.add_patch(Rectangle(place, 0.8 * each, 0.035, color=GROUP_COLOURS[kind][0], linewidth=0))
    for line, (kind, (ranks, link)) in enumerate(groups.items()):
        low = -KEY_IN / ROW_IN * (line + 0.7)
        axes.add_patch(Rectangle((0, low - 0.03), 0.06, 0.06, color=GROUP_COLOURS[kind][0], linewidth=0))
        axes.text(0.1, low, f"{kind}: {len(ranks)} ranks, {link} (rank 0's group)", va="center", fontsize=FONT)
    for line, note in enumerate(notes, len(groups)):
        axes.text(0, -KEY_IN / ROW_IN * (line + 0.7), note, va="center", fontsize=FONT)
    return figure


def _notes(per_node: NDArray[np.int64], gaps: bool, width: float) -> list[str]:
    """Explain nodes, each of so many ranks, and gaps with ranks that are left out, in one line where it fits."""
    notes = [f"n0: node 0, of {' or '.join(map(str, np.unique(per_node)))} ranks each"]
    notes[0] += "; every second node is shaded" if len(per_node) > 1 else ""
    notes += ["a bar at a gap: of ranks that are left out"] if gaps else []
    together = "; ".join(notes)
    return [together] if text_width(together, FONT) < 0.7 * width * POINTS else notes


def _shown(count: int, most: int) -> list[list[int]]:
    """Group indices into those drawn, one each, and those left out between the first ones and the last."""
    if count <= most:
        return [[index] for index in range(count)]
    return [*([index] for index in range(most - 2)), list(range(most - 2, count - 1)), [count - 1]]
