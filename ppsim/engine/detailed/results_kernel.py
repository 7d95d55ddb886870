"""Kernel that reads the compute ops' times off the detailed model's results.

Plain Python over indexable sequences, so that numba can compile the same source.
"""

from __future__ import annotations

from typing import NamedTuple

from ppsim.core.columns import Floats, Ids, Ints
from ppsim.core.ops import COMPUTE, Kind
from ppsim.engine.detailed.tables import OpTable

COMPUTES = len(COMPUTE)  # the codes below it compute
RECV_F, RECV_B = int(Kind.RECV_F), int(Kind.RECV_B)


class ComputeTable(NamedTuple):
    """Columns that receive one entry per compute op."""

    start: Floats
    end: Floats
    bound: Ids  # the compute op that decided its start, -1 for none


def project_onto_compute(
    offsets: Ints, ops: OpTable, arrive: Floats, producer: Ids, place: Ids, compute: ComputeTable
) -> None:
    """Write the times and bounds of the compute ops into ``compute``.

    An op is bound by the previous compute op, or by the producer of its input if the message
    arrived after that op ended, and no later than the start. ``arrive`` has the end of each
    receive, ``producer`` the op whose result each message carries, shape (messages,) each.
    ``place``, shape (ops,), receives each op's index among the compute ops.
    """
    kind, pair, message_of, start, end, bound = (
        ops.kind,
        ops.pair,
        ops.message,
        ops.start,
        ops.end,
        ops.bound,
    )
    count = 0
    for op in range(len(kind)):
        place[op] = count
        count += kind[op] < COMPUTES
    for device in range(len(offsets) - 1):
        before = -1
        for op in range(offsets[device], offsets[device + 1]):
            if kind[op] >= COMPUTES:
                continue
            index = place[op]
            compute.start[index] = start[op]
            compute.end[index] = end[op]
            cause = before
            by = bound[op]
            if by >= 0 and (kind[by] == RECV_F or kind[by] == RECV_B):
                message = message_of[by]
                previous_end = compute.end[before] if before >= 0 else 0.0
                if previous_end < arrive[message] <= start[op]:
                    cause = place[producer[message]]
            compute.bound[index] = cause
            if pair[op] <= op:  # the second op of a pair has the bound of the first
                before = index
