"""Kernel that times the queues of a search: the exact longest path, on reused arrays.

An op's code is kind x stages + stage, with kind 0 for F, 1 for I and 2 for W. Its number is
code x M + microbatch. Plain Python; numba compiles it.
"""

from __future__ import annotations

from typing import NamedTuple

from ppsim.core.columns import Floats, Ids, Ints

NOTHING = -1
# Park and Miller's minimal standard generator of random numbers
MODULUS, FACTOR = 2147483647, 48271


class Orders(NamedTuple):
    """The queues of all devices, one after the other, and arrays for their times."""

    offsets: Ints  # shape (devices + 1,), start and end of each device's queue
    device: Ids  # shape (stages,), the device of each stage
    time: Floats  # shape (3 stages,), duration by code
    # shape (stages,), duration of B, which replaces an I directly followed by its W; -1 for stages
    # on which it does not
    full: Floats
    latency: Floats  # shape (2 stages,), of the inputs of F and I, by code
    code: Ids  # shape (ops,), the queues
    microbatch: Ids  # shape (ops,)
    start: Floats  # shape (ops,), receives the start of each op
    end: Floats  # shape (ops,), receives the end of each op
    # shape (2 stages x M,), receives the end of each F and I by number, -1 before that
    result: Floats
    head: Ints  # shape (devices,), the first op of each device that has not run
    awaited: Ints  # shape (devices,), the number of the op that a device waits for
    ready: Ints  # shape (devices,), a stack of devices that can continue


def draw(random: Ints, size: int) -> int:
    """Return a random number below ``size``; ``random`` is the generator's state, shape (1,)."""
    random[0] = random[0] * FACTOR % MODULUS
    return int(random[0] * size // MODULUS)


def time_orders(orders: Orders) -> int:
    """Time every op as early as its queue and input allow.

    Return the number of ops that ran, fewer than all in a deadlock.
    """
    offsets, code, microbatch = orders.offsets, orders.code, orders.microbatch
    start, end, result, head = orders.start, orders.end, orders.result, orders.head
    devices, stages = len(offsets) - 1, len(orders.device)
    size = len(result) // (2 * stages)
    for number in range(len(result)):
        result[number] = -1.0
    for device in range(devices):
        head[device] = offsets[device]
        orders.awaited[device] = NOTHING
        orders.ready[device] = devices - 1 - device
    depth, ran = devices, 0
    while depth > 0:
        depth -= 1
        device = orders.ready[depth]
        op = head[device]
        now = end[op - 1] if op > offsets[device] else 0.0
        while op < offsets[device + 1]:
            what = code[op]
            if what >= 2 * stages:
                start[op] = now
                now += orders.time[what]
                end[op] = now
                op += 1
                continue
            forward = what < stages
            stage = what if forward else what - stages
            need = NOTHING
            if forward and stage > 0:
                need = (what - 1) * size + microbatch[op]
            elif not forward and stage < stages - 1:
                need = (what + 1) * size + microbatch[op]
            if need >= 0:
                arrival = result[need]
                if arrival < 0:
                    orders.awaited[device] = need
                    break
                arrival += orders.latency[what]
                if arrival > now:
                    now = arrival
            start[op] = now
            joined = (
                not forward
                and orders.full[stage] >= 0
                and op + 1 < offsets[device + 1]
                and code[op + 1] == what + stages
                and microbatch[op + 1] == microbatch[op]
            )
            now += orders.full[stage] if joined else orders.time[what]
            end[op] = now
            number = what * size + microbatch[op]
            result[number] = now
            other = stage + 1 if forward else stage - 1
            if 0 <= other < stages:
                taker = orders.device[other]
                if orders.awaited[taker] == number:
                    orders.awaited[taker] = NOTHING
                    orders.ready[depth] = taker
                    depth += 1
            op += 1
            if joined:
                start[op] = end[op] = now
                op += 1
        ran += op - head[device]
        head[device] = op
    return ran
