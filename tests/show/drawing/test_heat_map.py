"""A sweep's heat map shows every cell's value, the best of each column, and what does not apply."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from ppsim.analysis.heat import heat_map, shades_of
from ppsim.engine.simple.columns import columns_of
from ppsim.show.drawing.heat_map import figure_of
from ppsim.show.drawing.palette import luminance
from tests.commands import invoke

SWEEP = ["sweep", "gpipe", "1f1b", "zb-1p", "dualpipe", "--devices", "2,4", "--mb", "2,4,8"]
BUBBLE = "bubble_rate"


@pytest.fixture(scope="module")
def heat():
    rows = json.loads(invoke(*SWEEP, "--json").stdout)["shapes"]
    return heat_map([column for column in columns_of("sweep") if not column.of_round], rows), rows


def test_shades_turn_as_a_whole_on_a_dark_page(tmp_path):
    target = tmp_path / "x.svg"
    assert invoke(*SWEEP, "--heat", "-q", "-o", str(target)).exit_code == 0
    svg = target.read_text()
    [rules] = re.findall(
        r"<style>@media screen and \(prefers-color-scheme:dark\)\{(.*)\}</style>", svg
    )
    assert rules.startswith("#shaded>:not(#patch_1){filter:invert(")
    assert svg.count('<g id="shaded">') == svg.count('<g id="patch_1">') == 1


def test_every_cell_has_its_rows_value(heat):
    found, rows = heat
    assert found.microbatches == (2, 4, 8)
    assert [devices for _, devices in found.rows] == sorted(devices for _, devices in found.rows)
    for number, column in enumerate(found.columns):
        for row in rows:
            if not row["applies"]:
                continue
            place = found.rows.index((row["name"], row["devices"]))
            across = found.microbatches.index(row["microbatches"])
            assert found.values[number, place, across] == row[column.key]
    assert np.isnan(found.values).any()  # dualpipe takes few of these shapes


def test_the_best_of_a_column_is_the_least_on_as_many_devices(heat):
    found, _ = heat
    devices = np.array([count for _, count in found.rows])
    for number, _ in enumerate(found.columns):
        for count in (2, 4):
            block = found.values[number][devices == count]
            assert (
                found.best[number][devices == count] == (block == np.nanmin(block, axis=0))
            ).all()


def test_shades_go_from_the_least_to_the_most():
    assert shades_of(np.array([[1.0, 3.0], [np.nan, 2.0]])).tolist()[0] == [0.0, 1.0]
    assert shades_of(np.array([[5.0, 5.0]])).tolist() == [[0.0, 0.0]]


def test_the_figure_has_each_value_once_in_ink_that_can_be_read(heat):
    found, _ = heat
    number = next(n for n, column in enumerate(found.columns) if column.key == BUBBLE)
    figure = figure_of(found, BUBBLE, 5)
    axes = figure.axes[0]
    texts = sorted(text.get_text() for text in axes.texts)
    values = found.values[number]
    assert texts == sorted(found.columns[number].text(value) for value in values[~np.isnan(values)])
    assert sum(text.get_fontweight() == "bold" for text in axes.texts) == found.best[number].sum()
    assert sum(patch.get_hatch() is not None for patch in axes.patches) == np.isnan(values).sum()
    cells = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    fills = {cell.get_xy(): cell.get_facecolor() for cell in cells}
    for text in axes.texts:
        fill = fills[text.get_position()[0] - 0.5, text.get_position()[1] - 0.5]
        below = luminance("#" + "".join(f"{round(255 * channel):02X}" for channel in fill[:3]))
        ink = luminance(text.get_color())
        assert (max(ink, below) + 0.05) / (min(ink, below) + 0.05) >= 4.5


@pytest.mark.slow
def test_sweep_draws_the_map_and_its_page_has_every_metric(tmp_path):
    result = invoke(
        *SWEEP, "--heat", "-q", "-o", str(tmp_path / "x.svg"), "-o", str(tmp_path / "x.html")
    )
    assert result.exit_code == 0, result.output
    assert "M = 8" in (tmp_path / "x.svg").read_text()
    block = re.search(r'id="ppsim-data">(.*?)</script>', (tmp_path / "x.html").read_text(), re.S)
    assert block
    heat = json.loads(block[1])["heat"]
    told = [each["heading"].split(" (")[0] for each in heat["maps"]]
    names = [column.heading for column in columns_of("sweep") if not column.of_round]
    [first] = [column.heading for column in columns_of("sweep") if column.key == BUBBLE]
    # the metric asked for, then all others
    assert told == [first, *(name for name in names if name != first)]


@pytest.mark.sampled(9)
@pytest.mark.parametrize(("columns", "width"), [(8, 6.75), (24, 6.75), (64, 6.75), (64, 3.3)])
def test_headings_of_many_columns_do_not_run_into_each_other(heat, columns, width):
    """The help's own example has 64 columns; cells too small for a value have a dot where they are
    best.
    """
    found, _ = heat
    shape = (len(found.columns), 1, columns)
    values = np.broadcast_to(np.linspace(0.5, 0.01, columns), shape)
    many = replace(
        found,
        rows=found.rows[:1],
        microbatches=tuple(range(8, 8 * columns + 8, 8)),
        values=values,
        best=values < 0.3,
    )
    figure = figure_of(many, BUBBLE, width)
    figure.canvas.draw()
    axes = figure.axes[0]
    boxes = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
    assert len(boxes) >= 4
    assert all(one.x1 < other.x0 for one, other in pairwise(boxes))
    cells = {text.get_text() for text in axes.texts}
    small = columns / width > 9
    assert (cells == {"•"}) == small
    assert ("dot: the least" in figure.texts[0].get_text()) == small
