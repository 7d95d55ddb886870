"""The master problem of a partition: the split with the least bound by all cuts, by CP-SAT.

CP-SAT (of OR-tools) counts in integers. Times that are multiples of a common step, such as
decimals, are counted in it. Others are rounded down to fine steps, and the largest rounding error
is subtracted, so that bounds are valid for the given times. The error is less than a millionth, the
tolerance to which a split is proved.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from ppsim.base.interruptible import run_interruptibly
from ppsim.search.splits.split_search import Split, SplitSearch
from ppsim.search.splits.splits import Cut, Floats, SplitProblem

# Steps of the sum of all weights (unless layers are equal), steps of the largest rate, and the
# largest sum allowed.
WEIGHT_STEPS, RATE_STEPS, MOST = 1 << 28, 1 << 28, 1 << 60
MOST_DIGITS = 6  # decimal places of times that are exact
TOLERANCE = 1e-6
LEAST_S = 0.05
MORE = 3  # spare cuts added for each split of the master
ALONE = 10.0  # CP-SAT's units of work, about a second each


def solve_by_cuts(search: SplitSearch, spare: list[Cut]) -> None:
    """Solve the master problem, time its split, add its cut; repeat until the bound is attained.

    ``spare`` cuts that bound the master's split by more than the master are added, the largest
    first. Without OR-tools the search is left as it is.
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        return
    refused: list[Split] = []
    while (left := search.deadline - time.monotonic()) > LEAST_S:
        found = search.best(1)
        if found and search.bound >= found[0][1] * (1 - TOLERANCE):
            return
        answer = _solve_master(cp_model, search, refused, left)
        if answer is None:
            return
        split, bound = answer
        search.bound = max(search.bound, bound)
        ends = np.cumsum(split[:-1]).astype(np.int16)
        search.evaluate(ends)
        weights = search.problem.weigh(ends[:, None])[:, 0]
        spare.sort(key=lambda cut: float(cut.rate @ weights) + cut.constant)
        for _ in range(MORE):
            if spare and spare[-1].rate @ weights + spare[-1].constant > bound:
                search.cuts.append(spare.pop())
        if not search.fits(split):
            refused.append(split)
        search.report_progress()


