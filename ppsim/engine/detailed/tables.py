"""The tables of the event kernel: columns per op, message, route, device, channel, and of shared bandwidth.

Indices are -1 for none. Times are -1 until they are known; where a device waits for one, they hold its code (see
:mod:`ppsim.core.waiting`).
"""

from __future__ import annotations

from typing import NamedTuple

from ppsim.core.columns import Codes, Flags, Floats, Ids, Ints, Rows

# Field and type of each row of the tables of shared bandwidth.
FLOW = [
    ("left", "f8"),  # bytes not yet transferred at time ``since``
    ("since", "f8"),
    ("rate", "f8"),  # bytes per unit of time
    ("share", "f8"),  # the new rate while rates are computed, -1 until it is fixed
    ("due", "f8"),  # time of the arrival, -1 after it
    ("path", "i8"),
]
RESOURCE = [
    ("capacity", "f8"),  # bytes per unit of time
    ("room", "f8"),  # capacity not yet shared out, while rates are computed
    ("users", "i8"),  # flows without a rate, while rates are computed; -1 for a resource not involved
    ("first", "i8"),  # first slot of the list of its flows
]
SLOT = [("next", "i8"), ("prev", "i8")]  # place ``p`` of flow ``f`` in a resource's list is slot f x width + p


class OpTable(NamedTuple):
    """Columns with one entry per op of the lowered queues.

    Attributes:
        kind: code of its kind.
        pair: its partner.
        batch: number of the batch it is posted in.
        message: the message it sends, receives or consumes.
        gathered: the UNSHARD that has to end before it starts; empty where no op waits for one.
        start: the op's duration at first (of a pair, its total on both), receives the start.
        end: time at which it leaves its device, or its stream.
        bound: the op whose end, or message, set the start.
    """

    kind: Codes
    pair: Ids
    batch: Ids
    message: Ids
    gathered: Ids
    start: Floats
    end: Floats
    bound: Ids


class MessageTable(NamedTuple):
    """Columns with one entry per message.

    Attributes:
        route: its route.
        send: its send.
        receive: its receive.
        producer: the op whose result it carries.
        send_ready: time at which its send was at the head of its channel.
        receive_ready: time at which its receive was.
        leave: time at which it left.
        send_end: end of its send.
        arrive: end of its receive.
    """

    route: Ids
    send: Ints
    receive: Ids
    producer: Ids
    send_ready: Floats
    receive_ready: Floats
    leave: Floats
    send_end: Floats
    arrive: Floats


class RouteTable(NamedTuple):
    """Columns with one entry per route.

    Attributes:
        delay: time from leaving to arrival; to the first byte, where bandwidth is shared.
        size: bytes of a message.
        eager: whether a send starts without its receive.
        source: the device that messages leave.
        target: the device that they reach.
        path: the path of their bytes, where bandwidth is shared.
        send_channel: the channel of sends.
        receive_channel: the channel of receives.
    """

    delay: Floats
    size: Floats
    eager: Flags
    source: Ids
    target: Ids
    path: Ints
    send_channel: Ints
    receive_channel: Ints


class DeviceTable(NamedTuple):
    """Columns with one entry per device.

    Attributes:
        offsets: where its queue begins, and the next one's.
        head: the first op that has not run.
        pending: number of unfinished ops that it posted at ``head`` and waits for; -1 before they are posted.
        free: earliest time the device can start the op at ``head``.
        stream: end of the collectives issued so far.
    """

    offsets: Ints
    head: Ints
    pending: Ints
    free: Floats
    stream: Floats


class ChannelTable(NamedTuple):
    """Columns with one entry per channel, which carries one op, or one batch, at a time.

    Attributes:
        previous_end: end of the ops before the one, or the batch, that it carries now.
        last_end: latest end of all ops so far.
        batch: the batch that it carries, or carried last; -1 for an op posted alone.
        unfinished: number of unfinished ops among those that it carries.
        first: first op that waits for the channel.
        last: last op that waits for the channel.
        next: per op, the one that waits after it.
    """

    previous_end: Floats
    last_end: Floats
    batch: Ints
    unfinished: Ints
    first: Ints
    last: Ints
    next: Ids


class WorkLists(NamedTuple):
    """The work lists of the event loop; see :mod:`ppsim.engine.detailed.event_kernel`.

    Attributes:
        ready: devices that can continue.
        posted: sends and receives just posted, in order.
        opened: sends and receives at the head of their channels.
        ended: sides of messages that have ended, encoded.
        departed: messages on their way to where bandwidth is shared.
        depth: the length of each list.
    """

    ready: Ints
    posted: Ints
    opened: Ints
    ended: Ints
    departed: Ints
    depth: Ints


class Tables(NamedTuple):
    """All that the kernel reads and writes, except shared bandwidth.

    Attributes:
        ops: per op.
        messages: per message.
        routes: per route.
        devices: per device.
        channels: per channel; empty where messages do not queue.
        work: the work lists.
        actions: what a device does with an op of each kind.
        is_receive: whether an op of each kind is a receive; an array, as compiled code branches over a tuple's entries.
        latency: whether a message leaves when the op that makes it ends, posted or not.
        grouped: whether the ops of a batch are issued together.
        waits: whether a device waits for the sends and receives it has posted.
        gap: shape (ops,), time of a device between the action that the op ends and the next.
        late: added where the receive is posted after the send.
    """

    ops: OpTable
    messages: MessageTable
    routes: RouteTable
    devices: DeviceTable
    channels: ChannelTable
    work: WorkLists
    actions: Ints
    is_receive: Flags
    latency: bool
    grouped: bool
    waits: bool
    gap: Floats
    late: float


class Bandwidth(NamedTuple):
    """The messages that share bandwidth; each is a flow of bytes along a path of resources.

    Attributes:
        flows: a row per message, see ``FLOW``.
        resources: a row per resource, see ``RESOURCE``.
        slots: flows x width rows, see ``SLOT``.
        paths: paths x width numbers, the resources of each path, -1 for none.
        reached: per resource, a list of those whose flows get new rates.
        changed: per message, a list of flows with a new rate.
        changes: one number, the length of ``changed``.
        width: places of a path.
    """

    flows: Rows
    resources: Rows
    slots: Rows
    paths: Ints
    reached: Ints
    changed: Ints
    changes: Ints
    width: int
