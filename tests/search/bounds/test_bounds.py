"""Lower bounds: never above what any schedule reaches, and equal to known optima."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ppsim.core.costs import Costs, costs_for
from ppsim.core.ops import PAIRED, Kind, pack
from ppsim.core.recompute import add_recompute
from ppsim.core.schedule import Schedule, place
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure
from ppsim.schedules import generate
from ppsim.search.bounds.bounds import (
    Bounds,
    _encoder_time,
    bound_either,
    bound_problem,
    bound_schedule,
    limit_bound,
)
from ppsim.search.bounds.work import _join
from ppsim.search.orders.optimize import separate_pairs
from ppsim.search.problem import Problem
from ppsim.search.rules.encoder import Encoder, add_encoder, encoder_times
from ppsim.search.rules.offload import add_offload
from tests.cases import EIGHTHS, EVERY, FEW, FLOATS, PLAIN, accepted, build, costs, schedules
from tests.commands import invoke

NAMES = PLAIN


def problem(devices, microbatches, times, comm=0.0, cap=None, placement="linear", chunks=1, **more):
    f, i, w = times
    stages = devices * chunks
    time = np.array([[f], [i + w], [i], [w]], float) * np.ones(stages)
    return Problem(
        place(placement, devices, stages), microbatches, Costs(time, float(comm)), cap, **more
    )


def assert_below(schedule: Schedule, prices: Costs) -> None:
    """No bound exceeds what the schedule reaches: with any memory, with that of its peak, with each
    device's own.
    """
    found = measure(simulate(schedule, prices))
    for caps in (None, float(found.peak_activations.max()), found.peak_activations):
        bounds = bound_schedule(schedule, prices, caps)
        assert bounds.makespan <= found.makespan * (1 + 1e-9)
        assert bounds.span <= found.span * (1 + 1e-9)


@FEW
@given(data=st.data())
def test_no_split_or_joined_order_beats_the_bound_of_either(data):
    """Whole or split backwards, in any memory: it holds for all schedules of one stage per
    device.
    """
    names = ("1f1b", "gpipe", "zb-1p", "zb-h2", "eager-1f1b")
    every = [generate(name, devices=4, microbatches=6) for name in names]
    prices = data.draw(costs(every[0], st.one_of(EIGHTHS, FLOATS)))
    reached = [simulate(schedule, prices).makespan for schedule in every]
    for schedule in every:
        assert bound_either(schedule, prices) <= min(reached) * (1 + 1e-9)


def test_the_bound_of_either_is_reached_by_zb_h1():
    """Four devices and eight microbatches of 1F1B take 27 at least, split or not, and ZB-H1 takes
    27.
    """
    schedule = generate("1f1b", devices=4, microbatches=8)
    assert bound_either(schedule, costs_for(schedule)) == 27
    split = generate("zb-1p", devices=4, microbatches=8)
    assert simulate(split, costs_for(split)).makespan == 27


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NAMES)
@FEW
@given(data=st.data())
def test_no_schedule_beats_its_bounds(name, data):
    """Whatever its ops cost: by stage, link, pair, microbatch and device; with recompute or
    without.
    """
    schedule = data.draw(schedules(name))
    assert_below(schedule, data.draw(costs(schedule, st.one_of(EIGHTHS, FLOATS))))


@pytest.mark.parametrize(
    ("shape", "span", "makespan"),
    [
        ((4, 8, (1, 1, 1), 0, 4), 27, 27),
        ((4, 8, (1, 1, 1), 0, 7), 24, 27),
        ((4, 8, (10, 11, 8), 1, 4), 283, 283),
        ((4, 8, (10, 11, 8), 1, 8), 245, 265),
        ((4, 8, (1, 1, 1), 0, 1), 72, 72),
        ((4, 8, (1, 1, 1), 0, 4, "v", 2), 59, 59),
        ((4, 8, (1, 1, 1), 0, 6, "v", 2), 53, 53),
        ((4, 8, (1, 1, 1), 0, 8, "v", 2), 48, 51),
    ],
)
def test_bounds_equal_known_optima(shape, span, makespan):
    """Optima that constraint solvers, and searches of the papers' authors, found."""
    assert bound_problem(problem(*shape)) == Bounds(makespan, span)


