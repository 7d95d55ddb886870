"""What holds for every registered schedule, in every shape it accepts, whatever its ops cost."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppsim.core.costs import Costs
from ppsim.core.ops import Kind
from ppsim.core.schedule import NONE, Schedule
from ppsim.core.timeline import Timeline
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure
from tests.cases import EIGHTHS, FEW, PLAIN, accepted, build, build_anew, costs, schedules, unit

NAMES = PLAIN
each_schedule = pytest.mark.parametrize("name", NAMES)


@pytest.mark.sampled(4)
@each_schedule
def test_every_accepted_shape_finishes(name):
    """A shape that the rules accept never deadlocks."""
    for shape in accepted(name):
        schedule = build(name, shape)
        timeline = simulate(schedule, unit(schedule))
        assert (timeline.end > timeline.start).all(), shape


@pytest.mark.sampled(3)
@each_schedule
def test_each_op_runs_once(name):
    """F of every stage and microbatch runs once, and so does B, or else I and W."""
    for shape in accepted(name):
        schedule = build(name, shape)
        count = np.zeros((4, schedule.n_stages, schedule.n_microbatches), int)
        np.add.at(count, (schedule.kind, schedule.stage, schedule.microbatch), 1)
        assert (count[Kind.F] == 1).all(), shape
        assert (count[Kind.B] + count[Kind.I] == (name not in ("forward-only", "decode"))).all(), (
            shape
        )
        assert (count[Kind.I] == count[Kind.W]).all(), shape


@each_schedule
def test_a_microbatch_stays_in_one_replica(name):
    """Every op runs on the device that holds its stage in its microbatch's replica."""
    for shape in accepted(name):
        schedule = build(name, shape)
        away = [
            np.bincount(schedule.microbatch, devices[schedule.stage] != schedule.device)
            for devices in schedule.placement.devices
        ]
        assert (np.min(away, axis=0) == 0).all(), shape


def pairs_are_a_forward_and_a_backward_run_as_one(timeline: Timeline, model: Costs) -> None:
    """The two ops of a pair stand side by side, differ in direction and share start and end."""
    schedule = timeline.schedule
    first = np.flatnonzero(schedule.pair > np.arange(len(schedule)))
    second = schedule.pair[first]
    assert (second == first + 1).all()
    assert (schedule.pair[second] == first).all()
    assert ((schedule.kind[first] == Kind.F) != (schedule.kind[second] == Kind.F)).all()
    assert (timeline.start[first] == timeline.start[second]).all()
    assert (timeline.end[first] == timeline.end[second]).all()


def inputs_arrive_before_an_op_starts(timeline: Timeline, model: Costs) -> None:
    """F waits for the stage before, a backward for the stage after, its F and its R, W for its I, R
    for its F.
    """
    schedule, ops = timeline.schedule, keys(timeline.schedule)
    end = dict(zip(ops, timeline.end.tolist(), strict=True))
    device = dict(zip(ops, schedule.device.tolist(), strict=True))
    links = np.broadcast_to(model.comm, (schedule.n_devices, schedule.n_devices)).tolist()
    for key, start in zip(ops, timeline.start.tolist(), strict=True):
        for need in inputs(*key, schedule.n_stages):
            if need[0] == "R" and need not in end:
                continue
            travel = links[device[need]][device[key]] if device[need] != device[key] else 0.0
            assert start >= end[need] + travel, (key, need)


def a_device_runs_one_op_at_a_time(timeline: Timeline, model: Costs) -> None:
    """Two ops of one device never overlap, unless they are a pair."""
    schedule = timeline.schedule
    follows = schedule.device[1:] == schedule.device[:-1]
    follows &= schedule.pair[1:] != np.arange(len(schedule) - 1)
    assert (timeline.start[1:][follows] >= timeline.end[:-1][follows]).all()


def every_op_takes_its_time(timeline: Timeline, model: Costs) -> None:
    """An op occupies its device for exactly its cost, on its device and microbatch; a pair for the
    pair's.
    """
    schedule = timeline.schedule
    alone = schedule.pair == NONE
    assert (timeline.end - timeline.start == model.durations(schedule)).all()
    wanted = model.time[schedule.kind, schedule.stage]
    if model.scale is not None:
        wanted = wanted * model.scale[schedule.kind, schedule.microbatch]
    if model.speed is not None:
        wanted = wanted / model.speed[schedule.device]
    assert (model.durations(schedule)[alone] == wanted[alone]).all()


