"""Time against memory, drawn: the points, the Pareto front and their names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppsim.analysis.tradeoff import Tradeoff
from ppsim.base.text import shorten
from ppsim.show.drawing.letters import text_width
from ppsim.show.drawing.palette import MARKERS, MUTED, family_look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Box = tuple[float, float, float, float]  # left, bottom, right, top
Segment = tuple[float, float, float, float]  # from x, y to x, y
POINTS = 72  # to the inch
ASPECT = 0.62  # height of the figure over its width
# inches between the axes and the edges of the figure
LEFT, RIGHT, BELOW, ABOVE = 0.6, 0.15, 0.42, 0.08
TITLE = 0.32  # inches for the title of a panel, where there are several, above the names of points
PANEL = 0.46  # height of such a panel over its width
FONT = 6.5
GAP = 4.0  # points between a point and its name
DOT = 2.0  # radius of a point
LINE_ROOM = 0.4  # points on either side of a front's line
LINE = 1.1  # height of a line of text over the font's size
SPREAD = 1.05  # of a text drawn on a raster over its width in the font
CROWD = 40  # points, above which only points of fronts have names
LONG_FRONT = 12  # points on fronts, of which only those have names that cover nothing, and the ends
NEAR = 6  # places for a name beside its point
AWAY = (14.0, 24.0, 38.0)  # points between a point and a name that has no room beside it
LEADER_DOTS = 12  # of a line to a name, where it is looked whether it meets others
FAR = 8.0  # ratio of the largest to the smallest value from which an axis is logarithmic
LONGEST_NAME, LONGEST_LABEL = 60, 80  # characters
LABEL = re.compile(r"([\w ]+) \((t_[A-Za-z0-9])\)")


def figure_of(found: Tradeoff, time: str, memory: str, width: float) -> Figure:
    """Return the points and the front as a figure ``width`` inches wide; see :func:`draw_tradeoff`
    for the labels.

    Groups, whose shares of the model are not the same, have a panel each, one below the other.
    """
    from matplotlib.figure import Figure

    groups = list(dict.fromkeys(point.group for point in found.points))
    above = ABOVE + (TITLE if len(groups) > 1 else 0.0)
    height = (PANEL if len(groups) > 1 else ASPECT) * width
    whole = height * max(len(groups), 1)
    figure = Figure(figsize=(width, whole))
    families = list(dict.fromkeys(point.family or point.name for point in found.points))
    for place, group in enumerate(groups or [""]):
        bottom = whole - (place + 1) * height + BELOW
        size = 1 - (LEFT + RIGHT) / width, (height - BELOW - above) / whole
        axes = figure.add_axes((LEFT / width, bottom / whole, *size))
        draw_tradeoff(axes, found.select_group(group), time=time, memory=memory, families=families)
        if len(groups) > 1:
            axes.set_title(group, fontsize=FONT + 1, loc="left", pad=13)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(loc="best", fontsize=FONT, frameon=False)
    return figure


def draw_tradeoff(
    axes: Axes, found: Tradeoff, *, time: str, memory: str, families: Sequence[str] | None = None
) -> None:
    """Draw points and front onto axes of final size: time to the right, memory upwards, less of
    both is better.

    ``families`` have their colours and marks in this order, the points' own by default.
    """
    x, y = np.array([(p.makespan, p.peak) for p in found.points], np.float64).reshape(-1, 2).T
    best, groups = found.best, np.array([p.group for p in found.points])
    fronts = []
    for group in dict.fromkeys(groups.tolist()):
        here = np.flatnonzero(best & (groups == group))
        order = here[np.argsort(x[here], kind="stable")]
        fronts.append(order)
        axes.step(x[order], y[order], where="post", color=MUTED, linewidth=0.7, zorder=1)
    names = [p.family or p.name for p in found.points]
    for number, family in enumerate(families or dict.fromkeys(names)):
        if family not in names:
            continue
        (colour, _), shape = family_look(number)
        marker = MARKERS[shape]
        own = np.array([name == family for name in names])
        first, rest = own & best, own & ~best
        axes.scatter(x[first], y[first], s=15, color=colour, marker=marker, zorder=3)
        hollow: dict[str, Any] = {
            "facecolors": "white",
            "edgecolors": colour,
            "linewidths": 0.8,
            "marker": marker,
        }
        axes.scatter(x[rest], y[rest], s=11, zorder=2, **hollow)
        # most points have no name beside them
        if len(names) > CROWD or best.sum() > LONG_FRONT >= len(set(names)):
            axes.scatter([], [], s=13, color=colour, marker=marker, label=family)
    _set_ranges(axes, x, y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=2, width=0.4, labelsize=FONT)
    symbol = LABEL.fullmatch(time)
    label = f"{symbol[1]} (units of ${symbol[2]}$)" if symbol else shorten(time, LONGEST_LABEL)
    axes.set_xlabel(label, fontsize=FONT, parse_math=bool(symbol))
    axes.set_ylabel(_folded(memory, axes), fontsize=FONT, parse_math=False)
    _name_points(axes, found, x, y, fronts)


def _set_ranges(axes: Axes, x: NDArray[np.float64], y: NDArray[np.float64]) -> None:
    """Set both axes' ranges: logarithmic where values are far apart, else memory from zero."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.margins(0.12, 0.15)
    for axis, values, scale in ((axes.xaxis, x, axes.set_xscale), (axes.yaxis, y, axes.set_yscale)):
        if len(values) and values.min() > 0 and values.max() > FAR * values.min():
            scale("log")
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
            axis.set_minor_formatter(NullFormatter())
    if axes.get_yscale() == "linear":
        axes.set_ylim(bottom=0)


