"""Kernel of list scheduling: whenever a device is free, it picks its next op by rules.

I goes before F, F before W. A limit for each stage bounds the F that wait for their I. W runs when
nothing else is ready, or when an F lacks memory. Plain Python, compiled by numba.
"""

from __future__ import annotations

from typing import NamedTuple

from ppsim.core.columns import Floats, Ints
from ppsim.search.rules.order_kernel import Orders

ROUNDING = 1e-9
NEVER = 1e300


class Policy(NamedTuple):
    """The settings, and the state of the devices while a schedule is written."""

    limit: Ints  # shape (stages,), most F of a stage whose I has not run
    # shape (devices,), the time that a device may idle in total although a W could run, before it
    # fills gaps shorter than a W
    slack: Floats
    patience: Floats  # shape (devices,), the time that a ready F waits for an I
    # shape (2,), whether F, or I, of a later stage goes before that of an earlier one
    late_first: Ints
    change: Floats  # shape (3 stages,), activations that an op adds, by code
    # shape (stages,), in the order of ``stages``: activations that F of this and all later stages
    # of the device add
    needed: Floats
    cap: Floats  # shape (devices,), memory caps in activations
    stages: Ints  # shape (stages,), grouped by device, ascending
    offsets: Ints  # shape (devices + 1,), start and end of each device's stages
    done: Ints  # shape (3 stages,), counts the ops by code
    # shape (stages x M,), grouped by device like ``stages``: the stages of the W to run, in order
    weights: Ints
    # shape (2, devices), counts the W that an I has made ready, and the W that have run
    waiting: Ints
    busy: Floats  # shape (devices,), the end of each device's last op
    wake: Floats  # shape (devices,), the time of each device's next decision
    held: Floats  # shape (devices,), activations held
    idle: Floats  # shape (devices,), time idled although a W could run
    filled: Ints  # shape (devices,), number of ops written


def arrival(orders: Orders, policy: Policy, code: int, size: int) -> float:
    """Return the arrival time of the input of the next op of a code.

    ``NEVER`` if it is unknown, or if all have run.
    """
    stages = len(orders.device)
    nth = policy.done[code]
    if nth >= size:
        return NEVER
    if code < stages:
        if code == 0:
            return 0.0
        end = orders.result[(code - 1) * size + nth]
    elif code == 2 * stages - 1:
        end = orders.result[(stages - 1) * size + nth]
    else:
        end = orders.result[(code + 1) * size + nth]
    return end + orders.latency[code] if end >= 0 else NEVER


def pick(orders: Orders, policy: Policy, device: int, kind: int, now: float, size: int) -> int:
    """Return the code of a device's next ready op of a kind; -1 for none, -2 if F lack memory."""
    stages = len(orders.device)
    chosen = -1
    first, stop = policy.offsets[device], policy.offsets[device + 1]
    for entry in range(first, stop):
        stage = policy.stages[entry]
        code = kind * stages + stage
        if arrival(orders, policy, code, size) > now:
            continue
        if kind == 0:
            if policy.done[stage] - policy.done[stages + stage] >= policy.limit[stage]:
                continue
            # Later stages of the device need memory too before gradients return.
            if policy.held[device] + policy.needed[entry] > policy.cap[device] + ROUNDING:
                if chosen < 0:
                    chosen = -2
                continue
        if chosen < 0 or policy.late_first[kind]:
            chosen = code
    return chosen


def next_arrival(
    orders: Orders, policy: Policy, device: int, kind: int, now: float, size: int
) -> float:
    """Return the next known arrival time of an input of a kind at a device after ``now``."""
    soonest = NEVER
    for entry in range(policy.offsets[device], policy.offsets[device + 1]):
        stage = policy.stages[entry]
        if (
            kind == 0
            and policy.done[stage] - policy.done[len(orders.device) + stage] >= policy.limit[stage]
        ):
            continue
        ready = arrival(orders, policy, kind * len(orders.device) + stage, size)
        if now < ready < soonest:
            soonest = ready
    return soonest


def choose(orders: Orders, policy: Policy, device: int, now: float, size: int) -> int:
    """Return the code of the op that a device starts now, -1 if it waits until ``wake``."""
    stages = len(orders.device)
    code = pick(orders, policy, device, 1, now, size)
    if code >= 0:
        return code
    soon = next_arrival(orders, policy, device, 1, now, size)
    first = policy.offsets[device]
    has_weight = policy.waiting[1, device] < policy.waiting[0, device]
    weight = (
        2 * stages + policy.weights[first * size + policy.waiting[1, device]] if has_weight else -1
    )
    code = pick(orders, policy, device, 0, now, size)
    if code == -2 and has_weight:
        return weight
    if code >= 0 and soon >= now + orders.time[code] - policy.patience[device]:
        return code
    if code < 0:
        soon = min(soon, next_arrival(orders, policy, device, 0, now, size))
    gap = soon - now
    if has_weight and (
        gap >= orders.time[weight] or policy.idle[device] + gap > policy.slack[device]
    ):
        return weight
    policy.wake[device] = soon
    return -1


def write(orders: Orders, policy: Policy) -> bool:
    """Write the queues into ``orders.code``; return False if some op cannot run."""
    stages, devices = len(orders.device), len(policy.cap)
    size = len(orders.result) // (2 * stages)
    orders.result[:] = -1.0
    policy.done[:] = 0
    policy.waiting[:] = 0
    policy.busy[:] = 0.0
    policy.wake[:] = 0.0
    policy.held[:] = 0.0
    policy.idle[:] = 0.0
    policy.filled[:] = 0
    left = len(orders.code)
    while left > 0:
        device = 0
        for other in range(1, devices):
            if policy.wake[other] < policy.wake[device]:
                device = other
        now = policy.wake[device]
        if now >= NEVER:
            return False
        code = choose(orders, policy, device, now, size)
        if code < 0:
            continue
        kind = code // stages
        stage = code - kind * stages
        if policy.waiting[1, device] < policy.waiting[0, device]:
            policy.idle[device] += now - policy.busy[device]
        end = now + orders.time[code]
        policy.busy[device] = policy.wake[device] = end
        policy.held[device] += policy.change[code]
        orders.code[orders.offsets[device] + policy.filled[device]] = code
        policy.filled[device] += 1
        left -= 1
        if kind == 2:
            policy.waiting[1, device] += 1
            policy.done[code] += 1
            continue
        orders.result[code * size + policy.done[code]] = end
        policy.done[code] += 1
        if kind == 1:
            policy.weights[policy.offsets[device] * size + policy.waiting[0, device]] = stage
            policy.waiting[0, device] += 1
        other = stage + 1 if kind == 0 else stage - 1
        if 0 <= other < stages:
            taker = orders.device[other]
            sent = end + orders.latency[kind * stages + other]
            policy.wake[taker] = max(policy.busy[taker], min(policy.wake[taker], sent))
    return True


PARTS = (arrival, pick, next_arrival, choose)
