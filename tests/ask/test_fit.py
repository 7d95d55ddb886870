"""Tables and sentences on narrow terminals: columns go whole, digits never, and words stay in one
piece.
"""

import io
import re
import textwrap

import pytest
from rich.console import Console

from ppsim.ask import terminal as fitted
from ppsim.ask.blocks import Table
from ppsim.base.numbers import align_rows

HEADINGS = ["schedule\n", "makespan\nms", "bubble_\nrate", "bubble_\nover_ideal", "peak\nact."]
ROWS = [
    ["gpipe", "12345.6", "27.3%", "37.5%", "8"],
    ["interleaved:2", "98765.4", "15.8%", "18.8%", "5.5*"],
]


@pytest.fixture
def terminal(monkeypatch, capsys):
    """A function that makes standard output a terminal of so many columns, and one that reads
    it.
    """

    def make(width):
        def console(at_least=20, *, err=False):
            return Console(
                width=width, force_terminal=True, color_system=None, legacy_windows=False
            )

        monkeypatch.setattr(fitted, "console", console)
        return lambda: re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)

    return make


@pytest.mark.parametrize("width", range(8, 90))
def test_no_number_is_ever_cut(terminal, width):
    """Every number printed is one of the table's, whole, and each one that is missing is announced
    by its column.
    """
    read = terminal(width)
    fitted.print_table(Table(HEADINGS, ROWS, spare=["bubble_\nover_ideal"]))
    table, _, note = read().partition("no room for")
    rows = [*align_rows(ROWS)]
    numbers = {cell for row in rows for cell in row[1:]}
    words = [word for word in table.split() if word[0].isdigit()]
    assert set(words) <= numbers
    note = " ".join(note.split())
    names = ["makespan ms", "bubble_rate", "bubble_over_ideal", "peak act."]
    for column, name in enumerate(names, start=1):
        shown = [row[column] in words for row in rows]
        assert all(shown) or (name in note and not any(shown))


def test_columns_that_may_go_first_go_first(terminal):
    read = terminal(45)
    fitted.print_table(Table(HEADINGS, ROWS, spare=["bubble_\nover_ideal"]))
    assert "no room for bubble_over_ideal: a wider" in " ".join(read().split())


def test_a_table_that_fits_is_whole_and_says_nothing(terminal):
    read = terminal(60)
    fitted.print_table(Table(HEADINGS, ROWS, spare=["bubble_\nover_ideal"]))
    text = read()
    assert all(cell in text for row in ROWS for cell in row)
    assert "no room" not in text


def test_where_no_number_fits_beside_the_names_rows_become_blocks(terminal):
    read = terminal(15)
    fitted.print_table(Table(HEADINGS, ROWS))
    assert read().splitlines()[:5] == [
        "gpipe",
        "  12345.6  makespan ms",
        "  27.3%  bubble_rate",
        "  37.5%  bubble_over_ideal",
        "  8.0  peak act.",
    ]


@pytest.mark.parametrize("width", [20, 40, 79])
def test_sentences_are_wrapped_between_words_on_a_terminal(terminal, width):
    sentence = "held by " + ", ".join(f"activations of stage {n} (12.5%)" for n in range(9))
    read = terminal(width)
    fitted.echo_wrapped(sentence, 8)
    lines = read().splitlines()
    assert max(map(len, lines)) <= width
    assert " ".join(" ".join(lines).split()) == sentence
    assert all(line.startswith(" " * 8) for line in lines[1:])


def test_a_sentence_does_not_end_with_a_word_on_its_own_line(terminal):
    """Other lines are a little shorter then, and there are as many."""
    sentence = "1f1b takes 237 t_F for 64 microbatches on 16 devices; no order takes less"
    read = terminal(len(sentence) - 1)
    fitted.echo_wrapped(sentence)
    first, last = read().splitlines()
    assert f"{first} {last}" == sentence
    assert len(last) >= 12
    assert len(first) >= len(sentence) - 1 - 16


@pytest.mark.parametrize("width", range(20, 90, 7))
def test_a_sentence_has_no_more_lines_than_it_needs(terminal, width):
    sentence = "zb-v is 1.29 times faster than gpipe (25.5 against 33 t_F), with half the memory"
    read = terminal(width)
    fitted.echo_wrapped(sentence, 2)
    lines = read().splitlines()
    assert len(lines) == len(textwrap.wrap(sentence, width, subsequent_indent="  "))
    assert " ".join(" ".join(lines).split()) == sentence


def test_sentences_in_a_pipe_stay_on_one_line(monkeypatch, capsys):
    monkeypatch.setattr(
        fitted, "console", lambda at_least=20, err=False: Console(file=io.StringIO(), width=80)
    )
    fitted.echo_wrapped("word " * 100)
    assert capsys.readouterr().out == "word " * 100 + "\n"


def test_a_table_as_wide_as_the_terminal_is_whole(terminal):
    """A column goes where one more sign is needed than there is."""

    def shown(width):
        read = terminal(width)
        fitted.print_table(Table(HEADINGS, ROWS))
        return [line.rstrip() for line in read().splitlines()]

    whole = shown(200)
    wide = max(map(len, whole))
    assert shown(wide) == whole
    assert "no room for" in "".join(shown(wide - 1))
