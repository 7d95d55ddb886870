"""Simulated annealing over queues: move an op in its queue, time the queues, keep or undo the move.

Moves favour ops on the longest path. Ops with a fixed order never pass each other: ops of the same
kind and stage, F and I of one microbatch, and I and its W. The memory of a device never exceeds its
cap. Plain Python, compiled by numba.
"""

from __future__ import annotations

from typing import NamedTuple

from ppsim.core.columns import Floats, Ids, Ints
from ppsim.search.rules.order_kernel import MODULUS, Orders, draw, time_orders

ROUNDING = 1e-9
SERIES = 30  # percentage of moves that move ops of several microbatches


class Walk(NamedTuple):
    """The state of annealing in addition to the queues."""

    change: Floats  # shape (3 stages,), activations that an op adds, by code
    cap: Floats  # shape (devices,), memory caps in activations
    held: Floats  # shape (ops,), activations that the op's device holds after it
    place: Ints  # shape (3 stages x M,), the place of each op by number
    path: Ints  # shape (ops,), the places of the ops on the longest path
    best: Ids  # shape (ops,), receives the op codes of the best queues
    random: Ints  # shape (1,), state of the random numbers
    # shape (3,): weights of the span, the makespan and the devices' mean span in the cost
    weights: Floats
    log: Ints  # shape (2, M), the old and new places of the ops of a move
    reached: Floats  # shape (1,), receives the cost of the queues timed last, without the mean
    stop: Ints  # shape (1,), set by another thread to end the walk


def owner(orders: Orders, op: int) -> int:
    """Return the device that runs the op at a place."""
    return int(orders.device[orders.code[op] % len(orders.device)])


def prepare(orders: Orders, walk: Walk) -> None:
    """Fill ``walk`` with each device's memory after each op, and the places of all ops."""
    stages = len(orders.device)
    size = len(orders.result) // (2 * stages)
    for device in range(len(walk.cap)):
        held = 0.0
        for op in range(orders.offsets[device], orders.offsets[device + 1]):
            held += walk.change[orders.code[op]]
            walk.held[op] = held
            walk.place[orders.code[op] * size + orders.microbatch[op]] = op


def find_cost(orders: Orders, walk: Walk) -> float:
    """Time the queues and return the cost to minimize; -1 in a deadlock."""
    if time_orders(orders) < len(orders.code):
        return -1.0
    span, makespan, total = 0.0, 0.0, 0.0
    devices = len(walk.cap)
    for device in range(devices):
        first, stop = orders.offsets[device], orders.offsets[device + 1]
        if first < stop:
            end = orders.end[stop - 1]
            own = end - orders.start[first]
            span = max(span, own)
            makespan = max(makespan, end)
            total += own
    walk.reached[0] = walk.weights[0] * span + walk.weights[1] * makespan
    return walk.reached[0] + walk.weights[2] * total / devices


def find_path(orders: Orders, walk: Walk) -> int:
    """Write the longest path, back from the device that decides the cost; return its length."""
    stages = len(orders.device)
    size = len(orders.result) // (2 * stages)
    last, longest = 0, -1.0
    for device in range(len(walk.cap)):
        first, stop = orders.offsets[device], orders.offsets[device + 1]
        if first < stop:
            end = orders.end[stop - 1]
            own = end - orders.start[first] if walk.weights[0] > walk.weights[1] else end
            if own > longest:
                last, longest = stop - 1, own
    length = 0
    op = last
    while True:
        walk.path[length] = op
        length += 1
        first = orders.offsets[owner(orders, op)]
        if op > first and orders.end[op - 1] >= orders.start[op]:
            op -= 1
            continue
        code = orders.code[op]
        if 0 < code < stages:
            op = walk.place[(code - 1) * size + orders.microbatch[op]]
        elif stages <= code < 2 * stages - 1:
            op = walk.place[(code + 1) * size + orders.microbatch[op]]
        else:
            return length


