"""Figures: what they show, where, and that equal inputs give equal bytes."""

import json
import logging
import re
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ET
from collections import Counter
from io import BytesIO
from unittest import TestCase

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.font_manager import fontManager
from matplotlib.patches import FancyArrowPatch
from PIL import Image

from ppsim.analysis.idle import arrivals, explain_idle
from ppsim.core.costs import costs_for
from ppsim.core.ops import Kind
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError
from ppsim.schedules import generate
from ppsim.show.drawing import canvas
from ppsim.show.drawing.canvas import DOTS
from ppsim.show.drawing.gantt import layout
from ppsim.show.drawing.gantt.figure import STYLES, plot
from ppsim.show.drawing.gantt.legend import legend_lines
from ppsim.show.drawing.legend import Entry
from ppsim.show.drawing.letters import tick_step
from ppsim.show.drawing.look import Look
from ppsim.show.drawing.palette import (
    BLACK,
    BUBBLE,
    CAUSE_FILL,
    COLOURS,
    DEFAULT,
    INK,
    LEVELS,
    MUTED,
    PAGE,
    TWINS,
    luminance,
)
from ppsim.show.files.document import Document, save
from ppsim.show.files.writers.figure import SUFFIXES, write
from tests.clock import HANG_S
from tests.pages import texts


def timeline(name="1f1b", devices=4, microbatches=8, **costs):
    schedule = generate(name, devices=devices, microbatches=microbatches)
    return simulate(schedule, costs_for(schedule, **costs))


def rendered(*timelines, suffix=".svg", titles=None, inputs=None, **look):
    out = BytesIO()
    titles = titles or tuple(t.schedule.name for t in timelines)
    write(Document(tuple(timelines), titles, inputs or {}, **look), out, suffix)
    return out.getvalue()


def rgb(colour):
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)], float)


@given(st.floats(0, 50), st.floats(0, 30), st.integers(1, 5))
def test_a_number_is_readable_and_inside_its_cell_or_absent(cell, row, digits):
    size = layout.label_size(cell, row, digits, 6.5)
    fits = size <= 0.62 * row and layout.label_width(digits) * size <= cell - 0.1 + 1e-9
    assert size == 0 or (4.5 <= size <= 6.5 and fits)


def test_a_number_as_large_as_the_figure_allows_where_there_is_room():
    assert layout.label_size(20, 12, 1, 6.5) == 6.5
    assert layout.label_size(20, 12, 2, 5.5) == 5.5


@pytest.mark.parametrize(("width", "shape"), [(6.75, (8, 16)), (3.3, (4, 8))])
def test_every_number_that_fits_legibly_is_there(width, shape):
    """Forwards half as wide as backwards have theirs too, at a size of 4.5 points at least."""
    run = timeline("1f1b", *shape)
    (axes,) = plot(run, width=width).axes
    assert len(axes.texts) >= len(run.schedule)
    assert min(float(text.get_fontsize()) for text in axes.texts) >= 4.5


def test_all_cells_of_a_kind_and_stage_carry_numbers_or_none_does():
    cells = layout.cells_of(timeline(tf=[1, 1, 0.05, 1]))
    size, shown = layout.choose_labels(cells, 12.0, 12.24, 6.5)
    narrow = (cells.kind == Kind.F) & (cells.stage == 2)
    assert size == 6.5
    assert (shown == ~narrow).all()


@pytest.mark.parametrize(
    ("width", "line"),
    [(40, 0.4), (4, 0.4), (3.9, 0.2), (2.5, 0.2), (2.4, 0.1), (1.2, 0.1), (1.1, 0), (0, 0)],
)
def test_borders_thin_out_with_the_cells(width, line):
    assert layout.border_width(width) == line


@given(st.integers(1, 2400), st.integers(1, 4), st.booleans(), st.booleans(), st.booleans())
def test_rows_never_exceed_eight_inches_and_never_vanish(devices, panels, labels, arrows, narrow):
    rows = devices * panels
    height = layout.row_height(devices, rows, labels=labels, arrows=arrows, narrow=narrow)
    assert height >= 1
    assert height * rows <= max(8 * DOTS, rows)


