"""Queues as a search holds them: op codes per device, timed on the same arrays again and again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.base.compiled import call, can_compile
from ppsim.core.ops import Kind, pack
from ppsim.core.schedule import Schedule
from ppsim.search import order_kernel
from ppsim.search.order_kernel import Orders
from ppsim.search.problem import Problem

KINDS = np.array([Kind.F, Kind.I, Kind.W], np.int64)


def make_orders(problem: Problem, queues: Sequence[NDArray[Any]]) -> Orders:
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


def count_occurrences(code: NDArray[np.int32]) -> NDArray[np.int32]:
    """Shape (ops,): how many ops of the same code come before each op."""
    by_code = np.argsort(code, kind="stable")
    ordered = code[by_code]
    first = np.flatnonzero(np.diff(ordered, prepend=-1))
    nth = np.arange(len(code)) - np.repeat(first, np.diff(np.append(first, len(code))))
    result = np.empty(len(code), np.int32)
    result[by_code] = nth
    return result


def read_orders(schedule: Schedule) -> list[NDArray[np.int64]]:
    """Return each device's op codes of a schedule of F, I and W."""
    kind = np.searchsorted(KINDS, schedule.kind)
    code = kind * schedule.n_stages + schedule.stage
    return [code[schedule.queue(d)] for d in range(schedule.n_devices)]


def write_schedule(problem: Problem, code: NDArray[Any], offsets: NDArray[Any], name: str = "optimized") -> Schedule:
    """Make a schedule of op codes."""
    kind, stage = np.divmod(np.asarray(code, np.int64), problem.n_stages)
    packed = pack(stage, count_occurrences(np.asarray(code, np.int32))) | KINDS[kind]
    queues = [packed[a:b] for a, b in pairwise(offsets)]
    return Schedule.from_queues(name, problem.placement, problem.microbatches, queues)


def time_orders(orders: Orders) -> bool:
    """Time the queues; tell whether they finish."""
    ran = call(order_kernel.time_orders, orders) if can_compile() else order_kernel.time_orders(orders)
    return bool(ran == len(orders.code))


def span_of(orders: Orders) -> float:
    """Return the longest time from a device's first start to its last end."""
    filled = np.flatnonzero(np.diff(orders.offsets))
    return float((orders.end[orders.offsets[1:][filled] - 1] - orders.start[orders.offsets[:-1][filled]]).max())
