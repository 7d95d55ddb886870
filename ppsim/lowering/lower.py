"""Lowering: from queues of compute ops to queues with their sends and receives written out.

``early``, ``even-first`` and ``torch`` put all ops and messages of all devices in one sequence and cut it into
queues. Such queues cannot deadlock in any mode: the first unfinished entry of the sequence has everything before
it done on both of its sides. The other orders move receives only, and :mod:`ppsim.check` tells what that breaks.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppsim.base.compiled import run_in_place
from ppsim.core.costs import costs_for
from ppsim.core.lowered import Lowered
from ppsim.core.ops import BACKWARDS, FORWARDS, RECEIVES, SENDS, Kind, mask
from ppsim.core.schedule import NONE, Schedule
from ppsim.errors import Deadlock, InputError
from ppsim.lowering import fsdp
from ppsim.lowering import lower_kernel as kernel
from ppsim.simulation.longest_path import explain_deadlock, simulate

NEEDS_MESSAGE = (*FORWARDS, *BACKWARDS)  # the kinds whose input may come by a message
ORDERS = ("early", "even-first", "torch", "torch-2.15", "deferred", "prefetch:K")
Ints = NDArray[np.int64]


class Keys(NamedTuple):
    """Where sends and receives stand among the ops of their device.

    Attributes:
        local: shape (local ops,), never less than the op's before on its device.
        sides: shape (2 x messages,), sends, then receives, in the order they are issued.
        when: shape (2 x messages,), the key of each of them: it stands ahead of the first op whose key is not less.
    """

    local: NDArray[Any]
    sides: Ints
    when: NDArray[Any]


def lower(
    schedule: Schedule,
    order: str = "early",
    *,
    batch: bool = False,
    unshard: int = 0,
    reduce_grad: bool = False,
) -> Lowered:
    """Write out the sends and receives of a schedule. A send follows the op whose result it carries.

    Args:
        schedule: compute ops only.
        order: when a receive is posted.
            ``early``: the moment the awaited op ends in a run with t_F = t_I = t_W = 1, t_B = 2.
            ``even-first``: the same; where two devices send at one moment, even ranks send before odd ones.
            ``torch``: as torch.distributed.pipelining 2.13 does, when its sweep over the ranks passes the awaited op.
            ``torch-2.15``: the same with the waits that torch 2.15 asks for: WAIT_SEND_F behind the backward of its
            microbatch, WAIT_SEND_B at the end of the queue, WAIT_REDUCE_GRAD behind each REDUCE_GRAD.
            ``deferred``: torch's ``defer_pp_recv``: as late as possible, on the lower rank of a link ahead of
            its sends. It can break the order of messages, as in torch.
            ``prefetch:K``: K receives of a link ahead of the one that is needed; the order of messages holds.
        batch: post neighbouring comm ops together.
        unshard: FSDP stages gathered at once, counting those ahead; torch uses 3. 0 for no FSDP ops.
        reduce_grad: add REDUCE_GRAD after the last backward of each stage.

    Raises:
        Deadlock: the schedule itself cannot finish.
        InputError: an unknown order.
    """
    lazy = re.fullmatch(r"prefetch:(\d{1,9})", order)
    if not lazy and order not in ORDERS[:-1]:
        raise InputError(
            f"unknown order '{order[:40]}' of sends and receives", f"one of {', '.join(ORDERS)}, K of up to 9 digits"
        )
    waits = order == "torch-2.15"
    queues, source = fsdp.decorate(schedule, unshard, reduce_grad, waits)
    consumer = np.flatnonzero(schedule.crosses)
    producer = schedule.dependency[consumer].astype(np.int64)
    if lazy:
        simulate(schedule, costs_for(schedule, per="stage"))  # refuses a schedule that cannot finish
        keys = _keys_prefetched(queues, source, schedule, producer, consumer, int(lazy[1]))
    elif order in ("torch", "torch-2.15", "deferred"):
        keys = _keys_torch(queues, source, schedule, producer)
    else:
        keys = _keys_timed(queues, source, schedule, producer, even_first=order == "even-first")
    lowered = _merge(queues, schedule, producer, consumer, keys)
    if order == "deferred":
        lowered = _defer(lowered)
    if waits:
        lowered = _wait_for_sends(lowered)
    return replace(lowered, batch=_runs(lowered.schedule)) if batch else lowered


def _merge(queues: Schedule, compute: Schedule, producer: Ints, consumer: Ints, keys: Keys) -> Lowered:
    """Local ops, sends and receives in one queue per device."""
    forward = compute.kind[consumer] == Kind.F
    device = np.concatenate([queues.device, compute.device[producer], compute.device[consumer]])
    kind = np.concatenate(
        [queues.kind, np.where(forward, Kind.SEND_F, Kind.SEND_B), np.where(forward, Kind.RECV_F, Kind.RECV_B)]
    )
    stage = np.concatenate([queues.stage, compute.stage[producer], compute.stage[consumer]])
    microbatch = np.concatenate([queues.microbatch, *[compute.microbatch[consumer]] * 2])
    partner = np.concatenate([queues.pair, np.full(2 * len(producer), NONE, np.int32)])
    offsets = np.zeros(compute.n_devices + 1, np.int64)
    np.cumsum(np.bincount(device, minlength=compute.n_devices), out=offsets[1:])
    entry, sides = np.empty(len(device), np.int64), keys.sides + len(queues)
    places = queues.offsets[:-1].copy(), offsets[:-1].copy()
    run_in_place(kernel.merge, len(entry), queues.offsets, keys.local, sides, device[sides], keys.when, *places, entry)
    schedule = replace(
        compute,
        offsets=offsets,
        kind=kind[entry].astype(np.uint8),
        stage=stage[entry],
        microbatch=microbatch[entry],
        pair=_partners(partner, entry),
    )
    return Lowered(schedule, compute, np.full(len(entry), NONE, np.int32))


def _sent(local: NDArray[Any], when: NDArray[Any], rank: Ints) -> Keys:
    """Both sides of each message at once, in order of the time they are sent and of their ranks."""
    order = np.argsort(rank, kind="stable")
    order = order[np.argsort(when[order], kind="stable")]
    return Keys(local, np.stack([order, order + len(order)], axis=1).ravel(), np.repeat(when[order], 2))


def _keys_timed(queues: Schedule, source: Ints, compute: Schedule, producer: Ints, even_first: bool) -> Keys:
    """In order of time; at one moment messages go first, so that no op holds up a receive."""
    timeline = simulate(compute, costs_for(compute, per="stage"))
    local = np.flatnonzero(source >= 0)
    begin = np.zeros(len(queues))
    begin[local] = timeline.start
    done = np.zeros(len(queues))
    done[local] = timeline.end
    for device in range(queues.n_devices):  # FSDP ops stand at the end of the op before, in queue order
        part = queues.queue(device)
        behind = np.maximum.accumulate(done[part])
        begin[part] = np.where(source[part] < 0, behind, begin[part])
    rank = producer + len(compute) * (compute.device[producer] % 2) if even_first else producer
    return _sent(begin, timeline.end[producer], rank)


def _keys_torch(queues: Schedule, source: Ints, compute: Schedule, producer: Ints) -> Keys:
    """By the turn at which a sweep over the ranks, lowest first, takes each op; its messages right behind it."""
    position = np.flatnonzero(source >= 0)
    need = np.full(len(queues), NONE, np.int64)
    inside = compute.dependency >= 0
    need[position] = np.where(inside, position[np.where(inside, compute.dependency, 0)], compute.dependency)
    turn = np.full(len(queues), -1, np.int64)
    ready, waiter = np.arange(queues.n_devices)[::-1].copy(), np.empty(queues.n_devices, np.int64)
    head = queues.offsets[:-1].copy()
    run_in_place(kernel.sweep, len(turn), queues.offsets, need, queues.pair, turn, head, ready, waiter)
    ran = turn[position] >= 0
    if not ran.all():
        head = compute.offsets[:-1] + np.bincount(compute.device[ran], minlength=compute.n_devices)
        raise Deadlock(*explain_deadlock(compute, head))
    return _sent(turn, turn[position[producer]] + 1, producer)


def _keys_prefetched(
    queues: Schedule, source: Ints, compute: Schedule, producer: Ints, consumer: Ints, ahead: int
) -> Keys:
    """By place in the queue: a receive stands before the op that needs it, or ``ahead`` receives of its link earlier.

    A receive never stands behind a later one of its link, even where that one is needed first.
    """
    position = np.flatnonzero(source >= 0)
    sent, needed = position[producer], position[consumer]
    paired = queues.pair[needed]
    needed = np.where((paired != NONE) & (paired < needed), paired, needed)  # the first op of a pair opens it
    link = compute.device[producer].astype(np.int64) * compute.n_devices + compute.device[consumer]
    order = np.lexsort((sent, link))
    posted = np.empty(len(order), np.int64)
    for of_link in np.split(order, np.flatnonzero(np.diff(link[order])) + 1):
        due = np.minimum.accumulate(needed[of_link][::-1])[::-1]
        early = np.full(min(ahead, len(due)), queues.offsets[compute.device[consumer[of_link[:1]]]])
        posted[of_link] = np.concatenate([early, due[: len(due) - len(early)]])
    behind = np.where(queues.pair[sent] > sent, sent + 1, sent)
    when = np.concatenate([behind + 1, posted])
    sides = np.lexsort((np.tile(producer, 2), np.repeat([0, 1], len(producer)), when))
    return Keys(np.arange(len(queues)), sides, when[sides])


def _defer(lowered: Lowered) -> Lowered:
    """Receives moved as late as torch 2.13's ``_defer_recv_ops`` moves them, from torch's own order."""
    schedule = lowered.schedule
    columns = (schedule.kind, schedule.stage, schedule.microbatch, schedule.pair, lowered.peer())
    kind, stage, microbatch, pair, peer = (column.tolist() for column in columns)
    order: list[int] = []
    for device in range(schedule.n_devices):
        waiting: dict[tuple[int, int, int], int] = {}
        part = schedule.queue(device)
        for op in range(part.start, part.stop):
            if kind[op] in RECEIVES:
                waiting[kind[op], stage[op], microbatch[op]] = op
                continue
            due = []
            if kind[op] in SENDS and device < peer[op]:
                due = [key for key, receive in waiting.items() if peer[receive] == peer[op]]
            elif not NONE < pair[op] < op:
                members = (op,) if pair[op] == NONE else (op, pair[op])
                due = [
                    (RECEIVES[kind[m] != Kind.F], stage[m], microbatch[m]) for m in members if kind[m] in NEEDS_MESSAGE
                ]
            order += [waiting.pop(key) for key in due if key in waiting]
            order.append(op)
    entry = np.array(order, np.int64)
    moved = replace(
        schedule,
        kind=schedule.kind[entry],
        stage=schedule.stage[entry],
        microbatch=schedule.microbatch[entry],
        pair=_partners(schedule.pair, entry),
    )
    return replace(lowered, schedule=moved)


def _wait_for_sends(lowered: Lowered) -> Lowered:
    """A wait for each send where torch 2.15 puts it: an activation is kept until its microbatch has come back."""
    schedule = lowered.schedule
    kind = schedule.kind
    forward, gradient = np.flatnonzero(kind == Kind.SEND_F), np.flatnonzero(kind == Kind.SEND_B)
    back = np.flatnonzero(mask(BACKWARDS)[kind])
    cell = schedule.stage.astype(np.int64) * schedule.n_microbatches + schedule.microbatch
    comes_back = np.zeros(schedule.n_stages * schedule.n_microbatches, np.int64)
    comes_back[cell[back]] = np.maximum(back, schedule.pair[back]) + 1
    where = np.concatenate([comes_back[cell[forward]], schedule.offsets[1:][schedule.device[gradient]]])
    sends = np.concatenate([forward, gradient])
    wait = np.where(kind[sends] == Kind.SEND_F, Kind.WAIT_SEND_F, Kind.WAIT_SEND_B)
    place = np.arange(len(kind)) + np.searchsorted(np.sort(where), np.arange(len(kind)), side="right")
    pair = np.where(schedule.pair == NONE, NONE, place[schedule.pair])
    more = np.bincount(schedule.device[sends], minlength=schedule.n_devices)
    queues = replace(
        schedule,
        offsets=schedule.offsets + np.concatenate([[0], np.cumsum(more)]),
        kind=np.insert(kind, where, wait),
        stage=np.insert(schedule.stage, where, schedule.stage[sends]),
        microbatch=np.insert(schedule.microbatch, where, schedule.microbatch[sends]),
        pair=np.insert(pair, where, NONE).astype(np.int32),
    )
    return replace(lowered, schedule=queues, batch=np.full(len(queues), NONE, np.int32))


def _partners(pair: NDArray[np.int32], entry: Ints) -> NDArray[np.int32]:
    """The pair column after entries took the order ``entry``."""
    place = np.empty(len(entry), np.int32)
    place[entry] = np.arange(len(entry), dtype=np.int32)
    partner = pair[entry]
    return np.where(partner == NONE, np.int32(NONE), place[partner])


def _runs(schedule: Schedule) -> NDArray[np.int32]:
    """A number for each run of two or more comm ops that stand together in a queue, -1 elsewhere."""
    comm = schedule.communicates
    joined = comm[1:] & comm[:-1] & (schedule.device[1:] == schedule.device[:-1])  # with the op before
    run = np.cumsum(np.concatenate([[True], ~joined])) - 1
    long = np.bincount(run) > 1
    return np.where(long, np.cumsum(long) - 1, NONE)[run].astype(np.int32)
