"""Real schedules on one GPU: each device is a part of its multiprocessors, each message a copy
within its memory.

One thread of the host issues all queues, in the order in which the ops are predicted to begin. On a
processor, which runs each op when it is issued, the same order is a serial run.
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
# queues of the GPU that streams are spread over; with fewer, streams wait for each other
CONNECTIONS = "32"
PASSES, SPANS = 5, 3
COPIES, WARM_UP = 20, 3
Parts = Serial | Partitions
Order = list[tuple[int, QueueEntry]]


@dataclass(frozen=True)
class AloneCosts:
    """Costs of ops and messages, measured before any schedule runs."""

    ops: tuple[OpTime, ...]  # measured inside one part, the others idle
    messages: tuple[Message, ...]  # copies within the GPU
    # time of a forward and a backward with all parts busy, over that in one part alone
    interference: float
    sms: int  # multiprocessors of a part

    @property
    def busy_ops(self) -> tuple[OpTime, ...]:
        """The ops as slow as with all parts busy."""
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
    """Run every plan in one process, on the parts of its first GPU or one device after the other on
    its processor.

    Returns and raises what :func:`ppsim.real.runs.turns.collect` does.
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
    """Put the entries of all devices in one sequence, by predicted start, each after the sends of
    its inputs.
    """
    queues = [entries_of(plan, device) for device in range(plan.lowered.schedule.n_devices)]
    begins = execute(plan.lowered, plan.costs, Network()).timeline.start
    at, order = [0] * len(queues), []
    sent: set[tuple[int, int, int]] = set()
    while heads := [
        (float(begins[queue[at[device]].op]), device)
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
    """Name the receive of a send: kind, stage, microbatch."""
    forward = entry.kind == Kind.SEND_F
    return (
        int(RECEIVES[0] if forward else RECEIVES[1]),
        entry.stage + (1 if forward else -1),
        entry.microbatch,
    )


def follow(order: Order, tasks: Sequence[Any], lanes: Parts, origin: int) -> Turns:
    """Issue all queues; returns per device its times in ns from ``origin`` and its end.

    A send starts a copy at its place in the queue, a receive only marks its place, and an op that
    works on a message waits for the copy. A copy to or from the host runs on a stream that only
    copies.
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
    say: Callable[[Any], None],
    meeting: str,
    settings: Settings,
    devices: int,
    orders: list[Order],
    plans: list[RunPlan],
) -> None:
    lanes = _lanes(settings.device, devices)
    turns = [
        _turn_of(order, plan, settings, lanes) for order, plan in zip(orders, plans, strict=True)
    ]
    repeat(say, settings, turns, lanes, next_start)


def _lanes(device: str, devices: int) -> Parts:
    make_punctual()
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", CONNECTIONS)
    return Partitions(devices) if device == "cuda" else Serial(devices)


def _turn_of(order: Order, plan: RunPlan, settings: Settings, lanes: Parts) -> Turn:
    from ppsim.real.runs import tasks

    assert settings.model is not None
    each = []
    for device in range(lanes.devices):
        with lanes.use_stream(device):
            each.append(tasks.ComputingTasks(plan.lowered, device, settings.model, settings.device))
    lanes.settle()

    def turn(begin: int) -> Turns:
        found = follow(order, each, lanes, begin)
        for task in each:
            task.reset()
        return found

    return turn


def measure_alone(
    model: Workload, devices: int, device: str, sizes: Sequence[int], tick: Tick
) -> AloneCosts:
    """Measure ops inside one part, copies, and the slowdown by busy parts (PpsimError: its process
    failed).
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
    say: Callable[[Any], None],
    meeting: str,
    model: Workload,
    devices: int,
    device: str,
    sizes: tuple[int, ...],
) -> None:
    from ppsim.real.calibration.links import copies
    from ppsim.real.calibration.ops import measure_ops

    lanes = _lanes(device, devices)
    with lanes.use_stream(0):
        ops = measure_ops(model, device, repeats=5, warm_up=1, tick=say)
    messages = copies(sizes, COPIES, WARM_UP) if device == "cuda" else ()
    # Pairs are left out: they take a second stream, which is not confined to the part.
    ops = [op for op in ops if op.kind != "FB"]
    say(AloneCosts(tuple(ops), tuple(messages), interference(model, lanes, device), lanes.sms))


def interference(model: Workload, lanes: Parts, device: str) -> float:
    """Divide the time of a device's layers, forward and backward, with all devices busy by that of
    the first alone.
    """
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

    everyone = range(lanes.devices)
    alone, together = (min(time_of(devices) for _ in range(SPANS)) for devices in ((0,), everyone))
    return together / alone
