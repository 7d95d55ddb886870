"""Moves of a walk against a slow account of them: how far an op may go, what is kept up to date,
what a path is.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from ppsim.core.costs import Costs
from ppsim.core.ops import Kind
from ppsim.core.schedule import place
from ppsim.engine.simple.longest_path import simulate
from ppsim.search.orders import anneal_kernel as kernel
from ppsim.search.orders.improve import make_walk
from ppsim.search.problem import Problem, measure_held
from ppsim.search.rules.order_kernel import MODULUS, draw, time_orders
from ppsim.search.rules.orders import (
    count_occurrences,
    make_orders,
    read_orders,
    write_one_by_one,
    write_schedule,
)

PLACEMENTS = [place("linear", 3, 3), place("v", 2, 4), place("loop", 2, 4)]
by_placement = pytest.mark.parametrize("placement", PLACEMENTS, ids=lambda p: p.name)


def state(placement, moves=0, seed=1, cap=2.6, **more):
    """The arrays of a walk after some moves, and the walk's problem."""
    rng = np.random.default_rng(seed)
    f, i, w = rng.integers(1, 9, (3, placement.n_stages)).astype(float)
    costs = Costs(np.stack([f, i + w, i, w]), comm=0.5)
    problem = Problem(placement, 4, costs, cap=cap + placement.n_chunks - 1, after_i=0.3, **more)
    orders = make_orders(problem, write_one_by_one(problem))
    walk = make_walk(problem, orders, seed, np.zeros(1, np.int64))
    kernel.anneal(orders, walk, moves, 6, 5.0, 2.0)
    return problem, orders, walk


