"""The detailed model's inner loop: device queues, messages and channels, driven by events.

An event is a time and a code, which breaks ties: a device that goes on, or an op whose message or collective moves.
Where bandwidth is divided, a message's bytes are a flow along the resources of a route, and flows have max-min fair
rates (progressive filling); events are then taken in order of time. Elsewhere every time is a maximum of sums of
others, the same in whatever order they become known, and the last event asked for is taken first, which is quicker.

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
    """Run every queue as far as it goes; ``t`` are the Tables, ``flows`` the Flows."""
    devices = len(t.devices)
    events = [(t.preamble, d) for d in range(devices)]
    while len(events) > 0:
        now, code = heappop(events) if t.ordered else events.pop()
        if code < devices:
            advance(t, events, code)
            continue
        op = (code - devices) // EVENTS
        event = (code - devices) % EVENTS
        if event == PASS:
            finish(t, events, op, now)
        elif event == FLOW:
            join(flows, op, now)
            ask_changed(t, flows, events)
        elif t.ops[op].route < 0:
            arrive(t, events, op, now)
        elif now == flows.flows[op].due:  # others are void: the rate has changed since
            part(flows, op, now)
            ask_changed(t, flows, events)
            arrive(t, events, op, now)


def ask(t: Any, events: Any, time: float, code: int) -> None:
    """Ask for an event."""
    if t.ordered:
        heappush(events, (time, 0 + code))  # the sum makes an int64 of an int32
    else:
        events.append((time, 0 + code))


def ask_op(t: Any, events: Any, time: float, op: int, event: int) -> None:
    """Ask for an event of an op."""
    ask(t, events, time, len(t.devices) + EVENTS * op + event)


def ask_changed(t: Any, flows: Any, events: Any) -> None:
    """Ask for the arrivals of flows whose rate has changed."""
    for at in range(flows.count[0]):
        flow = flows.flows[flows.changed[at]]
        flow.due = flow.since + flow.left / flow.rate
        ask_op(t, events, flow.due, flows.changed[at], ARRIVE)


def advance(t: Any, events: Any, d: int) -> None:
    """Run a device until it waits for something, or until another event comes first."""
    device = t.devices[d]
    i = device.head
    while i < device.stop:
        op = t.ops[i]
        posted = op.start >= 0.0
        if posted or op.action == COMPUTE:
            device.awaited = missing(t, i, op.last, posted)
            if device.awaited >= 0:
                break
        if posted:
            after = device.free
            for member in range(i, op.last + 1):
                after = max(after, t.ops[member].done)
            for member in range(i, op.last + 1):
                t.ops[member].end = after
        else:
            after = issue(t, events, d, i)
            if t.waits and op.action == POST:
                device.free = after
                ask(t, events, after, d)
                break
        i = op.last + 1
        if op.action != NOTHING:
            after += t.gap
        comes_first = t.ordered and after > device.free and len(events) > 0 and events[0][0] <= after
        device.free = after
        if comes_first:
            ask(t, events, after, d)
            break
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


def issue(t: Any, events: Any, d: int, first: int) -> float:
    """Start the ops that are issued with ``first``; returns when the device is free again."""
    op = t.ops[first]
    action = op.action
    begin = t.devices[d].free
    cause = first - 1 if first > t.devices[d].begin else -1
    if action == STREAM:
        op.start = max(begin, t.devices[d].stream)
        op.end = op.start + op.duration
        op.bound = cause
        t.devices[d].stream = op.end
        ask_op(t, events, op.end, first, PASS)
        return begin
    if action == COMPUTE:
        for i in range(first, op.last + 1):
            for need in (t.ops[i].needs, t.ops[i].gathered):
                if need >= 0 and t.ops[need].done > begin:
                    begin = t.ops[need].done
                    cause = need
    after = begin + op.duration
    if action == POST:
        for i in range(first + 1, op.last + 1):
            after += t.ops[i].duration
    for i in range(first, op.last + 1):
        member = t.ops[i]
        member.start = begin
        member.end = after
        member.bound = cause
        if member.feeds >= 0:
            send = t.ops[member.feeds]
            send.leave = after
            ask_op(t, events, after + send.delay, send.match, PASS)
    if action == POST:
        for i in range(first, op.last + 1):
            member = t.ops[i]
            if member.lane < 0:
                open_side(t, events, i, begin)
            elif t.lanes[member.lane].turn == member.turn:
                open_side(t, events, i, max(begin, t.lanes[member.lane].free))
    return after


def open_side(t: Any, events: Any, i: int, now: float) -> None:
    """A send or receive is the first of its channel from ``now`` on."""
    op = t.ops[i]
    other = t.ops[op.match]
    op.opened = now
    if op.side == EAGER:
        set_out(t, events, i, now)
    elif other.side == EAGER:
        if other.done >= 0.0:
            ask_op(t, events, max(now, other.done), i, PASS)
    elif other.opened >= 0.0:
        send = i if op.side == SEND else op.match
        receive = op.match if op.side == SEND else i
        meet = max(now, other.opened)
        set_out(t, events, send, meet + t.late if t.ops[receive].opened > t.ops[send].opened else meet)


def set_out(t: Any, events: Any, i: int, now: float) -> None:
    """A message sets out."""
    send = t.ops[i]
    send.leave = now
    ask_op(t, events, now + send.delay, i, ARRIVE if send.route < 0 else FLOW)


def arrive(t: Any, events: Any, i: int, now: float) -> None:
    """A message has arrived; an eager one may find no receive yet."""
    finish(t, events, i, now)
    receive = t.ops[i].match
    if t.ops[receive].opened >= 0.0:
        finish(t, events, receive, max(now, t.ops[receive].opened))


def finish(t: Any, events: Any, i: int, now: float) -> None:
    """An op is over: wake the device that waits for it, and open what stands behind it in its channel."""
    op = t.ops[i]
    op.done = now
    if t.devices[op.device].awaited == i:
        ask(t, events, now, op.device)
    if op.lane < 0:
        return
    lane = t.lanes[op.lane]
    lane.free = max(lane.free, now)
    lane.open -= 1
    if lane.open > 0 or lane.next < 0:
        return
    following = lane.next
    lane.turn = t.ops[following].turn
    while following >= 0 and t.ops[following].turn == lane.turn:
        lane.open += 1
        if t.ops[following].start >= 0.0:
            open_side(t, events, following, max(lane.free, t.ops[following].start))
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
    ask_op,
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
