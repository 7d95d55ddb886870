"""Which activations wait on the host: against every way to run tiny pipelines, and against the originals' orders."""

from __future__ import annotations

import json
import random
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ppsim.core.costs import Costs, costs_for
from ppsim.core.ops import Kind, pack
from ppsim.core.schedule import Schedule, place
from ppsim.engine.simple.longest_path import simulate
from ppsim.schedules import generate
from ppsim.search.bounds.bounds import Bounds, bound_problem
from ppsim.search.orders import copies
from ppsim.search.orders import optimize as module
from ppsim.search.orders.copies import CHOICES, fit_order, walk, write_in_turns
from ppsim.search.orders.copies_solver import CopyModel
from ppsim.search.orders.improve import HOT
from ppsim.search.orders.optimize import Outcome, optimize
from ppsim.search.orders.solver import solve
from ppsim.search.problem import Problem, evaluate, fits
from ppsim.search.rules.offload import waits_for_copies
from ppsim.search.rules.orders import write_one_by_one, write_schedule
from ppsim.search.rules.room import make_room
from tests.clock import ENDLESS
from tests.search.orders.brute import Tiny, best_of_all
from tests.search.originals import SAMPLED, compute_queues, costs_named

# Placement, all of Tiny, and the optimum that every way to run it was tried for.
ROWS = [
    (row[0], Tiny(tuple(row[1]), row[2], tuple(row[3]), tuple(row[4]), *row[5:8]), row[8])
    for row in json.loads((Path(__file__).parents[2] / "data" / "search" / "copies.json").read_text())
]


def problem_of(placement: str, asked: Tiny) -> Problem:
    S, (f, i, w, out, back) = len(asked.device), asked.times
    times = np.repeat([[f], [i + w], [i], [w]], S, axis=1).astype(float)
    copies = {Kind.OFFLOAD: np.full(S, float(out)), Kind.RELOAD: np.full(S, float(back))}
    costs = Costs(times, others=copies, host_link=asked.link if asked.link > 1 else 0)
    return Problem(
        place(placement, len(asked.caps), S),
        asked.microbatches,
        costs,
        [cap / 2 for cap in asked.caps],
        asked.halves / 2,
        "span" if asked.spans else "makespan",
        offload=True,
    )


def test_bounds_are_below_the_optimum():
    reached = 0
    for placement, asked, optimum in ROWS:
        bounds = bound_problem(problem_of(placement, asked))
        bound = bounds.span if asked.spans else bounds.makespan
        assert bound <= optimum * (1 + 1e-9), asked
        reached += bound >= optimum * (1 - 1e-9)
    assert reached > len(ROWS) / 5


def examine(placement: str, asked: Tiny, optimum: int, time_limit: float) -> bool:
    """Optimize and compare; return whether it is proved."""
    problem = problem_of(placement, asked)
    found = optimize([problem], [[]], time_limit=time_limit)
    check(found)
    assert found.bound <= optimum * (1 + 1e-9) <= found.value * (1 + 2e-9), asked
    assert found.value == pytest.approx(optimum) or found.status == "feasible", asked
    return found.status == "optimal"


def check(found: Outcome) -> None:
    """The schedule fits, by a count of its own of what each device holds at every start."""
    problem, made = found.problem, found.solution.schedule
    timeline = simulate(made, problem.costs)
    assert fits(problem, made)
    for d in range(made.n_devices):
        own = range(made.offsets[d], made.offsets[d + 1])
        for now in timeline.start[own.start : own.stop]:
            held = 0.0
            for op in own:
                kind, weight = Kind(made.kind[op]), float(problem.amounts[made.stage[op]])
                if timeline.start[op] <= now + 1e-9 and kind in (Kind.F, Kind.RELOAD):
                    held += weight
                if timeline.end[op] <= now + 1e-9:
                    freed = {Kind.OFFLOAD: 1.0, Kind.B: 1.0, Kind.I: 1 - problem.after_i, Kind.W: problem.after_i}
                    held -= weight * freed.get(kind, 0.0)
            assert held <= problem.caps[d] + 1e-9


