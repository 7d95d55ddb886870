"""Devices that share a machine's cores: which waits for one, and how long.

A device whose op sleeps needs no core until the op's time has passed. It then needs one to end the op and to make its
calls, until it sleeps or waits again. A message needs a core where it arrives. Cores are given first come first
served, and nobody is interrupted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from heapq import heappop, heappush
from itertools import count

import numpy as np
from numpy.typing import NDArray

from ppsim.core.schedule import NONE, Schedule

Times = NDArray[np.float64]


class Core(Enum):
    """A request of a process: take or give back a core."""

    TAKE = 0
    GIVE = 1


@dataclass(eq=False)
class Transfer:
    """One message and the processes that wait for it."""

    travel: float  # as in :class:`Work`
    arriving: float  # likewise
    sides: int = 0  # how many of its send and its receive are posted
    arrived: float = -1.0  # the time of its arrival; below zero until then
    waiting: list[Process] = field(default_factory=list)  # processes to wake then


# A process is a generator that receives the time and yields its next step: a delay, a core taken or given back, a
# message to wait for, or processes to wake.
Yielded = float | Core | Transfer | list["Process"]
Process = Generator[Yielded, float, None]


@dataclass(frozen=True)
class Work:
    """Durations without contention."""

    entries: Times  # shape (entries,), each entry of the queues; of a pair, both ops together
    late: float  # the part of a compute op, at its end, that needs a core
    gap: float  # between two actions of a device
    preamble: float  # before the first
    travel: Times  # shape (messages,), from the later post of both sides until a core is needed
    arriving: Times  # shape (messages,), on that core, until the message has arrived


@dataclass(frozen=True)
class CoreTimes:
    """Start, end, waiting and arrival times of one simulated run."""

    start: Times  # shape (entries,)
    end: Times  # shape (entries,); of a compute op it includes ``waited``
    waited: Times  # shape (entries,), how long compute ops waited for a core once their time had passed
    arrive: Times  # shape (messages,)


def share_cores(schedule: Schedule, sides: Sequence[NDArray[np.integer]], work: Work, cores: int) -> CoreTimes:
    """Simulate devices that follow their queues and share cores; ``work`` are durations without contention.

    ``sides`` are per message its send, its receive, and the op that needs it, -1 for none.
    """
    n = len(schedule)
    times = CoreTimes(np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(len(sides[0])))
    messages = [Transfer(float(t), float(a)) for t, a in zip(work.travel, work.arriving, strict=True)]
    of: list[Transfer | None] = [None] * n  # the message that an entry sends, receives or works on
    for column in sides:
        for message, entry in zip(messages, column.tolist(), strict=True):
            if entry != NONE:
                of[entry] = message
    _run([_device(schedule, d, of, work, times) for d in range(schedule.n_devices)], cores)
    times.arrive[:] = [message.arrived for message in messages]
    return times


def _device(schedule: Schedule, device: int, of: Sequence[Transfer | None], work: Work, times: CoreTimes) -> Process:
    """Follow one queue, on a core except while an op sleeps or waits."""
    leads, computes, took = (column.tolist() for column in (schedule.leads, schedule.computes, work.entries))
    yield 0.0
    yield work.preamble
    now = yield Core.TAKE
    queue = schedule.queue(device)
    for i in range(queue.start, queue.stop):
        if not leads[i]:
            continue
        both = list(schedule.members(i))
        if computes[i]:
            yield Core.GIVE
            for message in (of[op] for op in both):
                if message:
                    now = yield message
            times.start[both] = now
            asked = yield took[i] - work.late
            times.waited[both] = (yield Core.TAKE) - asked
            now = yield work.late
        else:
            times.start[i] = now
            if message := of[i]:
                message.sides += 1
                if message.sides == 2:
                    yield [_advance_to_first_yield(_travel(message))]
            now = yield took[i]
        times.end[both] = now
        now = yield work.gap
    yield Core.GIVE


def _travel(message: Transfer) -> Process:
    """Move one message, from the later post of its sides."""
    yield 0.0
    yield message.travel
    yield Core.TAKE
    message.arrived = yield message.arriving
    yield Core.GIVE
    yield message.waiting


def _advance_to_first_yield(process: Process) -> Process:
    """Advance a new process to its first yield."""
    next(process)
    return process


def _run(processes: Sequence[Process], cores: int) -> None:
    """Run the event loop: in order of time, ties in the order they were scheduled."""
    serial, free, turn = count(), cores, deque[Process]()
    events = [(0.0, next(serial), _advance_to_first_yield(process)) for process in processes]
    while events:
        now, _, process = heappop(events)
        while (step := _next(process, now)) is not None:
            if isinstance(step, float):
                heappush(events, (now + step, next(serial), process))
                break
            if isinstance(step, Transfer):
                if step.arrived < 0:
                    step.waiting.append(process)
                    break
            elif step is Core.TAKE:
                if not free:
                    turn.append(process)
                    break
                free -= 1
            elif step is Core.GIVE:
                if turn:
                    heappush(events, (now, next(serial), turn.popleft()))
                else:
                    free += 1
            else:
                for other in step:
                    heappush(events, (now, next(serial), other))


def _next(process: Process, now: float) -> Yielded | None:
    """Resume a process and return its next step; None when it has ended."""
    try:
        return process.send(now)
    except StopIteration:
        return None
