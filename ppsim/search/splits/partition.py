"""The best split of layers over the stages of a schedule, with a proof or a bound.

If there are up to a million splits, all are bounded by cuts (:mod:`ppsim.search.splits.splits`) and
simulated in the order of their bounds, until none can be better. Otherwise an even split is
improved layer by layer, guided by the cuts. Then OR-tools' CP-SAT, if installed, finds the split
with the least bound by all cuts, until that bound reaches the best makespan.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ppsim.base.deadline import TimeOver, interrupt_at
from ppsim.search.bounds.bounds import limit_bound
from ppsim.search.splits.partition_solver import solve_by_cuts
from ppsim.search.splits.split_search import Report, Split, SplitSearch
from ppsim.search.splits.splits import (
    LARGE,
    Cut,
    Ends,
    Floats,
    SplitProblem,
    bound_busiest,
    layers_in,
    list_ends,
)

MOST_LISTED = 1_000_000
ROUNDING, TOLERANCE = 1e-9, 1e-6  # relative, of equal makespans; of the solver's bounds
# Splits timed at once, at first and at most; cuts added after each batch.
FEWEST, MOST, CUTS = 64, 4096, 4
RUNNER_UPS = 5
# seconds past the time limit until a search is interrupted; until the first split has been timed
GRACE_S, FIRST_S = 0.5, 2.0
MOST_NEAR = 10_000_000  # ops of all splits next to the best, up to which they are timed
BATCH = 1 << 24  # numbers of layers in the splits listed at once
DUAL_STEPS = 40  # steps that adjust the weights of cuts
STALE = 30  # splits timed without a gain, after which a descent ends


@dataclass(frozen=True)
class Partition:
    """The best split found."""

    best: tuple[Split, float]  # layers of each stage, and the makespan
    runner_ups: tuple[tuple[Split, float], ...]  # the next best splits found
    ranked: bool  # whether no other split is better than the runner-ups
    status: str  # ``optimal`` if no split is better, else ``feasible``
    bound: float  # a lower bound on the makespan of all splits
    simulated: int  # the number of simulated splits


def partition(
    problem: SplitProblem,  # the model and the schedule
    *,
    # a further condition on splits, in addition to the problem's cap; called for good splits only
    accepts: Callable[[Split], bool] | None = None,
    time_limit: float = 60.0,  # seconds after which the best so far is returned
    # called with the best makespan so far, the bound and the number of splits timed
    report: Report = lambda best, bound, timed: None,
) -> Partition | None:
    """Return the split with the least makespan.

    Returns:
        The best split found, also after Ctrl-C; None if no allowed split was found.

    Raises:
        TimeOver: the time ended before any split was timed.
    """
    search = SplitSearch(problem, accepts, report, time.monotonic() + time_limit)
    if not problem.n_splits:
        return None
    try:
        with interrupt_at(search.deadline + FIRST_S):
            search.evaluate(next(_starts(problem)))
            search.report_progress()
        with interrupt_at(search.deadline + GRACE_S):
            if problem.n_splits <= MOST_LISTED:
                _list_all(search)
            else:
                _improve(search)
    except (KeyboardInterrupt, TimeOver):
        if not search.best(1):
            raise
    found = search.best(1 + RUNNER_UPS)
    if not found:
        return None
    least = found[0][1]
    if problem.n_splits <= MOST_LISTED:  # a bound on the remaining splits, which may be slower
        search.bound = min(search.bound, least)
    limited = limit_bound(search.bound, least, TOLERANCE)
    proved = limited >= least * (1 - TOLERANCE)
    bound = least if proved else limited
    return Partition(
        found[0],
        tuple(found[1:]),
        search.complete,
        "optimal" if proved else "feasible",
        bound,
        len(search.makespans),
    )


def _list_all(search: SplitSearch) -> None:
    """Time the splits in the order of their bounds, even ones first, until none can be better."""
    problem = search.problem
    ends = list_ends(problem.n_layers, problem.schedule.n_stages, problem.least_layers)
    if np.isfinite(problem.cap):
        ends = ends[:, problem.peaks(ends) <= problem.cap]
    least, done = np.zeros(ends.shape[1]), np.zeros(ends.shape[1], np.bool_)
    most = 1 if len(problem.schedule) > LARGE else MOST
    tilt, size = _unevenness(problem, ends), min(FEWEST, most)
    while not (search.complete or search.is_over):
        left = np.flatnonzero(~done)
        order = least[left] + tilt[left]
        batch = left[np.argpartition(order, size)[:size]] if len(left) > size else left
        least[batch] = search.time_all(ends[:, batch])
        done[batch] = True
        for split in dict.fromkeys(
            [*batch[np.argsort(least[batch])][: CUTS // 2], *batch[: CUTS // 2]]
        ):
            np.maximum(least, problem.bound_by(problem.cut_at(ends[:, split]), ends), out=least)
        search.bound = float(least.min(initial=np.inf, where=~done))
        enough = 1 + RUNNER_UPS
        if done.all() or len(search.best(enough, search.bound * (1 + ROUNDING))) == enough:
            search.complete = True
        size = min(2 * size, most)
        search.report_progress()


def _unevenness(problem: SplitProblem, ends: Ends) -> Floats:
    """Return negligible numbers that rank even splits first, shape (splits,)."""
    until, total = problem.first_weights, np.zeros(ends.shape[1])
    before: NDArray[np.float64] | float = 0.0
    for end in [*ends, np.full(ends.shape[1], problem.n_layers)]:
        total += (until[end] - before) ** 2
        before = until[end]
    return total * (1e-12 / max(until[-1], 1e-300))


def _improve(search: SplitSearch) -> None:
    """Improve an even split layer by layer, then bound all splits by cuts and by the solver."""
    problem = search.problem
    search.cuts = list(problem.work_cuts)
    search.bound = problem.best_of(mean_cut(search.cuts, np.ones(len(search.cuts))))[0]
    search.bound = max(search.bound, bound_busiest(problem))
    spare = bound_by_weights(search, DUAL_STEPS // 4)
    for ends in _starts(problem):
        _descend(search, ends)
        if search.is_over:
            return
    _time_near_best(search)
    spare += bound_by_weights(search, DUAL_STEPS)
    search.report_progress()
    solve_by_cuts(search, spare)


def _starts(problem: SplitProblem) -> Iterator[Ends]:
    """Yield splits to start from: even in layers, and even in time with stages' other content."""
    S, N = problem.schedule.n_stages, problem.n_layers
    yield _keep_least_layers(problem, np.round(np.arange(1, S) * N / S).astype(np.int64))
    work = np.maximum(problem.rate.time[:2].sum(axis=0), 1e-300)
    extra = problem.base.time[:2].sum(axis=0) / work
    share = (problem.first_weights[-1] + extra.sum()) / S
    wanted = np.cumsum(np.maximum(share - extra, 0.0))[:-1]
    yield _keep_least_layers(
        problem,
        np.searchsorted(
            problem.first_weights,
            wanted * min(1.0, problem.first_weights[-1] / max(wanted.max(), 1)),
        ),
    )


