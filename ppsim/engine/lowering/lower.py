"""Lower queues of compute ops: add sends and receives, defer receives, add waits, batch."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from ppsim.base.compiled import run_in_place
from ppsim.core.columns import Ids
from ppsim.core.lanes import refuse_lanes
from ppsim.core.lowered import Lowered
from ppsim.core.ops import BACKWARDS, FORWARDS, RECEIVES, SENDS, Kind, mask, pack
from ppsim.core.schedule import NONE, Schedule
from ppsim.engine.lowering import fsdp
from ppsim.engine.lowering import lower_kernel as kernel
from ppsim.engine.lowering.orders import (
    Keys,
    Lowering,
    order_as_torch,
    order_by_time,
    order_prefetched,
)
from ppsim.errors import InputError

HINT_FOR_COPIES = (
    "messages that take a latency: in a queue with sends and receives a copy would "
    "hold up the ops behind it"
)
# of torch's own programs, which reduce gradients
TORCH_ORDERS = ("torch", "torch-2.15", "deferred")
ORDERS = ("early", "even-first", "torch", "torch-2.15", "deferred", "prefetch:K")
NEEDS_MESSAGE = (*FORWARDS, *BACKWARDS)  # the kinds whose input may come by a message


def lower(
    schedule: Schedule,
    order: str = "early",
    *,
    batch: bool = False,
    unshard: int = 0,
    reduce_grad: bool = False,
) -> Lowered:
    """Return the queues of a schedule with sends and receives.

    A send follows the op that makes its message; ``order`` decides when receives are posted:

    - ``early``: when the awaited op ends in a run with t_F = t_I = t_W = 1 and t_B = 2.
    - ``even-first``: the same, but of devices that send at the same time, even ones send before odd
      ones.
    - ``torch``: as in torch.distributed.pipelining 2.13, when its sweep over the devices passes the
      awaited op.
    - ``torch-2.15``: the same with the waits of torch 2.15: WAIT_SEND_F after the backward of its
      microbatch, WAIT_SEND_B at the end of the queue, WAIT_REDUCE_GRAD after each REDUCE_GRAD.
    - ``deferred``: torch's ``defer_pp_recv``, as late as possible, on the lower device of a link
      before its sends. As in torch, it can break the order of messages, and hangs 1F1B, zero bubble
      and interleaved schedules if both directions of two devices share a queue, as in NCCL
      communicators of torch 2.13.
    - ``prefetch:K``: K receives of a link before the one that is needed, in the order of messages.
      With K of 1 or more it may hang like ``deferred``.

    Args:
        schedule: compute ops only.
        order: the order of receives, see above.
        batch: post neighbouring comm ops together.
        unshard: number of stages that FSDP gathers at once, including those ahead; torch uses 3. 0
            for no FSDP ops.
        reduce_grad: add REDUCE_GRAD after the last backward of each stage.

    Raises:
        Deadlock: the schedule itself cannot finish.
        InputError: an unknown order, or a schedule with several streams.
    """
    prefetch = re.fullmatch(r"prefetch:([0-9]{1,9})", order)
    if not prefetch and order not in ORDERS[:-1]:
        raise InputError(
            f"unknown order '{order[:40]}' of sends and receives",
            f"one of {', '.join(ORDERS)}, K of up to 9 digits",
        )
    refuse_lanes(schedule, "one queue of ops, sends and receives per device", hint=HINT_FOR_COPIES)
    queues, source = fsdp.add_fsdp_ops(schedule, unshard, reduce_grad, waits=order == "torch-2.15")
    consumer = np.flatnonzero(schedule.crosses)
    lowering = Lowering(
        schedule, queues, source, schedule.dependency[consumer].astype(np.int64), consumer
    )
    if prefetch:
        keys = order_prefetched(lowering, int(prefetch[1]))
    elif order in ("early", "even-first"):
        keys = order_by_time(lowering, even_first=order == "even-first")
    else:
        keys = order_as_torch(lowering)
    lowered = _merge(lowering, keys)
    if order == "deferred":
        lowered = defer_receives(lowered)
    if order == "torch-2.15":
        lowered = wait_for_sends(lowered)
    return replace(lowered, batch=number_batches(lowered.schedule)) if batch else lowered


def keep_posted(posted: Schedule, compute: Schedule, *, batch: bool = False) -> Lowered:
    """Return queues that already have sends and receives as lowered queues.

    ``batch`` posts neighbouring ones together.

    Raises:
        InputError: a schedule with several streams, or one that feeds results back.
    """
    refuse_lanes(compute, "one queue of ops, sends and receives per device", hint=HINT_FOR_COPIES)
    alone = np.full(len(posted), NONE, np.int32)
    return Lowered(posted, compute, number_batches(posted) if batch else alone)


def _merge(lowering: Lowering, keys: Keys) -> Lowered:
    """Return the queues with local ops, sends and receives merged by their keys."""
    compute, queues, _, producer, consumer = lowering
    forward = compute.kind[consumer] == Kind.F
    device = np.concatenate([queues.device, compute.device[producer], compute.device[consumer]])
    kind = np.concatenate(
        [
            queues.kind,
            np.where(forward, Kind.SEND_F, Kind.SEND_B),
            np.where(forward, Kind.RECV_F, Kind.RECV_B),
        ]
    )
    stage = np.concatenate([queues.stage, compute.stage[producer], compute.stage[consumer]])
    microbatch = np.concatenate([queues.microbatch, *[compute.microbatch[consumer]] * 2])
    partner = np.concatenate([queues.pair, np.full(2 * len(producer), NONE, np.int32)])
    offsets = np.zeros(compute.n_devices + 1, np.int64)
    np.cumsum(np.bincount(device, minlength=compute.n_devices), out=offsets[1:])
    entry, sides = np.empty(len(device), np.int64), keys.sides + len(queues)
    places = queues.offsets[:-1].copy(), offsets[:-1].copy()
    run_in_place(
        kernel.merge,
        len(entry),
        queues.offsets,
        keys.local,
        sides,
        device[sides],
        keys.side_keys,
        *places,
        entry,
    )
    place = np.empty(len(entry), np.int32)
    place[entry] = np.arange(len(entry), dtype=np.int32)
    schedule = replace(
        compute,
        offsets=offsets,
        kind=kind[entry].astype(np.uint8),
        stage=stage[entry],
        microbatch=microbatch[entry],
        pair=np.append(place, np.int32(NONE))[partner[entry]],
    )
    return Lowered(schedule, compute, np.full(len(entry), NONE, np.int32))


def defer_receives(lowered: Lowered) -> Lowered:
    """Return queues in torch's order with receives as late as torch 2.13's ``_defer_recv_ops``."""
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
                    (RECEIVES[kind[m] != Kind.F], stage[m], microbatch[m])
                    for m in members
                    if kind[m] in NEEDS_MESSAGE
                ]
            order += [waiting.pop(key) for key in due if key in waiting]
            order.append(op)
    return replace(lowered, schedule=schedule.take(np.array(order, np.int64)))


def wait_for_sends(lowered: Lowered) -> Lowered:
    """Return queues with a wait for each send, at the places of torch 2.15.

    An activation is kept until the backward of its microbatch.
    """
    schedule = lowered.schedule
    kind = schedule.kind
    forward, gradient = np.flatnonzero(kind == Kind.SEND_F), np.flatnonzero(kind == Kind.SEND_B)
    back = np.flatnonzero(mask(BACKWARDS)[kind])
    cell = schedule.stage.astype(np.int64) * schedule.n_microbatches + schedule.microbatch
    after_backward = np.zeros(schedule.n_stages * schedule.n_microbatches, np.int64)
    after_backward[cell[back]] = np.maximum(back, schedule.pair[back]) + 1
    last = schedule.offsets[1:][schedule.device]  # if there is no backward
    place = after_backward[cell[forward]]
    until = np.where(place > 0, place, last[forward])
    where = np.concatenate([until, last[gradient]])
    sends = np.concatenate([forward, gradient])
    wait = np.where(kind[sends] == Kind.SEND_F, Kind.WAIT_SEND_F, Kind.WAIT_SEND_B)
    ops = pack(schedule.stage[sends], schedule.microbatch[sends]) | wait
    queues = schedule.insert(where, schedule.device[sends], ops)
    return replace(lowered, schedule=queues, batch=np.full(len(queues), NONE, np.int32))


def number_batches(schedule: Schedule) -> Ids:
    """Return the number of each op's run of two or more neighbouring comm ops, -1 for none."""
    run = np.cumsum(~schedule.follows_message) - 1
    long = np.bincount(run) > 1
    return np.where(long, np.cumsum(long) - 1, NONE)[run].astype(np.int32)
