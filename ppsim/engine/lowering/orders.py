"""Orders of sends and receives among the ops of their devices, as keys by which they are merged.

``order_by_time`` (early, even-first) and ``order_as_torch`` put all ops and messages of all devices
in one sequence, which is then divided into queues. Such queues cannot deadlock in any mode: when an
entry is the first unfinished one of the sequence, everything before it has finished on both of its
devices. ``order_prefetched`` and ``defer_receives`` move receives only. Their orders may hang if
both directions of two devices share one queue (``ppsim.inputs.check.queues``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppsim.base.compiled import run_in_place
from ppsim.core.columns import Ints
from ppsim.core.costs import costs_for
from ppsim.core.schedule import NONE, Schedule
from ppsim.core.waiting import PARTS, UNKNOWN
from ppsim.engine.lowering import lower_kernel as kernel
from ppsim.engine.simple.deadlock import explain_deadlock
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import Deadlock


class Lowering(NamedTuple):
    """A schedule about to be lowered."""

    compute: Schedule  # the schedule, compute ops only
    queues: Schedule  # the same with FSDP ops
    source: Ints  # shape (ops of ``queues``,), the same op in ``compute``, -1 for an FSDP op
    producer: Ints  # shape (messages,), the op of ``compute`` whose result each message carries
    consumer: Ints  # shape (messages,), the op that needs it

    @property
    def position(self) -> Ints:
        """Shape (ops of ``compute``,): the place of each op in ``queues``."""
        return np.flatnonzero(self.source >= 0)


class Keys(NamedTuple):
    """The order of sends and receives among the ops of their device."""

    local: NDArray[Any]  # shape (local ops,), the key of each op, ascending in a queue
    # shape (2 x messages,), numbers of sends and receives in the order of issue; the receive of
    # message m is messages + m
    sides: Ints
    # shape (2 x messages,), the key of each of them; it is inserted before the first op with at
    # least this key
    side_keys: NDArray[Any]


def order_by_time(lowering: Lowering, *, even_first: bool) -> Keys:
    """Return keys that order ops and messages by time, messages first at the same time.

    So no op delays a receive. With ``even_first``, even devices send before odd ones at the same
    time. Raises Deadlock if the schedule cannot finish.
    """
    queues, compute, producer = lowering.queues, lowering.compute, lowering.producer
    timeline = simulate(compute, costs_for(compute, per="stage"))
    start, end = np.zeros(len(queues)), np.zeros(len(queues))
    start[lowering.position] = timeline.start
    end[lowering.position] = timeline.end
    for device in range(queues.n_devices):  # an FSDP op starts when the op before it ends
        part = queues.queue(device)
        latest = np.maximum.accumulate(end[part])
        start[part] = np.where(lowering.source[part] < 0, latest, start[part])
    rank = producer + len(compute) * (compute.device[producer] % 2) if even_first else producer
    return _issue_together(start, timeline.end[producer], rank)


def order_as_torch(lowering: Lowering) -> Keys:
    """Return keys that order ops by torch's sweep over the devices; messages follow directly.

    Raises Deadlock if the schedule cannot finish.
    """
    queues, compute, position = lowering.queues, lowering.compute, lowering.position
    need = np.full(len(queues), NONE, np.int64)
    inside = compute.dependency >= 0
    need[position] = np.where(
        inside, position[np.where(inside, compute.dependency, 0)], compute.dependency
    )
    turn = np.full(len(queues), UNKNOWN, np.int64)
    head, waiter = queues.offsets[:-1].copy(), np.empty(queues.n_devices, np.int64)
    ready = np.arange(queues.n_devices)[::-1].copy()
    run_in_place(
        kernel.sweep,
        len(turn),
        queues.offsets,
        need,
        queues.pair,
        turn,
        head,
        ready,
        waiter,
        parts=PARTS,
    )
    ran = turn[position] >= 0
    if not ran.all():
        raise Deadlock(*explain_deadlock(compute, ran))
    return _issue_together(turn, turn[position[lowering.producer]] + 1, lowering.producer)


def order_prefetched(lowering: Lowering, ahead: int) -> Keys:
    """Return keys that put each receive before its op, or ``ahead`` receives of its link earlier.

    Receives of a link stay in order, even if a later one is needed first. Raises Deadlock if the
    schedule cannot finish.
    """
    queues, compute, producer, consumer = (
        lowering.queues,
        lowering.compute,
        lowering.producer,
        lowering.consumer,
    )
    simulate(compute, costs_for(compute, per="stage"))
    sent, needed = lowering.position[producer], lowering.position[consumer]
    pair = queues.pair[needed]
    # before the first op of a pair
    needed = np.where((pair != NONE) & (pair < needed), pair, needed)
    link = compute.device[producer].astype(np.int64) * compute.n_devices + compute.device[consumer]
    order = np.lexsort((sent, link))
    posted = np.empty(len(order), np.int64)
    for of_link in np.split(order, np.flatnonzero(np.diff(link[order])) + 1):
        due = np.minimum.accumulate(needed[of_link][::-1])[::-1]
        early = np.full(min(ahead, len(due)), queues.offsets[compute.device[consumer[of_link[:1]]]])
        posted[of_link] = np.concatenate([early, due[: len(due) - len(early)]])
    made = np.where(queues.pair[sent] > sent, sent + 1, sent)
    when = np.concatenate([made + 1, posted])
    sides = np.lexsort((np.tile(producer, 2), np.repeat([0, 1], len(producer)), when))
    return Keys(np.arange(len(queues)), sides, when[sides])


def _issue_together(local: NDArray[Any], when: NDArray[Any], rank: Ints) -> Keys:
    """Return keys that issue both sides of each message together, by time and then by rank."""
    order = np.argsort(rank, kind="stable")
    order = order[np.argsort(when[order], kind="stable")]
    return Keys(
        local, np.stack([order, order + len(order)], axis=1).ravel(), np.repeat(when[order], 2)
    )
