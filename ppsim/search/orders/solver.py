"""Exact answers for small problems: CP-SAT (OR-tools) proves the best schedule, or finds a bound.

The model has a start for every op. Ops of one device do not overlap, an op waits for its input and
the message's latency, and a device's memory never exceeds its cap. All microbatches are equal, so
each stage may run the ops of a kind in the order of microbatches without loss: in any other
schedule, let the n-th op of a kind and stage be that of microbatch n; as many inputs have arrived
by then, and the device holds as much. If B takes less time than I and W, each backward is either.

CP-SAT counts in integers. Times that a power of ten turns into integers are exact; others are
rounded down to a fine unit, so that bounds stay valid. Every schedule that it finds is simulated
with the given times.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppsim.base.interruptible import run_interruptibly
from ppsim.base.workers import count_cores
from ppsim.core.ops import Kind, pack
from ppsim.core.schedule import Schedule
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import Deadlock, MissingDependency
from ppsim.search.bounds.bounds import Bounds, limit_bound
from ppsim.search.problem import ROUNDING, Problem, Solution, evaluate, fits
from ppsim.version import INSTALL_OPTIMIZE

KINDS = (Kind.F, Kind.I, Kind.W)
# Steps of the longest possible run, if no power of ten turns times into integers.
FINEST = 1 << 32
SHARES = 10_000  # largest denominator of a share
# Seconds to shorten the makespan of schedules with the least span.
MOST_S_FOR_MAKESPAN = 5.0
# One worker is deterministic, and on few cores as fast as several. It runs first, for ALONE units
# of CP-SAT's work, about a second each. Then MANY workers continue, each with another strategy.
ALONE, MANY = 6.0, 8

Report = Callable[[Solution, float], None]


@dataclass(frozen=True)
class Proof:
    """The result of a solver: the best schedule, and the proven bound."""

    solution: Solution
    bound: float  # lower bound on the objective


class Grid(NamedTuple):
    """Times per stage in integer steps."""

    time: NDArray[np.int64]  # of F, I and W
    full: NDArray[np.int64]  # of B
    latency: NDArray[np.int64]  # of the inputs of F and I
    steps: float  # steps per unit of time
    exact: bool  # whether no time was rounded


def import_solver() -> Any:
    """Import CP-SAT; without OR-tools raise MissingDependency."""
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise MissingDependency(
            f"a proof needs OR-tools, which cannot be imported: {error}", INSTALL_OPTIMIZE
        ) from error
    return cp_model


def count_steps(problem: Problem) -> Grid:
    """Return times as integers: exact by a power of ten if possible, else rounded down."""
    time = problem.costs.time[list(KINDS)]
    full = problem.costs.time[Kind.B, problem.joins]
    values = np.concatenate([time.ravel(), full, problem.latency.ravel()])
    length = float(problem.microbatches * time.sum() + 2 * problem.latency.sum()) or 1.0
    for digits in range(10):
        scaled = values * 10.0**digits
        if length * 10.0**digits > FINEST:
            break
        if np.allclose(scaled, np.rint(scaled), rtol=1e-12, atol=1e-9):
            return _grid(problem, 10.0**digits, exact=True)
    return _grid(problem, FINEST / length, exact=False)


def _grid(problem: Problem, steps: float, *, exact: bool) -> Grid:
    to_steps = np.rint if exact else np.floor
    times = problem.costs.time[list(KINDS)], problem.costs.time[Kind.B], problem.latency
    time, full, latency = (to_steps(each * steps).astype(np.int64) for each in times)
    return Grid(time, full, latency, steps, exact)


class Model:
    """A problem as a CP-SAT model: the starts of all ops, and the objective.

    A device that starts later has a shorter span, so its first op may be of any microbatch. It
    starts when the k-th microbatch of the device before arrives; the k microbatches before follow
    later. With ``soon``, k is 0.
    """

    def __init__(
        self, cp: Any, problem: Problem, bounds: Bounds, best: Solution, *, soon: bool
    ) -> None:
        self.problem, self.grid, self.cp = problem, count_steps(problem), cp.CpModel()
        # Every device starts within the first one's span, so that all end within two spans.
        longest = 2 * best.span if problem.objective == "span" else best.makespan
        self.longest = int(np.ceil(longest * self.grid.steps)) + 1
        # Shape (kinds, stages, microbatches), with the kinds of KINDS.
        self.start = np.empty((3, problem.n_stages, problem.microbatches), object)
        for where in np.ndindex(self.start.shape):
            self.start[where] = self.cp.new_int_var(0, self.longest, "")
        # whether a backward is B; W then starts as it ends
        self.joined = np.zeros(self.start.shape[1:], object)
        self.ends = self.start + self.grid.time[:, :, None]
        for stage in np.flatnonzero(problem.joins):
            self._join(int(stage))
        self._order()
        for device in range(problem.n_devices):
            stages = np.flatnonzero(problem.device == device)
            self._run_one_at_a_time(stages)
            if np.isfinite(problem.caps[device]) and len(stages):
                self._limit_memory(stages, float(problem.caps[device]))
        # for a device's lowest stage: whether it begins with each microbatch
        self.first: dict[int, list[Any]] = {}
        self._begin(soon)
        self.span, self.makespan = self._measure(bounds)
        self.hint(best)
        self.cp.minimize(self.span if problem.objective == "span" else self.makespan)

    def _join(self, stage: int) -> None:
        """Let each backward of a stage be B; the W of split backwards keep their order."""
        before, full, (_, i, w) = 0, int(self.grid.full[stage]), self.grid.time[:, stage].tolist()
        for m in range(self.problem.microbatches):
            self.joined[stage, m] = joined = self.cp.new_bool_var("")
            ends = [self.cp.new_int_var(0, self.longest, "") for _ in range(3)]
            gradient, rest = self.start[1:, stage, m]
            self.ends[1:, stage, m] = ends[:2]
            self.cp.add(ends[0] == gradient + i + (full - i) * joined)
            self.cp.add(ends[1] == rest + w - w * joined)
            self.cp.add(rest == ends[0]).only_enforce_if(joined)
            self.cp.add(rest >= before).only_enforce_if(~joined)
            self.cp.add(ends[2] >= before)
            self.cp.add(ends[2] >= ends[1]).only_enforce_if(~joined)
            before = ends[2]

    def _order(self) -> None:
        """Make ops wait for their inputs, and run in the order of microbatches on each stage."""
        (S, M), latency = self.start.shape[1:], self.grid.latency
        for stage, m in np.ndindex(S, M):
            f, i, w = self.start[:, stage, m]
            if stage:
                self.cp.add(f >= self.ends[0, stage - 1, m] + int(latency[stage, 0]))
            if stage < S - 1:
                self.cp.add(i >= self.ends[1, stage + 1, m] + int(latency[stage, 1]))
            else:
                self.cp.add(i >= self.ends[0, stage, m])
            self.cp.add(w >= self.ends[1, stage, m])
            for kind in range(2 if self.problem.joins[stage] else 3) if m else ():
                self.cp.add(self.start[kind, stage, m] >= self.ends[kind, stage, m - 1])
        self.cp.add(self.start[0, 0, 0] == 0)

    def _run_one_at_a_time(self, stages: NDArray[np.intp]) -> None:
        """Make the device of these stages run one op at a time."""
        intervals = []
        for stage, m in product(stages, range(self.problem.microbatches)):
            joined, starts = self.joined[stage, m], self.start[:, stage, m]
            for kind, (start, takes) in enumerate(
                zip(starts, self.grid.time[:, stage].tolist(), strict=True)
            ):
                alone = ~joined if kind and self.problem.joins[stage] else True
                intervals.append(
                    self.cp.new_optional_fixed_size_interval_var(start, takes, alone, "")
                )
            if self.problem.joins[stage]:
                full = int(self.grid.full[stage])
                intervals.append(
                    self.cp.new_optional_fixed_size_interval_var(starts[1], full, joined, "")
                )
        self.cp.add_no_overlap(intervals)

    def _limit_memory(self, stages: NDArray[np.intp], cap: float) -> None:
        """Limit the memory of these stages' device to its cap.

        A whole activation is held from F to I, and a share of it until W.
        """
        M, share, amounts = self.problem.microbatches, self.problem.after_i, self.problem.amounts
        if not amounts[stages].any():
            return
        if len(stages) == 1 and share == 1 and not self.problem.joins[stages[0]]:
            # As microbatches run in order, F of microbatch m + K waits for W of microbatch m.
            places = int((cap + ROUNDING) / amounts[stages[0]])
            for m in range(M - places):
                self.cp.add(self.start[0, stages[0], m + places] >= self.ends[2, stages[0], m])
            return
        part = to_fraction(share)
        intervals, demands = [], []
        for stage, m in product(stages, range(M)):
            for last, held in ((1, 1 - part), (2, part)):
                if held and amounts[stage]:
                    size, until = (
                        self.cp.new_int_var(0, self.longest, ""),
                        self.ends[last, stage, m],
                    )
                    intervals.append(
                        self.cp.new_interval_var(self.start[0, stage, m], size, until, "")
                    )
                    demands.append(int(held * part.denominator) * int(amounts[stage]))
        self.cp.add_cumulative(intervals, demands, int(cap * part.denominator + 1e-6))

    def _begin(self, soon: bool) -> None:
        """Make each device start when its first microbatch arrives, if the span is minimized.

        With rounded times, equal starts are unknown, so devices may wait before their first op.
        """
        exact = soon or self.grid.exact
        for device in range(
            self.problem.n_devices if self.problem.objective == "span" and exact else 0
        ):
            stages = np.flatnonzero(self.problem.device == device)
            if not len(stages) or stages[0] == 0:
                continue
            stage, many = int(stages[0]), 1 if soon else self.problem.microbatches
            self.first[stage] = [self.cp.new_bool_var("") for _ in range(many)]
            self.cp.add_exactly_one(self.first[stage])
            for m, chosen in enumerate(self.first[stage]):
                arrival = self.ends[0, stage - 1, m] + int(self.grid.latency[stage, 0])
                self.cp.add(self.start[0, stage, 0] == arrival).only_enforce_if(chosen)

    def _measure(self, bounds: Bounds) -> tuple[Any, Any]:
        """Return span and makespan, at least their bounds and the ends of each stage's last W."""
        device, last = self.problem.device, self.problem.microbatches - 1
        span = self.cp.new_int_var(bound_in_steps(bounds.span, self.grid), self.longest, "span")
        makespan = self.cp.new_int_var(
            bound_in_steps(bounds.makespan, self.grid), self.longest, "makespan"
        )
        for stage, on in enumerate(device.tolist()):
            lowest = int(np.flatnonzero(device == on)[0])
            for end in self.ends[2, stage, 0 if self.problem.joins[stage] else last :]:
                self.cp.add(span >= end - self.start[0, lowest, 0])
                self.cp.add(makespan >= end)
        return span, makespan

    def hint(self, best: Solution) -> None:
        """Start from a known schedule, with the ops of each kind and stage renumbered in order."""
        self.cp.clear_hints()
        timeline = simulate(best.schedule, self.problem.costs)
        kinds = best.schedule.kind
        for stage, M in product(range(self.problem.n_stages), [self.problem.microbatches]):
            here = best.schedule.stage == stage
            f, gradient, w = (
                np.flatnonzero(here & np.isin(kinds, of))
                for of in (Kind.F, (Kind.B, Kind.I), Kind.W)
            )
            gradient = gradient[np.argsort(timeline.start[gradient])]
            joined = kinds[gradient] == Kind.B
            rest = timeline.end[gradient]
            rest[~joined] = np.sort(timeline.start[w])
            for kind, starts in enumerate(
                (np.sort(timeline.start[f]), timeline.start[gradient], rest)
            ):
                for m in range(M):
                    self.cp.add_hint(
                        self.start[kind, stage, m], round(float(starts[m]) * self.grid.steps)
                    )
            for m in range(M) if self.problem.joins[stage] else ():
                self.cp.add_hint(self.joined[stage, m], bool(joined[m]))

    def then_makespan(self, span: float) -> None:
        """Minimize the makespan among the schedules with this span."""
        self.cp.add(self.span <= int(np.ceil(span * self.grid.steps - 1e-6)))
        self.cp.minimize(self.makespan)

    def read(self, value: Callable[[Any], int]) -> Schedule:
        """Return the schedule of the starts that the solver found."""
        start, joined = (
            np.vectorize(value, otypes=[np.int64])(x) for x in (self.start, self.joined)
        )
        time, microbatch, queues = self.grid.time, self._number(value), []
        for device in range(self.problem.n_devices):
            # Ops that take no time precede those that start at the same time, in order of their
            # dependencies.
            ops = [
                (
                    start[k, s, m],
                    (self.grid.full[s] if joined[s, m] and k else time[k, s]) > 0,
                    m,
                    k,
                    -s if k else s,
                    s,
                )
                for k, s, m in np.ndindex(start.shape)
                if self.problem.device[s] == device and not (k == 2 and joined[s, m])
            ]
            codes = [
                int(pack(s, microbatch[k, s, m])) | (Kind.B if k and joined[s, m] else KINDS[k])
                for _, _, m, k, _, s in sorted(ops)
            ]
            queues.append(np.array(codes, np.int64))
        return Schedule.from_queues(
            "optimized", self.problem.placement, self.problem.microbatches, queues
        )

    def _number(self, value: Callable[[Any], int]) -> NDArray[np.int64]:
        """Return the microbatch of the n-th op of each kind and stage.

        Shape (3, stages, microbatches).
        """
        S, M = self.start.shape[1:]
        number, order = np.empty((3, S, M), np.int64), np.arange(M)
        for stage in range(S):
            taken = next(
                (m for m, chosen in enumerate(self.first.get(stage, [])) if value(chosen)), 0
            )
            order = np.concatenate([order[taken : taken + 1], np.delete(order, taken)])
            number[0, stage] = order
        number[1:] = order  # gradients return in the last stage's order of forwards
        # torch requires the losses of the last stage in the order of microbatches
        return np.argsort(order)[number]


