"""Pictures of trust: each published run with its range at its place, each schedule's spread as it
was drawn.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PathCollection, PolyCollection

from ppsim.analysis.jitter import Sampled
from ppsim.schedules import generate
from ppsim.show.drawing.trust import chart_notes, draw_published, draw_spread
from ppsim.show.files.chart import save_chart
from tests.browser import started
from tests.commands import invoke, refused


def run(name, gpu, measured, predicted, low, high):
    """A row as plan --against has it."""
    row = {"id": name, "gpu": gpu, "measured_step_s": measured, "predicted_step_s": predicted}
    row |= {"low_s": low, "high_s": high}
    return row | ({"error": predicted / measured - 1} if measured else {})


ROWS = [
    run("a", "h100", 2.0, 2.2, 2.0, 2.5),
    run("b", "h100", 8.0, 6.0, 5.0, 7.0),
    run("c", "b200", 1.0, 1.0, 0.9, 1.2),
    run("d", "b200", None, 3.0, 2.0, 4.0),
    {"id": "e", "reason": "the library has no such GPU"},
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("width", [3.3, 6.75])
@pytest.mark.parametrize("seconds", [(3.0, 4.0), (3.3, 54.0), (0.2, 21.0), (0.02, 600.0)])
def test_numbers_of_steps_stand_apart(width, seconds):
    """For times within a decade, around one, and over several."""
    figure = draw_published([run("a", "h100", s, s, s, s) for s in seconds], width)
    steps, _ = figure.axes
    figure.draw_without_rendering()
    labels = [*steps.get_xticklabels(), *steps.get_xticklabels(minor=True)]
    low, high = steps.get_xlim()
    boxes = sorted(
        (box.x0, box.x1)
        for label in labels
        if label.get_text() and low <= label.get_position()[0] <= high
        for box in [label.get_window_extent()]
    )
    assert len(boxes) > 1
    assert all(left[1] < right[0] for left, right in pairwise(boxes))


@pytest.mark.parametrize("width", [3.3, 6.75])
def test_every_compared_run_is_a_point_with_its_range(width):
    steps, errors = draw_published(ROWS, width).axes
    points = np.concatenate(
        [each.get_offsets() for each in steps.collections if isinstance(each, PathCollection)]
    )
    assert sorted(points.tolist()) == [[1.0, 1.0], [2.0, 2.2], [8.0, 6.0]]
    bars = [
        bar
        for each in steps.collections
        if isinstance(each, LineCollection)
        for bar in each.get_segments()
    ]
    assert sorted(bar.tolist() for bar in bars) == [
        [[1, 0.9], [1, 1.2]],
        [[2, 2.0], [2, 2.5]],
        [[8, 5.0], [8, 7.0]],
    ]
    legend = steps.get_legend()
    assert legend
    assert [text.get_text() for text in legend.get_texts()] == ["h100 (2)", "b200 (1)"]
    assert {text.get_text() for text in errors.texts} == {
        "50% of runs:\nwithin 10.0%",
        "90% of runs:\nwithin 25.0%",
    }


def test_what_is_not_drawn_is_said():
    said = " ".join(chart_notes(ROWS, 3.3))
    assert said.startswith("3 of 5 runs;")
    assert "cannot be predicted: 1." in said
    assert "Without a measured step: 1." in said
    assert "Without" not in " ".join(chart_notes(ROWS[:3], 3.3))


def test_hills_stand_where_the_samples_are():
    schedule = generate("1f1b", devices=2, microbatches=2)
    rng = np.random.default_rng(0)
    spread = [
        Sampled(name, schedule, "ms", 9.0, rng.normal(mean, 0.2, 4_000))
        for name, mean in (("a", 10.0), ("b", 14))
    ]
    (axes,) = draw_spread(spread, 5.0).axes
    hills = [
        np.asarray(each.get_paths()[0].vertices)
        for each in axes.collections
        if isinstance(each, PolyCollection)
    ]
    tops = [hill[hill[:, 1].argmin()] for hill in hills]
    assert [top[0] for top in tops] == pytest.approx([10.0, 14.0], abs=0.2)
    assert [top[1] for top in tops] == pytest.approx([-0.82, 0.18])
    marks = [
        each.get_segments()[0][0][0]
        for each in axes.collections
        if isinstance(each, LineCollection)
    ]
    assert marks == pytest.approx(
        [np.percentile(each.makespans, p) for each in spread for p in (50, 95, 99)]
    )
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]


JITTER = ("jitter", "1f1b", "zb-1p", "--devices", "2", "--mb", "4", "--samples", "60", "-q")


@pytest.mark.slow
def test_a_page_holds_the_picture_and_its_table(tmp_path):
    target = tmp_path / "x.html"
    assert invoke(*JITTER, "-o", str(target)).exit_code == 0
    page = target.read_text()
    assert page.count("<svg") == 2  # one for phones
    assert page.count('<svg class="phone"') == 1
    assert '<th scope="row">zb-1p</th>' in page
    assert "fastest in" in page
    assert "ppsim jitter 1f1b zb-1p" in page
    invoke(*JITTER, "-o", str(tmp_path / "y.html"))
    assert (tmp_path / "y.html").read_text() == page


def page_of_published(folder, runs, *, headings, cells, left):
    """The text of a page of published runs and their table, saved as ``x.html``."""
    save_chart(
        lambda width: draw_published(runs, width),
        6.75,
        str(folder / "x.html"),
        ".html",
        title="T",
        sentences="S",
        inputs={},
        headings=headings,
        rows=cells,
        left=left,
    )
    return (folder / "x.html").read_text()


def test_a_page_of_many_runs_is_small_and_has_a_picture_for_phones(tmp_path):
    """Numbers in words stay whole; a row that is left out is a remark, which takes no column's
    width.
    """
    rng = np.random.default_rng(1)
    rows = [
        run(f"p{n}", f"gpu{n % 8}", *np.exp(rng.normal(1, 0.5)) * np.array([1, 1.05, 0.9, 1.2]))
        for n in range(230)
    ]
    cells = [[f"p{n}", "tp 2, pp 4", "1.234567", "3" if n else "2.5"] for n in range(230)] + [
        ["q", "left out: <no> GPU"]
    ]
    page = page_of_published(
        tmp_path, rows, headings=["run", "layout", "a", "b"], cells=cells, left=["layout"]
    )
    assert len(page) < 150_000
    assert page.count('<svg class="phone"') == 1
    assert '<td class="words">tp 2, pp 4</td><td>1.234567</td><td>3.0</td>' in page
    assert (
        '<td class="words" colspan="3"><span class="remark">left out: &lt;no&gt; GPU</span></td>'
        in page
    )
    svgs = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    ids = [re.findall(r' id="([^"]+)"', svg) for svg in svgs]
    assert not set(ids[0]) & set(ids[1])
    for svg, own in zip(svgs, ids, strict=True):
        assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg)) == set(own)
        assert set(re.findall(r' class="(\w\d+)"', svg)) == set(re.findall(r"\.(\w\d+){", svg))


@pytest.mark.browser
def test_a_phone_shows_many_runs_on_low_rows_and_remarks_whole(tmp_path):
    """A long source is not squeezed to a letter a line, and a remark does not go over the edge."""
    named = ["model", "GPU", "software", "layout"]
    source = "owner/repository@067f987df:docs/performance-summary-archive.md:593"
    words = ["qwen3-30b-a3b", "gb200", "megatron-bridge", "pp 2, dp 8, ep 8, vp 24, mbs 2"]
    numbers = ["11.52", "9.7-13.7", "24.85", "-53.6%"]
    cells = [[f"p{n}", *words, *numbers, source] for n in range(9)]
    page_of_published(
        tmp_path,
        [run("a", "b", 2.0, 2.1, 1.9, 2.3)],
        headings=["run", *named, "predicted s", "range s", "measured s", "error", "source"],
        cells=[["q", "left out: " + "no such model in the library " * 4], *cells],
        left=[*named, "source"],
    )
    with started(tmp_path) as browser:
        size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
        browser.ask("Emulation.setDeviceMetricsOverride", **size)
        browser.open((tmp_path / "x.html").as_uri())
        rows = browser.run(
            "[...document.querySelectorAll('tbody tr')].map(row => row.offsetHeight)"
        )
        remark = browser.run("document.querySelector('.remark').getBoundingClientRect().right")
    assert len(rows) == 10
    assert max(rows) < 120
    assert remark <= 390


def test_other_formats_are_refused_before_anything_is_drawn(tmp_path):
    assert "cannot be written as .mmd" in str(refused(*JITTER, "-o", str(tmp_path / "x.mmd")))
    table = tmp_path / "t.json"
    table.write_text(json.dumps([{"id": "x"}]))
    assert "cannot be written as .csv" in str(
        refused("plan", "--against", str(table), "-o", str(tmp_path / "x.csv"))
    )
    nothing = refused("plan", "--against", str(table), "-o", str(tmp_path / "x.svg"))
    assert str(nothing).startswith("no run of the table has a prediction")
    assert list(tmp_path.iterdir()) == [table]
