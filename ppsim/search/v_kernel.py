"""A list heuristic for two stages per device in a V: all devices together, in rounds of one I and one F.

The idea is that of the ZB-V schedules of "Zero Bubble Pipeline Parallelism" (arXiv 2401.10241, section 6): warm up
until both stages of every device have work, then one I and one F per device and round, W where a device would idle or
lacks memory. A device tolerates a gap as long as it has idled less than the device that idles most, in this attempt or
the one before. Plain Python; numba compiles it.
"""

from __future__ import annotations

from typing import NamedTuple

from ppsim.base.columns import Floats, Ints

F, I, W = 0, 1, 2  # noqa: E741 - the ops' letters
ROUNDING = 1e-9


class Vee(NamedTuple):
    """A V of two stages per device, and the state of its devices while it is scheduled.

    A sweep is a direction: 0 from device 0 to the last one, 1 back. F passes through the first half of the stages in
    sweep 0 and through the second half in sweep 1; I passes through the second half in sweep 0.

    Attributes:
        time: shape (3, 2, devices), duration of F, I and W of each sweep.
        latency: shape (2, 2, devices), of the message that F and I of each sweep wait for.
        cap: shape (devices,), most activations held.
        change: shape (3,), activations that F, I and W add.
        queue: shape (devices, 6 M), receives the kind and sweep of each device's ops, as 2 kind + sweep.
        end: shape (2, 2, devices, M), receives the ends of F and I of each sweep; -1 before that.
        done: shape (3, 2, devices), counts the ops of each kind and sweep that have run.
        weights: shape (devices, 2 M), the sweeps of the W to run, in the order of their I.
        free: shape (devices,), when each device is free.
        held: shape (devices,), activations held.
        idle: shape (devices,), time idled since the first op.
        allowed: shape (devices,), the idle time that each device may have.
    """

    time: Floats
    latency: Floats
    cap: Floats
    change: Floats
    queue: Ints
    end: Floats
    done: Ints
    weights: Ints
    free: Floats
    held: Floats
    idle: Floats
    allowed: Floats


def ready_at(vee: Vee, device: int, kind: int, sweep: int) -> float:
    """Return when the input of a device's next F or I arrives: 0 from the device itself, -1 while nothing sends it."""
    other = device - 1 if sweep == 0 else device + 1
    if other < 0 or other >= len(vee.free):
        return 0.0
    end = vee.end[kind, sweep, other, vee.done[kind, sweep, device]]
    return end + vee.latency[kind, sweep, device] if end >= 0 else -1.0


