"""The best schedule of one or several placements: a search, then a proof for small problems."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from ppsim.base.deadline import TimeOver
from ppsim.base.notes import note
from ppsim.base.signals import first_signal
from ppsim.base.workers import Workers
from ppsim.core.ops import STAGE_SHIFT, Kind, pack
from ppsim.core.schedule import NONE, Schedule
from ppsim.errors import MissingDependency
from ppsim.search.bounds.bounds import Bounds, bound_problem, limit_bound
from ppsim.search.orders.engine import GRACE_S, search
from ppsim.search.problem import ROUNDING, Problem, Solution, evaluate, fits

# Ops up to which the constraint solver runs; for more ops it finds no better schedules.
MOST_SOLVED = 1500
# Share of the time for the search if the solver follows, and its largest time in seconds.
SEARCHED, MOST_SEARCHED_S = 0.3, 6.0
# Least time of a search in seconds.
LEAST_S = 0.5
# Seconds that a search may take to find its first order after the time is over.
LATE_S = 2.0
# Seconds per op until a search has timed its first order.
OP_S = 1e-6
# Largest number of caps of a front.
MOST_CAPS = 12

Report = Callable[[Solution, float], None]


@dataclass(frozen=True)
class NamedSolution:
    """A schedule with a name."""

    # with its full backwards and pairs; the origin is the name as users spell it
    solution: Solution
    fits: bool  # whether all devices stay within their caps


@dataclass(frozen=True)
class Outcome:
    """The best schedule found, and its proven bound."""

    problem: Problem  # the problem of the schedule's placement
    solution: Solution  # the schedule with its metrics
    bound: float  # lower bound on the objective, for all placements
    known: tuple[NamedSolution, ...]  # the schedules with a name, of all placements
    solver: bool  # False if a proof needed OR-tools, and it is not installed
    interrupted: bool  # whether Ctrl-C ended the search

    @property
    def value(self) -> float:
        """The objective of the schedule."""
        return self.solution.score(self.problem.objective)[0]

    @property
    def status(self) -> str:
        """``optimal`` if the bound is attained, else ``feasible``."""
        return "optimal" if self.value <= self.bound * (1 + ROUNDING) else "feasible"

    @property
    def gap(self) -> float:
        """The distance from the schedule's time to the bound, as a share of that time."""
        return max(0.0, 1 - self.bound / self.value) if self.value > 0 else 0.0

    @property
    def best_known(self) -> Solution | None:
        """The best named schedule that fits, None if none does."""
        fitting = [k.solution for k in self.known if k.fits]
        return min(fitting, key=lambda each: each.score(self.problem.objective), default=None)


def named_solution(solution: Solution, problem: Problem) -> NamedSolution:
    """Return a named schedule that knows whether it fits a problem."""
    return NamedSolution(
        solution, bool((solution.peak_activations <= problem.caps + ROUNDING).all())
    )


def separate_pairs(schedule: Schedule) -> Schedule:
    """Return the schedule with each pair as two ops in a row."""
    return replace(schedule, pair=np.full(len(schedule), NONE, np.int32))


def optimize(
    problems: Sequence[Problem],  # one for each placement, all feasible and with one objective
    # for each problem, schedules with a name to start from; the answer is never worse than the best
    # of them that fits
    known: Sequence[Sequence[NamedSolution]],
    *,
    # further schedules to start from, for the problems that they fit
    seeds: Sequence[Schedule] = (),
    seed: int = 0,  # of all random numbers
    time_limit: float = 30.0,  # seconds for everything
    # called with the best schedule so far and a bound for all placements
    report: Report = lambda best, bound: None,
    # processes, here or on other machines, for the search; threads of this process by default
    workers: Workers | None = None,
) -> Outcome:
    """Return the best schedule of several placements of one pipeline, and a bound for all of them.

    Raises:
        TimeOver: the time ended before any schedule was timed.
    """
    until = time.monotonic() + time_limit
    bounds = [bound_problem(problem) for problem in problems]
    lows = [
        bound.bound_of(problem.objective) for bound, problem in zip(bounds, problems, strict=True)
    ]
    best: tuple[Problem, Solution] | None = None
    solver = True

    def take(n: int, found: Solution, low: float) -> None:
        nonlocal best
        lows[n] = max(lows[n], low)
        if best is None or found.score(problems[n].objective) < best[1].score(
            problems[n].objective
        ):
            best = problems[n], found
        report(best[1], min(lows))

    for n, problem in enumerate(problems):
        fitting = [entry.solution for entry in known[n] if entry.fits]
        # Seeds as they are, as a search renumbers microbatches.
        for found in chain(
            fitting, (evaluate(problem, s, s.name) for s in seeds if fits(problem, s))
        ):
            take(n, found, lows[n])
    for n, problem in enumerate(problems):
        if first_signal():
            break
        late = until - time.monotonic() <= _start_time(problem)
        if late and not any(entry.fits for entry in chain(*known)):
            sure = write_in_turns(problem)
            take(n, evaluate(problem, sure, sure.name), lows[n])
        if late and (best is not None or _start_time(problem) > LATE_S):
            names = ", ".join(each.placement.name for each in problems[n:])
            note(f"not searched, as too little time was left: placement {names}")
            break
        limit = max(LEAST_S, (until - time.monotonic()) / (len(problems) - n))
        solver &= _solve_one(
            problem, bounds[n], known[n], seeds, seed, limit, partial(take, n), workers
        )
    if best is None:
        raise TimeOver
    everything = tuple(entry for entries in known for entry in entries)
    bound = limit_bound(min(lows), best[1].score(best[0].objective)[0])
    return Outcome(*best, bound, everything, solver, bool(first_signal()))