def test_a_device_in_the_middle_that_holds_one_runs_a_round_trip_after_the_other():
    """Its F, F and I of the last device, its I and W take 5, four times from 1 on; then I and W of
    the first device.
    """
    whole = problem(3, 4, (1, 1, 1), cap=[9.0, 1.0, 9.0])
    assert bound_problem(whole) == Bounds(1 + 4 * 5 + 1, 1 + 4 * 5 + 1)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-1p", "zb-v", "interleaved"])
def test_recompute_that_takes_no_time_leaves_the_bounds_as_they_are(name):
    schedule = generate(name, devices=4, microbatches=8)
    time = np.array([[1.0], [3.0], [1.0], [2.0], [0.0]]) * np.ones(schedule.n_stages)
    again = bound_schedule(add_recompute(schedule), Costs(time, 0.5))
    assert again == bound_schedule(schedule, Costs(time, 0.5))
    assert again.makespan >= again.span > 8 * 4 * schedule.n_chunks


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_gpipe_and_1f1b_are_as_fast_as_full_backwards_allow(name):
    """With full backwards and equal stages no order of one stage per device beats (M + P - 1)(t_F +
    t_B).
    """
    schedule = generate(name, devices=6, microbatches=12)
    prices = Costs(np.array([[1.0], [2.0], [1.0], [1.0]]) * np.ones(6))
    assert (
        bound_schedule(schedule, prices).makespan == 17 * 3 == simulate(schedule, prices).makespan
    )


def test_what_recompute_holds_is_no_limit_on_forwards():
    """The peak counts from R on, so that it says nothing about F, even where R takes no time."""
    schedule = add_recompute(generate("eager-1f1b", devices=4, microbatches=8))
    time = np.array([[1.0], [3.0], [1.0], [2.0], [0.0]]) * np.ones(4)
    assert_below(schedule, Costs(time))


def test_each_microbatch_may_have_the_shorter_backward():
    """DualPipe-V has full and split backwards; which is shorter depends on the microbatch's
    factors.
    """
    schedule = generate("dualpipe-v", devices=2, microbatches=4)
    scale = np.ones((5, 4))
    scale[1], scale[2] = [1, 9, 1, 9], [9, 1, 9, 1]
    assert_below(schedule, Costs(np.ones((5, 4)), scale=scale))


def test_forwards_alone_do_not_come_back():
    """A device's span ends with its own last forward."""
    assert_below(generate("forward-only", devices=4, microbatches=2), Costs(np.ones((5, 4)), 3.0))