def reachable_place(orders: Orders, walk: Walk, op: int, steps: int) -> int:
    """Return the place that an op can reach when it moves by at most ``steps`` places."""
    stages = len(orders.device)
    code, microbatch = orders.code[op], orders.microbatch[op]
    kind = code // stages
    change = walk.change[code]
    device = orders.device[code % stages]
    first, stop = orders.offsets[device], orders.offsets[device + 1]
    cap = walk.cap[device] + ROUNDING
    onward = steps > 0
    step = 1 if onward else -1
    place = op
    while place != op + steps:
        other = place + step
        if other < first or other >= stop or orders.code[other] == code:
            break
        if orders.microbatch[other] == microbatch:
            kinds = kind + orders.code[other] // stages
            if kinds < 3 and kind < 2 and orders.code[other] < 2 * stages:
                break
            if kinds == 3 and orders.code[other] % stages == code % stages:
                break
        held = (
            walk.held[other] - change
            if onward
            else (walk.held[other - 1] if other > first else 0.0) + change
        )
        if held > cap or (not onward and walk.held[other] + change > cap):
            break
        place = other
    return place


def move(orders: Orders, walk: Walk, op: int, to: int) -> None:
    """Move an op to another place of its device's queue, and shift the ops between."""
    stages = len(orders.device)
    size = len(orders.result) // (2 * stages)
    code, microbatch = orders.code[op], orders.microbatch[op]
    change = walk.change[code]
    step = 1 if to > op else -1
    first = orders.offsets[orders.device[code % stages]]
    before = walk.held[to] if to > op else (walk.held[to - 1] if to > first else 0.0) + change
    while op != to:
        other = op + step
        orders.code[op], orders.microbatch[op] = orders.code[other], orders.microbatch[other]
        walk.held[op] = walk.held[other] - change if step > 0 else walk.held[other] + change
        walk.place[orders.code[op] * size + orders.microbatch[op]] = op
        op = other
    orders.code[to], orders.microbatch[to] = code, microbatch
    walk.held[to] = before
    walk.place[code * size + microbatch] = to


def move_series(orders: Orders, walk: Walk, op: int, steps: int, many: int) -> int:
    """Move an op, and the same op of the next microbatches; return the number of moved ops."""
    size = len(orders.result) // (2 * len(orders.device))
    number = orders.code[op] * size + orders.microbatch[op]
    many = min(many, size - orders.microbatch[op])
    moved = 0
    for nth in range(many):
        here = walk.place[number + (many - 1 - nth if steps > 0 else nth)]
        there = reachable_place(orders, walk, here, steps)
        if there != here:
            move(orders, walk, here, there)
            walk.log[0, moved], walk.log[1, moved] = here, there
            moved += 1
    return moved


def pick(orders: Orders, walk: Walk, length: int) -> int:
    """Return the place of a random op to move, usually on the longest path or next to it."""
    if draw(walk.random, 4) == 0:
        return draw(walk.random, len(orders.code))
    op = walk.path[draw(walk.random, length)] + (draw(walk.random, 3) - 1) * draw(walk.random, 2)
    return int(min(max(op, 0), len(orders.code) - 1))


def anneal(orders: Orders, walk: Walk, moves: int, longest: int, hot: float, cold: float) -> float:
    """Try moves of up to ``longest`` places while the temperature falls from hot to cold.

    Return the best cost without the mean, -1 if the queues deadlock at the start. ``walk.best`` has
    the best queues; ``orders`` has those at the end of the walk.
    """
    prepare(orders, walk)
    cost = find_cost(orders, walk)
    if cost < 0:
        return cost
    best = walk.reached[0]
    walk.best[:] = orders.code
    length = find_path(orders, walk)
    size = walk.log.shape[1]
    for number in range(moves):
        if walk.stop[0]:
            break
        temperature = hot * (cold / hot) ** (number / moves)
        steps = 1 + draw(walk.random, longest) * draw(walk.random, 2)
        op = pick(orders, walk, length)
        many = (
            1 + draw(walk.random, 1 + draw(walk.random, size))
            if draw(walk.random, 100) < SERIES
            else 1
        )
        moved = move_series(orders, walk, op, steps if draw(walk.random, 2) else -steps, many)
        if moved == 0:
            continue
        new = find_cost(orders, walk)
        rise = new - cost
        if new >= 0 and (
            rise <= 0 or draw(walk.random, MODULUS) < MODULUS * 2.718281828 ** (-rise / temperature)
        ):
            cost = new
            length = find_path(orders, walk)
            if walk.reached[0] < best - ROUNDING * best:
                best = walk.reached[0]
                walk.best[:] = orders.code
        else:
            for nth in range(moved - 1, -1, -1):
                move(orders, walk, walk.log[1, nth], walk.log[0, nth])
    return best


PARTS = (
    time_orders,
    draw,
    owner,
    prepare,
    find_cost,
    find_path,
    reachable_place,
    move,
    move_series,
    pick,
)