def test_few_devices_have_rows_of_the_papers_height_and_many_are_thinner():
    heights = [
        layout.row_height(p, p, labels=False, arrows=False, narrow=False) for p in (4, 16, 64, 1024)
    ]
    assert heights == [51, 33, 18, 2]


def test_every_device_is_named_where_names_fit_else_a_power_of_two():
    assert [tick_step(row, 6.5) for row in (12, 6.5, 6.4, 4.3, 0.48)] == [1, 1, 2, 4, 32]


def test_ops_without_length_take_no_cell():
    cells = layout.cells_of(timeline("zb-1p", tw=0))
    assert set(cells.kind) == {Kind.F, Kind.I}
    assert (cells.width > 0).all()


def test_a_pair_is_one_bordered_cell_in_two_halves():
    run = timeline("dualpipe", 4, 8)
    cells = layout.cells_of(run)
    first = np.flatnonzero(cells.end > cells.right)
    assert 2 * len(first) == (run.schedule.pair >= 0).sum() > 0
    np.testing.assert_array_equal(cells.right[first], cells.left[first + 1])
    np.testing.assert_allclose(cells.width[first], cells.width[first + 1])
    np.testing.assert_array_equal(cells.end[first], cells.end[first + 1])
    assert not cells.bordered[first + 1].any()
    assert cells.bordered.sum() == len(cells) - len(first)


@pytest.mark.parametrize("name", ["interleaved", "dualpipe"])
def test_the_second_chunk_and_the_second_replica_are_lighter(name):
    run = timeline(name)
    cells = layout.cells_of(run)
    tint = [
        LEVELS * k + (LEVELS - 1) * c
        for k, c in zip(run.schedule.kind, run.schedule.chunk, strict=True)
    ]
    assert cells.colour.tolist() == tint
    assert set(run.schedule.chunk) == {0, 1}


def slow_raster(cells, devices, makespan, span, rows, columns):
    image = np.zeros((rows, columns, 3))
    pixel = span / columns
    per_row = np.bincount(np.arange(devices) * rows // devices)
    for device in range(devices):
        row = device * rows // devices
        for column in range(columns):
            begin, end = column * pixel, (column + 1) * pixel
            inside = max(0.0, min(end, makespan) - begin)
            colour = (pixel - inside) * rgb("#ffffff") + inside * rgb(BUBBLE)
            for i in np.flatnonzero(cells.device == device):
                overlap = max(0.0, min(end, cells.right[i]) - max(begin, cells.left[i]))
                colour = colour + overlap * (rgb(DEFAULT.colours[cells.colour[i]]) - rgb(BUBBLE))
            image[row, column] += colour / pixel / per_row[row]
    return image


@pytest.mark.parametrize(("rows", "columns"), [(4, 7), (4, 60), (2, 25), (3, 10)])
@pytest.mark.parametrize("stretch", [1.0, 1.37])
def test_a_pixel_of_the_raster_has_the_mean_colour_of_what_it_covers(rows, columns, stretch):
    run = timeline("zb-1p", 4, 3, tf=[1, 0.3, 2.1, 0.07], tw=0.45)
    cells, span = layout.cells_of(run), run.makespan * stretch
    image = layout.raster(cells, 4, run.makespan, span, rows, columns)
    expected = slow_raster(cells, 4, run.makespan, span, rows, columns)
    assert image.shape == (rows, columns, 3)
    assert np.abs(image - expected).max() <= 0.5 + 1e-6


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "dualpipe"])
def test_messages_arrive_after_their_latency(name):
    run = timeline(name, comm=0.4)
    messages = layout.messages_of(run)
    assert messages is not None
    assert len(messages.sent) == run.schedule.crosses.sum()
    np.testing.assert_allclose(messages.arrived - messages.sent, 0.4)
    assert (messages.sender != messages.receiver).all()


@pytest.mark.parametrize(
    "run",
    [timeline(), timeline("interleaved"), timeline(devices=1), timeline(microbatches=64, comm=0.4)],
    ids=["instant", "instant-with-waits", "no-messages", "too-many"],
)
def test_messages_that_take_no_time_or_are_too_many_are_not_shown(run):
    assert layout.messages_of(run) is None


