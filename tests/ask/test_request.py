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
from ppsim.ask.types import Amount, Share, own_type
from ppsim.errors import InputError
from tests.pages import texts

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
    with pytest.raises(
        InputError, match=r"tf: not a number or a list of numbers: .*; expected e.g."
    ):
        ppsim.run("1f1b", **SHAPE, tf=tf)


def test_a_switch_is_true_or_false():
    with pytest.raises(InputError, match=r"^grid: not a switch: 'x'; expected true or false$"):
        ppsim.run("1f1b", **SHAPE, grid="x")  # type: ignore[arg-type]


def test_a_range_keeps_its_ends_where_its_digits_are_plain():
    kind = own_type(click.FloatRange(0, 1, min_open=True, max_open=True))
    assert kind.convert("0.5", None, None) == 0.5
    for text in ("0", "1"):
        with pytest.raises(click.BadParameter) as error:
            kind.convert(text, None, None)
        assert error.value.message == (
            f"not a number above 0 and below 1: '{text}'; expected e.g. 0.5"
        )


@pytest.mark.parametrize(
    ("kind", "wrong", "message"),
    [
        (click.IntRange(1), "0", "whole number of at least 1: '0'; expected e.g. 4"),
        (click.IntRange(5), "4", "whole number of at least 5: '4'; expected e.g. 5"),
        (click.IntRange(0, 3), "4", "whole number from 0 to 3: '4'; expected e.g. 1"),
        (click.IntRange(max=3), "9", "whole number of at most 3: '9'; expected e.g. 1"),
        (click.FloatRange(0, min_open=True), "0", "number above 0: '0'; expected e.g. 1.5"),
        (click.FloatRange(0, 1e15), "-1", "number of at least 0: '-1'; expected e.g. 1.5"),
        (click.FloatRange(0, 1e15), "2e15", "number from 0 to 1000000000000000: '2e15'; expected"),
    ],
)
def test_a_number_outside_its_range_is_answered_with_one_inside(kind, wrong, message):
    """The example is accepted; a bound that no user comes near is named only where it counts."""
    own = own_type(kind)
    with pytest.raises(click.BadParameter) as error:
        own.convert(wrong, None, None)
    assert error.value.message.startswith(f"not a {message}")
    own.convert(error.value.message.rpartition("expected e.g. ")[2], None, None)


@pytest.mark.parametrize("text", ["inf", "-inf", "nan"])
def test_an_amount_is_finite(text):
    with pytest.raises(click.BadParameter, match=f"not a finite number: '{text}'; expected"):
        Amount().convert(text, None, None)


def test_a_word_that_is_no_choice_is_quoted_in_part():
    with pytest.raises(InputError, match=r"^p2p: not a choice: 'xxx") as caught:
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


@pytest.mark.parametrize(
    ("field", "keyword"),
    [("again", "recomputes"), ("links", "link"), ("sequence", "seq"), ("per", "cost_per")],
)
def test_a_name_inside_ppsim_is_no_option(field, keyword):
    """An option has the names of the command line, and no second one that only fields have."""
    with pytest.raises(InputError, match=f"^there is no option '{field}'") as caught:
        ppsim.run("1f1b", **SHAPE | {field: "1"})
    assert keyword in str(caught.value.hint).removeprefix("one of ").split(", ")


@pytest.mark.parametrize(
    ("given", "other"),
    [
        ({"microbatches": 4}, {"mb": 6}),
        ({"mb": 4}, {"microbatches": 6}),
        ({"microbatches": 4, "cost_per": "stage"}, {"mb": 6, "cost_per": "device"}),
    ],
)
def test_a_question_to_an_answer_replaces_an_option_under_any_of_its_names(given, other):
    """Other options stay as they were given."""
    found = ppsim.run("1f1b", devices=2, tb=3, **given)
    for asked in (found.explain(**other), found.memory(**other)):
        assert asked.request.shape.microbatches == 6
        assert asked.request.shape.devices == 2
    costs = found.explain(**other).request.costs
    assert (costs.tb, costs.per) == (3, other.get("cost_per"))


NOTED = ["second@1:dev0"]


def test_a_figure_has_the_note_of_save_and_else_that_of_run(tmp_path):
    path = str(tmp_path / "x.svg")
    options: dict[str, Any] = {"note": ["first@1:dev0"], "output": path}
    found = ppsim.run("1f1b", **SHAPE, **options)
    for look, note, other in (({}, "first", "second"), ({"note": NOTED}, "second", "first")):
        found.save(path, **look)
        drawn = texts(Path(path).read_text())
        assert note in drawn
        assert other not in drawn


def test_a_schedule_object_is_refused_where_a_file_is_needed_and_can_be_saved_as_one(tmp_path):
    schedule: Any = ppsim.run("1f1b", **SHAPE).timeline.schedule
    with pytest.raises(InputError, match=r"^schedule: not a schedule's name or file") as caught:
        ppsim.explain(schedule)
    assert 'run(schedule).save("mine.csv")' in str(caught.value.hint)
    for function in (ppsim.check, ppsim.convert, ppsim.read):
        with pytest.raises(InputError, match=r"not a path: Schedule\(1f1b") as caught:
            function(schedule)
        assert 'run(schedule).save("mine.csv")' in str(caught.value.hint)
    with pytest.raises(InputError, match="not a path: 3") as caught:
        ppsim.check(3)  # type: ignore[arg-type]
    assert not caught.value.hint
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