def list_by_cuts(search: SplitSearch) -> Iterator[tuple[Split, float]]:
    """Yield splits by rising bound, each with a bound on all that follow; none without OR-tools.

    Finding one takes at most a quarter of the search's time.
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        return
    yielded, quarter = list[Split](), (search.deadline - time.monotonic()) / 4
    while (left := search.deadline - time.monotonic()) > LEAST_S:
        answer = _solve_master(cp_model, search, yielded, min(left, quarter))
        if answer is None:
            return
        yielded.append(answer[0])
        yield answer


def _solve_master(
    cp_model: Any, search: SplitSearch, refused: list[Split], left: float
) -> tuple[Split, float] | None:
    """Return the split with the least bound by all cuts, and that bound; None if time runs out.

    It is none of the ``refused`` splits.
    """
    problem, found = search.problem, search.best(1)
    S, N = problem.schedule.n_stages, problem.n_layers
    model = cp_model.CpModel()
    layers = [model.new_int_var(problem.least_layers, N, f"n{stage}") for stage in range(S)]
    model.add(sum(layers) == N)
    weights, unit, slack = _weights(model, problem, layers)
    if np.isfinite(problem.cap):
        _limit_states(model, problem, layers)
    for split in refused:
        same = [model.new_bool_var("") for _ in layers]
        for variable, count, equal in zip(layers, split, same, strict=True):
            model.add(variable != count).only_enforce_if(~equal)
        model.add_bool_or([~equal for equal in same])
    rates, constants = (
        np.stack([cut.rate * unit for cut in search.cuts]),
        np.array([c.constant for c in search.cuts]),
    )
    exact = _find_step(np.append(rates, constants))
    step, whole = (
        (exact, np.rint) if exact else (max(float(rates.max()), 1e-300) / RATE_STEPS, np.floor)
    )
    most = float((rates.max(axis=1) * (problem.first_weights[-1] / unit) + constants).max()) / step
    if most > MOST:
        return None
    longest = model.new_int_var(
        int(search.bound / step), int((found[0][1] / step if found else most) + 1), "makespan"
    )
    steps = [whole(values / step).astype(np.int64) for values in (rates, constants)]
    for rate, constant in zip(steps[0], steps[1].tolist(), strict=True):
        less = slack * int(rate.sum())
        model.add(
            longest
            >= sum(int(r) * w for r, w in zip(rate, weights, strict=True) if r) + constant - less
        )
    model.minimize(longest)
    for variable, count in zip(layers, found[0][0] if found else (), strict=False):
        model.add_hint(variable, count)
    solver, until = cp_model.CpSolver(), time.monotonic() + left
    # One worker is deterministic; all cores run only if it does not prove the split soon.
    status = _run(solver, model, left, 1, ALONE)
    if (
        status not in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
        and (left := until - time.monotonic()) > LEAST_S
    ):
        status = _run(solver, model, left, 0, np.inf)
    if status == cp_model.INFEASIBLE and found:
        return found[0]
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    bound = solver.best_objective_bound * step
    return tuple(int(solver.value(variable)) for variable in layers), float(bound)


def _run(solver: Any, model: Any, left: float, workers: int, units: float) -> Any:
    """Run the solver for ``left`` seconds and ``units`` of work at most; return its status.

    ``workers`` is the number of threads, 0 for all cores.
    """
    solver.parameters.max_time_in_seconds, solver.parameters.catch_sigint_signal = left, False
    solver.parameters.num_workers, solver.parameters.max_deterministic_time = workers, units
    return run_interruptibly(lambda: solver.solve(model), solver.stop_search)


def _find_step(values: Floats) -> float | None:
    """Return a step of which all values are multiples up to rounding; None if it is too fine."""
    for power in range(MOST_DIGITS):
        for part in (1, 2, 3, 6):
            steps = values * (part * 10**power)
            if (np.abs(steps - np.rint(steps)) <= 1e-9 * np.maximum(steps, 1)).all():
                return 1 / (part * 10**power)
    return None


def _limit_states(model: Any, problem: SplitProblem, layers: list[Any]) -> None:
    """Limit the memory of every state of a device to the cap."""
    amounts = dict[tuple[int, int], Any]()
    for part, stage in np.argwhere(problem.held.any(axis=0)).tolist():
        if problem.sizes is None:
            amounts[part, stage] = layers[stage]
            continue
        table = problem.sizes[part][stage].tolist()
        amounts[part, stage] = amount = model.new_int_var(
            min(table), max(table), f"h{part}_{stage}"
        )
        model.add_element(layers[stage], table, amount)
    for state in problem.held:
        held = (
            int(state[part, stage]) * amounts[part, stage]
            for part, stage in np.argwhere(state).tolist()
        )
        model.add(sum(held) <= int(problem.cap))


def _weights(model: Any, problem: SplitProblem, layers: list[Any]) -> tuple[list[Any], float, int]:
    """Return each stage's weight in steps, the weight of a step, and its rounding error."""
    S, N = problem.schedule.n_stages, problem.n_layers
    if np.ptp(problem.weights) == 0:
        return layers, max(float(problem.weights[0]), 1e-300), 0
    exact = _find_step(problem.first_weights)
    step = exact or float(problem.first_weights[-1]) / WEIGHT_STEPS
    steps = (np.rint if exact else np.floor)(problem.first_weights / step).astype(np.int64)
    until: list[Any] = [0]
    for stage in range(S - 1):
        end = model.new_int_var(0, N, f"e{stage}")
        model.add(end == sum(layers[: stage + 1]))
        at = model.new_int_var(0, int(steps[-1]), f"w{stage}")
        model.add_element(end, steps.tolist(), at)
        until.append(at)
    until.append(int(steps[-1]))
    return [after - before for before, after in pairwise(until)], step, 0 if exact else 1