def reorder(
    schedule: Schedule, caps: NDArray[np.float64], rng: np.random.Generator
) -> Schedule | None:
    """The same ops and pairs in a random order that can run, no device holding more; None where it
    gets stuck.
    """
    device, kind, pair = schedule.device.tolist(), schedule.kind.tolist(), schedule.pair.tolist()
    packed = pack(schedule.stage, schedule.microbatch) | schedule.kind
    needs = [[n] if n >= 0 else [] for n in schedule.dependency.tolist()]
    units = [
        (op, pair[op]) if pair[op] >= 0 else (op,) for op in np.flatnonzero(schedule.leads).tolist()
    ]
    change = {Kind.F: 1, Kind.B: -1, Kind.W: -1}
    done, held, queues = set[int](), np.zeros(schedule.n_devices), [list[int]() for _ in caps]
    while units:
        ready = [
            unit
            for unit in units
            if all(need in done for op in unit for need in needs[op])
            and held[device[unit[0]]] + (kind[unit[0]] == Kind.F) <= caps[device[unit[0]]]
        ]
        if not ready:
            return None
        # Mostly backwards, as memory frees by them; at times what is there.
        ready.sort(key=lambda unit: rng.random() + 0.3 * (kind[unit[0]] == Kind.F))
        unit = ready[0]
        units.remove(unit)
        done.update(unit)
        for op in unit:
            held[device[op]] += change.get(kind[op], 0)
            queues[device[op]].append(int(packed[op]) | PAIRED * (op == unit[0] and len(unit) == 2))
    return Schedule.from_queues(
        "drawn",
        schedule.placement,
        schedule.n_microbatches,
        [np.array(q, np.int64) for q in queues],
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NAMES)
def test_no_order_of_the_same_ops_beats_the_bounds(name):
    """Random orders that hold no more than the schedule, under costs by stage and link, and uneven
    pairs.
    """
    shapes = [
        shape
        for shape in accepted(name)
        if shape.microbatches <= 9 and shape.devices * shape.chunks <= 8
    ]
    rng = np.random.default_rng(len(name))
    for shape in rng.permutation(np.arange(len(shapes)))[: 3 if EVERY == 1 else 2].tolist():
        schedule = build(name, shapes[shape])
        time = rng.integers(1, 9, (5, schedule.n_stages)) / 2
        time[Kind.B] += time[Kind.F].max()
        pair = np.maximum(time[Kind.F], time[Kind.B]) + rng.random(schedule.n_stages)
        prices = Costs(time, rng.integers(0, 3, (schedule.n_devices,) * 2) / 2, pair)
        caps = measure(simulate(schedule, prices)).peak_activations.astype(float)
        bounds = bound_schedule(schedule, prices, caps)
        assert_below(schedule, prices)
        for _ in range(3):
            order = reorder(schedule, caps, rng)
            if order is not None:
                found = measure(simulate(order, prices))
                assert bounds.makespan <= found.makespan * (1 + 1e-9)
                assert bounds.span <= found.span * (1 + 1e-9)


@pytest.mark.parametrize(
    "name", ["1f1b-overlap", "interleaved-overlap", "dualpipe-v", "dualpipe", "bitpipe"]
)
def test_what_pairs_save_is_never_counted_twice(name):
    """Where F and B differ much, pairs cover all of the shorter op: devices spend no less, and no
    more is claimed.
    """
    rng = np.random.default_rng(7)
    for longer in (Kind.F, Kind.B):
        schedule = generate(name, devices=4, microbatches=24)
        time = np.ones((5, schedule.n_stages))
        time[longer] = rng.integers(6, 12, schedule.n_stages)
        time[Kind.I] = time[Kind.W] = time[Kind.B] / 2
        for spare in (0.0, 0.5):
            assert_below(schedule, Costs(time, 0.0, np.maximum(time[Kind.F], time[Kind.B]) + spare))


def test_a_bound_above_what_is_reached_is_a_fault():
    """Rounding is taken away; more is an error and no bound."""
    assert limit_bound(7.0, 7.0 - 1e-12) == 7.0 - 1e-12
    assert limit_bound(6.0, 7.0) == 6.0
    with pytest.raises(RuntimeError, match=r"a bound of 7\.1 is proved, and 7 is reached"):
        limit_bound(7.1, 7.0)


def test_a_wrong_bound_is_an_internal_error(monkeypatch):
    """No command prints one as if it were attained."""
    monkeypatch.setattr("ppsim.search.bounds.bounds.bound_schedule", lambda *_: Bounds(1e6, 1e6))
    assert isinstance(invoke("run", "1f1b", "--devices", "2", "--mb", "2").exception, RuntimeError)


@pytest.mark.parametrize(("f", "b"), [(1, 7), (7, 1)])
def test_results_come_as_early_as_pairs_end(f, b):
    """A pair that is shorter than its F or its B hands their results on sooner than these alone
    would.
    """
    schedule = generate("interleaved-overlap", devices=4, microbatches=4)
    time = np.array([[f], [b], [b / 2], [b / 2], [0]], float) * np.ones(8)
    assert_below(schedule, Costs(time, 1.0, np.array([8, 1, 1, 1, 5, 7, 2, 3], float)))


