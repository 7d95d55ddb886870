"""The inner loop of the detailed model: device queues, messages and channels.

Each step empties one of these work lists and fills others::

      devices          sends and receives     at the head of         sends and receives
      that can run     just posted            their channels         that have ended
       +-------+        +--------+             +--------+             +-------+
    +->| ready |------->| posted |------------>| opened |------------>| ended |----------+
    |  +-------+advance_+--------+enqueue_     +--------+start_       +-------+complete_ |
    |           devices           posted         ^    |  transfers      ^      transfers |
    |                                            |    |                 |                |
    |                      next in its channel   |    |  +----------+   |                |
    +<-------------------------------------------+----|--| departed |---|----------------+
        devices that waited                           +->+----------+   |
                                                         events in order of time, only
                                                         where bandwidth is shared

``start_transfers`` starts a message as soon as both its sides are opened (or its send alone, if
eager). Without shared bandwidth the message's times follow directly, and its sides end. All times
are maxima and sums of others, so the order in which they become known does not matter. It matters
if bandwidth is shared: then a message's bytes are a flow, flows have max-min fair rates
(progressive filling), and they are added and removed in order of time, once all other work is done.

Numba compiles this source for arrays (see :mod:`ppsim.engine.detailed.tables`), CPython runs it
over views of them. For compiled code, passing all columns costs as much as several ops, so every
step empties a whole work list and unpacks its columns once.
"""

from __future__ import annotations

from heapq import heappop, heappush

from ppsim.core import waiting
from ppsim.core.waiting import UNKNOWN, wait_code, waiting_device
from ppsim.engine.detailed import bandwidth_kernel
from ppsim.engine.detailed.bandwidth_kernel import add_flow, remove_flow
from ppsim.engine.detailed.tables import Bandwidth, Tables

COMPUTE, NOTHING, POST, STREAM = range(4)  # actions of a device on an op
SEND, RECEIVE = range(2)  # the side of a message
READY, POSTED, OPENED, ENDED, DEPARTED = range(5)  # the work lists
# ops posted before messages are advanced: few enough for caches, enough to hide a step's cost
TOGETHER = 8
ARRIVES, STARTS = range(2)  # kinds of events of a message's flow
Event = tuple[float, int]  # a time, and a message encoded with the kind of event


def run(tables: Tables) -> None:
    """Run every queue until it ends or blocks.

    Messages are advanced before devices, while posted ops are in the caches.
    """
    depth = tables.work.depth
    while True:
        if depth[POSTED] > 0:
            enqueue_posted(tables)
        elif depth[OPENED] > 0:
            start_transfers(tables)
        elif depth[ENDED] > 0:
            complete_transfers(tables)
        elif depth[READY] > 0:
            advance_devices(tables)
        else:
            break


def run_shared(tables: Tables, bandwidth: Bandwidth) -> None:
    """Run every queue until it ends or blocks, if messages share bandwidth."""
    depth = tables.work.depth
    route_of, ended = tables.messages.route, tables.work.ended
    events = [(0.0, 0) for _ in range(0)]
    while True:
        run(tables)
        for at in range(depth[DEPARTED]):
            message = tables.work.departed[at]
            now = tables.messages.leave[message] + tables.routes.delay[route_of[message]]
            heappush(events, (now, encode(message, STARTS)))
        depth[DEPARTED] = 0
        if len(events) == 0:
            break
        now, code = heappop(events)
        message = decode_message(code)
        if code & 1 == STARTS:
            route = route_of[message]
            add_flow(bandwidth, message, tables.routes.path[route], tables.routes.size[route], now)
            push_arrivals(bandwidth, events)
        # other arrivals are out of date, as the rate has changed since
        elif now == bandwidth.flows[message].due:
            remove_flow(bandwidth, message, now)
            push_arrivals(bandwidth, events)
            tables.messages.send_end[message] = now
            ended[0] = encode(message, SEND)
            ended[1] = encode(message, RECEIVE)
            depth[ENDED] = 2 if tables.messages.receive_ready[message] >= 0.0 else 1


