"""Refuse lowered queues whose messages and ops do not match, with their first fault."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ppsim.core.costs import costs_for
from ppsim.core.lowered import Lowered
from ppsim.core.ops import BACKWARDS, FORWARDS, RECEIVES, SENDS, Kind, mask
from ppsim.core.schedule import NONE, Schedule
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InvalidSchedule

Ints = NDArray[np.int64]


def refuse_disorder(compute: Schedule) -> None:
    """Raise Deadlock if an op waits for a later op of its device, or for one that does not run."""
    place = np.arange(len(compute), dtype=np.int32)
    place[compute.second_of_pairs] -= 1
    need = compute.dependency
    later = (need >= place) & ~compute.crosses
    if later.any() or (need < NONE).any():
        simulate(compute, costs_for(compute))


def refuse(lowered: Lowered) -> NoReturn:
    """Raise InvalidSchedule with the first fault of queues that do not match."""
    schedule, peer = lowered.schedule, lowered.peer()
    compute = lowered.compute_ops
    sends, receives = (np.flatnonzero(np.isin(schedule.kind, kinds)) for kinds in (SENDS, RECEIVES))
    _refuse_unmatched(schedule, peer, sends, receives)
    _refuse_missing_inputs(lowered, compute, receives)
    _refuse_early_sends(schedule, compute, sends)
    _refuse_repeated(schedule, compute)
    raise InvalidSchedule(
        f"{schedule.name}: some sends or receives are not on the devices of their stages",
        "put a send on the device of the op whose result it carries, and a receive on the device "
        "of the op that needs it",
    )


def _refuse_repeated(schedule: Schedule, compute: Ints) -> None:
    """Refuse a compute op that occurs twice, as both would use the same input."""
    row = schedule.kind[compute] * np.int64(schedule.n_stages) + schedule.stage[compute]
    cell = row * schedule.n_microbatches + schedule.microbatch[compute]
    _, first, count = np.unique(cell, return_index=True, return_counts=True)
    if (count > 1).any():
        op = int(compute[first[count > 1].min()])
        raise InvalidSchedule(
            f"{schedule.name}: {schedule.label(op)} occurs more than once", "keep one of them"
        )


def _refuse_unmatched(
    schedule: Schedule, peer: NDArray[np.int32], sends: Ints, receives: Ints
) -> None:
    """Refuse queues in which the k-th send of a link does not match its k-th receive."""
    devices = schedule.n_devices
    outward = schedule.device[sends].astype(np.int64) * devices + peer[sends]
    inward = peer[receives].astype(np.int64) * devices + schedule.device[receives]
    out, into = np.argsort(outward, kind="stable"), np.argsort(inward, kind="stable")
    shorter = min(len(out), len(into))
    differ = np.flatnonzero(outward[out[:shorter]] != inward[into[:shorter]])
    if len(differ) or len(out) != len(into):
        at = int(differ[0]) if len(differ) else shorter
        link = min(
            int(column[order[at]])
            for column, order in ((outward, out), (inward, into))
            if at < len(order)
        )
        raise InvalidSchedule(
            f"{schedule.name}: device {link // devices} sends {np.sum(outward == link)} messages "
            f"to device {link % devices}, which receives {np.sum(inward == link)} from it",
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
            f"{schedule.name}: {schedule.label(send)} on device {schedule.device[send]} would be "
            f"matched with {schedule.label(receive)} on device {schedule.device[receive]}, as "
            f"messages carry no tags",
            "post the receives of a link in the order of its sends",
        )


def _refuse_missing_inputs(lowered: Lowered, compute: Ints, receives: Ints) -> None:
    schedule = lowered.schedule
    consumers = compute[lowered.compute.crosses]
    arrives = _table(schedule, receives, schedule.kind[receives] == Kind.RECV_F)
    missing = consumers[
        arrives[_slots(schedule, consumers, schedule.kind[consumers] == Kind.F)] == NONE
    ]
    if len(missing):
        op = int(missing[0])
        raise InvalidSchedule(
            f"{schedule.name}: device {schedule.device[op]} runs {schedule.label(op)} and never "
            f"receives its input",
            "add the receive and its send",
        )


def _refuse_early_sends(schedule: Schedule, compute: Ints, sends: Ints) -> None:
    makes = compute[mask(FORWARDS + BACKWARDS)[schedule.kind[compute]]]
    made = _table(schedule, makes, schedule.kind[makes] == Kind.F)
    producer = made[_slots(schedule, sends, schedule.kind[sends] == Kind.SEND_F)]
    wrong = (producer == NONE) | (producer > sends)
    wrong |= schedule.device[producer] != schedule.device[sends]
    if wrong.any():
        send = int(sends[np.flatnonzero(wrong)[0]])
        raise InvalidSchedule(
            f"{schedule.name}: device {schedule.device[send]} issues {schedule.label(send)} before "
            f"it has the result",
            "put the send after the op whose result it carries",
        )


def _slots(schedule: Schedule, ops: Ints, forward: NDArray[np.bool_]) -> Ints:
    """Return each op's index in a table of forwards and backwards by stage and microbatch."""
    row = np.where(forward, np.int64(0), schedule.n_stages) + schedule.stage[ops]
    return row * schedule.n_microbatches + schedule.microbatch[ops]


def _table(schedule: Schedule, ops: Ints, forward: NDArray[np.bool_]) -> NDArray[np.int32]:
    table = np.full(2 * schedule.n_stages * schedule.n_microbatches, NONE, np.int32)
    table[_slots(schedule, ops, forward)] = ops
    return table
