"""What the options of charts change in figures: palettes, labels, windows, folds, highlights,
phases, row notes.
"""

import re
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.transforms import Bbox

from ppsim.core.costs import costs_for
from ppsim.core.ops import Kind
from ppsim.core.steps import add_optimizer
from ppsim.engine.detailed.execute import execute
from ppsim.engine.detailed.spec import Network
from ppsim.engine.lowering.lower import lower
from ppsim.engine.memory.usage import activation_model, curves
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError
from ppsim.schedules import generate
from ppsim.show.drawing.card_chart import charts_svg
from ppsim.show.drawing.gantt.axes import draw_into
from ppsim.show.drawing.gantt.figure import plot
from ppsim.show.drawing.gantt.layout import cells_of, label_texts, label_width, place_labels
from ppsim.show.drawing.gantt.legend import legend_lines
from ppsim.show.drawing.legend import Entry, legend_entries
from ppsim.show.drawing.look import Highlight, Look, Note
from ppsim.show.drawing.palette import (
    BUBBLE,
    DEFAULT,
    DIMMED,
    HIGHLIGHT,
    LEVELS,
    PALETTES,
    blend,
    luminance,
)
from ppsim.show.drawing.view import find_repetition, view_of
from tests.cases import timed
from tests.commands import invoke
from tests.show.drawing.boxes import box_of


def drawn(*timelines, **look):
    figure = plot(timelines, look=Look(**look))
    return figure, [text.get_text() for axes in figure.axes for text in axes.texts]


def fills(figure):
    return {
        to_hex(p.get_facecolor())
        for p in figure.axes[0].patches
        if isinstance(p, PathPatch) and p.get_fill()
    }


def ticks(axes):
    return [tick.get_text() for tick in axes.get_yticklabels()]


@pytest.mark.slow
@pytest.mark.parametrize("name", PALETTES)
def test_a_palette_colours_every_cell(name):
    """Each kind and chunk has its own tint of the palette, and bubbles its grey; nothing of the
    usual colours stays.
    """
    figure, _ = drawn(timed("interleaved", 4, 8), palette=name)
    palette = PALETTES[name]
    wanted = {
        palette.bubble,
        *(palette.fill(kind)[level] for kind in (Kind.F, Kind.B) for level in (0, -1)),
    }
    assert fills(figure) == {fill.lower() for fill in wanted}


def test_mono_is_without_colour_and_hatches_bubbles():
    palette = PALETTES["mono"]
    assert all(
        len({colour[1:3], colour[3:5], colour[5:7]}) == 1
        for colour in (*palette.colours, palette.bubble)
    )
    figure, _ = drawn(timed("1f1b", 4, 8), palette="mono")
    assert any(patch.get_hatch() for patch in figure.axes[0].patches)


def test_base_one_counts_devices_and_microbatches_from_one():
    figure, texts = drawn(timed("1f1b", 4, 8), base=1)
    assert ticks(figure.axes[0]) == [f"Device {device}" for device in (1, 2, 3, 4)]
    assert sorted({text for text in texts if text.isdigit()}) == list("12345678")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("labels", "name", "wanted"),
    [
        ("mb", "interleaved:3", {"0", "7"}),
        ("auto", "interleaved:3", {"0.0", "2.7"}),
        ("op", "1f1b", {"0F0", "3B7"}),
        ("none", "1f1b", set()),
    ],
)
def test_labels(labels, name, wanted):
    """Microbatches, chunks before them from three chunks on, ops as torch names them, or
    nothing.
    """
    name, _, chunks = name.partition(":")
    schedule = generate(
        name, devices=2 if chunks else 4, microbatches=8, chunks=int(chunks) if chunks else None
    )
    timeline = simulate(schedule, costs_for(schedule))
    figure = plot(timeline, width=12, look=Look(labels=labels))
    texts = {text.get_text() for text in figure.axes[0].texts if len(text.get_text()) <= 4} - {
        "1f1b"
    }
    assert wanted <= texts if wanted else not texts


