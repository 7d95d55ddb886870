"""The execution model's inner loop: exact longest path over device queues, driven by events.

The function is plain Python over indexable sequences. CPython runs it over lists where that is quickest;
numba compiles the same source for large inputs (see ``ppsim.simulation.longest_path``).
"""

from __future__ import annotations

from typing import Any

from ppsim.core.ops import Kind

FULL = int(Kind.B)


def execute(
    offsets: Any,
    kind: Any,
    stage: Any,
    microbatch: Any,
    pair: Any,
    device: Any,
    gives: Any,
    needs: Any,
    nothing: int,
    runs: Any,
    time: Any,
    halves: Any,
    comm: Any,
    links: bool,
    start: Any,
    end: Any,
    bound: Any,
    head: Any,
    next_waiter: Any,
    ready: Any,
) -> int:
    """Run every queue as far as it goes; returns how many ops ran.

    ``gives`` and ``needs`` lead from a kind and stage to where results are kept (see :meth:`Schedule.results`), at
    ``nothing`` for none. ``runs``, -1 everywhere, receives the op that left each result; until then -2 - d where
    device d waits for it, and ``next_waiter`` chains those that wait for the same. ``time`` is by kind and stage,
    ``halves`` half a pair's time by stage, or empty: the sum of its ops. ``comm`` is by sender and receiver where
    ``links`` differ, else one number. ``bound`` receives the op whose end (and message) set the start: the op before
    in the queue, or the one that gave the input; -1 for neither. ``head`` receives where each queue stands, ``ready``
    is a stack of the devices to try next.
    """
    devices = len(offsets) - 1
    stages = len(needs) // 4
    for d in range(devices):
        head[d] = offsets[d]
        ready[d] = devices - 1 - d
    depth = devices
    ran = 0
    latency = comm[0]
    while depth > 0:
        depth -= 1
        d = ready[depth]
        first = offsets[d]
        stop = offsets[d + 1]
        i = head[d]
        begin = end[i - 1] if i > first else 0
        cause = i - 1 if i > first else -1
        duration = 0
        awaited = -1
        op = i
        while op < stop:
            row = kind[op] * stages + stage[op]
            result = needs[row]
            if result < nothing:
                result += microbatch[op]
                need = runs[result]
                if need < 0:
                    awaited = result
                    break
                arrival = end[need]
                if need < first or need >= stop:
                    if links:
                        latency = comm[device[need] * devices + d]
                    arrival += latency
                if arrival > begin:
                    begin = arrival
                    cause = need
            duration += time[row]
            op += 1
            if pair[op - 1] >= op:
                continue
            if op - i == 2 and len(halves) > 0 and (kind[i] == FULL or kind[op - 1] == FULL):
                duration = halves[stage[i]] + halves[stage[op - 1]]
            now = begin + duration
            while i < op:
                start[i] = begin
                end[i] = now
                bound[i] = cause
                result = gives[kind[i] * stages + stage[i]]
                if result < nothing:
                    result += microbatch[i]
                    waiter = -2 - runs[result]
                    runs[result] = i
                    while waiter >= 0:
                        ready[depth] = waiter
                        depth += 1
                        waiter = next_waiter[waiter]
                i += 1
            begin = now
            cause = i - 1
            duration = 0
        ran += i - head[d]
        head[d] = i
        if awaited >= 0:
            next_waiter[d] = -2 - runs[awaited]
            runs[awaited] = -2 - d
    return ran
