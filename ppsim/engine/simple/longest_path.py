"""The simple model: time a schedule under its costs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.base.compiled import can_compile, load, pays, view
from ppsim.core import waiting
from ppsim.core.costs import Costs
from ppsim.core.schedule import NONE, Schedule
from ppsim.core.timeline import Timeline
from ppsim.core.waiting import UNKNOWN
from ppsim.engine.simple import longest_path_kernel as kernel
from ppsim.engine.simple import streams, streams_kernel
from ppsim.engine.simple.longest_path_kernel import Columns
from ppsim.engine.simple.streams import explain_missing, simulate_streams
from ppsim.errors import Deadlock

# When a process has timed this many ops in CPython, the compiled kernel has paid for its loading
# (tests/benchmarks/crossing.py).
COMPILE_SIMULATION_ABOVE = 400_000
ALIKE = np.empty(0)  # no durations by op: all ops of a kind and stage take the same


def simulate(schedule: Schedule, costs: Costs) -> Timeline:
    """Time every op of a schedule: the exact longest path over its queues.

    Each device runs its queue in order; an op starts when the device is free and its input has arrived. A
    message between devices takes the latency of its link and occupies neither side.

    Raises:
        Deadlock: the queues wait for each other in a cycle, or for an op that no device runs.
    """
    costs.check_fit(schedule)
    if schedule.has_lanes or schedule.feeds_back:
        return simulate_streams(schedule, costs)
    time, latency = np.asarray(costs.time, np.float64).ravel(), np.asarray(costs.comm, np.float64).ravel()
    halves = np.empty(0) if costs.pair is None else costs.pair / 2
    own = ALIKE if costs.alike else costs.durations(schedule)
    ran, columns = _execute(build_columns(schedule, time, halves, latency, own), len(schedule))
    if ran < len(schedule):
        raise Deadlock(*explain_deadlock(schedule, np.asarray(columns.head)))
    start, end, bound = (
        np.asarray(columns.start, np.float64),
        np.asarray(columns.end, np.float64),
        np.asarray(columns.bound, np.int32),
    )
    return Timeline(schedule, start, end, bound, costs.unit, comm=costs.comm)


def build_columns(
    schedule: Schedule, time: NDArray[Any], halves: NDArray[Any], latency: NDArray[Any], own: NDArray[Any] = ALIKE
) -> Columns:
    """Collect a schedule's queues and costs for the kernel, with room for its results."""
    n, devices = len(schedule), schedule.n_devices
    gives, needs, nothing = schedule.results
    maker = np.full(nothing, UNKNOWN, np.int32)
    return Columns(
        offsets=schedule.offsets,
        kind=schedule.kind,
        stage=schedule.stage,
        microbatch=schedule.microbatch,
        pair=schedule.pair,
        device=schedule.device if len(latency) > 1 else schedule.stage[:0],
        gives=gives,
        needs=needs,
        maker=maker,
        time=time,
        halves=halves,
        own=own,
        latency=latency,
        start=np.empty(n),
        end=np.empty(n),
        bound=np.empty(n, np.int32),
        head=np.empty(devices, np.int64),
        waiter=np.empty(devices, np.int64),
        ready=np.empty(devices, np.int64),
    )


def _execute(columns: Columns, n: int) -> tuple[int, Columns]:
    if not pays(kernel.execute, n, COMPILE_SIMULATION_ABOVE):
        lists: Any = Columns._make([column.tolist() for column in columns])  # of integers of any length
        return kernel.execute(lists), lists
    compiled = load(kernel.execute, columns, parts=waiting.PARTS)  # lists this long would fill the memory
    return compiled(columns) if compiled else kernel.execute(view(columns)), columns


def compile_now(schedule: Schedule, costs: Costs) -> None:
    """Load the compiled kernel of such schedules and use it from now on: for a process that answers while one waits."""
    if can_compile():
        pays(streams_kernel.execute, streams.COMPILE_STREAMS_ABOVE, streams.COMPILE_STREAMS_ABOVE)
        pays(kernel.execute, COMPILE_SIMULATION_ABOVE, COMPILE_SIMULATION_ABOVE)
        simulate(schedule, costs)


def explain_deadlock(schedule: Schedule, head: NDArray[Any]) -> tuple[str, str]:
    """Return the message and the hint for queues that deadlock at ``head``."""
    done = np.arange(len(schedule)) < np.take(head, schedule.device)
    waits: dict[int, tuple[int, int]] = {}
    for device in range(schedule.n_devices):
        op = int(head[device])
        if op < schedule.offsets[device + 1]:
            members = (op,) if schedule.pair[op] == NONE else (op, op + 1)
            needs = ((m, int(schedule.dependency[m])) for m in members)
            waits[device] = next((m, need) for m, need in needs if need != NONE and (need < 0 or not done[need]))
    for op, need in waits.values():
        if need < 0:
            return explain_missing(schedule, op)
    links = []
    for d in waiting.follow_circle(next(iter(waits)), lambda device: int(schedule.device[waits[device][1]])):
        op, need = waits[d]
        owner = int(schedule.device[need])
        behind = (
            "" if need in (head[owner], schedule.pair[head[owner]]) else f", behind {schedule.label(int(head[owner]))}"
        )
        links.append(f"device {d} at {schedule.label(op)} waits for {schedule.label(need)} on device {owner}{behind}")
    return f"{schedule.name} deadlocks: " + "; ".join(
        links
    ), "move one of the awaited ops ahead of the op it stands behind"
