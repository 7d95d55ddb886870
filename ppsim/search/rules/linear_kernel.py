"""A list heuristic for one stage per device: all devices together, one microbatch after the other.

It follows the automatic schedules of "Zero Bubble Pipeline Parallelism" (arXiv 2401.10241, section
3): warm up until the first I arrives, then one F and one I per device and round, and W when a
device would idle or lacks memory. A device accepts a gap as long as it has idled less than the
device that has idled most. Plain Python, compiled by numba.
"""

from __future__ import annotations

from typing import NamedTuple

from ppsim.core.columns import Floats, Ints

F, I, W = 0, 1, 2  # noqa: E741 - the ops' letters
ROUNDING = 1e-9


class Line(NamedTuple):
    """A linear pipeline, and the state of its devices while it is scheduled."""

    time: Floats  # shape (3, devices), duration of F, I and W
    latency: Floats  # shape (devices, 2), of the inputs of F and I
    cap: Floats  # shape (devices,), memory caps in activations
    change: Floats  # shape (3,), activations that F, I and W add
    queue: Ints  # shape (devices, 3 M), receives the kinds of each device's ops
    end: Floats  # shape (2, devices, M), receives the ends of F and I
    done: Ints  # shape (3, devices), counts the ops of each kind that have run
    free: Floats  # shape (devices,), when each device is free
    held: Floats  # shape (devices,), activations held
    idle: Floats  # shape (devices,), time idled since the first op
    wanted: Ints  # shape (devices,), F to run in this round


def arrival(line: Line, device: int, kind: int) -> float:
    """Return the arrival time of the input of a device's next F or I, 0 without a message."""
    other = device - 1 if kind == F else device + 1
    if other < 0 or other >= line.end.shape[1]:
        return 0.0
    return line.end[kind, other, line.done[kind, device]] + line.latency[device, kind]


def run(line: Line, device: int, kind: int) -> None:
    """Run a device's next op of a kind."""
    nth = line.done[kind, device]
    start = line.free[device]
    if kind != W:
        ready = arrival(line, device, kind)
        if ready > start:
            if line.done[F, device] > 0:
                line.idle[device] += ready - start
            start = ready
        line.end[kind, device, nth] = start + line.time[kind, device]
    line.free[device] = start + line.time[kind, device]
    line.held[device] += line.change[kind]
    line.queue[device, line.done[0, device] + line.done[1, device] + line.done[2, device]] = kind
    line.done[kind, device] += 1


def longest_idle(line: Line) -> float:
    """Return how long the device has idled that has idled most."""
    longest = line.idle[0]
    for device in range(1, len(line.idle)):
        longest = max(longest, line.idle[device])
    return longest


def fill(line: Line, device: int, kind: int, greedy: bool) -> None:
    """Run W until the input of the next F or I arrives, and one more if the gap is too long."""
    ready = arrival(line, device, kind)
    while (
        line.done[W, device] < line.done[I, device]
        and line.free[device] + line.time[W, device] <= ready
    ):
        run(line, device, W)
    gap = ready - line.free[device]
    late = greedy or gap > longest_idle(line) - line.idle[device]
    if late and gap > 0 and line.done[W, device] < line.done[I, device]:
        run(line, device, W)


def make_room(line: Line, device: int, kind: int) -> bool:
    """Run W until the next op of a kind fits in memory; return False if it does not."""
    while line.held[device] + line.change[kind] > line.cap[device] + ROUNDING:
        if line.done[W, device] >= line.done[I, device]:
            return False
        run(line, device, W)
    return True


def warm_up(line: Line, microbatches: int, late: bool) -> None:
    """Run the F before each device's first I.

    They end before the input of I arrives; with ``late`` the last one only begins before.
    """
    devices = line.queue.shape[0]
    for device in range(devices):
        run(line, device, F)
    back = line.free[devices - 1] + line.time[I, devices - 1]
    for device in range(devices):
        line.wanted[device] = 0
    for device in range(devices - 2, -1, -1):
        held, now, ready = line.held[device], line.free[device], back + line.latency[device, I]
        while (
            1 + line.wanted[device] < microbatches
            and held + line.change[F] <= line.cap[device] + ROUNDING
        ):
            if now >= ready or (not late and now + line.time[F, device] > ready):
                break
            held += line.change[F]
            now += line.time[F, device]
            line.wanted[device] += 1
        back = max(now, ready) + line.time[I, device]
    for device in range(1, devices):
        # each F follows one on the device before
        line.wanted[device] = min(line.wanted[device], line.wanted[device - 1])
        while (
            line.wanted[device] >= max(1, line.wanted[device - 1])
            and 1 + line.wanted[device] < microbatches
        ):
            line.wanted[device] -= 1
    for device in range(devices):
        for _ in range(line.wanted[device]):
            run(line, device, F)
    for device in range(devices - 1, -1, -1):
        run(line, device, I)


def may_postpone(line: Line, device: int) -> bool:
    """Return True if a device's next F may wait a round, as the next device has enough work."""
    after = device + 1
    if line.done[F, device] < line.done[F, after] + 2:
        return False
    needed = line.free[after] + line.time[F, after] + line.time[I, after] + line.latency[device, I]
    now = line.free[device]
    if now >= needed:
        return True
    held, works = line.held[device] + line.change[F], line.done[W, device]
    while held > line.cap[device] + ROUNDING and works < line.done[I, device]:
        now += line.time[W, device]
        held += line.change[W]
        works += 1
    if now + line.time[F, device] <= needed:
        return False
    return needed - line.free[device] <= longest_idle(line) - line.idle[device]


def schedule_line(line: Line, late: bool, backward_first: bool, greedy: bool) -> bool:
    """Fill the queues of a linear pipeline; return False if they do not fit in memory.

    ``late`` lets the last warm-up F delay the first I, ``backward_first`` lets an F wait for an I
    of the next device, ``greedy`` fills every gap with a W if one is left.
    """
    devices, microbatches = line.queue.shape[0], line.queue.shape[1] // 3
    warm_up(line, microbatches, late)
    for _ in range(1, microbatches):
        for device in range(devices):
            left = line.done[F, device] < microbatches
            asks = backward_first and left and device + 1 < devices
            line.wanted[device] = left and not (asks and may_postpone(line, device))
        for device in range(devices - 2, -1, -1):
            line.wanted[device] = min(line.wanted[device], line.wanted[device + 1])
        for device in range(devices):
            if line.wanted[device]:
                if not make_room(line, device, F):
                    return False
                fill(line, device, F, greedy)
                run(line, device, F)
        for device in range(devices - 1, -1, -1):
            # An F has run: the last device runs one each round, and no device has run fewer than
            # the next.
            if not make_room(line, device, I):
                return False
            fill(line, device, I, greedy)
            if device == 0 and line.done[F, device] == microbatches:
                while line.done[W, device] < line.done[I, device]:
                    run(line, device, W)
            run(line, device, I)
    for device in range(devices):
        while line.done[W, device] < microbatches:
            run(line, device, W)
    return True


PARTS = (arrival, run, longest_idle, fill, make_room, warm_up, may_postpone)
