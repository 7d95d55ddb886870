"""ppsim's runner of real queues: one process per device, messages by torch.distributed.

Each process executes its queue in order. A send or receive is posted without waiting for its end; a
compute op first waits for the message it needs. Each stream for copies or collectives is a thread.
Ops on all devices start together, after a collective.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any

from ppsim.core.lowered import Lowered
from ppsim.core.ops import BACKWARDS, FORWARDS, RECEIVES, SENDS, Kind, Stream
from ppsim.core.schedule import NONE
from ppsim.engine.lowering.fsdp import TORCH_STAGES, add_fsdp_ops
from ppsim.real.calibration.user_module import UserModule
from ppsim.real.runs.lanes import lanes_in, waits_in
from ppsim.real.runs.record import Measured
from ppsim.real.runs.streams import Clock, Wall
from ppsim.real.runs.turns import (
    EntryTimes,
    RunPlan,
    Settings,
    Tick,
    Turn,
    Turns,
    collect,
    intended_times,
    take_turns,
)

Channels = dict[tuple[int, int], Any]  # process groups by (sender, receiver)
Mark = tuple[int, Any, Any, Any, int]  # entry; marks of post, start and end; ns of issue
WALL = Wall()
NO_CHANNELS: Channels = {}
Meetings = dict[int, Any]  # process groups in which ops on all devices start, by stream


@dataclass(frozen=True)
class QueueEntry:
    """One entry of a device's queue: an op, a pair, a send or receive, or an FSDP op.

    Attributes:
        op: index of the (first) op in the lowered schedule; NONE for an FSDP op.
        kind: code of the kind.
        stage: the stage.
        microbatch: the microbatch.
        peer: the other device of a message, or NONE.
        needs: (kind, stage, microbatch) of the receives that it waits for.
        batch: number of the batch that a message is posted in, or NONE.
        ms: intended time in ms.
        second: kind, and (stage, microbatch), of the second op of a pair; None for other entries.
        lane: its stream.
        waits: ops of other streams that it waits for.
    """

    op: int
    kind: int
    stage: int
    microbatch: int
    peer: int
    needs: tuple[tuple[int, int, int], ...]
    batch: int
    ms: float
    second: tuple[int, tuple[int, int]] | None
    lane: int = 0
    waits: tuple[int, ...] = ()

    @property
    def on_all_devices(self) -> bool:
        """Whether it starts on all devices at the same time."""
        return Kind(self.kind).info.on_all_devices


def run_all(
    plans: Sequence[RunPlan], settings: Settings, tick: Tick = lambda _: None
) -> tuple[list[Measured], str]:
    """Run all plans with ppsim's runner; see :func:`collect` for the result and errors.

    All plans must have the same number of devices.
    """
    devices = plans[0].lowered.schedule.n_devices
    steps = isinstance(settings.model, UserModule)
    work = [[entries_of(plan, device, steps=steps) for plan in plans] for device in range(devices)]
    return collect(
        plans, settings, tick, partial(take_turns, prepare), work, [p.lowered for p in plans]
    )


def entries_of(plan: RunPlan, device: int, *, steps: bool = False) -> list[QueueEntry]:
    """Return the entries of a device's queue; ``steps`` adds FSDP ops as in torch's runtime."""
    lowered = plan.lowered
    schedule, peer = lowered.schedule, lowered.peer()
    ms, queue = intended_times(plan), schedule.queue(device)
    received = {
        _key(schedule, op) for op in range(queue.start, queue.stop) if schedule.kind[op] in RECEIVES
    }
    lanes, waits = lanes_in(lowered), waits_in(lowered)
    entries, fsdp_ops = [], _fsdp_entries(plan, device) if steps else {}
    for op in range(queue.start, queue.stop):
        if not schedule.leads[op]:
            continue
        entries += fsdp_ops.pop(op, [])
        partner, members = int(schedule.pair[op]), schedule.members(op)
        inputs = [
            _input_of(schedule, member)
            for member in members
            if schedule.kind[member] in (*FORWARDS, *BACKWARDS)
        ]
        second = None
        if partner != NONE:
            second = int(schedule.kind[partner]), _key(schedule, partner)[1:]
        entries.append(
            QueueEntry(
                op,
                *_key(schedule, op),
                peer=int(peer[op]),
                needs=tuple(key for key in inputs if key in received),
                batch=int(lowered.batch[op]),
                ms=float(ms[op]),
                second=second,
                lane=int(lanes[op]),
                waits=tuple(need for member in members for need in waits.get(member, ())),
            )
        )
    return entries + fsdp_ops.pop(NONE, [])


def _fsdp_entries(plan: RunPlan, device: int) -> dict[int, list[QueueEntry]]:
    """Return FSDP ops by the op that they precede; under NONE those after all ops.

    They are not part of a record: as in torch's runtime, they belong to the gap between two ops.
    """
    queues, source = add_fsdp_ops(plan.lowered.compute, TORCH_STAGES, reduce_grad=True)
    found: dict[int, list[QueueEntry]] = {}
    waiting: list[QueueEntry] = []
    queue = queues.queue(device)
    for op in range(queue.start, queue.stop):
        if source[op] == NONE:
            waiting.append(QueueEntry(NONE, *_key(queues, op), NONE, (), NONE, 0.0, None))
        elif waiting:
            found[int(plan.lowered.compute_ops[source[op]])], waiting = waiting, []
    return found | {NONE: waiting}


def _key(schedule: Any, op: int) -> tuple[int, int, int]:
    """Return the kind, stage and microbatch of an op."""
    return int(schedule.kind[op]), int(schedule.stage[op]), int(schedule.microbatch[op])


def _input_of(schedule: Any, op: int) -> tuple[int, int, int]:
    """Return the kind, stage and microbatch of the receive of an op's input."""
    kind = Kind.RECV_F if schedule.kind[op] == Kind.F else Kind.RECV_B
    return int(kind), int(schedule.stage[op]), int(schedule.microbatch[op])


