"""The detailed execution model: lowered queues, costs and a network in, a timeline and its messages out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim import compiled
from ppsim import network_kernel as kernel
from ppsim.costs import Costs
from ppsim.errors import Deadlock
from ppsim.lowered import Lowered
from ppsim.network import Network
from ppsim.network_plan import tables_of
from ppsim.network_tables import Flows, Tables
from ppsim.ops import Kind
from ppsim.schedule import NONE
from ppsim.timeline import Timeline
from ppsim.waits import explain
from ppsim.wiring import Wiring, wire

# Below this many lowered ops CPython over lists beats loading the compiled kernel (tests/benchmarks/bench_network.py).
COMPILE_ABOVE = 100_000


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
    run(tables, flows)
    if (tables.devices["head"] < tables.devices["stop"]).any():
        raise Deadlock(*explain(lowered, tables))
    ops = tables.ops
    finish = max(ops["end"].max(initial=0.0), ops["done"].max(initial=0.0)) + network.host.epilogue
    start, end, bound = (np.ascontiguousarray(ops[name]) for name in ("start", "end", "bound"))
    timeline = Timeline(lowered.schedule, start, end, bound, costs.unit, finish)
    compute = _of_compute(lowered, wiring, timeline, ops["done"])
    return Execution(lowered, timeline, compute, _messages(lowered, wiring, ops, network))


def run(tables: Tables, flows: Flows) -> None:
    """Run the kernel on the tables, in place."""
    if len(tables.ops) > COMPILE_ABOVE:
        _join_parts()
        compiled.call(kernel.run, tables, flows)
        return
    listed = Tables(*map(_listed, tables))
    kernel.run(listed, Flows(*map(_listed, flows)))
    for name in ("start", "end", "bound", "opened", "leave", "done"):
        tables.ops[name] = [getattr(op, name) for op in listed.ops]
    for name in ("head", "awaited"):
        tables.devices[name] = [getattr(device, name) for device in listed.devices]
    tables.lanes["turn"] = [lane.turn for lane in listed.lanes]


def _listed(table: Any) -> Any:
    """A table as CPython runs quickest over it: a list of numbers, or of objects with the fields of its rows."""
    if not isinstance(table, np.ndarray) or not table.dtype.names:
        return table.tolist() if isinstance(table, np.ndarray) else table
    names = table.dtype.names
    row = type("Row", (), {"__slots__": names})
    rows = [row() for _ in range(len(table))]
    for name in names:
        for each, value in zip(rows, table[name].tolist(), strict=True):
            setattr(each, name, value)
    return rows


@cache
def _join_parts() -> None:
    """Let compiled code call the kernels' functions, which stay plain Python for everyone else."""
    from numba.extending import register_jitable

    for part in kernel.PARTS:
        register_jitable(part)


def _messages(lowered: Lowered, wiring: Wiring, ops: NDArray[np.void], network: Network) -> Messages:
    kind = lowered.schedule.kind
    send = np.flatnonzero((kind == Kind.SEND_F) | (kind == Kind.SEND_B))
    receive = wiring.match[send]
    free = network.mode == "latency"
    boundary = np.minimum(lowered.schedule.stage[send], lowered.schedule.stage[receive])
    size = np.broadcast_to(np.asarray(network.message, np.float64), lowered.schedule.n_stages - 1)
    posted = ops["leave"][send] if free else ops["start"][send]
    return Messages(
        send,
        receive,
        lowered.schedule.device[send],
        wiring.peer[send],
        wiring.producer[send],
        posted,
        posted if free else ops["start"][receive],
        ops["leave"][send],
        ops["done"][receive],
        size[boundary],
    )


def _of_compute(lowered: Lowered, wiring: Wiring, timeline: Timeline, done: NDArray[np.float64]) -> Timeline:
    """The compute ops' times; what bound each is the compute op before it, or the one that sent its input."""
    compute, ops = lowered.compute, wiring.compute
    start, end = timeline.start[ops], timeline.end[ops]
    place = np.full(len(lowered.schedule), NONE, np.int32)
    place[ops] = np.arange(len(ops), dtype=np.int32)
    before = np.arange(-1, len(ops) - 1, dtype=np.int32)
    second = (compute.pair != NONE) & (compute.pair <= before)
    before[second] -= 1
    before[np.isin(before + 1, compute.offsets[:-1])] = NONE
    bound = timeline.bound[ops]
    # A receive bound the start if its message came by then, and when the compute op before was over already.
    waited = (bound != NONE) & (wiring.match[bound] != NONE)
    waited &= done[bound] > np.where(before == NONE, 0.0, end[before])
    waited &= (done[bound] <= start) & (wiring.producer[wiring.match[bound]] != NONE)
    sender = place[wiring.producer[wiring.match[bound]]]
    bound = np.where(waited, sender, before).astype(np.int32)
    return Timeline(compute, start, end, bound, timeline.unit, timeline.makespan)
