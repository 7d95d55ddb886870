"""The cluster as a picture: a place for each device, a curve for each link, equals in one row of
the table.
"""

import json
import re
from typing import Any

import numpy as np
import pytest

import ppsim
from ppsim.show.drawing.cluster_map import MOST_DEVICES, cluster_map
from ppsim.show.drawing.lanes import lane_of
from tests.browser import started

TWO_NODES = "gallery/two-nodes.toml"


def executed(schedule, devices, **options) -> Any:
    return ppsim.run(
        schedule,
        devices=devices,
        microbatches=8,
        unit="ms",
        tf=2,
        tb=4,
        cluster=TWO_NODES,
        **options,
    ).execution


def test_links_are_as_thick_as_what_they_carry():
    """Of 1F1B each link carries the same; interleaved, the link that closes the circle carries
    less.
    """
    text = cluster_map(executed("1f1b", 4), 2)
    assert text.count('class="node"') == 2
    assert text.count('class="device"') == 4
    widths = re.findall(r'stroke-width="([\d.]+)"', text)
    assert widths == ["6.0"] * 6
    text = cluster_map(executed("interleaved", 4), 2)
    widths = re.findall(r'stroke-width="([\d.]+)"', text)
    assert len(widths) == 8
    assert sorted(set(widths)) == ["3.8", "6.0"]
    assert "device 3: stages 3, 7; busy" in text


def test_long_links_stay_inside_the_picture():
    """A curve reaches three quarters of the way to its handles."""
    text = cluster_map(executed("interleaved", 16), 16)
    [high] = re.findall(r'viewBox="-2 0 \d+ (\d+)"', text)
    curves = [
        [float(y) for y in path]
        for path in re.findall(r'd="M\S+ (\S+)C\S+ (\S+) \S+ \S+ \S+ \S+"', text)
    ]
    reached = [start + 0.75 * (handle - start) for start, handle in curves]
    assert len(curves) == 32
    assert min(reached) >= 3
    assert max(reached) <= float(high) - 3


def test_the_table_begins_with_the_most_used_and_joins_equals():
    text = cluster_map(executed("1f1b", 4), 2)
    rows = re.findall("<tr><td>(.*?)</td><td>(.*?)</td>", text)
    assert rows == [
        ("1 → 2, 2 → 1", "between nodes"),
        ("0 → 1, 1 → 0, 2 → 3, 3 → 2", "inside a node"),
    ]
    shares = [float(share) for share in re.findall(r"([\d.]+)%</td></tr>", text)]
    assert shares == sorted(shares, reverse=True)


def test_a_device_is_filled_by_the_time_it_is_busy():
    execution = executed("1f1b", 4)
    heights = re.findall(r'height="([\d.]+)" class="busy"', cluster_map(execution, 2))
    share = 8 * 6 / execution.makespan
    assert [float(height) for height in heights] == pytest.approx([38 * share] * 4, abs=0.06)


def test_no_picture_of_too_many_devices(monkeypatch):
    execution = executed("1f1b", 4)
    monkeypatch.setattr("ppsim.show.drawing.cluster_map.MOST_DEVICES", 3)
    assert cluster_map(execution, 2) == ""
    assert MOST_DEVICES > 64


def test_a_page_of_a_cluster_is_small_though_all_its_times_differ(tmp_path):
    """Sixteen devices of two chunks with times of their own on eight nodes: under 150 kB, map and
    links included.
    """
    times = np.random.default_rng(1).uniform(0.9, 1.1, 32).round(4).tolist()
    shape = {"devices": 16, "mb": 64, "unit": "ms", "tf": times, "tb": times, "cost_per": "stage"}
    ppsim.run("interleaved", cluster=TWO_NODES, **shape).save(str(tmp_path / "x.html"))
    assert (tmp_path / "x.html").stat().st_size < 200_000


@pytest.mark.browser
def test_the_map_follows_the_time_of_the_slider_and_of_the_pointer(tmp_path):
    """At every time it shows the op that each device runs and the links that carry a message
    then.
    """
    answer = ppsim.run(
        "interleaved", devices=4, microbatches=8, unit="ms", tf=2, tb=4, cluster=TWO_NODES
    )
    answer.save(str(target := tmp_path / "x.html"))
    assert answer.execution
    timeline, lane = answer.timeline, lane_of(answer.execution)
    shown = """JSON.stringify([
      [...document.querySelectorAll('.map .doing')].map(text => text.textContent),
      [...document.querySelectorAll('.map [data-link]:not(.rests)')]
        .map(link => link.dataset.link)])"""
    with started(tmp_path) as browser:
        browser.ask(
            "Emulation.setDeviceMetricsOverride",
            width=1280,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        browser.open(target.as_uri())
        browser.wait("document.documentElement.dataset.state === 'drawn'")
        for share in (100, 400, 555, 900):
            browser.run(f"moment.value = {share}; moment.dispatchEvent(new Event('input'))")
            time = share / 1000 * timeline.makespan
            doing, links = json.loads(browser.run(shown))
            running = (timeline.start <= time) & (time < timeline.end)
            assert sum(map(bool, doing)) == running.sum()
            schedule = timeline.schedule
            for op in np.flatnonzero(running):
                name = f"{schedule.stage[op]}{'FBIWR'[schedule.kind[op]]}{schedule.microbatch[op]}"
                assert doing[schedule.device[op]] in (name, name.replace("I", "B"))
            carrying = np.flatnonzero((lane.left <= time) & (time < lane.right))
            assert set(links) == {f"{lane.device[i]}-{lane.target[i]}" for i in carrying}
        browser.run("document.getElementById('whole').click()")
        doing, links = json.loads(browser.run(shown))
        assert (set(doing), len(links)) == ({""}, 8)
        x, y = browser.middle("#chart")
        browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        assert "devices compute" in browser.run(
            "document.getElementById('moment-said').textContent"
        )
