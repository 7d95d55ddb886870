"""The detailed execution model: lowered queues, costs and a network in, a timeline and its messages out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ppsim.base import compiled
from ppsim.core.costs import Costs
from ppsim.core.execution import Execution, Messages
from ppsim.core.lowered import Lowered
from ppsim.core.timeline import Timeline
from ppsim.errors import Deadlock
from ppsim.lowering.matching import legs_of, wire
from ppsim.network import event_kernel as kernel
from ppsim.network.build_tables import tables_of
from ppsim.network.deadlock import explain
from ppsim.network.results_kernel import narrow
from ppsim.network.spec import Network
from ppsim.network.tables import Tables


def execute(lowered: Lowered, costs: Costs, network: Network) -> Execution:
    """Run lowered queues in order of time over a network.

    A device takes its queue in order. It waits for the input of a compute op; in ``blocking`` and ``batched``
    mode also for each send and receive. ``costs`` gives the compute ops' durations; its ``comm`` is not used, the
    network's own alpha and beta are.

    Raises:
        Deadlock: devices wait for each other in a cycle; the message holds it.
        InvalidSchedule: sends and receives do not belong together (see :func:`ppsim.lowering.matching.wire`).
    """
    wiring = wire(lowered)
    tables, flows = tables_of(lowered, wiring, costs, network)
    if flows.width:
        compiled.run_in_place(kernel.run_divided, len(lowered.schedule), tables, flows, parts=kernel.PARTS)
    else:
        compiled.run_in_place(kernel.run, len(lowered.schedule), tables, parts=kernel.PARTS)
    if (tables.devices.head < tables.devices.offsets[1:]).any():
        raise Deadlock(*explain(lowered, tables))
    messages = _messages(lowered, tables, network)
    ops = tables.ops
    finish = max(ops.end.max(initial=0.0), messages.arrive.max(initial=0.0)) + network.host.epilogue
    timeline = Timeline(lowered.schedule, ops.start, ops.end, ops.bound, costs.unit, finish)
    return Execution(lowered, timeline, _of_compute(lowered, tables, timeline, messages.arrive), messages)


def _messages(lowered: Lowered, tables: Tables, network: Network) -> Messages:
    sides, start, legs = tables.sides, tables.ops.start, legs_of(lowered.schedule.placement)
    leave, arrive = sides.leave, sides.arrive
    if network.mode == "latency":
        leave = tables.ops.end[sides.producer]
        arrive = leave + tables.ways.delay[sides.leg]
    return Messages(
        sides.send,
        sides.receive,
        legs.source[sides.leg],
        legs.target[sides.leg],
        sides.producer,
        leave if network.mode == "latency" else start[sides.send],
        leave if network.mode == "latency" else start[sides.receive],
        leave,
        arrive,
        tables.ways.size[sides.leg],
    )


def _of_compute(lowered: Lowered, tables: Tables, timeline: Timeline, arrive: NDArray[np.float64]) -> Timeline:
    """The compute ops' own timeline."""
    n, schedule = len(lowered.compute), lowered.schedule
    start, end, bound, place = np.empty(n), np.empty(n), np.empty(n, np.int32), np.empty(len(schedule), np.int32)
    columns = (schedule.offsets, tables.ops, arrive, tables.sides.producer, place, start, end, bound)
    compiled.run_in_place(narrow, len(schedule), *columns)
    return Timeline(lowered.compute, start, end, bound, timeline.unit, timeline.makespan)
