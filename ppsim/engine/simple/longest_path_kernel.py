"""The inner loop of the simple model: the exact longest path over the lanes of all devices.

A lane is one stream of one device: a queue of ops, each of which starts after the one before it. If
devices only compute, the lanes are the devices' queues. Columns list the ops lane by lane: lane
``l`` has ops ``offsets[l]:offsets[l + 1]``, and an op is given by its place in that order.

An op starts at the latest of the following times. The first of equal ones is its ``bound``:

1. the end of the op before it on its lane;
2. the arrival of its input from the neighbouring stage. The op's kind and stage determine that
   input (``input_entry``), so it is not listed for each op;
3. the arrivals of its other inputs, in the order of ``inputs``: copies, results of collectives, the
   op that gates it. If devices only compute there are none.

The two ops of a pair run as one op with the inputs of both, the first op's before the second's.
After its inputs an op may have to pass a gate:

- A meeting of all devices: its members start together when the last one is ready, and have that
  one's bound (of the first device, if several are last).
- A link that several devices share: it carries one copy at a time, first come, first served. A copy
  that has to wait is bound by the copy before it on the link.

The kernel works depth first. Each turn takes one lane from a stack and runs it until its end, or
until an op needs a result that does not exist yet. Then the lane leaves its code in the entry of
that result, and the op that makes the result puts the lane back on the stack. A copy on a shared
link waits in a heap. When no other op can run, the copy that can start first takes its link: no
copy that is still unknown could start before it.

The function is plain Python over indexable sequences. CPython runs it over lists, which are fastest
there; numba compiles the same source for large inputs (:mod:`ppsim.engine.simple.longest_path`).
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

from ppsim.core.columns import Codes, Flags, Floats, Ids, Ints
from ppsim.core.ops import COMPUTE, TIMED, Kind
from ppsim.core.waiting import PARTS as WAITING
from ppsim.core.waiting import UNKNOWN, wait_code, waiting_device

FULL_BACKWARD = int(Kind.B)
KINDS, ALL_KINDS = len(COMPUTE), len(TIMED)


class Columns(NamedTuple):
    """The kernel's inputs and outputs.

    An *entry* stores the op that made a result. There are N entries by stage, microbatch and
    direction. If devices have several lanes, an entry for each op follows, one for each meeting,
    and one for results that no op makes.
    """

    offsets: Ints  # shape (lanes + 1,), start and end of each lane
    kind: Codes  # shape (ops,), code of the op's kind
    stage: Ids  # shape (ops,); 0 for an op without a stage
    microbatch: Ids  # shape (ops,)
    pair: Ids  # shape (ops,), the partner op, -1 for none
    device: Ids  # shape (ops,), the op's device; empty unless ``latency`` is by link
    # shape (kinds x stages,), the entry of the result for microbatch 0, N for none
    result_entry: Ints
    input_entry: Ints  # shape (kinds x stages,), the entry of the input for microbatch 0
    inputs_at: Ints  # shape (ops + 1,), start and end of each op's other inputs
    inputs: Ints  # shape (other inputs,), their entries
    sent: Flags  # shape (other inputs,), whether it is a message from another device
    # shape (ops,), -1 for no gate, the number of a meeting, or meetings + the number of a link;
    # empty if devices only compute
    gate: Ints
    # shape (entries,), the op that made the result; before that ``UNKNOWN``, or the code of a lane
    # that waits for it (see :mod:`ppsim.core.waiting`)
    maker: Ids
    time: Floats  # shape (kinds x stages,), duration of an op
    # shape (stages,), half the duration of a pair with a full backward; empty if a pair takes the
    # sum of its ops
    halves: Floats
    # shape (ops,), the duration of each op, for both ops of a pair the pair's; empty if ``time``
    # and ``halves`` determine it
    own: Floats
    # latency of a message: one number; or shape (devices x devices,), by source and target; or
    # shape (ops,), of the message that each op receives
    latency: Floats
    start: Floats  # shape (ops,), receives the start of each op
    end: Floats  # shape (ops,), receives its end
    bound: Ids  # shape (ops,), receives the op that decided its start, -1 for none
    head: Ints  # shape (lanes,), receives the first op of each lane that has not run
    waiter: Ints  # shape (lanes,), the chain of lanes that wait for the same result
    ready: Ints  # shape (lanes,), the stack of lanes to try next
    missing: Ints  # shape (meetings,), number of members that are not ready yet
    latest: Ids  # shape (meetings,), -1 at first: receives the member that is ready last
    free: Floats  # shape (links,), 0 at first: receives the time at which each link is free
    last: Ids  # shape (links,), -1 at first: receives the copy that took the link last
    turn: Ids  # shape (links,), -1 at first: receives the copy that may take the link


def execute(columns: Columns) -> int:
    """Run every lane as far as possible; return the number of ops that ran."""
    offsets, kind, stage = columns.offsets, columns.kind, columns.stage
    microbatch, pair = columns.microbatch, columns.pair
    gives, needs, maker = columns.result_entry, columns.input_entry, columns.maker
    inputs_at, inputs, sent, gate = columns.inputs_at, columns.inputs, columns.sent, columns.gate
    time, halves, device = columns.time, columns.halves, columns.device
    start, end, bound = columns.start, columns.end, columns.bound
    head, waiter, ready = columns.head, columns.waiter, columns.ready
    missing, latest = columns.missing, columns.latest
    lanes = len(offsets) - 1
    for lane in range(lanes):
        head[lane] = offsets[lane]
        ready[lane] = lanes - 1 - lane
    depth = lanes
    ran = 0
    meetings = len(missing)
    side_by_side = len(gate) > 0
    stages = len(needs) // (ALL_KINDS if side_by_side else KINDS)
    nothing = len(maker) - (len(gate) + meetings + 1 if side_by_side else 0)
    alike = len(columns.own) == 0
    pairs_cost = alike and len(halves) > 0
    latency = columns.latency[0]
    differ = len(columns.latency) > 1
    by_link = len(device) > 0
    devices = int(len(columns.latency) ** 0.5 + 0.5)
    # copies that wait for a shared link: earliest start, time of arrival, op, lane
    copies = [(0.0, 0.0, 0, 0) for _ in range(0)]
    while True:
        if depth == 0:
            if len(copies) == 0:
                return ran
            begin, came, op, lane = heappop(copies)
            link = gate[op] - meetings
            if columns.free[link] > begin:
                heappush(copies, (columns.free[link], came, op, lane))
                continue
            columns.turn[link] = op
            ready[0] = lane
            depth = 1
        depth -= 1
        lane = ready[depth]
        first = offsets[lane]
        stop = offsets[lane + 1]
        op = head[lane]  # the next op to run, or the first of a pair
        begin = end[op - 1] if op > first else 0.0
        cause = op - 1 if op > first else UNKNOWN
        duration = 0.0
        awaited = UNKNOWN
        after = op  # the op whose inputs are checked: ``op``, or the second one of its pair
        while after < stop:
            row = kind[after] * stages + stage[after]
            entry = needs[row]
            if entry < nothing:
                entry += microbatch[after]
                need = maker[entry]
                if need < 0:
                    awaited = entry
                    break
                arrival = end[need]
                if need < first or need >= stop:
                    if differ:
                        link = device[need] * devices + device[after] if by_link else after
                        latency = columns.latency[link]
                    arrival += latency
                if arrival > begin:
                    begin = arrival
                    cause = need
            if side_by_side:
                for place in range(inputs_at[after], inputs_at[after + 1]):
                    need = maker[inputs[place]]
                    if need < 0:
                        awaited = inputs[place]
                        break
                    arrival = end[need]
                    if sent[place]:
                        if differ:
                            link = device[need] * devices + device[after] if by_link else after
                            latency = columns.latency[link]
                        arrival += latency
                    if arrival > begin:
                        begin = arrival
                        cause = need
                if awaited != UNKNOWN:
                    break
            duration += time[row]
            after += 1
            if pair[after - 1] >= after:
                continue
            link = UNKNOWN
            if side_by_side and gate[op] >= 0:
                if gate[op] < meetings:
                    meeting = gate[op]
                    entry = nothing + len(gate) + meeting
                    if missing[meeting] > 0:  # otherwise this lane has been counted before
                        missing[meeting] -= 1
                        start[op] = begin
                        bound[op] = cause
                        other = latest[meeting]
                        later = other < 0 or begin > start[other]
                        if later or (begin == start[other] and op < other):
                            latest[meeting] = op
                        if missing[meeting] > 0:
                            awaited = entry
                            break
                        depth = wake(maker, entry, op, waiter, ready, depth)
                    begin = start[latest[meeting]]
                    cause = bound[latest[meeting]]
                else:
                    link = gate[op] - meetings
                    if columns.turn[link] != op:
                        heappush(copies, (begin, begin, op, lane))
                        break
                    if columns.free[link] > begin:
                        begin = columns.free[link]
                        cause = columns.last[link]
            if pairs_cost and after - op == 2 and FULL_BACKWARD in (kind[op], kind[op + 1]):
                duration = halves[stage[op]] + halves[stage[op + 1]]
            if not alike:
                duration = columns.own[op]
            now = begin + duration
            if link != UNKNOWN:
                columns.free[link] = now
                columns.last[link] = op
            while op < after:
                start[op] = begin
                end[op] = now
                bound[op] = cause
                entry = gives[kind[op] * stages + stage[op]]
                if entry < nothing:
                    entry += microbatch[op]
                    code = maker[entry]
                    maker[entry] = op
                    while code < UNKNOWN:
                        woken = waiting_device(code)
                        ready[depth] = woken
                        depth += 1
                        code = waiter[woken]
                if side_by_side:
                    depth = wake(maker, nothing + op, op, waiter, ready, depth)
                op += 1
            begin = now
            cause = op - 1
            duration = 0.0
        ran += op - head[lane]
        head[lane] = op
        if awaited != UNKNOWN:
            waiter[lane] = maker[awaited]
            maker[awaited] = wait_code(lane)


def wake(maker: Ids, entry: int, op: int, waiter: Ints, ready: Ints, depth: int) -> int:
    """Push the lanes that wait for a result of ``op`` on the stack; return its new depth."""
    code = maker[entry]
    maker[entry] = op
    while code < UNKNOWN:
        woken = waiting_device(code)
        ready[depth] = woken
        depth += 1
        code = waiter[woken]
    return depth


PARTS = (*WAITING, wake)  # for :func:`ppsim.base.compiled.load`
