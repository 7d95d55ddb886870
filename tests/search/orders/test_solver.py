"""The constraint solver finds known optima and proves them; its model loses no schedule and breaks
no rule.
"""

import sys
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest

from ppsim.core.costs import Costs
from ppsim.core.ops import Kind, pack
from ppsim.core.schedule import Placement, Schedule, place
from ppsim.errors import Deadlock, MissingDependency
from ppsim.search.bounds.bounds import Bounds, bound_problem
from ppsim.search.orders import optimize as optimize_module
from ppsim.search.orders import solver
from ppsim.search.orders.engine import search
from ppsim.search.orders.optimize import optimize
from ppsim.search.orders.solver import (
    Grid,
    Model,
    Proof,
    bound_in_steps,
    count_steps,
    import_solver,
    solve,
    to_fraction,
)
from ppsim.search.problem import ROUNDING, Problem, evaluate, fits
from ppsim.search.rules.orders import write_one_by_one, write_schedule
from tests.clock import ENDLESS

pytest.importorskip("ortools")
KINDS = (Kind.F, Kind.I, Kind.W)


def problem(devices, microbatches, times, comm=0.0, cap=None, placement="linear", chunks=1, **more):
    stages = devices * chunks
    f, i, w = (np.broadcast_to(np.asarray(t, float), stages) for t in times)
    return Problem(
        place(placement, devices, stages),
        microbatches,
        Costs(np.stack([f, i + w, i, w]), comm),
        cap,
        **more,
    )


def worst(problem):
    """The schedule that runs one microbatch at a time."""
    return evaluate(problem, write_schedule(problem, write_one_by_one(problem)), "")


@pytest.mark.parametrize(
    ("shape", "more", "best"),
    [
        ((3, 4, (1, 1, 1), 0.0, 3), {}, (14, 14)),
        ((3, 4, (1, 1, 1), 0.0, 5), {}, (13, 14)),
        ((2, 3, (1, 1, 1), 0.0, 4, "v", 2), {}, (18, 19)),
        ((2, 4, ([2, 1], [1, 2], [1, 1]), 0.5, 2), {}, (20, 20)),
        ((3, 4, (0.3, 0.2, 0.1), 0.05, 3), {"after_i": 0.5}, (3.6, 3.6)),
    ],
)
def test_small_problems_are_solved_with_proof(shape, more, best):
    """From the worst schedule to the best span, and among those to the least makespan; the bound is
    attained.
    """
    asked = problem(*shape, **more)
    proof = solve(asked, worst(asked), bound_problem(asked), time_limit=ENDLESS)
    assert fits(asked, proof.solution.schedule)
    assert (proof.solution.span, proof.solution.makespan) == pytest.approx(best, abs=1e-9)
    assert proof.bound == pytest.approx(proof.solution.score(asked.objective)[0], rel=1e-9)


def every_order(problem):
    """The best of all schedules of two microbatches, whichever of them a device runs first."""
    devices = range(problem.n_devices)
    queues = []
    for device in devices:
        own = []
        for first in combinations(range(6), 3):
            ops = iter(KINDS), iter(KINDS)
            own.append(
                np.array(
                    [
                        int(pack(device, m)) | next(ops[m])
                        for m in (int(n not in first) for n in range(6))
                    ]
                )
            )
        queues.append(own)
    found = []
    for chosen in product(*queues):
        schedule = Schedule.from_queues("drawn", problem.placement, 2, chosen)
        if fits(problem, schedule):
            with suppress(Deadlock):
                found.append(evaluate(problem, schedule, "").score(problem.objective))
    return min(found)


def test_the_least_makespan_is_proved(monkeypatch):
    """By one call; what is known to attain its bound needs none."""
    cp, solvers = import_solver(), list[Any]()

    def make_solver(make=cp.CpSolver):
        solvers.append(make())
        return solvers[-1]

    monkeypatch.setattr(cp, "CpSolver", make_solver)
    asked = problem(3, 4, (1, 1, 1), 0.0, 5, objective="makespan")
    proof = solve(asked, worst(asked), bound_problem(asked), time_limit=ENDLESS)
    assert (proof.solution.makespan, proof.bound) == (14, 14)
    again = solve(asked, proof.solution, Bounds(14.0, 0.0), time_limit=ENDLESS)
    assert (again, len(solvers)) == (proof, 1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(4))
