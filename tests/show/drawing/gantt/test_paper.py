"""Figures for papers: numbers cross no edge of colours, a middle folds, and nothing loses its
numbers in silence.
"""

import re
import warnings

import numpy as np
import pytest

from ppsim.show.drawing.gantt.figure import plot
from ppsim.show.drawing.gantt.layout import SMALLEST_LABEL, cells_of, label_width, thin_labels
from ppsim.show.drawing.look import Look
from tests.cases import timed
from tests.commands import answer

EIGHT = ("1f1b", "interleaved", "zb-v", "dualpipe", "v-half", "gis", "gpipe", "zb-1p")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", EIGHT)
@pytest.mark.parametrize("scale", [1.0, 2.9, 6.0])
def test_a_sparse_number_lies_on_its_own_colour_and_meets_no_other(name, scale):
    """Found by looking at each: the cells below a number are of its colour, side by side, and hold
    no other number.
    """
    cells = cells_of(timed(name, 8, 16))
    texts = list(map(str, cells.number.tolist()))
    size, shown = thin_labels(cells, texts, scale)
    assert size == SMALLEST_LABEL
    half = np.array([size * label_width(len(text)) / 2 for text in texts])
    middle = (cells.left + cells.right) / 2 * scale
    for cell in np.flatnonzero(shown).tolist():
        begin, end = middle[cell] - half[cell], middle[cell] + half[cell]
        row = cells.device == cells.device[cell]
        below = row & (cells.left * scale < end) & (cells.right * scale > begin)
        assert (cells.colour[below] == cells.colour[cell]).all()
        assert cells.width[below].sum() * scale >= end - begin - 1e-6
        others = row & shown & (middle != middle[cell])
        assert not (others & (middle - half < end) & (middle + half > begin)).any()
    if scale == 6.0:
        assert shown.mean() > 0.5


def drawn(name, folder, *more):
    """How many numbers a figure for one column or another width has, and what is said."""
    file = folder / "x.svg"
    words = ["run", name, "--devices", "8", "--mb", "16", "--style", "paper", "-q"]
    code, _, err = answer(*words, *more, "-o", str(file))
    assert code == 0
    return len(re.findall(r">\d+</text>", file.read_text())), " ".join(err.split())


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", EIGHT)
def test_two_cells_of_five_have_their_number_in_one_column_or_all_is_in_lines(name, tmp_path):
    """In lines there are more numbers than in one line, which the option that it names draws."""
    numbers, said = drawn(name, tmp_path, "--width", "3.3")
    cells = len(cells_of(timed(name, 8, 16)))
    assert numbers >= 0.4 * cells
    lines = re.findall(r"is drawn in (\d) lines to fit 3.3 inches.*(--window 0:[\d.]+) draws", said)
    assert bool(lines) == (name in ("interleaved", "zb-v", "v-half", "gis"))
    for count, option in lines:
        one, _ = drawn(name, tmp_path, "--width", "3.3", *option.split())
        assert count in "23"
        stated = re.findall(r"where ([\d.]+)% of the cells have their number", said)
        share = float(stated[0]) / 100 if stated else 1.0
        assert share * cells == pytest.approx(numbers, rel=0.1)  # cells that are cut have none
        for width in re.findall(r"--width ([\d.]+) shows more", said):
            assert drawn(name, tmp_path, "--width", width)[0] > numbers
        assert one < min(0.4 * cells, numbers)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["1f1b", "dualpipe", "gpipe", "zb-1p"])
def test_what_has_no_room_for_its_numbers_says_so(name, tmp_path):
    """The width or option that it names has more of them."""
    few, said = drawn(name, tmp_path, "--width", "3.3")
    (hint,) = re.findall(
        r"too wide for 3.3 inches, where [\d.]+% of the cells have their number: (.*) shows more",
        said,
    )
    wider, _ = drawn(name, tmp_path, "--width", re.findall(r"--width ([\d.]+)", hint)[0])
    assert wider > few > 0


def test_lines_hold_every_cell_once_and_say_when_they_begin():
    """Side by side they are as long as the timeline; a cell that is cut lies in two."""
    run = timed("zb-v", 8, 16)
    figure, said = quietly(run)
    assert any("drawn in 3 lines" in each for each in said)
    starts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert [each for each in starts if each.startswith("t = ")] == ["t = 17.5", "t = 35"]
    numbers = [text for text in starts if text.isdigit()]
    assert 0.9 * len(run.schedule) <= len(numbers) <= len(run.schedule)
    spans = [axes.get_xlim() for axes in figure.axes]
    assert spans == [(0, 17.5)] * 3


def test_all_numbers_need_no_word(tmp_path):
    words = [
        "run",
        "1f1b",
        "--devices",
        "4",
        "--mb",
        "8",
        "--style",
        "paper",
        "-q",
        "-o",
        str(tmp_path / "x.svg"),
    ]
    code, _, err = answer(*words, "--width", "3.3")
    assert code == 0
    assert "too wide" not in err


def test_a_middle_that_repeats_is_folded_where_few_cells_have_numbers():
    """As with --fold; a window shows what is folded."""
    run = timed("1f1b", 8, 64)
    folded, said = quietly(run)
    asked, _ = quietly(run, fold=True)
    whole, others = quietly(run, window=(0, 213))
    assert any("folded to fit 3.3 inches; --window 0:213 draws all of it" in each for each in said)
    assert not any("folded" in each for each in others)
    texts = [[text.get_text() for text in figure.axes[0].texts] for figure in (folded, asked)]
    assert texts[0] == texts[1]
    assert len(texts[0]) > 40
    assert whole.axes[0].get_xlim()[1] > folded.axes[0].get_xlim()[1]


def test_a_middle_is_folded_too_where_no_cell_has_room_either_way():
    figure, said = quietly(timed("1f1b", 32, 256))
    assert any("folded to fit 3.3 inches" in each for each in said)
    assert any("too wide for 3.3 inches" in each for each in said)
    assert figure.axes[0].get_xlim()[1] < 0.5 * 3 * (256 + 31)


def test_numbers_that_are_asked_for_stay_as_asked():
    figure, said = quietly(timed("interleaved", 8, 16), labels="none")
    assert not [text for text in figure.axes[0].texts if text.get_text().isdigit()]
    assert said == []


def quietly(run, **look):
    """A figure for one column, and what is said beside it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure = plot([run], style="paper", width=3.3, look=Look(**look))
    return figure, [str(each.message) for each in caught]
