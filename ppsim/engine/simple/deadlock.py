"""Explain why the queues of a schedule cannot finish."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ppsim.core.lanes import find_inputs, groups_of, lanes_of
from ppsim.core.schedule import Schedule
from ppsim.core.waiting import follow_circle


def explain_deadlock(schedule: Schedule, done: NDArray[np.bool_]) -> tuple[str, str]:
    """Return message and hint for a schedule of which only the ops ``done``, shape (ops,), run."""
    lane, waits = lanes_of(schedule), _find_waits(schedule, done)
    for op, need in waits.values():
        if need < 0:
            return (
                f"{schedule.name} cannot finish: device {schedule.device[op]} waits for the "
                f"input of {schedule.label(op)}, which no device produces",
                "add the missing op to a queue",
            )
    links = []
    for each in follow_circle(next(iter(waits)), lambda each: int(lane[waits[each][1]])):
        op, need = waits[each]
        behind = _head_before(schedule, waits[int(lane[need])][0], need)
        links.append(
            f"device {schedule.device[op]} at {schedule.label(op)} waits for "
            f"{schedule.label(need)} on device {schedule.device[need]}{behind}"
        )
    return (
        f"{schedule.name} deadlocks: {'; '.join(links)}",
        "move one of the awaited ops ahead of the op it stands behind",
    )


def _head_before(schedule: Schedule, waiting: int, need: int) -> str:
    """Return a text that names the blocked op ahead of an awaited op; of a pair its first op.

    Empty if the awaited op, or its pair, is itself the blocked one.
    """
    head = waiting if schedule.leads[waiting] else waiting - 1
    return "" if need in schedule.members(head) else f", behind {schedule.label(head)}"


def _find_waits(schedule: Schedule, done: NDArray[np.bool_]) -> dict[int, tuple[int, int]]:
    """Return by lane the blocked op, of a pair the one that waits, and the op that it waits for.

    The awaited op is negative if no device runs it.
    """
    left = np.flatnonzero(~done)
    lanes, at = np.unique(lanes_of(schedule)[left], return_index=True)
    heads = dict(zip(lanes.tolist(), left[at].tolist(), strict=True))
    inputs, waits = find_inputs(schedule), dict[int, tuple[int, int]]()
    for lane, head in heads.items():
        for op in schedule.members(head):
            needs = inputs.op[inputs.offsets[op] : inputs.offsets[op + 1]].tolist()
            missing = [need for need in needs if need < 0 or not done[need]]
            if missing and lane not in waits:
                waits[lane] = (op, missing[0])
    group, late = groups_of(schedule), {heads[lane] for lane in waits}
    for lane in heads.keys() - waits.keys():  # waits for another device at a meeting
        members = np.flatnonzero(group == group[heads[lane]]).tolist()
        ready = set(heads.values()) - late
        waits[lane] = (heads[lane], next(member for member in members if member not in ready))
    return dict(sorted(waits.items()))
