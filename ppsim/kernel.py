"""The execution model's inner loop: exact longest path over device queues, driven by events.

The function is plain Python over indexable sequences. CPython runs it over lists where that is quickest;
numba compiles the same source for large inputs (see ``ppsim.engine``).
"""

from __future__ import annotations

from typing import Any


def execute(
    offsets: Any,
    device: Any,
    dependency: Any,
    pair: Any,
    duration: Any,
    latency: Any,
    start: Any,
    end: Any,
    bound: Any,
    head: Any,
    first_waiter: Any,
    next_waiter: Any,
    ready: Any,
) -> int:
    """Run every queue as far as it goes; returns how many ops ran.

    ``end`` comes in as -1 everywhere and tells whether an op has run. ``bound`` receives the op whose end (and
    message) set the start: the op before in the queue, or the dependency that came later; -1 for neither.
    ``head`` receives where each queue stands. ``first_waiter`` and ``next_waiter`` (-1 each) chain the devices
    that wait for a device, ``ready`` is a stack of the devices to try next.
    """
    devices = len(offsets) - 1
    for d in range(devices):
        head[d] = offsets[d]
        ready[d] = devices - 1 - d
    depth = devices
    ran = 0
    while depth > 0:
        depth -= 1
        d = ready[depth]
        i = head[d]
        stop = offsets[d + 1]
        now = end[i - 1] if i > offsets[d] else 0
        awaited = -1
        while i < stop:
            begin = now
            cause = i - 1 if i > offsets[d] else -1
            last = i if pair[i] < 0 else i + 1
            awaited = -1
            for op in range(i, last + 1):
                need = dependency[op]
                if need != -1:
                    if need < 0 or end[need] < 0:
                        awaited = need
                        break
                    arrival = end[need] + latency[op]
                    if arrival > begin:
                        begin = arrival
                        cause = need
            if awaited != -1:
                break
            now = begin + duration[i]
            for op in range(i, last + 1):
                start[op] = begin
                end[op] = now
                bound[op] = cause
            ran += last + 1 - i
            i = last + 1
        head[d] = i
        if awaited >= 0:
            on = device[awaited]
            next_waiter[d] = first_waiter[on]
            first_waiter[on] = d
        waiter = first_waiter[d]
        first_waiter[d] = -1
        while waiter >= 0:
            after = next_waiter[waiter]
            op = head[waiter]
            awaited = -1
            for member in range(op, op + 1 if pair[op] < 0 else op + 2):
                need = dependency[member]
                if need != -1 and (need < 0 or end[need] < 0):
                    awaited = need
                    break
            if awaited == -1:
                ready[depth] = waiter
                depth += 1
            elif awaited >= 0:
                on = device[awaited]
                next_waiter[waiter] = first_waiter[on]
                first_waiter[on] = waiter
            waiter = after
    return ran
