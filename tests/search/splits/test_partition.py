"""The best split equals brute force over all contiguous splits, each simulated on its own."""

import itertools
import math
import sys
import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.base.deadline import TimeOver
from ppsim.core.costs import Costs
from ppsim.core.ops import Kind
from ppsim.core.schedule import Schedule
from ppsim.engine.memory.usage import curves, layer_model
from ppsim.engine.simple.longest_path import simulate
from ppsim.schedules import generate
from ppsim.search.bounds.bounds import bound_schedule
from ppsim.search.orders.solver import import_solver
from ppsim.search.splits import partition as search
from ppsim.search.splits import partition_planned as planned_search
from ppsim.search.splits import splits
from ppsim.search.splits.partition import _least_near, _unevenness, climbs_from, partition
from ppsim.search.splits.partition_planned import (
    _splits_by_cut,
    cuts_of_any_order,
    partition_planned,
)
from ppsim.search.splits.partition_solver import _find_step, _limit_states, list_by_cuts
from ppsim.search.splits.split_search import SplitSearch
from ppsim.search.splits.splits import Sizes, SplitProblem, bound_busiest, layers_in, list_ends
from ppsim.workload.layout.costs import LayerTimes, layout_costs
from ppsim.workload.layout.layout import build_layout
from tests.clock import ENDLESS

NAMES = (
    ("1f1b", 3, 1),
    ("interleaved", 2, 2),
    ("zb-1p", 4, 1),
    ("dualpipe-v", 2, 2),
    ("1f1b-overlap", 3, 1),
)


def make(name: str, devices: int, chunks: int, microbatches: int = 4) -> Schedule:
    return generate(name, devices=devices, chunks=chunks, microbatches=microbatches)


def problem_of(
    schedule: Schedule, times: LayerTimes, n_layers: int, comm: float = 0.0
) -> SplitProblem:
    alone = replace(times, layer=0.0, mtp=times.mtp_time)
    base = layout_costs(build_layout([0] * schedule.n_stages, schedule.n_devices), alone, comm)
    b = times.b_over_f
    rate = Costs(np.outer([1.0, b, b / 2, b / 2, 1.0], np.ones(schedule.n_stages)), comm)
    return SplitProblem(schedule, base, rate, np.array(times.forward_times(n_layers)))


def all_splits(n_layers: int, stages: int, least: int) -> list[list[int]]:
    cuts = itertools.combinations_with_replacement(range(n_layers + 1), stages - 1)
    splits = (
        [after - before for before, after in itertools.pairwise((0, *cut, n_layers))]
        for cut in cuts
    )
    return [split for split in splits if min(split) >= least]


def brute_force(
    schedule: Schedule, times: LayerTimes, splits: list[list[int]], comm: float = 0.0
) -> list[float]:
    layouts = (build_layout(split, schedule.n_devices) for split in splits)
    return [simulate(schedule, layout_costs(layout, times, comm)).makespan for layout in layouts]


@st.composite
def tasks(draw):
    name, devices, chunks = draw(st.sampled_from(NAMES))
    number = st.floats(0, 4, allow_subnormal=False)
    n_layers = draw(st.integers(devices * chunks, 7))
    times = LayerTimes(
        draw(st.one_of(number, st.lists(number, min_size=n_layers, max_size=n_layers))),
        draw(number),
        draw(number),
        b_over_f=draw(st.floats(0.5, 3)),
    )
    return (
        name,
        devices,
        chunks,
        n_layers,
        times,
        draw(st.integers(0, 1)),
        draw(st.sampled_from([0.0, 0.3])),
    )


@given(tasks())
def test_it_equals_brute_force(task):
    name, devices, chunks, n_layers, times, least, comm = task
    schedule = make(name, devices, chunks)
    splits = all_splits(n_layers, schedule.n_stages, least)
    expected = min(brute_force(schedule, times, splits, comm))
    problem = replace(problem_of(schedule, times, n_layers, comm), least_layers=least)
    found = partition(problem)
    assert found is not None
    assert (found.status, problem.n_splits) == ("optimal", len(splits))
    assert found.best[1] == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert brute_force(schedule, times, [list(found.best[0])], comm)[0] == pytest.approx(
        expected, rel=1e-9, abs=1e-12
    )


@pytest.mark.parametrize("listed", [0, 10**6])
@pytest.mark.parametrize("cap", [math.inf, 13.0])
def test_what_has_time_for_one_split_answers_with_the_even_one(monkeypatch, listed, cap):
    monkeypatch.setattr(search, "MOST_LISTED", listed)
    monkeypatch.setattr(search, "_list_all", lambda asked: ring())
    monkeypatch.setattr(search, "_improve", lambda asked: ring())

    def ring():
        raise TimeOver

    problem = replace(problem_of(make("1f1b", 4, 1, 8), LayerTimes(1.0, 0.0, 2.5), 12), cap=cap)
    found = partition(
        problem, accepts=(lambda split: True) if cap < math.inf else None, time_limit=ENDLESS
    )
    assert found is not None
    assert (found.best[0], found.simulated, found.status) == ((3, 3, 3, 3), 1, "feasible")