def prepare(
    rank: int,
    settings: Settings,
    watch: Clock,
    work: list[list[list[QueueEntry]]],
    lowered: list[Lowered],
) -> list[Turn]:
    """Return a device's turns, one for each plan.

    Args:
        rank: the device.
        settings: the settings of the runs.
        watch: the clock.
        work: entries by device and plan.
        lowered: the queues of each plan.
    """
    tasks = [_task(each, rank, settings) for each in lowered]
    channels = _channels(rank, work) if settings.device == "cuda" else NO_CHANNELS
    meetings = _meetings(work)

    def turn(entries: Sequence[QueueEntry], task: Any, begin: int) -> Turns:
        times = run_queue(entries, task, begin, watch, channels, rank, meetings)
        task.reset()
        return {rank: times}

    return [partial(turn, entries, task) for entries, task in zip(work[rank], tasks, strict=True)]


def _meetings(work: list[list[list[QueueEntry]]]) -> Meetings:
    """Return a process group of all devices for each stream with ops on all devices."""
    from torch import distributed

    lanes = {
        entry.lane for queues in work for queue in queues for entry in queue if entry.on_all_devices
    }
    return {lane: distributed.new_group() for lane in sorted(lanes)}


def _channels(rank: int, work: list[list[list[QueueEntry]]]) -> Channels:
    """Return a communicator for each link, so that no send waits for a receive.

    nccl runs the messages of one communicator one after the other, in the order of their calls.
    """
    import torch
    from torch import distributed

    links = {
        (sender, entry.peer)
        for sender, queues in enumerate(work)
        for queue in queues
        for entry in queue
        if entry.kind in SENDS
    }
    channels = {link: distributed.new_group(sorted(link), backend="nccl") for link in sorted(links)}
    number = torch.zeros(1, device="cuda")
    # a first message connects the two; all processes do this in the same order
    for (sender, receiver), channel in channels.items():
        if rank == sender:
            distributed.send(number, receiver, group=channel)
        elif rank == receiver:
            distributed.recv(number, sender, group=channel)
    return channels


def _task(lowered: Lowered, rank: int, settings: Settings) -> Any:
    """Return the tasks of a device: sleeps without a model, else compute."""
    from ppsim.real.runs import tasks

    if settings.model is None:
        return tasks.SleepingTasks(settings.message_bytes)
    return tasks.ComputingTasks(lowered, rank, settings.model, settings.device)