@pytest.mark.sampled(2)
@pytest.mark.parametrize("row", ROWS[:4], ids=str)
def test_what_is_proved_of_tiny_pipelines_is_true(row):
    pytest.importorskip("ortools")
    placement, asked, optimum = row
    examine(placement, asked, optimum, 0.6)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS[1::3], ids=str)
def test_tiny_pipelines_are_proved(monkeypatch, row):
    """However short the walk that comes first: the solver has all the time that it takes."""
    pytest.importorskip("ortools")
    monkeypatch.setattr(module, "MOST_SEARCHED_S", 0.1)
    placement, asked, optimum = row
    assert examine(placement, asked, optimum, ENDLESS)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS[::9], ids=str)
def test_the_optima_are_those_of_every_way(row):
    placement, asked, optimum = row
    bounds = bound_problem(problem_of(placement, asked))
    assert best_of_all(asked, int(bounds.span if asked.spans else bounds.makespan), optimum + 1) == optimum


def fit_originals(rows: list[list[Any]]) -> None:
    """With the peak of each device as its cap, the originals' orders take no longer with other copies."""
    assert rows
    for name, devices, chunks, microbatches, group, _, costs, timing, makespan, peaks in rows:
        order = compute_queues(name, devices, chunks, microbatches, group)
        prices = costs_named(costs, order.n_stages, 2 if timing == "paired" else 0)
        caps = [float(peak) for peak in peaks]
        problem = Problem(order.placement, microbatches, prices, caps, objective="makespan", offload=True)
        found = list(fit_order(problem, order))
        assert all((each.peak_activations <= problem.caps + 1e-9).all() for each in found)
        best = min(each.makespan for each in found)
        assert best <= makespan + 1e-6, (name, devices, chunks, microbatches, group, costs, timing)


def test_never_worse_than_the_originals_in_the_memory_of_each_device():
    fit_originals(SAMPLED[::360])


@pytest.mark.slow
def test_never_worse_than_many_originals_in_the_memory_of_each_device():
    fit_originals(SAMPLED[::4])


@pytest.mark.parametrize(("cap", "out", "back"), [(1, 5, 2), (1.5, 0, 2), (1.5, 0.5, 0.5), (2.5, 0, 5)])
@pytest.mark.parametrize(("name", "devices", "chunks"), [("1f1b", 3, 1), ("zb-v", 2, 2)])
def test_an_order_without_room_for_what_comes_back_is_left_out(name, devices, chunks, cap, out, back):
    """Where nothing can leave for an activation that is needed now, no order is written that would wait forever."""
    for microbatches in (2, 3, 4):
        order = generate(name, devices=devices, chunks=chunks, microbatches=microbatches)
        others = {kind: np.full(order.n_stages, float(t)) for kind, t in ((Kind.OFFLOAD, out), (Kind.RELOAD, back))}
        prices = replace(costs_for(order), others=others)
        problem = Problem(order.placement, microbatches, prices, cap * chunks, 0.5, "makespan", offload=True)
        for choice in CHOICES:
            for timeline in make_room(order, prices, problem.caps, problem.changes, choice):
                assert (timeline.schedule.kind == Kind.OFFLOAD).sum() == (timeline.schedule.kind == Kind.RELOAD).sum()


def test_a_change_moves_an_op_either_way_past_all_but_its_own():
    """W of eight microbatches may go anywhere; none of a cell passes the next of it."""
    cells = [int(pack(0, m)) for m in range(8)]
    several, moved = [cell | Kind.W for cell in cells], set[bool]()
    for seed in range(200):
        found = copies._change(list(several), random.Random(seed))
        if found is None:  # past an end of the queue
            continue
        assert sorted(found) == several
        moved |= {found.index(op) > n for n, op in enumerate(several) if abs(found.index(op) - n) > 1}
    assert moved == {True, False}
    for kinds in ((Kind.I, Kind.W), (Kind.OFFLOAD, Kind.RELOAD), (Kind.RELOAD, Kind.B)):
        pair = [cells[3] | kind for kind in kinds]
        assert {copies._change(list(pair), random.Random(seed)) for seed in range(50)} == {None}
    way = [cells[3] | kind for kind in (Kind.F, Kind.OFFLOAD, Kind.RELOAD, Kind.I, Kind.W)]
    changes = [copies._change(list(way), random.Random(seed)) for seed in range(100)]
    assert {tuple(each) for each in changes if each} == {(way[0], *way[3:])}  # but for the copies, which may go