def write_in_turns(problem: Problem) -> Schedule:
    """Return the schedule that runs as many microbatches at a time as memory allows, at least one.

    Each stage runs their F in a row, then their B, before the next microbatches start.
    """
    stages, M = np.arange(problem.n_stages), problem.microbatches
    each = np.bincount(problem.device, problem.amounts, problem.n_devices)
    held = each > 0
    size = int(np.clip((problem.caps[held] / each[held]).min(initial=M) + ROUNDING, 1, M))
    turn = np.concatenate([pack(stages, 0) | Kind.F, pack(stages, 0)[::-1] | Kind.B])
    device = problem.device[turn >> STAGE_SHIFT]
    order = np.argsort(device, kind="stable")
    queues = np.split(turn[order], np.searchsorted(device[order], np.arange(1, problem.n_devices)))
    numbers, whole = pack(0, np.arange(M)), M - M % size
    turns = (numbers[:whole].reshape(-1, 1, size), numbers[None, None, whole:])
    rows = [np.concatenate([(queue[:, None] | turn).ravel() for turn in turns]) for queue in queues]
    name = f"{size} microbatches at a time" if size > 1 else "one microbatch at a time"
    return Schedule.from_queues(name, problem.placement, M, rows)


def _start_time(problem: Problem) -> float:
    """Return the seconds until a search has timed its first order."""
    return OP_S * 3 * problem.n_stages * problem.microbatches


def _solve_one(
    problem: Problem,
    bounds: Bounds,
    known: Sequence[NamedSolution],
    seeds: Sequence[Schedule],
    seed: int,
    time_limit: float,
    take: Callable[[Solution, float], None],
    workers: Workers | None,
) -> bool:
    """Search for the best schedule of one problem, then prove it.

    Return False if a proof needed OR-tools, and it is not installed.
    """
    until = time.monotonic() + time_limit
    low = bounds.bound_of(problem.objective)
    small = 3 * problem.n_stages * problem.microbatches <= MOST_SOLVED
    limit = min(SEARCHED * time_limit, MOST_SEARCHED_S) if small else time_limit
    alone = replace(problem, costs=replace(problem.costs, pair=None))
    asked: dict[str, Any] = {
        "seed": seed,
        "time_limit": limit,
        "bound": low,
        "report": lambda found: take(found, low),
    }
    try:
        parts = (separate_pairs(entry.solution.schedule) for entry in known if entry.fits)
        asked |= {"workers": workers.count, "run": workers.run} if workers else {}
        asked["grace"] = GRACE_S / 3 if any(entry.fits for entry in known) else GRACE_S
        best = search(alone, seeds=chain(parts, seeds), **asked)
    except TimeOver:  # the best known schedule is the answer
        return True
    if best is None or first_signal() or not small:
        return True
    if best.score(problem.objective)[0] <= low * (
        1 + ROUNDING
    ) and best.makespan <= bounds.makespan * (1 + ROUNDING):
        return True
    from ppsim.search.orders.solver import solve

    left = max(0.1, until - time.monotonic())
    try:
        solve(
            alone,
            best,
            bound_problem(alone),
            time_limit=left,
            seed=seed,
            # the solver's bound ignores pairs
            report=lambda found, bound: take(found, low if problem.pairs else bound),
        )
    except MissingDependency:
        return best.score(problem.objective)[0] <= low * (1 + ROUNDING)
    return True


def find_front(
    problems: Sequence[Problem],  # one for each placement; their caps are the largest tried
    known: Sequence[Sequence[NamedSolution]],  # see :func:`optimize`
    # for each problem, the activations of one stage in one unit of the caps
    shares: Sequence[int],
    # optimizes problems; arguments are a text that differs for each search of the front, the
    # problems, named schedules, further schedules to start from, and seconds
    run: Callable[
        [str, Sequence[Problem], Sequence[Sequence[NamedSolution]], Sequence[Schedule], float],
        Outcome,
    ],
    time_limit: float,  # seconds for everything
) -> list[tuple[float, Outcome]]:
    """Return the best outcome for each cap, from the least feasible one until more does not help.

    Returns:
        Caps in rising order, each with its outcome; fewer after Ctrl-C, or if the search for a cap
        finds nothing. Caps for which there is no time are left out, except the largest, and a note
        on standard error lists them.
    """
    until = time.monotonic() + time_limit
    each = time_limit / (MOST_CAPS + 1)
    most = run("largest cap", problems, known, (), each)
    share = shares[[problem.placement for problem in problems].index(most.problem.placement)]
    largest = int(np.ceil(most.solution.most_held / share - ROUNDING))
    least = min(
        int(np.ceil(p.least_caps.max() / unit - ROUNDING))
        for p, unit in zip(problems, shares, strict=True)
    )
    caps = (
        np.unique(np.linspace(least, largest, MOST_CAPS).astype(int)).tolist()
        if least < largest
        else []
    )
    rows, seeds = list[tuple[float, Outcome]](), [most.solution.schedule]
    for nth, cap in enumerate(caps):
        if first_signal():
            return rows or [(float(largest), most)]
        if time.monotonic() + min(map(_start_time, problems)) > until:
            if late := caps[nth:-1]:
                note(f"left out of the front, as the time ended: cap {', '.join(map(str, late))}")
            break
        capped = [
            replace(p, cap=float(cap * unit)) for p, unit in zip(problems, shares, strict=True)
        ]
        fitting = [
            [named_solution(entry.solution, p) for entry in entries]
            for entries, p in zip(known, capped, strict=True)
        ]
        try:
            found = run(f"cap {cap}", capped, fitting, seeds, each)
        except TimeOver:
            continue
        rows.append((float(cap), found))
        seeds.append(found.solution.schedule)
        if found.value <= most.value * (1 + ROUNDING):
            return rows
    return [*rows, (float(largest), most)]
