"""The execution model: a schedule and its costs in, a timeline out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim import kernel
from ppsim.compiled import call
from ppsim.costs import Costs
from ppsim.errors import Deadlock
from ppsim.schedule import NONE, Schedule
from ppsim.timeline import Timeline

# When a process has timed this many ops in CPython, the compiled kernel has paid for its loading
# (tests/benchmarks/crossing.py).
COMPILE_ABOVE = 300_000
_timed = 0


def simulate(schedule: Schedule, costs: Costs) -> Timeline:
    """Time every op of a schedule: the exact longest path over its queues.

    Each device runs its queue in order; an op starts when the device is free and its input has arrived. A
    message between devices takes the latency of its link and occupies neither side.

    Raises:
        Deadlock: the queues wait for each other in a cycle, or for an op that no device runs.
    """
    n, devices = len(schedule), schedule.n_devices
    duration = costs.durations(schedule)
    columns = (
        schedule.offsets,
        schedule.device,
        schedule.dependency,
        schedule.pair,
        duration,
        costs.latencies(schedule),
        duration,  # where an op's duration was read, its start is written
        np.full(n, -1.0),
        np.empty(n, np.int32),
        np.empty(devices, np.int64),
        np.full(devices, -1),
        np.full(devices, -1),
        np.empty(devices, np.int64),
    )
    ran, start, end, bound, head = _execute(columns, n)
    if ran < n:
        raise Deadlock(*explain_deadlock(schedule, head, end >= 0))
    return Timeline(schedule, start, end, bound, costs.unit)


def _execute(columns: tuple[NDArray[Any], ...], n: int) -> tuple[int, Any, Any, Any, Any]:
    global _timed
    _timed += n
    if _timed > COMPILE_ABOVE:
        ran = call(kernel.execute, *columns)
        start, end, bound, head = columns[6:10]
        return ran, start, end, bound, head
    lists = [column.tolist() for column in columns]
    ran = kernel.execute(*lists)
    start, end, bound, head = lists[6:10]
    return ran, np.array(start, np.float64), np.array(end), np.array(bound, np.int32), head


def explain_deadlock(schedule: Schedule, head: Any, done: NDArray[np.bool_]) -> tuple[str, str]:
    """The message and the hint for queues that stand still at ``head`` with ``done`` ops behind them."""
    waits: dict[int, tuple[int, int]] = {}
    for device in range(schedule.n_devices):
        op = int(head[device])
        if op < schedule.offsets[device + 1]:
            members = (op,) if schedule.pair[op] == NONE else (op, op + 1)
            needs = ((m, int(schedule.dependency[m])) for m in members)
            waits[device] = next((m, need) for m, need in needs if need != NONE and (need < 0 or not done[need]))
    for device, (op, need) in waits.items():
        if need < 0:
            message = f"device {device} waits for the input of {schedule.label(op)}, which no device produces"
            return f"{schedule.name} cannot finish: {message}", "add the missing op to a queue"
    device, seen = next(iter(waits)), list[int]()
    while device not in seen:
        seen.append(device)
        device = int(schedule.device[waits[device][1]])
    links = []
    for d in seen[seen.index(device) :]:
        op, need = waits[d]
        owner = int(schedule.device[need])
        behind = (
            "" if need in (head[owner], schedule.pair[head[owner]]) else f", behind {schedule.label(int(head[owner]))}"
        )
        links.append(f"device {d} at {schedule.label(op)} waits for {schedule.label(need)} on device {owner}{behind}")
    return f"{schedule.name} deadlocks: " + "; ".join(
        links
    ), "move one of the awaited ops ahead of the op it stands behind"