def test_the_solver_finds_the_best_of_all_orders(seed):
    """Two microbatches on two devices have 400 orders: none is better, also where microbatch 1 runs
    first.
    """
    rng = np.random.default_rng(seed)
    times, comm = rng.integers(1, 9, (3, 2)), float(rng.integers(0, 3))
    objective: Literal["span", "makespan"] = "makespan" if seed % 2 else "span"
    asked = problem(
        2, 2, times, comm, int(rng.integers(1, 3)), after_i=0.5 * (seed > 1), objective=objective
    )
    proof = solve(asked, worst(asked), bound_problem(asked), time_limit=ENDLESS)
    assert proof.solution.score(objective) == every_order(asked)
    assert proof.bound == proof.solution.score(objective)[0]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("layers", "cap"), [((1, 3), 3), ((2, 1), 3), ((0, 2), 2)])
def test_the_solver_counts_the_layers_of_each_stage(layers, cap):
    """Best of all orders whose devices hold at most so many layers, and no bound is above it."""
    asked = problem(2, 2, ([3, 5], [4, 6], [2, 4]), 1.0, cap, after_i=0.5, layers=layers)
    proof = solve(asked, worst(asked), Bounds(0.0, 0.0), time_limit=ENDLESS)
    assert proof.solution.score("span") == every_order(asked)
    assert bound_problem(asked).span <= proof.bound == proof.solution.span


# A span of 43 would need a device that waits before its first op, which no order makes it do.
WAITING = problem(3, 3, ([3, 2, 3], [1, 9, 2], [3, 3, 1]))


def test_no_device_waits_longer_than_for_a_microbatch():
    """44 is proved, as devices start when a microbatch arrives; none may be first for them to wait
    for.
    """
    proof = solve(WAITING, worst(WAITING), bound_problem(WAITING), time_limit=ENDLESS)
    assert (bound_problem(WAITING).span, proof.bound, proof.solution.span) == (43, 44, 44)


def test_a_device_may_begin_with_a_later_microbatch():
    """Queues say so, all of a microbatch's ops keep its number, and run no later than the model has
    them.

    Microbatches are numbered as the last stage runs them: torch finds losses by position.
    """
    cp = import_solver()
    model = Model(cp, WAITING, bound_problem(WAITING), worst(WAITING), soon=False)
    model.cp.add(model.first[1][2] == 1)
    model.cp.add(model.first[2][1] == 1)
    solver = cp.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model.cp) == cp.OPTIMAL
    schedule = model.read(solver.value)
    first = [schedule.microbatch[schedule.queue(device)][0] for device in range(3)]
    found = evaluate(WAITING, schedule, "")
    assert (first, fits(WAITING, schedule)) == ([0, 1, 0], True)
    last = (schedule.stage == 2) & (schedule.kind == Kind.F)
    assert schedule.microbatch[last].tolist() == [0, 1, 2]
    assert found.makespan <= solver.value(model.makespan)


# A device that begins with its second microbatch is done sooner; with the first, its span is 73.
LATE = problem(2, 2, ([5, 4, 3, 8], [1, 7, 8, 6], [6, 10, 1, 1]), placement="loop", chunks=2)


def test_only_the_model_with_all_orders_proves(monkeypatch):
    """Where its time is over, what the quick model finds least is no bound."""
    proof = solve(LATE, worst(LATE), Bounds(0.0, 0.0), time_limit=ENDLESS)
    assert (proof.solution.span, proof.bound) == (72, 72)
    run, calls = solver._Run._run, list[bool]()

    def run_all_but_the_first(self, model, proves, workers, units):
        calls.append(proves)
        return len(calls) == 1 or run(self, model, proves, workers, units)

    monkeypatch.setattr(solver._Run, "_run", run_all_but_the_first)
    quick = solve(LATE, worst(LATE), bound_problem(LATE), time_limit=ENDLESS)
    assert (quick.solution.span, quick.bound) == (73, bound_problem(LATE).span)


@pytest.mark.slow
def test_a_schedule_that_is_found_first_proves_nothing(monkeypatch):
    """Stopped at its first schedule the solver has a bound below the optimum, and is asked again
    with many workers.
    """
    asked, cp, solvers, reports = (
        problem(2, 3, (1, 1, 1), cap=2),
        import_solver(),
        list[Any](),
        list[Proof](),
    )

    def make_hasty(make=cp.CpSolver):
        solvers.append(make())
        solvers[-1].parameters.stop_after_first_solution = True
        return solvers[-1]

    monkeypatch.setattr(solver, "MANY", 2)
    monkeypatch.setattr(cp, "CpSolver", make_hasty)
    proof = solve(
        asked, worst(asked), Bounds(0.0, 0.0), report=lambda *said: reports.append(Proof(*said))
    )
    assert proof.bound <= 10 <= proof.solution.span
    assert solvers[0].parameters.num_workers == 1 < solvers[1].parameters.num_workers
    pairs = [(each.solution.span, each.bound) for each in reports]
    assert len(set(pairs)) == len(pairs)


