"""The memory panel and the plot of time against memory."""

import json
import re
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

import ppsim
from ppsim.analysis.tradeoff import Point, tradeoff
from ppsim.base.units import format_size
from ppsim.core.costs import costs_for
from ppsim.core.ops import Kind
from ppsim.engine.memory.report import columns
from ppsim.engine.memory.usage import (
    activation_model,
    curves,
    in_flight,
    scale_bytes,
    share_unit,
    stacks,
)
from ppsim.engine.simple.longest_path import simulate
from ppsim.schedules import families, generate
from ppsim.search.rules.offload import add_offload
from ppsim.show.drawing.gantt.figure import plot
from ppsim.show.drawing.look import Look
from ppsim.show.drawing.memory_panel import SQUARE, draw_memory, memory_height
from ppsim.show.drawing.tradeoff import draw_tradeoff
from ppsim.show.files.document import Document, save
from ppsim.show.files.writers.html import contents
from tests.browser import started
from tests.commands import invoke
from tests.show.drawing.boxes import box_of


def axes_of(width: float = 6.75, height: float = 1.5):
    figure = Figure(figsize=(width, height), dpi=100)
    FigureCanvasAgg(figure)
    return figure.add_axes((0.1, 0.2, 0.85, 0.7))


def memory(name: str, devices: int, microbatches: int):
    schedule = generate(name, devices=devices, microbatches=microbatches)
    timeline = simulate(schedule, costs_for(schedule))
    return timeline, curves(timeline, activation_model(schedule))


def names_in(axes) -> list[str]:
    return [text for text in texts_in(axes) if text != SQUARE]


def texts_in(axes) -> list[str]:
    return [text.get_text() for text in axes.texts if text.get_text()]


@pytest.mark.slow
def test_lines_are_the_curves():
    """Eight devices or fewer: one step line each, through every change, to the end of the time
    axis.
    """
    timeline, curve = memory("1f1b", 4, 8)
    axes = axes_of()
    draw_memory(axes, curve, span=40.0, font=6)
    first = axes.lines[0]
    assert len(axes.lines) == 4
    assert first.get_drawstyle() == "steps-post"
    assert first.get_xydata().tolist()[-3:] == [[30, 1], [33, 0], [40, 0]]
    assert axes.get_xlim() == (0, 40)
    assert timeline.makespan == 33


def test_lines_are_named_apart_and_close_ones_together():
    """1F1B's four heights have four names; ZB-H1's devices all reach P: a band, and the line of
    one.
    """
    for name, wanted in (
        ("1f1b", [f"dev {d}" for d in range(3, -1, -1)]),
        ("zb-1p", ["band: devices 0-3", "dev 0"]),
    ):
        axes = axes_of()
        draw_memory(axes, memory(name, 4, 8)[1], span=33.0, font=6)
        assert names_in(axes) == wanted


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["1f1b", "zb-1p", "dualpipe"])
def test_names_are_right_of_the_axes_and_cover_no_other(name):
    """No name is on a curve: all begin beyond the end of the time axis, and keep apart."""
    axes = axes_of()
    draw_memory(axes, memory(name, 8, 20)[1], span=70.0, font=6, cap=5)
    boxes = [
        text.get_window_extent()
        for text in axes.texts
        if text.get_text().startswith(("dev ", "cap"))
    ]
    assert len(boxes) >= 2
    assert all(box.x0 > axes.get_window_extent().x1 for box in boxes)
    assert not any(a.y0 < b.y1 - 0.5 and b.y0 < a.y1 - 0.5 for a, b in combinations(boxes, 2))