def test_splits_of_a_large_schedule_are_timed_one_by_one(monkeypatch):
    problem = problem_of(make("1f1b", 3, 1, 8), LayerTimes([1.0, 0.3, 2.7, 1.1], 0.0, 1.5), 4, 0.2)
    ends = list_ends(4, 3, 0)
    together = problem.makespans(ends)
    monkeypatch.setattr(splits, "LARGE", 10)
    monkeypatch.setattr(search, "LARGE", 10)
    assert problem.makespans(ends) == pytest.approx(together, rel=1e-12)
    found = partition(problem)
    assert found is not None
    assert found.status == "optimal"
    assert found.best[1] == pytest.approx(together.min())


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "devices", "chunks"), NAMES)
@pytest.mark.parametrize(
    "layer", [1.0, [1.0, 0.3, 2.7, 1.0, 1.1, 0.9, 1.3]], ids=["equal", "unequal"]
)
def test_the_solver_proves_what_brute_force_finds(name, devices, chunks, layer, monkeypatch):
    """As where the splits are too many to list."""
    monkeypatch.setattr(search, "MOST_LISTED", 0)
    schedule, times = make(name, devices, chunks), LayerTimes(layer, 0.2, 1.7)
    found = partition(problem_of(schedule, times, 7, 0.1), time_limit=ENDLESS)
    assert found is not None
    assert found.status == "optimal"
    expected = min(brute_force(schedule, times, all_splits(7, schedule.n_stages, 0), 0.1))
    assert found.best[1] == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
def test_many_splits_of_unequal_layers_are_proved():
    """Of 80 layers over 16 stages: times with three decimals are counted as they are, and paths
    guide the climb.
    """
    layers = [round(1 + 0.3 * (i * 7919 % 13) / 13, 3) for i in range(80)]
    found = partition(
        problem_of(make("1f1b", 16, 1, 64), LayerTimes(layers, 0.0, 2.5), 80), time_limit=ENDLESS
    )
    assert found is not None
    assert found.status == "optimal"
    assert found.best[1] == pytest.approx(1513.548)


@pytest.mark.slow
def test_the_solver_finds_the_same_again():
    """Also which splits it simulated on the way, of ten million."""
    problem = problem_of(make("interleaved", 4, 2, 16), LayerTimes(1.0, 0.2, 2.5), 30)
    first = partition(problem)
    assert first is not None
    assert first.status == "optimal"
    assert all(partition(problem) == first for _ in range(3))


def test_a_split_that_the_solver_finds_first_proves_nothing(monkeypatch):
    """Stopped there, the solver says a bound on all splits beside it."""
    cp_model, solvers = import_solver(), list[Any]()

    def make_hasty(make=cp_model.CpSolver):
        solvers.append(make())
        solvers[-1].parameters.stop_after_first_solution = True
        return solvers[-1]

    monkeypatch.setattr(cp_model, "CpSolver", make_hasty)
    problem = problem_of(
        make("1f1b", 3, 1), LayerTimes([1.0, 0.3, 2.7, 1.0, 1.1, 0.9, 1.3], 0.2, 1.7), 7, 0.1
    )
    cuts, ends = cuts_of_any_order(problem), list_ends(7, 3, 0)
    least = np.max([problem.bound_by(cut, ends) for cut in cuts], axis=0).min()
    search = SplitSearch(
        problem, None, lambda best, bound, timed: None, time.monotonic() + ENDLESS, cuts=cuts
    )
    for _, bound in itertools.islice(list_by_cuts(search), 3):
        assert bound <= least * (1 + 1e-9)
    # both calls
    assert all(solver.parameters.max_time_in_seconds <= ENDLESS / 4 for solver in solvers)


def test_the_cut_of_the_last_device_is_the_way_there_and_back():
    """One microbatch: F and I of 8 each, four messages of a quarter, and the W of the first
    stage.
    """
    problem = problem_of(
        make("zb-1p", 3, 1, 1), LayerTimes([1.0, 0.3, 2.7, 1.0, 1.1], 0.2, 1.7), 5, comm=0.25
    )
    ends = list_ends(5, 3, 0)
    said = problem.bound_by(cuts_of_any_order(problem)[-1], ends)
    assert said.tolist() == pytest.approx(
        (8 + 8 + 1 + 0.2 + np.cumsum([0.0, 1.0, 0.3, 2.7, 1.0, 1.1])[ends[0]]).tolist()
    )


