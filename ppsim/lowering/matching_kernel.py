"""Who meets whom in lowered queues: one pass that finds the sides of every message by name.

Plain Python over indexable sequences, so that numba can compile the same source.
"""

from __future__ import annotations

from typing import Any

from ppsim.core.ops import Kind

F, W, UNSHARD = int(Kind.F), int(Kind.W), int(Kind.UNSHARD)
SEND_F, RECV_F, SEND_B, RECV_B = map(int, (Kind.SEND_F, Kind.RECV_F, Kind.SEND_B, Kind.RECV_B))
FAULT = -1


def connect(q: Any, legs: Any, where: Any, latest: Any, last: Any, w: Any) -> int:
    """Fill in the sides of every message; returns ``FAULT`` or how many ops have no input made ahead of them.

    Args:
        q: the queues: ``offsets``, ``kind``, ``stage``, ``microbatch`` and ``pair``, and the number of microbatches.
        legs: ``source``, ``target`` and ``link`` of each leg, and how many boundaries there are.
        where: 4 x stages x microbatches places of -1, for the ops that make a result and the receives.
        latest: a place for each stage, -1: the UNSHARD seen last.
        last: a place for each link, -1: the receive met last.
        w: columns to be filled in, see :class:`ppsim.lowering.matching.Wiring`; ``message`` and ``gathered`` come in
            as -1.
    """
    half = len(where) // 4
    for i in range(len(q.kind)):
        kind = q.kind[i]
        if kind <= RECV_B and (q.microbatch[i] < 0 or q.microbatch[i] >= q.microbatches):
            return FAULT
        if kind != W and kind <= RECV_B and kind != SEND_F and kind != SEND_B:
            table = min(kind, 1) if kind < W else kind // 2  # forwards, backwards, RECV_F, RECV_B
            where[table * half + q.stage[i] * q.microbatches + q.microbatch[i]] = i
    count = 0
    inputs = 0  # that come by message, and have no message yet
    disorder = 0
    for d in range(len(q.offsets) - 1):
        for i in range(q.offsets[d], q.offsets[d + 1]):
            kind = q.kind[i]
            stage = q.stage[i]
            if kind <= W and kind + stage > 0:
                other = stage - 1 if kind == F else stage + (kind != W)
                forward = kind == F or other > legs.boundaries
                row = min(other, legs.boundaries) + (0 if forward else legs.boundaries + 1)
                need = where[row * q.microbatches + q.microbatch[i]]
                if need >= 0 and (need < q.offsets[d] or need >= q.offsets[d + 1]):
                    inputs += 1
                elif need < 0 or need >= (i - 1 if 0 <= q.pair[i] < i else i):
                    disorder += 1
            if kind == UNSHARD:
                latest[stage] = i
            elif kind <= W and len(w.gathered) > 0 and latest[stage] >= q.offsets[d]:
                w.gathered[i] = latest[stage]
            if kind != SEND_F and kind != SEND_B:
                continue
            back = kind == SEND_B
            boundary = stage - back
            if boundary < 0 or boundary >= legs.boundaries or count == len(w.send):
                return FAULT
            leg = back * legs.boundaries + boundary
            if legs.source[leg] != d and leg + 2 * legs.boundaries < len(legs.source):
                leg += 2 * legs.boundaries  # of the second replica
            begin = q.offsets[legs.target[leg]]
            stop = q.offsets[legs.target[leg] + 1]
            near = back * half + stage * q.microbatches + q.microbatch[i]
            far = back * half + (boundary + 1 - back) * q.microbatches + q.microbatch[i]
            producer = where[near]
            consumer = where[far]
            receive = where[2 * half + far]
            if legs.source[leg] != d or producer < q.offsets[d] or producer > i:
                return FAULT
            if receive < begin or receive >= stop or receive <= last[legs.link[leg]]:
                return FAULT
            last[legs.link[leg]] = receive
            w.leg[count] = leg
            w.send[count] = i
            w.receive[count] = receive
            w.producer[count] = producer
            w.consumer[count] = consumer if legs.target[leg] != d else -1
            w.message[i] = count
            w.message[receive] = count
            if consumer >= 0 and legs.target[leg] != d:
                if consumer < begin or consumer >= stop:
                    return FAULT
                w.message[consumer] = count
                inputs -= 1
            count += 1
    return disorder if inputs == 0 else FAULT
