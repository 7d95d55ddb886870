"""What devices do beside compute, in every picture: strips, lines below devices, threads,
columns.
"""

import json

import numpy as np
import pytest

from ppsim.core.costs import costs_for
from ppsim.core.ops import Kind, Stream
from ppsim.core.timeline import Timeline
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure
from ppsim.schedules import generate
from ppsim.search.rules.offload import add_offload
from ppsim.show.drawing.gantt.layout import cells_of
from ppsim.show.drawing.gantt.panel import Panel
from ppsim.show.drawing.lanes import COLLECTIVE, COPY_IN, COPY_OUT, compute_row, streams_of
from ppsim.show.drawing.terminal import gantt
from ppsim.show.files.document import Document
from ppsim.show.files.writers import html, trace


@pytest.fixture
def copying() -> Timeline:
    schedule = generate("gis", devices=2, microbatches=4)
    costs = costs_for(schedule, others={Kind.OFFLOAD: 1.0, Kind.RELOAD: 1.0})
    return simulate(add_offload(schedule, costs, 1), costs)


@pytest.fixture
def sharing() -> Timeline:
    schedule = generate("vocab-2", devices=2, microbatches=6)
    return simulate(schedule, costs_for(schedule, others={Kind.S: 0.5, Kind.REDUCE_S: 0.25}))


def test_a_row_keeps_its_compute(copying):
    """Copies are in the lane, all else in the device's row, and what bound an op there is an op of
    the row.
    """
    row, lane = compute_row(copying), streams_of(copying)
    assert set(row.schedule.kind.tolist()) == {Kind.F, Kind.I, Kind.W}
    copies = np.isin(copying.schedule.kind, (Kind.OFFLOAD, Kind.RELOAD))
    assert lane is not None
    assert len(lane) == copies.sum()
    assert set(lane.band.tolist()) == {COPY_OUT, COPY_IN}
    assert row.bound.max() < len(row.schedule)
    assert len(cells_of(row)) == len(row.schedule)


def test_a_panel_has_strips(copying, sharing):
    assert Panel(copying, "").lane is not None
    assert set(Panel(sharing, "").lane.band.tolist()) == {COLLECTIVE}  # type: ignore[union-attr]


def chart(timeline: Timeline, lanes: bool) -> list[str]:
    group = gantt(timeline, measure(timeline), 100, colours=0, lanes=lanes)
    return [str(part) for part in group.renderables]


def test_a_line_below_each_device(copying, sharing):
    """With --lanes alone, two devices have two lines more and one says what the signs mean."""
    assert len(chart(copying, True)) == len(chart(copying, False)) + 3
    lines = chart(copying, True)
    assert set(lines[2].split()[0]) <= {">", "<", "x"}
    assert any("> copy out, < copy in" in line for line in lines)
    assert any("= collective" in line for line in chart(sharing, True))


def test_a_thread_for_each_stream(copying, tmp_path):
    with (tmp_path / "x.trace.json").open("wb") as out:
        trace.write(Document((copying,), ("x",), {}), out, ".trace.json")
    events = json.loads((tmp_path / "x.trace.json").read_bytes())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert names == {"compute", "idle", "copy out", "copy in"}
    threads = {event["tid"] for event in events if event["name"].endswith("OFFLOAD0")}
    assert threads == {trace.COLLECTIVES_THREAD + Stream.COPY_OUT}


def test_a_page_names_each_kind(sharing):
    """Its list of kinds reaches to the last that runs, as ops name theirs by number."""
    found = html.contents(Document((sharing,), ("x",), {}))
    assert found["looks"]["kinds"][Kind.S]["name"] == "output layer"
    assert len(found["looks"]["lane"]) > COPY_IN
