"""Text from files is cut and cleaned before anybody sees it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.base.text import one_line, quote, shorten, shorten_lines


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
