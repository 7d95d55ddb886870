"""The law of time by tokens: its two spellings, and what sequences and chunks take by it."""

import numpy as np
import pytest

from ppsim.core.law import Law, parse_law
from ppsim.errors import InputError
from tests.commands import refused


@pytest.mark.parametrize(
    ("text", "law"),
    [
        ("1,0,2e-3,0", Law(1, 0, 0.002, 0)),
        ("12,2e-4,.07,4e-7", Law(12, 2e-4, 0.07, 4e-7)),
        ("0,1,0.5", Law(0, 0, 1, 0.5)),
        (" 3, 1., 0", Law(3, 0, 1, 0)),
        ("0,0,1", Law(0, 0, 0, 1)),
    ],
)
def test_a_law_is_three_numbers_or_four(text, law):
    """Three leave out what a token of the prefix takes."""
    assert parse_law(text) == law


@pytest.mark.parametrize(
    "text",
    [
        *("", "1,2", "1,2,3,4,5", "a,b,c", "a,b,c,d", "1,,2", "1,-1,0", "-1,0,1,0", "nan,1,1"),
        *("nan,0,1,0", "inf,0,1,0", "1e999,1,1", "1_0,1,0", "0,0,0", "0,1,0,0", "1e13,1,1"),
    ],
)
def test_what_is_not_a_law_is_refused(text):
    """Neither are numbers below 0 or without end, and numbers by which no token takes time."""
    with pytest.raises(InputError, match="not a law"):
        parse_law(text)


def test_a_sequence_takes_what_one_chunk_of_it_does():
    """A chunk without a prefix is a sequence; one of no tokens takes no time."""
    law, tokens = Law(7, 0.5, 2, 0.25), np.array([0.0, 1.0, 10.0, 300.0])
    alone = [0.0, *(float(law.times([int(each)])[0]) for each in tokens[1:])]
    assert law.times_of_sequences(tokens).tolist() == alone


def test_later_chunks_pay_for_their_prefix():
    """By hand: 2 + 10 + 100 for the first ten tokens, 3 x 10 and 2 x 10 x 10 more for the next."""
    assert Law(2, 3, 1, 1).times([10, 10]).tolist() == [112, 112 + 30 + 200]


def test_sequences_have_no_prefix_to_pay_for():
    """A number that has no effect is refused, whichever command it is given to."""
    for command in ("run", "jitter"):
        error = refused(
            *(command, "1f1b", "--devices", "2", "--mb", "4"),
            *("--lengths", "uniform:1:9:1", "--law", "0,1,1,0"),
        )
        assert "which sequences of --lengths lack" in str(error)
