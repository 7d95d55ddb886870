"""What ops cost: defaults, parts of the backward, lists per stage, shares per device, pairs, links,
bad numbers.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ppsim.core.costs import Costs, costs_for
from ppsim.core.ops import Kind
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure
from ppsim.errors import InputError
from ppsim.schedules import generate

LINEAR = generate("1f1b", stages=4, microbatches=8)
LOOP = generate("interleaved", devices=2, chunks=2, microbatches=4)


def rows(schedule=LINEAR, **given) -> list[list[float]]:
    return costs_for(schedule, **given).time.tolist()


def test_whole_numbers_are_times():
    """Latencies and times without a decimal point cost what they say."""
    whole = Costs(np.array([[1], [2], [1], [1], [1]]) * np.ones((1, 4), int), 2)
    assert (
        simulate(LINEAR, whole).makespan == simulate(LINEAR, costs_for(LINEAR, comm=2.0)).makespan
    )


def test_defaults():
    """F, I, W and R take 1, B takes both halves, messages nothing, pairs the sum of their ops."""
    costs = costs_for(LINEAR)
    assert costs.time.tolist() == [[1] * 4, [2] * 4, [1] * 4, [1] * 4, [1] * 4]
    assert costs.comm == 0
    assert costs.pair is None
    assert costs.unit == "t_F"


@pytest.mark.parametrize(
    ("given", "b", "i", "w"),
    [
        ({"tb": 5}, 5, 2.5, 2.5),
        ({"ti": 3}, 4, 3, 1),
        ({"tw": 3}, 4, 1, 3),
        ({"ti": 3, "tw": 4}, 7, 3, 4),
        ({"tb": 5, "ti": 3}, 5, 3, 2),
        ({"tb": 5, "tw": 3}, 5, 2, 3),
        ({"tb": 5, "ti": 3, "tw": 4}, 5, 3, 4),
        ({"tb": 3, "ti": 3}, 3, 3, 0),
        ({"tb": 0}, 0, 0, 0),
    ],
)
def test_parts_of_the_backward(given, b, i, w):
    """What is not given follows from what is: B = I + W, halves where only B is known, measured
    values as they are.
    """
    assert rows(tf=2, **given) == [[2] * 4, [b] * 4, [i] * 4, [w] * 4, [2] * 4]


def test_one_value_per_stage():
    """A list gives each stage its own time."""
    assert rows(tf=[1, 2, 3, 4], ti=[4, 3, 2, 1], tw=1) == [
        [1, 2, 3, 4],
        [5, 4, 3, 2],
        [4, 3, 2, 1],
        [1] * 4,
        [1, 2, 3, 4],
    ]


def test_times_are_for_a_device_share():
    """By default a time is for a device's share of the model, so a stage costs P/S of it; per stage
    it is as given.
    """
    assert rows(LOOP, tf=6)[0] == [3] * 4
    assert rows(LOOP, tf=6, per="stage")[0] == [6] * 4
    assert rows(LINEAR, tf=6)[0] == rows(LINEAR, tf=6, per="stage")[0] == [6] * 4
    assert costs_for(LOOP, tfb=8).pair.tolist() == [4] * 4  # type: ignore[union-attr]


def test_equal_hardware_does_equal_work():
    """At costs per device every schedule keeps its devices busy for the same time."""
    for name in ("gpipe", "1f1b", "interleaved", "zb-1p", "dualpipe", "dualpipe-v", "looped-bfs"):
        schedule = generate(name, devices=4, microbatches=8)
        busy = measure(simulate(schedule, costs_for(schedule, tf=3, ti=2, tw=1))).busy
        assert busy.tolist() == [48] * 4, name


def test_unknown_share_is_refused():
    """Times are per device or per stage, nothing else."""
    with pytest.raises(InputError, match="per is device or stage, got 'chunk'"):
        costs_for(LINEAR, per="chunk")


@pytest.mark.parametrize("name", ["tf", "tb", "ti", "tw", "tfb", "comm"])
@pytest.mark.parametrize("value", [-1, -1e-9, float("nan"), float("inf"), float("-inf"), 1e200])
def test_costs_are_finite_and_not_negative(name, value):
    """A cost that no clock measures is refused by name, and so is one of a list."""
    given: list[Any] = [value, [1, value, 1, 1]] if name != "comm" else [value]
    for bad in given:
        with pytest.raises(
            InputError, match=f"{name} must be zero or more, finite and at most 1e"
        ) as error:
            costs_for(LINEAR, **{name: bad})
        assert f"{value:g}" in str(error.value)


@pytest.mark.parametrize("values", [[1, 2], [1, 2, 3, 4, 5], []])
def test_lists_have_one_value_per_stage(values):
    """A list of another length is refused with both numbers."""
    with pytest.raises(InputError, match=f"tf has {len(values)} values for 4 stages"):
        costs_for(LINEAR, tf=values)


@pytest.mark.parametrize(("part", "other"), [("ti", "tw"), ("tw", "ti")])
def test_a_part_is_no_longer_than_the_whole(part, other):
    """A half of the backward above the whole is refused with what to give instead."""
    given: dict[str, Any] = {"tb": 2, part: 3}
    with pytest.raises(InputError, match=f"{part} is larger than tb") as error:
        costs_for(LINEAR, **given)
    assert other in error.value.hint


def test_pairs():
    """A pair takes the sum of its ops, or the time given; of F and I it always takes the sum."""
    schedule = generate("dualpipe-v", devices=2, microbatches=8)
    paired = schedule.pair >= 0
    assert (costs_for(schedule, tf=2, ti=3, tw=1).durations(schedule)[paired] == 3).all()
    assert (costs_for(schedule, tf=2, ti=3, tw=1, tfb=5).durations(schedule)[paired] == 2.5).all()
    assert (costs_for(schedule, tf=2, ti=3, tw=1, tfb=5).durations(schedule)[~paired] <= 2).all()


def test_a_measured_pair_is_the_mean_of_its_stages():
    """A pair over two stages takes the mean of the pair times measured on them."""
    schedule = generate("dualpipe-v", devices=1, microbatches=2)
    costs = costs_for(schedule, tfb=[3, 4], per="stage")
    assert set(costs.durations(schedule)[schedule.pair >= 0]) == {3.5}


def test_pair_time_is_for_full_backwards():
    """A pair of F and I, half a backward, takes the sum of the two."""
    schedule = generate("1f1b-overlap", stages=2, microbatches=4)
    kind = np.where(schedule.kind == Kind.B, Kind.I, schedule.kind).astype(np.uint8)
    halved = replace(schedule, kind=kind)
    paired = halved.pair >= 0
    assert (costs_for(halved, tf=2, ti=3, tfb=100).durations(halved)[paired] == 5).all()


def test_messages_take_their_link():
    """A matrix gives each directed link its latency; on one device an input takes no time."""
    links = np.array([[100.0, 1.0], [2.0, 100.0]])
    latency = Costs(np.ones((4, 4)), links).latencies(LOOP)
    away = LOOP.device[LOOP.dependency] != LOOP.device
    away &= LOOP.dependency >= 0
    assert set(latency[away & (LOOP.device == 0)]) == {2.0}
    assert set(latency[away & (LOOP.device == 1)]) == {1.0}
    assert set(latency[~away]) == {0.0}
    assert np.array_equal(Costs(np.ones((4, 4)), 7.0).latencies(LOOP), 7.0 * away)
