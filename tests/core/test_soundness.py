"""The door to compiled code: columns that kernels cannot index never become a schedule, lowered
queues or costs.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.core.costs import Costs, costs_for
from ppsim.core.lowered import Lowered
from ppsim.core.schedule import Placement, Schedule
from ppsim.engine.detailed.execute import execute
from ppsim.engine.detailed.spec import Network, Shared
from ppsim.engine.lowering.lower import lower
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError, PpsimError
from ppsim.schedules import generate

COLUMNS = ("offsets", "kind", "stage", "microbatch", "pair")
LARGE = (-(2**31), -3, -2, -1, 2**30, 2**31 - 1)
PLAIN = generate("1f1b", devices=2, microbatches=3)
PAIRED = generate("dualpipe-v", devices=2, microbatches=4)
LOWERED = [
    lower(PLAIN, unshard=3, reduce_grad=True),
    lower(PAIRED, batch=True),
    lower(generate("dualpipe", devices=2, microbatches=4)),
]


def changed(column: Any, at: int, value: int) -> Any:
    """The column with one entry set, as its type holds the value."""
    column = column.copy()
    column[at % len(column)] = np.array(value).astype(column.dtype)
    return column


@given(
    lowered=st.sampled_from(LOWERED),
    name=st.sampled_from((*COLUMNS, "batch")),
    at=st.integers(0, 1000),
    value=st.one_of(st.sampled_from(LARGE), st.integers(-3, 60)),
)
def test_one_changed_number_is_refused_or_runs(lowered, name, at, value):
    """Either no object is made, or the models run it or refuse it with a message, in any mode."""
    for mode in ("latency", "overlap", "blocking", "batched"):
        with suppress(PpsimError):
            if name == "batch":
                other = replace(lowered, batch=changed(lowered.batch, at, value))
            else:
                queues = replace(
                    lowered.schedule, **{name: changed(getattr(lowered.schedule, name), at, value)}
                )
                other = replace(lowered, schedule=queues)
            execute(other, costs_for(lowered.compute), Network(mode, alpha=0.5))


@given(
    schedule=st.sampled_from((PLAIN, PAIRED)),
    name=st.sampled_from(COLUMNS),
    at=st.integers(0, 1000),
    value=st.one_of(st.sampled_from(LARGE), st.integers(-3, 60)),
)
def test_one_changed_number_of_a_schedule_is_refused_or_runs(schedule, name, at, value):
    with suppress(PpsimError):
        simulate(
            replace(schedule, **{name: changed(getattr(schedule, name), at, value)}),
            costs_for(schedule),
        )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"offsets": np.array([0, 7, 6])}, "offsets do not ascend from 0 to the 12 ops"),
        ({"offsets": np.array([0, 12])}, "2 offsets for 2 devices"),
        ({"offsets": np.array([1, 6, 12])}, "offsets do not ascend"),
        ({"kind": np.full(12, 77, np.uint8)}, "kind 77 of entry 0 is outside"),
        ({"stage": changed(PLAIN.stage, 3, 2)}, "stage 2 of entry 3 is outside 0 to 1"),
        ({"stage": PLAIN.stage[:5]}, "stage has 5 entries for 12 ops"),
        ({"stage": PLAIN.stage.astype(float)}, "stage is not a row of whole numbers"),
        ({"stage": PLAIN.stage.reshape(2, 6)}, "stage is not a row of whole numbers"),
        (
            {"microbatch": changed(PLAIN.microbatch, 11, -1)},
            "microbatch -1 of entry 11 is outside 0 to 2",
        ),
        ({"n_microbatches": 2}, "microbatch 2 of entry .* is outside 0 to 1"),
        ({"n_microbatches": -1}, "-1 microbatches"),
        ({"partial_recompute": (0.5,)}, "partial_recompute is not a tuple of stages"),
        ({"partial_recompute": [0]}, "partial_recompute is not a tuple of stages"),
        ({"n_slices": 0}, "0 slices"),
        ({"feeds_back": 1}, "feeds_back is not true or false: 1"),
        ({"flushes": "x"}, "flushes is not true or false: 'x'"),
        ({"n_microbatches": 1 << 31}, "2147483648 microbatches are more than 2147483647"),
        ({"pair": changed(PLAIN.pair, 4, 3)}, "a pair do not stand together and name each other"),
        ({"pair": np.array([3, -1, -1, 0, *[-1] * 8], np.int32)}, "a pair do not stand together"),
        ({"pair": np.array([*[-1] * 5, 6, 5, *[-1] * 5], np.int32)}, "a pair spans two devices"),
    ],
)
def test_a_column_that_is_not_what_it_must_be_is_named(wrong, message):
    with pytest.raises(InputError, match=message):
        replace(PLAIN, **wrong)


@pytest.mark.parametrize(
    ("devices", "rows", "message"),
    [
        (2, [[0, 2]], "device 2 of entry 1 is outside 0 to 1"),
        (2, [[0, -1]], "device -1"),
        (0, [[0]], "1 device or more"),
        (2.0, [[0, 1]], r"not a number of devices: 2\.0"),
        (2, [[0, 1], [1, 0], [0, 1]], "one or two rows"),
        (2, [0, 1], "one or two rows"),
    ],
)
def test_a_placement_names_devices_that_there_are(devices, rows, message):
    with pytest.raises(InputError, match=message):
        Placement("custom", devices, np.array(rows, np.int32))


def test_lowered_queues_hold_the_ops_of_their_schedule():
    lowered = LOWERED[0]
    with pytest.raises(InputError, match="other ops than the schedule"):
        Lowered(lowered.schedule, generate("1f1b", devices=2, microbatches=2), lowered.batch)
    with pytest.raises(InputError, match="other ops than the schedule"):
        Lowered(lowered.schedule, generate("gpipe", devices=2, microbatches=3), lowered.batch)
    with pytest.raises(InputError, match="batch is not one whole number for each op"):
        replace(lowered, batch=lowered.batch[1:])


def test_a_batch_is_of_neighbouring_messages():
    lowered = LOWERED[0]
    sends, computes = np.flatnonzero(lowered.schedule.communicates), lowered.compute_ops
    apart, compute = lowered.batch.copy(), lowered.batch.copy()
    apart[[sends[0], sends[-1]]] = 0
    compute[computes[0]] = 0
    with pytest.raises(InputError, match="do not stand together"):
        replace(lowered, batch=apart)
    with pytest.raises(InputError, match="neither send nor receive"):
        replace(lowered, batch=compute)
    with pytest.raises(InputError, match="a batch below -1"):
        replace(lowered, batch=np.full_like(lowered.batch, -2))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"time": np.full((4, 2), -1.0)}, "the time of an op must be zero or more"),
        ({"time": np.full((4, 2), np.nan)}, "the time of an op"),
        ({"time": np.full((4, 2), "x")}, "the time of an op is not a number"),
        ({"time": np.ones((2, 2))}, "a row for each of 5 kinds"),
        ({"comm": np.inf}, "the latency of a message"),
        ({"comm": np.ones((2, 3))}, "one for each pair of devices"),
        ({"time": np.full((5, 2), 1.1e100)}, r"the time of an op must be .* at most 1e\+100"),
        ({"comm": True}, "costs are numbers, or arrays of numbers"),
        ({"comm": 1.1e100}, r"the latency of a message must be .* at most 1e\+100"),
        ({"pair": np.ones(3)}, "one number for each stage"),
        ({"pair": np.array([1.0, -1.0])}, "the time of a pair"),
    ],
)
def test_costs_are_times(wrong, message):
    """What is negative, endless, no number or of another shape is no cost."""
    with pytest.raises(InputError, match=message):
        replace(costs_for(PLAIN), **wrong)


def test_costs_may_be_whole_numbers():
    """Times, latencies and times of pairs of integers are as good as floats, and negative ones as
    bad.
    """
    Costs(np.ones((5, 2), int), comm=1, pair=np.ones(2, int))
    Costs(np.ones((5, 2)), comm=np.zeros((2, 2), int))
    Costs(np.ones((5, 0)))
    with pytest.raises(InputError, match="the latency of a message must be zero or more"):
        Costs(np.ones((5, 2)), comm=-1)


def test_costs_of_another_shape_and_queues_with_messages_are_not_timed():
    """The kernel would read beyond its tables."""
    with pytest.raises(InputError, match="costs of 4 stages for 1f1b, which has 2"):
        simulate(PLAIN, costs_for(generate("1f1b", devices=4, microbatches=3)))
    with pytest.raises(InputError, match="latencies of 3 devices for 1f1b, which has 2"):
        simulate(PLAIN, Costs(np.ones((4, 2)), np.ones((3, 3))))
    with pytest.raises(InputError, match="only its compute ops can be timed"):
        simulate(LOWERED[0].schedule, costs_for(PLAIN))
    with pytest.raises(InputError, match="costs of 4 stages for 1f1b, which has 2"):
        costs_for(generate("1f1b", devices=4, microbatches=3)).durations(PLAIN)


def test_shared_bandwidth_names_groups_from_zero():
    with pytest.raises(InputError, match="group"):
        Shared(1.0, np.array([0, -1]))


def test_every_schedule_and_lowering_passes_the_door():
    """Empty queues too."""
    empty = np.empty(0, np.int32)
    placement = Placement("linear", 1, np.zeros((1, 1), np.int32))
    nothing = Schedule(
        "none", placement, 0, np.zeros(2, np.int64), empty.astype(np.uint8), empty, empty, empty
    )
    assert len(nothing) == 0
    assert Lowered(nothing, nothing, empty).schedule is nothing
