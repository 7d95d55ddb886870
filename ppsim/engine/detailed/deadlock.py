"""Explain a deadlock: the cycle of ops, messages and channels that wait for each other."""

from __future__ import annotations

import numpy as np

from ppsim.core.lowered import Lowered
from ppsim.core.ops import COMMUNICATES, RECEIVES
from ppsim.core.waiting import follow_circle, wait_code
from ppsim.engine.detailed.tables import Tables

Hop = tuple[int, str, int]  # an op, how it waits, and the op it waits for


def find_cycle(tables: Tables) -> list[Hop]:
    """Return the hops of a cycle of waits, from the tables of a run that stopped before its end.

    A hop is one of these:

    - ``input``: a device at the first op waits for the second, one of its sends or receives;
    - ``meets``: a send or receive waits for the other side;
    - ``channel``: a send or receive waits for an op that its channel carries;
    - ``queue``: the first op has not been posted, as its device is at the second op.
    """
    devices = tables.devices
    op = int(devices.head[devices.head < devices.offsets[1:]][0])
    return [
        _find_hop(tables, each) for each in follow_circle(op, lambda op: _find_hop(tables, op)[2])
    ]


def explain_deadlock(lowered: Lowered, tables: Tables) -> tuple[str, str]:
    """Return the message and the hint for queues that deadlock."""
    schedule = lowered.schedule
    hops = find_cycle(tables)
    turns = [at for at, (_, how, _) in enumerate(hops) if how == "queue"]
    if turns:
        hops = hops[turns[-1] + 1 :] + hops[: turns[-1] + 1]
    parts: list[str] = []
    for at, (op, how, on) in enumerate(hops):
        verb = ", which waits for "
        if at == 0 or hops[at - 1][1] == "queue":
            parts.append(
                f"device {schedule.device[op]} at {schedule.label(op)}"
                if turns
                else _op_text(lowered, op)
            )
            verb = " waits for "
        if how == "queue":
            parts[-1] += f", behind {schedule.label(on)}"
        elif how == "channel":
            parts[-1] += f", held up in its channel by {schedule.label(on)}"
        else:
            parts[-1] += verb + (schedule.label(on) if how == "input" else _op_text(lowered, on))
    hint = (
        "post each receive before the op that its sender waits for, or give each direction a "
        "separate channel"
    )
    if tables.waits:
        hint = (
            "post neighbouring sends and receives as a batch, or let even devices send first "
            "(order even-first)"
        )
    return f"{schedule.name} deadlocks: " + "; ".join(parts), hint


def _op_text(lowered: Lowered, op: int) -> str:
    return f"{lowered.schedule.label(op)} on device {lowered.schedule.device[op]}"


def _find_hop(tables: Tables, op: int) -> Hop:
    ops, messages, routes = tables.ops, tables.messages, tables.routes
    device = int(np.searchsorted(tables.devices.offsets, op, side="right")) - 1
    head = int(tables.devices.head[device])
    message, receives = int(ops.message[op]), ops.kind[op] in RECEIVES
    route = messages.route[message]
    free = tables.latency and receives  # posted at once
    if ops.end[op] < 0 and op != head and not free:
        return op, "queue", head
    ready, end = messages.send_ready, messages.send_end
    if receives:
        ready, end = messages.receive_ready, messages.arrive
    if not COMMUNICATES[ops.kind[op]] or end[message] >= 0:
        return op, "input", _find_awaited(tables, device)
    if free or ready[message] >= 0:
        return op, "meets", int(messages.send[message] if receives else messages.receive[message])
    return (
        op,
        "channel",
        _find_carried(
            tables, routes.receive_channel[route] if receives else routes.send_channel[route]
        ),
    )


def _find_awaited(tables: Tables, device: int) -> int:
    """Return the send or receive that blocks a device: its first unfinished one, or an input's."""
    messages, head = tables.messages, int(tables.devices.head[device])
    if tables.devices.pending[device] > 0:
        while _has_ended(tables, head):
            head += 1
        return head
    awaited = messages.arrive == wait_code(device)
    if not awaited.any():
        awaited = tables.ops.end[messages.producer] == wait_code(device)
    return int(messages.receive[awaited.argmax()])


def _has_ended(tables: Tables, op: int) -> bool:
    """Return True if a send or receive has ended."""
    messages = tables.messages
    end = messages.arrive if tables.ops.kind[op] in RECEIVES else messages.send_end
    return bool(end[tables.ops.message[op]] >= 0)


def _find_carried(tables: Tables, channel: int) -> int:
    """Return the first op, in queue order, that a channel carries."""
    messages, routes = tables.messages, tables.routes
    sends = (messages.send_ready >= 0) & (messages.send_end < 0)
    receives = (messages.receive_ready >= 0) & (messages.arrive < 0)
    sends &= routes.send_channel[messages.route] == channel
    receives &= routes.receive_channel[messages.route] == channel
    return int(np.concatenate([messages.send[sends], messages.receive[receives]]).min())