def _keep_least_layers(problem: SplitProblem, ends: NDArray[np.int64]) -> Ends:
    """Return ends moved so that each stage has at least the fewest layers allowed."""
    S, N, least = problem.schedule.n_stages, problem.n_layers, problem.least_layers
    stage = np.arange(1, S)
    ends = np.maximum.accumulate(np.maximum(ends - least * stage, 0)) + least * stage
    return np.minimum(ends, N - least * (S - stage)).astype(np.int16)


def _descend(search: SplitSearch, ends: Ends) -> None:
    """Move one layer at a time to the split with the least bound by cuts, time it and add its cut.

    Repeat from there. The descent ends at a split that has been timed already, so that no move of
    one layer is faster, or after ``STALE`` splits without a gain.
    """
    timed, best, stale = set[bytes](), np.inf, 0
    while not search.is_over and stale < STALE:
        ends = _least_near(search, ends)
        if ends.tobytes() in timed:
            return
        timed.add(ends.tobytes())
        makespan = search.evaluate(ends)
        stale = 0 if makespan < best * (1 - ROUNDING) else stale + 1
        best = min(best, makespan)
        search.report_progress()


def _least_near(search: SplitSearch, ends: Ends) -> Ends:
    """Move one layer at a time as long as it lowers the excess over the cap, or else the bound.

    Return the ends of the last split.
    """
    problem, here = search.problem, (np.inf, np.inf)
    rates = np.stack([cut.rate for cut in search.cuts])
    constants = np.array([cut.constant for cut in search.cuts])
    while not search.is_over:
        bounds = _cuts_of_climbs(problem, ends, rates, constants)
        over = _excess_of_climbs(problem, ends, len(bounds))
        good = np.flatnonzero(over == over.min())
        good = good[bounds[good] <= bounds[good].min() * (1 + ROUNDING)][: _batch(problem)]
        near = climbs_from(problem, ends, good)
        most_even = int(_unevenness(problem, near).argmin())
        best = int(good[most_even])
        there = (float(over[best]), float(bounds[best]))
        if there[0] >= here[0] and there[1] >= here[1] * (1 - ROUNDING):
            return ends
        here, ends = there, near[:, most_even]
    return ends