def advance_devices(tables: Tables) -> None:
    """Run ready devices until their queues end, or they wait, or enough is posted."""
    kind, pair, batch = tables.ops.kind, tables.ops.pair, tables.ops.batch
    message_of, gathered = tables.ops.message, tables.ops.gathered
    start, end, bound, arrive = (
        tables.ops.start,
        tables.ops.end,
        tables.ops.bound,
        tables.messages.arrive,
    )
    pending, stream, ready, posted = (
        tables.devices.pending,
        tables.devices.stream,
        tables.work.ready,
        tables.work.posted,
    )
    producer, receive_of = tables.messages.producer, tables.messages.receive
    route_of, delay = tables.messages.route, tables.routes.delay
    offsets, head, free = tables.devices.offsets, tables.devices.head, tables.devices.free
    actions, latency, gap = tables.actions, tables.latency, tables.gap
    awake = tables.work.depth[READY]
    count = 0
    while awake > 0 and count < TOGETHER:
        awake -= 1
        device = ready[awake]
        # the next action: an op, a pair or a batch, from ``first`` to ``last``
        first = head[device]
        stop = offsets[device + 1]
        now = free[device]
        idle = now  # end of the latest action, before the gap that follows it
        while first < stop:
            action = actions[kind[first]]
            last = first if pair[first] < 0 else first + 1
            if action == POST and tables.grouped and batch[first] >= 0:
                while last + 1 < stop and batch[last + 1] == batch[first]:
                    last += 1
            begin = idle if action == NOTHING else now
            cause = first - 1 if first > offsets[device] else -1
            if action == COMPUTE:
                for op in range(first, last + 1):
                    message = message_of[op]
                    if message >= 0:
                        arrival = arrive[message]
                        if latency:
                            arrival = end[producer[message]]
                            if arrival < 0.0:
                                end[producer[message]] = wait_code(device)
                            else:
                                arrival += delay[route_of[message]]
                        elif arrival < 0.0:
                            arrive[message] = wait_code(device)
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
                begin = max(now, stream[device])
            if pending[device] == 0:  # posted earlier, and ended by now
                pending[device] = -1
                for op in range(first, last + 1):
                    end[op] = now
            else:
                after = begin + start[first]
                for op in range(first + 1, last + 1 if action == POST else first + 1):
                    after += start[op]
                for op in range(first, last + 1):
                    if action == POST:
                        posted[count] = op
                        count += 1
                    elif end[op] < UNKNOWN:
                        ready[awake] = waiting_device(int(end[op]))
                        awake += 1
                    start[op] = begin
                    end[op] = after
                    bound[op] = cause
                if action == STREAM:
                    stream[device] = after
                elif action != NOTHING:
                    now = after
                if action == POST and tables.waits:
                    pending[device] = last + 1 - first
                    break
            first = last + 1
            if action != NOTHING:
                idle = now
                now += gap[last]
        head[device] = first
        free[device] = now
    tables.work.depth[READY] = awake
    tables.work.depth[POSTED] = count


def enqueue_posted(tables: Tables) -> None:
    """Enqueue newly posted sends and receives in their channels; open those at the head."""
    kind, batch, message_of, next_op = (
        tables.ops.kind,
        tables.ops.batch,
        tables.ops.message,
        tables.channels.next,
    )
    is_receive = tables.is_receive
    carried, unfinished = tables.channels.batch, tables.channels.unfinished
    first, last = tables.channels.first, tables.channels.last
    send_channel, receive_channel = tables.routes.send_channel, tables.routes.receive_channel
    route_of, posted, opened = tables.messages.route, tables.work.posted, tables.work.opened
    previous_end, last_end = tables.channels.previous_end, tables.channels.last_end
    count = tables.work.depth[OPENED]
    for at in range(tables.work.depth[POSTED]):
        op = posted[at]
        route = route_of[message_of[op]]
        channel = receive_channel[route] if is_receive[kind[op]] else send_channel[route]
        if channel >= 0:
            together = batch[op] >= 0 and carried[channel] == batch[op]
            if not together and (unfinished[channel] > 0 or first[channel] >= 0):
                if first[channel] < 0:
                    first[channel] = op
                else:
                    next_op[last[channel]] = op
                last[channel] = op
                next_op[op] = -1
                continue
            if not together:
                carried[channel] = batch[op]
                previous_end[channel] = last_end[channel]
            unfinished[channel] += 1
        opened[count] = op
        count += 1
    tables.work.depth[POSTED] = 0
    tables.work.depth[OPENED] = count


