"""Time against memory as a page: every point, what it is made from, and nothing from elsewhere."""

import json
import re

import pytest

from ppsim.analysis.tradeoff import Point, tradeoff
from ppsim.show.files.tradeoff import front_page
from tests.browser import opened

POINTS = [
    Point("1f1b", 33, 4),
    Point("gpipe", 33, 8),
    Point("zb-1p", 27, 4),
    Point("dualpipe", 26, 5),
]


def page(points, **inputs):
    time, memory = "makespan (t_F)", "peak activations"
    return front_page(tradeoff(points), time=time, memory=memory, inputs=inputs).decode()


def data_of(text):
    block = re.search(r'id="ppsim-data">(.*?)</script>', text, re.S)
    assert block
    return json.loads(block[1])


def test_the_page_has_every_point_and_says_how_it_was_made():
    """No address to load from; the inputs are in the page, markup in them is text; equal inputs
    give equal bytes.
    """
    name = "</script><b>x</b>"
    text = page([*POINTS, Point(name, 25, 9)], command=f"ppsim compare {name}", ppsim="0")
    assert not re.findall(r"<(?:script|link|img|iframe)[^>]* (?:src|href)=\"(?!data:)", text)
    assert text == page([*POINTS, Point(name, 25, 9)], command=f"ppsim compare {name}", ppsim="0")
    data = data_of(text)
    assert data["inputs"] == {"command": f"ppsim compare {name}", "ppsim": "0"}
    found = {(p["name"], p["time"], p["memory"], p["best"]) for p in data["points"]}
    assert found == {
        ("1f1b", 33, 4, False),
        ("gpipe", 33, 8, False),
        ("zb-1p", 27, 4, True),
        ("dualpipe", 26, 5, True),
        (name, 25, 9, True),
    }
    assert len(text) < 200_000


def test_schedules_look_different_and_groups_have_fronts_of_their_own():
    points = [
        Point(f"s{n}:{v} {p}x8", 100 / p + n + v, 4 * p + n, f"s{n}", f"{p} devices")
        for n in range(20)
        for v in (1, 2)
        for p in (4, 8)
    ]
    data = data_of(page(points))
    looks = [(tuple(look["colour"]), look["shape"]) for look in data["families"].values()]
    assert len(set(looks)) == len(looks) == 20
    assert data["grouped"]
    assert {p["group"] for p in data["points"] if p["best"]} == {"4 devices", "8 devices"}


@pytest.mark.browser
def test_a_browser_draws_every_point(tmp_path):
    """One mark and one row per point, the names and both labels, in a page without a fault."""
    dom = opened(page(POINTS, command="ppsim compare"), tmp_path)
    assert 'data-state="drawn"' in dom
    assert len(re.findall(r'<path class="point" data-place="\d', dom)) == len(POINTS)
    assert len(re.findall(r'<tr data-place="\d', dom)) == len(POINTS)
    for word in ("dualpipe", "gpipe", "makespan (t_F)", "peak activations"):
        assert re.search(rf">{re.escape(word)}</", dom), word


def test_numbers_read_as_in_the_terminal():
    """A half is rounded as everywhere else, so a table and the heat map beside it agree."""
    assert data_of(page([Point("a", 3.140625, 5.5), Point("b", 12345678.9, 4)]))["points"][0][
        "text"
    ] == [
        "3.141",
        "5.5",
    ]


@pytest.mark.browser
def test_a_narrow_page_draws_a_narrow_chart(tmp_path):
    """Its texts keep their size: the chart is as wide as the page, not made smaller with all in
    it.
    """
    found = re.search(r'viewBox="0 0 (\d+) (\d+)"', opened(page(POINTS), tmp_path, "520,900"))
    assert found
    assert int(found[1]) < 520
