"""The detailed model: execute lowered queues over a network."""

from __future__ import annotations

import numpy as np

from ppsim.base import compiled
from ppsim.core.columns import Floats
from ppsim.core.costs import Costs
from ppsim.core.execution import Execution, SharedBandwidth, Transfers
from ppsim.core.lowered import Lowered
from ppsim.core.timeline import Timeline
from ppsim.engine.detailed import event_kernel as kernel
from ppsim.engine.detailed.build_tables import build_tables
from ppsim.engine.detailed.deadlock import explain_deadlock
from ppsim.engine.detailed.results_kernel import ComputeTable, project_onto_compute
from ppsim.engine.detailed.spec import Network, links
from ppsim.engine.detailed.tables import Tables
from ppsim.engine.lowering.matching import match_messages
from ppsim.errors import Deadlock


def execute(lowered: Lowered, costs: Costs, network: Network) -> Execution:
    """Return the execution of lowered queues over a network.

    A device runs its queue in order. It waits for the input of a compute op, and in ``blocking``
    and ``batched`` mode also for each send and receive. ``costs`` gives the compute ops' durations;
    messages take the network's alpha and beta, not the ``comm`` of ``costs``.

    Raises:
        Deadlock: devices wait for each other in a cycle, which the message describes.
        InvalidSchedule: sends and receives do not match (see
            :func:`ppsim.engine.lowering.matching.match_messages`).
    """
    matching = match_messages(lowered)
    tables, bandwidth = build_tables(lowered, matching, costs, network)
    if bandwidth.width:
        compiled.run_in_place(
            kernel.run_shared, len(lowered.schedule), tables, bandwidth, parts=kernel.PARTS
        )
    else:
        compiled.run_in_place(kernel.run, len(lowered.schedule), tables, parts=kernel.PARTS)
    if (tables.devices.head < tables.devices.offsets[1:]).any():
        raise Deadlock(*explain_deadlock(lowered, tables))
    transfers = _build_transfers(tables, network)
    ops = tables.ops
    finish = (
        max(ops.end.max(initial=0.0), transfers.arrive.max(initial=0.0)) + network.host.epilogue
    )
    timeline = Timeline(lowered.schedule, ops.start, ops.end, ops.bound, costs.unit, finish)
    compute = _project_onto_compute(lowered, tables, transfers.arrive)
    compute_timeline = Timeline(lowered.compute, *compute, costs.unit, timeline.makespan)
    return Execution(
        lowered, timeline, compute_timeline, transfers, _find_shared(transfers, network)
    )


def _find_shared(transfers: Transfers, network: Network) -> tuple[SharedBandwidth, ...]:
    """Return the messages that shared each bandwidth; empty in ``latency`` mode."""
    found = []
    for shared in network.shared if network.mode != "latency" else ():
        source, target, node = transfers.source, transfers.target, shared.node
        used = np.ones(len(transfers), np.bool_) if node is None else node[source] != node[target]
        found.append(SharedBandwidth(shared.name, shared.capacity, shared.group, used))
    return tuple(found)


def _build_transfers(tables: Tables, network: Network) -> Transfers:
    messages, routes, start = tables.messages, tables.routes, tables.ops.start
    route, latency = messages.route, network.mode == "latency"
    leave, arrive = messages.leave, messages.arrive
    if latency:
        leave = tables.ops.end[messages.producer]
        arrive = leave + routes.delay[route]
    return Transfers(
        send=messages.send,
        receive=messages.receive,
        source=routes.source[route],
        target=routes.target[route],
        producer=messages.producer,
        posted=leave if latency else start[messages.send],
        awaited=leave if latency else start[messages.receive],
        leave=leave,
        arrive=arrive,
        size=routes.size[route],
        bandwidth=links(network.beta, routes.source, routes.target)[route],
    )


def _project_onto_compute(lowered: Lowered, tables: Tables, arrive: Floats) -> ComputeTable:
    """Return the times of the compute ops, without sends and receives."""
    n, schedule = len(lowered.compute), lowered.schedule
    compute, place = (
        ComputeTable(np.empty(n), np.empty(n), np.empty(n, np.int32)),
        np.empty(len(schedule), np.int32),
    )
    columns = (schedule.offsets, tables.ops, arrive, tables.messages.producer, place, compute)
    compiled.run_in_place(project_onto_compute, len(schedule), *columns)
    return compute
