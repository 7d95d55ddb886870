"""Execute queues for real with our own runner: one process per device, messages by
torch.distributed.

Each process follows its queue: a send is posted without waiting, a receive is posted where it
stands, and a compute op first waits for the message it needs. Copies and collectives run in a
thread for each stream; ops on all devices meet in a collective before they start.
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

Channels = dict[tuple[int, int], Any]  # (sender, receiver) to a process group of these two
Mark = tuple[int, Any, Any, Any, int]  # an entry, and when it was posted, started, ended and issued
WALL = Wall()
NO_CHANNELS: Channels = {}
Meetings = dict[int, Any]  # a stream to the process group in which ops on all devices meet


@dataclass(frozen=True)
class QueueEntry:
    """One entry of a device's queue: an op, the two ops of a pair, a send or receive, or a step of
    FSDP (no op).

    ``lane`` is its stream, and ``waits`` are ops of other streams that it waits for.
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
        """Whether it starts on all devices together."""
        return Kind(self.kind).info.on_all_devices


def run_all(
    plans: Sequence[RunPlan], settings: Settings, tick: Tick = lambda _: None
) -> tuple[list[Measured], str]:
    """Run every plan with our own runner, as :func:`collect` says; all plans have the same number
    of devices.
    """
    devices = plans[0].lowered.schedule.n_devices
    steps = isinstance(settings.model, UserModule)
    work = [[entries_of(plan, device, steps=steps) for plan in plans] for device in range(devices)]
    return collect(
        plans, settings, tick, partial(take_turns, prepare), work, [p.lowered for p in plans]
    )


def entries_of(plan: RunPlan, device: int, *, steps: bool = False) -> list[QueueEntry]:
    """List the entries of a device in order, with the ``steps`` of FSDP where torch's runtime has
    them.
    """
    lowered = plan.lowered
    schedule, peer = lowered.schedule, lowered.peer()
    ms, queue = intended_times(plan), schedule.queue(device)
    received = {
        _key(schedule, op) for op in range(queue.start, queue.stop) if schedule.kind[op] in RECEIVES
    }
    lanes, waits = lanes_in(lowered), waits_in(lowered)
    entries, ahead = [], _fsdp_steps(plan, device) if steps else {}
    for op in range(queue.start, queue.stop):
        if not schedule.leads[op]:
            continue
        entries += ahead.pop(op, [])
        partner, members = int(schedule.pair[op]), schedule.members(op)
        wanted = [
            _input_of(schedule, m) for m in members if schedule.kind[m] in (*FORWARDS, *BACKWARDS)
        ]
        entries.append(
            QueueEntry(
                op,
                *_key(schedule, op),
                int(peer[op]),
                tuple(k for k in wanted if k in received),
                int(lowered.batch[op]),
                float(ms[op]),
                None
                if partner == NONE
                else (int(schedule.kind[partner]), _key(schedule, partner)[1:]),
                int(lanes[op]),
                tuple(need for member in members for need in waits.get(member, ())),
            )
        )
    return entries + ahead.pop(NONE, [])


def _fsdp_steps(plan: RunPlan, device: int) -> dict[int, list[QueueEntry]]:
    """Steps of FSDP by the op that they precede; those after all ops under NONE.

    Records do not hold them: as in torch's runtime, they are part of the gap between two ops.
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
    return int(schedule.kind[op]), int(schedule.stage[op]), int(schedule.microbatch[op])


def _input_of(schedule: Any, op: int) -> tuple[int, int, int]:
    kind = Kind.RECV_F if schedule.kind[op] == Kind.F else Kind.RECV_B
    return int(kind), int(schedule.stage[op]), int(schedule.microbatch[op])


def prepare(
    rank: int,
    settings: Settings,
    watch: Clock,
    work: list[list[list[QueueEntry]]],
    lowered: list[Lowered],
) -> list[Turn]:
    """Make a device's turns of the entries of all devices, by device and plan."""
    tasks = [_task(low, rank, settings) for low in lowered]
    channels = _channels(rank, work) if settings.device == "cuda" else NO_CHANNELS
    meetings = _meetings(work)

    def turn(entries: Sequence[QueueEntry], task: Any, begin: int) -> Turns:
        found = follow(entries, task, begin, watch, channels, rank, meetings)
        task.reset()
        return {rank: found}

    return [partial(turn, entries, task) for entries, task in zip(work[rank], tasks, strict=True)]


def _meetings(work: list[list[list[QueueEntry]]]) -> Meetings:
    """Make a process group of all devices for each stream that has ops on all of them."""
    from torch import distributed

    lanes = {
        entry.lane for queues in work for queue in queues for entry in queue if entry.on_all_devices
    }
    return {lane: distributed.new_group() for lane in sorted(lanes)}