@pytest.mark.parametrize("seed", range(6))
def test_rounding_for_the_solver_raises_no_bound(seed):
    """Times that no step counts: what it proves is below the least of the cuts, by a millionth at
    most.
    """
    times = np.random.default_rng(seed).lognormal(0, 1, 8)
    problem = problem_of(
        make("interleaved", 2, 2), LayerTimes(times.tolist(), 0.1 * np.pi, times[0]), 8
    )
    cuts, ends = cuts_of_any_order(problem), list_ends(8, 4, 0)
    least = np.max([problem.bound_by(cut, ends) for cut in cuts], axis=0).min()
    search = SplitSearch(
        problem, None, lambda best, bound, timed: None, time.monotonic() + ENDLESS, cuts=cuts
    )
    assert least * (1 - 1e-6) <= next(list_by_cuts(search))[1] <= least * (1 + 1e-13)


def test_without_the_solver_the_bound_holds(monkeypatch):
    monkeypatch.setattr(search, "MOST_LISTED", 0)
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    for name, devices, chunks in NAMES:
        schedule, times = make(name, devices, chunks), LayerTimes(1.0, 0.2, 1.7)
        found = partition(problem_of(schedule, times, 7, 0.1))
        assert found is not None
        expected = min(brute_force(schedule, times, all_splits(7, schedule.n_stages, 0), 0.1))
        assert 0.5 * expected < found.bound <= expected + 1e-9
        assert expected - 1e-9 <= found.best[1] <= 1.1 * expected


@pytest.mark.slow
def test_a_cap_that_holds_every_split_changes_no_climb():
    """Layers move to where the cuts say less, whatever is held; beyond a cap first to where less is
    held.
    """
    times, loose, tight, least = (
        LayerTimes([1.0, 0.3, 2.7, 1.0, 1.1, 0.9, 1.3], 0.2, 1.7),
        [],
        [],
        [],
    )
    for name, devices, chunks in NAMES:
        problem = problem_of(make(name, devices, chunks), times, 7)
        ends = list_ends(7, problem.schedule.n_stages, 0)
        peaks = problem.peaks(ends)
        for start in ends.T[::11]:
            found = []
            for cap in (np.inf, int(peaks.max()), int(peaks.min())):
                capped = replace(problem, cap=cap)
                cuts, until = cuts_of_any_order(problem), time.monotonic() + ENDLESS
                climb = SplitSearch(capped, None, lambda best, bound, timed: None, until, cuts=cuts)
                found.append(_least_near(climb, start))
            loose.append((found[0] == found[1]).all())
            tight.append(problem.peaks(found[2][:, None])[0] <= problem.peaks(start[:, None])[0])
            weights = problem.weigh(np.column_stack([found[0], climbs_from(problem, found[0])]))
            said = np.max([cut.rate @ weights + cut.constant for cut in cuts], axis=0)
            least.append(said.min() >= said[0] * (1 - 1e-9))
    assert all(least)
    assert all(loose)
    assert all(tight)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("name", "devices", "chunks"), NAMES)
@pytest.mark.parametrize("listed", [True, False], ids=["listed", "solver"])
def test_a_cap_leaves_out_the_splits_that_hold_more(name, devices, chunks, listed, monkeypatch):
    """Peaks are those of the memory curves, and the best split of those that fit is found."""
    if not listed:
        monkeypatch.setattr(search, "MOST_LISTED", 0)
    schedule, times, n_layers = make(name, devices, chunks), LayerTimes(1.0, 0.2, 1.7), 7
    splits = all_splits(n_layers, schedule.n_stages, 0)
    problem = problem_of(schedule, times, n_layers)
    layouts = [build_layout(split, schedule.n_devices) for split in splits]
    held = [
        int(
            curves(
                simulate(schedule, layout_costs(x, times)), layer_model(schedule, x.content)
            ).peak.max()
        )
        for x in layouts
    ]
    assert problem.peaks(list_ends(n_layers, schedule.n_stages, 0)).tolist() == held
    makespans = brute_force(schedule, times, splits)
    cap = sorted(set(held))[1]
    found = partition(replace(problem, cap=cap), time_limit=ENDLESS)
    assert found is not None
    best = min(makespan for makespan, peak in zip(makespans, held, strict=True) if peak <= cap)
    assert (found.best[1], found.bound) == pytest.approx((best, best))
    assert found.status == "optimal"
    assert held[splits.index(list(found.best[0]))] <= cap
    assert partition(replace(problem, cap=min(held) - 1), time_limit=ENDLESS) is None
    count = np.tile(np.arange(n_layers + 1), (schedule.n_stages, 1))
    sizes = Sizes(0 * count + 1, 2 * count, 2 * count)
    copies = (schedule.placement.devices == 0).sum()
    doubled = partition(replace(problem, cap=2 * cap + copies, sizes=sizes), time_limit=ENDLESS)
    assert doubled is not None
    assert (doubled.best[1], doubled.bound) == pytest.approx((best, best))
    assert doubled.status == "optimal"


