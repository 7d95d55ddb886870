"""The inner loop of the simple model for schedules of several streams: groups of ops in the order of time.

Plain Python over indexable sequences, as :mod:`ppsim.engine.simple.longest_path_kernel`.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import NamedTuple

from ppsim.core.columns import Floats, Ints
from ppsim.core.lanes import NONE


class Columns(NamedTuple):
    """All that the kernel reads and writes; ops that start together are one group, named by its first op."""

    after: Ints  # shape (ops + 1,), where the edges from each group begin and end
    target: Ints  # shape (edges,), the group that waits
    source: Ints  # shape (edges,), the op that it waits for
    delay: Floats  # shape (edges,), the latency of that one's message
    length: Floats  # shape (ops,), duration of each group
    link: Ints  # shape (ops,), the direction of a link to a host that a group takes, -1 for none
    first: Ints  # the groups that wait for nothing
    left: Ints  # shape (ops,), how many edges each group waits for; 0 where it ran
    free: Floats  # shape (links,), zeros: receives when each direction is free
    last: Ints  # shape (links,), receives the group that took it last
    start: Floats  # shape (ops,), -1 everywhere: receives the start of each group
    ready: Floats  # shape (ops,), zeros: receives when its inputs have come
    bound: Ints  # shape (ops,), -1 everywhere: receives the op that set the start


def execute(columns: Columns) -> None:
    """Start every group in the order of time, first come, first served on a link; those in a cycle never do."""
    after, target, source, delay = columns.after, columns.target, columns.source, columns.delay
    length, link, left, free, last = columns.length, columns.link, columns.left, columns.free, columns.last
    start, ready, bound = columns.start, columns.ready, columns.bound
    heap = [(0.0, 0.0, op) for op in columns.first]
    heapify(heap)
    while len(heap) > 0:
        begin, came, op = heappop(heap)
        taken = link[op]
        if taken >= 0 and free[taken] > begin:
            heappush(heap, (free[taken], came, op))
            continue
        if begin > came:
            bound[op] = last[taken]
        end = begin + length[op]
        start[op] = begin
        if taken >= 0:
            free[taken] = end
            last[taken] = op
        for edge in range(after[op], after[op + 1]):
            waiting = target[edge]
            arrival = end + delay[edge]
            if arrival > ready[waiting] or bound[waiting] == NONE:
                ready[waiting] = arrival
                bound[waiting] = source[edge]
            left[waiting] -= 1
            if left[waiting] == 0:
                heappush(heap, (ready[waiting], ready[waiting], waiting))
