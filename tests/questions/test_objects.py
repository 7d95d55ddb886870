"""Functions of Python that take objects work, or refuse in one sentence what is none."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ppsim
from ppsim.core.ops import Kind
from ppsim.errors import InputError
from ppsim.schedules import place

TIMELINE = ppsim.run("1f1b", devices=2, microbatches=3).timeline
SCHEDULE = TIMELINE.schedule
COSTS = ppsim.costs_for(SCHEDULE)
DOCUMENT = ppsim.Document((TIMELINE,), ("a",))
# Values that are no schedule, costs, timeline, document, path, style or name of a unit.
ODD: list[Any] = [
    True,
    0,
    -1,
    10**30,
    2.5,
    float("nan"),
    float("inf"),
    b"1",
    np.int64(2),
    np.array([1, 2]),
    np.array(["a"]),
    [None],
    [[1]],
    ["x"],
    {"a": 1},
    {1},
    range(3),
    Fraction(1, 3),
    Decimal("2"),
    1j,
    len,
    ...,
]
NO_NUMBERS: list[Any] = ["1_0", "x", "", None, b"1", [], [[1]], ["x"], [True], True, 1j, len]
NO_NUMBERS += [{}, -1.0, np.nan]
ONE_EACH = ("titles", "memory", "executions", "idles", "insides")


def refusal(call: Any, *arguments: Any, **named: Any) -> str:
    """Return the sentence with which a call is refused."""
    with pytest.raises(InputError) as caught:
        call(*arguments, **named)
    assert len(str(caught.value)) < 300
    return str(caught.value)


@pytest.mark.parametrize("value", [*ODD, None, "x", Path("x"), DOCUMENT], ids=repr)
def test_what_is_no_object_is_refused_by_its_name(value, tmp_path):
    assert "not a Schedule" in refusal(ppsim.simulate, value, COSTS)
    assert "not a Costs" in refusal(ppsim.simulate, SCHEDULE, value)
    assert "not a Timeline" in refusal(ppsim.measure, value)
    assert "not a Timeline" in refusal(ppsim.figure, value)
    assert "not a Schedule" in refusal(ppsim.costs_for, value)
    assert refusal(ppsim.plot, value)
    if value is not DOCUMENT:
        assert "not a Document" in refusal(ppsim.save, value, tmp_path / "a.svg")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
@pytest.mark.parametrize("name", ["tf", "tb", "comm"])
def test_what_is_no_time_is_refused_with_the_name_of_the_time(name, value):
    if (name, value) != ("tb", None):
        assert name in refusal(ppsim.costs_for, SCHEDULE, **{name: value})


def test_times_of_any_kind_of_number_are_the_same():
    whole = ppsim.costs_for(SCHEDULE, tf=2, tb=[3, 4]).content
    others: list[Any] = [(2.0, 3.0), (np.int64(2), np.float32(3)), (Decimal(2), Fraction(3))]
    for two, three in others:
        assert ppsim.costs_for(SCHEDULE, tf=two, tb=[three, 4]).content == whole


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("time", [*ODD, None, "x", np.ones(5), np.ones((3, 2)), [[1.0, 1.0]] * 5]),
        ("comm", [True, "1", b"1", None, [1], np.array(["a"]), -1.0, np.nan, np.ones(2)]),
        ("pair", [True, "x", [1, 2], np.ones(3)]),
        ("unit", [*ODD, None]),
        ("scale", [1, "x", [1], np.ones(3)]),
        ("speed", [1, "x", [1, 1], np.zeros(2)]),
        ("op_times", [1, "x", [1], np.array(1.0), np.ones(3)]),
        ("others", [None, 1, [1], {"F": np.ones(2)}, {Kind.OFFLOAD: 1}, {Kind.OFFLOAD: "x"}]),
        ("host_link", [None, True, "x", 1.5, -1]),
        ("feedback", [True, "x", [1], -1.0, np.nan]),
    ],
)
def test_costs_of_other_types_are_refused(field, values):
    for value in values:
        given: dict[str, Any] = {"time": np.ones((5, 2)), field: value}
        assert refusal(lambda given: ppsim.simulate(SCHEDULE, ppsim.Costs(**given)), given)


@pytest.mark.parametrize("times", [lambda *_: "x", lambda *_: np.ones(99), lambda *_: None])
def test_a_function_of_costs_returns_numbers(times):
    costs = ppsim.Costs.of(times)
    assert "a function of costs returns" in refusal(
        ppsim.run, "1f1b", devices=2, microbatches=3, costs=costs
    )
    assert "not a function" in refusal(ppsim.Costs.of, 5)


@pytest.mark.parametrize("given", [{"F": 1}, {"F": 2.0}, {"W": [1, 2]}, {"OFFLOAD": 0.5}])
def test_a_function_of_costs_and_times_of_kinds_are_not_given_together(given):
    """Only the function's times would count."""
    message = "a function of costs gives the times of all kinds"
    assert message in refusal(ppsim.Costs.of, lambda *_: 1.0, **given)
    assert ppsim.Costs.of(lambda *_: 1.0, comm=0.5, unit="ms").numbers["comm"] == 0.5


