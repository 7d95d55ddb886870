"""The messages that a draft needs: the op that produces each, the op that consumes it, its send and
its receive.

Messages carry no tags: from one device to another, the k-th send matches the k-th receive, whatever
their labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ppsim.core.draft import Draft
from ppsim.core.ops import RECEIVES, SENDS, Kind, label
from ppsim.inputs.check.faults import Fault, at
from ppsim.inputs.check.tables import Tables

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class ExpectedMessages:
    """One entry per message; ops are given by their position in the draft."""

    producer: Ints  # the op whose result is sent
    consumer: Ints  # the op that needs it, on another device
    send: Ints  # its SEND, -1 for none
    receive: Ints  # its RECV, -1 for none
    # shape (2, results): for each result that the next round needs, which is not a message, the op
    # that needs it and the op that produces it
    fed_back: Ints

    @classmethod
    def from_draft(cls, draft: Draft, tables: Tables) -> ExpectedMessages:
        """Return the messages that a draft's ops need."""
        op, need = tables.needs(draft)
        crosses = (draft.device[op] != draft.device[need]) & (draft.stage[op] != draft.stage[need])
        fed = (draft.kind[op] == Kind.F) & (draft.stage[op] == 0) & draft.has_comms
        crosses &= ~fed
        consumer, producer = op[crosses], need[crosses]
        forward = draft.kind[consumer] == Kind.F
        send_kind = np.where(forward, Kind.SEND_F, Kind.SEND_B)
        receive_kind = np.where(forward, Kind.RECV_F, Kind.RECV_B)
        send = tables.first[send_kind, draft.stage[producer], draft.microbatch[producer]]
        receive = tables.first[receive_kind, draft.stage[consumer], draft.microbatch[consumer]]
        return cls(producer, consumer, send, receive, np.stack([op[fed], need[fed]]))

    def matched(self, draft: Draft) -> tuple[Ints, Ints]:
        """Return the messages of each link in the order sent and in the order received.

        The k-th entries of both arrays match.
        """
        link = (
            draft.device[self.producer].astype(np.int64) * draft.n_devices
            + draft.device[self.consumer]
        )
        whole = np.flatnonzero((self.send >= 0) & (self.receive >= 0))
        sent = whole[np.lexsort((self.send[whole], link[whole]))]
        return sent, whole[np.lexsort((self.receive[whole], link[whole]))]

    def send_waits(self, draft: Draft, messages: Ints) -> Ints:
        """Return the WAIT for the send of each of these messages, -1 for none."""
        first = Tables.from_draft(draft).first
        send = self.send[messages]
        kind = np.where(draft.kind[send] == Kind.SEND_F, Kind.WAIT_SEND_F, Kind.WAIT_SEND_B)
        return first[kind, draft.stage[send], draft.microbatch[send]]

    def order_faults(self, draft: Draft) -> Iterator[Fault]:
        """Find the first message of each link that is received as another one."""
        sent, received = self.matched(draft)
        source, target = draft.device[self.producer[sent]], draft.device[self.consumer[sent]]
        seen = set()
        for k in np.flatnonzero(sent != received).tolist():
            link = int(source[k]), int(target[k])
            if link in seen:
                continue
            seen.add(link)
            out, into = int(self.send[sent[k]]), int(self.receive[received[k]])
            # The fault is the sender's, unless it sends in the order in which it computes.
            orderly = self.producer[sent[k]] < self.producer[received[k]]
            op, other = (into, out) if orderly else (out, into)
            text = (
                f"{draft.label(out)} of device {link[0]} ({draft.place(out)}) arrives as "
                f"{draft.label(into)} of device "
                f"{link[1]} ({draft.place(into)}): messages carry no tags"
            )
            yield at(
                draft,
                op,
                "fifo",
                text,
                f"give the messages from device {link[0]} to device {link[1]} the same order on "
                f"both",
                other,
            )


def message_faults(draft: Draft, tables: Tables, messages: ExpectedMessages) -> Iterator[Fault]:
    """Find sends and receives that are missing, repeated, needless, or out of order with their
    op.
    """
    comm = draft.communicates
    for op in tables.repeats[comm[tables.repeats]].tolist():
        first = int(tables.first[draft.kind[op], draft.stage[op], draft.microbatch[op]])
        text = f"{draft.label(op)} is posted a second time, after {draft.where(first)}"
        yield at(draft, op, "duplicate", text, "remove one of the two", first)
    needless = np.append(comm, False)  # one more entry for -1, the index of missing posts
    for used in (messages.send, messages.receive, tables.repeats):
        needless[used] = False
    for op in np.flatnonzero(needless).tolist():
        yield at(
            draft,
            op,
            "message",
            f"{draft.label(op)} belongs to no message: {_reason(draft, op)}",
            "remove it",
        )
    yield from _sides(draft, messages.producer, messages.send, "sends", SENDS, ahead=False)
    yield from _sides(draft, messages.consumer, messages.receive, "receives", RECEIVES, ahead=True)


def _sides(
    draft: Draft, ops: Ints, posts: Ints, verb: str, kinds: tuple[Kind, ...], ahead: bool
) -> Iterator[Fault]:
    """Find sends, or receives, that are missing, on another device than their op, or out of order
    with it.
    """
    side = "before" if ahead else "after"
    wrong = (posts < 0) | (draft.device[posts] != draft.device[ops]) | ((posts > ops) == ahead)
    for op, post in zip(ops[wrong].tolist(), posts[wrong].tolist(), strict=True):
        name = label(
            kinds[int(draft.kind[op] != Kind.F)], int(draft.stage[op]), int(draft.microbatch[op])
        )
        if post < 0:
            text = f"no device posts {name}: {draft.label(op)} ({draft.where(op)}) {verb} nothing"
            yield at(draft, op, "message", text, f"add {name} {side} {draft.label(op)}")
        elif draft.device[post] != draft.device[op]:
            text = (
                f"{name} is on device {draft.device[post]}, and {draft.label(op)} on device "
                f"{draft.device[op]}"
            )
            yield at(
                draft, post, "placement", text, f"move {name} to device {draft.device[op]}", op
            )
        else:
            text = (
                f"{name} is {'after' if ahead else 'before'} {draft.label(op)} "
                f"({draft.where(op)}), which " + ("needs it" if ahead else "makes what it sends")
            )
            yield at(draft, post, "order", text, f"move {name} {side} {draft.label(op)}", op)


def _reason(draft: Draft, op: int) -> str:
    """Return the reason why no message uses this send or receive."""
    stage, kind = int(draft.stage[op]), draft.kind[op]
    other = stage + (1 if kind in (Kind.SEND_F, Kind.RECV_B) else -1)
    if not 0 <= other < draft.n_stages or stage >= draft.n_stages:
        return f"there is no stage {other if stage < draft.n_stages else stage}"
    if int(draft.microbatch[op]) >= draft.n_microbatches:
        return f"there is no microbatch {draft.microbatch[op]}"
    devices = draft.placement.devices
    if (devices[:, stage] == devices[:, other]).all():
        return (
            f"stages {min(stage, other)} and {max(stage, other)} are on one device, "
            f"{devices[0, stage]}"
        )
    return f"stage {other} runs no such op of microbatch {draft.microbatch[op]}"
