"""The exact model of schedules whose devices run several streams side by side: copies, collectives, ops on all devices.

An op starts when the op before it on its lane has ended, and all its inputs have come; an op on all devices, when that
holds on each of them. Of devices that share a link to their host one at a time copies in each direction, first come,
first served.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from ppsim.core.costs import Costs
from ppsim.core.lanes import MISSING, NONE, Waits, groups_of, lanes_of, list_waits
from ppsim.core.ops import Stream
from ppsim.core.schedule import Schedule
from ppsim.core.timeline import Timeline
from ppsim.core.waiting import follow_circle
from ppsim.errors import Deadlock

Indices = NDArray[np.int64]
Floats = NDArray[np.float64]


def simulate_streams(schedule: Schedule, costs: Costs) -> Timeline:
    """Time every op of a schedule with several streams (Deadlock: ops wait in a cycle, or for one that never runs)."""
    duration = costs.durations(schedule)
    ((start, bound),) = run_streams(schedule, costs.host_link, duration[:, None], costs.latencies(schedule)[:, None])
    return Timeline(schedule, start, start + duration, bound.astype(np.int32), costs.unit, comm=costs.comm)


def run_streams(
    schedule: Schedule, shared: int, durations: Floats, latencies: Floats
) -> Iterator[tuple[Floats, Indices]]:
    """Yield the start of each op in each sample, and the op that set it (Deadlock: ops wait in a cycle, or for none).

    ``shared`` devices share a link to their host; 0 where each has its own. Durations and latencies of each op's
    message have shape (ops, samples); of ops that start together the first one's duration counts.
    """
    group, waits = groups_of(schedule), list_waits(schedule)
    missing = np.flatnonzero(waits.need == MISSING)
    if len(missing):
        raise Deadlock(*explain_missing(schedule, int(waits.op[missing[0]])))
    links = _links(schedule, shared)
    for duration, latency in zip(durations.T, latencies.T, strict=True):
        message = np.where(waits.message, latency[waits.op], 0.0)
        start, bound = _run(group, waits, message, duration, links)
        if (start[group] < 0).any():
            raise Deadlock(*_explain_cycle(schedule, group, waits, start[group] >= 0))
        yield start[group], bound[group]


def _links(schedule: Schedule, shared: int) -> list[int]:
    """The direction of a link to a host that each op takes, -1 for none."""
    stream = lanes_of(schedule) % len(Stream)
    copies = (stream == Stream.COPY_OUT) | (stream == Stream.COPY_IN)
    link = schedule.device // max(shared, 1) * len(Stream) + stream
    found: list[int] = np.where(copies & (shared > 0), link, NONE).tolist()
    return found


def _run(group: Indices, waits: Waits, message: Floats, duration: Floats, link: list[int]) -> tuple[Floats, Indices]:
    """Start every group in the order of time; return its start, -1 if it never does, and the op that set the start."""
    target, source = waits.op, waits.need
    inside = group[target] == group[source]  # a pair's second op waits for no more than its first
    target, made_by, message = group[target][~inside], source[~inside], message[~inside]
    order = np.argsort(group[made_by], kind="stable")
    after = np.searchsorted(group[made_by][order], np.arange(len(group) + 1)).tolist()
    target_of, source_of, delay_of = target[order].tolist(), made_by[order].tolist(), message[order].tolist()
    left, length = np.bincount(target, minlength=len(group)).tolist(), duration.tolist()
    start, ready, bound = [-1.0] * len(group), [0.0] * len(group), [NONE] * len(group)
    free, last = dict[int, float](), dict[int, int]()
    heap = [(0.0, 0.0, op) for op in np.flatnonzero(group == np.arange(len(group))).tolist() if left[op] == 0]
    heapify(heap)
    while heap:
        begin, came, op = heappop(heap)
        taken = link[op]
        if taken >= 0 and free.get(taken, 0.0) > begin:
            heappush(heap, (free[taken], came, op))
            continue
        if begin > came:
            bound[op] = last[taken]
        end = begin + length[op]
        start[op] = begin
        if taken >= 0:
            free[taken], last[taken] = end, op
        for edge in range(after[op], after[op + 1]):
            waiting, arrival = target_of[edge], end + delay_of[edge]
            if arrival > ready[waiting] or bound[waiting] == NONE:
                ready[waiting], bound[waiting] = arrival, source_of[edge]
            left[waiting] -= 1
            if left[waiting] == 0:
                heappush(heap, (ready[waiting], ready[waiting], waiting))
    return np.array(start), np.array(bound, np.int64)


def explain_missing(schedule: Schedule, op: int) -> tuple[str, str]:
    """Return the message and the hint for an op whose input no device makes."""
    what = f"device {schedule.device[op]} waits for the input of {schedule.label(op)}, which no device produces"
    return f"{schedule.name} cannot finish: {what}", "add the missing op to a queue"


def _explain_cycle(schedule: Schedule, group: Indices, waits: Waits, done: NDArray[np.bool_]) -> tuple[str, str]:
    """Follow the ops that wait for each other until one comes again."""
    target, source = waits.op, waits.need
    open_ = ~done[target] & ~done[source] & (group[target] != group[source])
    by_group = {int(group[t]): (int(t), int(s)) for t, s in zip(target[open_], source[open_], strict=True)}
    links = []
    for each in follow_circle(next(iter(by_group)), lambda at: int(group[by_group[at][1]])):
        op, need = by_group[each]
        links.append(
            f"{schedule.label(op)} on device {schedule.device[op]} waits for {schedule.label(need)} "
            f"on device {schedule.device[need]}"
        )
    return f"{schedule.name} deadlocks: {'; '.join(links)}", "move one of the awaited ops ahead in its queue"
