"""Time against memory as a page: every point, what it is made from, and nothing from elsewhere."""

import io
import json
import re

import pytest

from ppsim.analysis.tradeoff import Point, tradeoff
from ppsim.drawing.tradeoff_page import FEW, chart_of, write_page
from tests.pages import BROWSER, opened

POINTS = [Point("1f1b", 33, 4), Point("gpipe", 33, 8), Point("zb-1p", 27, 4), Point("dualpipe", 26, 5)]


def page(points, **inputs):
    out = io.BytesIO()
    write_page(tradeoff(points), out, time="makespan (t_F)", memory="peak activations", inputs=inputs)
    return out.getvalue().decode()


def test_the_front_goes_from_fast_to_lean_and_every_point_is_there():
    """The front is one line in the order of time; the other points are beside it, all with their names."""
    front, others = chart_of(tradeoff(POINTS), "time", "memory").data
    assert (list(front.x), list(front.y), list(front.text)) == ([26, 27], [5, 4], ["dualpipe", "zb-1p"])
    assert sorted(zip(others.x, others.y, others.text, strict=True)) == [(33, 4, "1f1b"), (33, 8, "gpipe")]
    assert "text" in others.mode


def test_a_crowd_has_names_on_the_front_only():
    """More names than can be read beside each other are told by the pointer alone."""
    crowd = [Point(f"s{i}", i + 1, i + 1) for i in range(FEW + 1)]
    front, others = chart_of(tradeoff(crowd), "time", "memory").data
    assert ("text" in front.mode, "text" in others.mode) == (True, False)
    assert len(others.text) == FEW


def test_the_page_is_whole_and_says_how_it_was_made():
    """No address to load from, no button that sends data away; the inputs are in the page, markup in them is text."""
    name = "</script><b>x</b>"
    text = page([*POINTS, Point(name, 25, 9)], command=f"ppsim compare {name}", ppsim="0")
    assert not re.findall(r"<(?:script|link|img|iframe)[^>]* (?:src|href)=\"(?!data:)", text)
    block = re.search(r'id="ppsim-data">(.*?)</script>', text, re.S)
    assert block
    assert json.loads(block[1]) == {"command": f"ppsim compare {name}", "ppsim": "0"}
    assert text == page([*POINTS, Point(name, 25, 9)], command=f"ppsim compare {name}", ppsim="0")
    shown = re.search(r'"modeBarButtons": ?(\[\[.*?\]\])', text)
    assert shown
    assert not set(json.loads(shown[1])[0]) & {"sendDataToCloud", "editInChartStudio"}


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no chromium or chrome on the path")
def test_a_browser_draws_every_point(tmp_path):
    """One marker per point, the names and both labels, in a page without a fault."""
    text = page(POINTS, command="ppsim compare").replace("<body>", '<body><p id="fault"></p>')
    dom = opened(text, tmp_path)
    drawn = dom[dom.index('<svg class="main-svg"') :]
    assert len(re.findall(r'<path class="point"', drawn)) == len(POINTS)
    for word in ("dualpipe", "gpipe", "makespan (t_F)", "peak activations", "Pareto front"):
        assert re.search(rf">{re.escape(word)}</", drawn), word
    assert all(f">{point.name}</" in drawn for point in POINTS)