def run(vee: Vee, device: int, kind: int, sweep: int) -> bool:
    """Run a device's next op of a kind and sweep; tell whether it can run."""
    nth = vee.done[kind, sweep, device]
    if nth >= vee.queue.shape[1] // 6 or vee.held[device] + vee.change[kind] > vee.cap[device] + ROUNDING:
        return False
    start = vee.free[device]
    if kind != W:
        source = 2 * kind + sweep - 1  # what has run on this device before: F of sweep 0 and 1, I of sweep 0
        ready = ready_at(vee, device, kind, sweep)
        if (source >= 0 and vee.done[source // 2, source % 2, device] <= nth) or ready < 0:
            return False
        if ready > start:
            if vee.done[F, 0, device] > 0:
                vee.idle[device] += ready - start
            start = ready
        vee.end[kind, sweep, device, nth] = start + vee.time[kind, sweep, device]
    if kind == I:
        vee.weights[device, vee.done[I, 0, device] + vee.done[I, 1, device]] = sweep
    position = 0
    for other in range(3):
        position += vee.done[other, 0, device] + vee.done[other, 1, device]
    vee.queue[device, position] = 2 * kind + sweep
    vee.free[device] = start + vee.time[kind, sweep, device]
    vee.held[device] += vee.change[kind]
    vee.done[kind, sweep, device] += 1
    return True


def pending(vee: Vee, device: int) -> int:
    """Return the sweep of a device's next W, or -1 where none waits."""
    works = vee.done[W, 0, device] + vee.done[W, 1, device]
    if works >= vee.done[I, 0, device] + vee.done[I, 1, device]:
        return -1
    return int(vee.weights[device, works])


def fill(vee: Vee, device: int, kind: int, sweep: int, greedy: bool) -> None:
    """Run W while they end before the input of the next F or I arrives, and one more where the gap is too long."""
    ready = ready_at(vee, device, kind, sweep)
    work = pending(vee, device)
    while work >= 0 and ready >= vee.free[device] + vee.time[W, work, device]:
        run(vee, device, W, work)
        work = pending(vee, device)
    tolerated = max(vee.idle.max(), vee.allowed[device]) - vee.idle[device]
    if work >= 0 and greedy and ready - vee.free[device] > tolerated:
        run(vee, device, W, work)


def make_room(vee: Vee, device: int, kind: int) -> bool:
    """Run W until the next op of a kind fits in memory; tell whether it then does."""
    while vee.held[device] + vee.change[kind] > vee.cap[device] + ROUNDING:
        work = pending(vee, device)
        if work < 0:
            return False
        run(vee, device, W, work)
    return True


def warm_up(vee: Vee) -> bool:
    """Run the first F of both sweeps on every device, with as many of sweep 0 as fit before those of sweep 1."""
    devices, microbatches = len(vee.free), vee.queue.shape[1] // 6
    for device in range(devices):
        if not run(vee, device, F, 0):
            return False
    for device in range(devices - 1, -1, -1):
        while device < devices - 1 and vee.done[F, 0, device] + device < microbatches:
            late = vee.free[device] + vee.time[F, 0, device] > ready_at(vee, device, F, 1)
            if late or vee.held[device] + 2 * (device + 1) > vee.cap[device] + ROUNDING:
                break
            for other in range(device + 1):
                if not run(vee, other, F, 0):
                    return False
        if not run(vee, device, F, 1):
            return False
    sweep = 0
    for device in range(1, devices):
        rounds = 0
        while rounds < 4 * microbatches:
            here, before = vee.done[F, :, device], vee.done[F, :, device - 1]
            enough = here[0] + here[1] >= before[0] + before[1]
            if enough and not here[1] <= before[1] < microbatches:
                break
            for other in range(devices - 1, device - 1, -1):
                if vee.done[F, sweep, other] < microbatches and not run(vee, other, F, sweep):
                    return False
            sweep = 1 - sweep
            rounds += 1
    return True


def backward_round(vee: Vee, turn: Ints, greedy: bool) -> bool:
    """Run one I on every device, those of sweep 1 first and from the last device on."""
    devices, microbatches = len(vee.free), vee.queue.shape[1] // 6
    for device in range(devices):
        zero, one = vee.done[I, 0, device], vee.done[I, 1, device]
        came = zero >= microbatches or device == devices - 1
        turn[device] = one < zero and (came or vee.end[I, 1, device + 1, one] >= 0)
    for step in range(2 * devices):
        sweep = 1 if step < devices else 0
        device = devices - 1 - step if sweep else step - devices
        if turn[device] == sweep:
            fill(vee, device, I, sweep, sweep == 1 or greedy)
            if not run(vee, device, I, sweep):
                return False
    return True


def forward_round(vee: Vee, greedy: bool) -> bool:
    """Run one F on every device that has one, of sweep 1 where it can."""
    devices, microbatches = len(vee.free), vee.queue.shape[1] // 6
    for device in range(devices):
        zero, one = vee.done[F, 0, device], vee.done[F, 1, device]
        if one >= microbatches:
            continue
        sweep = -1
        if one >= zero:
            sweep = 0
        elif device == devices - 1 or vee.end[F, 1, device + 1, one] >= 0:
            sweep = 1
        elif zero < microbatches and (device == 0 or vee.end[F, 0, device - 1, zero] >= 0):
            sweep = 0
        if sweep < 0:
            continue
        if not make_room(vee, device, F):
            return False
        fill(vee, device, F, sweep, greedy)
        if not run(vee, device, F, sweep):
            return False
    return True


def schedule_v(vee: Vee, turn: Ints, greedy_forward: bool, greedy_backward: bool) -> bool:
    """Fill the queues of a V; tell whether they fit in memory.

    The greedy ones fill every gap before an F, or an I of sweep 0, with a W that still has to run.
    """
    devices, microbatches = len(vee.free), vee.queue.shape[1] // 6
    if not warm_up(vee):
        return False
    for _ in range(2 * microbatches):
        if not backward_round(vee, turn, greedy_backward) or not forward_round(vee, greedy_forward):
            return False
    for device in range(devices):
        while pending(vee, device) >= 0:
            run(vee, device, W, pending(vee, device))
    return True


PARTS = (ready_at, run, pending, fill, make_room, warm_up, backward_round, forward_round)