def run_queue(
    entries: Sequence[QueueEntry],
    task: Any,
    origin: int,
    watch: Clock = WALL,
    channels: Channels = NO_CHANNELS,
    rank: int = 0,
    meetings: Meetings | None = None,
) -> tuple[EntryTimes, int]:
    """Execute one queue, and return the times of its entries and the end of all sends.

    Times are in ns from ``origin``. Each stream other than compute is a thread. Marks are read at
    the end, since a GPU reaches them later than the host.
    """
    done = {op: Event() for entry in entries for op in entry.waits}
    lanes: dict[int, list[QueueEntry]] = {
        Stream.COMPUTE: [],
        **{entry.lane: [] for entry in entries},
    }
    for entry in entries:
        lanes[entry.lane].append(entry)
    run = partial(
        _run_lane,
        task=task,
        watch=watch,
        channels=channels,
        rank=rank,
        done=done,
        meet=meetings or {},
    )
    main = lanes.pop(Stream.COMPUTE)
    if lanes:
        with ThreadPoolExecutor(len(lanes)) as threads:
            others = [threads.submit(run, lane) for lane in lanes.values()]
            marks, sending = run(main)
        marks += [row for lane in others for row in lane.result()[0]]
    else:
        marks, sending = run(main)
    for work in sending:
        work.wait()
    end = watch.mark()
    watch.settle()
    return read_marks(marks, watch, origin), watch.ns(end) - origin


def _run_lane(
    entries: Sequence[QueueEntry],
    task: Any,
    watch: Clock,
    channels: Channels,
    rank: int,
    done: dict[int, Event],
    meet: Meetings,
) -> tuple[list[Mark], list[Any]]:
    """Execute the ops of one stream, and return their marks and the sends under way.

    Other streams wait for the events in ``done``; all events of this stream are set if it fails.
    """
    mark, now = watch.mark, time.monotonic_ns
    receiving: dict[tuple[int, int, int], Any] = {}
    sending: list[Any] = []
    marks: list[Mark] = []
    at = 0
    try:
        while at < len(entries):
            entry = entries[at]
            if entry.op == NONE:
                task.step(entry)
                at += 1
                continue
            posted = mark()
            if entry.kind in SENDS or entry.kind in RECEIVES:
                batch = _batch_at(entries, at, channels)
                for each, work in zip(batch, _post(batch, task, channels, rank), strict=True):
                    if each.kind in SENDS:
                        sending.append(work)
                    else:
                        receiving[each.kind, each.stage, each.microbatch] = work
                end, issued = mark(), now()
                marks += [(each.op, posted, posted, end, issued) for each in batch]
                at += len(batch)
                continue
            for key in entry.needs:
                receiving.pop(key).wait()
            for op in entry.waits:
                done[op].wait()
            if entry.on_all_devices:
                _wait_for_all(meet[entry.lane])
            start = mark()
            task.run(entry)
            marks.append((entry.op, posted, start, mark(), now()))
            if entry.op in done:
                done[entry.op].set()
            at += 1
    finally:
        for entry in entries:
            if entry.op in done:
                done[entry.op].set()
    return marks, sending


def _wait_for_all(group: Any) -> None:
    """Wait until all devices have reached the same op, by an all-reduce of one number."""
    import torch
    from torch import distributed

    distributed.all_reduce(torch.zeros(1), group=group)


def read_marks(marks: Sequence[Mark], watch: Clock, origin: int) -> EntryTimes:
    """Return the times of marks in ns from ``origin``."""
    return [
        (
            op,
            watch.ns(posted) - origin,
            watch.ns(start) - origin,
            watch.ns(end) - origin,
            issued - origin,
        )
        for op, posted, start, end, issued in marks
    ]


def _batch_at(entries: Sequence[QueueEntry], at: int, channels: Channels) -> Sequence[QueueEntry]:
    """Return the entries to post together from ``at`` on: a batch, or one entry with channels."""
    end, batch = at + 1, entries[at].batch
    while batch != NONE and not channels and end < len(entries) and entries[end].batch == batch:
        end += 1
    return entries[at:end]


def _post(batch: Sequence[QueueEntry], task: Any, channels: Channels, rank: int) -> list[Any]:
    """Post sends and receives, and return torch's works to wait for.

    Functions of the user are called one by one.
    """
    from torch import distributed

    calls = [
        distributed.P2POp(
            distributed.isend if entry.kind in SENDS else distributed.irecv,
            task.outgoing(entry) if entry.kind in SENDS else task.incoming(entry),
            entry.peer,
            channels.get((rank, entry.peer) if entry.kind in SENDS else (entry.peer, rank)),
        )
        for entry in batch
    ]
    user_functions = [task.own_transfer(entry) for entry in batch]
    if len(calls) > 1 and not any(user_functions):
        works: list[Any] = distributed.batch_isend_irecv(calls)
        return works
    return [
        (function or call.op)(call.tensor, call.peer, call.group)
        for function, call in zip(user_functions, calls, strict=True)
    ]