def test_every_cut_is_below_every_makespan():
    for name, devices, chunks in NAMES:
        problem = problem_of(
            make(name, devices, chunks), LayerTimes([1.0, 2.0, 0.5, 1.0, 3.0], 0.2, 1.7), 5, 0.1
        )
        ends = list_ends(5, problem.schedule.n_stages, 0)
        makespans = problem.makespans(ends)
        for split in range(0, ends.shape[1], 5):
            cut = problem.cut_at(ends[:, split])
            said = problem.bound_by(cut, ends)
            assert (said <= makespans + 1e-9).all()
            assert said[split] == pytest.approx(makespans[split])
            assert problem.best_of(cut)[0] == pytest.approx(said.min())


def test_a_split_that_the_caller_refuses_is_not_taken(monkeypatch):
    """As a cap in bytes, which is checked split by split; listed or solved."""
    schedule, times = make("1f1b", 3, 1), LayerTimes(1.0, 0.0, 1.0)
    splits = all_splits(6, 3, 0)
    makespans = brute_force(schedule, times, splits)
    best = min(makespan for makespan, split in zip(makespans, splits, strict=True) if split[0] == 1)
    for most in (1_000_000, 0):
        monkeypatch.setattr(search, "MOST_LISTED", most)
        found = partition(
            problem_of(schedule, times, 6), accepts=lambda split: split[0] == 1, time_limit=ENDLESS
        )
        assert found is not None
        assert found.best[1] == pytest.approx(best)
        assert found.best[0][0] == 1


def interrupt_after(count):
    reports = itertools.count()

    def report(best, bound, timed):
        if next(reports) >= count:
            raise KeyboardInterrupt

    return report


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "solver"])
def test_an_interrupt_keeps_the_best_and_proves_no_more_than_is_true(listed, monkeypatch):
    """Ctrl-C at any report: the bound is below the best of all splits, and only that is called
    optimal.
    """
    monkeypatch.setattr(search, "FEWEST", 2)
    problem = problem_of(
        make("1f1b", 3, 1), LayerTimes([1.0, 0.3, 2.7, 1.0, 1.1, 0.9, 1.3], 0.2, 1.7), 7, 0.1
    )
    monkeypatch.setattr(search, "MOST_LISTED", problem.n_splits - (not listed))
    monkeypatch.setattr(search, "_improve" if listed else "_list_all", None)
    optimum, bounds = problem.makespans(list_ends(7, 3, 0)).min(), list[float]()
    for last in (0, 1, 2, 4, 8, 99):
        found = partition(problem, report=interrupt_after(last))
        assert found is not None
        assert found.bound <= optimum * (1 + 1e-9) <= found.best[1] * (1 + 2e-9)
        assert found.simulated < problem.n_splits  # bounds leave out the rest
        assert (found.status == "optimal") == (found.bound >= found.best[1] * (1 - 1e-6))
        bounds.append(found.bound)
    assert bounds == sorted(bounds)
    assert bounds[0] < bounds[-1] == pytest.approx(optimum)