def test_curves_of_different_chunks_share_an_axis_and_a_unit():
    """Beside 1F1B, activations of interleaved count halves: its curve is as high as the number
    above it says.
    """
    timelines = [memory(name, 4, 8)[0] for name in ("gpipe", "interleaved")]
    held = [curves(timeline, activation_model(timeline.schedule)) for timeline in timelines]
    figure = plot(timelines, memory=held)
    panels = [axes for axes in figure.axes if axes.lines]
    assert [axes.get_ylabel() for axes in panels] == ["memory\n(1/P shares)"] * 2
    assert len({axes.get_ylim() for axes in panels}) == 1
    assert [max(float(np.max(line.get_ydata())) for line in axes.lines) for axes in panels] == [
        8,
        5.5,
    ]
    heads = [
        text.get_text() for axes in figure.axes for text in axes.texts if "peak" in text.get_text()
    ]
    assert [head.split()[-1] for head in heads] == ["8", "5.5"]


def test_bytes_of_several_schedules_share_one_unit():
    """A kibibyte beside a mebibyte is shown in mebibytes."""
    timeline, curve = memory("1f1b", 4, 8)
    small, large = (
        replace(curve, unit="B", value=curve.value * size) for size in (1 << 10, 1 << 20)
    )
    found = share_unit([small, large], [timeline.schedule] * 2)
    assert [each.unit for each in found] == ["MiB", "MiB"]
    assert [float(each.peak.max()) for each in found] == [4 / 1024, 4]


def test_a_cap_is_a_line_with_its_size():
    """It lies in view even where every device stays below."""
    axes = axes_of()
    draw_memory(axes, memory("1f1b", 4, 8)[1], span=33.0, font=6, cap=9)
    assert axes.lines[-1].get_ydata() == [9, 9]
    assert axes.get_ylim()[1] > 9
    assert "cap 9" in texts_in(axes)


def test_a_cap_names_the_devices_over_it():
    """1F1B's device d holds 4 - d at its peak: two pass a cap of 2."""
    axes = axes_of()
    draw_memory(axes, memory("1f1b", 4, 8)[1], span=33.0, font=6, cap=2)
    assert names_in(axes) == [
        "devices 0-1 over the cap",
        "dev 3",
        "cap 2",
        "dev 2",
        "dev 1",
        "dev 0",
    ]


def test_more_than_eight_devices_are_a_strip():
    """A row per device, as dark as the most it holds in each column, and the scale as a bar with
    its ends.
    """
    timeline, curve = memory("gpipe", 12, 4)
    axes = axes_of()
    draw_memory(axes, curve, span=timeline.makespan, font=6)
    image = axes.images[0].get_array()
    assert image.shape[0] == 12
    assert image.max() == image[0].max() == 4
    assert texts_in(axes) == ["memory", "0", "4 activations"]
    assert len(axes.child_axes[0].images) == 1


@pytest.mark.parametrize("count", [1, 2, 33, 400])
def test_columns_are_the_most_in_each_stretch(count):
    """As a search over a fine grid of moments finds it."""
    timeline, _ = memory("dualpipe-v", 4, 12)
    curve = in_flight(timeline)
    time, value = curve.time[: curve.offsets[1]], curve.value[: curve.offsets[1]]
    fine = (np.arange(count * 64) + 0.5) / (count * 64) * timeline.makespan
    held = value[np.searchsorted(time, fine, "right") - 1].reshape(count, 64).max(axis=1)
    assert columns(curve, 0, timeline.makespan, count).tolist() == held.tolist()


def every_schedule(devices: int, microbatches: int) -> list[Point]:
    points = []
    for family in filter(lambda family: not family.lanes, families()):
        timeline, curve = memory(family.name, devices, microbatches)
        share = devices / timeline.schedule.n_stages
        points.append(Point(family.name, timeline.makespan, float(curve.peak.max() * share)))
    return points


def test_tradeoff_joins_equal_points_and_marks_the_front():
    """Two names at one place, one beaten point, one that does not apply."""
    nan, inf = float("nan"), float("inf")
    found = tradeoff(
        [
            Point("a", 3, 1),
            Point("b", 1, 3),
            Point("c", 3, 1),
            Point("d", 3, 3),
            Point("e", inf, nan),
        ]
    )
    assert [point.name for point in found.points] == ["a, c", "b", "d"]
    assert found.best.tolist() == [True, True, False]
    assert tradeoff([]).points == ()


