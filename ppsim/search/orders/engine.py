"""Search for the best schedule of a problem: known schedules, heuristics, then local search."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from time import monotonic

import numpy as np

from ppsim.base.deadline import TimeOver, end_by, interrupt_at
from ppsim.base.workers import Map, count_cores
from ppsim.core.ops import Kind
from ppsim.core.schedule import Schedule
from ppsim.search.orders.improve import Member, cost_of, improve
from ppsim.search.problem import ROUNDING, Problem, Solution, evaluate, fits
from ppsim.search.rules.heuristics import is_linear, is_v, time_table, write_linear, write_v
from ppsim.search.rules.orders import (
    Queues,
    join_backwards,
    read_orders,
    write_one_by_one,
    write_schedule,
)
from ppsim.search.rules.policies import write_policies

Report = Callable[[Solution], None]
GRACE_S = 1.5  # seconds past the time limit until a search that does not check it is interrupted
# number of caps for heuristics: with less memory they sometimes find better schedules
SMALLER_CAPS = 8


def search(
    problem: Problem,
    *,
    seeds: Iterable[Schedule] = (),
    seed: int = 0,
    time_limit: float = 20.0,
    rounds: int | None = None,
    workers: int | None = None,
    run: Map | None = None,
    bound: float = 0.0,
    grace: float = GRACE_S,
    report: Report = lambda best: None,
) -> Solution | None:
    """Return the best schedule found that fits, or None if no schedule fits the caps.

    The search starts from ``seeds`` that fit and from the heuristics' schedules. It ends after
    ``rounds`` of local search (about a second each), at the time limit in seconds, at Ctrl-C, or
    with a schedule that attains the ``bound`` of the objective. The result is reproducible unless
    the time limit or Ctrl-C ends it.

    ``workers`` threads run the walks, by default one per core; ``run`` maps them over other workers
    instead. A step that does not check the time is interrupted ``grace`` seconds past the limit.
    ``report`` is called with each schedule that is better than all before.

    Raises:
        TimeOver: the time ended before any schedule was timed.
    """
    if not problem.is_feasible:
        return None
    began = monotonic()
    enough = max(bound, busiest(problem)) * (1 + ROUNDING)
    best: Solution | None = None
    starts = list[Member]()
    try:
        with end_by(began + time_limit), interrupt_at(began + time_limit + grace):
            for member in collect(problem, seeds, began + time_limit / 2):
                if member.cost < min((other.cost for other in starts), default=np.inf):
                    best = _better(problem, best, member, report)
                starts.append(member)
                if best and best.score(problem.objective)[0] <= enough:
                    return best
            walks = improve(
                problem, starts, seed, workers or count_cores(), began + time_limit, run
            )
            for better in islice(walks, rounds):
                best = best if better is None else _better(problem, best, better, report)
                if best and best.score(problem.objective)[0] <= enough:
                    break
    except (KeyboardInterrupt, TimeOver):
        if best is None:
            raise
    return best


def busiest(problem: Problem) -> float:
    """Return the work of the busiest device, a lower bound on the span."""
    forward, gradient, rest = time_table(problem)
    time = forward + np.minimum(gradient + rest, problem.costs.time[Kind.B])
    return float(np.bincount(problem.device, weights=time).max(initial=0.0) * problem.microbatches)


def collect(
    problem: Problem, seeds: Iterable[Schedule], deadline: float = np.inf
) -> Iterator[Member]:
    """Yield the queues that a search starts from; at least one fits if the problem is feasible.

    After the deadline, heuristics are not tried for smaller caps, nor further rules.
    """
    for schedule in seeds:
        if fits(problem, schedule):
            yield Member(
                read_orders(schedule), schedule.name, cost_of(problem, read_orders(schedule))
            )
    for origin, queues in rule_queues(problem, deadline):
        cost = cost_of(problem, queues)
        if cost < np.inf:
            yield Member(queues, origin, cost)


def rule_queues(problem: Problem, deadline: float) -> Iterator[tuple[str, Queues]]:
    """Yield the queues of rules, and those for full backwards if B takes less time than I and W."""
    yield from _candidate_queues(problem, deadline)
    if problem.joins.any():
        time = problem.costs.time.copy()
        time[Kind.I], time[Kind.W] = np.where(
            problem.joins, [time[Kind.B], 0 * time[Kind.B]], time[[Kind.I, Kind.W]]
        )
        full = replace(problem, costs=replace(problem.costs, time=time))
        yield from (
            (origin, join_backwards(problem, queues))
            for origin, queues in _candidate_queues(full, deadline)
        )


def _candidate_queues(problem: Problem, deadline: float) -> Iterator[tuple[str, Queues]]:
    """Yield queues that always fit, queues by rules, and the heuristics', for smaller caps too."""
    yield "one microbatch at a time", write_one_by_one(problem)
    policies = write_policies(problem)
    # even after the deadline, as heuristics can be poor for uneven stages
    yield from islice(policies, 1)
    write = (
        write_linear
        if is_linear(problem.placement)
        else write_v
        if is_v(problem.placement)
        else None
    )
    if write is not None:
        most = np.minimum(problem.caps, problem.least_caps * problem.microbatches)
        for share in np.linspace(1.0, 0.0, SMALLER_CAPS, endpoint=False):
            if share < 1 and monotonic() > deadline:
                break
            caps = problem.least_caps + share * (most - problem.least_caps)
            yield from write(replace(problem, cap=caps.tolist()))
    while monotonic() <= deadline and (found := next(policies, None)):
        yield found


def _better(problem: Problem, best: Solution | None, member: Member, report: Report) -> Solution:
    """Return the better of the best solution so far and some queues; report these if better."""
    found = evaluate(problem, write_schedule(problem, member.queues), member.origin)
    if best is not None and found.score(problem.objective) >= best.score(problem.objective):
        return best
    report(found)
    return found
