"""The master problem of a partition: the split that all cuts together say least of, by OR-tools' CP-SAT.

CP-SAT counts in integers: weights and rates are rounded down to fine steps, and what rounding may add is subtracted, so
that what is proved holds for the times as given. Rounding takes less than a millionth, to which a split is proved.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import numpy as np

from ppsim.search.split_search import Split, SplitSearch
from ppsim.search.splits import SplitProblem

# Steps of all weights together (of equal ones, the layers themselves), of the largest rate; the largest sum allowed.
WEIGHT_STEPS, RATE_STEPS, MOST = 1 << 28, 1 << 28, 1 << 60
TOLERANCE = 1e-6
LEAST_S = 0.05
ALONE = 1.0  # CP-SAT's units of work, about a second each


def solve_by_cuts(search: SplitSearch) -> None:
    """Solve the master, time its split, add the cut of it, and again, until the bound meets the best split.

    Without OR-tools nothing is done: the bound stays as it was.
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        return
    refused: list[Split] = []
    while (left := search.until - time.monotonic()) > LEAST_S:
        found = search.best(1)
        if found and search.bound >= found[0][1] * (1 - TOLERANCE):
            return
        answer = _solve_master(cp_model, search, refused, left)
        if answer is None:
            return
        split, bound = answer
        search.bound = max(search.bound, bound)
        ends = np.cumsum(split[:-1]).astype(np.int16)
        search.time_all(ends[:, None])
        search.cuts.append(search.problem.cut_at(ends))
        if not search.fits(split):
            refused.append(split)
        search.tell()


def _solve_master(cp_model: Any, search: SplitSearch, refused: list[Split], left: float) -> tuple[Split, float] | None:
    """Find the split with the least of the cuts' maxima, and that maximum; None without an answer in time."""
    problem = search.problem
    S, N = problem.schedule.n_stages, problem.n_layers
    model = cp_model.CpModel()
    layers = [model.new_int_var(problem.least, N, f"n{stage}") for stage in range(S)]
    model.add(sum(layers) == N)
    weights, steps = _weights(model, problem, layers)
    if np.isfinite(problem.cap):
        _hold(model, problem, layers)
    for split in refused:
        same = [model.new_bool_var("") for _ in layers]
        for variable, count, equal in zip(layers, split, same, strict=True):
            model.add(variable != count).only_enforce_if(~equal)
        model.add_bool_or([~equal for equal in same])
    unit = max(float(problem.until[-1]), 1e-300) / steps
    scale = max(float(np.max(cut.rate)) for cut in search.cuts) or 1.0
    rates = [np.floor(cut.rate / scale * RATE_STEPS).astype(np.int64) for cut in search.cuts]
    step = unit * scale / RATE_STEPS
    most = max(steps * int(rate.max()) + cut.constant / step for cut, rate in zip(search.cuts, rates, strict=True))
    if most > MOST:
        return None
    longest = model.new_int_var(0, int(most) + 1, "makespan")
    for cut, rate in zip(search.cuts, rates, strict=True):
        slack = 0 if steps == N else int(rate.sum())  # a stage's weight in steps may be one too many
        constant = int(np.floor(cut.constant / step)) - slack
        model.add(longest >= sum(int(r) * w for r, w in zip(rate, weights, strict=True) if r) + constant)
    model.minimize(longest)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = left
    # One worker gives the same split each time; all cores, only what it cannot prove soon.
    solver.parameters.num_workers, solver.parameters.max_deterministic_time = 1, ALONE
    status = solver.solve(model)
    if status != cp_model.OPTIMAL and (left := search.until - time.monotonic()) > LEAST_S:
        solver.parameters.max_time_in_seconds = left
        solver.parameters.num_workers, solver.parameters.max_deterministic_time = 0, np.inf
        status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    bound = solver.best_objective_bound * step
    return tuple(int(solver.value(variable)) for variable in layers), float(bound)


def _hold(model: Any, problem: SplitProblem, layers: list[Any]) -> None:
    """Hold every state of a device to the cap."""
    amounts = dict[tuple[int, int], Any]()
    for part, stage in np.argwhere(problem.held.any(axis=0)).tolist():
        if problem.sizes is None:
            amounts[part, stage] = layers[stage]
            continue
        table = problem.sizes[part][stage].tolist()
        amounts[part, stage] = amount = model.new_int_var(min(table), max(table), f"h{part}_{stage}")
        model.add_element(layers[stage], table, amount)
    for state in problem.held:
        held = (int(state[part, stage]) * amounts[part, stage] for part, stage in np.argwhere(state).tolist())
        model.add(sum(held) <= int(problem.cap))


def _weights(model: Any, problem: SplitProblem, layers: list[Any]) -> tuple[list[Any], int]:
    """Write the weight of each stage in steps, at most one more than it is, and how many steps all layers weigh."""
    S, N = problem.schedule.n_stages, problem.n_layers
    if np.ptp(problem.weights) == 0:
        return layers, N
    steps = np.floor(problem.until / float(problem.until[-1]) * WEIGHT_STEPS).astype(np.int64)
    until: list[Any] = [0]
    for stage in range(S - 1):
        end = model.new_int_var(0, N, f"e{stage}")
        model.add(end == sum(layers[: stage + 1]))
        at = model.new_int_var(0, WEIGHT_STEPS, f"w{stage}")
        model.add_element(end, steps.tolist(), at)
        until.append(at)
    until.append(int(steps[-1]))
    return [after - before for before, after in pairwise(until)], WEIGHT_STEPS
