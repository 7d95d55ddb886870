"""Why devices are idle: plain Python over indexable sequences, so that numba can compile the same source."""

from __future__ import annotations

from typing import Any

# Why a device is idle at one instant: its own host, its input on a link, its input being computed, or its input
# ready to be computed on a device that runs something else first.
HOST, MESSAGE, COMPUTE, ORDER = range(4)


def attribute_gaps(
    offsets: Any,
    pair: Any,
    dependency: Any,
    start: Any,
    end: Any,
    arrival: Any,
    seg_op: Any,
    seg_cause: Any,
    seg_blamed: Any,
    seg_start: Any,
    seg_end: Any,
) -> int:
    """Split the idle time before every op into segments of one cause each; returns how many there are.

    A gap is walked backwards in time. At each instant the chain of inputs that the waiting op depends on has exactly
    one link that is not done: it is on its way, it is running, or it could run. Of a pair's two inputs that is the one
    that arrives last; where both arrive together, that of its first op in the queue. With no room in the ``seg``
    columns (length zero) the segments are only counted.

    Args:
        offsets: where each device's queue begins.
        pair: partner of each op, -1 for none.
        dependency: op whose result each op needs, -1 for none.
        start: start of each op.
        end: end of each op.
        arrival: when the input of each op is on its device; anything for an op without one.
        seg_op: receives the op that waits.
        seg_cause: receives the cause.
        seg_blamed: receives the op that runs, is carried, or is ready; the waiting op itself for ``HOST``.
        seg_start: receives the start of the segment.
        seg_end: receives its end.
    """
    count = 0
    room = len(seg_op)
    for d in range(len(offsets) - 1):
        free = 0.0
        for i in range(offsets[d], offsets[d + 1]):
            if start[i] <= free:
                free = max(free, end[i])
                continue
            time = start[i]
            op = i
            while op >= 0 and time > free:
                if pair[op] >= 0:
                    first, second = min(op, pair[op]), max(op, pair[op])
                    op = first
                    if dependency[second] >= 0 and (dependency[first] < 0 or arrival[second] > arrival[first]):
                        op = second
                need = dependency[op]
                for step in range(3 if need >= 0 else 1):
                    if step == 0:  # the input was there: the device's own host, or another device's queue
                        since = arrival[op] if need >= 0 else 0.0
                        cause = HOST if op == i or op == pair[i] else ORDER
                        blamed = op
                    elif step == 1:
                        since, cause, blamed = end[need], MESSAGE, op
                    else:
                        since, cause, blamed = start[need], COMPUTE, need
                    since = min(max(since, free), time)
                    if since < time:
                        if count < room:
                            seg_op[count] = i
                            seg_cause[count] = cause
                            seg_blamed[count] = blamed
                            seg_start[count] = since
                            seg_end[count] = time
                        count += 1
                        time = since
                op = need
            free = end[i]
    return count
