"""Time against memory, drawn: the points, the Pareto front and their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ppsim.analysis.tradeoff import Tradeoff
from ppsim.drawing.palette import MUTED, RAMP

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def figure_of(found: Tradeoff, time: str, memory: str, width: float) -> Figure:
    """The points and the front as a figure so many inches wide; see :func:`draw_tradeoff` for the labels."""
    from matplotlib.figure import Figure

    height = 0.62 * width
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0.6 / width, 0.42 / height, 1 - 0.75 / width, 1 - 0.5 / height))
    draw_tradeoff(axes, found, time=time, memory=memory)
    axes.legend(loc="best", fontsize=6.5, frameon=False)
    return figure


def draw_tradeoff(axes: Axes, found: Tradeoff, *, time: str, memory: str, font: float = 6.5) -> None:
    """Draw the points and the front onto axes: time to the right, memory upwards, less of both is better.

    Args:
        axes: what to draw on; its size must be final.
        found: the points.
        time: label of the time axis.
        memory: label of the memory axis.
        font: size of its texts in points.
    """
    x, y = np.array([(p.makespan, p.peak) for p in found.points], np.float64).reshape(-1, 2).T
    best = found.best
    dark, light = RAMP[0]
    order = np.flatnonzero(best)[np.argsort(x[best], kind="stable")]
    axes.step(x[order], y[order], where="post", color=light, linewidth=0.8, zorder=1)
    axes.scatter(x[best], y[best], s=14, color=dark, zorder=3, label="Pareto front")
    axes.scatter(x[~best], y[~best], s=12, facecolors="white", edgecolors=MUTED, linewidths=0.8, zorder=2)
    axes.margins(0.12, 0.15)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=2, width=0.4, labelsize=font)
    axes.set_xlabel(time.replace("(t_F)", "(units of $t_F$)"), fontsize=font, parse_math="(t_F)" in time)
    axes.set_ylabel(memory, fontsize=font, parse_math=False)
    _name_points(axes, found, x, y, font)


def _name_points(axes: Axes, found: Tradeoff, x: NDArray[np.float64], y: NDArray[np.float64], font: float) -> None:
    """Each point's name beside it, on the first side where it covers neither a point nor another name.

    The front has its names first and in any case; in a crowd the others go without. A white halo keeps the
    front's line from striking through a name.
    """
    from matplotlib.patheffects import withStroke

    halo = [withStroke(linewidth=2.0, foreground="white")]
    points = axes.transData.transform(np.stack([x, y], 1)) * 72 / axes.figure.dpi
    box = axes.get_window_extent()
    left_edge, right, top = (edge * 72 / axes.figure.dpi for edge in (box.x0, box.x1, box.y1))
    taken = [(px - 2.0, py - 2.0, px + 2.0, py + 2.0) for px, py in points]
    for here in np.argsort(~found.best, kind="stable"):
        point, (px, py), on_front = found.points[here], points[here], bool(found.best[here])
        wide, tall, gap = 0.62 * font * len(point.name), 1.1 * font, 4.0
        sides = [
            (gap, -tall / 2, "left"),
            (0.0, gap, "center"),
            (0.0, -gap - tall, "center"),
            (-gap, -tall / 2, "right"),
            (gap, gap, "left"),
            (gap, -gap - tall, "left"),
        ]
        boxes = []
        for dx, dy, align in sides:
            left = px + dx - {"left": 0.0, "center": wide / 2, "right": wide}[align]
            boxes.append((left, py + dy, left + wide, py + dy + tall))
        others = taken[:here] + taken[here + 1 :]
        inside = [b[0] >= left_edge and b[2] <= right + 20 and b[3] <= top + 10 for b in boxes]
        covered = [sum(_meet(b, o) for o in others) if ok else np.inf for ok, b in zip(inside, boxes, strict=True)]
        chosen = int(np.argmin(covered))
        if covered[chosen] and not on_front:
            continue
        taken.append(boxes[chosen])
        dx, dy, align = sides[chosen]
        colour = RAMP[0][0] if on_front else MUTED
        where = (point.makespan, point.peak)
        name = axes.annotate(
            point.name, where, (dx, dy), textcoords="offset points", fontsize=font, color=colour, ha=align, va="bottom"
        )
        name.set(path_effects=halo, zorder=4)


def _meet(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
