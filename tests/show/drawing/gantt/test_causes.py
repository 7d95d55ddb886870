"""Bubbles coloured by cause, in figures and pages: every segment in its colour, a legend of those
that occur.
"""

import re
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.colors import to_hex

from ppsim.analysis.idle import CAUSES, NAMES, arrivals, explain_idle
from ppsim.core.costs import costs_for
from ppsim.engine.simple.longest_path import simulate
from ppsim.schedules import generate
from ppsim.show.drawing.gantt.figure import plot
from ppsim.show.drawing.gantt.layout import cells_of, idle_cells, join_cells, raster
from ppsim.show.drawing.legend import legend_entries
from ppsim.show.drawing.palette import BUBBLE_DARK, CAUSE_DARK, CAUSE_FILL, COLOURS, luminance
from ppsim.show.files.document import Document
from ppsim.show.files.writers.html import contents
from tests.browser import opened


def idle_of(name="1f1b", devices=4, microbatches=8, **times):
    schedule = generate(name, devices=devices, microbatches=microbatches)
    costs = costs_for(schedule, **{"comm": 0.3, **times})
    timeline = simulate(schedule, costs)
    return explain_idle(timeline, arrivals(timeline, costs.latencies(schedule)))


def lightness(colour):
    """L* of CIE Lab, from 0 to 100: how light a colour is in grey."""
    y = luminance(colour)
    return 116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y


def lab(colour):
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    xyz = to_xyz @ linear / np.array([0.95047, 1.0, 1.08883])
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_every_cause_has_a_colour_of_its_own():
    """In the order of the causes; apart in grey by 5 of 100 steps of lightness, and from every op's
    colour.
    """
    assert [*CAUSE_FILL] == [*CAUSE_DARK] == [*CAUSES]
    assert len({*CAUSE_DARK.values(), BUBBLE_DARK}) == len(CAUSES) + 1
    greys = sorted(map(lightness, CAUSE_FILL.values()))
    assert min(right - left for left, right in pairwise(greys)) >= 5
    ops = [lab(fill) for shades in COLOURS.values() for fill in shades[:2]]
    assert (
        min(float(np.linalg.norm(lab(cause) - op)) for cause in CAUSE_FILL.values() for op in ops)
        >= 15
    )


@pytest.mark.parametrize("style", ["screen", "paper"])
def test_a_figure_has_every_segment_in_its_colour(style):
    """The rectangles of a cause's colour are its segments, on their devices."""
    idle = idle_of(tf=[1, 1.5, 1, 1])
    (axes,) = plot(idle.timeline, idles=[idle], style=style).axes
    for cause, name in enumerate(NAMES):
        patches = [
            patch
            for patch in axes.patches
            if to_hex(patch.get_facecolor()).upper() == CAUSE_FILL[name].upper()
        ]
        own = idle.cause == cause
        assert len(patches) == own.any()
        for patch in patches:
            corners = np.asarray(patch.get_path().vertices).reshape(-1, 5, 2)
            np.testing.assert_allclose(corners[:, 0, 0], idle.start[own])
            np.testing.assert_allclose(corners[:, 1, 0], idle.end[own])
            assert np.floor(corners[:, 0, 1]).astype(int).tolist() == idle.device[own].tolist()


def test_the_legend_names_the_causes_that_occur():
    idle = idle_of()
    names = [entry.name for entry in legend_entries([idle.timeline], (), {*idle.by_cause})]
    assert names[2:] == [
        "Idle: message",
        "Idle: compute",
        "Idle: fill",
        "Idle: turnaround",
        "Idle: drain",
    ]
    assert "Bubble" in [entry.name for entry in legend_entries([idle.timeline])]


def test_a_raster_mixes_causes_by_area():
    """Device 3 ends with drain: its last pixels have that colour alone."""
    idle = idle_of()
    timeline = idle.timeline
    cells = join_cells(cells_of(timeline), idle_cells(idle))
    image = raster(cells, 4, timeline.makespan, timeline.makespan, 4, 500)
    assert "#{:02X}{:02X}{:02X}".format(*image[3, -3]) == CAUSE_FILL["drain"]
    assert "#{:02X}{:02X}{:02X}".format(*image[3, 3]) == CAUSE_FILL["fill"]


def page_of(*idles):
    from io import BytesIO

    from ppsim.show.files.writers.html import write

    out = BytesIO()
    timelines = tuple(idle.timeline for idle in idles)
    write(Document(timelines, tuple(t.schedule.name for t in timelines), idles=idles), out, ".html")
    return out.getvalue().decode()


def test_a_page_holds_every_segment_before_an_op():
    """With the op that ends it, its cause, who is to blame and its length where another follows
    before the op.
    """
    idle = idle_of()
    document = Document((idle.timeline,), ("a",), idles=(idle,))
    data = contents(document, lambda column: column.tolist())
    waits, before = data["timelines"][0]["waits"], idle.op >= 0
    assert waits["op"] == idle.op[before].tolist()
    lengths = (idle.end - idle.start)[before] * (np.append(np.diff(idle.op), 1)[before] == 0)
    assert waits["length"] == pytest.approx(lengths.tolist())
    assert [data["looks"]["causes"][cause]["name"] for cause in waits["cause"]] == [
        NAMES[c] for c in idle.cause[before]
    ]
    assert waits["blamed"] == idle.blamed[before].tolist()
    assert {NAMES[cause] for cause in idle.cause[~before]} == {"drain"}


@pytest.mark.browser
@pytest.mark.parametrize("shape", [("1f1b", 4, 8), ("zb-1p", 16, 128)])
def test_a_browser_draws_the_causes(shape, tmp_path):
    """As cells and as pixels: the page draws without a fault, its legend names the causes, the
    switch is there.
    """
    dom = opened(page_of(idle_of(*shape)), tmp_path)
    legend = re.search(r'<ul id="legend".*?</ul>', dom, re.S)
    assert legend
    assert "Idle: turnaround" in legend[0]
    assert "Bubble" not in legend[0]
    switch = re.search(r'<button id="causes"[^>]*>', dom)
    assert switch
    assert "hidden" not in switch[0]


@pytest.mark.browser
def test_a_bubble_says_its_cause_and_switches_to_grey(tmp_path):
    """The pointer over a bubble tells its cause and the op to blame; B makes all bubbles grey."""
    act = """<script type="module">
      const wait = () => new Promise(done => setTimeout(done, 50));
      while (document.documentElement.dataset.state !== 'drawn') await wait();
      const box = document.getElementById('chart').getBoundingClientRect();
      const at = { bubbles: true, clientX: box.left + 150, clientY: box.top + 20 };
      document.getElementById('chart').dispatchEvent(new PointerEvent('pointermove', at));
      document.body.dataset.tip = document.getElementById('tip').textContent;
      dispatchEvent(new KeyboardEvent('keydown', { key: 'b' }));
      document.body.dataset.legend = document.getElementById('legend').textContent;
    </script></body>"""
    page = page_of(idle_of(comm=0.0, tb=30.0)).replace("</body>", act)
    body = re.search(r"<body[^>]*>", opened(page, tmp_path))
    assert body
    assert "turnaround" in body[0]
    assert "the first backward has not come yet: 3B0 on device 3" in body[0]
    assert 'data-legend="ForwardBackwardBubble"' in body[0]
