"""Queues of a search: op codes per device, timed repeatedly on the same arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.core.costs import Costs
from ppsim.core.ops import Kind, Packed, pack
from ppsim.core.schedule import Placement, Schedule
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure
from ppsim.search.problem import Problem
from ppsim.search.rules.order_kernel import Orders

KINDS = np.array([Kind.F, Kind.I, Kind.W], np.int64)
# For each device the codes of its ops: kind x stages + stage, kind 0 for F, 1 for I, 2 for W. An I
# directly followed by its W is one B on stages where B takes less time.
Queues = list[NDArray[np.int64]]


def make_orders(problem: Problem, queues: Queues) -> Orders:
    """Return the arrays to time each device's op codes; the n-th op of a code has microbatch n."""
    offsets = np.cumsum([0, *map(len, queues)], dtype=np.int64)
    code = np.concatenate([np.asarray(q, np.int32) for q in queues])
    return Orders(
        offsets=offsets,
        device=problem.device.astype(np.int32),
        time=np.ascontiguousarray(problem.costs.time[KINDS].ravel(), np.float64),
        full=np.where(problem.joins, problem.costs.time[Kind.B], -1.0),
        latency=np.ascontiguousarray(problem.latency.T.ravel()),
        code=code,
        microbatch=count_occurrences(code),
        start=np.zeros(len(code)),
        end=np.zeros(len(code)),
        result=np.zeros(2 * problem.n_stages * problem.microbatches),
        head=np.zeros(problem.n_devices, np.int64),
        awaited=np.zeros(problem.n_devices, np.int64),
        ready=np.zeros(problem.n_devices, np.int64),
    )


def count_occurrences(code: NDArray[Any]) -> NDArray[np.int32]:
    """Return the number of earlier ops with the same code for each op, shape (ops,)."""
    by_code = np.argsort(code, kind="stable")
    ordered = code[by_code]
    first = np.flatnonzero(np.diff(ordered, prepend=-1))
    nth = np.arange(len(code)) - np.repeat(first, np.diff(np.append(first, len(code))))
    result = np.empty(len(code), np.int32)
    result[by_code] = nth
    return result


def read_orders(schedule: Schedule) -> Queues:
    """Return each device's op codes for a schedule of F, B, I and W."""
    if (schedule.kind == Kind.B).any():
        from ppsim.core.split_backward import split_backwards

        schedule = split_backwards(schedule)
    code = np.searchsorted(KINDS, schedule.kind) * schedule.n_stages + schedule.stage
    return [code[schedule.queue(d)] for d in range(schedule.n_devices)]


def pack_queues(problem: Problem, queues: Queues) -> list[Packed]:
    """Return each device's op codes as packed queues of a schedule."""
    code = np.concatenate(queues)
    kind, stage = np.divmod(code, problem.n_stages)
    ops = pack(stage, count_occurrences(code)) | KINDS[kind]
    joined = np.flatnonzero(
        (kind[:-1] == 1) & problem.joins[stage[:-1]] & (np.diff(ops) == Kind.W - Kind.I)
    )
    ops[joined] += int(Kind.B) - int(Kind.I)
    ends = np.cumsum(list(map(len, queues)))[:-1]
    return np.split(np.delete(ops, joined + 1), ends - np.searchsorted(joined + 1, ends))


def write_schedule(problem: Problem, queues: Queues) -> Schedule:
    """Return the schedule of each device's op codes."""
    packed = pack_queues(problem, queues)
    return Schedule.from_queues("optimized", problem.placement, problem.microbatches, packed)


def join_backwards(problem: Problem, queues: Queues) -> Queues:
    """Return queues in which each W directly follows its I on stages where both may be one B."""
    result = []
    for queue in queues:
        kind, stage = np.divmod(queue, problem.n_stages)
        later = (kind == 2) & problem.joins[stage]
        kept = queue[~later]
        first = np.flatnonzero((kind[~later] == 1) & problem.joins[stage[~later]])
        result.append(np.insert(kept, first + 1, kept[first] + problem.n_stages))
    return result


def take_fastest(
    placement: Placement,
    microbatches: int,
    first: list[Packed],
    others: Iterable[list[Packed]],
    costs: Costs,
) -> list[Packed]:
    """Return the queues with the least makespan among those whose span is not above ``first``'s.

    Factors of microbatches and speeds of devices count.
    """

    def measured(queues: list[Packed]) -> tuple[float, float, list[Packed]]:
        metrics = measure(
            simulate(Schedule.from_queues("candidate", placement, microbatches, queues), costs)
        )
        return metrics.makespan, metrics.span, queues

    best = measured(first)
    longest = best[1]
    # attempts are often equal
    different = {b"".join(queue.tobytes() for queue in each): each for each in (first, *others)}
    for each in map(measured, list(different.values())[1:]):
        if each[1] <= longest and each[:2] < best[:2]:
            best = each
    return best[2]


def write_one_by_one(problem: Problem) -> Queues:
    """Return the queues that finish each microbatch before the next, with the least memory."""
    stages = np.arange(problem.n_stages)
    once = np.concatenate([stages, problem.n_stages + stages[::-1], 2 * problem.n_stages + stages])
    device = problem.device[once % problem.n_stages]
    order = np.argsort(device, kind="stable")
    ends = np.searchsorted(device[order], np.arange(1, problem.n_devices))
    return [np.tile(codes, problem.microbatches) for codes in np.split(once[order], ends)]
