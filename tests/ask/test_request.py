"""Values that Python gives are read as an option's kind, or refused in one sentence."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

import ppsim
from ppsim.ask.types import Amount, Share, with_plain_digits
from ppsim.errors import InputError

SHAPE: dict[str, Any] = {"devices": 2, "microbatches": 4}
SWEPT: dict[str, Any] = {"devices": 2, "microbatches": 4, "metric": "makespan"}
ENDLESS = 10**5000  # a number that Python does not write
REFUSED: dict[str, list[Any]] = {
    "devices": [float("inf"), float("nan"), 2.5, "2.5", b"2", [2], 2j, {2}],
    "microbatches": [np.True_, range(10**9), np.array([2, 3]), ENDLESS],
    "comm": [10**400, b"1", [1], "x", np.datetime64("2026-01-01")],
    "tf": [b"2", bytearray(b"x"), [True], np.True_, [[2]], ["x"], {}, 10**400, [10**400]],
    "tb": [np.ones((2, 2)), [None], 1j, ENDLESS, [ENDLESS], range(10**9)],
    "unit": [b"ms", [], {"a": 1}, len, object()],
    "profile": [0, 5, b"x", ["x"]],
    "window": [(9, 2), (2,), (1, 2, 3), ("a", "b"), (np.nan, 2), [], "0_1:9"],
    "everywhere": [[-1], [0.5], ["x"], [True], [[0]], []],
}


@pytest.mark.parametrize(
    ("option", "value"),
    [(option, value) for option, values in REFUSED.items() for value in values],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_a_value_of_the_option_is_refused(option, value):
    with pytest.raises(InputError) as caught:
        ppsim.run("1f1b", **{**SHAPE, option: value})
    assert str(caught.value).startswith(f"{option}: ")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("tf", [[], (), np.array([])])
def test_an_empty_list_of_numbers_is_no_number(tf):
    with pytest.raises(InputError, match=r"tf: not a number, nor one per stage: .*; expected e.g."):
        ppsim.run("1f1b", **SHAPE, tf=tf)


def test_a_switch_is_true_or_false():
    with pytest.raises(InputError, match=r"^grid: not a switch: 'x'; expected true or false$"):
        ppsim.run("1f1b", **SHAPE, grid="x")  # type: ignore[arg-type]


def test_a_range_keeps_its_ends_where_its_digits_are_plain():
    kind = with_plain_digits(click.FloatRange(0, 1, min_open=True, max_open=True))
    assert kind.convert("0.5", None, None) == 0.5
    for text in ("0", "1"):
        with pytest.raises(click.BadParameter, match="not in the range 0<x<1"):
            kind.convert(text, None, None)
    clamped = with_plain_digits(click.IntRange(1, 4, clamp=True))
    assert clamped.convert("9", None, None) == 4


@pytest.mark.parametrize("text", ["inf", "-inf", "nan"])
def test_an_amount_is_finite(text):
    with pytest.raises(click.BadParameter, match=f"not a finite number: '{text}'; expected"):
        Amount().convert(text, None, None)


def test_a_word_that_is_no_choice_is_quoted_in_part():
    with pytest.raises(InputError, match=r"^p2p: 'xxx") as caught:
        ppsim.run("1f1b", **SHAPE, p2p="x" * 5000)  # type: ignore[arg-type]
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("devices", [[0], [-1], [2.5], [True], ["x"], [None], [], [[2]], [10**12]])
def test_a_list_of_counts_is_refused_as_its_text_is(devices):
    with pytest.raises(InputError, match="devices: not a count"):
        ppsim.sweep(["1f1b"], **{**SWEPT, "devices": devices})


@pytest.mark.parametrize("name", [5, b"1f1b", {"1f1b": 1}, Fraction(1, 2)])
def test_a_schedule_is_named_by_a_text_or_a_path(name):
    with pytest.raises(InputError):
        ppsim.run(name, **SHAPE)


def test_a_refusal_names_the_option_as_the_signature_does():
    """Names of fields that Python's signatures do not have are in no message."""
    wrong: Any = {"tf": 2}
    with pytest.raises(InputError, match=r"^what_if: not a text"):
        ppsim.explain("1f1b", **SHAPE, what_if=wrong)
    with pytest.raises(InputError, match=r"^devices: not a whole number: True; expected e\.g\. 4"):
        ppsim.run("1f1b", devices=True, microbatches=4)
    with pytest.raises(InputError, match=r"^costs: not made by Costs\.of: \{'tf': 2\}"):
        ppsim.run("1f1b", **SHAPE, costs=wrong)
    with pytest.raises(InputError) as caught:
        ppsim.explain("1f1b", **{**SHAPE, "what_is": "tf=2"})
    assert "what_if" in str(caught.value.hint)
    assert "changes" not in str(caught.value.hint)