def test_chunks_are_told_apart_where_texts_do_not_fit():
    """Each has a tint of its own, from the first chunk's to the last's, and the legend shows
    those.
    """
    timeline = timed("interleaved", 4, 8, chunks=4)
    cells = cells_of(timeline)
    tints = [DEFAULT.colours[code] for code in np.unique(cells.colour[cells.kind == Kind.F])]
    steps = np.diff([luminance(tint) for tint in tints])
    assert len(tints) == 4
    assert (steps > 0.01).all()
    assert (cells.colour == LEVELS * cells.kind + np.array([0, 2, 5, 7])[cells.chunk]).all()
    entries = {entry.name: entry.colours for entry in legend_entries([timeline])}
    assert entries["First to last chunk"] == tuple(tints)


def test_a_window_has_what_runs_then_at_its_place():
    """Cells are cut at both ends, ticks keep their times, and memory has what is held at the
    window's start.
    """
    timeline = timed("1f1b", 4, 8)
    curve = curves(timeline, activation_model(timeline.schedule))
    figure = plot(timeline, memory=[curve], look=Look(window=(10.5, 20)))
    cells = view_of(timeline, (10.5, 20), fold=False).cut(
        cells_of(timeline), "left", "right", "end"
    )
    assert (cells.left.min(), cells.right.max()) == (0, 9.5)
    running = (timeline.end > 10.5) & (timeline.start < 20)
    assert sorted(cells.op) == np.flatnonzero(running).tolist()
    assert [t.get_text() for t in figure.axes[1].get_xticklabels()] == [
        str(time) for time in range(11, 21)
    ]
    assert np.asarray(figure.axes[1].lines[0].get_ydata())[0] == 4


@pytest.mark.parametrize(
    ("name", "shape", "repeats"), [("1f1b", (4, 24), 20), ("zb-1p", (4, 64), 60)]
)
def test_a_fold_draws_what_repeats_once(name, shape, repeats):
    """Every op is in the part before, in the period or after; the periods left out are copies of
    the one drawn.
    """
    timeline = timed(name, *shape)
    view = view_of(timeline, None, fold=True)
    found = find_repetition(timeline)
    assert found
    start, period, times = found
    assert (view.repeats, times) == (repeats, repeats)
    starts = np.round(timeline.start, 9)
    device = timeline.schedule.device

    def ops_from(begin):
        inside = (starts >= begin) & (starts < begin + period)
        schedule = timeline.schedule
        return sorted(
            zip(
                device[inside],
                schedule.kind[inside],
                schedule.stage[inside],
                starts[inside] - begin,
                strict=True,
            )
        )

    assert all(ops_from(start + k * period) == ops_from(start) for k in range(times))
    figure, texts = drawn(timeline, fold=True)
    assert f"\u00d7 {repeats}" in texts
    assert figure.axes[0].get_xlim()[1] < timeline.makespan


def test_what_does_not_repeat_is_refused():
    with pytest.raises(InputError, match="no part of gpipe repeats"):
        drawn(timed("gpipe", 4, 4), fold=True)
    with pytest.raises(InputError, match="nothing runs from 99 on"):
        drawn(timed("gpipe", 4, 4), window=(99, 100))
    with pytest.raises(InputError, match="has no microbatch 8"):
        drawn(timed("1f1b", 4, 8), highlight=Highlight("mb", 8))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("by", "value", "count"),
    [("mb", 3, 8), ("device", 1, 16), ("stage", 2, 16), ("critical", 0, 22)],
)
def test_a_highlight_dims_the_rest(by, value, count):
    """What is picked out keeps colour and number; all else is blended with the bubble and has no
    number.
    """
    timeline = timed("1f1b", 4, 8)
    figure, texts = drawn(timeline, highlight=Highlight(by, value))
    assert len([text for text in texts if text.isdigit()]) == count
    assert blend(DEFAULT.colours[0], BUBBLE, DIMMED).lower() in fills(figure)
    outlined = [
        patch
        for patch in figure.axes[0].patches
        if to_hex(patch.get_edgecolor()) == HIGHLIGHT[0].lower()
    ]
    assert len(outlined) == (by in ("mb", "critical"))


