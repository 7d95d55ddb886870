"""The cluster as a picture: a place for each device, a curve for each link, equals in one row of the table."""

import re

import pytest

import ppsim
from ppsim.show.drawing.cluster_map import MOST_DEVICES, cluster_map

TWO_NODES = "gallery/two-nodes.toml"


def executed(schedule, devices, **options):
    return ppsim.run(schedule, devices=devices, mb=8, unit="ms", tf=2, tb=4, cluster=TWO_NODES, **options).execution


def test_links_are_as_thick_as_what_they_carry():
    """Of 1F1B each link carries the same; interleaved, the link that closes the circle carries less."""
    text = cluster_map(executed("1f1b", 4), 2)
    assert text.count('class="node"') == 2
    assert text.count('class="device"') == 4
    widths = re.findall(r'stroke-width="([\d.]+)"', text)
    assert widths == ["6.0"] * 6
    text = cluster_map(executed("interleaved", 4), 2)
    widths = re.findall(r'stroke-width="([\d.]+)"', text)
    assert len(widths) == 8
    assert sorted(set(widths)) == ["3.8", "6.0"]
    assert "device 3: busy" in text


def test_the_table_begins_with_the_most_used_and_joins_equals():
    text = cluster_map(executed("1f1b", 4), 2)
    rows = re.findall("<tr><td>(.*?)</td><td>(.*?)</td>", text)
    assert rows == [("1 → 2, 2 → 1", "between nodes"), ("0 → 1, 1 → 0, 2 → 3, 3 → 2", "inside a node")]
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
