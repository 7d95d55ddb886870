"""The best split for schedules whose order depends on costs: each split gets its own order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from ppsim.base.deadline import TimeOver, interrupt_at
from ppsim.core.costs import Costs
from ppsim.core.ops import Kind
from ppsim.search.bounds.bounds import bound_schedule, limit_bound
from ppsim.search.splits.partition import (
    GRACE_S,
    MOST_LISTED,
    ROUNDING,
    RUNNER_UPS,
    TOLERANCE,
    Partition,
    bound_by_weights,
    climbs_from,
    mean_cut,
)
from ppsim.search.splits.partition_solver import list_by_cuts
from ppsim.search.splits.split_search import Report, Split, SplitSearch, rank_splits
from ppsim.search.splits.splits import Cut, SplitProblem, layers_in, list_ends, shortest_ops

MEANS = 40  # steps that raise the bound with means of cuts


def partition_planned(
    problem: SplitProblem,  # with the queues of any order; its cap is ignored
    # orders and times a split; infinity if it does not fit
    time_split: Callable[[Split], float],
    price: Callable[[Split], Costs],  # returns the costs of a split
    starts: Sequence[Split],  # splits to start from
    *,
    time_limit: float = 60.0,  # seconds after which the best so far is returned
    # called with the best makespan so far, the bound and the number of splits timed
    report: Report = lambda best, bound, timed: None,
) -> Partition | None:
    """Return the split with the least makespan, each split in the order made for it.

    The best of ``starts`` is improved layer by layer. Then all splits are visited in the order of
    their devices' work, if there are up to a million; otherwise those that OR-tools' CP-SAT, if
    installed, finds by rising bound. A split is timed unless its lower bound for any order shows
    that it cannot be better.

    Returns:
        The best split found, also after Ctrl-C; None if no split that fits was found.

    Raises:
        TimeOver: the time ended before any split was timed.
    """
    free, listed = replace(problem, cap=np.inf), problem.n_splits <= MOST_LISTED
    search = SplitSearch(
        free, None, report, time.monotonic() + time_limit, cuts=cuts_of_any_order(free)
    )
    found, complete = dict[Split, float](), False

    def take(split: Split) -> float:
        if split not in found:
            found[split] = time_split(split)
            if np.isfinite(found[split]):
                search.makespans[split] = found[split]
            report(min(found.values()), search.bound, len(found))
        return found[split]

    try:
        with interrupt_at(search.deadline + GRACE_S):
            start = min(starts, key=take)
            search.bound = free.best_of(mean_cut(free.work_cuts, np.ones(len(free.work_cuts))))[0]
            bound_by_weights(search, MEANS, adds=False)
            near = _splits_by_cut(free, search.cuts) if listed else list_by_cuts(search)
            first = next(near, None)
            if first:
                search.bound = max(search.bound, first[1])
                start = start if listed else min(start, first[0], key=take)
            _climb(problem, take, start, search.deadline)
            for split, work in chain([first] if first else [], near):
                best = min(found.values())
                search.bound = max(search.bound, min(work, best))
                if work >= best * (1 - (ROUNDING if listed else TOLERANCE)):
                    complete = True
                    break
                if search.is_over:
                    break
                if bound_schedule(problem.schedule, price(split)).makespan < best * (1 - ROUNDING):
                    take(split)
            else:
                complete = listed
    except (KeyboardInterrupt, TimeOver):
        if not found:
            raise
    fitting = [(split, makespan) for split, makespan in found.items() if np.isfinite(makespan)]
    if not fitting:
        return None
    least, *others = rank_splits(problem, fitting)[: 1 + RUNNER_UPS]
    limited = limit_bound(search.bound, least[1], TOLERANCE)
    status, bound = ("optimal", least[1]) if complete else ("feasible", limited)
    return Partition(
        least, tuple(others), len(found) == problem.n_splits, status, bound, len(found)
    )


def _climb(
    problem: SplitProblem, take: Callable[[Split], float], start: Split, until: float
) -> None:
    """Time splits, moving one layer at a time as long as it is faster."""
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


def cuts_of_any_order(problem: SplitProblem) -> list[Cut]:
    """Return cuts that are valid for any order: forwards before a device's first op, then its work.

    If backwards are split, there is a second cut per device: the forwards before, its F and I, and
    then the I on lower stages and the last W.
    """
    schedule, cuts = problem.schedule, problem.work_cuts
    if schedule.placement.n_replicas > 1:
        return cuts
    home, kinds = schedule.placement.devices[0], schedule.kind
    apart = home[1:] != home[:-1]
    latency = np.broadcast_to(np.asarray(problem.base.comm, np.float64), (schedule.n_devices,) * 2)
    forth, back = apart * latency[home[:-1], home[1:]], apart * latency[home[1:], home[:-1]]
    before, after = shortest_ops(problem, Kind.F), shortest_ops(problem, Kind.I)
    last = [times[0] for times in shortest_ops(problem, Kind.W)]
    splits, found = not (kinds == Kind.B).any() and (kinds == Kind.W).any(), list[Cut]()
    for device, cut in enumerate(cuts):
        low = int(np.flatnonzero(home == device)[0])
        head = np.where(np.arange(len(home)) < low, before[1], 0.0)
        constant = before[0][:low].sum() + forth[:low].sum()
        found.append(Cut(cut.rate + head, float(cut.constant + constant)))
        if splits:
            ops = np.flatnonzero(
                (schedule.device == device) & ((kinds == Kind.F) | (kinds == Kind.I))
            )
            rate = np.bincount(schedule.stage[ops], problem.linear[1][ops], len(home)).astype(
                np.float64
            )
            tail = np.where(np.arange(len(home)) < low, after[1], 0.0)
            tail[0] += last[1]
            constant += (
                problem.linear[0][ops].sum() + after[0][:low].sum() + back[:low].sum() + last[0]
            )
            found.append(Cut(rate + head + tail, float(constant)))
    return found


def _splits_by_cut(problem: SplitProblem, cuts: list[Cut]) -> Iterator[tuple[Split, float]]:
    """Yield all splits with their bound by cuts, the smallest bound first."""
    ends = list_ends(problem.n_layers, problem.schedule.n_stages, problem.least_layers)
    least = np.zeros(ends.shape[1])
    for cut in cuts:
        np.maximum(least, problem.bound_by(cut, ends), out=least)
    for split in np.argsort(least, kind="stable").tolist():
        yield layers_in(ends[:, split], problem.n_layers), float(least[split])