def test_a_device_seen_by_itself_counts_the_way_back(monkeypatch):
    """Of many devices: two forwards with their messages, four times F and I of the last device,
    whose last gradient takes two messages and two I back to device 0 and W there: 2 (1 + 1) + 4 (1
    + 20) + 2 (1 + 2) + 5.
    """
    monkeypatch.setattr("ppsim.search.bounds.bounds.MOST_COMPARED", 0)
    time = np.array([[1, 1, 1], [7, 3, 21], [2, 2, 20], [5, 1, 1]], float)
    assert bound_problem(Problem(place("linear", 3, 3), 4, Costs(time, 1.0), None)).makespan == 99


def test_a_microbatch_runs_in_the_replica_where_it_is_quick():
    """Chimera's second replica meets the slow device with its long stage: 17 for a microbatch, and
    8 in the first.
    """
    schedule = generate("chimera", devices=2, microbatches=2)
    scale = np.ones((5, 2))
    scale[:, schedule.microbatch[schedule.device == 0][0]] = 3.0
    prices = Costs(np.array([[4, 1]] * 5, float), scale=scale, speed=np.array([1.0, 0.25]))
    assert_below(schedule, prices)


def test_where_a_device_holds_a_stage_of_two_replicas_it_is_busy_at_least():
    """The middle one of three: each device runs as many ops, and nothing else is claimed."""
    placement = place("bidirectional", 3, 3)
    queues = [
        np.array(
            [
                int(pack(int(placement.devices[m].tolist().index(d)), m)) | kind
                for kind in (0, 1)
                for m in (0, 1)
            ]
        )
        for d in range(3)
    ]
    schedule = Schedule.from_queues("both", placement, 2, queues)
    prices = Costs(np.outer([1.0, 2, 1, 1], [1, 2, 3]))
    assert bound_schedule(schedule, prices) == Bounds(12, 12)
    assert_below(schedule, prices)


def test_the_slowest_microbatch_takes_its_whole_way():
    """F and I on both devices and W on the first, ten times as long for one microbatch: 10 (1 + 1 +
    2 + 2 + 3).
    """
    schedule = generate("zb-1p", devices=2, microbatches=2)
    prices = Costs(np.array([[1.0], [5], [2], [3]]) * np.ones(2), scale=np.array([[1.0, 10]] * 5))
    assert bound_schedule(schedule, prices).makespan == 90


@pytest.mark.parametrize("loose", [9.0, np.inf])
def test_a_device_of_round_trips_ends_with_all_that_it_does(loose):
    """W of device 1 takes 10: four of 1 + 2 + 1 + 10 from 1 on, where the other devices have room
    for all.
    """
    time = np.array([[1.0, 1, 1], [2, 11, 2], [1, 1, 1], [1, 10, 1]])
    whole = Problem(place("linear", 3, 3), 4, Costs(time), [loose, 1.0, loose])
    assert bound_problem(whole).makespan == 1 + 4 * 14


def test_what_follows_a_forward_may_be_a_long_w_of_another_device():
    """Two F of 20 on device 0, then F, I and W of 1, 1 and 10 on device 1, more than what else
    there is to do.
    """
    time = np.array([[20.0, 1], [2, 11], [1, 1], [1, 10]])
    assert (
        bound_problem(Problem(place("linear", 2, 2), 2, Costs(time))).makespan
        == 2 * 20 + 1 + 1 + 10
    )


def test_of_ops_that_are_missing_devices_run_what_there_is():
    """ZB-1P without one of its W: each device is busy for what it has."""
    schedule = generate("zb-1p", devices=2, microbatches=4)
    queues = [schedule.packed()[schedule.queue(device)] for device in range(2)]
    fewer = schedule.with_queues([queues[0][:-1], queues[1]])
    assert bound_schedule(fewer, Costs(np.ones((4, 2)) * [[1], [2], [1], [1]])) == Bounds(12, 12)


