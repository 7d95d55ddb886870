"""Kernel that finds the causes of idle time.

Plain Python over indexable sequences, so that numba can compile the same source.
"""

from __future__ import annotations

from typing import Any

MESSAGE = 1  # the code of this cause; other causes are arguments


def attribute_gaps(
    offsets: Any,  # start of each device's queue
    other_stream: Any,  # whether each op runs on another stream than compute
    chosen: Any,  # the op of each op's pair whose input arrives last; the op itself without a pair
    need: Any,  # the op that makes each op's last input, -1 for none
    start: Any,  # start of each op
    end: Any,  # end of each op
    arrival: Any,  # arrival of each op's input; not used without an input
    ready: Any,  # the cause if the waiting op has its input
    late: Any,  # the cause if an awaited op has its input but does not run
    blame: Any,  # the op to blame for either
    runs: Any,  # the cause if an awaited op runs
    seg_op: Any,  # receives the op that waits
    seg_cause: Any,  # receives the cause
    seg_blamed: Any,  # receives the op that runs, is in transit, or is ready
    seg_start: Any,  # receives the start of the segment
    seg_end: Any,  # receives its end
) -> int:
    """Divide the idle time before every op into segments of one cause; return their number.

    A gap is walked backwards in time. At each instant exactly one input in the chain that the
    waiting op depends on is not done: it is in transit, running, or ready to run. Of several inputs
    it is the one that arrives last. If the ``seg`` columns are empty, segments are only counted.
    """
    count = 0
    room = len(seg_op)
    for d in range(len(offsets) - 1):
        free = 0.0
        for i in range(offsets[d], offsets[d + 1]):
            if other_stream[i]:
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
                    # the input had arrived: the device's host, or ops before an awaited op
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
