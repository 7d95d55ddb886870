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
    problem: SplitProblem,
    time_split: Callable[[Split], float],
    price: Callable[[Split], Costs],
    starts: Sequence[Split],
    *,
    time_limit: float = 60.0,
    report: Report = lambda best, bound, timed: None,
) -> Partition | None:
    """Return the split with the least makespan, each split in the order made for it.

    The best of ``starts`` is improved layer by layer. Then all splits are visited in the order of
    their devices' work, if there are up to a million; otherwise OR-tools' CP-SAT, if installed,
    lists splits by rising bound. A split is timed unless its lower bound for any order shows that
    it cannot be better.

    Args:
        problem: the schedule, with queues in any order; the cap is ignored.
        time_split: returns the makespan of a split in its best order; infinity if it does not fit.
        price: returns the costs of a split.
        starts: splits to start from.
        time_limit: seconds after which the best split so far is returned.
        report: called with the best makespan so far, the bound and the number of timed splits.

    Returns:
        The best split found, also after Ctrl-C; None if no split that fits was found.

    Raises:
        TimeOver: the time ended before any split was timed.
    """
    free, listed = replace(problem, cap=np.inf), problem.n_splits <= MOST_LISTED
    search = SplitSearch(
        free, None, report, time.monotonic() + time_limit, cuts=cuts_of_any_order(free)
    )
    makespans, complete = dict[Split, float](), False

    def makespan_of(split: Split) -> float:
        if split not in makespans:
            makespans[split] = time_split(split)
            if np.isfinite(makespans[split]):
                search.makespans[split] = makespans[split]
            report(min(makespans.values()), search.bound, len(makespans))
        return makespans[split]

    try:
        with interrupt_at(search.deadline + GRACE_S):
            start = min(starts, key=makespan_of)
            search.bound = free.best_of(mean_cut(free.work_cuts, np.ones(len(free.work_cuts))))[0]
            bound_by_weights(search, MEANS, adds=False)
            by_bound = _splits_by_cut(free, search.cuts) if listed else list_by_cuts(search)
            first = next(by_bound, None)
            if first:
                search.bound = max(search.bound, first[1])
                start = start if listed else min(start, first[0], key=makespan_of)
            _climb(problem, makespan_of, start, search.deadline)
            for split, work in chain([first] if first else [], by_bound):
                best = min(makespans.values())
                search.bound = max(search.bound, min(work, best))
                if work >= best * (1 - (ROUNDING if listed else TOLERANCE)):
                    complete = True
                    break
                if search.is_over:
                    break
                if bound_schedule(problem.schedule, price(split)).makespan < best * (1 - ROUNDING):
                    makespan_of(split)
            else:
                complete = listed
    except (KeyboardInterrupt, TimeOver):
        if not makespans:
            raise
    fitting = [(split, makespan) for split, makespan in makespans.items() if np.isfinite(makespan)]
    if not fitting:
        return None
    least, *others = rank_splits(problem, fitting)[: 1 + RUNNER_UPS]
    limited = limit_bound(search.bound, least[1], TOLERANCE)
    status, bound = ("optimal", least[1]) if complete else ("feasible", limited)
    return Partition(
        least, tuple(others), len(makespans) == problem.n_splits, status, bound, len(makespans)
    )


def _climb(
    problem: SplitProblem, makespan_of: Callable[[Split], float], start: Split, deadline: float
) -> None:
    """Move one layer at a time, as long as that makes the split faster or until the deadline."""
    present = start
    while time.monotonic() < deadline:
        better, ends = present, np.cumsum(present[:-1]).astype(np.int16)
        for neighbour in climbs_from(problem, ends).T:
            split = layers_in(neighbour, problem.n_layers)
            if time.monotonic() > deadline:
                return
            if makespan_of(split) < makespan_of(present) * (1 - ROUNDING):
                better = split
                break
        if better == present:
            return
        present = better


def cuts_of_any_order(problem: SplitProblem) -> list[Cut]:
    """Return cuts that are valid for any order: forwards before a device's first op, then its work.

    If backwards are split, there is a second cut per device: the forwards before, its F and I, and
    then the I on lower stages and the last W.
    """
    schedule, cuts = problem.schedule, problem.work_cuts
    if schedule.placement.n_replicas > 1:
        return cuts
    device_of, kinds = schedule.placement.devices[0], schedule.kind
    crosses = device_of[1:] != device_of[:-1]
    latency = np.broadcast_to(np.asarray(problem.base.comm, np.float64), (schedule.n_devices,) * 2)
    forward_latency = crosses * latency[device_of[:-1], device_of[1:]]
    backward_latency = crosses * latency[device_of[1:], device_of[:-1]]
    # The shortest op of each stage as (constants, times per layer).
    forward, input_backward = shortest_ops(problem, Kind.F), shortest_ops(problem, Kind.I)
    last_w = [times[0] for times in shortest_ops(problem, Kind.W)]
    is_split, result = not (kinds == Kind.B).any() and (kinds == Kind.W).any(), list[Cut]()
    for device, cut in enumerate(cuts):
        lowest = int(np.flatnonzero(device_of == device)[0])
        is_lower = np.arange(len(device_of)) < lowest
        head = np.where(is_lower, forward[1], 0.0)
        constant = forward[0][:lowest].sum() + forward_latency[:lowest].sum()
        result.append(Cut(cut.rate + head, float(cut.constant + constant)))
        if is_split:
            ops = np.flatnonzero(
                (schedule.device == device) & ((kinds == Kind.F) | (kinds == Kind.I))
            )
            rate = np.bincount(schedule.stage[ops], problem.linear[1][ops], len(device_of)).astype(
                np.float64
            )
            tail = np.where(is_lower, input_backward[1], 0.0)
            tail[0] += last_w[1]
            constant += (
                problem.linear[0][ops].sum()
                + input_backward[0][:lowest].sum()
                + backward_latency[:lowest].sum()
                + last_w[0]
            )
            result.append(Cut(rate + head + tail, float(constant)))
    return result


def _splits_by_cut(problem: SplitProblem, cuts: list[Cut]) -> Iterator[tuple[Split, float]]:
    """Yield all splits with their bound by cuts, the smallest bound first."""
    ends = list_ends(problem.n_layers, problem.schedule.n_stages, problem.least_layers)
    least = np.zeros(ends.shape[1])
    for cut in cuts:
        np.maximum(least, problem.bound_by(cut, ends), out=least)
    for split in np.argsort(least, kind="stable").tolist():
        yield layers_in(ends[:, split], problem.n_layers), float(least[split])
