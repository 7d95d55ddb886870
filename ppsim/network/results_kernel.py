"""What the detailed model found out, for the compute ops alone.

Plain Python over indexable sequences, so that numba can compile the same source.
"""

from __future__ import annotations

from typing import Any

from ppsim.core.ops import Kind

SEND_F, RECV_F, RECV_B = map(int, (Kind.SEND_F, Kind.RECV_F, Kind.RECV_B))


def narrow(offsets: Any, ops: Any, arrive: Any, producer: Any, place: Any, start: Any, end: Any, bound: Any) -> None:
    """Times of the compute ops; what bound each is the compute op before it, or the one that sent its input.

    A receive bound the start if its message came by then, and when the compute op before was over already.

    Args:
        offsets: of the lowered queues.
        ops: their :class:`ppsim.network.tables.Ops` once all have run.
        arrive: when each message did.
        producer: the op whose result each carries.
        place: room for a number for each op.
        start: receives the start of each compute op.
        end: its end.
        bound: the compute op that set the start, -1 for none.
    """
    kind, pair, message_of, begin, over, by = ops.kind, ops.pair, ops.message, ops.start, ops.end, ops.bound
    count = 0
    for i in range(len(kind)):
        place[i] = count
        count += kind[i] < SEND_F
    for d in range(len(offsets) - 1):
        before = -1
        for i in range(offsets[d], offsets[d + 1]):
            if kind[i] >= SEND_F:
                continue
            at = place[i]
            start[at] = begin[i]
            end[at] = over[i]
            cause = before
            if by[i] >= 0 and (kind[by[i]] == RECV_F or kind[by[i]] == RECV_B):
                message = message_of[by[i]]
                idle = end[before] if before >= 0 else 0.0
                if idle < arrive[message] <= begin[i]:
                    cause = place[producer[message]]
            bound[at] = cause
            if pair[i] <= i:  # the second op of a pair is bound as its first
                before = at
