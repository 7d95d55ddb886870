"""Exact answers with copies to the host: CP-SAT chooses what leaves, when it comes back, and the order of compute.

The model knows starts, not queues, so that what it proves holds for every queue; a schedule that it finds is written as
queues, and counts where these are as fast and fit. Which microbatch comes first on the first stage is a name; nothing
else is, as what is on the host is of one microbatch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.core.ops import KIND_MASK, STAGE_MASK, STAGE_SHIFT, Kind, pack
from ppsim.core.schedule import Schedule
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import Deadlock
from ppsim.search.bounds.bounds import Bounds
from ppsim.search.orders.solver import Solvable, to_fraction, up
from ppsim.search.problem import Problem, Solution, evaluate, fits
from ppsim.search.rules.offload import add_waits

KINDS = (Kind.F, Kind.I, Kind.W, Kind.OFFLOAD, Kind.RELOAD)
GRADIENT, REST, OUT, BACK = 1, 2, 3, 4  # rows of the starts, beside F


class CopyModel(Solvable):
    """A problem with copies as CP-SAT sees it: the starts of all ops, what is copied, and what is to be least."""

    def __init__(self, cp: Any, problem: Problem, bounds: Bounds, best: Solution) -> None:
        super().__init__(cp, problem, best, rows=5)
        S, M = problem.n_stages, problem.microbatches
        self.end = np.empty(self.start.shape, object)
        self.copied, self.full = np.empty((S, M), object), np.zeros((S, M), object)
        times = np.concatenate([self.grid.time, self.grid.copies])
        for s, m in np.ndindex(S, M):
            self.copied[s, m] = self.cp.new_bool_var("")
            self.end[:, s, m] = self.start[:, s, m] + times[:, s]
            if problem.joins[s]:
                self.full[s, m] = full = self.cp.new_bool_var("")
                for row, joint in ((GRADIENT, int(self.grid.full[s])), (REST, 0)):
                    end = self.cp.new_int_var(0, self.longest, "")
                    self.cp.add(end == self.end[row, s, m] + (joint - int(times[row, s])) * full)
                    self.end[row, s, m] = end
                self.cp.add(self.start[REST, s, m] == self.end[GRADIENT, s, m]).only_enforce_if(full)
        for s, m in np.ndindex(S, M):
            self._order(s, m)
        for m in range(1, M):
            self.cp.add(self.start[0, 0, m] >= self.end[0, 0, m - 1])
        self.cp.add(self.start[0, 0, 0] == 0)
        link = np.arange(problem.n_devices) // max(problem.costs.host_link, 1)
        for device in range(problem.n_devices):
            own = np.flatnonzero(problem.device == device).tolist()
            self._occupy(own)
            if np.isfinite(problem.caps[device]):
                self._hold(own, float(problem.caps[device]))
        for row, group in product((OUT, BACK), np.unique(link)):
            cells = product(np.flatnonzero(link[problem.device] == group).tolist(), range(M))
            self.cp.add_no_overlap([self._interval(row, s, m, self.copied[s, m]) for s, m in cells])
        self._measure(bounds)
        self.hint(best)

    def _order(self, s: int, m: int) -> None:
        """Make the ops of a stage and microbatch wait for their inputs."""
        latency, top = self.grid.latency[s], self.problem.n_stages - 1
        if s:
            self.cp.add(self.start[0, s, m] >= self.end[0, s - 1, m] + int(latency[0]))
        above = self.end[GRADIENT, s + 1, m] + int(latency[1]) if s < top else self.end[0, s, m]
        self.cp.add(self.start[GRADIENT, s, m] >= above)
        self.cp.add(self.start[REST, s, m] >= self.end[GRADIENT, s, m])
        for before, after in ((0, OUT), (OUT, BACK), (BACK, GRADIENT)):
            needs = self.start[after, s, m] >= self.end[before, s, m]
            self.cp.add(needs).only_enforce_if(self.copied[s, m])

    def _interval(self, row: int, s: int, m: int, present: Any) -> Any:
        size = self.cp.new_int_var(0, self.longest, "")
        return self.cp.new_optional_interval_var(self.start[row, s, m], size, self.end[row, s, m], present, "")

    def _occupy(self, own: list[int]) -> None:
        """Make the device of these stages compute one op at a time."""
        cells = product((0, GRADIENT, REST), own, range(self.problem.microbatches))
        joined = self.problem.joins
        alone = [self._interval(r, s, m, ~self.full[s, m] if r == REST and joined[s] else True) for r, s, m in cells]
        self.cp.add_no_overlap([*alone, *self._gate(own)] if self.grid.exact else alone)

    def _gate(self, own: list[int]) -> Iterator[Any]:
        """Let copies back start as queues can have it: as an op or a copy back ends, or a copy out while none computes.

        Yields intervals of no time in which the device does not compute.
        """
        shared = self.problem.device // max(self.problem.costs.host_link, 1)
        M, group = range(self.problem.microbatches), np.flatnonzero(shared == shared[own[0]]).tolist()
        for s, m in product(own, M):
            back, ends = self.start[BACK, s, m], list[Any]()
            for row, stage, other in [*product((0, GRADIENT, REST, OUT), own, M), *product((BACK,), group, M)]:
                if (row, stage, other) == (BACK, s, m):
                    continue
                ends.append(chosen := self.cp.new_bool_var(""))
                self.cp.add(back == self.end[row, stage, other]).only_enforce_if(chosen)
                if row >= OUT:
                    self.cp.add_implication(chosen, self.copied[stage, other])
                if row == OUT and (stage, other) != (s, m):
                    yield self.cp.new_optional_fixed_size_interval_var(back, 0, chosen, "")
            self.cp.add_bool_or([*ends, ~self.copied[s, m]])

    def _hold(self, own: list[int], cap: float) -> None:
        """Make the device of these stages hold no more than its cap.

        An activation is held from its F to its gradient, but not between its copies; a share of it on to W.
        """
        part = to_fraction(self.problem.after_i)
        intervals, demands = [], []

        def hold(begin: Any, end: Any, share: Fraction, s: int, present: Any = True) -> None:
            amount = int(share * part.denominator) * int(self.problem.amounts[s])
            if amount:
                size = self.cp.new_int_var(0, self.longest, "")
                intervals.append(self.cp.new_optional_interval_var(begin, size, end, present, ""))
                demands.append(amount)

        for s, m in product(own, range(self.problem.microbatches)):
            end = self.end[REST if part == 1 else GRADIENT, s, m]
            hold(self.start[0, s, m], end, Fraction(1), s, ~self.copied[s, m])
            hold(self.start[0, s, m], self.end[OUT, s, m], Fraction(1), s, self.copied[s, m])
            hold(self.start[BACK, s, m], end, Fraction(1), s, self.copied[s, m])
            if part < 1:
                hold(end, self.end[REST, s, m], part, s)
        self.cp.add_cumulative(intervals, demands, int(cap * part.denominator + 1e-6))

    def _measure(self, bounds: Bounds) -> None:
        """Minimize the time to the last end, of the iteration or from each device's first start.

        A device starts as its first microbatch arrives. Rounded times do not say when, so that it may wait at will.
        """
        problem, spans = self.problem, self.problem.objective == "span"
        goal = self.cp.new_int_var(up(bounds.of(problem.objective), self.grid), self.longest, "")
        for device in range(problem.n_devices):
            own = np.flatnonzero(problem.device == device)
            first: Any = 0
            if spans and own[0] > 0:
                first, chosen = self.cp.new_int_var(0, self.longest, ""), list[Any]()
                for m in range(problem.microbatches):
                    chosen.append(self.cp.new_bool_var(""))
                    start, arrival = self.start[0, own[0], m], self.end[0, own[0] - 1, m]
                    self.cp.add(first <= start)
                    self.cp.add(first == start).only_enforce_if(chosen[m])
                    if self.grid.exact:
                        latency = int(self.grid.latency[own[0], 0])
                        self.cp.add(start == arrival + latency).only_enforce_if(chosen[m])
                self.cp.add_exactly_one(chosen)
            for s, m in product(own, range(problem.microbatches)):
                self.cp.add(goal >= self.end[REST, s, m] - first)
        self.cp.minimize(goal)

    def hint(self, best: Solution) -> None:
        """Start from a known schedule, its microbatches numbered as the first stage runs them."""
        self.cp.clear_hints()
        made, timeline = best.schedule, simulate(best.schedule, self.problem.costs)
        first = np.flatnonzero((made.kind == Kind.F) & (made.stage == 0))
        number = np.argsort(made.microbatch[first[np.argsort(timeline.start[first])]])
        row = {Kind.F: 0, Kind.B: GRADIENT, Kind.I: GRADIENT, Kind.W: REST, Kind.OFFLOAD: OUT, Kind.RELOAD: BACK}
        copied = np.zeros(self.copied.shape, bool)
        for op in np.flatnonzero(made.kind != Kind.WAIT_OFFLOAD):
            kind, s, m = Kind(made.kind[op]), made.stage[op], number[made.microbatch[op]]
            copied[s, m] |= kind == Kind.OFFLOAD
            self.cp.add_hint(self.start[row[kind], s, m], round(float(timeline.start[op]) * self.grid.steps))
            if self.problem.joins[s] and row[kind] == GRADIENT:
                self.cp.add_hint(self.full[s, m], kind == Kind.B)
                if kind == Kind.B:
                    self.cp.add_hint(self.start[REST, s, m], round(float(timeline.end[op]) * self.grid.steps))
        for cell in np.ndindex(copied.shape):
            self.cp.add_hint(self.copied[cell], bool(copied[cell]))

    def read(self, value: Callable[[Any], int]) -> Schedule:
        """Write the values that the solver gives the starts as queues, of those that fit the fastest."""
        found = list[Solution]()
        for schedule in self._write(value):
            try:
                if fits(self.problem, schedule):
                    found.append(evaluate(self.problem, schedule, ""))
            except Deadlock:  # ops of no time, in an order that their starts do not tell
                continue
        return min(found, key=lambda each: each.score(self.problem.objective)).schedule if found else schedule

    def _write(self, value: Callable[[Any], int]) -> Iterator[Schedule]:
        """Issue copies back before the op that runs as they start, or behind it; wait for what has left by then."""
        start, copied, full = (np.vectorize(value, otypes=[np.int64])(x) for x in (self.start, self.copied, self.full))
        end = np.vectorize(value, otypes=[np.int64])(self.end)
        for early in (True, False):
            queues, waited = list[NDArray[np.int64]](), list[NDArray[np.int64]]()
            for device in range(self.problem.n_devices):
                own = np.flatnonzero(self.problem.device == device)
                cells = product(range(5), own, range(self.problem.microbatches))
                kept = [
                    (r, s, m) for r, s, m in cells if (copied[s, m] if r > REST else not (r == REST and full[s, m]))
                ]
                runs = [(start[cell], end[cell]) for cell in kept if cell[0] <= REST]
                ops = []
                for r, s, m in kept:
                    at, code = (
                        start[r, s, m],
                        int(pack(int(s), m)) | (Kind.B if r == GRADIENT and full[s, m] else KINDS[r]),
                    )
                    if early and r == BACK:
                        at = min([at, *(a for a, b in runs if a < at < b)])
                    ops.append((at, r <= REST and end[r, s, m] > at, r == BACK, m, code))
                queue = [op[-1] for op in sorted(ops)]
                queues.append(self._wait_by_time(sorted(ops), end, copied, own))
                packed = np.array(queue, np.int64)
                change = self.problem.changes[packed & KIND_MASK, packed >> STAGE_SHIFT & STAGE_MASK]
                waiting = add_waits(queue, change.tolist(), float(self.problem.caps[device]))
                waited.append(packed if waiting is None else np.array(waiting, np.int64))
            for each in (queues, waited):
                yield Schedule.from_queues("optimized", self.problem.placement, self.problem.microbatches, each)

    def _wait_by_time(
        self, ops: list[Any], end: NDArray[np.int64], copied: NDArray[np.int64], own: NDArray[np.intp]
    ) -> NDArray[np.int64]:
        """Before what takes room, wait for the copies that have left by then."""
        cells = product(own, range(self.problem.microbatches))
        leaving = sorted((end[OUT, s, m], int(pack(int(s), m)) | Kind.WAIT_OFFLOAD) for s, m in cells if copied[s, m])
        queue, gone = list[int](), 0
        for at, *_, code in ops:
            while code & KIND_MASK in (Kind.F, Kind.RELOAD) and gone < len(leaving) and leaving[gone][0] <= at:
                queue.append(leaving[gone][1])
                gone += 1
            queue.append(code)
        return np.array(queue, np.int64)
