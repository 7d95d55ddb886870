"""One greedy pass over a V placement of two stages per device: the heuristic of ZB-V's authors.

Plain Python over flat columns, which numba compiles for large shapes. A microbatch passes the
devices four times: its forwards down and back, its input backwards down and back. These are the op
types 0 to 3; even types get their input from the device before, odd ones from the device after. The
weight backwards of types 2 and 3 are types 4 and 5. A W waits in its device's queue until a bubble
fits it, or until no bubble may grow further.
"""

from __future__ import annotations

from typing import NamedTuple

from ppsim.core.columns import Floats, Ints

UNSET = -1.0
NEVER = 1e308  # the bubble of an order that cannot run
SLACK = 1e-9  # rounding of sums of activations


class VTables(NamedTuple):
    """Tables of a pass over P devices and M microbatches."""

    time: Floats  # shape (6 x P,), duration by type and device
    latency: Floats  # shape (P x P,), of a message by source and target
    held: Floats  # shape (6 x P,), memory that an op adds, by type and device
    limit: Floats  # shape (P,), memory cap of each device
    # shape (P,), the bubble of each device in the previous pass; negative in the first pass
    approved: Floats
    # shape (4 x P x M,), the end of each F and I by type, device and microbatch; ``UNSET`` before
    # it ran
    end: Floats
    now: Floats  # shape (P,), the time at which each device is free
    memory: Floats  # shape (P,), memory of each device
    bubble: Floats  # shape (P,), idle time of each device after its first op
    # shape (1,), the longest bubble; ``NEVER`` once an op ran without its input or beyond a cap
    most: Floats
    ran: Ints  # shape (6 x P,), the number of ops that ran, by type and device
    waiting: Ints  # shape (2 x M x P,), the type of the W of each I that ran, in order
    order: Ints  # shape (6 x M x P,), receives the type of each op of each device
    length: Ints  # shape (P,), the number of ops of each device that ran