def _cuts_of_climbs(problem: SplitProblem, ends: Ends, rates: Floats, constants: Floats) -> Floats:
    """Return the bound by all cuts of each split of :func:`climbs_from`.

    It is computed from the changes when a layer moves over each end.
    """
    layers = np.array(layers_in(ends, problem.n_layers))
    now = rates @ problem.weigh(ends[:, None])[:, 0] + constants
    until, gains = problem.first_weights, rates[:, 1:] - rates[:, :-1]
    down = gains * (until[ends] - until[np.maximum(ends - 1, 0)])
    up = -gains * (until[np.minimum(ends + 1, problem.n_layers)] - until[ends])
    down, up = (np.cumsum(np.insert(x, 0, 0, axis=1), axis=1) for x in (down, up))
    source, target = (
        np.flatnonzero(layers > problem.least_layers)[:, None],
        np.arange(len(layers))[None],
    )
    bounds = np.full((len(source), len(layers)), -np.inf)
    for before, later, sooner in zip(now, down, up, strict=True):
        moves = np.where(
            source <= target, later[target] - later[source], sooner[source] - sooner[target]
        )
        np.maximum(bounds, before + moves, out=bounds)
    return bounds.ravel()


def _excess_of_climbs(problem: SplitProblem, ends: Ends, count: int) -> Floats:
    """Return by how much each split of :func:`climbs_from` exceeds the memory cap.

    Splits are listed in batches to limit ppsim's own memory.
    """
    if not np.isfinite(problem.cap):
        return np.zeros(count)
    batches = np.split(np.arange(count), np.arange(0, count, _batch(problem))[1:])
    return np.maximum(
        np.concatenate([problem.peaks(climbs_from(problem, ends, b)) for b in batches])
        - problem.cap,
        0,
    )


def _batch(problem: SplitProblem) -> int:
    """Return the number of splits in a batch."""
    return max(1, BATCH // problem.schedule.n_stages)


def _time_near_best(search: SplitSearch) -> None:
    """Time the splits that differ from the best by one layer, to find the runner-ups."""
    problem, found = search.problem, search.best(1)
    if not found or len(problem.schedule) * problem.schedule.n_stages**2 > MOST_NEAR:
        return
    near = climbs_from(problem, np.cumsum(found[0][0][:-1]).astype(np.int16))
    search.time_all(
        near[:, problem.peaks(near) <= problem.cap] if np.isfinite(problem.cap) else near
    )


def climbs_from(problem: SplitProblem, ends: Ends, which: NDArray[np.int64] | None = None) -> Ends:
    """Return the splits that move one layer between two stages, (stages - 1, sources x stages).

    Stages in between keep their number of layers. A move to the same stage gives the same split.
    ``which`` selects columns, by default all.
    """
    layers = np.array(layers_in(ends, problem.n_layers))
    sources = np.flatnonzero(layers > problem.least_layers)
    which = np.arange(sources.size * layers.size) if which is None else which
    source, target, end = (
        sources[which // layers.size],
        which % layers.size,
        np.arange(len(ends))[:, None],
    )
    near: Ends = (
        ends[:, None]
        + ((target <= end) & (end < source))
        - ((source <= end) & (end < target)).astype(np.int16)
    )
    return near


def bound_by_weights(search: SplitSearch, steps: int, *, adds: bool = True) -> list[Cut]:
    """Raise the bound with weighted means of cuts, and return the cuts that were added.

    Each mean is minimized over all splits; then the cuts that are largest there gain weight. The
    cuts returned belong to bad splits; many of them would slow the solver down.
    """
    problem, cuts = search.problem, list(search.cuts)
    weight = np.ones(len(cuts))
    for _ in range(steps):
        if search.is_over:
            break
        least, ends = problem.best_of(mean_cut(cuts, weight))
        search.bound = max(search.bound, least)
        if adds:
            cuts.append(problem.cut_at(ends))
            weight = np.append(weight, weight.mean())
        weights = problem.weigh(ends[:, None])[:, 0]
        values = np.array([cut.rate @ weights + cut.constant for cut in cuts])
        weight = weight * np.exp(2 * (values - values.max()) / max(values.max(), 1e-300))
        weight = np.maximum(weight / weight.sum(), 1e-12)
    return cuts[len(search.cuts) :]


def mean_cut(cuts: Sequence[Cut], weight: Floats) -> Cut:
    """Return the weighted mean of cuts, which is a cut as well."""
    share = weight / weight.sum()
    rates, constants = (
        np.stack([cut.rate for cut in cuts]),
        np.array([cut.constant for cut in cuts]),
    )
    return Cut(share @ rates, float(share @ constants))
