"""Passes over lowered queues: receives deferred, waits added, neighbours batched."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ppsim.core.columns import Ids
from ppsim.core.lowered import Lowered
from ppsim.core.ops import BACKWARDS, FORWARDS, RECEIVES, SENDS, Kind, mask
from ppsim.core.schedule import NONE, Schedule

NEEDS_MESSAGE = (*FORWARDS, *BACKWARDS)  # the kinds whose input may come by a message


def defer_receives(lowered: Lowered) -> Lowered:
    """Move receives as late as torch 2.13's ``_defer_recv_ops`` moves them, from torch's own order."""
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
    return replace(lowered, schedule=schedule.take(np.array(order, np.int64)))


def wait_for_sends(lowered: Lowered) -> Lowered:
    """Add a wait for each send where torch 2.15 puts it: an activation is kept until its microbatch comes back."""
    schedule = lowered.schedule
    kind = schedule.kind
    forward, gradient = np.flatnonzero(kind == Kind.SEND_F), np.flatnonzero(kind == Kind.SEND_B)
    back = np.flatnonzero(mask(BACKWARDS)[kind])
    cell = schedule.stage.astype(np.int64) * schedule.n_microbatches + schedule.microbatch
    comes_back = np.zeros(schedule.n_stages * schedule.n_microbatches, np.int64)
    comes_back[cell[back]] = np.maximum(back, schedule.pair[back]) + 1
    last = schedule.offsets[1:][schedule.device]  # where nothing comes back
    until = np.where(comes_back[cell[forward]] > 0, comes_back[cell[forward]], last[forward])
    where = np.concatenate([until, last[gradient]])
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


def number_batches(schedule: Schedule) -> Ids:
    """Number each run of two or more neighbouring comm ops of a queue; -1 for other ops."""
    run = np.cumsum(~schedule.follows_message) - 1
    long = np.bincount(run) > 1
    return np.where(long, np.cumsum(long) - 1, NONE)[run].astype(np.int32)
