"""Find deadlocks (cycles of queues that wait for each other), and the op to move.

Each queue is a sequence of steps; a step passes once the queues it waits for have reached given
steps. Blocking, batched and overlapped communication differ only in the ops that form a step, and
in the steps that each step waits for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ppsim.core.draft import Draft
from ppsim.core.schedule import NONE
from ppsim.core.waiting import follow_circle
from ppsim.inputs.check.faults import Fault, deadlock_at
from ppsim.inputs.check.messages import ExpectedMessages
from ppsim.inputs.check.tables import Tables

MODES = ("overlap", "batched", "blocking")  # a schedule that runs in one runs in those before it
MOST_TRIES = 8
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class StuckQueues:
    """Queues in deadlock."""

    mode: str  # of sends and receives; empty if the draft has none
    steps_passed: int  # the number of steps that passed
    # for each device that waits: the op that waits, the op awaited, and the next op of the other
    # queue
    links: dict[int, tuple[int, int, int]]

    def circle(self, draft: Draft) -> list[tuple[int, int, int]]:
        """Return the links of one cycle of waits."""
        circle = follow_circle(
            min(self.links), lambda device: int(draft.device[self.links[device][1]])
        )
        return [self.links[device] for device in circle]


def deadlock_faults(
    draft: Draft, tables: Tables, messages: ExpectedMessages, modes: Sequence[str]
) -> Iterator[Fault]:
    """Find the deadlock of the least strict mode that has one, and the move that resolves it."""
    stuck = find_deadlock(draft, messages, modes)
    if stuck is None:
        return
    cycle = stuck.circle(draft)
    lines = []
    for op, other, head in cycle:
        behind = (
            f", which is after {draft.label(head)} ({draft.place(head)})" if head != other else ""
        )
        lines.append(
            f"{draft.label(op)} ({draft.where(op)}) waits for {draft.label(other)} "
            f"({draft.where(other)}){behind}"
        )
    stricter = (
        [mode for mode in MODES[MODES.index(stuck.mode) + 1 :] if mode in modes]
        if stuck.mode
        else []
    )
    cause = (
        f"by {stuck.mode.replace('overlap', 'overlapped')} sends and receives"
        if stuck.mode
        else "by the order of ops"
    )
    also = f", and so by {' and '.join(stricter)} ones" if stricter else ""
    links = [(op, other) for op, other, _ in cycle]
    others = [op for link in links for op in link][1:]
    hint = _best_move(draft, tables, messages, stuck)
    yield deadlock_at(draft, cycle[0][0], f"{cause}{also}", lines, links, hint, *others)


def find_deadlock(
    draft: Draft, messages: ExpectedMessages, modes: Sequence[str]
) -> StuckQueues | None:
    """Return the deadlock of the least strict of these modes that has one, or None."""

    def run(mode: str) -> StuckQueues | None:
        step = _steps(draft, batched=mode == "batched")
        passed, links = _run(draft, step, *_waits(draft, messages, step, mode))
        return StuckQueues(mode, passed, links) if links else None

    asked = [mode for mode in MODES if mode in modes] if draft.has_comms else [""]
    stuck = run(asked[-1]) if asked else None  # if the strictest mode runs, all do
    return stuck and next(filter(None, map(run, asked)))


def _best_move(draft: Draft, tables: Tables, messages: ExpectedMessages, stuck: StuckQueues) -> str:
    """Return the move of one op after which most steps pass, or general advice if none helps."""
    needed_by = dict(zip(messages.receive.tolist(), messages.consumer.tolist(), strict=True))
    needs = {*zip(*(column.tolist() for column in tables.needs(draft)), strict=True)}
    needs |= {*zip(messages.send.tolist(), messages.producer.tolist(), strict=True)}
    moves = [
        (other, head)
        for _, other, head in stuck.circle(draft)
        if head < other and draft.pair[other] == NONE
    ]
    moves += [(op, needed_by[op]) for op, _, _ in stuck.circle(draft) if op in needed_by]
    best, further = "", stuck.steps_passed
    for op, ahead in moves[:MOST_TRIES]:
        if any((op, between) in needs for between in range(ahead, op)):
            continue
        moved = draft.move(op, ahead)
        moved_messages = ExpectedMessages.from_draft(moved, Tables.from_draft(moved))
        if next(moved_messages.order_faults(moved), None):
            continue
        still_stuck = find_deadlock(moved, moved_messages, [stuck.mode])
        if still_stuck is None or still_stuck.steps_passed > further:
            further = still_stuck.steps_passed if still_stuck else len(draft)
            best = (
                f"move {draft.label(op)} before {draft.label(ahead)} on device {draft.device[op]}"
            )
            best += "" if still_stuck is None else ", then check again"
        if still_stuck is None:
            break
    if best or not stuck.mode:
        return best or "run the awaited ops earlier"
    return (
        "overlap sends and receives, or lower with an order that cannot deadlock: early, "
        "even-first or torch"
    )


def _steps(draft: Draft, batched: bool) -> Ints:
    """Return the step of each op, shape (ops,), numbered over all devices.

    A pair is one step, and so is a batch.
    """
    joined = ~draft.leads | (draft.follows_message & batched)
    return np.cumsum(~joined) - 1


def _waits(
    draft: Draft, messages: ExpectedMessages, step: Ints, mode: str
) -> tuple[Ints, Ints, Ints]:
    """Return the ops that wait, the ops awaited, and the step that the device of each op awaited
    must have reached.

    A send matches a receive by its place in the order of messages, not by its label. Without comm
    ops, an op waits until the op it needs is done. With overlap, the consumer waits for the
    receive and a WAIT for its send. Otherwise both sides of a message wait for each other.
    """
    if not mode:
        return messages.consumer, messages.producer, step[messages.producer] + 1
    sent, received = messages.matched(draft)
    send, receive = messages.send[sent], messages.receive[received]
    if mode == "overlap":
        awaited = messages.send_waits(draft, sent)
        waits = awaited >= 0
        op = np.concatenate([messages.consumer[received], awaited[waits]])
        other = np.concatenate([send, receive[waits]])
    else:
        op, other = np.concatenate([send, receive]), np.concatenate([receive, send])
    fed, maker = messages.fed_back
    until = np.concatenate([step[other], step[maker] + 1])
    return np.concatenate([op, fed]), np.concatenate([other, maker]), until


def _run(
    draft: Draft, step: Ints, op: Ints, other: Ints, until: Ints
) -> tuple[int, dict[int, tuple[int, int, int]]]:
    """Run every queue as far as possible.

    Returns:
        The number of steps that passed, and the links of :class:`StuckQueues`.
    """
    first_op = np.flatnonzero(np.diff(step, prepend=-1))
    offsets = np.searchsorted(first_op, draft.offsets).tolist()
    order = np.argsort(step[op], kind="stable")
    op, other = op[order], other[order]
    begin = np.searchsorted(step[op], np.arange(len(first_op) + 1)).tolist()
    least, on = until[order].tolist(), draft.device[other].tolist()
    at_step: list[int] = offsets[:-1]
    waiters: list[list[int]] = [[] for _ in at_step]
    blocked: dict[int, int] = {}
    ready = list(range(draft.n_devices))[::-1]
    while ready:
        device = ready.pop()
        blocked.pop(device, None)
        before = now = at_step[device]
        stop = offsets[device + 1]
        while now < stop:
            at_step[device] = now
            unmet = next(
                (w for w in range(begin[now], begin[now + 1]) if at_step[on[w]] < least[w]), -1
            )
            if unmet >= 0:
                blocked[device] = unmet
                waiters[on[unmet]].append(device)
                break
            now += 1
        at_step[device] = now
        if now > before:
            ready += waiters[device]
            waiters[device] = []
    links = {}
    for device, wait in blocked.items():
        links[device] = int(op[wait]), int(other[wait]), int(first_op[at_step[on[wait]]])
    return sum(at_step), links