def test_a_schedule_object_is_refused_where_a_file_is_needed_and_can_be_saved_as_one(tmp_path):
    schedule: Any = ppsim.run("1f1b", **SHAPE).timeline.schedule
    with pytest.raises(InputError, match=r"^schedule: not a schedule's name or file") as caught:
        ppsim.explain(schedule)
    assert 'run(schedule).save("mine.csv")' in str(caught.value.hint)
    ppsim.run(schedule).save(str(tmp_path / "mine.csv"))
    assert ppsim.explain(str(tmp_path / "mine.csv")).to_json()["makespan"] == 15


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"devices": 5}, "mine has 2 devices, not 5"),
        ({"microbatches": 8}, "mine has 4 microbatches, not 8"),
        ({"limit": 3}, "mine takes no limit"),
    ],
)
def test_a_shape_that_a_schedule_object_does_not_have_is_refused(wrong, message):
    """As one of a file is; the same shape is allowed."""
    schedule = replace(ppsim.run("1f1b", **SHAPE).timeline.schedule, name="mine")
    assert ppsim.run(schedule, **SHAPE).to_json()["makespan"] == 15
    with pytest.raises(InputError, match=message):
        ppsim.run(schedule, **wrong)


def test_a_path_is_a_schedule_and_one_that_is_too_long_is_refused(tmp_path):
    (tmp_path / "mine.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    assert ppsim.run(tmp_path / "mine.csv").to_json()["makespan"] == 9
    with pytest.raises(InputError):
        ppsim.run(Path("a" * 5000 + ".csv"), **SHAPE)


@pytest.mark.parametrize(
    "tf",
    [[2, 3], (2, 3), np.array([2, 3]), range(2, 4), "2,3", ["2", "3"], [Fraction(2), Decimal(3)]],
)
def test_numbers_are_those_of_any_sequence(tf):
    found = ppsim.run("1f1b", **SHAPE, tf=tf).to_json()
    assert found["makespan"] == 24
    assert found["inputs"]["command"].endswith("--tf 2,3")


@pytest.mark.parametrize("devices", [[2, 3], (2, 3), np.array([2, 3]), range(2, 4), "2,3", "2:3:1"])
def test_counts_are_those_of_any_sequence(devices):
    found = ppsim.sweep(["1f1b"], **{**SWEPT, "devices": devices})
    assert [each["devices"] for each in found] == [2, 3]


def test_a_window_is_two_times_in_order(tmp_path):
    def figure(window: object) -> bytes:
        ppsim.run("1f1b", **SHAPE).save(str(tmp_path / "a.svg"), window=window)
        return (tmp_path / "a.svg").read_bytes()

    typed = figure("2:9")
    assert typed != figure(None)
    for window in ((2, 9), [2, 9], np.array([2, 9])):
        assert figure(window) == typed


@pytest.mark.parametrize(
    ("given", "share"), [("5%", 0.05), ("0.05", 0.05), ("1", 1.0), ("150%", 1.5), (0.5, 0.5)]
)
def test_a_share_is_a_fraction_or_a_percentage(given, share):
    assert Share().convert(given, None, None) == pytest.approx(share)


@pytest.mark.parametrize("given", ["5", "1.01", "-1%", "x", "inf", "nan"])
def test_what_is_not_a_share_is_refused(given):
    """5 may mean 500 % or 5 %."""
    with pytest.raises(click.BadParameter, match=given):
        Share().convert(given, None, None)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"cap": [4, 3.5, 2, 1]}, {"cap": "4,3.5,2,1"}),
        ({"cap": np.array([4, 3, 2, 1])}, {"cap": "4,3,2,1"}),
        ({"mb_scale": [1, 1.5, 1, 2]}, {"mb_scale": "1,1.5,1,2"}),
        ({"mb_scale": np.array([1, 1.5, 1, 2])}, {"mb_scale": "1.0,1.5,1.0,2.0"}),
        ({"mb_scale": ["F=1,2,1,1", "B=1,1,3,1"]}, {"mb_scale": ("F=1,2,1,1", "B=1,1,3,1")}),
        ({"mb_scale": [[1, 1, 2, 1], "B=1,1,3,1"]}, {"mb_scale": ("1,1,2,1", "B=1,1,3,1")}),
    ],
)
def test_lists_of_python_are_the_texts_of_the_command_line(options, text):
    shape: dict[str, Any] = {"devices": 4, "microbatches": 4}
    given, typed = (ppsim.run("1f1b", **shape, **each) for each in (options, text))
    assert given.request == typed.request
    assert str(given) == str(typed)


@pytest.mark.parametrize("value", [[4, True], [[4], 3], [4, None], {"cap": 4}])
def test_a_list_of_other_things_is_no_text(value):
    with pytest.raises(InputError, match=r"^cap: not a text: "):
        ppsim.run("1f1b", devices=2, microbatches=4, cap=value)


def test_a_list_is_refused_where_a_text_is_one_value():
    units: dict[str, Any] = {"unit": ["ms", "us"]}
    with pytest.raises(InputError, match=r"^unit: not a text: "):
        ppsim.run("1f1b", **SHAPE, **units)