def start_transfers(tables: Tables) -> None:
    """Start the message of every opened send or receive if the other side is ready too."""
    kind, message_of, start, route_of = (
        tables.ops.kind,
        tables.ops.message,
        tables.ops.start,
        tables.messages.route,
    )
    is_receive = tables.is_receive
    send_ready, receive_ready = tables.messages.send_ready, tables.messages.receive_ready
    leave, send_end = tables.messages.leave, tables.messages.send_end
    eager, delay, path = tables.routes.eager, tables.routes.delay, tables.routes.path
    send_channel, receive_channel = tables.routes.send_channel, tables.routes.receive_channel
    previous_end, opened, ended = (
        tables.channels.previous_end,
        tables.work.opened,
        tables.work.ended,
    )
    departed = tables.work.depth[DEPARTED]
    count = 0
    for at in range(tables.work.depth[OPENED]):
        op = opened[at]
        message = message_of[op]
        route = route_of[message]
        receives = is_receive[kind[op]]
        now = start[op]
        if len(previous_end) > 0:
            now = max(
                now, previous_end[receive_channel[route] if receives else send_channel[route]]
            )
        if receives:
            receive_ready[message] = now
        else:
            send_ready[message] = now
        if send_ready[message] < 0.0 or (receive_ready[message] < 0.0 and not eager[route]):
            continue
        if leave[message] < 0.0:
            now = send_ready[message]
            if not eager[route] and receive_ready[message] > now:
                now = receive_ready[message] + tables.late
            leave[message] = now
            now += delay[route]
            if path[route] >= 0:
                tables.work.departed[departed] = message
                departed += 1
            else:
                send_end[message] = now
                ended[count] = encode(message, SEND)
                count += 1
        if receive_ready[message] >= 0.0 and send_end[message] >= 0.0:
            ended[count] = encode(message, RECEIVE)
            count += 1
    tables.work.depth[OPENED] = 0
    tables.work.depth[ENDED] = count
    tables.work.depth[DEPARTED] = departed


def complete_transfers(tables: Tables) -> None:
    """Complete sends and receives that have ended: wake waiting devices and advance their
    channels.
    """
    batch_of, route_of = tables.ops.batch, tables.messages.route
    receive_ready, send_end = tables.messages.receive_ready, tables.messages.send_end
    arrive, source, target = tables.messages.arrive, tables.routes.source, tables.routes.target
    send_channel, receive_channel = tables.routes.send_channel, tables.routes.receive_channel
    pending, free, ended = tables.devices.pending, tables.devices.free, tables.work.ended
    ready, opened, carried, next_op = (
        tables.work.ready,
        tables.work.opened,
        tables.channels.batch,
        tables.channels.next,
    )
    previous_end, last_end = tables.channels.previous_end, tables.channels.last_end
    unfinished, first = tables.channels.unfinished, tables.channels.first
    awake = tables.work.depth[READY]
    count = 0
    for at in range(tables.work.depth[ENDED]):
        message = decode_message(ended[at])
        receives = ended[at] & RECEIVE
        route = route_of[message]
        now = send_end[message]
        if receives:
            now = max(now, receive_ready[message])
            if arrive[message] < UNKNOWN:
                ready[awake] = waiting_device(int(arrive[message]))
                awake += 1
            arrive[message] = now
        if tables.waits:
            device = target[route] if receives else source[route]
            free[device] = max(free[device], now)
            pending[device] -= 1
            if pending[device] == 0:
                ready[awake] = device
                awake += 1
        if len(last_end) > 0:
            channel = receive_channel[route] if receives else send_channel[route]
            last_end[channel] = max(last_end[channel], now)
            unfinished[channel] -= 1
            op = first[channel]
            if unfinished[channel] == 0 and op >= 0:
                batch = batch_of[op]
                previous_end[channel] = last_end[channel]
                carried[channel] = batch
                while op >= 0 and (
                    unfinished[channel] == 0 or (batch >= 0 and batch_of[op] == batch)
                ):
                    unfinished[channel] += 1
                    opened[count] = op
                    count += 1
                    op = next_op[op]
                first[channel] = op
    tables.work.depth[READY] = awake
    tables.work.depth[OPENED] = count
    tables.work.depth[ENDED] = 0


def encode(message: int, bit: int) -> int:
    """Return a message and a bit as one number: its side, or the event of its flow."""
    return 2 * message + bit


def decode_message(code: int) -> int:
    """Return the message of :func:`encode`; the bit is ``code & 1``."""
    return code // 2


def push_arrivals(bandwidth: Bandwidth, events: list[Event]) -> None:
    """Push the arrivals of flows with changed rates."""
    for at in range(bandwidth.changes[0]):
        message = bandwidth.changed[at]
        flow = bandwidth.flows[message]
        flow.due = flow.since + flow.left / flow.rate
        heappush(events, (flow.due, encode(message, ARRIVES)))


# The functions that ``run`` and ``run_shared`` call; numba inlines them.
STEPS = (
    advance_devices,
    enqueue_posted,
    start_transfers,
    complete_transfers,
    push_arrivals,
    encode,
    decode_message,
)
PARTS = (*waiting.PARTS, *bandwidth_kernel.PARTS, run, *STEPS)
