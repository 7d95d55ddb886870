"""A pattern of one microbatch repeated every T, solved exactly for one period by OR-tools' CP-SAT.

An op has an offset from the start of its microbatch, and microbatch m runs T x m later. Ops of one device share no time
of the period, also where they belong to different microbatches; an op waits for its input; what a device holds while
the pattern repeats, and so at any time, stays within its cap. The least T that the solver finds comes first, then the
least time from a device's first op to its last. Repeated M times, with each op as soon as its queue and input allow,
the pattern is a schedule that local search starts from; and so are queues in which devices that the pattern leaves
idle, while it begins and ends, run what is ready.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppsim.search.orders.solver import SHARES, Grid, count_steps
from ppsim.search.problem import ROUNDING, Problem
from ppsim.search.rules.heuristics import changes
from ppsim.search.rules.orders import KINDS, Queues

FEWEST, FEWEST_OPS = 8, 1500  # microbatches and ops: with fewer nothing repeats, or all of it is solved
MOST_STAGES = 256
# The periods tried, in shares above the least possible; CP-SAT's units of work for each, about a second.
LONGER, WORK = (0.0, 0.02, 0.06, 0.15, 0.4), 3.0
NARROWED = 2  # solves between a period that is too short and one that is not
WAYS = 8  # of search that CP-SAT tries at once: one alone often finds nothing
SHARE, MOST_S = 0.2, 3.0  # of the time left, and seconds, that the solver has at most
MANY = 1 << 30

Pattern = tuple[NDArray[np.int64], int]  # offsets of F, I and W of each stage, shape (3, stages), and the period


class Ops(NamedTuple):
    """The ops of one microbatch in the model, arrays of shape (3, stages): start is turn x period + place."""

    model: Any
    period: int
    turn: Any
    place: Any
    start: Any
    end: Any


def write_periodic(problem: Problem, deadline: float) -> Iterator[tuple[str, Queues]]:
    """Write the schedules of the best pattern found in a share of the time; none without OR-tools or where small."""
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        return
    S, M, now = problem.n_stages, problem.microbatches, time.monotonic()
    if M < FEWEST or 3 * S * M < FEWEST_OPS or S > MOST_STAGES or now >= deadline:
        return
    found = find_pattern(cp_model, problem, count_steps(problem), now + min(MOST_S, SHARE * (deadline - now)))
    if found is not None:
        yield "repeated pattern", repeat(problem, *found)
        completed = complete(problem, *found)
        if completed is not None:
            yield "repeated pattern", completed


def find_pattern(cp: Any, problem: Problem, grid: Grid, deadline: float) -> Pattern | None:
    """Find offsets of F, I and W of each stage, shape (3, stages), and the least period that has any.

    None where none is found in time.
    """
    least = bound_period(problem, grid)
    best, short = None, 0
    periods = [least + int(np.ceil(share * least)) for share in LONGER]
    for period in dict.fromkeys(periods):
        best = _solve(cp, problem, grid, period, deadline)
        if best is not None:
            break
        short = period
    for _ in range(NARROWED if best is not None and short else 0):
        assert best is not None
        middle = (short + best[1]) // 2
        if middle in (short, best[1]):
            break
        found = _solve(cp, problem, grid, middle, deadline)
        best, short = (found, short) if found is not None else (best, middle)
    return best


def bound_period(problem: Problem, grid: Grid) -> int:
    """Bound the period: a device's work, and the time that a microbatch's activations are held, over its cap."""
    forward, gradient, rest = grid.time
    work = np.bincount(problem.device, grid.time.sum(axis=0), problem.n_devices)
    begin = np.cumsum(grid.latency[:, 0]) + np.cumsum(forward) - forward
    back = np.cumsum((grid.latency[:, 1] + gradient)[::-1])[::-1]  # from the end of the last F to the end of each I
    trip = begin[-1] + forward[-1] - begin + back
    held = np.bincount(problem.device, problem.amounts * (trip + problem.after_i * rest), problem.n_devices)
    return max(1, int(np.ceil(max(work.max(), (held / problem.caps).max()) * (1 - ROUNDING))))


def _solve(cp: Any, problem: Problem, grid: Grid, period: int, deadline: float) -> Pattern | None:
    """Find the offsets of a period with the least width; None where there are none, or none is found in time."""
    left = deadline - time.monotonic()
    if left <= 0:
        return None
    model, S = cp.CpModel(), problem.n_stages
    longest = int(grid.time.sum() + grid.latency.sum()) // period + 2 * S + 3
    turn, place, start, end = (np.empty((3, S), object) for _ in range(4))
    for kind, stage in np.ndindex(3, S):
        turn[kind, stage], place[kind, stage] = model.new_int_var(0, longest, ""), model.new_int_var(0, period - 1, "")
        start[kind, stage] = model.new_int_var(0, longest * (period + 1), "")
        model.add(start[kind, stage] == turn[kind, stage] * period + place[kind, stage])
        end[kind, stage] = start[kind, stage] + int(grid.time[kind, stage])
    ops = Ops(model, period, turn, place, start, end)
    _order(ops, grid)
    for device in range(problem.n_devices):
        own = np.flatnonzero(problem.device == device)
        model.add_no_overlap(
            model.new_fixed_size_interval_var(place[kind, stage] + later, int(grid.time[kind, stage]), "")
            for kind in range(3)
            for stage in own
            for later in (0, period)
        )
        if np.isfinite(problem.caps[device]):
            _hold(ops, problem, own, int((problem.caps[device] + ROUNDING) * SHARES))
    width = model.new_int_var(0, (longest + 2) * period, "")
    for stage, device in enumerate(problem.device.tolist()):
        lowest = 0 if problem.objective == "makespan" else int(np.flatnonzero(problem.device == device)[0])
        model.add(width >= end[2, stage] - start[0, lowest])
    model.minimize(width)
    solver = cp.CpSolver()
    solver.parameters.max_time_in_seconds, solver.parameters.max_deterministic_time = left, WORK
    solver.parameters.num_workers, solver.parameters.catch_sigint_signal = WAYS, False
    if solver.solve(model) not in (cp.OPTIMAL, cp.FEASIBLE):
        return None
    return np.vectorize(solver.value, otypes=[np.int64])(start), period


def _order(ops: Ops, grid: Grid) -> None:
    """Make ops wait for their inputs; microbatch 0 starts at 0."""
    model, start, end = ops.model, ops.start, ops.end
    last = start.shape[1] - 1
    model.add(start[0, 0] == 0)
    for stage in range(last + 1):
        if stage:
            model.add(start[0, stage] >= end[0, stage - 1] + int(grid.latency[stage, 0]))
        if stage < last:
            model.add(start[1, stage] >= end[1, stage + 1] + int(grid.latency[stage, 1]))
        else:
            model.add(start[1, stage] >= end[0, stage])
        model.add(start[2, stage] >= end[1, stage])


def _hold(ops: Ops, problem: Problem, own: NDArray[np.intp], cap: int) -> None:
    """Keep what a device holds right after each of its F within the cap, in SHARES, while the pattern repeats."""
    model, part = ops.model, int(np.ceil(problem.after_i * SHARES - 1e-6))  # rounded up: what is found fits
    parts = [(1, SHARES - part), (2, part)]
    released, spent = [], []  # how much, how often and when in the period is given back; how much for how long
    for stage in own[problem.amounts[own] > 0]:
        for kind, share in parts:
            if share:
                amount = share * int(problem.amounts[stage])
                turn, place = model.new_int_var(0, MANY, ""), model.new_int_var(0, ops.period - 1, "")
                model.add(turn * ops.period + place == ops.end[kind, stage])
                released.append((stage, amount, turn, place))
                spent.append(amount * (ops.end[kind, stage] - ops.start[0, stage]))
    model.add(sum(spent) <= cap * ops.period)  # on average, which follows, and which the solver learns much from

    def is_by(place: Any, other: Any) -> Any:
        known = model.new_bool_var("")
        model.add(place <= other).only_enforce_if(known)
        model.add(place > other).only_enforce_if(~known)
        return known

    for stage in own[problem.amounts[own] > 0]:
        now, held = ops.place[0, stage], []
        started = {other: 1 if other == stage else is_by(ops.place[0, other], now) for other in own}
        for other, amount, turn, place in released:
            held.append(amount * (turn - ops.turn[0, other] + started[other] - is_by(place, now)))
        model.add(sum(held) <= cap)


def repeat(problem: Problem, offsets: NDArray[np.int64], period: int) -> Queues:
    """Write each device's op codes in the order of their times, those of no time first."""
    S, M = problem.n_stages, problem.microbatches
    times = offsets.ravel()[:, None] + period * np.arange(M)
    codes = np.broadcast_to(np.arange(3 * S)[:, None], times.shape)
    queues = []
    for device in range(problem.n_devices):
        own = np.tile(problem.device == device, 3)
        order = np.argsort(times[own].ravel(), kind="stable")
        queues.append(codes[own].ravel()[order].astype(np.int64))
    return queues


