"""Our own runner: queues executed for real, one process per device, with torch.distributed messages.

Each process follows its queue: a send is posted without waiting, a receive is posted where it stands, and a
compute op first waits for the message it needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ppsim.lowered import RECEIVES, SENDS, Lowered
from ppsim.ops import Kind
from ppsim.schedule import NONE
from ppsim.validation.record import Measured
from ppsim.validation.turns import Plan, Settings, Tick, Times, Turn, collect, durations, take_turns


@dataclass(frozen=True)
class Entry:
    """One thing a device does: its op, or the two of a pair, or a message."""

    op: int
    kind: int
    stage: int
    microbatch: int
    partner: int
    peer: int
    needs: tuple[tuple[int, int, int], ...]
    batch: int
    ms: float
    second: tuple[int, tuple[int, int]] | None


def run_all(plans: Sequence[Plan], settings: Settings, tick: Tick = lambda _: None) -> tuple[list[Measured], str]:
    """Run every plan with our own runner; all plans have the same number of devices.

    Returns:
        As :func:`collect`.

    Raises:
        MissingDependency: torch is not installed.
        PpsimError: a rank died, hung or failed before one repetition was complete.
    """
    devices = plans[0].lowered.schedule.n_devices
    work = [[entries_of(plan, device) for plan in plans] for device in range(devices)]
    return collect(plans, settings, tick, _worker, work, [p.lowered for p in plans])


def entries_of(plan: Plan, device: int) -> list[Entry]:
    """What a device does, in order."""
    lowered = plan.lowered
    schedule, peer = lowered.schedule, lowered.peer()
    compute = (schedule.kind <= Kind.W).nonzero()[0]
    ms = np.zeros(len(schedule))
    ms[compute] = durations(plan)
    queue = schedule.queue(device)
    received = {_key(schedule, op) for op in range(queue.start, queue.stop) if schedule.kind[op] in RECEIVES}
    entries = []
    for op in range(queue.start, queue.stop):
        partner = int(schedule.pair[op])
        if NONE != partner < op:
            continue
        members = [op] if partner == NONE else [op, partner]
        wanted = [_input_of(schedule, m) for m in members if schedule.kind[m] in (Kind.F, Kind.B, Kind.I)]
        entries.append(
            Entry(
                op,
                *_key(schedule, op),
                partner,
                int(peer[op]),
                tuple(k for k in wanted if k in received),
                int(lowered.batch[op]),
                float(ms[op]),
                None if partner == NONE else (int(schedule.kind[partner]), _key(schedule, partner)[1:]),
            )
        )
    return entries


def _key(schedule: Any, op: int) -> tuple[int, int, int]:
    return int(schedule.kind[op]), int(schedule.stage[op]), int(schedule.microbatch[op])


def _input_of(schedule: Any, op: int) -> tuple[int, int, int]:
    kind = Kind.RECV_F if schedule.kind[op] == Kind.F else Kind.RECV_B
    return int(kind), int(schedule.stage[op]), int(schedule.microbatch[op])


def _worker(
    rank: int,
    say: Callable[[Any], None],
    meeting: str,
    settings: Settings,
    devices: int,
    work: list[list[list[Entry]]],
    lowered: list[Lowered],
) -> None:
    def prepare() -> list[Turn]:
        tasks = [_task(low, rank, settings) for low in lowered]
        return [partial(_turn, entries, task) for entries, task in zip(work[rank], tasks, strict=True)]

    take_turns(rank, say, meeting, settings, devices, prepare)


def _turn(entries: Sequence[Entry], task: Any, begin: int) -> tuple[Times, int]:
    times, end = follow(entries, task, begin)
    task.reset()
    return times, end


def _task(lowered: Lowered, rank: int, settings: Settings) -> Any:
    from ppsim.validation import tasks

    if settings.model is None:
        return tasks.timed(settings.message_bytes)
    return tasks.computing(lowered, rank, settings.model)


def follow(entries: Sequence[Entry], task: Any, origin: int) -> tuple[Times, int]:
    """Carry out one queue; per entry (op, posted, began, ended) in ns from ``origin``, and the end of all sends."""
    from torch import distributed

    now = time.monotonic_ns
    receiving: dict[tuple[int, int, int], Any] = {}
    sending, times = [], []
    at = 0
    while at < len(entries):
        entry = entries[at]
        posted = now() - origin
        if entry.kind in SENDS or entry.kind in RECEIVES:
            group = [entry]
            while (
                entry.batch != NONE and at + len(group) < len(entries) and entries[at + len(group)].batch == entry.batch
            ):
                group.append(entries[at + len(group)])
            calls = [
                distributed.P2POp(
                    distributed.isend if e.kind in SENDS else distributed.irecv,
                    task.outgoing(e) if e.kind in SENDS else task.incoming(e),
                    e.peer,
                )
                for e in group
            ]
            works = (
                distributed.batch_isend_irecv(calls) if len(group) > 1 else [calls[0].op(calls[0].tensor, entry.peer)]
            )
            for e, work in zip(group, works, strict=True):
                if e.kind in SENDS:
                    sending.append(work)
                else:
                    receiving[e.kind, e.stage, e.microbatch] = work
            ended = now() - origin
            times += [(e.op, posted, posted, ended) for e in group]
            at += len(group)
            continue
        for key in entry.needs:
            receiving.pop(key).wait()
        began = now() - origin
        task.run(entry)
        times.append((entry.op, posted, began, now() - origin))
        at += 1
    for work in sending:
        work.wait()
    return times, now() - origin
