"""The Pareto front, and sizes as people write them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.analysis.tradeoff import front
from ppsim.base.units import binary_unit, format_size, parse_size
from ppsim.errors import InputError

COSTS = st.one_of(st.integers(0, 5).map(float), st.just(float("inf")), st.just(float("nan")))


@given(st.lists(st.tuples(COSTS, COSTS), max_size=12))
def test_front_is_what_nothing_beats(points):
    """A point is off the front exactly if another is no worse in both costs and better in one, or
    it is not finite.
    """
    finite = [point for point in points if all(map(math.isfinite, point))]

    def beaten(point):
        return any(
            other != point and other[0] <= point[0] and other[1] <= point[1] for other in finite
        )

    assert front(points).tolist() == [point in finite and not beaten(point) for point in points]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("80GiB", (80 << 30, True)),
        ("512 mib", (512 << 20, True)),
        ("40GB", (40 * 10**9, True)),
        ("6", (6, False)),
        ("1.5KiB", (1536, True)),
        ("80e9", (80 * 10**9, False)),
        ("7B", (7, True)),
    ],
)
def test_sizes_are_read_as_written(text, wanted):
    """Binary and decimal units in any case; a bare number says that it is bare."""
    assert parse_size(text) == wanted


@pytest.mark.parametrize("text", ["", "GiB", "80 apples", "-3GiB", "0x10", "nan"])
def test_what_is_not_a_size_is_refused(text):
    """The message has the text and the hint an example."""
    with pytest.raises(InputError, match="not a size") as refused:
        parse_size(text)
    assert "80GiB" in refused.value.hint


def test_sizes_are_written_in_the_unit_that_fits():
    """Four digits; what is not bytes stays as it is."""
    assert [format_size(n) for n in (0, 1023, 1536, 80 << 30)] == [
        "0 B",
        "1,023 B",
        "1.5 KiB",
        "80 GiB",
    ]
    assert format_size(4, "activations") == "4"
    assert [binary_unit(n) for n in (0, 1023, 1024, 1 << 62)] == [
        ("B", 1),
        ("B", 1),
        ("KiB", 1024),
        ("PiB", 1 << 50),
    ]
