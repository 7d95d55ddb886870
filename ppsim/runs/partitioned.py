"""Real schedules on one GPU: each device is a part of its multiprocessors, each message a copy within its memory.

One thread of the host issues all queues, in the order in which the ops are predicted to begin. On a processor, which
does at once what it is issued, the same order is a run one after the other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ppsim.core.ops import RECEIVES, SENDS, Kind
from ppsim.network.execute import execute
from ppsim.network.spec import Network
from ppsim.profiles.profile import Message, OpTime, Workload
from ppsim.runs.own_runner import Entry, entries_of, read
from ppsim.runs.record import Measured
from ppsim.runs.streams import Partitions, Serial
from ppsim.runs.turns import Plan, Settings, Tick, Turn, Turns, be_punctual, collect, repeat, soon

LABEL = "SM-partitioned single-GPU emulation (shared HBM, L2 and power; no link)"
CONNECTIONS = "32"  # queues of the GPU that streams are spread over; with fewer, streams wait for each other
PASSES, SPANS = 5, 3
COPIES, WARM_UP = 20, 3
Lanes = Serial | Partitions
Order = list[tuple[int, Entry]]


@dataclass(frozen=True)
class Alone:
    """What ops and messages cost before any schedule runs.

    Attributes:
        ops: measured inside one part, the others idle.
        messages: copies within the GPU.
        interference: time of a forward and a backward with all parts busy, over that in one part alone.
        sms: multiprocessors of a part.
    """

    ops: tuple[OpTime, ...]
    messages: tuple[Message, ...]
    interference: float
    sms: int

    @property
    def busy_ops(self) -> tuple[OpTime, ...]:
        """The ops as they are with all parts busy."""
        return tuple(
            replace(op, **{key: getattr(op, key) * self.interference for key in ("median_ms", "p10_ms", "p90_ms")})
            for op in self.ops
        )


def run_all(plans: Sequence[Plan], settings: Settings, tick: Tick = lambda _: None) -> tuple[list[Measured], str]:
    """Run every plan in one process, on the parts of its first GPU or one device after the other on its processor.

    Returns:
        As :func:`ppsim.runs.turns.collect`.

    Raises:
        MissingDependency: torch is not installed.
        PpsimError: the process died, hung or failed before one repetition was complete.
    """
    return collect(plans, settings, tick, _worker, [issue_order(plan) for plan in plans], list(plans), processes=1)


def issue_order(plan: Plan) -> Order:
    """Every device's entries in one sequence: what is predicted to begin first and has been sent its input."""
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
            sent.add(_received(entry))
    return order


def _received(entry: Entry) -> tuple[int, int, int]:
    """The receive that a send meets: kind, stage, microbatch."""
    forward = entry.kind == Kind.SEND_F
    return int(RECEIVES[0] if forward else RECEIVES[1]), entry.stage + (1 if forward else -1), entry.microbatch


def follow(order: Order, tasks: Sequence[Any], lanes: Lanes, origin: int) -> Turns:
    """Issue all queues; per device its times in ns from ``origin`` and when it was done.

    A send begins a copy when its device comes to it, a receive only marks when its device would wait for one, and an
    op that needs a message waits for the copy.
    """
    arriving: dict[tuple[int, int, int], Any] = {}
    marks: list[list[Any]] = [[] for _ in tasks]
    for device, entry in order:
        with lanes.on(device):
            posted = start = end = lanes.mark()
            if entry.kind in SENDS:
                arriving[_received(entry)] = lanes.carry(tasks[device].outgoing(entry), device, entry.peer)
            elif entry.kind not in RECEIVES:
                for kind, stage, microbatch in entry.needs:
                    message = arriving.pop((kind, stage, microbatch))
                    tasks[device].accept(kind, (stage, microbatch), lanes.accept(message, device))
                start = lanes.mark()
                tasks[device].run(entry)
                end = lanes.mark()
        marks[device].append((entry.op, posted, start, end, time.monotonic_ns()))
    lanes.settle()
    found = {device: read(noted, lanes, origin) for device, noted in enumerate(marks)}
    return {device: (times, times[-1][3] if times else 0) for device, times in found.items()}


def _worker(
    rank: int,
    say: Callable[[Any], None],
    meeting: str,
    settings: Settings,
    devices: int,
    orders: list[Order],
    plans: list[Plan],
) -> None:
    lanes = _lanes(settings.device, devices)
    turns = [_turn_of(order, plan, settings, lanes) for order, plan in zip(orders, plans, strict=True)]
    repeat(say, settings, turns, lanes, soon)


def _lanes(device: str, devices: int) -> Lanes:
    be_punctual()
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", CONNECTIONS)
    return Partitions(devices) if device == "cuda" else Serial(devices)


def _turn_of(order: Order, plan: Plan, settings: Settings, lanes: Lanes) -> Turn:
    from ppsim.runs import tasks

    assert settings.model is not None
    each = []
    for device in range(lanes.devices):
        with lanes.on(device):
            each.append(tasks.computing(plan.lowered, device, settings.model, settings.device))
    lanes.settle()
    return partial(_turn, order, each, lanes)


def _turn(order: Order, tasks: Sequence[Any], lanes: Lanes, begin: int) -> Turns:
    found = follow(order, tasks, lanes, begin)
    for task in tasks:
        task.reset()
    return found


def measure_alone(
    model: Workload, devices: int, device: str, sizes: Sequence[int], tick: Tick, *, repeats: int = 5, warm_up: int = 1
) -> Alone:
    """Measure ops inside one part, copies, and what parts that are busy cost each other, in a process of its own.

    Raises:
        PpsimError: the process failed, died or hung.
    """
    from ppsim.calibration.processes import ranks

    found: list[Alone] = []
    with ranks(_measure, 1, model, devices, device, tuple(sizes), repeats, warm_up) as messages:
        for _, message in messages:
            if isinstance(message, Alone):
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
    repeats: int,
    warm_up: int,
) -> None:
    from ppsim.calibration.links import copies
    from ppsim.calibration.ops import measure_ops

    lanes = _lanes(device, devices)
    with lanes.on(0):
        ops = measure_ops(model, device, repeats=repeats, warm_up=warm_up, tick=say)
    messages = copies(sizes, COPIES, WARM_UP) if device == "cuda" else ()
    # Pairs are left out: they take a second stream, which is not confined to the part.
    ops = [op for op in ops if op.kind != "FB"]
    say(Alone(tuple(ops), tuple(messages), interference(model, lanes, device), lanes.sms))


def interference(model: Workload, lanes: Lanes, device: str) -> float:
    """Time of a device's layers, forward and backward, with all devices at it, over that of the first one alone."""
    from ppsim.calibration import stage

    layers, inputs = [], []
    for each in range(lanes.devices):
        with lanes.on(each):
            layers.append(stage.layers(model, model.layers, device))
            inputs.append(stage.activations(model, device))
    lanes.settle()

    def issue(devices: Sequence[int]) -> Iterator[tuple[Any, Any]]:
        first: dict[int, Any] = {}
        for number in range(PASSES):
            for each in devices:
                with lanes.on(each):
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
