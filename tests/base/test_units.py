"""Sizes are read exactly, and never rounded up."""

import pytest

from ppsim.base.units import parse_size
from ppsim.errors import InputError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("80GiB", (80 << 30, True)),
        ("3.7", (3, False)),
        ("2.5", (2, False)),
        ("1.5KiB", (1536, True)),
        ("1e3", (1000, False)),
    ],
)
def test_a_size_is_cut_to_whole_units(text, size):
    """A cap of 3.7 is not kept by 4."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["1e999", "1e300GiB", "9" * 5000, "8388608TiB", "1e999999999"])
def test_a_size_beyond_all_numbers_is_refused(text):
    with pytest.raises(InputError, match="larger than any size") as caught:
        parse_size(text)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("text", ["", "-1", "x", "1e", "nan", "inf", "1e9999999999999", "\u0663"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(InputError, match="not a size"):
        parse_size(text)