def test_a_step_of_which_times_are_multiples_is_found():
    """The largest of a third, a half or a whole of a power of ten; none of what no such step
    counts.
    """
    asked = ([3.0, 0.0], [0.5, 2.0], [1 / 3, 1 / 2], [1.25, 0.1], [0.125], [np.pi])
    assert [_find_step(np.array(times)) for times in asked] == [
        1,
        1 / 2,
        1 / 6,
        1 / 20,
        1 / 200,
        None,
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sized", [False, True])
def test_the_solver_keeps_just_the_splits_that_fit(sized):
    """Of all counts of three stages, those whose every state is within the cap."""
    solver, chance = import_solver(), np.random.default_rng(0)
    sizes, held = chance.integers(0, 9, (2, 3, 4)), chance.integers(0, 3, (4, 2, 3))
    if not sized:
        sizes = np.tile(np.arange(4), (2, 3, 1))
    peaks = {
        split: max(int((state * sizes[:, range(3), split]).sum()) for state in held)
        for split in itertools.product(range(4), repeat=3)
    }
    cap = sorted(peaks.values())[len(peaks) // 2]
    model, found = solver.CpModel(), list[tuple[int, ...]]()
    layers = [model.new_int_var(0, 3, "") for _ in range(3)]
    problem: Any = SimpleNamespace(held=held, sizes=sizes if sized else None, cap=cap)
    _limit_states(model, problem, layers)
    run = solver.CpSolver()
    while run.solve(model) in (solver.OPTIMAL, solver.FEASIBLE):
        found.append(tuple(map(run.value, layers)))
        model.add_forbidden_assignments(layers, [found[-1]])
    assert sorted(found) == sorted(split for split, peak in peaks.items() if peak <= cap)
    assert 0 < len(found) < len(peaks)


def test_of_equal_splits_the_most_even_comes_first():
    """Twelve layers on stages that cost nothing else: the even split."""
    found = partition(problem_of(make("1f1b", 3, 1), LayerTimes(1.0), 12))
    assert found is not None
    assert found.best[0] == (4, 4, 4)
    problem = problem_of(make("1f1b", 3, 1), LayerTimes(1.0), 12)
    # too small to count
    assert _unevenness(problem, np.array([[4, 12], [8, 12]])) == pytest.approx([4e-12, 12e-12])
    assert [makespan for _, makespan in found.runner_ups] == sorted(
        makespan for _, makespan in found.runner_ups
    )


@given(tasks())
def test_the_busiest_device_bounds_every_split(task):
    name, devices, chunks, n_layers, times, least, comm = task
    problem = replace(
        problem_of(make(name, devices, chunks), times, n_layers, comm), least_layers=least
    )
    ends = list_ends(n_layers, problem.schedule.n_stages, least)
    assert bound_busiest(problem) <= problem.makespans(ends).min() + 1e-9


def return_costs(costs: Costs, schedule: Schedule) -> Costs:
    return costs


@pytest.mark.sampled(4)
@pytest.mark.parametrize("layer", [1.0, [1.0, 0.3, 2.7, 1.0, 1.1]], ids=["equal", "unequal"])
@pytest.mark.parametrize(("name", "devices"), [("zb-v", 2), ("zb-auto", 3)])
def test_what_any_order_takes_bounds_each_planned_split_and_lists_them(name, devices, layer):
    """Where queues depend on costs, splits are bounded before they are planned; the solver lists
    the least first.
    """
    times, comm, n_layers = LayerTimes(layer, embedding=0.5, head=1.5), 0.3, 5
    problem = problem_of(generate(name, devices=devices, microbatches=3), times, n_layers, comm)
    ends, cuts = list_ends(n_layers, problem.schedule.n_stages, 0), cuts_of_any_order(problem)
    said = np.max([problem.bound_by(cut, ends) for cut in cuts], axis=0)
    makespans = []
    for split in np.diff(ends, axis=0, prepend=0, append=n_layers).T.tolist():
        costs = layout_costs(build_layout(split, devices), times, comm)
        planned = generate(
            name, devices=devices, microbatches=3, costs=partial(return_costs, costs)
        )
        makespans.append(simulate(planned, costs).makespan)
    assert (said <= np.array(makespans) * (1 + 1e-9)).all()
    assert said.min() > 0.8 * min(makespans)
    search = SplitSearch(
        problem, None, lambda best, bound, timed: None, time.monotonic() + ENDLESS, cuts=cuts
    )
    listed = list(itertools.islice(list_by_cuts(search), 4))
    assert len(dict(listed)) == 4
    assert [bound for _, bound in listed] == pytest.approx(sorted(said)[:4])


@pytest.mark.slow
def test_a_split_whose_order_follows_its_costs_equals_brute_force():
    """Each split is ordered for its own costs: the best of all, with proof, and each split is
    planned once.
    """
    times, planned, comm = (
        LayerTimes([1.0, 0.4, 1.9, 1.3, 0.8], 0.3, 1.4),
        list[tuple[int, ...]](),
        0.3,
    )
    problem = problem_of(make("zb-1p", 3, 1), times, 5, comm)

    def price(split):
        return layout_costs(build_layout(list(split), 3), times, comm)

    def time_split(split):
        planned.append(split)
        schedule = generate("zb-auto", devices=3, microbatches=4, costs=lambda _: price(split))
        return simulate(schedule, price(split)).makespan

    splits = [tuple(split) for split in all_splits(5, 3, 0)]
    expected = {split: time_split(split) for split in splits}
    planned.clear()
    found = partition_planned(problem, time_split, price, [(2, 2, 1), (1, 2, 2)])
    assert found is not None
    assert found.status == "optimal"
    assert found.best[1] == found.bound == min(expected.values())
    assert expected[found.best[0]] == found.best[1]
    assert len(planned) == len(set(planned)) == found.simulated
    assert all(expected[split] == makespan for split, makespan in found.runner_ups)
    assert partition_planned(problem, lambda split: np.inf, price, [(2, 2, 1)]) is None
    late = partition_planned(problem, time_split, price, [(2, 2, 1)], time_limit=0)
    assert late is not None
    assert (late.status, late.best[0]) == ("feasible", (2, 2, 1))
    assert late.bound <= min(expected.values())


@pytest.mark.parametrize("listed", [True, False, None], ids=["listed", "solver", "part of a list"])
def test_a_planned_split_is_optimal_only_where_no_other_may_be_faster(listed, monkeypatch):
    """Ctrl-C at any split: the bound stays below the optimum, and rises to what the list has said
    of the next.
    """
    layers = LayerTimes([1.0, 0.4, 1.9, 1.3, 0.8], 0.3, 1.4)
    problem = problem_of(make("zb-1p", 3, 1), layers, 5, 0.3)

    def price(split):
        return layout_costs(build_layout(list(split), 3), layers, 0.3)

    def list_splits(search):
        return itertools.islice(
            _splits_by_cut(search.problem, search.cuts), None if listed is False else 1
        )

    monkeypatch.setattr(planned_search, "MOST_LISTED", problem.n_splits - (not listed))
    monkeypatch.setattr(planned_search, "list_by_cuts", None if listed else list_splits)
    ends = list_ends(5, 3, 0)
    least = np.max(
        [problem.bound_by(cut, ends) for cut in cuts_of_any_order(problem)], axis=0
    ).min()
    makespans = {
        split: simulate(problem.schedule, price(split)).makespan
        for split in map(tuple, all_splits(5, 3, 0))
    }
    statuses, optimum = [], min(makespans.values())
    for last in (99, 9, 5, 3, 2, 1, 0):
        found = partition_planned(
            problem, makespans.__getitem__, price, [(0, 0, 5)], report=interrupt_after(last)
        )
        assert found is not None
        assert found.bound >= least or last < 2
        assert found.bound <= optimum * (1 + 1e-9)
        assert (found.status == "optimal") == (found.bound >= found.best[1] * (1 - 1e-6))
        assert found.ranked == (found.simulated == problem.n_splits)
        statuses.append(found.status)
    assert statuses[-1] == "feasible"
    assert statuses[0] == ("feasible" if listed is None else "optimal")
    monkeypatch.setattr(planned_search, "_climb", lambda *given: None)  # by the list alone
    bounds = {split: bound_schedule(problem.schedule, price(split)).makespan for split in makespans}
    slower = {
        split: bound * (1.08 if bound == min(bounds.values()) else 1)
        for split, bound in bounds.items()
    }
    for times in (makespans, slower) if listed is not None else ():
        found = partition_planned(problem, times.__getitem__, price, [(0, 0, 5)])
        assert found is not None
        assert found.best[1] == min(times.values())


def test_a_climb_ends_where_no_layer_is_better_elsewhere():
    """From all layers on the first stage: the longest stage gets shorter a layer at a time, and
    none after the time.
    """
    layers = np.array([1.0, 0.5, 2.0, 1.5, 1.0])
    problem = problem_of(make("1f1b", 3, 1), LayerTimes(layers.tolist(), 0.25, 1.5), 5, 0.0)
    tried = list[tuple[int, ...]]()

    def longest(split):
        return max(
            layers[end - count : end].sum()
            for count, end in zip(split, np.cumsum(split), strict=True)
        )

    def take(split):
        tried.append(split)
        return longest(split)

    planned_search._climb(problem, take, (5, 0, 0), math.inf)
    best = min(tried, key=longest)
    near = [
        layers_in(each, 5) for each in climbs_from(problem, np.cumsum(best[:-1]).astype(np.int16)).T
    ]
    assert longest(best) < longest((5, 0, 0))
    assert longest(best) == min(map(longest, near))
    tried.clear()
    planned_search._climb(problem, take, (5, 0, 0), 0.0)
    assert not tried


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, unique=True))
def test_states_below_another_are_left_out(rows):
    largest = [
        a
        for a in rows
        if not any(a != b and all(x <= y for x, y in zip(a, b, strict=True)) for b in rows)
    ]
    table = np.array(rows)
    assert table[splits._largest(table)].tolist() == [list(row) for row in largest]