def test_a_copy_that_is_added_leaves_behind_its_f_and_comes_back_a_little_before_its_own_backward():
    """Three F and their B in turn: two ops before at the mean, none at the least, whatever else runs backwards."""
    queue = [int(pack(0, m)) | kind for kind in (Kind.F, Kind.B) for m in range(3)]
    added = {
        tuple(found)
        for seed in range(400)
        if (found := copies._change(list(queue), random.Random(seed))) and len(found) > len(queue)
    }
    before = dict[int, set[int]]()
    for each in added:
        found = list(each)
        m = next(m for m in range(3) if int(pack(0, m)) | Kind.OFFLOAD in found)
        f, out, back, b = (found.index(int(pack(0, m)) | k) for k in (Kind.F, Kind.OFFLOAD, Kind.RELOAD, Kind.B))
        assert f + 1 == out < back < b
        before.setdefault(m, set()).add(b - back)
    assert {m: min(gaps) for m, gaps in before.items()} == {0: 1, 1: 1, 2: 1}
    assert all(len(gaps) > 1 for gaps in before.values())


def test_of_what_a_solvers_starts_say_the_fastest_that_fits_is_read(monkeypatch):
    """Copies may be issued early or late: an order that holds too much is no answer, however fast."""
    problem = problem_of("linear", Tiny((0, 1), 3, (1, 1, 1, 1, 1), (2, 2), 2, 1, False))
    order = compute_queues("1f1b", 2, 1, 3, 0)
    made = sorted(fit_order(problem, order), key=lambda each: each.makespan)
    fast, slow = made[0].schedule, evaluate(problem, write_in_turns(problem, (Kind.B,)), "").schedule
    assert evaluate(problem, slow, "").makespan > made[0].makespan
    assert not fits(problem, order)
    monkeypatch.setattr(CopyModel, "_write", lambda model, value: iter([order, slow, fast, slow, order]))
    model = object.__new__(CopyModel)
    model.problem = problem
    assert model.read(int) is fast


def test_walks_fit_and_are_as_they_say():
    """Every schedule that a walk yields is timed anew, and better than the one before."""
    problem = problem_of("linear", Tiny((0, 1), 3, (1, 1, 1, 1, 1), (2, 2), 2, 1, False))
    order = compute_queues("1f1b", 2, 1, 3, 0)
    start = next(found for found in fit_order(problem, order) if found.schedule.has_lanes)
    yielded = list(walk(problem, start, random.Random(0), 0.5, float("inf")))
    for found in yielded:
        assert fits(problem, found.schedule)
        again = evaluate(problem, found.schedule, "")
        assert (again.makespan, again.span) == (found.makespan, found.span)


