"""Ops from inside in figures: the segments of each stream below the cells, where there is room for
them.
"""

from dataclasses import replace

import numpy as np
import pytest

from ppsim.core.timeline import Timeline
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.segments import (
    OpsInside,
    Segment,
    Segments,
    look_inside_ops,
    segment_costs,
)
from ppsim.schedules import generate
from ppsim.show.drawing.canvas import DOTS
from ppsim.show.drawing.gantt.design import design_for
from ppsim.show.drawing.gantt.figure import plot
from ppsim.show.drawing.gantt.layout import inside_cells
from ppsim.show.drawing.gantt.panel import Panel
from ppsim.show.drawing.look import PLAIN

LAYER = Segments(
    F=(Segment("attn", 2), Segment("send", 1, "communication")),
    I=(Segment("send", 1, "communication"), Segment("attn", 2)),
    W=(Segment("attn", 1),),
    order=("send_I", "attn_F", "attn_I", "send_F", "attn_W"),
)


def timed_inside(microbatches: int) -> tuple[Timeline, OpsInside]:
    schedule = generate("1f1b-overlap", devices=2, microbatches=microbatches)
    return simulate(schedule, segment_costs(schedule, LAYER)), look_inside_ops(schedule, LAYER)


def test_segments_lie_where_their_stream_runs_them():
    """The last device: a forward alone, a pair with the exchanges beside attention, and a backward
    alone.
    """
    timeline, inside = timed_inside(2)
    compute, communication = (inside_cells(timeline, inside, stream) for stream in (0, 1))
    here = timeline.schedule.device == 1
    assert timeline.start[here].tolist() == [3, 6, 6, 11]
    found = sorted(zip(compute.left, compute.right, compute.kind, compute.device, strict=True))
    assert [row[:3] for row in found if row[3] == 1] == [
        (3, 5, 0),
        (6, 8, 0),
        (8, 10, 1),
        (10, 11, 1),
        (12, 14, 1),
        (14, 15, 1),
    ]
    assert sorted(communication.left[communication.device == 1]) == [5, 6, 8, 11]


@pytest.mark.parametrize(
    ("microbatches", "look", "shown"),
    [
        (3, PLAIN, True),
        (200, PLAIN, False),
        (200, replace(PLAIN, window=(40.0, 70.0)), True),
        (3000, PLAIN, False),
    ],
)
def test_segments_are_drawn_where_they_are_wide_enough(microbatches, look, shown):
    timeline, inside = timed_inside(microbatches)
    panel = Panel(timeline, "x", inside=inside, look=look)
    design = design_for([panel], "screen", round(6.75 * DOTS))
    assert design.inside == shown
    without = design_for([replace(panel, inside=None)], "screen", round(6.75 * DOTS))
    assert (design.row > without.row) == shown


def test_a_figure_has_a_path_for_each_kind_on_each_stream():
    timeline, inside = timed_inside(3)
    plain, looked = plot(timeline), plot(timeline, insides=[inside])
    more = len(looked.axes[0].patches) - len(plain.axes[0].patches)
    assert more == 2 * (2 + 1)  # F and B, and their borders
    assert np.prod(looked.get_size_inches()) > np.prod(plain.get_size_inches())
