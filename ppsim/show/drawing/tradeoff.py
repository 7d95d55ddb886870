"""Time against memory as a figure: points, Pareto fronts and names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
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
POINTS = 72  # points per inch
ASPECT = 0.62  # height of the figure over its width
# inches between the axes and the edges of the figure
LEFT, RIGHT, BELOW, ABOVE = 0.6, 0.15, 0.42, 0.08
TITLE = 0.32  # inches for a panel's title, if there are several panels
PANEL = 0.46  # height of one of several panels over its width
FONT = 6.5
GAP = 4.0  # distance of a mark and its name in points of paper
DOT = 2.0  # radius of a mark in points of paper
LINE_ROOM = 0.4  # half the width of a front's line in points of paper
LINE = 1.1  # height of a line of text over the font's size
SPREAD = 1.05  # width of a text on a raster over its width in the font
CROWD = 40  # number of points, above which only those on fronts have names
LONG_FRONT = 12  # points on fronts, above which only ends are named regardless of overlaps
NEAR = 6  # places for a name next to its mark
AWAY = (14.0, 24.0, 38.0)  # distances of a mark and a name that has no room next to it
LEADER_DOTS = 12  # places along the line to a name that are checked for overlaps
FAR = 8.0  # ratio of the largest to the smallest value, above which an axis is logarithmic
LONGEST_NAME, LONGEST_LABEL = 60, 80  # characters
LABEL = re.compile(r"([\w ]+) \((t_[A-Za-z0-9])\)")


def figure_of(found: Tradeoff, time: str, memory: str, width: float) -> Figure:
    """Return points and Pareto fronts as a figure ``width`` inches wide.

    ``time`` and ``memory`` label the axes. Each group has a panel, as its shares of the model
    differ from other groups'.
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
    """Draw points and Pareto fronts onto axes of final size, over time and memory.

    ``families`` gives the order of colours and marks, by default that of the points.
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
        members = np.array([name == family for name in names])
        first, rest = members & best, members & ~best
        axes.scatter(x[first], y[first], s=15, color=colour, marker=marker, zorder=3)
        hollow: dict[str, Any] = {
            "facecolors": "white",
            "edgecolors": colour,
            "linewidths": 0.8,
            "marker": marker,
        }
        axes.scatter(x[rest], y[rest], s=11, zorder=2, **hollow)
        # a legend, as most points have no name
        if len(names) > CROWD or best.sum() > LONG_FRONT >= len(set(names)):
            axes.scatter([], [], s=13, color=colour, marker=marker, label=family)
    _set_ranges(axes, x, y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=2, width=0.4, labelsize=FONT)
    symbol = LABEL.fullmatch(time)
    label = f"{symbol[1]} (units of ${symbol[2]}$)" if symbol else shorten(time, LONGEST_LABEL)
    axes.set_xlabel(label, fontsize=FONT, parse_math=bool(symbol))
    axes.set_ylabel(_two_lines(memory, axes), fontsize=FONT, parse_math=False)
    _name_points(axes, found, x, y, fronts)


def _set_ranges(axes: Axes, x: NDArray[np.float64], y: NDArray[np.float64]) -> None:
    """Set both axes' ranges: logarithmic if values are far apart, else memory from zero."""
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


def _two_lines(label: str, axes: Axes) -> str:
    """Return an axis label, broken into two lines if it is longer than the axis."""
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
    """Write each point's name next to it, at the first place that covers no mark or other name.

    Points on fronts are named first, and regardless of overlaps; of a long front only its ends are.
    Their places avoid the fronts' lines and the neighbourhood of other front points if possible. In
    a crowd other points have no name. A name further away has a line to its point, and a white box
    so that lines do not cross the text.
    """
    point_per_dot = POINTS / axes.figure.dpi
    points = axes.transData.transform(np.stack([x, y], 1)) * point_per_dot
    page, inside = axes.figure.bbox, axes.get_window_extent()
    room = tuple(dots * point_per_dot for dots in (inside.x0, inside.y0, page.x1, page.y1))
    crowd = _Crowd(
        room,
        marks=[(px - DOT, py - DOT, px + DOT, py + DOT) for px, py in points],
        front=np.flatnonzero(found.best).tolist(),
        lines=[line for order in fronts for line in _steps(points[order])],
    )
    ends = {int(order[end]) for order in fronts for end in (0, -1) if len(order)}
    long = found.best.sum() > LONG_FRONT
    certain = ends if long else set(crowd.front)
    for here in sorted(
        range(len(points)), key=lambda here: (here not in certain, not found.best[here])
    ):
        point, on_front = found.points[here], bool(found.best[here])
        if not on_front and len(points) > CROWD:
            continue
        name = shorten(point.name, LONGEST_NAME)
        sides = _sides(SPREAD * text_width(name, FONT) + 1, LINE * FONT)
        sides = sides[:NEAR] if long and here not in certain else sides
        costs = [crowd.cost(here, points[here], side) for side in sides]
        chosen = min(range(len(sides)), key=costs.__getitem__)
        if costs[chosen][:3] != (0, 0, 0) and here not in certain:
            continue
        crowd.add(points[here], sides[chosen])
        _write_name(axes, name, (point.makespan, point.peak), sides[chosen], on_front)


