"""Queues executed for real: one process per device, torch.distributed messages, a common start.

Each process follows its queue: a send is posted without waiting, a receive is posted where it stands, and a
compute op first waits for the message it needs. Schedules take turns within each repetition, so that a drift of
the machine reaches all of them alike.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ppsim.costs import Costs
from ppsim.errors import MissingDependency, PpsimError
from ppsim.lowered import RECEIVES, SENDS, Lowered
from ppsim.measure.processes import ranks
from ppsim.ops import Kind
from ppsim.profile import Model
from ppsim.schedule import NONE
from ppsim.validation.record import Measured

LEAD_S = 0.02
Tick = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """One schedule to run: its queues, and what its ops are meant to cost, in ms."""

    name: str
    lowered: Lowered
    costs: Costs


@dataclass(frozen=True)
class Settings:
    """How to run.

    Attributes:
        repeats: measured repetitions of every schedule.
        warm_up: repetitions before those, not kept.
        message_bytes: size of every message of timed ops.
        real_time: ask the system for real-time priority while a schedule runs.
        model: a transformer whose stages compute for real; None for ops that only take their time.
        limit_s: how long all ranks may be silent.
    """

    repeats: int = 5
    warm_up: int = 1
    message_bytes: int = 65536
    real_time: bool = False
    model: Model | None = None
    limit_s: float = 60.0


@dataclass(frozen=True)
class _Entry:
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
    """Run every plan; all plans have the same number of devices.

    Returns:
        What was measured, and why it is less than asked for: empty when it is not. Repetitions that all ranks
        completed are kept when a rank fails later.

    Raises:
        MissingDependency: torch is not installed.
        PpsimError: a rank died, hung or failed before one repetition was complete.
    """
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingDependency("running schedules for real needs torch", "pip install 'ppsim[torch]'") from error
    devices = plans[0].lowered.schedule.n_devices
    work = [[_entries(plan, device) for plan in plans] for device in range(devices)]
    got: dict[tuple[int, int], dict[int, Any]] = {}
    failure = ""
    try:
        with ranks(_worker, devices, work, settings, [p.lowered for p in plans], limit_s=settings.limit_s) as messages:
            for rank, (repetition, number, times) in messages:
                got.setdefault((repetition, number), {})[rank] = times
                if rank == 0:
                    tick(f"{plans[number].name} {repetition + 1}")
    except PpsimError as error:
        failure = str(error)
        if not any(len(by_rank) == devices and key[0] >= settings.warm_up for key, by_rank in got.items()):
            raise
    kept = [
        r for r in range(settings.warm_up, settings.warm_up + settings.repeats) if _complete(got, r, plans, devices)
    ]
    if not kept:
        raise PpsimError(failure or "no repetition was completed", "fewer devices or a smaller model")
    return [_gather(plan, number, kept, got, devices) for number, plan in enumerate(plans)], failure


def _complete(got: dict[tuple[int, int], dict[int, Any]], repetition: int, plans: Sequence[Plan], devices: int) -> bool:
    return all(len(got.get((repetition, number), {})) == devices for number in range(len(plans)))


def _gather(
    plan: Plan, number: int, kept: list[int], got: dict[tuple[int, int], dict[int, Any]], devices: int
) -> Measured:
    """Rows of entries, spread over the ops of the queues, both ops of a pair alike; ns to ms."""
    schedule = plan.lowered.schedule
    times = np.zeros((3, len(kept), len(schedule)))
    finished = np.zeros((len(kept), devices))
    for row, repetition in enumerate(kept):
        for rank, (entries, end) in got[repetition, number].items():
            values = np.array(entries, np.float64).reshape(-1, 4) / 1e6
            ops = np.array([entry[0] for entry in entries], np.int64)
            times[:, row, ops] = values[:, 1:].T
            paired = ops[schedule.pair[ops] != NONE]
            times[:, row, schedule.pair[paired]] = times[:, row, paired]
            finished[row, rank] = end / 1e6
    return Measured(plan.name, plan.lowered, plan.costs, times[0], times[1], times[2], finished)


def _entries(plan: Plan, device: int) -> list[_Entry]:
    lowered = plan.lowered
    schedule, peer = lowered.schedule, lowered.peer()
    compute = (schedule.kind <= Kind.W).nonzero()[0]
    ms = np.zeros(len(schedule))
    ms[compute] = _durations(plan, compute)
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
            _Entry(
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


def _durations(plan: Plan, compute: Any) -> Any:
    schedule = plan.lowered.schedule
    place = np.full(len(schedule), NONE, np.int32)
    place[compute] = np.arange(len(compute), dtype=np.int32)
    pair = schedule.pair[compute]
    ops = replace(
        schedule,
        kind=schedule.kind[compute],
        stage=schedule.stage[compute],
        microbatch=schedule.microbatch[compute],
        pair=np.where(pair == NONE, NONE, place[pair]).astype(np.int32),
    )
    return plan.costs.durations(ops)


def _key(schedule: Any, op: int) -> tuple[int, int, int]:
    return int(schedule.kind[op]), int(schedule.stage[op]), int(schedule.microbatch[op])


def _input_of(schedule: Any, op: int) -> tuple[int, int, int]:
    kind = Kind.RECV_F if schedule.kind[op] == Kind.F else Kind.RECV_B
    return int(kind), int(schedule.stage[op]), int(schedule.microbatch[op])


def _worker(
    rank: int,
    say: Callable[[Any], None],
    meeting: str,
    work: list[list[list[_Entry]]],
    settings: Settings,
    lowered: list[Lowered],
) -> None:
    import datetime

    import torch
    from torch import distributed

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(29, 1000, 0, 0, 0)  # timers fire within 1 us instead of 50
    distributed.init_process_group(
        "gloo",
        init_method=meeting,
        rank=rank,
        world_size=len(work),
        timeout=datetime.timedelta(seconds=settings.limit_s),
    )
    tasks = [_task(low, rank, settings) for low in lowered]
    with urgent(settings.real_time) as pace:
        for repetition in range(settings.warm_up + settings.repeats):
            for number, entries in enumerate(work[rank]):
                begin = _common_start(distributed, rank)
                pace(True)
                while (ahead := begin - time.monotonic_ns()) > 0:
                    time.sleep(ahead / 1e9)
                times, end = follow(entries, tasks[number], begin)
                pace(False)
                tasks[number].reset()
                say((repetition, number, (times, end)))
    distributed.barrier()
    distributed.destroy_process_group()


def _task(lowered: Lowered, rank: int, settings: Settings) -> Any:
    from ppsim.validation import tasks

    if settings.model is None:
        return tasks.timed(settings.message_bytes)
    return tasks.computing(lowered, rank, settings.model)


def _common_start(distributed: Any, rank: int) -> int:
    """A moment shortly ahead at which all ranks begin, on the system-wide clock of this host, in ns."""
    import torch

    distributed.barrier()
    moment = torch.zeros(1, dtype=torch.int64)
    if rank == 0:
        moment.fill_(time.monotonic_ns() + int(LEAD_S * 1e9))
    distributed.broadcast(moment, 0)
    return int(moment.item())


def follow(entries: Sequence[_Entry], task: Any, origin: int) -> tuple[list[tuple[int, int, int, int]], int]:
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


@contextmanager
def urgent(wanted: bool) -> Iterator[Callable[[bool], None]]:
    """Gives a function that raises this process to real-time priority and lowers it again; does nothing unwanted.

    Raises:
        PpsimError: the system does not allow it.
    """

    def pace(raised: bool) -> None:
        if wanted:
            policy, priority = (os.SCHED_RR, 10) if raised else (os.SCHED_OTHER, 0)
            for thread in os.listdir("/proc/self/task"):
                try:
                    os.sched_setscheduler(int(thread), policy, os.sched_param(priority))
                except ProcessLookupError:
                    continue
                except PermissionError as error:
                    raise PpsimError("real-time priority is not allowed here", "leave out --real-time") from error

    try:
        yield pace
    finally:
        pace(False)