@pytest.mark.parametrize("name", ["1f1b-overlap", "dualpipe-v", "dualpipe"])
def test_pairs_that_save_nothing_leave_the_bounds_as_they_are(name):
    schedule = generate(name, devices=4, microbatches=8)
    time = np.array([[1.0], [2.0], [1.0], [1.0]]) * np.ones(schedule.n_stages)
    apart = bound_schedule(separate_pairs(schedule), Costs(time))
    assert (
        bound_schedule(schedule, Costs(time, pair=np.full(schedule.n_stages, 3.0))).span
        == apart.span
    )


def test_pairs_of_microbatches_that_differ_are_as_short_as_their_shorter_op():
    """Factors of F and B of a half and of two: whichever is the less, no order is below what is
    proved.
    """
    schedule = generate("1f1b-overlap", devices=3, microbatches=6)
    time = np.array([[1.0], [2.0], [1.0], [1.0]]) * np.ones(3)
    for forward, backward in ((0.5, 2.0), (2.0, 0.5)):
        scale = np.ones((5, 6))
        scale[Kind.F], scale[Kind.B] = forward, backward
        assert_below(schedule, Costs(time, pair=np.full(3, 2.0), scale=scale))


def test_pairs_cost_a_device_what_no_division_of_them_makes_more():
    """Of all shifts between the F and the B of its pairs, in a grid, the one that proves most."""
    rng = np.random.default_rng(4)
    for _ in range(20):
        count = np.array([[3, 5, 2]])
        pair, forward, backward = rng.integers(2, 12, (3, 1, 3)).astype(float)
        runs = np.stack([forward * count, backward * count, 0 * count])
        placement = place("loop", 1, 3)
        found = _join(placement, pair, runs, forward, backward, 0 * forward, count)[0].sum()
        half, low = pair / 2, pair.min() / 2
        shifts = np.linspace(-low, low, 401)[:, None, None]
        both = np.minimum(forward, half - shifts) + np.minimum(backward, half + shifts)
        most = (both * count).sum(axis=(1, 2)).max()
        free = (np.add.outer(half, half) >= np.add.outer(forward, backward)).all()
        assert found == pytest.approx(runs.sum() if free else most, rel=0.01)


@pytest.mark.parametrize(
    ("kinds", "least"),
    [
        ((Kind.EF, Kind.EF, Kind.EB, Kind.EB, Kind.B), 2 + 5),
        ((Kind.EF, Kind.EF, Kind.EB, Kind.EB, Kind.W), 2),
        ((Kind.EF, Kind.EF, Kind.EB, Kind.B, Kind.W), 2),
        ((Kind.EF, Kind.EF, Kind.EB, Kind.B, Kind.B), 2),
        ((Kind.EF, Kind.F, Kind.B, Kind.B, Kind.B), 0),
    ],
)
def test_an_encoder_of_every_microbatch_is_ahead_of_all_and_behind_the_last_b(kinds, least):
    """Its ops take 3, 2, 7 and 5; where W may end a device's work, what is behind the last B takes
    no longer.
    """
    schedule = SimpleNamespace(kind=np.array(kinds), n_microbatches=2)
    assert _encoder_time(cast(Schedule, schedule), np.array([3.0, 2, 7, 5, 1])) == least


def test_what_copies_take_of_a_link_is_no_bound_and_an_encoder_is():
    """Copies to the host leave the bounds as they are; an encoder on one device makes that the
    busiest.
    """
    schedule = generate("1f1b", devices=4, microbatches=8)
    costs = costs_for(schedule, others={Kind.OFFLOAD: 9.0, Kind.RELOAD: 9.0})
    assert bound_schedule(add_offload(schedule, costs, 1), costs) == bound_schedule(schedule, costs)
    encoder = Encoder(6.0, 0.0, (2,))
    more = replace(costs_for(schedule), others=encoder_times(schedule, encoder))
    made = add_encoder(schedule, more, encoder)
    bounds = bound_schedule(made, more)
    assert bounds.span == 8 * (6 + 3) > bound_schedule(schedule, more).span
    assert_below(made, more)
