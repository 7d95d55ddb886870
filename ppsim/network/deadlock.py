"""Why lowered queues stand still: the cycle of ops, messages and channels that wait for each other."""

from __future__ import annotations

import numpy as np

from ppsim.core.lowered import Lowered
from ppsim.core.ops import RECEIVES, Kind
from ppsim.network.tables import Tables

MARK = -2  # less the device, see ppsim.network.tables
Hop = tuple[int, str, int]  # an op, how it waits, and the op it waits for


def cycle(tables: Tables) -> list[Hop]:
    """The hops of a cycle of waits in tables that have come to rest before their end.

    A hop is one of ``input`` (a device at the first op waits for the second, a message of its own), ``meets``
    (the other side of a message), ``channel`` (what holds up its channel) and ``queue`` (where its device stands).
    """
    devices = tables.devices
    op = int(devices.head[devices.head < devices.offsets[1:]][0])
    hops: list[Hop] = []
    met: dict[int, int] = {}
    while op not in met:
        met[op] = len(hops)
        hops.append(_hop(tables, op))
        op = hops[-1][2]
    return hops[met[op] :]


def explain(lowered: Lowered, tables: Tables) -> tuple[str, str]:
    """The message and the hint for queues that stand still."""
    schedule = lowered.schedule
    hops = cycle(tables)
    turns = [at for at, (_, how, _) in enumerate(hops) if how == "queue"]
    if turns:
        hops = hops[turns[-1] + 1 :] + hops[: turns[-1] + 1]
    parts: list[str] = []
    for at, (op, how, on) in enumerate(hops):
        verb = ", which waits for "
        if at == 0 or hops[at - 1][1] == "queue":
            parts.append(f"device {schedule.device[op]} at {schedule.label(op)}" if turns else _named(lowered, op))
            verb = " waits for "
        if how == "queue":
            parts[-1] += f", behind {schedule.label(on)}"
        elif how == "channel":
            parts[-1] += f", held up in its channel by {schedule.label(on)}"
        else:
            parts[-1] += verb + (schedule.label(on) if how == "input" else _named(lowered, on))
    hint = "post each receive ahead of what its sender waits for, or give each direction a channel of its own"
    if tables.waits:
        hint = "post neighbouring sends and receives as a batch, or let even devices send first (order even-first)"
    return f"{schedule.name} deadlocks: " + "; ".join(parts), hint


def _named(lowered: Lowered, op: int) -> str:
    return f"{lowered.schedule.label(op)} on device {lowered.schedule.device[op]}"


def _hop(tables: Tables, at: int) -> Hop:
    ops, sides = tables.ops, tables.sides
    device = int(np.searchsorted(tables.devices.offsets, at, side="right")) - 1
    head = int(tables.devices.head[device])
    message, receive = int(ops.message[at]), ops.kind[at] in RECEIVES
    ways, leg = tables.ways, sides.leg[message]
    free = tables.latency and receive  # it is posted at once
    if ops.end[at] < 0 and at != head and not free:
        return at, "queue", head
    other, opened, over = sides.receive, sides.sent, sides.over
    if receive:
        other, opened, over = sides.send, sides.ready, sides.arrive
    if ops.kind[at] < Kind.SEND_F or ops.kind[at] > Kind.RECV_B or over[message] >= 0:
        return at, "input", _awaited(tables, device)
    if free or opened[message] >= 0:
        return at, "meets", int(other[message])
    return at, "channel", _runs(tables, ways.into[leg] if receive else ways.out[leg])


def _awaited(tables: Tables, device: int) -> int:
    """The side of a message that a device waits for: of those it has posted, or what it has left its mark on."""
    sides, head = tables.sides, int(tables.devices.head[device])
    if tables.devices.pending[device] > 0:
        while _over(tables, head):
            head += 1
        return head
    waited = sides.arrive == MARK - device
    if not waited.any():
        waited = tables.ops.end[sides.producer] == MARK - device
    return int(sides.receive[waited.argmax()])


def _over(tables: Tables, op: int) -> bool:
    """Whether a send or receive is over."""
    sides = tables.sides
    return bool((sides.arrive if tables.ops.kind[op] in RECEIVES else sides.over)[tables.ops.message[op]] >= 0)


def _runs(tables: Tables, lane: int) -> int:
    """The first op of a channel whose turn it is."""
    sides, ways = tables.sides, tables.ways
    sends = (ways.out[sides.leg] == lane) & (sides.sent >= 0) & (sides.over < 0)
    receives = (ways.into[sides.leg] == lane) & (sides.ready >= 0) & (sides.arrive < 0)
    return int(np.concatenate([sides.send[sends], sides.receive[receives]]).min())