@pytest.mark.slow
def test_what_is_picked_out_is_counted_from_the_base_of_the_labels(tmp_path):
    """With --base 1, mb=3 is the cells that say 3, in pages the third microbatch; 0 and 9 of eight
    are refused.
    """
    figure, page = tmp_path / "x.svg", tmp_path / "x.html"
    command = [
        "run",
        "1f1b",
        "--stages",
        "4",
        "--mb",
        "8",
        "--base",
        "1",
        "-o",
        str(figure),
        "-o",
        str(page),
    ]
    assert invoke(*command, "--highlight", "mb=3").exit_code == 0
    assert '"highlight":{"by":"microbatch","value":2}' in page.read_text()
    texts = drawn(timed("1f1b", 4, 8), highlight=Highlight("mb", 3).count_from(1), base=1)[1]
    assert {text for text in texts if text.isdigit()} == {"3"}
    for wrong in ("0", "9"):
        refused = invoke(*command, "--highlight", f"mb={wrong}").exception
        assert isinstance(refused, InputError)
        assert f"has no microbatch {wrong}" in str(refused)
        assert refused.hint == "1 to 8, counted from 1"


def test_phases_of_1f1b():
    """Device d runs P - d forwards before its first backward; a line per device and phase, and
    three names.
    """
    timeline = timed("1f1b", 4, 8)
    figure, texts = drawn(timeline, phases=True)
    lines = [line for lines in figure.axes[0].collections for line in lines.get_segments()]
    assert sorted(line[0][0] for line in lines[:4]) == [4, 6, 8, 10]
    assert len(lines) == 8
    assert {"warm-up", "steady", "cool-down"} <= {*texts}


def test_rows_say_idle_and_peak():
    timeline = timed("1f1b", 4, 8)
    _, texts = drawn(timeline, per_device=True)
    assert [text for text in texts if "idle" in text] == [
        f"27% idle, {peak}" for peak in (4, 3, 2, 1)
    ]
    curve = curves(timeline, activation_model(timeline.schedule))
    held = replace(curve, unit="B", value=curve.value * 2**30)
    found = plot(timeline, memory=[held], look=Look(per_device=True)).axes[0].texts
    assert "27% idle, 4 GiB" in [text.get_text() for text in found]


@pytest.mark.slow
def test_messages_too_short_to_see_are_strips_of_their_share_of_time():
    """A strip's darkness adds up to the time that messages are under way."""
    schedule = generate("1f1b", devices=4, microbatches=64)
    execution = execute(
        lower(schedule, "early"), costs_for(schedule), Network("overlap", alpha=0.05)
    )
    figure = plot(execution.compute, executions=[execution])
    images = [np.asarray(image.get_array()) for image in figure.axes[0].images]
    assert len(images) == 3 + 3  # activations from devices 0 to 2, gradients from 1 to 3
    assert all(image.shape[0] == 1 for image in images)
    assert any("by share of time" in text.get_text() for text in figure.texts)


def test_the_numbers_above_give_way_to_the_title():
    """In a narrow figure the size goes first, and the title is set smaller before it is cut."""
    figure = plot(
        timed("1f1b", 4, 8), width=3.3, titles=["Interleaved 1F1B, with F and B fused in pairs"]
    )
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert "Interleaved 1F1B, with F and B fused in pairs" in texts
    assert any(text.startswith("T = 33") for text in texts)


@pytest.mark.parametrize("count", [5, 6, 7, 8])
def test_no_entry_of_a_legend_stands_alone(count):
    """Entries are spread evenly over their lines."""
    entries = [Entry(f"entry number {number}", ("#000000",)) for number in range(count)]
    lines = legend_lines(entries, 320.0, 6.0)
    assert sum(map(len, lines)) == count
    assert max(map(len, lines)) - min(map(len, lines)) <= len(lines) - 1
    assert len(lines) == 1 or len(lines[-1]) > 1