def to_fraction(share: float) -> Fraction:
    """Return a share as a fraction, rounded down if its denominator is too large."""
    part = Fraction(share).limit_denominator(SHARES)
    return part if abs(float(part) - share) <= ROUNDING else Fraction(int(share * SHARES), SHARES)


def bound_in_steps(bound: float, grid: Grid) -> int:
    """Return a bound in steps, rounded up if times are exact, as all times are then integers."""
    return (
        int(np.ceil(bound * grid.steps - 1e-6))
        if grid.exact
        else int(bound * grid.steps * (1 - ROUNDING))
    )


def solve(
    problem: Problem,
    best: Solution,
    bounds: Bounds,
    *,
    time_limit: float = 60.0,
    seed: int = 0,
    report: Report = lambda best, bound: None,
) -> Proof:
    """Return the best schedule of a small problem, starting from ``best``, and a proven bound.

    ``time_limit`` is in seconds. One thread runs for a while, then as many as cores, with different
    strategies. ``report`` is called with the best schedule and the bound whenever one improves.
    Ctrl-C ends the search early.

    Raises:
        MissingDependency: OR-tools is not installed.
    """
    cp = import_solver()
    run = _Run(cp, problem, best, bounds, report)
    run.until = time.monotonic() + time_limit
    run.seed = seed
    with suppress(KeyboardInterrupt):  # the answer is then the best so far
        if not run.proved:
            run.solve(Model(cp, problem, bounds, best, soon=False), proves=True)
        if not run.proved and problem.objective == "span":
            # The proof lets a device's first microbatch come late; in the simulation no op waits.
            run.solve(Model(cp, problem, bounds, run.best, soon=True), proves=False)
        if problem.objective == "span" and run.best.makespan > bounds.makespan * (1 + ROUNDING):
            run.until = min(run.until, time.monotonic() + MOST_S_FOR_MAKESPAN)
            shorter = Model(cp, problem, bounds, run.best, soon=True)
            shorter.then_makespan(run.best.span)
            run.solve(shorter, proves=False)
    return Proof(run.best, limit_bound(run.bound, run.best.score(problem.objective)[0]))


