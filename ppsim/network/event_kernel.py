"""The detailed model's inner loop: device queues, messages and channels.

Every device runs as far as its queue goes; what it posts meets its other side in its channel, and what is over wakes
the device that waits for it. All times are maxima of sums of others, the same in whatever order they become known.
Only where bandwidth is divided does order matter: there a message's bytes are a flow, flows have max-min fair rates
(progressive filling), and they join and part in order of time, once all else is done.

Numba compiles this source for arrays (see ``ppsim.network.tables``), CPython runs it over views of them. All of it is
in this file, because numba keeps compiled code until the file of ``run`` changes. A call hands on every column, which
costs compiled code as much as several ops: so each step takes a whole stack, and names the columns it works on.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

COMPUTE, NOTHING, POST, STREAM = range(4)  # what a device does with an op
RECEIVE = 1  # the bit of its kind that tells a receive from a send
READY, POSTED, OPEN, OVER, SET_OUT = range(5)  # the stacks
TOGETHER = 8  # messages that go their way at once: caches hold them, and a step costs little for each


def run(t: Any) -> None:
    """Run every queue as far as it goes; ``t`` are the Tables.

    What devices have posted goes its way soon, while it is at hand.
    """
    depth = t.stacks.depth
    while True:
        if depth[POSTED] > 0:
            queue(t)
        elif depth[OPEN] > 0:
            meet(t)
        elif depth[OVER] > 0:
            finish(t)
        elif depth[READY] > 0:
            advance(t)
        else:
            break


def run_divided(t: Any, f: Any) -> None:
    """The same where messages divide bandwidth; ``f`` are the Flows."""
    depth = t.stacks.depth
    events = [(0.0, 0) for _ in range(0)]  # a time, and 2 x message + whether its flow joins
    while True:
        run(t)
        for at in range(depth[SET_OUT]):
            message = t.stacks.set_out[at]
            now = t.sides.leave[message] + t.ways.delay[t.sides.leg[message]]
            heappush(events, (now, 2 * message + 1))
        depth[SET_OUT] = 0
        if len(events) == 0:
            break
        now, code = heappop(events)
        message = code // 2
        if code % 2 == 1:
            leg = t.sides.leg[message]
            join(f, message, t.ways.route[leg], t.ways.size[leg], now)
            ask_changed(f, events)
        elif now == f.flows[message].due:  # others are void: the rate has changed since
            part(f, message, now)
            ask_changed(f, events)
            t.sides.over[message] = now
            t.stacks.over[0] = 2 * message
            t.stacks.over[1] = 2 * message + RECEIVE
            depth[OVER] = 2 if t.sides.ready[message] >= 0.0 else 1


def advance(t: Any) -> None:
    """Run ready devices until their queues end or they wait for something, or enough is posted."""
    kind, pair, batch, message_of, gathered = t.ops.kind, t.ops.pair, t.ops.batch, t.ops.message, t.ops.gathered
    start, end, bound, arrive = t.ops.start, t.ops.end, t.ops.bound, t.sides.arrive
    pending, stream, ready, posted = t.devices.pending, t.devices.stream, t.stacks.ready, t.stacks.posted
    producer, receive_of, leg_of, delay = t.sides.producer, t.sides.receive, t.sides.leg, t.ways.delay
    offsets, head, free, actions, latency, gap = (
        t.devices.offsets, t.devices.head, t.devices.free, t.actions, t.latency, t.gap
    )  # fmt: skip
    awake = t.stacks.depth[READY]
    count = 0
    while awake > 0 and count < TOGETHER:
        awake -= 1
        d = ready[awake]
        i = head[d]
        stop = offsets[d + 1]
        now = free[d]
        while i < stop:
            action = actions[kind[i]]
            last = i if pair[i] < 0 else i + 1
            if action == POST and t.grouped and batch[i] >= 0:
                while last + 1 < stop and batch[last + 1] == batch[i]:
                    last += 1
            begin = now
            cause = i - 1 if i > offsets[d] else -1
            if action == COMPUTE:
                for op in range(i, last + 1):
                    message = message_of[op]
                    if message >= 0:
                        arrival = arrive[message]
                        if latency:
                            arrival = end[producer[message]]
                            if arrival < 0.0:
                                end[producer[message]] = -2 - d
                            else:
                                arrival += delay[leg_of[message]]
                        elif arrival < 0.0:
                            arrive[message] = -2 - d
                        if arrival < 0.0:
                            begin = -1.0
                            break
                        if arrival > begin:
                            begin = arrival
                            cause = receive_of[message]
                    if len(gathered) > 0 and gathered[op] >= 0 and end[gathered[op]] > begin:
                        begin = end[gathered[op]]
                        cause = gathered[op]
                if begin < 0.0:
                    break
            elif action == STREAM:
                begin = max(now, stream[d])
            if pending[d] == 0:  # posted before, and over by now
                pending[d] = -1
                for op in range(i, last + 1):
                    end[op] = now
            else:
                after = begin + start[i]
                for op in range(i + 1, last + 1 if action == POST else i + 1):
                    after += start[op]
                for op in range(i, last + 1):
                    if action == POST:
                        posted[count] = op
                        count += 1
                    elif end[op] < -1.0:
                        ready[awake] = -2 - int(end[op])
                        awake += 1
                    start[op] = begin
                    end[op] = after
                    bound[op] = cause
                if action == STREAM:
                    stream[d] = after
                else:
                    now = after
                if action == POST and t.waits:
                    pending[d] = last + 1 - i
                    break
            i = last + 1
            if action != NOTHING:
                now += gap
        head[d] = i
        free[d] = now
    t.stacks.depth[READY] = awake
    t.stacks.depth[POSTED] = count


def queue(t: Any) -> None:
    """What was posted takes its place in its channel, where it may stand first."""
    kind, batch, message_of, follower = t.ops.kind, t.ops.batch, t.ops.message, t.lanes.follower
    running, unfinished, first, last = t.lanes.batch, t.lanes.open, t.lanes.first, t.lanes.last
    leg_of, into, out, posted, opened = t.sides.leg, t.ways.into, t.ways.out, t.stacks.posted, t.stacks.open
    before, lane_free = t.lanes.before, t.lanes.free
    count = t.stacks.depth[OPEN]
    for at in range(t.stacks.depth[POSTED]):
        op = posted[at]
        leg = leg_of[message_of[op]]
        lane = into[leg] if kind[op] & RECEIVE else out[leg]
        if lane >= 0:
            together = batch[op] >= 0 and running[lane] == batch[op]
            if not together and (unfinished[lane] > 0 or first[lane] >= 0):
                if first[lane] < 0:
                    first[lane] = op
                else:
                    follower[last[lane]] = op
                last[lane] = op
                follower[op] = -1
                continue
            if not together:
                running[lane] = batch[op]
                before[lane] = lane_free[lane]
            unfinished[lane] += 1
        opened[count] = op
        count += 1
    t.stacks.depth[POSTED] = 0
    t.stacks.depth[OPEN] = count


def meet(t: Any) -> None:
    """Sends and receives that stand first in their channels meet their other sides, and messages set out."""
    kind, message_of, start, leg_of = t.ops.kind, t.ops.message, t.ops.start, t.sides.leg
    sent, ready, leave, over = t.sides.sent, t.sides.ready, t.sides.leave, t.sides.over
    eager, delay, route, into, out = t.ways.eager, t.ways.delay, t.ways.route, t.ways.into, t.ways.out
    before, opened, finished = t.lanes.before, t.stacks.open, t.stacks.over
    flowing = t.stacks.depth[SET_OUT]
    count = 0
    for at in range(t.stacks.depth[OPEN]):
        op = opened[at]
        message = message_of[op]
        leg = leg_of[message]
        receive = kind[op] & RECEIVE
        now = start[op]
        if len(before) > 0:
            now = max(now, before[into[leg] if receive else out[leg]])
        if receive:
            ready[message] = now
        else:
            sent[message] = now
        if sent[message] < 0.0 or (ready[message] < 0.0 and not eager[leg]):
            continue
        if leave[message] < 0.0:
            now = sent[message]
            if not eager[leg] and ready[message] > now:
                now = ready[message] + t.late
            leave[message] = now
            now += delay[leg]
            if route[leg] >= 0:
                t.stacks.set_out[flowing] = message
                flowing += 1
            else:
                over[message] = now
                finished[count] = 2 * message
                count += 1
        if ready[message] >= 0.0 and over[message] >= 0.0:
            finished[count] = 2 * message + RECEIVE
            count += 1
    t.stacks.depth[OPEN] = 0
    t.stacks.depth[OVER] = count
    t.stacks.depth[SET_OUT] = flowing


def finish(t: Any) -> None:
    """Sides of messages are over: wake the devices that wait for them, and let their channels go on."""
    leg_of, ready, over, arrive = t.sides.leg, t.sides.ready, t.sides.over, t.sides.arrive
    into, out, source, target = t.ways.into, t.ways.out, t.ways.source, t.ways.target
    pending, free, batch_of, finished = t.devices.pending, t.devices.free, t.ops.batch, t.stacks.over
    awake, opened, running, follower = t.stacks.ready, t.stacks.open, t.lanes.batch, t.lanes.follower
    before, lane_free, unfinished, first = t.lanes.before, t.lanes.free, t.lanes.open, t.lanes.first
    woken = t.stacks.depth[READY]
    count = 0
    for at in range(t.stacks.depth[OVER]):
        message = finished[at] // 2
        receive = finished[at] & RECEIVE
        leg = leg_of[message]
        now = over[message]
        if receive:
            now = max(now, ready[message])
            if arrive[message] < -1.0:
                awake[woken] = -2 - int(arrive[message])
                woken += 1
            arrive[message] = now
        if t.waits:
            d = target[leg] if receive else source[leg]
            free[d] = max(free[d], now)
            pending[d] -= 1
            if pending[d] == 0:
                awake[woken] = d
                woken += 1
        if len(lane_free) > 0:
            lane = into[leg] if receive else out[leg]
            lane_free[lane] = max(lane_free[lane], now)
            unfinished[lane] -= 1
            op = first[lane]
            if unfinished[lane] == 0 and op >= 0:
                batch = batch_of[op]
                before[lane] = lane_free[lane]
                running[lane] = batch
                while op >= 0 and (unfinished[lane] == 0 or (batch >= 0 and batch_of[op] == batch)):
                    unfinished[lane] += 1
                    opened[count] = op
                    count += 1
                    op = follower[op]
                first[lane] = op
    t.stacks.depth[READY] = woken
    t.stacks.depth[OPEN] = count
    t.stacks.depth[OVER] = 0


def ask_changed(f: Any, events: Any) -> None:
    """Ask for the arrivals of flows whose rate has changed."""
    for at in range(f.count[0]):
        flow = f.flows[f.changed[at]]
        flow.due = flow.since + flow.left / flow.rate
        heappush(events, (flow.due, 0 + 2 * f.changed[at]))


def join(f: Any, flow: int, route: int, size: float, now: float) -> None:
    """A message's bytes begin to flow along a route."""
    row = f.flows[flow]
    row.route = route
    row.left = size
    row.rate = 0.0
    row.since = now
    for place in range(f.width):
        resource = f.routes[route * f.width + place]
        if resource >= 0:
            at = flow * f.width + place
            slot = f.slots[at]
            slot.next = f.resources[resource].first
            slot.prev = -1
            if slot.next >= 0:
                f.slots[slot.next].prev = at
            f.resources[resource].first = at
    divide(f, route, now)


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


# What they call.
PARTS = (run, advance, queue, meet, finish, ask_changed, join, part, divide, collect, reach, settle)
