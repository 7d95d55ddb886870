"""Deadlocks in the in-order queues of communicators.

A device posts its sends and receives without waiting, but a communicator runs the messages posted
to it one after another: a message begins once its send and its receive are both first in their
queues (rendezvous), and leaves the queues when it is finished. Whether an order of posts hangs
depends on the number of queues of a device:

``edge``
    one for each other device and direction (torch from 2.15 on),
``pair``
    one for each other device (NCCL communicators made at first use; torch before 2.15),
``rank``
    a single one (one NCCL communicator made at the start, or coalesced batches).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ppsim.core.draft import Draft
from ppsim.core.waiting import follow_circle
from ppsim.inputs.check.faults import Fault, deadlock_at
from ppsim.inputs.check.messages import ExpectedMessages

# from the most queues to the fewest; a schedule that runs with fewer queues also runs with more
QUEUES = ("edge", "pair", "rank")
# The queues of a runtime over NCCL, and whether it posts neighbouring sends and receives as one
# group.
QUEUES_OF = {
    "torch-2.13": ("pair", False),
    "torch-2.15": ("edge", False),
    "megatron": ("rank", True),
}
Ints = NDArray[np.int64]


def queue_faults(
    draft: Draft, messages: ExpectedMessages, per: str, batched: bool = False
) -> Iterator[Fault]:
    """Yield the deadlock of a draft, if one in-order queue per ``edge``, ``pair`` or ``rank`` has
    one.

    Sends and receives must match. With ``batched``, neighbouring sends and receives of a device
    form a group that runs in any order.
    """
    cycle = find_cycle(draft, messages, per, batched)
    if not cycle:
        return
    sent, received = messages.matched(draft)
    send, receive = messages.send[sent].tolist(), messages.receive[received].tolist()
    other_side = {**dict(zip(send, receive, strict=True)), **dict(zip(receive, send, strict=True))}
    lines, links = [], []
    for op, waits_for in cycle:
        side, waits = other_side.get(op), op
        if side is not None and draft.device[waits_for] == draft.device[side] and waits_for != side:
            waits = side
        links.append((waits, waits_for))
        who = f"{draft.label(waits)} ({draft.where(waits)})"
        lines.append(f"{who} waits for {draft.label(waits_for)} ({draft.place(waits_for)})")
    ops = [op for op, _ in cycle]
    yield deadlock_at(
        draft,
        ops[0],
        f"in the queues of communicators, one per {per}",
        lines,
        links,
        "post in the order in which messages are needed (--order early or torch), or give each "
        "direction its queue",
        *ops[1:],
    )


def find_cycle(
    draft: Draft, messages: ExpectedMessages, per: str, batched: bool
) -> list[tuple[int, int]]:
    """Return a cycle of waits, as pairs of an op and the op it waits for; empty without deadlock.

    Messages and ops are steps. The send stands for the step of a message, and the first op for the
    step of a pair.
    """
    step, before, after = _waits(draft, messages, per, batched)
    blocked = np.bincount(after, minlength=len(draft))
    order = np.argsort(before, kind="stable")
    bounds = np.searchsorted(before[order], np.arange(len(draft) + 1))
    targets = after[order].tolist()
    ready = np.flatnonzero((blocked == 0) & (step == np.arange(len(draft)))).tolist()
    left = blocked.tolist()
    done = [False] * len(draft)
    while ready:
        op = ready.pop()
        done[op] = True
        for other in targets[bounds[op] : bounds[op + 1]]:
            left[other] -= 1
            if left[other] == 0:
                ready.append(other)
    waiting = {
        int(a): int(b) for b, a in zip(before, after, strict=True) if not done[a] and not done[b]
    }
    if not waiting:
        return []
    return [(op, waiting[op]) for op in follow_circle(next(iter(waiting)), waiting.__getitem__)]


def _waits(
    draft: Draft, messages: ExpectedMessages, per: str, batched: bool
) -> tuple[Ints, Ints, Ints]:
    """Return the step of each op, and the pairs of steps of which the first must finish first."""
    n = len(draft)
    everything = np.arange(n)
    sent, received = messages.matched(draft)
    send, receive = messages.send[sent], messages.receive[received]
    step = np.where(draft.leads, everything, everything - 1)
    step[receive] = send
    moves = draft.communicates & np.isin(everything, np.concatenate([send, receive]))
    # Compute ops and waits run one after another on their device.
    alone = np.flatnonzero(~moves & draft.leads)
    rows = [_chain(alone, draft.device[alone].astype(np.int64))]
    rows.append((send, messages.consumer[received]))
    rows.append((messages.producer[sent], send))
    awaited = messages.send_waits(draft, sent)
    rows.append((send[awaited >= 0], awaited[awaited >= 0]))
    source, target = draft.device[send].astype(np.int64), draft.device[receive].astype(np.int64)
    op, device, peer = (
        np.concatenate([send, receive]),
        np.concatenate([source, target]),
        np.concatenate([target, source]),
    )
    outgoing = np.repeat([1, 0], len(send))
    pair = device * draft.n_devices + peer
    key = {"edge": pair * 2 + outgoing, "pair": pair, "rank": device}[per]
    if batched:
        rows += _between_batches(draft, op, key)
    else:
        order = np.lexsort((op, key))
        rows.append(_chain(op[order], key[order]))
    before, after = (np.concatenate([row[side] for row in rows]) for side in (0, 1))
    before, after = step[before], step[after]
    different = before != after
    return step, before[different], after[different]


def _chain(op: Ints, key: Ints) -> tuple[Ints, Ints]:
    """Return pairs of neighbouring ops with equal keys; equal keys are adjacent."""
    same = key[1:] == key[:-1]
    return op[:-1][same], op[1:][same]


def _between_batches(draft: Draft, op: Ints, key: Ints) -> list[tuple[Ints, Ints]]:
    """Return all pairs of an op and an op of the next batch in its queue.

    Neighbouring messages in a queue are a batch.
    """
    batch = np.cumsum(~draft.follows_message)
    rows = []
    order = np.lexsort((op, key))
    op, key = op[order], key[order]
    groups: dict[int, list[list[int]]] = {}
    for each, queue_of, number in zip(op.tolist(), key.tolist(), batch[op].tolist(), strict=True):
        queue = groups.setdefault(queue_of, [])
        if queue and batch[queue[-1][0]] == number:
            queue[-1].append(each)
        else:
            queue.append([each])
    for queue in groups.values():
        for first, then in pairwise(queue):
            rows.append((np.repeat(first, len(then)), np.tile(then, len(first))))
    return rows
