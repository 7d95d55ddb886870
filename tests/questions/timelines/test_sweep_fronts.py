"""A sweep over several numbers of devices, on each of which a 1/P share of the model is another:
none is ranked.
"""

import json
import re

import pytest

from tests.browser import shown
from tests.commands import invoke

WORDS = ("sweep", "1f1b", "zb-1p", "dualpipe", "--devices", "4,8", "--mb", "32")


@pytest.mark.parametrize("metric", ["peak", "makespan", "makespan_per_mb"])
def test_the_least_is_told_for_each_number_of_devices(metric):
    """Of shares of time, which have no unit, one sentence is for all."""
    lines = invoke(*WORDS, "--metric", metric, "-q").output.splitlines()
    assert [
        re.findall(r"on (\d) devices with 32 microbatches has the least", line) for line in lines
    ] == [["4"], ["8"]]
    assert len(invoke(*WORDS, "--metric", "bubble_rate", "-q").output.splitlines()) == 1


def test_a_shape_is_on_the_front_of_its_number_of_devices():
    """JSON, table and picture have one front for each: here the same schedules, though 8 devices
    take longer.
    """
    rows = json.loads(invoke(*WORDS, "--json").stdout)["shapes"]
    best = {
        devices: {r["name"] for r in rows if r["devices"] == devices and r["pareto"]}
        for devices in (4, 8)
    }
    assert best == {4: {"zb-1p", "dualpipe"}, 8: {"zb-1p", "dualpipe"}}


def test_a_figure_has_a_panel_for_each_number_of_devices(tmp_path):
    """One axis of memory and one of time each, with the number above; one number has no title."""
    path = tmp_path / "front.svg"
    for words, panels in ((WORDS, ["4 devices", "8 devices"]), ((*WORDS[:5], "4", *WORDS[6:]), [])):
        assert invoke(*words, "-o", str(path)).exit_code == 0
        text = path.read_text("utf-8")
        assert [title for title in ("4 devices", "8 devices") if f">{title}<" in text] == panels
        assert len(re.findall(r"peak activations \(of a device", text)) >= max(len(panels), 1)


@pytest.mark.browser
def test_a_page_shows_one_number_of_devices_at_a_time(tmp_path):
    """The first is chosen; chart and table have its points alone."""
    path = tmp_path / "front.html"
    assert invoke(*WORDS, "-o", str(path)).exit_code == 0
    dom = shown(path.as_uri(), tmp_path)
    table = dom[dom.index('id="table"') : dom.index('id="heat"')]
    assert re.findall(r"(\w+[\w-]*) (\d)x32", table).count(("zb-1p", "4")) == 1
    assert "8x32" not in table
    assert "8 devices</option>" in dom