def _write_name(
    axes: Axes, name: str, point: tuple[float, float], side: Side, on_front: bool
) -> None:
    """Write the name of a point, with a line to it if the name is not next to it."""
    line = {"arrowstyle": "-", "linewidth": 0.4, "color": MUTED} if side.far else None
    look: dict[str, Any] = {
        "color": "black" if on_front else MUTED,
        "ha": side.align,
        "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.3, "alpha": 0.85},
        "zorder": 4,
    }
    axes.annotate(
        name,
        point,
        (side.right, side.up),
        textcoords="offset points",
        fontsize=FONT,
        va="bottom",
        parse_math=False,
        arrowprops=line,
        **look,
    )


class Side(NamedTuple):
    """A place for a name near its mark, in points of paper: anchor, alignment, and size."""

    right: float
    up: float
    align: str
    wide: float
    tall: float
    far: bool = False


@dataclass
class _Crowd:
    """Marks, lines and names in a picture, which further names avoid; in points of paper."""

    room: tuple[float, ...]  # left and lower edge of the axes, right and upper edge of the figure
    marks: list[Box]
    front: list[int]  # indices of the marks on fronts
    lines: list[Box]  # of the fronts
    names: list[Box] = field(default_factory=list)
    leaders: list[Box] = field(default_factory=list)  # pieces of the lines to names
    segments: list[Segment] = field(default_factory=list)  # the lines to names

    def cost(self, here: int, place: NDArray[np.float64], side: Side) -> tuple[float, ...]:
        """Return the cost of naming mark ``here`` at a side: part outside, and overlaps.

        Overlaps are counted with names and their lines, then with marks, then with fronts.
        """
        box = _box(place, side)
        names = sum(_meet(box, other) for other in [*self.names, *self.leaders])
        names += sum(_meet(dot, other) for dot in _leader(place, side, box) for other in self.names)
        names += sum(
            _lines_cross(line, other) for line in _line(place, side, box) for other in self.segments
        )
        marks = sum(_meet(box, mark) for n, mark in enumerate(self.marks) if n != here)
        near_front = [_box_with_margin(self.marks[n]) for n in self.front if n != here]
        fronts = sum(_meet(box, other) for other in self.lines + near_front)
        return _points_outside(box, self.room), names, marks, fronts

    def add(self, place: NDArray[np.float64], side: Side) -> None:
        """Add a name at a side of a mark, and the line to it."""
        box = _box(place, side)
        self.names.append(box)
        self.leaders += _leader(place, side, box)
        self.segments += _line(place, side, box)


def _sides(wide: float, tall: float) -> tuple[Side, ...]:
    """Return places for a name of this size, the nearest and best first."""
    near = (  # there are NEAR of these
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
    """Return the box of a name at a side of a mark: left, bottom, right, top."""
    left = (
        place[0]
        + side.right
        - {"left": 0.0, "center": side.wide / 2, "right": side.wide}[side.align]
    )
    return (left, place[1] + side.up, left + side.wide, place[1] + side.up + side.tall)


def _leader(place: NDArray[np.float64], side: Side, box: Box) -> list[Box]:
    """Return the line from a mark to a distant name as small boxes; empty for a near name."""
    if not side.far:
        return []
    end = np.clip(place, box[:2], box[2:])
    dots = place + np.linspace(0.15, 0.95, LEADER_DOTS)[:, None] * (end - place)
    return [(x - LINE_ROOM, y - LINE_ROOM, x + LINE_ROOM, y + LINE_ROOM) for x, y in dots.tolist()]


def _line(place: NDArray[np.float64], side: Side, box: Box) -> list[Segment]:
    """Return the line from a mark to a distant name; empty for a near name."""
    if not side.far:
        return []
    end = np.clip(place, box[:2], box[2:])
    return [(float(place[0]), float(place[1]), float(end[0]), float(end[1]))]


def _lines_cross(a: Segment, b: Segment) -> bool:
    """Return True if two lines cross: each one's ends lie on different sides of the other."""

    def side(line: Segment, x: float, y: float) -> float:
        return (line[2] - line[0]) * (y - line[1]) - (line[3] - line[1]) * (x - line[0])

    return side(a, *b[:2]) * side(a, *b[2:]) <= 0 and side(b, *a[:2]) * side(b, *a[2:]) <= 0


def _steps(points: NDArray[np.float64]) -> list[Box]:
    """Return the stepped line of a front through these points as thin boxes."""
    found: list[Box] = []
    for (x, y), (right, below) in pairwise(points.tolist()):
        found += [
            (x, y - LINE_ROOM, right, y + LINE_ROOM),
            (right - LINE_ROOM, below, right + LINE_ROOM, y),
        ]
    return found


def _points_outside(box: Box, room: tuple[float, ...]) -> float:
    """Return by how many points a box extends beyond the room, summed over its four sides."""
    left, below, right, top = room
    return (
        max(0.0, left - box[0])
        + max(0.0, below - box[1])
        + max(0.0, box[2] - right)
        + max(0.0, box[3] - top)
    )


def _box_with_margin(box: Box) -> Box:
    """Return a mark's box with a margin; a name inside it would seem to belong to the mark."""
    return (box[0] - GAP, box[1] - GAP, box[2] + GAP, box[3] + GAP)


def _meet(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
