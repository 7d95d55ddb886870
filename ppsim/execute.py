"""The detailed execution model: lowered queues, costs and a network in, a timeline and its messages out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ppsim import compiled
from ppsim import network_kernel as kernel
from ppsim.costs import Costs
from ppsim.errors import Deadlock
from ppsim.lowered import Lowered
from ppsim.network import Network
from ppsim.network_plan import tables_of
from ppsim.network_tables import Tables
from ppsim.results_kernel import narrow
from ppsim.timeline import Timeline
from ppsim.waits import explain
from ppsim.wiring import legs_of, wire


@dataclass(frozen=True)
class Messages:
    """What travelled between devices; one entry per message, in the order of the sends in the lowered queues.

    Attributes:
        send: shape (messages,), index of the send in the lowered queues.
        receive: of the receive.
        source: device it leaves.
        target: device it reaches.
        producer: index, in the lowered queues, of the op whose result it carries.
        posted: when the send was posted.
        awaited: when the receive was posted; in ``latency`` mode at once, at ``posted``.
        leave: when it set out: both sides had met and the channel was free.
        arrive: when the receive was over.
        size: its bytes; 0 where a message has latency only.
    """

    send: NDArray[np.int64]
    receive: NDArray[np.int32]
    source: NDArray[np.int32]
    target: NDArray[np.int32]
    producer: NDArray[np.int32]
    posted: NDArray[np.float64]
    awaited: NDArray[np.float64]
    leave: NDArray[np.float64]
    arrive: NDArray[np.float64]
    size: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.send)


@dataclass(frozen=True)
class Execution:
    """One iteration of lowered queues.

    Attributes:
        lowered: the queues that were run.
        timeline: of ``lowered.schedule``: when each op, sends and receives included, occupied its device;
            collectives beside the compute ops have the times of their stream. ``bound`` of a compute op that
            waited is the receive, or UNSHARD, it waited for.
        compute: of ``lowered.compute``: the same times of the compute ops alone; ``bound`` of one that waited is
            the op that sent its input. It is what metrics and figures take.
        messages: what travelled.
    """

    lowered: Lowered
    timeline: Timeline
    compute: Timeline
    messages: Messages

    @property
    def makespan(self) -> float:
        """End of the iteration: of the last op, message, collective and the host's epilogue."""
        return self.timeline.makespan


def execute(lowered: Lowered, costs: Costs, network: Network) -> Execution:
    """Run lowered queues in order of time over a network.

    A device takes its queue in order. It waits for the input of a compute op; in ``blocking`` and ``batched``
    mode also for each send and receive. ``costs`` gives the compute ops' durations; its ``comm`` is not used, the
    network's own alpha and beta are.

    Raises:
        Deadlock: devices wait for each other in a cycle; the message holds it.
        InvalidSchedule: sends and receives do not belong together (see :func:`ppsim.wiring.wire`).
    """
    wiring = wire(lowered)
    tables, flows = tables_of(lowered, wiring, costs, network)
    if flows.width:
        compiled.in_place(kernel.run_divided, len(lowered.schedule), tables, flows, parts=kernel.PARTS)
    else:
        compiled.in_place(kernel.run, len(lowered.schedule), tables, parts=kernel.PARTS)
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
    compiled.in_place(narrow, len(schedule), *columns)
    return Timeline(lowered.compute, start, end, bound, timeline.unit, timeline.makespan)