def complete(problem: Problem, offsets: NDArray[np.int64], period: int) -> Queues | None:
    """Write queues in which a device that is free runs the op that is ready and first in the pattern; None if stuck."""
    S, M, P = problem.n_stages, problem.microbatches, problem.n_devices
    cost, change = problem.costs.time[KINDS].ravel().tolist(), changes(problem).tolist()
    latency = [*problem.latency.T.ravel().tolist(), *[0.0] * S]
    home, first = np.tile(problem.device, 3).tolist(), offsets.ravel().tolist()
    codes = [[code for code in range(3 * S) if home[code] == device] for device in range(P)]
    # Later stages of a device need their activations before anything comes back.
    reserve = [float(problem.amounts[s:][problem.device[s:] == problem.device[s]].sum()) for s in range(S)]
    held, free = [0.0] * P, [0.0] * P
    ends: list[list[float]] = [[] for _ in range(3 * S)]
    queues: list[list[int]] = [[] for _ in range(P)]

    def decide(device: int) -> tuple[float, int]:
        """When the device starts its next op, and which; -1 for none as far as known."""
        ready = []
        for code in codes[device]:
            nth, need = len(ends[code]), code - S if code >= 2 * S - 1 else code - 1 if code < S else code + 1
            if nth == M or (need >= 0 and len(ends[need]) <= nth):
                continue
            if code >= S or held[device] + reserve[code] <= problem.caps[device] + ROUNDING:
                arrival = ends[need][nth] + latency[code] if need >= 0 else 0.0
                ready.append((max(arrival, free[device]), first[code] + period * nth, code))
        start = min(ready, default=(np.inf, 0, -1))[0]
        return start, min(((place, code) for at, place, code in ready if at <= start), default=(0, -1))[1]

    decided = [(*decide(device), device) for device in range(P)]
    for _ in range(3 * S * M):
        start, code, device = min(decided)
        if code < 0:
            return None
        free[device], held[device] = start + cost[code], held[device] + change[code]
        queues[device].append(code)
        ends[code].append(free[device])
        taker = code + 1 if code < S - 1 else code - 1 if S < code < 2 * S else code
        for other in {device, home[taker]}:
            decided[other] = (*decide(other), other)
    return [np.array(queue, np.int64) for queue in queues]