@pytest.mark.parametrize(
    ("count", "sizes"), [(3, [3]), (5, [3, 2]), (7, [3, 2, 2]), (10, [3, 2, 3, 2]), (1, [1])]
)
def test_the_lines_of_a_legend_have_about_equally_many_entries(count, sizes):
    """Seven of which three fit on a line are not three, three and one."""
    entries = [Entry("a name of some length", ("#000000",)) for _ in range(count)]
    assert [len(line) for line in legend_lines(entries, 300.0, 6.0)] == sizes


def test_a_window_puts_no_label_beside_its_cell():
    """Cells that the window cuts have none, and all others keep theirs."""
    timeline = timed("1f1b", 4, 8)
    figure = plot(timeline, look=Look(window=(0, 10.1)))
    axes = figure.axes[0]
    numbers = [text.get_position()[0] for text in axes.texts if text.get_text().isdigit()]
    assert len(numbers) == (timeline.end <= 10.1).sum()
    assert max(numbers) <= 10.1


def test_a_window_ends_where_the_longest_timeline_does():
    """However late it is to end."""
    figure = plot([timed("1f1b", 4, 8), timed("zb-1p", 4, 8)], look=Look(window=(3, 1e300)))
    assert [axes.get_xlim() for axes in figure.axes] == [(0, 30), (0, 30)]


def test_until_gives_figures_of_several_schedules_one_axis():
    """A cell of one t_F is as wide in both, though one ends before the other."""
    axes = [plot(timed(name, 4, 8), look=Look(until=33)).axes[0] for name in ("gpipe", "zb-1p")]
    assert [each.get_xlim() for each in axes] == [(0, 33), (0, 33)]
    assert plot(timed("gpipe", 4, 8), look=Look(until=5)).axes[0].get_xlim() == (0, 33)


def test_numbers_stay_in_a_narrow_figure_of_eight_devices_and_sixteen_microbatches():
    figure = plot([timed("1f1b", 8, 16)], width=3.3)
    assert {str(number) for number in range(16)} <= {
        text.get_text() for text in figure.axes[0].texts
    }


def test_every_nth_microbatch_has_its_number_and_none_meets_another():
    _, texts = drawn(timed("1f1b", 4, 8), labels="every:3")
    assert {text for text in texts if text.isdigit()} == {"0", "3", "6"}
    cells = cells_of(timed("zb-1p", 8, 16))
    size, shown = place_labels(cells, label_texts(cells, "every:2", 0), 3.4, 10.0, 6.0)
    half = size * np.array([label_width(len(str(n))) for n in cells.number[shown]]) / 2
    middle = 3.4 * (cells.left + cells.right)[shown] / 2
    order = np.lexsort((middle, cells.device[shown]))
    meet = (middle - half)[order][1:] < (middle + half)[order][:-1]
    assert not (meet & (np.diff(cells.device[shown][order]) == 0)).any()
    assert shown.sum() > 60


def test_a_note_stands_at_its_time_and_device_or_is_refused():
    figure, texts = drawn(timed("1f1b", 4, 8), notes=(Note("$fills", 7.0, 2),), base=1)
    assert "$fills" in texts
    (place,) = (text.get_position() for text in figure.axes[0].texts if text.get_text() == "$fills")
    assert place == (7.0, pytest.approx(1.5, abs=0.1))
    for note in (Note("late", 99.0, 1), Note("below", 3.0, 9), Note("before", 1.0, 0)):
        with pytest.raises(InputError, match="no place for --note"):
            drawn(timed("1f1b", 4, 8), notes=(note,), base=1)