def test_an_arrow_per_message_between_rows_that_stand_apart():
    run = timeline(comm=0.4)
    arrows = [patch for patch in plot(run).axes[0].patches if isinstance(patch, FancyArrowPatch)]
    assert len(arrows) == run.schedule.crosses.sum() == 48
    assert not [
        patch for patch in plot(timeline()).axes[0].patches if isinstance(patch, FancyArrowPatch)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["1f1b", "interleaved", "zb-1p", "dualpipe", "dualpipe-v"])
@pytest.mark.parametrize("style", STYLES)
def test_every_cell_shows_its_microbatch(name, style):
    run = timeline(name)
    expected = Counter(run.schedule.microbatch.astype(str))
    drawn = [text.get_text() for text in plot(run, style=style).axes[0].texts]
    assert Counter(text for text in drawn if text.isdigit()) == expected
    if style == "paper":  # the only digits: it has no axis
        assert (
            Counter(text for text in texts(rendered(run, style=style)) if text.isdigit())
            == expected
        )


def test_paper_has_an_arrow_of_time_and_nothing_but_the_cells():
    found = texts(rendered(timeline(), style="paper"))
    assert "Time" in found
    assert not [
        text for text in found if "T =" in text or text.startswith("time") or text == "1f1b"
    ]


def test_screen_has_a_title_the_numbers_and_an_axis_in_the_unit():
    found = texts(rendered(timeline(unit="ms"), titles=("A <b> $x$",)))
    assert "A <b> $x$" in found
    assert "4 devices   8 microbatches   T = 33 ms   bubble 27.3%   peak 4" in found
    assert "time (ms)" in found
    assert {"0", "5", "10", "30"} <= set(found)
    (facts,) = [
        text for text in texts(rendered(timeline(devices=1, microbatches=1))) if "T =" in text
    ]
    assert facts.startswith("1 device   1 microbatch   T = 3")
    (facts,) = [text for text in texts(rendered(timeline("seq1f1b"))) if "T =" in text]
    assert "   8 microbatches   " in facts, "of which each goes through in slices"


@pytest.mark.slow
def test_panels_carry_comparable_numbers():
    """A peak counts whole microbatches of a device's share of the model, whatever the number of
    chunks.
    """
    runs = [timeline(name) for name in ("gpipe", "1f1b", "interleaved", "zb-1p")]
    found = texts(rendered(*runs, style="paper", titles=("a", "b", "c", "d")))
    facts = [text for text in found if "T =" in text]
    assert facts == [
        "4 devices   8 microbatches   T = 33   bubble 27.3%   peak 8",
        "4 devices   8 microbatches   T = 33   bubble 27.3%   peak 4",
        "4 devices   8 microbatches   T = 28.5   bubble 15.8%   peak 5.5",
        "4 devices   8 microbatches   T = 27   bubble 11.1%   peak 4",
    ]
    assert {"a", "b", "c", "d"} <= set(found)


LEGENDS = {
    ("1f1b", 4): ["Forward", "Backward", "Bubble"],
    ("1f1b", 1): ["Forward", "Backward"],
    ("zb-1p", 4): ["Forward", "Backward for input", "Backward for weights", "Bubble"],
    ("interleaved", 4): ["Forward", "Backward", "1st, 2nd chunk", "Bubble"],
    ("dualpipe", 4): [
        "Forward",
        "Backward (full)",
        "Backward for input",
        "Backward for weights",
        "Overlapped F&B",
        "1st, 2nd replica",
        "Bubble",
    ],
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "devices"), LEGENDS)
def test_the_legend_has_what_occurs_and_nothing_else(name, devices):
    found = texts(rendered(timeline(name, devices), style="paper"))
    named = [text for text in found if text[0].isalpha() or text.startswith("1st")]
    assert [text for text in named if not text.startswith(("Device", "Time"))] == LEGENDS[
        name, devices
    ]