def test_a_search_walks_on_from_the_best_until_the_bound_or_the_end_of_its_time(monkeypatch):
    """Every second walk starts from the best of all, the others from the pool in turn; heat falls as they go on."""
    problem, walks = problem_of("linear", Tiny((0, 1), 3, (1, 1, 1, 1, 1), (2, 2), 2, 1, False)), list[Any]()
    first = next(each for each in fit_order(problem, compute_queues("1f1b", 2, 1, 3, 0)) if each.schedule.has_lanes)
    better = replace(first, makespan=first.makespan - 1)
    now = iter(range(100))
    monkeypatch.setattr(copies, "monotonic", lambda: next(now))
    monkeypatch.setattr(copies, "interrupt_at", lambda until: nullcontext())
    monkeypatch.setattr(copies, "_orders", lambda *given: iter([first.schedule]))
    monkeypatch.setattr(copies, "fit_order", lambda problem, order: iter([first, replace(first, origin="second")]))

    def walk(problem, start, rng, heat, until):
        walks.append((start.origin, heat))
        yield from [better] if len(walks) == 7 else []

    monkeypatch.setattr(copies, "walk", walk)
    reports = list[float]()

    def searched(bound):
        walks.clear()
        return copies.search_copies(
            problem, [], seed=1, time_limit=30, bound=bound, report=lambda best: reports.append(best.makespan)
        )

    found = searched(better.makespan)
    assert found is not None
    assert found.makespan == better.makespan == reports[-1]
    origins = [origin == "second" for origin, _ in walks]
    assert origins == [False, False, True, False, False, False, True]
    hot = HOT[0] * 1.0  # the mean of F, I and W
    assert [heat for _, heat in walks] == pytest.approx([hot * part for part in (1, 1, 0.3, 0.3, 0.1, 0.1, 0)])
    assert searched(0.0) is not None
    assert 7 < len(walks) < 40


def test_a_walk_is_the_same_in_another_unit_of_time(monkeypatch):
    """A power of two rounds nothing: what is tried and taken, and what it costs, differ by the unit alone."""
    cost_of, tried = copies._cost, list[list[float]]()

    def cost(*given):
        tried[-1].append(cost_of(*given))
        return tried[-1][-1]

    monkeypatch.setattr(copies, "_cost", cost)
    for unit in (1, 2**20):
        problem = problem_of("linear", Tiny((0, 1), 3, (unit, unit, unit, unit, unit), (2, 2), 2, 1, False))
        start = next(each for each in fit_order(problem, compute_queues("1f1b", 2, 1, 3, 0)) if each.schedule.has_lanes)
        tried.append([])
        list(walk(problem, start, random.Random(0), unit / 2, float("inf")))
    assert [cost / 2.0**20 for cost in tried[1]] == tried[0]
    assert len(set(tried[0])) > 2


