"""What belongs together in lowered queues: sends and receives, ops and the messages they work on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ppsim.costs import costs_for
from ppsim.engine import simulate
from ppsim.errors import InvalidSchedule
from ppsim.lowered import Lowered
from ppsim.ops import Kind
from ppsim.schedule import NONE, Schedule

Ops = NDArray[np.int32]


@dataclass(frozen=True)
class Wiring:
    """Indices into the lowered queues, one per op, -1 for none.

    Attributes:
        compute: shape (compute ops,), where the ops of ``lowered.compute`` stand.
        peer: the device on the other side of a send or receive.
        match: the op on the other side.
        needs: the receive whose message a compute op works on.
        producer: the op whose result a send carries.
        gathered: the UNSHARD that a compute op works after.
    """

    compute: NDArray[np.int64]
    peer: Ops
    match: Ops
    needs: Ops
    producer: Ops
    gathered: Ops


def wire(lowered: Lowered) -> Wiring:
    """Match the k-th send of each directed pair of devices with its k-th receive, and messages with ops.

    Raises:
        Deadlock: a compute op waits for one behind it on its own device, or for one that no device runs.
        InvalidSchedule: a message without its other side, without its op or ahead of it, or messages of one link
            received in another order than sent.
    """
    schedule, peer = lowered.schedule, lowered.peer()
    kind = schedule.kind
    compute = np.flatnonzero(kind < Kind.SEND_F)
    sends = np.flatnonzero((kind == Kind.SEND_F) | (kind == Kind.SEND_B))
    receives = np.flatnonzero((kind == Kind.RECV_F) | (kind == Kind.RECV_B))
    _refuse_disorder(lowered.compute)
    match = _match(schedule, peer, sends, receives)
    needs = _needs(lowered, compute, receives)
    producer = _producers(schedule, compute, sends)
    return Wiring(compute, peer, match, needs, producer, _gathered(schedule, compute))


def _refuse_disorder(compute: Schedule) -> None:
    own = np.arange(len(compute))
    first = np.where((compute.pair != NONE) & (compute.pair < own), compute.pair, own)
    need = compute.dependency
    if ((need < NONE) | (~compute.crosses & (need >= first))).any():
        simulate(compute, costs_for(compute))


def _match(schedule: Schedule, peer: Ops, sends: NDArray[np.int64], receives: NDArray[np.int64]) -> Ops:
    """The k-th send from a device to another meets the k-th receive there."""
    devices = schedule.n_devices
    outward = schedule.device[sends].astype(np.int64) * devices + peer[sends]
    inward = peer[receives].astype(np.int64) * devices + schedule.device[receives]
    out, into = np.argsort(outward, kind="stable"), np.argsort(inward, kind="stable")
    shorter = min(len(out), len(into))
    differ = np.flatnonzero(outward[out[:shorter]] != inward[into[:shorter]])
    if len(differ) or len(out) != len(into):
        at = int(differ[0]) if len(differ) else shorter
        link = min(int(column[order[at]]) for column, order in ((outward, out), (inward, into)) if at < len(order))
        raise InvalidSchedule(
            f"{schedule.name}: device {link // devices} sends {np.sum(outward == link)} messages to device "
            f"{link % devices}, which receives {np.sum(inward == link)} from it",
            "every send needs its receive, in the same order",
        )
    left, right = sends[out], receives[into]
    step = np.where(schedule.kind[left] == Kind.SEND_F, 1, -1)
    mixed = (
        (schedule.kind[left] + 1 != schedule.kind[right])
        | (schedule.stage[left] + step != schedule.stage[right])
        | (schedule.microbatch[left] != schedule.microbatch[right])
    )
    if mixed.any():
        send, receive = (int(side[np.flatnonzero(mixed)[0]]) for side in (left, right))
        raise InvalidSchedule(
            f"{schedule.name}: {schedule.label(send)} on device {schedule.device[send]} meets "
            f"{schedule.label(receive)} on device {schedule.device[receive]}: messages carry no tags",
            "post the receives of a link in the order of its sends",
        )
    match = np.full(len(schedule), NONE, np.int32)
    match[left], match[right] = right, left
    return match


def _needs(lowered: Lowered, compute: NDArray[np.int64], receives: NDArray[np.int64]) -> Ops:
    schedule = lowered.schedule
    consumers = compute[lowered.compute.crosses]
    arrives = _table(schedule, receives, schedule.kind[receives] == Kind.RECV_F)
    needs = np.full(len(schedule), NONE, np.int32)
    needs[consumers] = arrives[_slots(schedule, consumers, schedule.kind[consumers] == Kind.F)]
    missing = consumers[needs[consumers] == NONE]
    if len(missing):
        op = int(missing[0])
        raise InvalidSchedule(
            f"{schedule.name}: device {schedule.device[op]} runs {schedule.label(op)} and never receives its input",
            "add the receive and its send",
        )
    return needs


def _producers(schedule: Schedule, compute: NDArray[np.int64], sends: NDArray[np.int64]) -> Ops:
    makes = compute[schedule.kind[compute] != Kind.W]
    made = _table(schedule, makes, schedule.kind[makes] == Kind.F)
    producer = np.full(len(schedule), NONE, np.int32)
    producer[sends] = made[_slots(schedule, sends, schedule.kind[sends] == Kind.SEND_F)]
    wrong = (producer[sends] == NONE) | (producer[sends] > sends)
    wrong |= schedule.device[producer[sends]] != schedule.device[sends]
    if wrong.any():
        send = int(sends[np.flatnonzero(wrong)[0]])
        raise InvalidSchedule(
            f"{schedule.name}: device {schedule.device[send]} issues {schedule.label(send)} before it has the result",
            "a send stands behind the op whose result it carries",
        )
    return producer


def _slots(schedule: Schedule, ops: NDArray[np.int64], forward: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Each op's place in a table of forwards and backwards by stage and microbatch."""
    row = np.where(forward, np.int64(0), schedule.n_stages) + schedule.stage[ops]
    return row * schedule.n_microbatches + schedule.microbatch[ops]


def _table(schedule: Schedule, ops: NDArray[np.int64], forward: NDArray[np.bool_]) -> Ops:
    table = np.full(2 * schedule.n_stages * schedule.n_microbatches, NONE, np.int32)
    table[_slots(schedule, ops, forward)] = ops
    return table


def _gathered(schedule: Schedule, compute: NDArray[np.int64]) -> Ops:
    """The last UNSHARD of its stage ahead of each compute op in its queue."""
    gathered = np.full(len(schedule), NONE, np.int32)
    gathers = np.flatnonzero(schedule.kind == Kind.UNSHARD)
    if len(gathers):
        ops = np.sort(np.concatenate([compute, gathers]))
        held = schedule.device[ops].astype(np.int64) * schedule.n_stages + schedule.stage[ops]
        order = np.argsort(held, kind="stable")
        ops, held = ops[order], held[order]
        is_gather = schedule.kind[ops] == Kind.UNSHARD
        latest = np.maximum.accumulate(np.where(is_gather, np.arange(len(ops)), -1))
        valid = ~is_gather & (latest >= 0) & (held[latest] == held)
        gathered[ops[valid]] = ops[latest[valid]]
    return gathered
