"""Causes of idle time: plain Python over indexable sequences, so that numba can compile the same
source.
"""

from __future__ import annotations

from typing import Any

# A device is idle at one instant because its input is on a link; other causes are given.
MESSAGE = 1


def attribute_gaps(
    offsets: Any,  # where each device's queue begins
    beside: Any,  # whether each op leaves its device idle
    chosen: Any,  # of each op the one of its pair whose input arrives last; itself alone
    need: Any,  # op whose result comes last to each op, -1 for none
    start: Any,  # start of each op
    end: Any,  # end of each op
    arrival: Any,  # when the input of each op is on its device; anything for an op without one
    ready: Any,  # the cause where an op before which the device is idle has its input
    late: Any,  # the cause where an op that is waited for has its input and does not run
    blame: Any,  # the op to blame for either
    runs: Any,  # the cause where an op that is waited for runs
    seg_op: Any,  # receives the op that waits
    seg_cause: Any,  # receives the cause
    seg_blamed: Any,  # receives the op that runs, is carried, or is ready
    seg_start: Any,  # receives the start of the segment
    seg_end: Any,  # receives its end
) -> int:
    """Split the idle time before every op into segments of one cause each; return the number of
    segments.

    A gap is walked backwards in time. At each instant the chain of inputs that the waiting op
    depends on has exactly one link that is not done: it is on its way, it is running, or it could
    run. Of several inputs that is the one that arrives last. With no room in the ``seg`` columns
    (length zero) the segments are only counted.
    """
    count = 0
    room = len(seg_op)
    for d in range(len(offsets) - 1):
        free = 0.0
        for i in range(offsets[d], offsets[d + 1]):
            if beside[i]:
                continue
            if start[i] <= free:
                free = max(free, end[i])
                continue
            time = start[i]
            op = chosen[i]
            waits = True
            while op >= 0 and time > free:
                source = need[op]
                for step in range(3 if source >= 0 else 1):
                    # the input had arrived: the device's own host, or the ops before an awaited op
                    if step == 0:
                        since = arrival[op] if source >= 0 else 0.0
                        cause = ready[op] if waits else late[op]
                        blamed = blame[op]
                    elif step == 1:
                        since, cause, blamed = end[source], MESSAGE, op
                    else:
                        since, cause, blamed = start[source], runs[source], source
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
                waits = False
                op = chosen[source] if source >= 0 else source
            free = end[i]
    return count