def queue_of(orders, device):
    """The ops of a device: kind, stage and microbatch."""
    here = slice(orders.offsets[device], orders.offsets[device + 1])
    codes, stages = orders.code[here].tolist(), len(orders.device)
    return [
        (code // stages, code % stages, m)
        for code, m in zip(codes, orders.microbatch[here].tolist(), strict=True)
    ]


def is_allowed(problem, queue, device):
    """Equal ops in order, F and I of a microbatch as it passes the stages, W after its I, and never
    above the cap.
    """
    at = {op: place for place, op in enumerate(queue)}
    held = 0.0
    for kind, stage, _ in queue:
        held += problem.amounts[stage] * (1.0, problem.after_i - 1, -problem.after_i)[kind]
        if held > problem.caps[device] + 1e-9:
            return False
    for (kind, stage, m), here in at.items():
        if (kind, stage, m + 1) in at and at[kind, stage, m + 1] < here:
            return False
        if kind == 2 and at[1, stage, m] > here:
            return False
        for other in range(problem.n_stages):
            if kind == 0 and other > stage and (0, other, m) in at and at[0, other, m] < here:
                return False
            if kind == 1 and ((0, other, m) in at and at[0, other, m] > here):
                return False
            if kind == 1 and other < stage and (1, other, m) in at and at[1, other, m] < here:
                return False
    return True


@by_placement
@pytest.mark.parametrize("seed", [1, 2])
def test_an_op_reaches_as_far_as_all_swaps_on_the_way_are_allowed(placement, seed):
    problem, orders, walk = state(placement, 60, seed)
    reached = set()
    for op in range(len(orders.code)):
        device = kernel.owner(orders, op)
        first = orders.offsets[device]
        for steps in (-5, -1, 1, 2, 5):
            queue, here = queue_of(orders, device), op - first
            for _ in range(abs(steps)):
                there = here + (1 if steps > 0 else -1)
                if not 0 <= there < len(queue):
                    break
                swapped = list(queue)
                swapped[here], swapped[there] = swapped[there], swapped[here]
                if not is_allowed(problem, swapped, device):
                    break
                queue, here = swapped, there
            assert kernel.reachable_place(orders, walk, op, steps) == first + here
            reached.add(here - (op - first))
    assert {-1, 0, 1} <= reached


@by_placement
def test_a_move_keeps_places_and_what_is_held_up_to_date(placement):
    """After many moves they are those that are computed again, the queues are orders, and the caps
    hold.
    """
    problem, orders, walk = state(placement, 200)
    held, at = walk.held.copy(), walk.place.copy()
    kernel.prepare(orders, walk)
    np.testing.assert_allclose(held, walk.held, atol=1e-9)
    np.testing.assert_array_equal(at, walk.place)
    schedule = write_schedule(
        problem, [orders.code[a:b].astype(np.int64) for a, b in pairwise(orders.offsets)]
    )
    found = [walk.held[a:b].max() for a, b in pairwise(orders.offsets)]
    assert found == pytest.approx(measure_held(problem, schedule))
    for device in range(problem.n_devices):
        assert is_allowed(problem, queue_of(orders, device), device)
    # the n-th op of a code is microbatch n's
    np.testing.assert_array_equal(
        orders.microbatch,
        np.concatenate([count_occurrences(orders.code[a:b]) for a, b in pairwise(orders.offsets)]),
    )
    for device, queue in enumerate(read_orders(schedule)):
        assert (
            queue.tolist()
            == orders.code[orders.offsets[device] : orders.offsets[device + 1]].tolist()
        )


@by_placement
def test_there_and_back_leaves_all_as_it_was(placement):
    _, orders, walk = state(placement, 60)
    for op in range(len(orders.code)):
        before = orders.code.copy(), orders.microbatch.copy(), walk.held.copy(), walk.place.copy()
        there = kernel.reachable_place(orders, walk, op, 4 if op % 2 else -4)
        kernel.move(orders, walk, op, there)
        assert (orders.code[there], orders.microbatch[there]) == (before[0][op], before[1][op])
        kernel.move(orders, walk, there, op)
        for now, then in zip(
            (orders.code, orders.microbatch, walk.held, walk.place), before, strict=True
        ):
            np.testing.assert_allclose(now, then, atol=1e-9)


@by_placement
@pytest.mark.parametrize("steps", [-1, 1])
def test_a_series_moves_the_ops_of_the_next_microbatches_alike(placement, steps):
    """As moving each alone: the last first where they move back, so that none is in the way of
    another.
    """
    problem, begun, _ = state(placement, 60)
    queues, size = [begun.code[a:b].astype(np.int64) for a, b in pairwise(begun.offsets)], 4

    def fresh():
        orders = make_orders(problem, queues)
        walk = make_walk(problem, orders, 1, np.zeros(1, np.int64))
        kernel.prepare(orders, walk)
        return orders, walk

    for op in range(0, len(begun.code), 3):
        (orders, walk), (alone, other) = fresh(), fresh()
        code, first = alone.code[op], alone.microbatch[op]
        many = range(first, min(first + 3, size))
        moved = 0
        for m in reversed(many) if steps > 0 else many:
            here = other.place[code * size + m]
            there = kernel.reachable_place(alone, other, here, steps)
            moved += there != here
            kernel.move(alone, other, here, there)
        assert kernel.move_series(orders, walk, op, steps, 3) == moved
        np.testing.assert_array_equal(orders.code, alone.code)
        for nth in range(moved - 1, -1, -1):  # the log undoes it
            kernel.move(orders, walk, walk.log[1, nth], walk.log[0, nth])
        np.testing.assert_array_equal(orders.code, begun.code)


@by_placement
@pytest.mark.parametrize("objective", ["span", "makespan"])
def test_a_path_is_the_longest_one_without_a_gap(placement, objective):
    """Back from the end of the device that decides: each op starts when the next one ends, or its
    message arrives.
    """
    problem, orders, walk = state(placement, 100, objective=objective)
    cost = kernel.find_cost(orders, walk)
    schedule = write_schedule(
        problem, [orders.code[a:b].astype(np.int64) for a, b in pairwise(orders.offsets)]
    )
    timeline = simulate(schedule, problem.costs)
    np.testing.assert_allclose(orders.start, timeline.start)
    np.testing.assert_allclose(orders.end, timeline.end)
    own = [orders.end[b - 1] - orders.start[a] for a, b in pairwise(orders.offsets)]
    parts = (max(own), timeline.makespan) if objective == "span" else (timeline.makespan, max(own))
    assert walk.reached[0] == pytest.approx(parts[0] + 0.001 * parts[1])
    assert cost == pytest.approx(walk.reached[0] + 0.3 * np.mean(own))
    path = walk.path[: kernel.find_path(orders, walk)]
    ends = [orders.end[b - 1] for _, b in pairwise(orders.offsets)]
    decides = int(np.argmax(own if objective == "span" else ends))
    assert path[0] == orders.offsets[decides + 1] - 1
    for op, before in pairwise(path.tolist()):
        gap = orders.start[op] - orders.end[before]
        assert gap == pytest.approx(
            0.5 if kernel.owner(orders, op) != kernel.owner(orders, before) else 0.0
        )
    assert orders.start[path[-1]] == 0


def test_queues_that_wait_for_each_other_run_in_part_and_cost_nothing_known():
    problem = state(PLACEMENTS[0])[0]
    queues = write_one_by_one(problem)
    # device 0 waits for a gradient of its first F
    queues[0] = queues[0][[1, 0, *range(2, len(queues[0]))]]
    orders = make_orders(problem, queues)
    walk = make_walk(problem, orders, 1, np.zeros(1, np.int64))
    assert time_orders(orders) == 0
    assert kernel.find_cost(orders, walk) == kernel.anneal(orders, walk, 10, 6, 1.0, 0.1) == -1


@by_placement
def test_an_i_with_its_w_behind_it_takes_as_long_as_one_b_where_that_is_less(placement):
    """As the schedule that is written of the queues, whose B are one op on every second stage."""
    problem, orders, _ = state(placement, 30)
    time = problem.costs.time.copy()
    time[Kind.B, ::2] -= 0.75
    cheaper = replace(problem, costs=replace(problem.costs, time=time))
    queues = [orders.code[a:b].astype(np.int64) for a, b in pairwise(orders.offsets)]
    again = make_orders(cheaper, queues)
    assert time_orders(again) == len(again.code)
    made = write_schedule(cheaper, queues)
    assert (made.kind == Kind.B).any()
    assert again.end.max() == pytest.approx(simulate(made, cheaper.costs).makespan)


def test_a_walk_that_is_stopped_keeps_what_it_started_with():
    _, orders, walk = state(PLACEMENTS[0])
    before = orders.code.copy()
    walk.stop[0] = 1
    kernel.anneal(orders, walk, 50, 6, 5.0, 2.0)
    np.testing.assert_array_equal(orders.code, before)
    np.testing.assert_array_equal(walk.best, before)


def test_the_best_of_a_walk_is_what_it_returns_and_no_worse_than_its_start():
    problem, orders, walk = state(PLACEMENTS[1])
    first = kernel.anneal(orders, walk, 0, 6, 1.0, 0.1)
    best = kernel.anneal(orders, walk, 400, 6, 5.0, 0.5)
    assert best < first
    again = make_orders(
        problem, [walk.best[a:b].astype(np.int64) for a, b in pairwise(orders.offsets)]
    )
    other = make_walk(problem, again, 1, np.zeros(1, np.int64))
    kernel.find_cost(again, other)
    assert other.reached[0] == pytest.approx(best)


def test_three_in_four_ops_that_are_picked_lie_on_the_path_or_beside_it():
    """One of four is any op; of the others half are on the path, and half of the rest, one in
    three, too.
    """
    _, orders, walk = state(PLACEMENTS[0], 100)
    kernel.find_cost(orders, walk)
    length = kernel.find_path(orders, walk)
    path = set(walk.path[:length].tolist())
    beside = {op + step for op in path for step in (-1, 0, 1)}
    drawn = [kernel.pick(orders, walk, length) for _ in range(6000)]
    assert min(drawn) == 0
    assert max(drawn) == len(orders.code) - 1
    share = len(path) / len(orders.code)
    on_path = np.mean([op in path for op in drawn])
    assert on_path > 0.25 * share + 0.75 * (1 / 2 + 1 / 6) - 0.03
    assert np.mean([op in beside for op in drawn]) > 0.75


def test_random_numbers_are_the_minimal_standards():
    """Park and Miller, with 48271: from 1 the 10,000th state is 399268537 (as in C++'s
    minstd_rand).
    """
    random = np.array([1])
    counts = np.zeros(6, int)
    for _ in range(10_000):
        counts[draw(random, 6)] += 1
    assert random[0] == 399268537
    assert abs(counts / 10_000 - 1 / 6).max() < 0.02


def test_occurrences_count_equal_codes_before():
    codes = np.random.default_rng(1).integers(0, 5, 200)
    assert count_occurrences(codes).tolist() == [
        int((codes[:n] == code).sum()) for n, code in enumerate(codes)
    ]


@pytest.mark.parametrize(
    ("chance", "kept", "best"),
    [
        (0.0, [True, True, True, True, True, False, True], 7.0),
        (0.5, [True, True, False, True, False, False, True], 7.0),
    ],
)
def test_what_is_no_longer_is_kept_and_what_is_longer_by_chance(monkeypatch, chance, kept, best):
    """A rise of a whole temperature in one of 2.718 cases, one of a tenth in nearly all; a deadlock
    never.
    """
    _, orders, walk = state(PLACEMENTS[0])
    costs, undone = [10.0, 9.0, 9.0, 19.0, 8.0, 18.0, -1.0, 7.0], list[bool]()
    if chance:  # what was longer was not kept
        costs[3:6] = [19.0, 10.0, 20.0]
    said = iter(costs)

    def find_cost(orders, walk):
        walk.reached[0] = next(said)
        undone.append(False)
        return walk.reached[0]

    def undo(*given):
        undone[-1] = True

    monkeypatch.setattr(kernel, "find_cost", find_cost)
    monkeypatch.setattr(kernel, "find_path", lambda orders, walk: 1)
    monkeypatch.setattr(kernel, "move_series", lambda *given: 1)
    monkeypatch.setattr(kernel, "move", undo)
    monkeypatch.setattr(
        kernel, "draw", lambda random, below: int(chance * below) if below == MODULUS else 0
    )
    found = kernel.anneal(orders, walk, len(costs) - 1, 6, 10.0, 10.0)
    assert [not each for each in undone[1:]] == kept
    assert found == best


@pytest.mark.parametrize(("drawn", "many"), [(kernel.SERIES - 1, 4), (kernel.SERIES, 1)])
def test_so_many_moves_of_a_hundred_are_of_several_microbatches(monkeypatch, drawn, many):
    _, orders, walk = state(PLACEMENTS[0])
    asked = list[tuple[int, int]]()

    def series(orders, walk, op, steps, many):
        asked.append((steps, many))
        return 0

    monkeypatch.setattr(kernel, "move_series", series)
    monkeypatch.setattr(kernel, "draw", lambda random, below: drawn if below == 100 else below - 1)
    kernel.anneal(orders, walk, 3, 6, 10.0, 10.0)
    assert asked == [(6, many)] * 3