def test_shares_are_never_rounded_up():
    """What is held too little of is a bound of nothing; a fraction of few digits is itself."""
    shares = [*np.random.default_rng(1).random(50).tolist(), 0.5, 0.25, 1 / 3]
    assert all(to_fraction(share) <= share + ROUNDING for share in shares)
    assert all(to_fraction(share) > share - 1e-4 for share in shares)
    assert [to_fraction(share) for share in shares[-3:]] == [
        Fraction(1, 2),
        Fraction(1, 4),
        Fraction(1, 3),
    ]


def draw_order(asked, rng):
    """An order that runs: ops of all devices at random, each once its input is there, backwards as
    B or I and W.
    """
    ops, done = set[tuple[Kind, int, int]](), set[tuple[Kind, int, int]]()
    queues: list[list[int]] = [[] for _ in range(asked.n_devices)]
    for stage, m in np.ndindex(asked.n_stages, asked.microbatches):
        joined = asked.joins[stage] and rng.random() < 0.5
        ops |= {(kind, stage, m) for kind in ((Kind.F, Kind.B) if joined else KINDS)}
    while left := sorted(ops - done):
        ready = []
        for kind, stage, m in left:
            last = (Kind.F, stage, m) if stage == asked.n_stages - 1 else (Kind.I, stage + 1, m)
            input_ = {Kind.F: (Kind.F, stage - 1, m), Kind.W: (Kind.I, stage, m)}.get(kind, last)
            whole = (Kind.B, *input_[1:]) if input_[0] == Kind.I else input_
            if {input_, whole} & done or input_[1] < 0:
                ready.append((kind, stage, m))
        kind, stage, m = ready[rng.integers(len(ready))]
        done.add((kind, stage, m))
        queues[asked.device[stage]].append(int(pack(stage, m)) | kind)
    return Schedule.from_queues(
        "drawn", asked.placement, asked.microbatches, [np.array(queue) for queue in queues]
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(8))
def test_the_model_has_every_order_that_fits_and_no_other(seed):
    """Fixed to the starts of any order, it is as long as that, in the memory that it holds, and
    never in less.
    """
    rng, cp = np.random.default_rng(seed), import_solver()
    placement = (
        place("linear", 1, 1),
        place("linear", 2, 2),
        place("linear", 3, 3),
        place("v", 2, 4),
    )[seed % 4]
    f, i, w = rng.integers(1, 6, (3, placement.n_stages)).astype(float)
    costs = Costs(
        np.stack([f, i + w - rng.integers(0, 2, len(f)), i, w]), float(rng.integers(0, 3))
    )
    objective: Literal["span", "makespan"] = "span" if seed % 3 else "makespan"
    free = Problem(placement, 3, costs, after_i=(1.0, 0.5)[seed // 4], objective=objective)
    for _ in range(16 // placement.n_stages):
        found = evaluate(free, draw_order(free, rng), "")
        peaks = found.peak_activations.astype(float)
        for less in (0.0, 0.5):
            asked = replace(free, cap=tuple(peaks - less))
            model, solver = Model(cp, asked, Bounds(0.0, 0.0), found, soon=False), cp.CpSolver()
            solver.parameters.fix_variables_to_their_hinted_value, solver.parameters.num_workers = (
                True,
                1,
            )
            status = solver.solve(model.cp)
            assert status == (cp.INFEASIBLE if less else cp.OPTIMAL)
            if not less:
                assert solver.objective_value == found.score(objective)[0] * model.grid.steps
                again = model.read(solver.value)
                assert fits(asked, again)
                assert evaluate(asked, again, "").score(objective)[0] <= found.score(objective)[0]


def test_a_proof_needs_no_bound_of_ours():
    """Without our bounds the solver proves the same."""
    asked = problem(2, 3, (1, 1, 1), cap=2)
    proof = solve(asked, worst(asked), Bounds(0.0, 0.0), time_limit=ENDLESS)
    assert (proof.solution.span, proof.bound) == (10, 10)


def test_times_that_no_power_of_ten_makes_whole_are_rounded_down():
    """A bound stays one, and what is found has its own times."""
    asked = problem(2, 3, (1 / 3, 1 / 7, np.pi / 10), 1 / 11, cap=2)
    grid = count_steps(asked)
    assert not grid.exact
    assert (grid.time / grid.steps <= asked.costs.time[[0, 2, 3]]).all()
    proof = solve(asked, worst(asked), bound_problem(asked), time_limit=ENDLESS)
    assert proof.bound <= proof.solution.span <= proof.bound * (1 + 1e-6)


def test_ops_that_take_no_time_keep_their_order():
    asked = problem(3, 3, ([0, 1, 0], [1, 0, 0], [0, 0, 1]), cap=2)
    proof = solve(asked, worst(asked), bound_problem(asked), time_limit=ENDLESS)
    assert fits(asked, proof.solution.schedule)
    assert proof.solution.span == proof.bound


def test_a_placement_of_the_users_own_is_solved():
    """Two stages on device 0, one on device 1."""
    placement = Placement("custom", 2, np.array([[0, 0, 1]], np.int32))
    asked = Problem(placement, 3, Costs(np.array([[1.0], [2.0], [1.0], [1.0]]) * np.ones(3)), cap=4)
    proof = solve(asked, worst(asked), bound_problem(asked), time_limit=ENDLESS)
    assert proof.bound <= proof.solution.span < worst(asked).span


def test_a_missing_solver_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    asked = problem(2, 2, (1, 1, 1))
    with pytest.raises(MissingDependency) as caught:
        solve(asked, worst(asked), bound_problem(asked))
    assert "pip install 'ppsim-pipeline[optimize]'" in caught.value.hint


@pytest.mark.slow
def test_bounds_are_the_optimum_in_most_small_problems():
    """Of 40 problems with equal stages and 40 with uneven ones, at least 60 % of the bounds are
    what is optimal.
    """
    rng = np.random.default_rng(0)
    equal = {"even": 0, "uneven": 0}
    for n in range(80):
        kind = "even" if n < 40 else "uneven"
        devices, microbatches = int(rng.integers(2, 5)), int(rng.integers(2, 7))
        size = devices if kind == "uneven" else 1
        times = [rng.integers(1, 10, size) for _ in range(3)]
        objective: Literal["span", "makespan"] = "span" if n % 2 else "makespan"
        cap = int(rng.integers(1, devices + 3))
        asked = problem(
            devices, microbatches, times, float(rng.integers(0, 3)), cap, objective=objective
        )
        bounds = bound_problem(asked)
        mine = bounds.span if objective == "span" else bounds.makespan
        best = search(asked, rounds=0)
        assert best is not None
        proof = solve(asked, best, bounds, time_limit=ENDLESS)
        assert mine <= proof.bound
        equal[kind] += mine >= proof.solution.score(objective)[0] * (1 - 1e-9)
    assert min(equal.values()) >= 24


@pytest.mark.parametrize("objective", ["span", "makespan"])
def test_without_time_the_answer_is_what_was_known(objective):
    asked = problem(3, 4, (1, 2, 1), 0.5, 2, objective=objective)
    known = worst(asked)
    proof = solve(asked, known, bound_problem(asked), time_limit=0.0)
    assert proof.solution.score(objective) <= known.score(objective)
    assert fits(asked, proof.solution.schedule)
    assert proof.bound <= proof.solution.score(objective)[0]


def test_a_bound_in_steps_is_never_above_itself():
    """Whole times reach the next step; others are rounded, and so is the bound, a little below."""
    nothing = np.zeros(0, np.int64)
    whole, rounded = (Grid(nothing, nothing, nothing, 4.0, exact) for exact in (True, False))
    assert [bound_in_steps(bound, whole) for bound in (2.5, 2.6, 2.75)] == [10, 11, 11]
    assert [bound_in_steps(bound, rounded) for bound in (2.5, 2.6, 2.75)] == [9, 10, 10]


def test_what_takes_no_time_needs_no_solver(monkeypatch):
    monkeypatch.setattr(solver, "Model", lambda *_, **__: pytest.fail("a model is made"))
    asked = problem(2, 3, (0, 0, 0), 0.0, 2)
    proof = solve(asked, worst(asked), bound_problem(asked), time_limit=ENDLESS)
    assert (proof.solution.span, proof.bound) == (0, 0)
    monkeypatch.setattr(solver, "solve", lambda *_, **__: pytest.fail("the solver is called"))
    found = optimize([asked], [[]], time_limit=ENDLESS)
    assert (found.value, found.bound, found.status) == (0, 0, "optimal")


def test_what_misses_its_bound_by_rounding_needs_no_solver(monkeypatch):
    monkeypatch.setattr(solver, "solve", lambda *_, **__: pytest.fail("the solver is called"))
    least = 12 * (1 - ROUNDING / 2)
    monkeypatch.setattr(optimize_module, "bound_problem", lambda asked: Bounds(least, least))
    found = optimize([problem(1, 4, (1, 1, 1))], [[]], time_limit=ENDLESS)
    assert (found.value, found.bound, found.status) == (12, least, "optimal")


def test_what_one_thread_does_not_end_many_go_on_with(monkeypatch):
    """From the best so far, with at least ``MANY`` threads and no limit of work; what proves still
    proves.
    """
    asked, run = problem(2, 2, (1, 1, 1)), list[Any]()
    state = solver._Run(None, asked, worst(asked), Bounds(0, 0), lambda best, bound: None)
    model: Any = SimpleNamespace(hint=lambda best: run.append(best))

    def solved(*given):
        run.append(given)
        return ended

    monkeypatch.setattr(state, "_run", solved)
    monkeypatch.setattr(solver, "count_cores", lambda: 3 * solver.MANY)
    for ended, proves in ((True, True), (False, True), (False, False)):
        run.clear()
        state.solve(model, proves=proves)
        first = (model, proves, 1, solver.ALONE)
        more = (model, proves, 3 * solver.MANY, np.inf)
        assert run == ([first] if ended else [first, state.best, more])


def test_a_shorter_makespan_is_looked_for_a_while_only(monkeypatch):
    """The span has all of the time, the makespan beside it as long as may be, and no longer than is
    left.
    """
    asked, until = problem(2, 2, (1, 1, 1)), list[float]()
    known = worst(asked)
    monkeypatch.setattr(solver._Run, "solve", lambda run, model, proves: until.append(run.until))
    monkeypatch.setattr("ppsim.search.orders.solver.time.monotonic", lambda: 100.0)
    for limit in (1000.0, 2.0):
        until.clear()
        solve(asked, known, Bounds(known.makespan - 1, known.span), time_limit=limit)
        assert until == [100 + min(limit, solver.MOST_S_FOR_MAKESPAN)]
        until.clear()
        solve(asked, known, Bounds(known.makespan, known.span - 1), time_limit=limit)
        assert until == [100 + limit] * 2
    until.clear()
    solve(asked, known, Bounds(known.makespan, known.span))
    assert until == []


def test_a_step_that_times_are_rounded_down_to_is_a_share_of_all_of_them():
    """Two microbatches of a third, a seventh and an eleventh on two stages, and a message each
    way.
    """
    asked = problem(2, 2, (1 / 3, 1 / 7, 1 / 11), comm=1 / 13)
    length = 2 * 2 * (1 / 3 + 1 / 7 + 1 / 11) + 2 * 2 / 13
    grid = count_steps(asked)
    assert not grid.exact
    assert grid.steps == pytest.approx(solver.FINEST / length, rel=1e-12)


def test_the_least_makespan_has_the_span_that_was_found():
    asked = problem(2, 3, (1, 1, 1), 0.0, 4, "v", 2)
    best = solve(asked, worst(asked), bound_problem(asked), time_limit=ENDLESS).solution
    cp = import_solver()
    for span, status in ((best.span, cp.OPTIMAL), (best.span - 1, cp.INFEASIBLE)):
        model, tried = Model(cp, asked, Bounds(0.0, 0.0), best, soon=True), cp.CpSolver()
        model.then_makespan(span)
        tried.parameters.num_workers = 1
        assert tried.solve(model.cp) == status


def test_what_takes_less_as_one_b_is_one_b_and_a_device_runs_it_alone():
    """Two microbatches on a device: F of 2 and B of 5, where I and W take 3 and 4."""
    asked = Problem(
        place("linear", 1, 1), 2, Costs(np.array([[2.0], [5], [3], [4]])), 2.0, 1.0, "makespan"
    )
    known = evaluate(asked, write_schedule(asked, [np.array([0, 1, 0, 1, 2, 2])]), "")
    assert known.makespan > 14
    proof = solve(asked, known, Bounds(0.0, 0.0), time_limit=ENDLESS)
    assert (proof.bound, proof.solution.makespan) == pytest.approx((14, 14))