def arrival(t: VTables, kind: int, device: int) -> float:
    """Return the arrival time of the input of a device's next op of type ``kind``.

    ``UNSET`` if it has not been made yet.
    """
    P = len(t.now)
    source = device - 1 + 2 * (kind & 1)
    if source < 0 or source >= P:
        return 0.0
    made = t.end[(kind * P + source) * (len(t.end) // (4 * P)) + t.ran[kind * P + device]]
    return made + t.latency[source * P + device] if made >= 0 else UNSET


def next_w(t: VTables, device: int) -> int:
    """Return the type of the W that has waited longest on a device, 0 if none is waiting."""
    P = len(t.now)
    done = t.ran[4 * P + device] + t.ran[5 * P + device]
    if t.ran[2 * P + device] + t.ran[3 * P + device] == done:
        return 0
    return t.waiting[device * (len(t.end) // (2 * P)) + done]


def run(t: VTables, kind: int, device: int) -> None:
    """Run a device's next op of type ``kind``.

    Without its input, or beyond the cap, the pass fails: its longest bubble becomes ``NEVER``.
    """
    P = len(t.now)
    M = len(t.end) // (4 * P)
    at = kind * P + device
    begin = t.now[device]
    if kind < 4:
        here = arrival(t, kind, device)
        if here < 0:
            t.most[0] = NEVER
        begin = max(begin, here)
        t.end[at * M + t.ran[at]] = begin + t.time[at]
        if kind >= 2:
            t.waiting[device * 2 * M + t.ran[2 * P + device] + t.ran[3 * P + device]] = kind + 2
    if t.length[device] > 0:
        t.bubble[device] += begin - t.now[device]
        t.most[0] = max(t.most[0], t.bubble[device])
    t.now[device] = begin + t.time[at]
    t.memory[device] += t.held[at]
    if t.memory[device] > t.limit[device] + SLACK:
        t.most[0] = NEVER
    t.order[device * 6 * M + t.length[device]] = kind
    t.length[device] += 1
    t.ran[at] += 1


def run_after_w(t: VTables, kind: int, device: int, fill: bool, most_approved: float) -> None:
    """Run an op, after each W that fits before its input arrives.

    With ``fill`` one more W runs if the bubble would otherwise be longer than all bubbles of this
    pass so far and of the previous pass.
    """
    P = len(t.now)
    if 0 <= device - 1 + 2 * (kind & 1) < P:
        here = arrival(t, kind, device)
        w = next_w(t, device)
        while w and here >= t.now[device] + t.time[w * P + device]:
            run(t, w, device)
            w = next_w(t, device)
        room = max(t.most[0], most_approved - t.approved[device]) - t.bubble[device]
        if fill and w and here - t.now[device] > room:
            run(t, w, device)
    run(t, kind, device)


def warm_up(t: VTables) -> None:
    """Run the forwards before the first backward of each device."""
    P = len(t.now)
    M = len(t.end) // (4 * P)
    for device in range(P):
        run(t, 0, device)
    for device in range(P - 1, -1, -1):
        if device < P - 1:
            back = arrival(t, 1, device)
            while (
                t.memory[device] + (t.held[device] + t.held[P + device]) * (1 + device)
                <= t.limit[device] + SLACK
                and t.now[device] + t.time[device] <= back
                and t.ran[device] < M
            ):
                for each in range(device + 1):
                    run(t, 0, each)
        run(t, 1, device)
    kind = 0
    for device in range(1, P):
        before = device - 1
        while (
            t.ran[device] + t.ran[P + device] < t.ran[before] + t.ran[P + before]
            or t.ran[P + device] <= t.ran[P + before] < M
        ):
            for each in range(P - 1, device - 1, -1):
                if t.ran[kind * P + each] < M:
                    run(t, kind, each)
            kind = 1 - kind


def choose_backward(t: VTables, device: int) -> int:
    """Return the type of a device's next I: of its first stage if that can run, else its second."""
    P = len(t.now)
    if t.ran[3 * P + device] >= t.ran[2 * P + device]:
        return 2
    if (
        device == P - 1
        or t.ran[2 * P + device] >= len(t.end) // (4 * P)
        or arrival(t, 3, device) >= 0
    ):
        return 3
    return 2


def choose_forward(t: VTables, device: int) -> int:
    """Return the type of a device's next F: of its second stage if that can run, else its first.

    -1 if neither can.
    """
    P = len(t.now)
    M = len(t.end) // (4 * P)
    if t.ran[P + device] >= M:
        return -1
    if t.ran[P + device] >= t.ran[device]:
        return 0
    if device == P - 1 or arrival(t, 1, device) >= 0:
        return 1
    return 0 if t.ran[device] < M and arrival(t, 0, device) >= 0 else -1


def order_greedily(t: VTables, fill_forward: bool, fill_backward: bool) -> float:
    """Order all ops, an I and an F of each device in turn; return the longest bubble of a device.

    With ``fill_forward`` a W runs before a bubble may grow in front of an F, with ``fill_backward``
    in front of an I of type 2.
    """
    P = len(t.now)
    M = len(t.end) // (4 * P)
    most_approved = t.approved[0]
    for device in range(P):
        most_approved = max(most_approved, t.approved[device])
    warm_up(t)
    choice = [0] * P
    for _ in range(2 * M):
        if t.most[0] >= NEVER:
            return NEVER
        for device in range(P):
            choice[device] = choose_backward(t, device)
        for device in range(P - 1, -1, -1):
            if choice[device] == 3:
                run_after_w(t, 3, device, True, most_approved)
        for device in range(P):
            if choice[device] == 2:
                run_after_w(t, 2, device, fill_backward, most_approved)
        for device in range(P):
            kind = choose_forward(t, device)
            if kind < 0:
                continue
            while t.memory[device] + t.held[kind * P + device] > t.limit[device] + SLACK and next_w(
                t, device
            ):
                run(t, next_w(t, device), device)
            run_after_w(t, kind, device, fill_forward, most_approved)
    for device in range(P):
        while next_w(t, device):
            run(t, next_w(t, device), device)
    return t.most[0]


# in the order of their calls
PARTS = (arrival, next_w, run, run_after_w, warm_up, choose_backward, choose_forward)
