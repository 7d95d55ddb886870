"""Why lowered queues stand still: the cycle of ops, messages and channels that wait for each other."""

from __future__ import annotations

from ppsim.lowered import Lowered
from ppsim.network_tables import Tables

Hop = tuple[int, str, int]  # an op, how it waits, and the op it waits for


def cycle(tables: Tables) -> list[Hop]:
    """The hops of a cycle of waits in tables that have come to rest before their end.

    A hop is one of ``input`` (a device at the first op waits for the second, a message of its own), ``meets``
    (the other side of a message), ``channel`` (what holds up its channel) and ``queue`` (where its device stands).
    """
    devices = tables.devices
    op = int(devices["head"][devices["head"] < devices["stop"]][0])
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
    ops, op = tables.ops, tables.ops[at]
    device = tables.devices[op["device"]]
    head = int(device["head"])
    if op["start"] < 0 and at != head:
        return at, "queue", head
    if op["match"] < 0 or op["done"] >= 0:
        return at, "input", int(device["awaited"])
    if op["opened"] >= 0:
        return at, "meets", int(op["match"])
    holds = (ops["lane"] == op["lane"]) & (ops["turn"] == tables.lanes["turn"][op["lane"]]) & (ops["done"] < 0)
    return at, "channel", int(holds.argmax())