def test_a_legend_that_is_too_long_takes_more_lines_and_loses_nothing():
    entries = [Entry(f"Backward for weights {i}", ("#000000",)) for i in range(7)]
    lines = legend_lines(entries, 220, 5.5)
    assert [len(line) for line in lines] == [2, 2, 2, 1]
    assert [entry for line in lines for entry in line] == entries
    assert legend_lines(entries, 9999, 5.5) == [entries]


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_equal_documents_give_equal_bytes_whatever_the_users_settings(suffix):
    runs, inputs = (timeline(comm=0.4), timeline("dualpipe")), {"command": "run"}
    once = rendered(*runs, suffix=suffix, inputs=inputs)
    with matplotlib.rc_context(
        {"font.size": 30, "axes.grid": True, "savefig.bbox": "tight", "svg.hashsalt": "other"}
    ):
        assert rendered(*runs, suffix=suffix, inputs=inputs) == once
        assert matplotlib.rcParams["font.size"] == 30


@pytest.mark.sampled(5)
@pytest.mark.parametrize("width", [3.37, 3.3, 5.5, 6.75])
@pytest.mark.parametrize("style", STYLES)
def test_a_png_is_exactly_as_wide_as_asked(width, style):
    data = rendered(timeline(), suffix=".png", width=width, style=style)
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert Image.open(BytesIO(data)).size[0] == round(width * 300)


@pytest.mark.slow
def test_files_carry_the_inputs_as_json():
    inputs = {"command": "ppsim run", "tf": [1.5, 2], "name": "日本"}
    png = Image.open(BytesIO(rendered(timeline(), suffix=".png", inputs=inputs)))
    assert json.loads(png.info["ppsim"]) == inputs
    svg = ET.fromstring(rendered(timeline(), inputs=inputs))
    description = next(e.text for e in svg.iter("{http://purl.org/dc/elements/1.1/}description"))
    assert json.loads(description or "") == inputs
    pdf = rendered(timeline(), suffix=".pdf", inputs=inputs)
    assert b"/Subject" in pdf
    assert b"/CreationDate" not in pdf


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    "run",
    [
        timeline(devices=1),
        timeline(microbatches=1),
        timeline(tf=0, ti=0, tw=0),
        timeline(devices=1, microbatches=3000),
    ],
    ids=["one-device", "one-microbatch", "no-time-at-all", "narrow-cells"],
)
def test_the_smallest_and_the_emptiest_schedules_are_drawn(run, style, suffix):
    assert rendered(run, suffix=suffix, style=style)


@pytest.mark.slow
def test_many_cells_become_an_image_of_a_page_with_few_artists():
    run = timeline(devices=256, microbatches=64)
    page = plot(run)
    assert len(page.axes[0].images) == 1
    assert len(page.axes[0].get_children()) < 50
    assert page.get_figheight() < 9
    assert len(rendered(run)) < 1_000_000
    assert "Cells too narrow to print blend" in texts(
        rendered(timeline(devices=8, microbatches=999))
    )


@pytest.mark.slow
def test_more_devices_than_dots_still_fit_the_page():
    page = plot([timeline(devices=1), timeline(devices=3000, microbatches=1)])
    assert page.get_figheight() < 9