def _folded(label: str, axes: Axes) -> str:
    """Return an axis label on two lines where one is longer than the axis."""
    tall = axes.get_window_extent().height * POINTS / axes.figure.dpi
    words = shorten(label, LONGEST_LABEL).split(" ")
    if text_width(" ".join(words), FONT) < tall or len(words) < 2:
        return " ".join(words)
    half = min(
        range(1, len(words)),
        key=lambda cut: abs(len(" ".join(words[:cut])) - len(" ".join(words[cut:]))),
    )
    return " ".join(words[:half]) + "\n" + " ".join(words[half:])


def _name_points(
    axes: Axes,
    found: Tradeoff,
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    fronts: Sequence[NDArray[np.int64]],
) -> None:
    """Write each point's name next to it, on the first side where it covers neither a point nor
    another name.

    The front has its names first and in any case, on the side where most of them is in the picture
    and, if there is one, off the fronts' lines and not beside another of them; in a crowd the
    others go without. Of a long front only the ends have a name in any case. A name that had to
    move away has a line to its point, and a white box behind it keeps lines from striking through.
    """
    box: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "pad": 0.3, "alpha": 0.85}
    point_per_dot = POINTS / axes.figure.dpi
    points = axes.transData.transform(np.stack([x, y], 1)) * point_per_dot
    page, inside = axes.figure.bbox, axes.get_window_extent()
    room = tuple(dots * point_per_dot for dots in (inside.x0, inside.y0, page.x1, page.y1))
    lines = [line for order in fronts for line in _steps(points[order])]
    taken = [(px - DOT, py - DOT, px + DOT, py + DOT) for px, py in points]
    ends = {int(order[end]) for order in fronts for end in (0, -1) if len(order)}
    leaders, long = list[Box](), found.best.sum() > LONG_FRONT
    drawn = list[Segment]()  # the lines to names
    certain = ends if long else set(np.flatnonzero(found.best).tolist())
    for here in sorted(
        range(len(points)), key=lambda here: (here not in certain, not found.best[here])
    ):
        point, place, on_front = found.points[here], points[here], bool(found.best[here])
        name = shorten(point.name, LONGEST_NAME)
        if not on_front and len(points) > CROWD:
            continue
        sides = _sides(SPREAD * text_width(name, FONT) + 1, LINE * FONT)
        sides = sides[:NEAR] if long and here not in certain else sides
        boxes = [_box(place, side) for side in sides]
        names, others = (
            [*taken[len(points) :], *leaders],
            taken[:here] + taken[here + 1 : len(points)],
        )
        beside = [
            _box_with_margin(taken[other]) for other in np.flatnonzero(found.best) if other != here
        ]
        cost = [
            (
                _points_outside(box, room),
                sum(_meet(box, other) for other in names)
                + sum(
                    _meet(dot, other)
                    for dot in _leader(place, side, box)
                    for other in taken[len(points) :]
                )
                + sum(
                    _lines_cross(own, other) for own in _line(place, side, box) for other in drawn
                ),
                *(sum(_meet(box, other) for other in each) for each in (others, lines + beside)),
            )
            for side, box in zip(sides, boxes, strict=True)
        ]
        chosen = min(range(len(sides)), key=cost.__getitem__)
        if cost[chosen][:3] != (0, 0, 0) and here not in certain:
            continue
        taken.append(boxes[chosen])
        side = sides[chosen]
        leaders += _leader(place, side, boxes[chosen])
        drawn += _line(place, side, boxes[chosen])
        look: dict[str, Any] = {
            "color": "black" if on_front else MUTED,
            "ha": side.align,
            "bbox": box,
            "zorder": 4,
        }
        look["arrowprops"] = (
            {"arrowstyle": "-", "linewidth": 0.4, "color": MUTED} if side.far else None
        )
        to = (point.makespan, point.peak), (side.right, side.up)
        axes.annotate(
            name,
            *to,
            textcoords="offset points",
            fontsize=FONT,
            va="bottom",
            parse_math=False,
            **look,
        )