class _Run:
    """Runs the solver on one problem, and keeps the best schedule and the proven bound."""

    def __init__(
        self, cp: Any, problem: Problem, best: Solution, bounds: Bounds, report: Report
    ) -> None:
        self.cp, self.problem, self.best, self.report = cp, problem, best, report
        self.bound = bounds.bound_of(problem.objective)
        self.until, self.seed = 0.0, 0

    @property
    def proved(self) -> bool:
        """Whether the best schedule attains the bound."""
        return self.best.score(self.problem.objective)[0] <= self.bound * (1 + ROUNDING)

    def solve(self, model: Model, *, proves: bool) -> None:
        """Solve a model in the remaining time; ``proves`` if its bound is valid for the problem."""
        if not self._run(model, proves, 1, ALONE):
            model.hint(self.best)
            self._run(model, proves, max(MANY, count_cores()), np.inf)

    def _run(self, model: Model, proves: bool, workers: int, units: float) -> bool:
        """Run the solver with a number of threads and units of work; return True if it is done."""
        left = self.until - time.monotonic()
        if left <= 0:
            return True
        solver, run = self.cp.CpSolver(), self
        solver.parameters.max_time_in_seconds = left
        solver.parameters.random_seed = self.seed
        solver.parameters.num_workers, solver.parameters.max_deterministic_time = workers, units
        solver.parameters.catch_sigint_signal = False

        class Watch(self.cp.CpSolverSolutionCallback):  # type: ignore[misc, name-defined]
            """Keeps a schedule that the solver finds if it is better."""

            def on_solution_callback(self) -> None:
                run._keep_if_better(model.read(self.value))

        def prove(steps: float) -> None:
            attained = limit_bound(
                steps / model.grid.steps, run.best.score(run.problem.objective)[0]
            )
            if attained > run.bound:
                run.bound = attained
                run.report(run.best, run.bound)

        if proves:
            solver.best_bound_callback = prove
        status = run_interruptibly(lambda: solver.solve(model.cp, Watch()), solver.stop_search)
        if proves:
            prove(solver.best_objective_bound)
        return status in (self.cp.OPTIMAL, self.cp.INFEASIBLE)

    def _keep_if_better(self, schedule: Schedule) -> None:
        """Keep a schedule if it fits and, simulated with the given times, is better."""
        if not fits(self.problem, schedule):
            return
        try:
            found = evaluate(self.problem, schedule, "constraint solver")
        except Deadlock:  # ops that take no time, whose order the starts do not determine
            return
        if found.score(self.problem.objective) < self.best.score(self.problem.objective):
            self.best = found
            self.report(self.best, self.bound)
