"""The inner loop of the simple model: the exact longest path over device queues.

The function is plain Python over indexable sequences. CPython runs it over lists, which are fastest there;
numba compiles the same source for large inputs (see :mod:`ppsim.engine.simple.longest_path`).
"""

from __future__ import annotations

from typing import NamedTuple

from ppsim.core.columns import Codes, Floats, Ids, Ints
from ppsim.core.ops import COMPUTE, Kind
from ppsim.core.waiting import UNKNOWN, wait_code, waiting_device

FULL_BACKWARD = int(Kind.B)
KINDS = len(COMPUTE)


class Columns(NamedTuple):
    """All that the kernel reads and writes."""

    offsets: Ints  # shape (devices + 1,), where each device's queue begins and ends
    kind: Codes  # shape (ops,), code of the op's kind
    stage: Ids  # shape (ops,)
    microbatch: Ids  # shape (ops,)
    pair: Ids  # shape (ops,), index of the partner op, -1 for none
    device: Ids  # shape (ops,), the op's device; empty where all links have one latency
    # shape (kinds x stages,), the place in ``maker`` of a kind's and stage's result for microbatch 0; the length of
    # ``maker`` for none
    gives: Ints
    needs: Ints  # likewise the place of its input
    # a place per stage, microbatch and direction, the op that left that result; ``UNKNOWN`` everywhere at first, and
    # until the op has run perhaps the code of a device that waits (see :mod:`ppsim.core.waiting`)
    maker: Ids
    time: Floats  # shape (kinds x stages,), duration of an op
    # shape (stages,), half the duration of a pair with a full backward; empty where a pair takes the sum of its ops
    halves: Floats
    # shape (ops,), the duration of each op, both ops of a pair carrying the pair's; empty where ``time`` and ``halves``
    # say it
    own: Floats
    # shape (devices x devices,), latency of a message by source and target; one number where all links are alike
    latency: Floats
    start: Floats  # shape (ops,), receives the start of each op
    end: Floats  # shape (ops,), its end
    # shape (ops,), the op whose end (and message) set the start: the one before in the queue, or the one that gave the
    # input; the former where both come at one time, -1 for neither
    bound: Ids
    head: Ints  # shape (devices,), the first op of each device that has not run
    waiter: Ints  # shape (devices,), the chain of devices that wait for the same result
    ready: Ints  # shape (devices,), a stack of the devices to try next


def execute(columns: Columns) -> int:
    """Run every queue as far as it goes; return how many ops ran.

    Each turn takes one device and runs its queue until it ends or needs a result that no op has left yet. There the
    device leaves its code, and the op that leaves the result puts it back on the stack.
    """
    offsets, kind, stage, microbatch, pair = (
        columns.offsets, columns.kind, columns.stage, columns.microbatch, columns.pair
    )  # fmt: skip
    gives, needs, maker, time, halves = columns.gives, columns.needs, columns.maker, columns.time, columns.halves
    start, end, bound = columns.start, columns.end, columns.bound
    head, waiter, ready = columns.head, columns.waiter, columns.ready
    devices = len(offsets) - 1
    stages = len(needs) // KINDS
    for device in range(devices):
        head[device] = offsets[device]
        ready[device] = devices - 1 - device
    depth = devices
    ran = 0
    nothing = len(maker)
    alike = len(columns.own) == 0
    pairs_cost = alike and len(halves) > 0
    latency = columns.latency[0]
    links_differ = len(columns.latency) > 1
    while depth > 0:
        depth -= 1
        device = ready[depth]
        first = offsets[device]
        stop = offsets[device + 1]
        op = head[device]  # the next to run: an op, or the first of a pair
        begin = end[op - 1] if op > first else 0
        cause = op - 1 if op > first else UNKNOWN
        duration = 0
        awaited = -1
        after = op  # the op, or the pair's second one, whose input is looked for
        while after < stop:
            row = kind[after] * stages + stage[after]
            place = needs[row]
            if place < nothing:
                place += microbatch[after]
                need = maker[place]
                if need < 0:
                    awaited = place
                    break
                arrival = end[need]
                if need < first or need >= stop:
                    if links_differ:
                        latency = columns.latency[columns.device[need] * devices + device]
                    arrival += latency
                if arrival > begin:
                    begin = arrival
                    cause = need
            duration += time[row]
            after += 1
            if pair[after - 1] >= after:
                continue
            if pairs_cost and after - op == 2 and (kind[op] == FULL_BACKWARD or kind[op + 1] == FULL_BACKWARD):
                duration = halves[stage[op]] + halves[stage[op + 1]]
            if not alike:
                duration = columns.own[op]
            now = begin + duration
            while op < after:
                start[op] = begin
                end[op] = now
                bound[op] = cause
                place = gives[kind[op] * stages + stage[op]]
                if place < nothing:
                    place += microbatch[op]
                    entry = maker[place]
                    maker[place] = op
                    while entry < UNKNOWN:
                        woken = waiting_device(entry)
                        ready[depth] = woken
                        depth += 1
                        entry = waiter[woken]
                op += 1
            begin = now
            cause = op - 1
            duration = 0
        ran += op - head[device]
        head[device] = op
        if awaited >= 0:
            waiter[device] = maker[awaited]
            maker[awaited] = wait_code(device)
    return ran