@pytest.mark.parametrize("style", ["screen", "paper"])
def test_notes_cover_no_cell_and_no_other_note(style):
    """Where a row has no room a note stands above all rows, below the heading, and leads to its
    time and device.
    """
    timeline = timed("zb-1p", 4, 8)
    notes = [
        Note(f"note {time}", time, device)
        for time, device in ((0.0, 0), (5.4, 0), (12.0, 0), (13.0, 3), (27.0, 2))
    ]
    figure = plot(timeline, look=Look(notes=tuple(notes), phases=True), style=style)
    figure.canvas.draw()
    axes = figure.axes[0]
    drawn = {text.get_text(): text for text in axes.texts}
    boxes = [box_of(drawn[note.text]).padded(4) for note in notes]  # with the frames
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    cells = cells_of(timeline)
    for left, right, device in zip(cells.left, cells.right, cells.device, strict=True):
        (x, y), (end, below) = axes.transData.transform([(left, device), (right, device + 1)])
        cell = Bbox([[x + 1, below + 4], [end - 1, y - 4]])
        assert not any(box.overlaps(cell) for box in boxes), (left, device)
    assert [drawn[note.text].get_unitless_position()[0] for note in notes[1:4]] == [5.4, 12.0, 13.0]
    assert axes.bbox.y0 < boxes[1].y0 < axes.bbox.y1 < boxes[2].y0 < boxes[3].y0
    assert getattr(drawn["note 13.0"], "xy") == (13.0, pytest.approx(3.15, abs=0.1))  # noqa: B009
    heads = [box_of(text) for name, text in drawn.items() if name in ("ZB-1P", "warm-up", "steady")]
    assert len(heads) >= 2
    assert not any(box.overlaps(head) for box in boxes for head in heads)
    assert all(box.x0 >= 0 and box.y1 <= figure.bbox.y1 for box in boxes)


def test_the_size_of_texts_is_as_asked_for():
    figure, _ = drawn(timed("1f1b", 4, 8), font_size=9.0)
    assert {label.get_size() for label in figure.axes[0].get_yticklabels()} == {9.0}
    assert max(
        text.get_size() for text in figure.axes[0].texts if text.get_text().isdigit()
    ) == pytest.approx(9.0, abs=0.1)


@pytest.mark.slow
def test_labels_that_have_no_room_are_said_to_be_missing(tmp_path):
    words = [
        "run",
        "1f1b",
        "--devices",
        "8",
        "--mb",
        "20",
        "-q",
        "--width",
        "3.3",
        "-o",
        str(tmp_path / "x.svg"),
    ]
    assert "no cell of 1F1B has room for --labels op" in invoke(*words, "--labels", "op").stderr
    assert "no cell" not in invoke(*words, "--labels", "none").stderr


def timed_with_optimizer():
    """Two devices, three microbatches, and an optimizer step of two units after all of them."""
    schedule = add_optimizer(
        generate("1f1b", devices=2, microbatches=3), barrier=True, gathers=False, reduces=False
    )
    costs = costs_for(schedule)
    return simulate(schedule, replace(costs, others={**costs.others, Kind.OPT: np.full(2, 2.0)}))


@pytest.mark.parametrize(
    ("labels", "said"), [("auto", ""), ("mb", ""), ("op", "OPT"), ("none", "")]
)
def test_the_optimizer_step_has_no_microbatch_to_number(labels, said):
    cells = cells_of(timed_with_optimizer())
    texts = np.array(label_texts(cells, labels, 0))
    assert set(texts[cells.kind == Kind.OPT]) == {said}
    assert (texts[cells.kind == Kind.F] == "").all() == (labels == "none")


def test_axes_and_cards_number_microbatches_and_not_the_optimizer():
    """Two devices run six forwards and six backwards."""
    timeline = timed_with_optimizer()
    axes = Figure().subplots()
    draw_into(axes, timeline)
    assert sorted(text.get_text() for text in axes.texts) == sorted(["0", "1", "2"] * 4)
    numbers = re.findall(r"<text [^>]*>([0-9]+)</text>", charts_svg([("1F1B", timeline)]))
    assert [numbers.count(number) for number in "012"] == [4, 4, 4]
