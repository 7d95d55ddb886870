"""The best split where the order depends on the costs: each split is planned anew, and bounded for any order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ppsim.core.costs import Costs
from ppsim.search.bounds import bound_schedule
from ppsim.search.partition import MOST_LISTED, ROUNDING, RUNNER_UPS, Partition, climbs_from
from ppsim.search.split_search import Report, Split, rank_splits
from ppsim.search.splits import SplitProblem, layers_in, list_ends


def partition_planned(
    problem: SplitProblem,
    time_split: Callable[[Split], float],
    price: Callable[[Split], Costs],
    starts: Sequence[Split],
    *,
    time_limit: float = 60.0,
    report: Report = lambda best, bound, timed: None,
) -> Partition | None:
    """Find the split with the least makespan, each with the order planned for it.

    Up to a million splits are taken in the order of what the busiest device must compute, and planned unless a lower
    bound for any order leaves no gain; more are improved from the best of ``starts`` layer by layer.

    Args:
        problem: what to split, with the queues of any plan; its cap does not count.
        time_split: plans and times a split; infinity where it does not fit.
        price: makes the costs of a split.
        starts: splits to start from.
        time_limit: seconds after which the best so far is returned.
        report: called with the best makespan so far, the bound and the number of splits timed.

    Returns:
        The best split, after Ctrl-C too; None where no split was found that fits.
    """
    until, found = time.monotonic() + time_limit, dict[Split, float]()
    bound, complete = 0.0, False

    def take(split: Split) -> float:
        if split not in found:
            found[split] = time_split(split)
            report(min(found.values()), bound, len(found))
        return found[split]

    try:
        _climb(problem, take, min(starts, key=take), until)
        for split, work in _in_order(problem):
            best = min(found.values())
            bound = min(work, best)
            if work >= best * (1 - ROUNDING):
                complete = True
                break
            if time.monotonic() > until:
                break
            if bound_schedule(problem.schedule, price(split)).makespan < best * (1 - ROUNDING):
                take(split)
        else:
            complete = problem.n_splits <= MOST_LISTED
    except KeyboardInterrupt:
        if not found:
            raise
    fitting = [(split, makespan) for split, makespan in found.items() if np.isfinite(makespan)]
    if not fitting:
        return None
    least, *others = rank_splits(problem, fitting)[: 1 + RUNNER_UPS]
    status, bound = ("optimal", least[1]) if complete else ("feasible", bound)
    return Partition(least, tuple(others), len(found) == problem.n_splits, status, bound, len(found))


def _climb(problem: SplitProblem, take: Callable[[Split], float], start: Split, until: float) -> None:
    """Move one layer at a time as long as that is faster."""
    here = start
    while time.monotonic() < until:
        there, ends = here, np.cumsum(here[:-1]).astype(np.int16)
        for split in (layers_in(near, problem.n_layers) for near in climbs_from(problem, ends).T):
            if time.monotonic() > until:
                return
            if take(split) < take(there) * (1 - ROUNDING):
                there = split
                break
        if there == here:
            return
        here = there


def _in_order(problem: SplitProblem) -> Iterator[tuple[Split, float]]:
    """Yield all splits with what their busiest device must compute, the least first; none where they are too many."""
    if problem.n_splits > MOST_LISTED:
        return
    ends = list_ends(problem.n_layers, problem.schedule.n_stages, problem.least)
    least = np.zeros(ends.shape[1])
    for cut in problem.work_cuts:
        np.maximum(least, problem.bound_by(cut, ends), out=least)
    for split in np.argsort(least, kind="stable").tolist():
        yield layers_in(ends[:, split], problem.n_layers), float(least[split])
