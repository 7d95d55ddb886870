"""The tables of the detailed model's kernel: columns per op, message, leg, device, channel and divided bandwidth.

Indices are -1 for none. Times are -1 until they are known; where a device waits for one, it is -2 - device.
"""

from __future__ import annotations

from typing import Any, NamedTuple

# Of what divides bandwidth: field and type of each table's rows.
FLOW = [
    ("left", "f8"),  # bytes still to go at time ``since``
    ("since", "f8"),
    ("rate", "f8"),  # bytes per unit of time
    ("share", "f8"),  # the rate being worked out, -1 while open
    ("due", "f8"),  # time of the arrival, -1 once it is there
    ("route", "i8"),
]
RESOURCE = [
    ("capacity", "f8"),  # bytes per unit of time
    ("room", "f8"),  # of which not given away, while rates are worked out
    ("users", "i8"),  # flows without a rate yet, likewise; -1 when not touched
    ("first", "i8"),  # first slot of the list of its flows
]
SLOT = [("next", "i8"), ("prev", "i8")]  # place ``p`` of flow ``f`` in a resource's list is slot f x width + p


class Ops(NamedTuple):
    """Of each op in the lowered queues.

    Attributes:
        kind: code of its kind.
        pair: its partner.
        batch: number of those posted together.
        message: the message it sends, receives or works on.
        gathered: the UNSHARD that must be over before; empty where none is waited for.
        start: comes in as the op's duration (of a pair, its total on both), receives the start.
        end: when it leaves its device, or its stream.
        bound: the op whose end, or message, set the start.
    """

    kind: Any
    pair: Any
    batch: Any
    message: Any
    gathered: Any
    start: Any
    end: Any
    bound: Any


class Sides(NamedTuple):
    """Of each message.

    Attributes:
        leg: where it goes.
        send: the op on one side.
        receive: the op on the other.
        producer: the op whose result it carries.
        sent: when its send stood first in its channel.
        ready: when its receive did.
        leave: when it set out.
        over: when its send was over.
        arrive: when its receive was.
    """

    leg: Any
    send: Any
    receive: Any
    producer: Any
    sent: Any
    ready: Any
    leave: Any
    over: Any
    arrive: Any


class Ways(NamedTuple):
    """Of each leg.

    Attributes:
        delay: time from the meeting of both sides to arrival, or to the first byte on a route.
        size: bytes of a message.
        eager: whether a send goes ahead without its receive.
        source: the device that messages leave.
        target: the device they reach.
        route: what bytes flow through, where bandwidth is divided.
        out: the channel of sends.
        into: the channel of receives.
    """

    delay: Any
    size: Any
    eager: Any
    source: Any
    target: Any
    route: Any
    out: Any
    into: Any


class Devices(NamedTuple):
    """Of each device.

    Attributes:
        offsets: where its queue begins, and the next one's.
        head: where the queue stands.
        pending: how many of the ops posted at ``head`` it waits for; -1 when they are not posted.
        free: from when it can take the op at ``head``.
        stream: when the collectives issued so far are over.
    """

    offsets: Any
    head: Any
    pending: Any
    free: Any
    stream: Any


class Lanes(NamedTuple):
    """Of each device's channels; the ops of a batch have one turn together.

    Attributes:
        before: when all turns before the one that runs were over.
        free: when all that has run so far was.
        batch: the batch that runs.
        open: unfinished ops of the turn that runs.
        first: first op that waits for its turn.
        last: last one.
        follower: per op, the one that waits behind it.
    """

    before: Any
    free: Any
    batch: Any
    open: Any
    first: Any
    last: Any
    follower: Any


class Stacks(NamedTuple):
    """What there is to do.

    Attributes:
        ready: devices that may go on.
        posted: sends and receives just posted, in order.
        open: those that stand first in their channels.
        over: sides of messages that are over: 2 x message, plus one for a receive.
        set_out: messages on their way to where bandwidth is divided.
        depth: of each.
    """

    ready: Any
    posted: Any
    open: Any
    over: Any
    set_out: Any
    depth: Any


class Tables(NamedTuple):
    """All there is to run, and how far it has come.

    Attributes:
        ops: per op.
        sides: per message.
        ways: per leg.
        devices: per device.
        lanes: per channel; empty where messages do not queue.
        actions: what a device does with an op of each kind.
        latency: whether messages leave by themselves when their op ends.
        grouped: whether the ops of a batch are issued together.
        waits: whether a device waits for the messages it has posted.
        stacks: what there is to do.
        gap: time of a device between two actions.
        late: added where the receive is posted after the send.
    """

    ops: Ops
    sides: Sides
    ways: Ways
    devices: Devices
    lanes: Lanes
    actions: Any
    latency: bool
    grouped: bool
    waits: bool
    stacks: Stacks
    gap: float
    late: float


class Flows(NamedTuple):
    """The messages that divide bandwidth.

    Attributes:
        flows: a row per message, see ``FLOW``.
        resources: a row per resource, see ``RESOURCE``.
        slots: flows x width rows, see ``SLOT``.
        routes: routes x width numbers, the resources of each route, -1 for none.
        reached: per resource, a list of those whose flows get new rates.
        changed: per message, a list of flows with a new rate.
        count: one number, the length of ``changed``.
        width: places of a route.
    """

    flows: Any
    resources: Any
    slots: Any
    routes: Any
    reached: Any
    changed: Any
    count: Any
    width: int