@pytest.mark.parametrize("name", ["line", "", None, ["linear"]])
def test_a_placement_that_has_no_such_name_is_refused(name):
    assert "not a placement" in refusal(place, name, 4, 8)


@pytest.mark.parametrize("count", [0, -1, 2.5, True, "4", None])
def test_a_placement_is_of_whole_numbers(count):
    assert "n_devices: not a whole number" in refusal(place, "v", count, 8)
    assert "n_stages: not a whole number" in refusal(place, "v", 4, count)


@pytest.mark.parametrize("name", ONE_EACH)
@pytest.mark.parametrize("value", [True, 1, "x", TIMELINE, [1], [[]], ["a", "b"]], ids=repr)
def test_what_is_drawn_with_a_timeline_is_one_for_each(name, value):
    assert name in refusal(ppsim.plot, TIMELINE, **{name: value})


def test_each_timeline_has_a_title_and_may_lack_its_idle_time():
    assert "titles" in refusal(ppsim.plot, TIMELINE, titles=[None])
    assert ppsim.plot(TIMELINE, idles=[None])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("timelines", TIMELINE),
        ("timelines", (1,)),
        ("titles", ("a", "b")),
        ("titles", "a"),
        ("titles", (1,)),
        ("inputs", [1]),
        ("inputs", {1: 2}),
        ("memory", (1,)),
        ("cap", "6"),
        ("cap", 6.0),
        ("caps", (1.0,)),
        ("curves", (1,)),
        ("look", None),
        ("width", None),
        ("title", 5),
        ("costs", [COSTS]),
    ],
)
def test_a_document_with_values_of_other_types_is_refused(field, value, tmp_path):
    given: dict[str, Any] = {"timelines": (TIMELINE,), "titles": ("a",), field: value}
    for suffix in (".html", ".svg", ".json"):
        assert refusal(ppsim.save, ppsim.Document(**given), tmp_path / f"a{suffix}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("target", [None, 5, b"a.svg", ["a.svg"], "a\ud800.svg", "a\0.svg", "a.x"])
def test_a_document_is_written_to_a_path(target, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refusal(ppsim.save, DOCUMENT, target)
    assert not list(tmp_path.iterdir())
    ppsim.save(DOCUMENT, tmp_path / "a.json")
    assert (tmp_path / "a.json").exists()


def test_a_timeline_has_a_time_for_each_op_and_each_is_finite():
    start, end = TIMELINE.start, TIMELINE.end
    assert "start" in refusal(ppsim.Timeline, SCHEDULE, start[1:], end, TIMELINE.bound, "ms")
    endless = ppsim.Timeline(SCHEDULE, start, end * np.nan, TIMELINE.bound, "ms")
    assert "not finite" in refusal(ppsim.measure, endless)
