"""Devices that share a machine's cores: who waits for one, and how long.

A device that only lets its op's time pass needs no core until that time is over. It then needs one to end the op and
to make its calls, up to where it sleeps or waits again. A message needs one where it arrives. All take turns, first
come first served, and nobody is interrupted.
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
    """What a process does with a core."""

    TAKE = 0
    GIVE = 1


@dataclass(eq=False)
class Message:
    """One that travels.

    Attributes:
        travel: as in :class:`Work`.
        arriving: likewise.
        sides: how many have come to it, its send and its receive.
        arrived: when it was there; below zero before.
        waiting: who waits for that.
    """

    travel: float
    arriving: float
    sides: int = 0
    arrived: float = -1.0
    waiting: list[Process] = field(default_factory=list)


# Told the time, a process says what it does next: let time pass, take or give back a core, wait for a message, or let
# other processes go on.
Step = float | Core | Message | list["Process"]
Process = Generator[Step, float, None]


@dataclass(frozen=True)
class Work:
    """How long everything takes when no one is in the way.

    Attributes:
        entries: shape (entries,), each entry of the queues; of a pair, both ops together.
        late: the end of a compute op, which needs a core.
        gap: between two actions of a device.
        preamble: before the first.
        travel: shape (messages,), from the meeting of both sides until a core is needed.
        arriving: shape (messages,), with that core, until the message is there.
    """

    entries: Times
    late: float
    gap: float
    preamble: float
    travel: Times
    arriving: Times


@dataclass(frozen=True)
class Played:
    """When what happened.

    Attributes:
        start: shape (entries,).
        end: shape (entries,); a compute op's includes ``waited``.
        waited: shape (entries,), of compute ops for a core, once their time had passed.
        arrive: shape (messages,).
    """

    start: Times
    end: Times
    waited: Times
    arrive: Times


def play(schedule: Schedule, sides: Sequence[NDArray[np.integer]], work: Work, cores: int) -> Played:
    """Let devices follow their queues and share the cores.

    Args:
        schedule: lowered queues.
        sides: per message its send, its receive, and the op that needs it, -1 for none.
        work: how long everything takes.
        cores: how many there are.
    """
    n = len(schedule)
    played = Played(np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(len(sides[0])))
    messages = [Message(float(t), float(a)) for t, a in zip(work.travel, work.arriving, strict=True)]
    of: list[Message | None] = [None] * n  # the message that an entry sends, receives or needs
    for column in sides:
        for message, entry in zip(messages, column.tolist(), strict=True):
            if entry != NONE:
                of[entry] = message
    _run([_device(schedule, d, of, work, played) for d in range(schedule.n_devices)], cores)
    played.arrive[:] = [message.arrived for message in messages]
    return played


def _device(schedule: Schedule, device: int, of: Sequence[Message | None], work: Work, played: Played) -> Process:
    """Follow one queue, with a core while there is something to do."""
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
            played.start[both] = now
            asked = yield took[i] - work.late
            played.waited[both] = (yield Core.TAKE) - asked
            now = yield work.late
        else:
            played.start[i] = now
            if message := of[i]:
                message.sides += 1
                if message.sides == 2:
                    yield [_begun(_travel(message))]
            now = yield took[i]
        played.end[both] = now
        now = yield work.gap
    yield Core.GIVE


def _travel(message: Message) -> Process:
    """One message, from the meeting of its sides."""
    yield 0.0
    yield message.travel
    yield Core.TAKE
    message.arrived = yield message.arriving
    yield Core.GIVE
    yield message.waiting


def _begun(process: Process) -> Process:
    """A process that can be told the time."""
    next(process)
    return process


def _run(processes: Sequence[Process], cores: int) -> None:
    """Run processes in order of time, those of one time in the order in which it was said."""
    serial, free, turn = count(), cores, deque[Process]()
    events = [(0.0, next(serial), _begun(process)) for process in processes]
    while events:
        now, _, process = heappop(events)
        while (step := _next(process, now)) is not None:
            if isinstance(step, float):
                heappush(events, (now + step, next(serial), process))
                break
            if isinstance(step, Message):
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


def _next(process: Process, now: float) -> Step | None:
    """What a process does next; None when it is over."""
    try:
        return process.send(now)
    except StopIteration:
        return None