def makespan_is_at_least_the_lower_bounds(timeline: Timeline, model: Costs) -> None:
    """No iteration ends before the busiest device's work or the longest way of a microbatch."""
    schedule, metrics = timeline.schedule, measure(timeline)
    way = model.durations(schedule) + model.latencies(schedule)
    way[(schedule.kind == Kind.W) | (schedule.kind == Kind.R)] = 0.0
    longest = np.bincount(schedule.microbatch, way).max()
    assert metrics.makespan >= metrics.ideal
    assert metrics.makespan >= metrics.span >= metrics.ideal
    assert metrics.makespan >= longest


def bound_explains_every_start(timeline: Timeline, model: Costs) -> None:
    """An op starts the moment its bound ends, plus the latency where a message binds it, or else at
    zero.
    """
    schedule = timeline.schedule
    free = timeline.bound == NONE
    assert (timeline.start[free] == 0).all()
    latency, bound = model.latencies(schedule), timeline.bound
    for op in np.flatnonzero(~free):
        members = [op] if schedule.pair[op] == NONE else [op, schedule.pair[op]]
        travels = [latency[m] for m in members if schedule.dependency[m] == bound[op]]
        if bound[op] == min(members) - 1 and schedule.device[bound[op]] == schedule.device[op]:
            travels.append(0.0)
        assert timeline.start[op] in [timeline.end[bound[op]] + travel for travel in travels]


def scaled_costs_scale_the_timeline(timeline: Timeline, model: Costs) -> None:
    """Costs in another unit give the same timeline in that unit, to the last bit for powers of
    two.
    """
    for scale in (2.0**-8, 2.0**5):
        pair = None if model.pair is None else model.pair * scale
        scaled = replace(model, time=model.time * scale, comm=model.comm * scale, pair=pair)
        other = simulate(timeline.schedule, scaled)
        assert np.array_equal(timeline.end * scale, other.end)
        assert timeline.makespan * scale == other.makespan


LAWS = (
    pairs_are_a_forward_and_a_backward_run_as_one,
    inputs_arrive_before_an_op_starts,
    a_device_runs_one_op_at_a_time,
    every_op_takes_its_time,
    makespan_is_at_least_the_lower_bounds,
    bound_explains_every_start,
    scaled_costs_scale_the_timeline,
)


@pytest.mark.sampled(3)
@each_schedule
@given(data=st.data(), stage=st.integers(0, 5), kind=st.sampled_from([0, 1, 2, 3]), more=EIGHTHS)
@settings(max_examples=2 * FEW.max_examples)
def test_laws_hold_of_every_timeline(name, data, stage, kind, more):
    """Each law, and that a higher cost of one kind on one stage lets no op end earlier."""
    schedule = data.draw(schedules(name))
    model = data.draw(costs(schedule, EIGHTHS))
    timeline = simulate(schedule, model)
    for law in LAWS:
        law(timeline, model)
    time = model.time.copy()
    time[kind, stage % schedule.n_stages] += more
    assert (simulate(schedule, replace(model, time=time)).end >= timeline.end).all()


@pytest.mark.sampled(3)
@each_schedule
@given(data=st.data())
@FEW
def test_two_runs_are_identical(name, data):
    """The same schedule and costs give the same timeline, however often."""
    shape = data.draw(st.sampled_from(accepted(name)))
    model = data.draw(costs(build(name, shape), EIGHTHS))
    one, other = simulate(build_anew(name, shape), model), simulate(build_anew(name, shape), model)
    assert one.start.tobytes() == other.start.tobytes()
    assert one.end.tobytes() == other.end.tobytes()
    assert one.bound.tobytes() == other.bound.tobytes()


def keys(schedule: Schedule) -> list[tuple[str, int, int]]:
    """Each op as direction, stage and microbatch; I and B are both backwards."""
    columns = schedule.kind.tolist(), schedule.stage.tolist(), schedule.microbatch.tolist()
    return [
        ("FBBWR"[kind], stage, microbatch) for kind, stage, microbatch in zip(*columns, strict=True)
    ]


def inputs(direction: str, stage: int, microbatch: int, stages: int) -> list[tuple[str, int, int]]:
    if direction == "F":
        return [("F", stage - 1, microbatch)] if stage else []
    if direction == "W":
        return [("B", stage, microbatch)]
    if direction == "R":
        return [("F", stage, microbatch)]
    after = [("B", stage + 1, microbatch)] if stage < stages - 1 else []
    return [("F", stage, microbatch), ("R", stage, microbatch), *after]
