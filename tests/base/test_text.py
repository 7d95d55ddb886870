"""Text from files is cut and cleaned before anybody sees it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.base.numbers import (
    MINUS,
    align_decimals,
    format_column,
    format_number,
    format_part,
    format_range,
)
from ppsim.base.text import guess_of, one_line, quote, shorten, shorten_lines, underline


@given(st.text(), st.integers(4, 50))
def test_shortened_text_is_one_printable_line_of_at_most_so_many_signs(text, most):
    short = shorten(text, most)
    assert len(short) <= most
    assert short == one_line(short)
    assert len(short.splitlines()) <= 1
    short.encode()


@given(st.text())
def test_every_sign_keeps_its_place(text):
    """Carets below a line stay below what they mark."""
    assert len(one_line(text)) == len(text)


@pytest.mark.parametrize("sign", ["\x1b", "\x9b", "\x7f", "\0", "\r", "\u202e", "\ud800", "\u2028"])
def test_no_terminal_sees_a_control_character(sign):
    assert sign not in one_line(f"a{sign}b")
    assert shorten_lines(f"a{sign}\nb").count("\n") == 1


def test_values_are_quoted_as_python_writes_them_up_to_a_length():
    assert quote("a\x1b") == "'a\\x1b'"
    assert quote(3) == "3"
    assert quote(10**5000) == "a whole number of 16610 bits"
    assert len(quote(["x" * 10**6])) == 80


def test_a_part_has_the_digits_that_matter_beside_the_whole():
    """A hundred-thousandth of the whole is the last digit; without a whole, four digits as
    everywhere.
    """
    parts = [
        (626.5994, 3244.7),
        (0.071228, 3244.7),
        (0.34, 3244.7),
        (1.34063, 33.0),
        (-0.00001, 1.0),
        (2e6, 1e7),
    ]
    assert [format_part(*each) for each in parts] == [
        "626.6",
        "0.1",
        "0.3",
        "1.341",
        "0",
        "2,000,000",
    ]
    assert format_part(0.123456789, 0.0) == format_part(0.123456789, float("inf")) == "0.1235"
    assert format_part(-1e-9, 1.0) == "0"
    assert format_part(2.6, 5e6) == "3"  # never a digit after the point of so large a whole


def test_both_ends_of_a_range_have_as_many_decimals():
    ranges = [(10.0, 10.8), (9.38, 10.1), (0.2341, 0.25), (1234.4, 1301.0), (4.726, 6.41)]
    assert [format_range(*each) for each in ranges] == [
        "10.0-10.8",
        "9.4-10.1",
        "0.234-0.250",
        "1,234-1,301",
        "4.73-6.41",
    ]


def test_decimals_of_a_column_stand_one_below_the_other():
    """As many as one of them has, where four digits have room; what is no number, and zero,
    stays.
    """
    assert align_decimals(["2", "4.4", "1.257", "0.643", "12.5", "1,128", "0", ""]) == [
        *("2.000", "4.400", "1.257", "0.643", "12.50", "1,128", "0", "")
    ]
    assert align_decimals(["+12", "\u2212148", "\u2212119.2", "+5,000"]) == [
        "+12.0",
        "\u2212148.0",
        "\u2212119.2",
        "+5,000",
    ]
    assert align_decimals(["22.2 GiB", "22.45 GiB", "5.5*", "8"]) == [
        "22.20 GiB",
        "22.45 GiB",
        "5.50*",
        "8.00",
    ]
    assert align_decimals(
        ["compute +2 s", "end of a step +0.25 s", "the same", "0.1 s faster"]
    ) == [*("compute +2.00 s", "end of a step +0.25 s", "the same", "0.1 s faster")]
    assert align_decimals(["8", "16", "8x64", "8,8,6"]) == ["8", "16", "8x64", "8,8,6"]
    assert align_decimals(["27.3%", "8%", "1e+20", "0.01"]) == ["27.3%", "8%", "1e+20", "0.01"]
    assert align_decimals([]) == []


@given(st.lists(st.floats(-1e7, 1e7, allow_subnormal=False)))
def test_no_value_changes_with_its_decimals(values):
    texts = [*map(format_number, values)]
    for text, aligned in zip(texts, align_decimals(texts), strict=True):
        assert float(aligned.replace(",", "").replace(MINUS, "-")) == float(
            text.replace(",", "").replace(MINUS, "-")
        )


@pytest.mark.parametrize(
    ("word", "meant"),
    [("h100", "dgx-h100"), ("h80", "h800"), ("dgxh100", "dgx-h100"), ("100", ""), ("tpu", "")],
)
def test_of_known_words_one_with_that_part_is_meant_before_one_spelled_alike(word, meant):
    known = ["h800", "dgx-h100", "h100-96gb-500w"]
    assert guess_of(word, iter(known)) == (f" Did you mean '{meant}'?" if meant else "")


def test_the_numbers_of_a_column_have_equal_decimals():
    """Four digits of the largest one, more where the smallest would have less than three."""
    assert format_column([8.074, 10.03, 0.0, None]) == ["8.07", "10.03", "0", ""]
    assert format_column([9.926, 7.969]) == ["9.926", "7.969"]
    assert format_column([1026.36, 15.71, 1.652]) == ["1,026.36", "15.71", "1.65"]
    assert format_column([12.5, 1.25, 900.0]) == ["12.50", "1.25", "900.00"]
    assert format_column([-8.074, 10.0]) == [f"{MINUS}8.07", "10.00"]
    assert format_column([2048, 4096.0, None]) == ["2,048", "4,096", ""]
    assert format_column([]) == []


def test_a_column_of_very_different_numbers_has_four_digits_of_each():
    assert format_column([40.25, 0.003412]) == ["40.25", "0.003412"]
    assert format_column([math.inf, 1.5]) == [format_number(math.inf), "1.500"]


def test_a_column_is_rounded_once():
    """A number that is rounded to four digits and then to three would end in 8."""
    assert format_column([8.0749, 10.0]) == ["8.07", "10.00"]


def test_a_line_of_a_file_is_marked_from_its_first_letter_to_its_last():
    """Without the blanks around it, and no longer than a message may be."""
    assert underline("  F0 :a, 3ms \n") == "  F0 :a, 3ms\n  ^^^^^^^^^^"
    assert underline("x" * 300) == "  " + "x" * 117 + "...\n  " + "^" * 120
