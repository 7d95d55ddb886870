"""Factors of microbatches, from numbers, files and distributions."""

import numpy as np
import pytest

from ppsim.core.ops import Kind
from ppsim.errors import InputError
from ppsim.inputs.profile.scale import parse_scale, parse_slice_scale


def test_numbers_hold_for_all_kinds_or_for_those_named():
    scale = parse_scale(["1,2,0.5", "WI=3,1,1"], 3)
    np.testing.assert_array_equal(scale[[Kind.F, Kind.B, Kind.R]], [[1, 2, 0.5]] * 3)
    np.testing.assert_array_equal(scale[[Kind.I, Kind.W]], [[3, 1, 1]] * 2)


def test_a_file_holds_them_too(tmp_path):
    (tmp_path / "lengths.txt").write_text("1.5\n0.5, 1\n")
    np.testing.assert_array_equal(
        parse_scale([str(tmp_path / "lengths.txt")], 3)[Kind.F], [1.5, 0.5, 1]
    )


@pytest.mark.parametrize("name", ["uniform", "normal", "lognormal"])
def test_a_distribution_has_mean_one_and_its_spread(name):
    """The mean is 1, so that the work stays; the same seed draws the same factors, another seed
    others.
    """
    row = parse_scale([f"{name}:0.2:7"], 20_000)[Kind.F]
    assert row.mean() == pytest.approx(1, abs=0.01)
    assert row.std() == pytest.approx(0.2 / (3**0.5 if name == "uniform" else 1), abs=0.01)
    assert (row > 0).all()
    np.testing.assert_array_equal(row, parse_scale([f"{name}:0.2:7"], 20_000)[Kind.F])
    assert not np.array_equal(row, parse_scale([f"{name}:0.2:8"], 20_000)[Kind.F])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1,2", "2 factors for 3 microbatches"),
        ("1,-2,1", "zero or more"),
        ("1,e,1", "not a list of factors"),
        ("normal:2:1", "not a distribution"),
        ("uniform:x", "not a distribution"),
        ("nothere.txt", "nothere.txt"),
    ],
)
def test_what_is_none_of_these_is_refused(text, said):
    with pytest.raises(InputError, match=said):
        parse_scale([text], 3)


@pytest.mark.parametrize("kind", ["", "W="])
def test_what_a_file_holds_is_never_quoted(tmp_path, kind):
    (tmp_path / "f.csv").write_text("secret 1,2\n")
    with pytest.raises(InputError, match="not a list of factors") as error:
        parse_scale([f"{kind}{tmp_path / 'f.csv'}"], 2)
    assert "secret" not in str(error.value)


def test_attention_of_a_slice_grows_with_what_comes_before_it():
    """Of three slices it is 1/3, 1 and 5/3 of the mean; half of a forward is attention, two thirds
    of an I.
    """
    scale = parse_slice_scale(["attention:50%"], 3)
    np.testing.assert_allclose(scale[Kind.F], [2 / 3, 1, 4 / 3])
    np.testing.assert_allclose(scale[Kind.I], [5 / 9, 1, 13 / 9])
    np.testing.assert_array_equal(scale[Kind.W], [1, 1, 1])
