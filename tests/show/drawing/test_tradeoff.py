"""Time against memory as a figure: every name is in the picture, and none covers another."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from matplotlib.text import Annotation

from ppsim.analysis.tradeoff import Point, tradeoff
from ppsim.show.drawing.tradeoff import figure_of
from tests.show.drawing.boxes import box_of

CROWDS = {
    "corner": [Point("a schedule with a long name", 10, 10), Point("another one of these", 1, 1)],
    "right edge": [Point("interleaved with a name", 100, k) for k in range(1, 9)],
    "many": [
        Point(f"interleaved:{k} 8x{k}", 1 + (7 * k) % 13, 1 + (5 * k) % 11) for k in range(60)
    ],
    "front": [Point(f"schedule {k}", k, 20 - k) for k in range(1, 15)],
    "joined": [Point(f"schedule {k}", 3.0, 5.0) for k in range(9)] + [Point("x", 4.0, 6.0)],
}


def drawn(points, width):
    """The figure, and the boxes of the names in it, in dots."""
    figure = figure_of(tradeoff(points), "makespan (ms)", "peak", width)
    figure.canvas.draw()
    names = figure.axes[0].texts
    return figure, names, [box_of(name) for name in names]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("crowd", CROWDS)
@pytest.mark.parametrize("width", [3.3, 6.75])
def test_names_stay_inside_the_picture(crowd, width):
    """Apart from names as wide as half the axes, which no place has room for."""
    figure, names, boxes = drawn(CROWDS[crowd], width)
    assert names
    across = figure.axes[0].get_window_extent().width
    for name, box in zip(names, boxes, strict=True):
        if box.width < across / 2:
            assert box.x0 >= figure.bbox.x0, name.get_text()
            assert box.x1 <= figure.bbox.x1 + 1, name.get_text()
            assert box.y1 <= figure.bbox.y1 + 1, name.get_text()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("crowd", ["right edge", "many", "corner"])
def test_names_off_the_front_cover_no_other(crowd):
    """Names of the front are there in any case; of the others only those that have room."""
    points = CROWDS[crowd]
    _, names, boxes = drawn(points, 6.75)
    found = tradeoff(points)
    front = {point.name for point, best in zip(found.points, found.best, strict=True) if best}
    assert front <= {name.get_text() for name in names}
    for this, (name, box) in enumerate(zip(names, boxes, strict=True)):
        if name.get_text() not in front:
            covered = [
                other
                for other in boxes[:this]
                if np.all(box.shrunk(0.9, 0.9).overlaps(other.shrunk(0.9, 0.9)))
            ]
            assert covered == [], name.get_text()


def test_the_fronts_line_strikes_through_no_name():
    """Of three points in a staircase, the names are above, below and beside the line."""
    points = [
        Point("zb-v", 25.5, 4.0),
        Point("v-half", 26.5, 3.0),
        Point("v-min", 29.5, 2.0),
        Point("gpipe", 33.0, 8.0),
    ]
    for width in (3.3, 6.75):
        axes = figure_of(tradeoff(points), "makespan", "memory", width).axes[0]
        (line,) = (each for each in axes.lines if np.size(each.get_xdata()) == 3)
        corners = axes.transData.transform(line.get_xydata())
        for text in axes.texts:
            box = text.get_window_extent().padded(-1)
            for (x, y), (right, below) in pairwise(corners):
                assert not (box.y0 < y < box.y1 and box.x0 < right and x < box.x1), text.get_text()
                assert not (box.x0 < right < box.x1 and box.y0 < y and below < box.y1), (
                    text.get_text()
                )


def test_names_of_a_long_front_cover_nothing_and_its_ends_have_one():
    """Forty plans in two heaps: a name over a name says nothing of either."""
    points = [
        Point(f"tp8 pp{k} interleaved", 50 + k / 90, 60 - k / 90, "interleaved") for k in range(20)
    ]
    points += [Point(f"tp4 pp{k} 1f1b full {k}", 80 + k / 5, 30 - k / 5, "1f1b") for k in range(20)]
    figure, names, boxes = drawn(points, 6.75)
    shown = [name.get_text() for name in names]
    assert {points[0].name, points[-1].name} <= set(shown)
    assert 4 < len(shown) < 30
    for this, box in enumerate(boxes):
        assert not any(
            np.all(box.shrunk(0.9, 0.9).overlaps(other.shrunk(0.9, 0.9))) for other in boxes[:this]
        )
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == [
        "interleaved",
        "1f1b",
    ]


@pytest.mark.parametrize("width", [3.3, 6.75])
def test_the_line_to_a_name_crosses_no_other(width):
    """A sweep of four schedules over four shapes: names that moved away have lines through no
    name.
    """
    rows = [
        ("zb-v", 3.22, 8.0),
        ("zb-1p", 3.44, 8.0),
        ("zb-1p", 3.875, 8.0),
        ("1f1b", 4.31, 8.0),
        ("1f1b", 5.625, 8.0),
    ]
    rows += [
        ("zb-v", 3.09, 4),
        ("zb-1p", 3.19, 4),
        ("zb-1p", 3.375, 4),
        ("1f1b", 3.56, 4),
        ("1f1b", 4.125, 4),
    ]
    rows += [
        ("interleaved:2", 3.66, 11.5),
        ("interleaved:2", 3.28, 5.5),
        ("interleaved:2", 3.56, 5.5),
    ]
    points = [Point(f"{name} {k}x16", time, held) for k, (name, time, held) in enumerate(rows)]
    figure, names, boxes = drawn(points, width)
    place = figure.axes[0].transData.transform
    moved = [name for name in names if name.arrow_patch is not None]
    assert len(names) > 6
    for name in moved:
        line = np.linspace(
            place(name.xy), np.clip(place(name.xy), *boxes[names.index(name)].get_points()), 40
        )
        for other, box in zip(names, boxes, strict=True):
            inner = box.padded(-2)
            assert other is name or not any(inner.contains(x, y) for x, y in line), (
                name.get_text(),
                other.get_text(),
            )


def test_a_wide_range_has_ticks_at_one_two_and_five():
    figure, _, _ = drawn([Point("a", 1.0, 5.0), Point("b", 900.0, 4.0)], 6.75)
    axis = figure.axes[0].xaxis
    assert axis.get_scale() == "log"
    low, high = axis.get_view_interval()
    seen = [tick for tick in axis.get_majorticklocs() if low <= tick <= high]
    assert {1.0, 2.0, 5.0, 10.0, 20.0, 50.0} <= set(np.round(seen, 9))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("width", [3.3, 6.75, 10.0])
def test_lines_to_names_do_not_cross_each_other(width):
    """A sweep of 1F1B, ZB-1P and interleaved, three panels: in each, two lines of ZB-1P made an
    X.
    """
    points, shapes = list[Point](), [(p, m) for p in (4, 8, 16) for m in (16, 32, 48, 64)]
    for p, m in shapes:
        points.append(Point(f"1f1b {p}x{m}", 3 * (m + p - 1) / m, p, "1f1b", f"{p} devices"))
    for p, m in shapes:
        points.append(Point(f"zb-1p {p}x{m}", 3 + (p - 1) / m, p, "zb-1p", f"{p} devices"))
    for p, m in shapes:
        time = 3 + 1.5 * (p - 1) / m
        points.append(
            Point(f"interleaved {p}x{m}", time, 1.5 * p - 0.5, "interleaved", f"{p} devices")
        )
    figure = figure_of(tradeoff(points), "makespan per microbatch (t_F)", "peak", width)
    figure.canvas.draw()
    assert len(figure.axes) == 3
    for axes in figure.axes:
        lines = []
        for name in (
            each for each in axes.texts if isinstance(each, Annotation) and each.arrow_patch
        ):
            start = axes.transData.transform(name.xy)
            lines.append((start, np.clip(start, *box_of(name).get_points())))
        assert len(axes.texts) > 6
        for (a, b), (c, d) in combinations(lines, 2):
            apart = [turn(a, b, c) * turn(a, b, d) > 0, turn(c, d, a) * turn(c, d, b) > 0]
            assert any(apart), (a, b, c, d)


def turn(a, b, c):
    """Above 0 where c lies on the left of the way from a to b, below 0 on the right."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
