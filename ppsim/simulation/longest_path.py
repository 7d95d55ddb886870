"""The execution model: a schedule and its costs in, a timeline out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.base.compiled import call
from ppsim.core.costs import Costs
from ppsim.core.schedule import NONE, Schedule
from ppsim.core.soundness import prove_fit
from ppsim.core.timeline import Timeline
from ppsim.errors import Deadlock
from ppsim.simulation import longest_path_kernel as kernel

# When a process has timed this many ops in CPython, the compiled kernel has paid for its loading
# (tests/benchmarks/crossing.py).
COMPILE_ABOVE = 400_000
_timed = 0
FOUND = slice(14, 18)  # start, end, bound and head among the kernel's columns


def simulate(schedule: Schedule, costs: Costs) -> Timeline:
    """Time every op of a schedule: the exact longest path over its queues.

    Each device runs its queue in order; an op starts when the device is free and its input has arrived. A
    message between devices takes the latency of its link and occupies neither side.

    Raises:
        Deadlock: the queues wait for each other in a cycle, or for an op that no device runs.
    """
    prove_fit(schedule, costs.time, costs.comm)
    time, comm = (np.asarray(values, np.float64).ravel() for values in (costs.time, costs.comm))
    halves = np.empty(0) if costs.pair is None else costs.pair / 2
    columns = columns_of(schedule, time, halves, comm)
    ran, start, end, bound, head = _execute(columns, len(schedule))
    if ran < len(schedule):
        raise Deadlock(*explain_deadlock(schedule, head))
    return Timeline(schedule, start, end, bound, costs.unit)


def columns_of(schedule: Schedule, time: NDArray[Any], halves: NDArray[Any], comm: NDArray[Any]) -> tuple[Any, ...]:
    """What the kernel takes: the queues, the costs it asks for, and room for what it finds out."""
    n, devices, links = len(schedule), schedule.n_devices, len(comm) > 1
    gives, needs, nothing = schedule.results
    runs = np.full(nothing, NONE, np.int32)
    queues = (schedule.offsets, schedule.kind, schedule.stage, schedule.microbatch, schedule.pair)
    device = schedule.device if links else schedule.stage[:0]
    found = (np.empty(n), np.empty(n), np.empty(n, np.int32), *np.empty((3, devices), np.int64))
    return *queues, device, gives, needs, nothing, runs, time, halves, comm, links, *found


def _execute(columns: tuple[Any, ...], n: int) -> tuple[int, Any, Any, Any, Any]:
    global _timed
    _timed += n
    if _timed > COMPILE_ABOVE:
        return call(kernel.execute, *columns), *columns[FOUND]
    lists = [column.tolist() if isinstance(column, np.ndarray) else column for column in columns]
    ran = kernel.execute(*lists)
    start, end, bound, head = lists[FOUND]
    return ran, np.array(start, np.float64), np.array(end, np.float64), np.array(bound, np.int32), head


def explain_deadlock(schedule: Schedule, head: Any) -> tuple[str, str]:
    """The message and the hint for queues that stand still at ``head``."""
    done = np.arange(len(schedule)) < np.take(head, schedule.device)
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