@pytest.mark.slow
def test_tradeoff_names_do_not_cover_each_other():
    """All registered schedules on one plot: no name overlaps another, and those of the front are
    all there.
    """
    axes = axes_of(6.75, 4)
    found = tradeoff(every_schedule(4, 8))
    draw_tradeoff(axes, found, time="makespan", memory="peak activations")
    boxes = [box_of(text) for text in axes.texts]
    front = {point.name for point, best in zip(found.points, found.best, strict=True) if best}
    assert front <= {text.get_text() for text in axes.texts}
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]


@pytest.mark.slow
def test_in_a_crowd_the_front_is_named_and_no_name_covers_another():
    """Two hundred points on a small plot: names are left out where they would be written over each
    other.
    """
    axes = axes_of(4, 3)
    beaten = [Point(f"beaten {i}", 3 + i % 20 / 20, 4 + i // 20 / 5) for i in range(200)]
    draw_tradeoff(
        axes, tradeoff([*beaten, Point("best", 2, 1)]), time="makespan", memory="peak activations"
    )
    boxes = [box_of(text) for text in axes.texts]
    assert "best" in [text.get_text() for text in axes.texts]
    assert len(boxes) < 201
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]


def test_tradeoff_names_have_a_box_above_the_front_and_the_unit_is_set_as_in_charts():
    """No line strikes through a name; t_F is mathematics, other units are plain text."""
    found = tradeoff([Point("a", 3, 1), Point("b", 1, 3)])
    for unit, wanted in (("t_F", "makespan (units of $t_F$)"), ("ms", "makespan (ms)")):
        axes = axes_of()
        draw_tradeoff(axes, found, time=f"makespan ({unit})", memory="peak activations")
        assert axes.get_xlabel() == wanted
        assert all(name.get_bbox_patch() for name in axes.texts)
        assert min(name.get_zorder() for name in axes.texts) > max(
            line.get_zorder() for line in axes.lines
        )


def test_bytes_are_shown_in_the_unit_that_fits():
    """A curve of bytes as GiB, MiB or KiB by its peak; a count of activations is not a curve of
    bytes.
    """
    timeline, curve = memory("1f1b", 4, 8)
    in_bytes = replace(curve, unit="B", value=curve.value * (1 << 20))
    (shown,) = scale_bytes([curve, in_bytes])
    assert (shown.unit, shown.value.tolist()) == ("MiB", curve.value.tolist())
    axes = axes_of()
    draw_memory(axes, in_bytes, span=timeline.makespan, font=6, cap=3 << 20)
    assert axes.get_ylabel() == "memory\n(MiB)"
    assert axes.lines[-1].get_ydata() == [3, 3]
    assert {"cap 3 MiB", "device 0 over the cap"} <= {*texts_in(axes)}


def test_a_figures_cap_and_heading_are_in_the_unit_of_its_curves():
    """Curves of bytes are drawn in GiB: so are the line of the cap, its name, and the peak above
    the chart.
    """
    timeline, curve = memory("1f1b", 4, 8)
    in_bytes = replace(curve, unit="B", value=curve.value * (1 << 30))
    figure = plot(timeline, memory=[in_bytes], cap=3 << 30)
    chart, panel = figure.axes
    assert panel.lines[-1].get_ydata() == [3, 3]
    assert {"cap 3 GiB", "device 0 over the cap"} <= {*texts_in(panel)}
    assert any("peak 4 GiB" in text for text in texts_in(chart))


def test_the_peak_above_a_chart_is_the_highest_of_its_curves():
    """Interleaved with two chunks holds 11 activations, which are 5.5 of a device's share: the
    panel shows 11.
    """
    timeline, curve = memory("interleaved", 4, 8)
    assert any("peak 11" in text for text in texts_in(plot(timeline, memory=[curve]).axes[0]))
    assert any("peak 5.5" in text for text in texts_in(plot(timeline).axes[0]))


@pytest.mark.parametrize(("name", "peak"), [("gpipe", "8"), ("zb-h2", "7")])
def test_the_axis_names_the_peak(name, peak):
    """Whatever round numbers lie below it, of which none is so near that the two would touch."""
    timeline, curve = memory(name, 4, 8)
    figure = plot(timeline, memory=[curve])
    (axes,) = (axes for axes in figure.axes if axes.get_ylabel())
    ticks = sorted(
        zip(axes.get_yticks(), axes.get_yticklabels(), strict=True), key=lambda tick: tick[0]
    )
    assert (ticks[-1][0], ticks[-1][1].get_text()) == (curve.peak.max(), peak)
    tall = axes.get_window_extent().height / figure.dpi * 72 / axes.get_ylim()[1]
    assert min(np.diff([place for place, _ in ticks])) * tall >= ticks[-1][1].get_fontsize()


def test_panels_of_one_height_have_the_same_ticks():
    """Halves of shares and whole ones, on one axis up to 8."""
    made = [memory(name, 4, 8) for name in ("gpipe", "interleaved")]
    figure = plot([timeline for timeline, _ in made], memory=[curve for _, curve in made])
    panels = [axes for axes in figure.axes if axes.get_ylabel()]
    assert len({tuple(axes.get_yticks()) for axes in panels}) == 1


@pytest.mark.slow
def test_files_carry_the_curves(tmp_path):
    """Figures grow by the panel; a trace counts every device's memory down to where it began; a
    page shows it first.
    """
    timeline, curve = memory("1f1b", 4, 8)
    in_bytes = replace(curve, unit="B", value=curve.value * (1 << 30))
    plain = Document((timeline,), ("1F1B",))
    whole = replace(plain, memory=(in_bytes,), cap=3 << 30)
    heights = []
    for document in (plain, whole):
        save(document, str(tmp_path / "x.png"))
        heights.append(int.from_bytes((tmp_path / "x.png").read_bytes()[20:24]))
    assert heights[1] - heights[0] == memory_height(in_bytes, 0)
    save(whole, str(tmp_path / "x.trace.json"))
    events = json.loads((tmp_path / "x.trace.json").read_text())["traceEvents"]
    for name in ("live activations", "microbatches in flight", "memory (GiB)"):
        held = [
            event["args"]["held"]
            for event in events
            if event["ph"] == "C" and event["name"] == name
        ]
        assert max(held) == 4
    assert [e["args"]["held"] for e in events if e["name"] == "memory (GiB)" and e["pid"] == 0][
        -1
    ] == 0
    assert [c["name"] for c in contents(whole)["timelines"][0]["curves"]] == [
        "memory",
        "live activations",
    ]


def test_the_fullest_host_is_one_lighter_line_inside_the_axes():
    plain = generate("1f1b", devices=4, microbatches=8)
    prices = costs_for(plain, others={Kind.OFFLOAD: 0.5, Kind.RELOAD: 0.5})
    timeline = simulate(add_offload(plain, prices, 1), prices)
    curve = curves(timeline, activation_model(timeline.schedule))
    axes = axes_of()
    draw_memory(axes, curve, span=timeline.makespan, font=7)
    assert curve.host is not None
    (line,) = [line for line in axes.lines if line.get_linestyle() != "-"]
    assert max(line.get_ydata()) == curve.host.peak.max() > curve.peak.max()
    assert axes.get_ylim()[1] > curve.host.peak.max()
    assert "dotted: on the host of device 0, the fullest" in texts_in(axes)


def test_what_fills_a_device_is_stacked_and_named_with_its_amount_at_the_peak():
    """The areas end at the curve of the device; each name has the amount that the answer has, the
    cap is a line.
    """
    found = ppsim.memory("zb-v", devices=4, microbatches=8, model="llama3-8b", cap="100GiB").report
    [held] = share_unit(stacks(found.timeline, found.model), [found.timeline.schedule])
    axes = axes_of()
    draw_memory(axes, held, span=26.0, font=6, cap=100.0)
    assert len(axes.collections) == len(held.parts) == 6
    tops = [area.get_paths()[0].vertices[:, 1].max() for area in axes.collections]
    assert max(tops) == pytest.approx(found.fullest.value / 2**30)
    said = " ".join(texts_in(axes))
    for name, amount in found.fullest.parts.items():
        assert name == "activations" or f"{name}: {format_size(amount)}" in said
    assert "cap 100 GiB" in said
    assert "device 0, the fullest" in said
    draw_memory(axes, held, span=26.0, font=6, cap=80.0)
    assert "over the cap" in " ".join(texts_in(axes))


@pytest.mark.browser
def test_a_page_stacks_the_parts_and_tells_them_at_a_time(tmp_path):
    """Amounts add up to the peak; the pointer finds the microbatches in flight."""
    target = tmp_path / "memory.html"
    asked = (
        "memory",
        "zb-v",
        "--devices",
        "4",
        "--mb",
        "8",
        "--model",
        "llama3-8b",
        "-q",
        "-o",
        str(target),
    )
    assert invoke(*asked).exit_code == 0
    assert len(target.read_bytes()) < 100_000
    with started(tmp_path) as browser:
        browser.open(target.as_uri())
        shown = browser.run("document.getElementById('marks').textContent")
        assert "device 0 at its peak" in shown
        assert "29.75 activations, chunk 0" in shown
        x, y = browser.run(
            "(b => [b.left + 79, b.bottom - "
            "60])(document.getElementById('chart').getBoundingClientRect())"
        )
        browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        said = browser.run("document.getElementById('tip').textContent")
        assert re.match(r"51.11 GiB on device 0 at 0.0\d+ t_F", said)
        assert said.endswith("microbatches in flight: 0")
        assert "optimizer: 31.24 GiB" in said


@pytest.mark.parametrize(("name", "devices"), [("1f1b", 4), ("zb-1p", 4), ("1f1b", 12)])
def test_memory_is_grey_in_mono(name, devices):
    """Lines, bands and strips, with their texts."""
    timeline, curve = memory(name, devices, 8)
    figure = plot(timeline, memory=[curve], look=Look(palette="mono"))
    [panel] = [
        axes
        for axes in figure.axes
        if any("memory" in text for text in (axes.get_ylabel(), *texts_in(axes)))
    ]
    colours = [line.get_color() for line in panel.lines] + [
        text.get_color() for text in panel.texts
    ]
    colours += [fill for band in panel.collections for fill in band.get_facecolor()]
    colours += [image.cmap(share) for image in panel.images for share in (0.0, 0.5, 1.0)]
    assert colours
    for red, green, blue in map(to_rgb, colours):
        assert red == green == blue


def test_papers_draw_an_activation_of_a_share_as_high_in_every_figure():
    """So that separate figures compare; of two stages a device two activations are one of its
    share.
    """
    high = {}
    for name, most in (("gpipe", 8), ("1f1b", 4), ("zb-v", 4), ("dualpipe", 5)):
        timeline, curve = memory(name, 4, 8)
        figure = plot(timeline, memory=[curve], style="paper")
        box = figure.axes[1].get_window_extent()
        high[name] = box.height / figure.dpi / most
        names = [
            box_of(text) for text in figure.axes[1].texts if text.get_text() not in ("", "Time")
        ]
        assert all(text.y0 > box.y0 - 4 for text in names)
        assert not any(a.overlaps(b) for a, b in combinations(names, 2))
    assert plot(timeline, memory=[curve]).axes[1].get_window_extent().height > box.height
    assert [*high.values()] == pytest.approx([0.07] * 4, rel=0.02)