@pytest.mark.parametrize("cap", [math.inf, 13.0, 9.0])
def test_climbs_in_batches_end_where_all_at_once_do(cap, monkeypatch):
    """With three splits listed at once the climb takes the same way, but for ties, which say the
    same.
    """
    problem = replace(problem_of(make("1f1b", 4, 1, 8), LayerTimes(1.0, 0.0, 2.5), 11), cap=cap)
    ends = np.array([2, 5, 7], np.int16)
    every = climbs_from(problem, ends)
    assert (climbs_from(problem, ends, np.array([1, 6])) == every[:, [1, 6]]).all()
    reached = []
    for batch in (search.BATCH, 12):
        monkeypatch.setattr(search, "BATCH", batch)
        tried = SplitSearch(problem, None, lambda *_: None, math.inf)
        tried.evaluate(ends)
        reached.append(tried.evaluate(_least_near(tried, ends)))
    assert reached[0] == reached[1]


def test_a_stage_costs_what_it_has_besides_and_its_weight_of_layers():
    """Pairs too where both parts tell their time; where one does not, a pair takes its ops'."""
    base = Costs(np.ones((4, 2)), pair=np.array([5.0, 6.0]))
    rate = Costs(2 * np.ones((4, 2)), pair=np.array([3.0, 1.0]))
    problem = SplitProblem(make("1f1b", 2, 1), base, rate, np.ones(4))
    costs = problem.costs_at(np.array([3.0, 1.0]))
    assert costs.time[:4].tolist() == [[7.0, 3.0]] * 4
    assert costs.pair is not None
    assert costs.pair.tolist() == [14.0, 7.0]
    for part in (
        replace(problem, base=replace(base, pair=None)),
        replace(problem, rate=replace(rate, pair=None)),
    ):
        assert part.costs_at(np.array([3.0, 1.0])).pair is None


