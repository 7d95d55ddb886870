"""Real runs on one GPU: a device is a part of the multiprocessors, a message a copy in its memory.

One thread of the host issues all queues, in the order of the ops' predicted starts. On a CPU, which
runs each op when it is issued, this is a serial run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ppsim.core.ops import RECEIVES, SENDS, Kind
from ppsim.engine.detailed.execute import execute
from ppsim.engine.detailed.spec import Network
from ppsim.inputs.profile.profile import Message, OpTime, Workload
from ppsim.real.runs.own_runner import QueueEntry, entries_of, read_marks
from ppsim.real.runs.record import Measured
from ppsim.real.runs.streams import Partitions, Serial
from ppsim.real.runs.turns import (
    RunPlan,
    Settings,
    Tick,
    Turn,
    Turns,
    collect,
    make_punctual,
    next_start,
    repeat,
)

LABEL = "SM-partitioned single-GPU emulation (shared HBM, L2 and power; no link)"
# hardware queues of the GPU over which streams are spread; with fewer, streams delay each other
CONNECTIONS = "32"
PASSES, SPANS = 5, 3  # forwards and backwards in a measured span; measured spans
COPIES, WARM_UP = 20, 3  # measured copies of a size; copies before those
Parts = Serial | Partitions
Order = list[tuple[int, QueueEntry]]


@dataclass(frozen=True)
class AloneCosts:
    """Costs of ops and messages, measured before any schedule runs."""

    ops: tuple[OpTime, ...]  # ops on one part, with the other parts idle
    messages: tuple[Message, ...]  # copies within the GPU
    interference: float  # time of F and B with all parts busy, over the time with one busy part
    sms: int  # multiprocessors of a part

    @property
    def busy_ops(self) -> tuple[OpTime, ...]:
        """The times of ops scaled to those with all parts busy."""
        return tuple(
            replace(
                op,
                **{
                    key: getattr(op, key) * self.interference
                    for key in ("median_ms", "p10_ms", "p90_ms")
                },
            )
            for op in self.ops
        )


def run_all(
    plans: Sequence[RunPlan], settings: Settings, tick: Tick = lambda _: None
) -> tuple[list[Measured], str]:
    """Run all plans in one process, on parts of its first GPU or serially on its CPU.

    See :func:`ppsim.real.runs.turns.collect` for the result and errors.
    """
    return collect(
        plans,
        settings,
        tick,
        _worker,
        [order_entries(plan) for plan in plans],
        list(plans),
        processes=1,
    )


def order_entries(plan: RunPlan) -> Order:
    """Return the entries of all devices in one order: by predicted start, after their inputs."""
    queues = [entries_of(plan, device) for device in range(plan.lowered.schedule.n_devices)]
    start = execute(plan.lowered, plan.costs, Network()).timeline.start
    at, order = [0] * len(queues), []
    sent: set[tuple[int, int, int]] = set()
    while heads := [
        (float(start[queue[at[device]].op]), device)
        for device, queue in enumerate(queues)
        if at[device] < len(queue) and sent.issuperset(queue[at[device]].needs)
    ]:
        device = min(heads)[1]
        entry = queues[device][at[device]]
        at[device] += 1
        order.append((device, entry))
        if entry.kind in SENDS:
            sent.add(_receive_of(entry))
    return order


def _receive_of(entry: QueueEntry) -> tuple[int, int, int]:
    """Return the kind, stage and microbatch of the receive of a send."""
    forward = entry.kind == Kind.SEND_F
    return (
        int(RECEIVES[0] if forward else RECEIVES[1]),
        entry.stage + (1 if forward else -1),
        entry.microbatch,
    )


def run_queues(order: Order, tasks: Sequence[Any], lanes: Parts, origin: int) -> Turns:
    """Issue all queues, and return for each device its entries' times and its end.

    Times are in ns from ``origin``. A send starts a copy when the queue reaches it; a receive is
    only marked; an op that needs a message waits for the copy. Copies to and from the host run on
    streams for copies.
    """
    arriving: dict[tuple[int, int, int], Any] = {}
    marks: list[list[Any]] = [[] for _ in tasks]
    awaited = {(device, op) for device, entry in order for op in entry.waits}
    done: dict[tuple[int, int], Any] = {}
    for device, entry in order:
        with lanes.use_stream(device, entry.lane):
            posted = start = end = lanes.mark()
            if entry.kind in SENDS:
                arriving[_receive_of(entry)] = lanes.carry(
                    tasks[device].outgoing(entry), device, entry.peer
                )
            elif entry.kind not in RECEIVES:
                for kind, stage, microbatch in entry.needs:
                    message = arriving.pop((kind, stage, microbatch))
                    tasks[device].accept(kind, (stage, microbatch), lanes.accept(message, device))
                for op in entry.waits:
                    lanes.await_event(done[device, op])
                start = lanes.mark()
                tasks[device].run(entry)
                end = lanes.mark()
                if (device, entry.op) in awaited:
                    done[device, entry.op] = lanes.finished()
        marks[device].append((entry.op, posted, start, end, time.monotonic_ns()))
    lanes.settle()
    found = {device: read_marks(noted, lanes, origin) for device, noted in enumerate(marks)}
    return {
        device: (times, max((row[3] for row in times), default=0))
        for device, times in found.items()
    }


def _worker(
    rank: int,
    send: Callable[[Any], None],
    meeting: str,
    settings: Settings,
    devices: int,
    orders: list[Order],
    plans: list[RunPlan],
) -> None:
    """Repeat all plans, and send the times to the parent."""
    lanes = _parts(settings.device, devices)
    turns = [
        _turn_of(order, plan, settings, lanes) for order, plan in zip(orders, plans, strict=True)
    ]
    repeat(send, settings, turns, lanes, next_start)


def _parts(device: str, devices: int) -> Parts:
    """Return the streams of all devices, on a GPU or on the CPU."""
    make_punctual()
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", CONNECTIONS)
    return Partitions(devices) if device == "cuda" else Serial(devices)


def _turn_of(order: Order, plan: RunPlan, settings: Settings, lanes: Parts) -> Turn:
    """Return the function that runs a plan once."""
    from ppsim.real.runs import tasks

    model = settings.model
    assert model is not None
    device_tasks = []
    for device in range(lanes.devices):
        with lanes.use_stream(device):
            task = tasks.ComputingTasks(plan.lowered, device, model, settings.device)
            device_tasks.append(task)
    lanes.settle()

    def turn(begin: int) -> Turns:
        times = run_queues(order, device_tasks, lanes, begin)
        for task in device_tasks:
            task.reset()
        return times

    return turn


def measure_alone(
    model: Workload, devices: int, device: str, sizes: Sequence[int], tick: Tick
) -> AloneCosts:
    """Measure ops on one part, copies, and the slowdown by other busy parts.

    Raises:
        PpsimError: the measuring process failed.
    """
    from ppsim.real.calibration.processes import ranks

    found: list[AloneCosts] = []
    with ranks(_measure, 1, model, devices, device, tuple(sizes)) as messages:
        for _, message in messages:
            if isinstance(message, AloneCosts):
                found.append(message)
            else:
                tick(message)
    return found[0]


def _measure(
    rank: int,
    send: Callable[[Any], None],
    meeting: str,
    model: Workload,
    devices: int,
    device: str,
    sizes: tuple[int, ...],
) -> None:
    """Measure in a new process; send the names of steps, then the costs, to the parent."""
    from ppsim.real.calibration.links import copies
    from ppsim.real.calibration.ops import measure_ops

    lanes = _parts(device, devices)
    with lanes.use_stream(0):
        ops = measure_ops(model, device, repeats=5, warm_up=1, tick=send)
    messages = copies(sizes, COPIES, WARM_UP) if device == "cuda" else ()
    # Pairs are left out: they need a second stream, which is not confined to the part.
    ops = [op for op in ops if op.kind != "FB"]
    send(AloneCosts(tuple(ops), tuple(messages), interference(model, lanes, device), lanes.sms))


def interference(model: Workload, lanes: Parts, device: str) -> float:
    """Return the time of F and B with all devices busy, over the time with one busy device."""
    from ppsim.real.calibration import stage

    layers, inputs = [], []
    for each in range(lanes.devices):
        with lanes.use_stream(each):
            layers.append(stage.layers(model, model.layers, device))
            inputs.append(stage.activations(model, device))
    lanes.settle()

    def issue(devices: Sequence[int]) -> Iterator[tuple[Any, Any]]:
        first: dict[int, Any] = {}
        for number in range(PASSES):
            for each in devices:
                with lanes.use_stream(each):
                    begin = lanes.mark()
                    layers[each](inputs[each]).square().mean().backward()
                    first.setdefault(each, begin)
                    if number == PASSES - 1:
                        yield first[each], lanes.mark()

    def time_of(devices: Sequence[int]) -> float:
        lanes.sync()
        spans = list(issue(devices))
        lanes.settle()
        return sum(lanes.ns(end) - lanes.ns(begin) for begin, end in spans) / len(spans)

    groups = (0,), range(lanes.devices)
    alone, together = (min(time_of(devices) for _ in range(SPANS)) for devices in groups)
    return together / alone
