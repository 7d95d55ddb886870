"""The detailed model's inner loop: device queues and messages in order of time.

An event is a time and a code, which breaks ties: a device that goes on, or an op whose message or collective moves.
Tables are sequences of rows with named fields: numba compiles this source for
arrays of records, CPython runs it over lists of rows (see ``ppsim.execute``); few tables, as each costs at every
call. Indices are -1 for none, times -1 until they are known.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, NamedTuple

from ppsim import flow_kernel

COMPUTE, NOTHING, POST, STREAM = range(4)  # what a device does with an op
RECEIVE, SEND, EAGER = range(3)  # sides of a message; an eager send goes ahead without its receive
ARRIVE, FLOW, PASS, EVENTS = range(4)  # a message arrives; its bytes begin to flow; an op is over by itself

# Field and type of each table's rows; the tables' meaning is in Tables.
OP = [
    ("duration", "f8"),  # time on the device; of a pair, its total on both ops
    ("delay", "f8"),  # of a send: from the meeting of both sides to arrival, or to the first byte on a route
    ("start", "f8"),  # when the op occupies its device, or its stream
    ("end", "f8"),
    ("opened", "f8"),  # when a send or receive stood first in its channel
    ("leave", "f8"),  # of a send: when the message set out
    ("done", "f8"),  # when a message, receive or collective was over
    ("device", "i4"),
    ("last", "i4"),  # last op of those issued together: a pair's second, a batch's last, or the op itself
    ("action", "i4"),
    ("needs", "i4"),  # the receive whose message the op works on
    ("gathered", "i4"),  # the UNSHARD that must be over before
    ("feeds", "i4"),  # the send that leaves by itself when the op ends
    ("side", "i4"),
    ("match", "i4"),  # the other side of a message
    ("lane", "i4"),  # the channel on the op's own device
    ("turn", "i4"),  # its place there; ops of one batch share it
    ("follower", "i4"),  # the op behind it there
    ("route", "i4"),  # of a send: what its bytes flow through, where bandwidth is divided
    ("bound", "i4"),  # the op whose end, or message, set the start
]
DEVICE = [
    ("since", "f8"),  # from when it waits
    ("stream", "f8"),  # when the collectives issued so far are over
    ("begin", "i8"),  # where its queue begins and ends
    ("stop", "i8"),
    ("head", "i8"),  # where the queue stands
    ("awaited", "i8"),  # the op it waits for
]
LANE = [
    ("turn", "i8"),  # the turn that runs
    ("open", "i8"),  # its unfinished ops
    ("next", "i8"),  # first op of the next turn
]


class Tables(NamedTuple):
    """All there is to run, and how far it has come.

    Attributes:
        ops: a row per op, see ``OP``.
        devices: a row per device, see ``DEVICE``.
        lanes: a row per channel and device, see ``LANE``.
        late: added where the receive is posted after the send.
        gap: time of a device between two actions.
        preamble: when the devices begin.
        waits: whether a device waits for the messages it has posted.
    """

    ops: Any
    devices: Any
    lanes: Any
    late: float
    gap: float
    preamble: float
    waits: bool


def run(t: Any, flows: Any) -> None:
    """Run every queue as far as it goes; ``flows`` are :class:`ppsim.flow_kernel.Flows`."""
    devices = len(t.devices)
    heap = [(t.preamble, d) for d in range(devices)]
    while len(heap) > 0:
        now, code = heappop(heap)
        if code < devices:
            advance(t, heap, code, now)
            continue
        op = (code - devices) // EVENTS
        event = (code - devices) % EVENTS
        if event == PASS:
            finish(t, heap, op, now)
        elif event == FLOW:
            flow_kernel.join(flows, op, now)
            ask_changed(t, flows, heap)
        elif t.ops[op].route < 0:
            arrive(t, heap, op, now)
        elif now == flows.flows[op].due:  # others are void: the rate has changed since
            flow_kernel.part(flows, op, now)
            ask_changed(t, flows, heap)
            arrive(t, heap, op, now)


def ask(t: Any, heap: Any, time: float, op: int, event: int) -> None:
    """Ask for an event of an op."""
    heappush(heap, (time, len(t.devices) + EVENTS * op + event))


def ask_changed(t: Any, flows: Any, heap: Any) -> None:
    """Ask for the arrivals of flows whose rate has changed."""
    for at in range(flows.count[0]):
        flow = flows.flows[flows.changed[at]]
        flow.due = flow.since + flow.left / flow.rate
        ask(t, heap, flow.due, flows.changed[at], ARRIVE)


def advance(t: Any, heap: Any, d: int, now: float) -> None:
    """Run a device until it waits for something, or until another event comes first."""
    device = t.devices[d]
    i = device.head
    while i < device.stop:
        op = t.ops[i]
        last = op.last
        posted = op.start >= 0.0
        if posted or op.action == COMPUTE:
            awaited = missing(t, i, last, posted)
            if awaited >= 0:
                if device.awaited < 0:
                    device.since = now
                device.awaited = awaited
                break
        cause = i - 1 if i > device.begin else -1
        if device.awaited >= 0 and now > device.since:
            cause = device.awaited
        device.awaited = -1
        if posted:
            after = now
            for member in range(i, last + 1):
                t.ops[member].end = now
        else:
            after = issue(t, heap, d, i, now, cause)
            if t.waits and op.action == POST:
                heappush(heap, (after, d))
                break
        i = last + 1
        if op.action != NOTHING:
            after += t.gap
        if after > now and len(heap) > 0 and heap[0][0] <= after:
            heappush(heap, (after, d))
            break
        now = after
    device.head = i


def missing(t: Any, first: int, last: int, posted: bool) -> int:
    """The first op that these wait for: their own messages once posted, else their inputs; -1 when all is there."""
    for i in range(first, last + 1):
        op = t.ops[i]
        if posted:
            if op.done < 0.0:
                return i
        elif op.needs >= 0 and t.ops[op.needs].done < 0.0:
            return op.needs
        elif op.gathered >= 0 and t.ops[op.gathered].done < 0.0:
            return op.gathered
    return -1


def issue(t: Any, heap: Any, d: int, first: int, now: float, cause: int) -> float:
    """Start the ops that are issued with ``first``; returns when the device is free again."""
    op = t.ops[first]
    action = op.action
    if action == STREAM:
        op.start = max(now, t.devices[d].stream)
        op.end = op.start + op.duration
        op.bound = cause
        t.devices[d].stream = op.end
        ask(t, heap, op.end, first, PASS)
        return now
    after = now + op.duration
    if action == POST:
        for i in range(first + 1, op.last + 1):
            after += t.ops[i].duration
    for i in range(first, op.last + 1):
        member = t.ops[i]
        member.start = now
        member.end = after
        member.bound = cause
        if member.feeds >= 0:
            send = t.ops[member.feeds]
            send.leave = after
            ask(t, heap, after + send.delay, send.match, PASS)
    if action == POST:
        for i in range(first, op.last + 1):
            member = t.ops[i]
            if member.lane < 0 or t.lanes[member.lane].turn == member.turn:
                open_side(t, heap, i, now)
    return after


def open_side(t: Any, heap: Any, i: int, now: float) -> None:
    """A send or receive has become the first of its channel."""
    op = t.ops[i]
    other = t.ops[op.match]
    op.opened = now
    if op.side == EAGER:
        set_out(t, heap, i, now)
    elif op.side == SEND:
        if other.opened >= 0.0:
            set_out(t, heap, i, now)
    elif other.side == EAGER:
        if other.done >= 0.0:
            ask(t, heap, now, i, PASS)
    elif other.opened >= 0.0:
        set_out(t, heap, op.match, now + t.late if now > other.opened else now)


def set_out(t: Any, heap: Any, i: int, now: float) -> None:
    """A message sets out."""
    send = t.ops[i]
    send.leave = now
    ask(t, heap, now + send.delay, i, ARRIVE if send.route < 0 else FLOW)


def arrive(t: Any, heap: Any, i: int, now: float) -> None:
    """A message has arrived; an eager one may find no receive yet."""
    finish(t, heap, i, now)
    receive = t.ops[i].match
    if t.ops[receive].opened >= 0.0:
        finish(t, heap, receive, now)


def finish(t: Any, heap: Any, i: int, now: float) -> None:
    """An op is over: wake the device that waits for it, and open what stands behind it in its channel."""
    op = t.ops[i]
    op.done = now
    if t.devices[op.device].awaited == i:
        heappush(heap, (now, 0 + op.device))  # the sum is an int64
    if op.lane < 0:
        return
    lane = t.lanes[op.lane]
    lane.open -= 1
    if lane.open > 0 or lane.next < 0:
        return
    following = lane.next
    lane.turn = t.ops[following].turn
    while following >= 0 and t.ops[following].turn == lane.turn:
        lane.open += 1
        if t.ops[following].start >= 0.0:
            open_side(t, heap, following, now)
        following = t.ops[following].follower
    lane.next = following


PARTS = (ask, ask_changed, advance, missing, issue, open_side, set_out, arrive, finish)
