"""Queues as a search holds them: op codes per device, timed on the same arrays again and again."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.core.ops import Kind, Packed, pack
from ppsim.core.schedule import Schedule
from ppsim.search.order_kernel import Orders
from ppsim.search.problem import Problem

KINDS = np.array([Kind.F, Kind.I, Kind.W], np.int64)
Queues = list[NDArray[np.int64]]  # per device the codes of its ops, kind x stages + stage, kind 0 F, 1 I, 2 W


def make_orders(problem: Problem, queues: Queues) -> Orders:
    """Make the arrays that are timed from each device's op codes; the n-th op of a code is that of microbatch n."""
    offsets = np.cumsum([0, *map(len, queues)], dtype=np.int64)
    code = np.concatenate([np.asarray(q, np.int32) for q in queues])
    return Orders(
        offsets=offsets,
        device=problem.device.astype(np.int32),
        time=np.ascontiguousarray(problem.costs.time[KINDS].ravel(), np.float64),
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
    """Shape (ops,): how many ops of the same code come before each op."""
    by_code = np.argsort(code, kind="stable")
    ordered = code[by_code]
    first = np.flatnonzero(np.diff(ordered, prepend=-1))
    nth = np.arange(len(code)) - np.repeat(first, np.diff(np.append(first, len(code))))
    result = np.empty(len(code), np.int32)
    result[by_code] = nth
    return result


def read_orders(schedule: Schedule) -> Queues:
    """Return each device's op codes of a schedule of F, I and W."""
    kind = np.searchsorted(KINDS, schedule.kind)
    code = kind * schedule.n_stages + schedule.stage
    return [code[schedule.queue(d)] for d in range(schedule.n_devices)]


def pack_queues(problem: Problem, queues: Queues) -> list[Packed]:
    """Pack each device's op codes as a schedule's queues."""
    packed = []
    for queue in queues:
        kind, stage = np.divmod(queue, problem.n_stages)
        packed.append(pack(stage, count_occurrences(queue)) | KINDS[kind])
    return packed


def write_schedule(problem: Problem, queues: Queues) -> Schedule:
    """Make a schedule of each device's op codes."""
    packed = pack_queues(problem, queues)
    return Schedule.from_queues("optimized", problem.placement, problem.microbatches, packed)


def write_one_by_one(problem: Problem) -> Queues:
    """Write the schedule that finishes a microbatch before it starts the next: the least memory of all."""
    stages = np.arange(problem.n_stages)
    once = np.concatenate([stages, problem.n_stages + stages[::-1], 2 * problem.n_stages + stages])
    device = problem.device[once % problem.n_stages]
    return [np.tile(once[device == d], problem.microbatches) for d in range(problem.n_devices)]