def test_the_second_split_to_start_from_is_even_with_what_the_stages_have_besides():
    """Twelve layers of 3 and a head of 12 on the last of three stages, as four more: ends from 5
    1/3 and 10 2/3 up.
    """
    extra, rate = np.zeros((4, 3)), np.zeros((4, 3))
    extra[:2, 2], rate[:2] = (4.0, 8.0), np.array([[1.0], [2.0]])
    problem = SplitProblem(make("1f1b", 3, 1), Costs(extra), Costs(rate), np.ones(12))
    assert [ends.tolist() for ends in search._starts(problem)] == [[4, 8], [6, 11]]


def test_a_descent_ends_where_new_cuts_gain_nothing_and_not_before(monkeypatch):
    """Fifty splits that each take less than the one before, then as long: thirty more are timed."""
    monkeypatch.setattr(search, "_least_near", lambda state, ends: ends + 1)
    timed = list[int]()

    def take(ends):
        timed.append(int(ends[0]))
        return max(100.0 - timed[-1], 50.0)

    state: Any = SimpleNamespace(is_over=False, evaluate=take, report_progress=lambda: None)
    search._descend(state, np.array([0]))
    assert timed == list(range(1, 50 + search.STALE + 1))


@pytest.mark.parametrize("name", ["zb-1p", "1f1b", "zb-v"])
def test_a_peak_counts_what_waits_for_w_apart(name):
    """States, microbatches before I and those between I and W take 100, 10 and 3 bytes a layer, op
    by op.
    """
    chunks = 2 if name == "zb-v" else 1
    schedule = make(name, 3, chunks, 5)
    S, count = schedule.n_stages, np.tile(np.arange(8), (schedule.n_stages, 1))
    costs = Costs(np.ones((4, S)))
    problem = replace(
        SplitProblem(schedule, costs, costs, np.ones(7)),
        sizes=Sizes(100 * count, 10 * count, 3 * count),
    )
    ends = list_ends(7, S, 0)[:, ::9]
    for split, peak in zip(
        np.diff(ends, axis=0, prepend=0, append=7).T, problem.peaks(ends), strict=True
    ):
        most = 0
        for device in range(3):
            states = held = sum(
                100 * split[s] for s in range(S) if schedule.placement.devices[0, s] == device
            )
            for op in range(*schedule.offsets[device : device + 2].tolist()):
                kind, layers = schedule.kind[op], split[schedule.stage[op]]
                held += {Kind.F: 10, Kind.I: 3 - 10, Kind.W: -3, Kind.B: 0}[kind] * layers
                most = max(most, held)
                held -= 10 * layers if kind == Kind.B else 0
            assert held == states
        assert peak == most


def test_what_any_order_takes_ends_with_a_w_behind_the_last_i():
    """Three microbatches whose F, I and W take 1, 2 and 4 beside layers: device 0 works 9 and ends
    with a W; device 1 waits for an F before, and its last I is followed by one of device 0 and its
    W.
    """
    times = np.array([[1.0], [6.0], [2.0], [4.0]]) * np.ones((4, 2))
    problem = SplitProblem(
        make("zb-1p", 2, 1, 3), Costs(times), Costs(np.zeros((4, 2))), np.ones(4)
    )
    whole, orders = (cuts_of_any_order(problem)[n::2] for n in range(2))
    assert [cut.constant for cut in whole] == [21, 22]
    assert [cut.constant for cut in orders] == [9 + 4, 1 + 9 + 2 + 4]


@pytest.mark.parametrize("name", ["1f1b", "zb-v"])
def test_what_is_said_of_climbs_is_what_cuts_say_of_them_and_a_descent_ends_at_the_least(name):
    """Layer by layer from a split with all layers at one end, as many steps as it takes."""
    layers = [1.0, 0.5, 2.0, 1.5, 1.0, 0.25, 3.0]
    problem = problem_of(
        make(name, 2 if name == "zb-v" else 4, 2 if name == "zb-v" else 1), LayerTimes(layers), 7
    )
    state = SplitSearch(problem, None, lambda *_: None, math.inf)
    state.cuts = list(problem.work_cuts)
    rates, constants = (
        np.stack([cut.rate for cut in state.cuts]),
        np.array([cut.constant for cut in state.cuts]),
    )

    def said(ends):
        return np.max([problem.bound_by(cut, ends) for cut in state.cuts], axis=0)

    for first in ([0, 0, 0], [7, 7, 7], [2, 3, 7]):
        ends = np.array(first, np.int16)
        near = climbs_from(problem, ends)
        assert search._cuts_of_climbs(problem, ends, rates, constants) == pytest.approx(said(near))
        last = _least_near(state, ends)
        assert said(last[:, None])[0] <= said(climbs_from(problem, last)).min() * (1 + 1e-9)
        assert said(last[:, None])[0] < said(ends[:, None])[0]


