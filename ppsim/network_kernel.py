"""The detailed model's inner loop: device queues and messages in order of time.

An event is a time and a code, which breaks ties: a device that goes on, or an op whose message or collective moves.
Where bandwidth is divided, a message's bytes are a flow along the resources of a route, and flows have max-min fair
rates (progressive filling).

Tables (see ``ppsim.network_tables``) are sequences of rows with named fields: numba compiles this source for arrays
of records, CPython runs it over lists of rows. All of it is in this file, because numba keeps compiled code until
the file of ``run`` changes.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

COMPUTE, NOTHING, POST, STREAM = range(4)  # what a device does with an op
RECEIVE, SEND, EAGER = range(3)  # sides of a message; an eager send goes ahead without its receive
ARRIVE, FLOW, PASS, EVENTS = range(4)  # a message arrives; its bytes begin to flow; an op is over by itself


def run(t: Any, flows: Any) -> None:
    """Run every queue as far as it goes; ``flows`` are :class:`ppsim.Flows`."""
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
            join(flows, op, now)
            ask_changed(t, flows, heap)
        elif t.ops[op].route < 0:
            arrive(t, heap, op, now)
        elif now == flows.flows[op].due:  # others are void: the rate has changed since
            part(flows, op, now)
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


def join(f: Any, flow: int, now: float) -> None:
    """A message's bytes begin to flow along a route."""
    row = f.flows[flow]
    row.left = row.size
    row.rate = 0.0
    row.since = now
    for place in range(f.width):
        resource = f.routes[row.route * f.width + place]
        if resource >= 0:
            at = flow * f.width + place
            slot = f.slots[at]
            slot.next = f.resources[resource].first
            slot.prev = -1
            if slot.next >= 0:
                f.slots[slot.next].prev = at
            f.resources[resource].first = at
    divide(f, row.route, now)


def part(f: Any, flow: int, now: float) -> None:
    """A message's last byte has flowed; the others get what it leaves."""
    row = f.flows[flow]
    row.due = -1.0
    for place in range(f.width):
        resource = f.routes[row.route * f.width + place]
        if resource >= 0:
            slot = f.slots[flow * f.width + place]
            if slot.prev >= 0:
                f.slots[slot.prev].next = slot.next
            else:
                f.resources[resource].first = slot.next
            if slot.next >= 0:
                f.slots[slot.next].prev = slot.prev
    divide(f, row.route, now)


def divide(f: Any, route: int, now: float) -> None:
    """New rates for all flows that meet ``route``, directly or through others; ``changed`` receives who they are."""
    found = collect(f, route)
    f.count[0] = 0
    while True:
        tight = -1
        share = 0.0
        for at in range(found):
            resource = f.resources[f.reached[at]]
            if resource.users > 0:
                each = resource.room / resource.users
                if tight < 0 or each < share:
                    tight = f.reached[at]
                    share = each
        if tight < 0:
            break
        slot = f.resources[tight].first
        while slot >= 0:
            if f.flows[slot // f.width].share < 0.0:
                settle(f, slot // f.width, share, now)
            slot = f.slots[slot].next
    for at in range(found):
        f.resources[f.reached[at]].users = -1


def collect(f: Any, route: int) -> int:
    """List in ``reached`` the resources of a route and of all flows that meet it; returns how many."""
    found = reach(f, route, 0)
    at = 0
    while at < found:
        resource = f.resources[f.reached[at]]
        slot = resource.first
        while slot >= 0:
            flow = f.flows[slot // f.width]
            flow.share = -1.0
            resource.users += 1
            found = reach(f, flow.route, found)
            slot = f.slots[slot].next
        at += 1
    return found


def reach(f: Any, route: int, found: int) -> int:
    """Append the resources of a route to ``reached``, each once; returns how many there are now."""
    for place in range(f.width):
        at = f.routes[route * f.width + place]
        if at >= 0 and f.resources[at].users < 0:
            f.resources[at].users = 0
            f.resources[at].room = f.resources[at].capacity
            f.reached[found] = at
            found += 1
    return found


def settle(f: Any, at: int, share: float, now: float) -> None:
    """Fix a flow's rate and take it from the resources of its route."""
    flow = f.flows[at]
    flow.share = share
    for place in range(f.width):
        resource = f.routes[flow.route * f.width + place]
        if resource >= 0:
            f.resources[resource].room -= share
            f.resources[resource].users -= 1
    if flow.rate != share:
        flow.left = max(flow.left - flow.rate * (now - flow.since), 0.0)
        flow.since = now
        flow.rate = share
        f.changed[f.count[0]] = at
        f.count[0] += 1


# What ``run`` calls.
PARTS = (
    ask,
    ask_changed,
    advance,
    missing,
    issue,
    open_side,
    set_out,
    arrive,
    finish,
    join,
    part,
    divide,
    collect,
    reach,
    settle,
)