def _channels(rank: int, work: list[list[list[QueueEntry]]]) -> Channels:
    """Make a communicator for each link, so that no send waits for a receive.

    nccl matches messages in the order of their calls, and runs the messages of one communicator one
    by one.
    """
    import torch
    from torch import distributed

    sends = (
        (sender, e)
        for sender, queues in enumerate(work)
        for queue in queues
        for e in queue
        if e.kind in SENDS
    )
    links = {(sender, entry.peer) for sender, entry in sends}
    channels = {link: distributed.new_group(sorted(link), backend="nccl") for link in sorted(links)}
    first = torch.zeros(1, device="cuda")
    # in one order everywhere: the first connects
    for (sender, receiver), channel in channels.items():
        if rank == sender:
            distributed.send(first, receiver, group=channel)
        elif rank == receiver:
            distributed.recv(first, sender, group=channel)
    return channels


def _task(lowered: Lowered, rank: int, settings: Settings) -> Any:
    from ppsim.real.runs import tasks

    if settings.model is None:
        return tasks.SleepingTasks(settings.message_bytes)
    return tasks.ComputingTasks(lowered, rank, settings.model, settings.device)


def follow(
    entries: Sequence[QueueEntry],
    task: Any,
    origin: int,
    watch: Clock = WALL,
    channels: Channels = NO_CHANNELS,
    rank: int = 0,
    meetings: Meetings | None = None,
) -> tuple[EntryTimes, int]:
    """Execute one queue; returns per entry its times in ns from ``origin``, and the end of all
    sends.

    Streams other than compute run in a thread each. Marks are read at the end, as a GPU reaches
    them later than the host.
    """
    done = {op: Event() for entry in entries for op in entry.waits}
    lanes: dict[int, list[QueueEntry]] = {
        Stream.COMPUTE: [],
        **{entry.lane: [] for entry in entries},
    }
    for entry in entries:
        lanes[entry.lane].append(entry)
    run = partial(
        _follow_lane,
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
            beside = [threads.submit(run, lane) for lane in lanes.values()]
            marks, sending = run(main)
        marks += [row for lane in beside for row in lane.result()[0]]
    else:
        marks, sending = run(main)
    for work in sending:
        work.wait()
    end = watch.mark()
    watch.settle()
    return read_marks(marks, watch, origin), watch.ns(end) - origin


def _follow_lane(
    entries: Sequence[QueueEntry],
    task: Any,
    watch: Clock,
    channels: Channels,
    rank: int,
    done: dict[int, Event],
    meet: Meetings,
) -> tuple[list[Mark], list[Any]]:
    """Execute the ops of one stream; returns their marks, and the sends under way.

    ``done`` tells other streams which ops have ended, all of them when this one fails.
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
                group = _select_batch(entries, at, channels)
                for e, work in zip(group, _post(group, task, channels, rank), strict=True):
                    if e.kind in SENDS:
                        sending.append(work)
                    else:
                        receiving[e.kind, e.stage, e.microbatch] = work
                end, issued = mark(), now()
                marks += [(e.op, posted, posted, end, issued) for e in group]
                at += len(group)
                continue
            for key in entry.needs:
                receiving.pop(key).wait()
            for op in entry.waits:
                done[op].wait()
            if entry.on_all_devices:
                _gather_all(meet[entry.lane])
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


def _gather_all(group: Any) -> None:
    """Wait until all devices have come to the same op: a collective of one number, which all of
    them need.
    """
    import torch
    from torch import distributed

    distributed.all_reduce(torch.zeros(1), group=group)


def read_marks(marks: Sequence[Mark], watch: Clock, origin: int) -> EntryTimes:
    """Read marks as times in ns from ``origin``."""
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


def _select_batch(
    entries: Sequence[QueueEntry], at: int, channels: Channels
) -> Sequence[QueueEntry]:
    """Select the entries to post together: the batch at ``at``, or one entry where links have their
    own.
    """
    end, batch = at + 1, entries[at].batch
    while batch != NONE and not channels and end < len(entries) and entries[end].batch == batch:
        end += 1
    return entries[at:end]


def _post(group: Sequence[QueueEntry], task: Any, channels: Channels, rank: int) -> list[Any]:
    """Post sends and receives without waiting for them; the user's own functions one by one."""
    from torch import distributed

    calls = [
        distributed.P2POp(
            distributed.isend if e.kind in SENDS else distributed.irecv,
            task.outgoing(e) if e.kind in SENDS else task.incoming(e),
            e.peer,
            channels.get((rank, e.peer) if e.kind in SENDS else (e.peer, rank)),
        )
        for e in group
    ]
    own = [task.own_transfer(e) for e in group]
    if len(calls) > 1 and not any(own):
        works: list[Any] = distributed.batch_isend_irecv(calls)
        return works
    return [
        (each or call.op)(call.tensor, call.peer, call.group)
        for each, call in zip(own, calls, strict=True)
    ]