def test_so_many_splits_are_listed_at_once_as_fit_and_one_at_least(monkeypatch):
    problem = problem_of(make("1f1b", 4, 1), LayerTimes(1.0), 9)
    for entries, batch in ((12, 3), (15, 3), (16, 4), (3, 1)):
        monkeypatch.setattr(search, "BATCH", entries)
        assert search._batch(problem) == batch


@pytest.mark.parametrize(
    ("value", "step"),
    [(0.25, 0.05), (1 / 3, 1 / 3), (7.0, 1.0), (3e8 * (1 + 2**-51), 1.0), (3e-4, 1e-4)],
)
def test_a_step_divides_all_values_but_for_their_own_rounding(value, step):
    """Of 1, 1/2, 1/3, 1/6, a tenth of these and so on, the first."""
    found = _find_step(np.array([value, 1.0]))
    assert found is not None
    assert found == pytest.approx(step)


def test_the_busiest_device_works_beside_one_way_there_and_back():
    """Six layers of 3 on two devices, eight microbatches: device 0 has its work, device 1 one
    microbatch's before.
    """
    problem = problem_of(make("1f1b", 2, 1, 8), LayerTimes(1.0, b_over_f=2.0), 6)
    splits = [max(8 * 3 * first, 8 * 3 * (6 - first) + 3 * first) for first in range(7)]
    assert bound_busiest(problem) == min(splits) == 8 * 3 * 3 + 3 * 3


@pytest.mark.parametrize(
    ("name", "devices", "chunks"), [("1f1b", 3, 1), ("zb-v", 2, 2), ("interleaved", 2, 2)]
)
def test_no_message_between_stages_of_a_device_counts(name, devices, chunks):
    """Cuts of any order are below what a split takes where only such messages would take long."""
    schedule = make(name, devices, chunks)
    comm = np.where(np.eye(devices, dtype=bool), 1000.0, 0.5)
    problem = problem_of(schedule, LayerTimes(1.0), 6)
    problem = replace(
        problem, base=replace(problem.base, comm=comm), rate=replace(problem.rate, comm=comm)
    )
    ends = list_ends(6, schedule.n_stages, 0)
    bounds = np.max([problem.bound_by(cut, ends) for cut in cuts_of_any_order(problem)], axis=0)
    assert (bounds <= problem.makespans(ends) * (1 + 1e-9)).all()


def test_the_busiest_device_bounds_one_stage_on_each_alone():
    assert bound_busiest(problem_of(make("zb-v", 2, 2), LayerTimes(1.0), 6)) == 0
    assert bound_busiest(problem_of(make("1f1b", 4, 1), LayerTimes(1.0), 6)) > 0


@pytest.mark.parametrize("cap", [20.0, 12.0, 9.0])
def test_a_descent_comes_below_the_cap_where_a_split_does(cap):
    """From all layers at one end; below it, what cuts say counts, and of what is equal the most
    even.
    """
    problem = replace(problem_of(make("1f1b", 4, 1, 8), LayerTimes(1.0), 8), cap=cap)
    state = SplitSearch(problem, None, lambda *_: None, math.inf)
    state.cuts = list(problem.work_cuts)
    every = list_ends(8, 4, 0)
    able = problem.peaks(every).min() <= cap
    for first in ([0, 0, 0], [8, 8, 8]):
        last = _least_near(state, np.array(first, np.int16))
        held, near = problem.peaks(last[:, None])[0], climbs_from(problem, last)
        assert (held <= cap) == able
        assert max(held - cap, 0) <= np.maximum(problem.peaks(near) - cap, 0).min()


def test_the_best_of_several_starts_is_improved(monkeypatch):
    problem, climbed = problem_of(make("1f1b", 3, 1), LayerTimes(1.0), 6), list[tuple[int, ...]]()
    monkeypatch.setattr(
        planned_search, "_climb", lambda problem, take, start, until: climbed.append(start)
    )
    times: dict[tuple[int, ...], float] = {(4, 1, 1): 300.0, (2, 2, 2): 100.0, (1, 4, 1): 200.0}
    reports = list[float]()
    found = partition_planned(
        problem,
        lambda split: times.get(split, 400.0),
        lambda split: problem.costs_at(np.array(split, float)),
        list(times),
        report=lambda best, bound, timed: reports.append(best),
    )
    assert climbed == [(2, 2, 2)]
    assert reports[:3] == [300, 100, 100]
    assert found is not None
    assert found.best == ((2, 2, 2), 100.0)