class Side(NamedTuple):
    """A place for a name near its point, in points: its anchor, its alignment there, its size."""

    right: float
    up: float
    align: str
    wide: float
    tall: float
    far: bool = False


def _sides(wide: float, tall: float) -> tuple[Side, ...]:
    """Return the places for a name of this size, the best first: next to the point, then further
    away.
    """
    near = (  # NEAR of them
        Side(GAP, -tall / 2, "left", wide, tall),
        Side(0.0, GAP, "center", wide, tall),
        Side(0.0, -GAP - tall, "center", wide, tall),
        Side(-GAP, -tall / 2, "right", wide, tall),
        Side(GAP, GAP, "left", wide, tall),
        Side(GAP, -GAP - tall, "left", wide, tall),
    )
    far = (
        Side(across * away, up * away - tall * (up < 0), align, wide, tall, far=True)
        for away in AWAY
        for across, up, align in (
            (1, 0.6, "left"),
            (1, -0.6, "left"),
            (-1, 0.6, "right"),
            (-1, -0.6, "right"),
        )
    )
    steep = (
        Side(across * away, up * away - tall * (up < 0), "center", wide, tall, far=True)
        for away in AWAY
        for across, up in ((0.2, -1.0), (-0.2, -1.0), (0.2, 1.0), (-0.2, 1.0))
    )
    return (*near, *far, *steep)


def _box(place: NDArray[np.float64], side: Side) -> Box:
    """Return the box of a name at a side of a point: left, bottom, right, top."""
    left = (
        place[0]
        + side.right
        - {"left": 0.0, "center": side.wide / 2, "right": side.wide}[side.align]
    )
    return (left, place[1] + side.up, left + side.wide, place[1] + side.up + side.tall)


def _leader(place: NDArray[np.float64], side: Side, box: Box) -> list[Box]:
    """Return the line from a point to a distant name as small boxes; empty for a name next to the
    point.
    """
    if not side.far:
        return []
    end = np.clip(place, box[:2], box[2:])
    dots = place + np.linspace(0.15, 0.95, LEADER_DOTS)[:, None] * (end - place)
    return [(x - LINE_ROOM, y - LINE_ROOM, x + LINE_ROOM, y + LINE_ROOM) for x, y in dots.tolist()]


def _line(place: NDArray[np.float64], side: Side, box: Box) -> list[Segment]:
    """Return the line from a point to a distant name; empty for a name next to the point."""
    if not side.far:
        return []
    end = np.clip(place, box[:2], box[2:])
    return [(float(place[0]), float(place[1]), float(end[0]), float(end[1]))]


def _lines_cross(a: Segment, b: Segment) -> bool:
    """Return whether two lines cross: the ends of each lie on different sides of the other."""

    def side(line: Segment, x: float, y: float) -> float:
        return (line[2] - line[0]) * (y - line[1]) - (line[3] - line[1]) * (x - line[0])

    return side(a, *b[:2]) * side(a, *b[2:]) <= 0 and side(b, *a[:2]) * side(b, *a[2:]) <= 0


def _steps(points: NDArray[np.float64]) -> list[Box]:
    """Return the lines of a front through these points as boxes: to the right, then down, to the
    next.
    """
    found: list[Box] = []
    for (x, y), (right, below) in pairwise(points.tolist()):
        found += [
            (x, y - LINE_ROOM, right, y + LINE_ROOM),
            (right - LINE_ROOM, below, right + LINE_ROOM, y),
        ]
    return found


def _points_outside(box: Box, room: tuple[float, ...]) -> float:
    """Return how many points of a box lie left of the axes or below, or beyond the figure's right
    and upper edge.
    """
    left, below, right, top = room
    return (
        max(0.0, left - box[0])
        + max(0.0, below - box[1])
        + max(0.0, box[2] - right)
        + max(0.0, box[3] - top)
    )


def _box_with_margin(box: Box) -> Box:
    """Return a point's box with the margin in which a name would seem to belong to it."""
    return (box[0] - GAP, box[1] - GAP, box[2] + GAP, box[3] + GAP)


def _meet(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