@pytest.mark.parametrize(("placement", "stages"), [("linear", 4), ("v", 8), ("loop", 12)])
@pytest.mark.parametrize(("cap", "turns"), [(None, 1), (2, 4), (3.5, 3), (1, 7)])
def test_turns_are_as_large_as_the_fullest_device_allows(placement, stages, cap, turns):
    """Seven microbatches on four devices, layers of stages unequal, with every backward of a search."""
    layers = tuple(1 + (stage == 1) for stage in range(stages))
    asked = Problem(place(placement, 4, stages), 7, Costs(np.ones((4, stages))), after_i=0.5, layers=layers)
    most = None if cap is None else cap * asked.least_caps.max()
    problem = replace(asked, cap=most)
    for backward in ((Kind.B,), (Kind.I, Kind.W)):
        made = write_in_turns(problem, backward)
        assert fits(problem, made)
        held = evaluate(problem, made, made.name).peak_activations.max() / asked.least_caps.max()
        assert -(-7 // held) == turns
        size = {1: 7, 3: 3, 4: 2, 7: 1}[turns]
        assert made.name == ("one microbatch at a time" if size == 1 else f"{size} microbatches at a time")


def test_copies_that_come_late_are_issued_earlier():
    """Back takes six times as long as out: what was waited for is waited for less, and the order is faster."""
    order = generate("zb-v", devices=3, microbatches=4)
    others = {kind: np.full(6, time) for kind, time in ((Kind.OFFLOAD, 0.25), (Kind.RELOAD, 1.5))}
    prices = replace(costs_for(order), others=others)
    problem = Problem(order.placement, 4, prices, 4.0, 0.5, "makespan", offload=True)
    first, second = make_room(order, prices, problem.caps, problem.changes, CHOICES[0])
    assert 0 < waits_for_copies(second).sum() < waits_for_copies(first).sum()
    assert second.makespan < first.makespan


def test_orders_for_copies_are_searched_for_in_caps_that_hold_them(monkeypatch):
    """A cap times each level, and never below what one microbatch needs."""
    asked = list[Any]()
    monkeypatch.setattr(copies, "search", lambda capped, **given: asked.append(capped.caps))
    problem = problem_of("linear", Tiny((0, 1, 2), 3, (1, 1, 1, 1, 1), (1, 2, 12), 2, 1, False))
    list(copies._orders(problem, [], float("inf"), 0))
    least = replace(problem, offload=False).least_caps
    expected = [np.maximum(np.array([0.5, 1.0, 6.0]) * level, least).tolist() for level in copies.LEVELS]
    assert [caps.tolist() for caps in asked] == expected
    assert any(caps[0] == least[0] > 0.5 for caps in asked)


@pytest.mark.slow
def test_with_no_cap_nothing_leaves():
    S, times = 3, np.array([[1.0], [2.0], [1.0], [1.0]]).repeat(3, axis=1)
    problem = Problem(place("linear", 3, S), 4, Costs(times), offload=True)
    found = optimize([problem], [[]], time_limit=ENDLESS)
    assert not (found.solution.schedule.kind == Kind.OFFLOAD).any()
    assert (found.value, found.status) == (13, "optimal")


def test_ctrl_c_while_an_order_is_searched_for_ends_it(monkeypatch):
    """A search for an order takes the signal for its own and returns; what was found until then is the answer."""
    problem = problem_of("linear", Tiny((0, 1), 4, (1, 1, 1, 1, 1), (2, 2), 2, 1, False))
    searched = list[Problem]()
    monkeypatch.setattr(copies, "search", lambda asked, **_: searched.append(asked))
    monkeypatch.setattr(copies, "first_signal", lambda: len(searched))
    seeds = [compute_queues("1f1b", 2, 1, 4, 0)]
    found = copies.search_copies(problem, seeds, seed=0, time_limit=ENDLESS, bound=0.0, report=lambda best: None)
    assert found is not None
    assert len(searched) == 1


def test_a_copy_starts_as_its_op_ends_and_an_op_as_its_copy_does():
    """One place for two stages: F and its copy of 5, all of the other stage, the copy back of 6, I and W."""
    pytest.importorskip("ortools")
    copies = {Kind.OFFLOAD: np.full(2, 5.0), Kind.RELOAD: np.full(2, 6.0)}
    costs = Costs(np.repeat([[2.0], [7], [3], [4]], 2, axis=1), others=copies)
    problem = Problem(place("loop", 1, 2), 1, costs, 1.0, 1.0, "makespan", offload=True)
    ops = [
        pack(s, 0) | kind for s, kind in ((0, Kind.F), (1, Kind.F), (1, Kind.I), (1, Kind.W), (0, Kind.I), (0, Kind.W))
    ]
    known = next(fit_order(problem, Schedule.from_queues("", problem.placement, 1, [np.array(ops)])))
    proof = solve(problem, known, Bounds(0.0, 0.0), time_limit=ENDLESS, model=CopyModel)
    assert (proof.bound, proof.solution.makespan) == pytest.approx((2 + 5 + 9 + 6 + 7,) * 2)


@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize(("chunks", "makespan"), [(1, 3 * 2 + 3 * 3 + 4 * 1 + 4), (2, 6 * 2 + 6 * 3 + 10 * 1 + 4)])
def test_one_microbatch_takes_the_way_down_and_back(chunks, makespan, objective):
    """F of 2 and I of 3 of each stage, a message of 1 between any two, W of 4 at the end: the solver's rules alone.

    The first device is the first to start, so that its span is the makespan.
    """
    pytest.importorskip("ortools")
    S = 3 * chunks
    times = np.repeat([[2.0], [7], [3], [4]], S, axis=1)
    costs = Costs(times, 1.0, others={Kind.OFFLOAD: np.ones(S), Kind.RELOAD: np.ones(S)})
    problem = Problem(place("loop", 3, S), 1, costs, float(chunks), 1.0, objective, offload=True)
    known = evaluate(problem, write_schedule(problem, write_one_by_one(problem)), "")
    proof = solve(problem, known, Bounds(0.0, 0.0), time_limit=ENDLESS, model=CopyModel)
    assert (proof.bound, proof.solution.makespan) == pytest.approx((makespan, makespan))


class Scripted(random.Random):
    """Draws the first place, and a rise of at most 2 in heats of 1."""

    def randrange(self, *given):
        return 0

    def expovariate(self, lambd=1.0):
        return 2.0


@pytest.mark.parametrize(
    ("heat", "costs", "kept"),
    [
        (0.0, [10, 9, 9, 11, 8], [True, True, False, True]),
        (1.0, [10, 11, 12, 14.5, 13], [True, True, False, True]),
        (1.0, [10, 12, float("inf"), 11], [False, False, True]),
    ],
)
def test_a_walk_goes_on_from_what_is_no_worse_or_a_little_in_its_heat(monkeypatch, heat, costs, kept):
    """With heat it takes what rises by less than the rise drawn, which falls as the walk goes on; never a deadlock."""
    problem = problem_of("linear", Tiny((0, 1), 3, (1, 1, 1, 1, 1), (2, 2), 2, 1, False))
    start = next(each for each in fit_order(problem, compute_queues("1f1b", 2, 1, 3, 0)) if each.schedule.has_lanes)
    said, begun = iter(costs), list[int]()

    def change(queue, rng):
        begun.append(len(queue))
        return [*queue, 0]

    monkeypatch.setattr(copies, "TRIALS", len(costs) - 1)
    monkeypatch.setattr(copies, "COLD", 0.9)
    monkeypatch.setattr(copies, "_change", change)
    monkeypatch.setattr(copies, "_waiting", lambda problem, device, queue: queue)
    monkeypatch.setattr(copies, "_cost", lambda problem, queues: next(said))
    monkeypatch.setattr(copies, "_schedule", lambda problem, queues: start.schedule)
    yielded = list(walk(problem, start, Scripted(), heat, float("inf")))
    assert np.diff(begun).tolist() == kept[:-1]
    assert len(yielded) == sum(cost < min(costs[:n]) for n, cost in enumerate(costs) if n)


def test_what_leaves_first_is_needed_last_or_gone_first():
    """In time until it is needed again, and until it is gone, nothing or less where it is gone by now."""
    cells = {"now": (0.0, -1.0), "soon": (1.0, 0.0), "late": (9.0, 5.0), "later": (8.0, 4.0), "between": (4.0, -2.0)}

    def order(choice):
        return " ".join(sorted(cells, key=lambda name: choice(*cells[name]), reverse=True))

    assert [order(choice) for choice in CHOICES] == [
        "late later between soon now",
        "between soon later late now",
        "between soon later late now",
    ]
    assert CHOICES[1](3.0, -1.0) > CHOICES[1](2.0, -5.0) > CHOICES[1](99.0, 1.0)
    assert CHOICES[2](2.0, -5.0) > CHOICES[2](3.0, -1.0)


@pytest.mark.parametrize("model", [None, CopyModel])
def test_what_takes_less_as_one_b_is_one_b_and_a_device_runs_it_alone(model):
    """Two microbatches on a device: F of 2 and B of 5, where I and W take 3 and 4."""
    pytest.importorskip("ortools")
    costs = Costs(np.array([[2.0], [5], [3], [4]]), others={Kind.OFFLOAD: np.ones(1), Kind.RELOAD: np.ones(1)})
    problem = Problem(place("linear", 1, 1), 2, costs, 2.0, 1.0, "makespan", offload=model is not None)
    known = evaluate(problem, write_schedule(replace(problem, offload=False), [np.array([0, 1, 0, 1, 2, 2])]), "")
    assert known.makespan > 14
    proof = solve(problem, known, Bounds(0.0, 0.0), time_limit=ENDLESS, model=model)
    assert (proof.bound, proof.solution.makespan) == pytest.approx((14, 14))