@pytest.mark.parametrize(
    ("runs", "look", "said"),
    [
        ((timeline(), timeline(unit="ms")), {}, "ms and t_F"),
        ((), {}, "no timeline"),
        ((timeline(),), {"style": "poster"}, "poster"),
        ((timeline(),), {"width": 0.2}, "0.2 inches"),
        ((timeline(),), {"width": float("nan")}, "nan inches"),
        ((timeline(),), {"width": 1e6}, "inches"),
    ],
    ids=["units", "nothing", "style", "thin", "nan", "wide"],
)
def test_what_cannot_be_drawn_is_refused_and_leaves_no_file(runs, look, said, tmp_path):
    with pytest.raises(InputError, match=said):
        save(Document(runs, ("x",) * len(runs), **look), str(tmp_path / "x.svg"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_title_is_cut_before_it_meets_the_numbers():
    found = texts(rendered(timeline(), titles=("long " * 60,), width=3.3))
    assert "T = 33   bubble 27.3%   peak 4" in found
    title = next(text for text in found if text.startswith("long"))
    assert title.endswith("...")
    assert len(title) < 60


def test_a_title_of_ones_own_is_wrapped_where_it_is_too_long():
    """Every word of it is in the figure, on lines within its width, and the numbers keep their
    place.
    """
    title = (
        "A title that says all that there is to be said of the costs, the machine and the day "
        "of this picture"
    )
    for style in ("screen", "paper"):
        figure = plot(timeline(), style=style, width=3.3, look=Look(title=title))
        lines = [text for text in figure.texts if text.get_text().split()[0] in title.split()]
        assert " ".join(line.get_text() for line in lines) == title
        assert len(lines) > 1
        assert all(line.get_window_extent().x1 <= figure.bbox.x1 for line in lines)


def test_the_layout_counts_points_as_matplotlib_does():
    """72 of them are an inch, at the dots of a figure."""
    assert plot(timeline(), width=3.3).dpi == 72 * canvas.POINT


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_other_warnings_of_a_drawing_are_passed_on(suffix):
    with pytest.warns(UserWarning, match="^of a library$"), canvas.figure_settings(suffix):
        warnings.warn("of a library", UserWarning, stacklevel=1)


@pytest.mark.slow
def test_signs_that_no_font_has_are_told_once_and_kept_in_svg(recwarn, monkeypatch):
    monkeypatch.setattr(canvas, "OTHER_SCRIPTS", ())
    assert "\u7ba1 \u03b1" in texts(rendered(timeline(), titles=("\u7ba1 \u03b1",)))
    assert not recwarn.list
    rendered(timeline(), titles=("\u7ba1 \u03b1",), suffix=".png")
    (warned,) = recwarn.list
    assert warned.category is canvas.MissingGlyph
    assert "no font of this machine has \u7ba1 (U+7BA1):" in str(warned.message)


def test_every_text_of_an_svg_has_fonts_that_any_reader_has():
    """The letters of t_F too, which matplotlib ties to one font of the machine that draws."""
    drawn = rendered(timeline())
    text = drawn.decode() if isinstance(drawn, bytes) else drawn
    families = re.findall(r'font(?:-family)?: ([^;"]*)"', text)
    assert families
    assert {"'DejaVu Sans', 'Verdana', 'Bitstream Vera Sans', sans-serif"} == {
        re.sub(r"^[\w. ]*px ", "", family) for family in families
    }


@pytest.mark.slow
def test_a_machine_without_fonts_draws_without_a_word(monkeypatch):
    monkeypatch.setattr(fontManager, "ttflist", [])
    with TestCase().assertNoLogs(level=logging.WARNING):
        assert rendered(timeline("dualpipe"), suffix=".png")


@pytest.mark.slow
def test_figures_need_no_pyplot_and_matplotlib_only_when_drawn():
    code = (
        "import sys, io, ppsim.show.drawing.gantt.figure as f; assert 'matplotlib' not in "
        "sys.modules;from ppsim import costs_for, simulate; from ppsim.schedules import "
        "generate;s = generate('1f1b', devices=2, microbatches=2); f.plot(simulate(s, "
        "costs_for(s))).savefig(io.BytesIO());assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=HANG_S)


def test_a_dark_page_turns_page_ink_and_causes_and_leaves_cells():
    """What has a twin is named by a rule for dark screens; numbers on light cells are black by
    themselves.
    """
    run = timeline()
    svg = rendered(
        run, idles=(explain_idle(run, arrivals(run, np.zeros(len(run.schedule)))),)
    ).decode()
    [rules] = re.findall(
        r"<style>@media screen and \(prefers-color-scheme:dark\)\{(.*)\}</style>", svg
    )
    turned = dict(re.findall(r'"(?:fill|stroke): (#\w+)"\][^{]*\{\w+:(#\w+)', rules))
    drawn = set(re.findall(r"(?:fill|stroke): (#\w+)", svg.partition("</defs>")[2]))
    assert (
        {PAGE, INK, CAUSE_FILL["drain"].lower()}
        <= set(turned)
        == drawn & {light.lower() for light in TWINS}
    )
    assert not {fill.lower() for key in COLOURS for fill in DEFAULT.tints[key]} & set(turned)
    assert f"fill: {BLACK}" in svg
    assert f'[style*="fill: {PAGE}"]:not(text)' in rules
    ET.fromstring(svg)


def test_texts_read_on_a_dark_page():
    for light in (INK, MUTED, "#444444"):
        assert (luminance(TWINS[light]) + 0.05) / (luminance(TWINS[PAGE]) + 0.05) >= 4.5
