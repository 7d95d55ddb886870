"""Search for the best schedule of a problem of any size: known schedules and heuristics first, then local search."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from ppsim.core.schedule import Schedule
from ppsim.search.heuristics import Queues, is_linear, is_v, write_linear, write_v
from ppsim.search.orders import make_orders, time_orders, write_schedule
from ppsim.search.problem import ROUNDING, Problem, Solution, evaluate, fits

Report = Callable[[Solution], None]


def search(
    problem: Problem,
    *,
    seeds: Iterable[Schedule] = (),
    seed: int = 0,
    time_limit: float = 20.0,
    workers: int | None = None,
    bound: float = 0.0,
    report: Report = lambda best: None,
) -> Solution | None:
    """Search for the best schedule that fits a problem.

    Args:
        problem: what to schedule.
        seeds: schedules to start from besides the heuristics' own; those that do not fit are passed over.
        seed: of the random numbers.
        time_limit: seconds after which the best so far is returned.
        workers: threads; all cores when None.
        bound: a lower bound of the objective; a schedule that attains it ends the search.
        report: called with each schedule that is better than all before.

    Returns:
        The best schedule found, after Ctrl-C too once there is one; None where no schedule fits the caps (see
        :attr:`Problem.least_caps`).
    """
    if not problem.is_feasible:
        return None
    best: Solution | None = None
    try:
        for found in start(problem, seeds):
            if best is None or found.score(problem.objective) < best.score(problem.objective):
                best = found
                report(best)
            if best.score(problem.objective)[0] <= bound * (1 + ROUNDING):
                return best
    except KeyboardInterrupt:
        if best is None:
            raise
    return best


def start(problem: Problem, seeds: Iterable[Schedule]) -> Iterator[Solution]:
    """Evaluate the schedules that a search starts from; at least one fits where the problem is feasible."""
    for schedule in seeds:
        if fits(problem, schedule):
            yield evaluate(problem, schedule, schedule.name)
    for origin, queues in written(problem):
        orders = make_orders(problem, queues)
        if time_orders(orders):
            yield evaluate(problem, write_schedule(problem, orders.code, orders.offsets), origin)


def written(problem: Problem) -> Iterator[tuple[str, Queues]]:
    """Write what the heuristics for a placement find, and a schedule that always fits."""
    if is_linear(problem.placement):
        yield from write_linear(problem)
    if is_v(problem.placement):
        yield from write_v(problem)
    yield "one microbatch at a time", write_one_by_one(problem)


def write_one_by_one(problem: Problem) -> Queues:
    """Write the schedule that finishes a microbatch before it starts the next: the least memory of all."""
    stages = np.arange(problem.n_stages)
    once = np.concatenate([stages, problem.n_stages + stages[::-1], 2 * problem.n_stages + stages])
    device = problem.device[once % problem.n_stages]
    return [np.tile(once[device == d], problem.microbatches) for d in range(problem.n_devices)]
