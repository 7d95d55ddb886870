"""Recompute in pictures: the forward's colour, hatched, with a letter of its own in the
terminal.
"""

import io
import json
import re

import numpy as np
import pytest
from rich.console import Console

from ppsim.core.costs import costs_for
from ppsim.core.ops import TIMED, Kind
from ppsim.core.recompute import add_recompute
from ppsim.core.timeline import Timeline
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure
from ppsim.schedules import generate
from ppsim.show.drawing.canvas import write_figure
from ppsim.show.drawing.gantt.figure import plot
from ppsim.show.drawing.gantt.layout import cells_of, raster
from ppsim.show.drawing.palette import (
    DEFAULT,
    FEW_COLOURS,
    HATCHED_SHARE,
    LEVELS,
    MANY_COLOURS,
    blend,
)
from ppsim.show.drawing.terminal import gantt
from tests.browser import opened
from tests.pages import page


def timed(recompute: bool = True) -> Timeline:
    schedule = generate("1f1b", devices=2, microbatches=3)
    schedule = add_recompute(schedule) if recompute else schedule
    return simulate(schedule, costs_for(schedule))


def svg(timeline: Timeline) -> str:
    out = io.BytesIO()
    write_figure(lambda: plot(timeline), out, ".svg", title="", inputs={})
    return out.getvalue().decode()


@pytest.mark.slow
def test_figures_hatch_recomputes_and_name_them():
    """One pattern for cells, one for the legend's box; without recompute there is neither."""
    with_r, without = svg(timed()), svg(timed(recompute=False))
    assert "Recompute" in with_r
    assert "<pattern" in with_r
    assert "Recompute" not in without
    assert "<pattern" not in without


def test_hatching_has_the_colours_of_the_forward():
    fills = DEFAULT.fill(Kind.F)
    assert DEFAULT.fill(Kind.R) == fills
    assert DEFAULT.hatch(Kind.R) == (*LEVELS // 2 * fills[-1:], *LEVELS // 2 * fills[:1])
    assert [bool(line) for line in DEFAULT.lines] == [
        kind == Kind.R for kind in TIMED for _ in range(LEVELS)
    ]


def test_where_lines_would_be_too_fine_both_colours_blend():
    """The pixel of an R is the mean of its fill and lines."""
    timeline = timed()
    cells = cells_of(timeline)
    image = raster(cells, 2, timeline.makespan, timeline.makespan, 2, round(timeline.makespan))
    op = int(np.flatnonzero(timeline.schedule.kind == Kind.R)[0])
    red, green, blue = image[0, int(timeline.start[op])]
    assert f"#{red:02X}{green:02X}{blue:02X}" == blend(
        DEFAULT.hatch(Kind.R)[0], DEFAULT.fill(Kind.R)[0], HATCHED_SHARE
    )


@pytest.mark.parametrize(
    ("colours", "encoding", "row", "sign"),
    [
        (0, "utf-8", "dev 0 F0F1R0····B0──F2R1B1──R2··B2──  20.0% idle  peak 1", "R recompute"),
        (FEW_COLOURS, "utf-8", "dev 0 0 1 R0", "╱R╱ recompute"),
        (MANY_COLOURS, "utf-8", "dev 0 0 1 R0", "╱R╱ recompute"),
        (MANY_COLOURS, "ascii", "dev 0 0 1 R0", "/R/ recompute"),
    ],
)
def test_terminals_show_recomputes_by_their_letter(colours, encoding, row, sign):
    timeline = timed()
    out = io.StringIO()
    screen = Console(file=out, width=100)
    screen.print(gantt(timeline, measure(timeline), 100, colours, encoding))
    chart = out.getvalue()
    assert row in chart
    assert sign in chart


def test_pages_know_of_recompute_only_where_it_occurs():
    """R comes last among the kinds, with the colours of its lines."""
    looks = []
    for timeline in (timed(), timed(recompute=False)):
        block = re.search(r'id="ppsim-data">(.*?)</script>', page(timeline), re.S)
        assert block
        looks.append(json.loads(block[1])["looks"]["kinds"])
    assert [kind["letter"] for kind in looks[0]] == ["F", "B", "I", "W", "R"]
    assert looks[0][-1]["hatch"] == [DEFAULT.hatch(Kind.R)[0], DEFAULT.hatch(Kind.R)[-1]]
    assert looks[1] == looks[0][:-1]
    assert not any("hatch" in kind for kind in looks[1])


@pytest.mark.browser
def test_a_browser_draws_the_hatching(tmp_path):
    """Patterns are defined and used, and the legend names them."""
    dom = opened(page(timed()), tmp_path)
    assert '<pattern id="hatch-8"' in dom
    assert 'fill="url(#hatch-8)"' in dom
    assert "repeating-linear-gradient" in dom
    assert "Recompute" in dom
