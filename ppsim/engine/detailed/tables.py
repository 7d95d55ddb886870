"""The tables of the event kernel: columns per op, message, route, device, channel, and of shared
bandwidth.

Indices are -1 for none. Times are -1 until they are known; where a device waits for one, they hold
its code (see :mod:`ppsim.core.waiting`).
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
    # flows without a rate, while rates are computed; -1 for a resource not involved
    ("users", "i8"),
    ("first", "i8"),  # first slot of the list of its flows
]
# place ``p`` of flow ``f`` in a resource's list is slot f x width + p
SLOT = [("next", "i8"), ("prev", "i8")]


class OpTable(NamedTuple):
    """Columns with one entry per op of the lowered queues."""

    kind: Codes  # code of its kind
    pair: Ids  # its partner
    batch: Ids  # number of the batch it is posted in
    message: Ids  # the message it sends, receives or consumes
    gathered: Ids  # the UNSHARD that has to end before it starts; empty where no op waits for one
    start: Floats  # the op's duration at first (of a pair, its total on both), receives the start
    end: Floats  # time at which it leaves its device, or its stream
    bound: Ids  # the op whose end, or message, set the start


class MessageTable(NamedTuple):
    """Columns with one entry per message."""

    route: Ids  # its route
    send: Ints  # its send
    receive: Ids  # its receive
    producer: Ids  # the op whose result it carries
    send_ready: Floats  # time at which its send was at the head of its channel
    receive_ready: Floats  # time at which its receive was
    leave: Floats  # time at which it left
    send_end: Floats  # end of its send
    arrive: Floats  # end of its receive


class RouteTable(NamedTuple):
    """Columns with one entry per route."""

    delay: Floats  # time from leaving to arrival; to the first byte, where bandwidth is shared
    size: Floats  # bytes of a message
    eager: Flags  # whether a send starts without its receive
    source: Ids  # the device that messages leave
    target: Ids  # the device that they reach
    path: Ints  # the path of their bytes, where bandwidth is shared
    send_channel: Ints  # the channel of sends
    receive_channel: Ints  # the channel of receives


class DeviceTable(NamedTuple):
    """Columns with one entry per device."""

    offsets: Ints  # where its queue begins, and the next one's
    head: Ints  # the first op that has not run
    # number of unfinished ops that it posted at ``head`` and waits for; -1 before they are posted
    pending: Ints
    free: Floats  # earliest time the device can start the op at ``head``
    stream: Floats  # end of the collectives issued so far


class ChannelTable(NamedTuple):
    """Columns with one entry per channel, which carries one op, or one batch, at a time."""

    previous_end: Floats  # end of the ops before the one, or the batch, that it carries now
    last_end: Floats  # latest end of all ops so far
    batch: Ints  # the batch that it carries, or carried last; -1 for an op posted alone
    unfinished: Ints  # number of ops that it carries and that are unfinished
    first: Ints  # first op that waits for the channel
    last: Ints  # last op that waits for the channel
    next: Ids  # per op, the one that waits after it


class WorkLists(NamedTuple):
    """The work lists of the event loop; see :mod:`ppsim.engine.detailed.event_kernel`."""

    ready: Ints  # devices that can continue
    posted: Ints  # sends and receives just posted, in order
    opened: Ints  # sends and receives at the head of their channels
    ended: Ints  # sides of messages that have ended, encoded
    departed: Ints  # messages on their way to where bandwidth is shared
    depth: Ints  # the length of each list


class Tables(NamedTuple):
    """All that the kernel reads and writes, except shared bandwidth."""

    ops: OpTable  # per op
    messages: MessageTable  # per message
    routes: RouteTable  # per route
    devices: DeviceTable  # per device
    channels: ChannelTable  # per channel; empty where messages do not queue
    work: WorkLists  # the work lists
    actions: Ints  # what a device does with an op of each kind
    # whether an op of each kind is a receive; an array, as compiled code branches over a tuple's
    # entries
    is_receive: Flags
    latency: bool  # whether a message leaves when the op that makes it ends, posted or not
    grouped: bool  # whether the ops of a batch are issued together
    waits: bool  # whether a device waits for the sends and receives it has posted
    gap: Floats  # shape (ops,), time of a device between the action that the op ends and the next
    late: float  # added where the receive is posted after the send


class Bandwidth(NamedTuple):
    """The messages that share bandwidth; each is a flow of bytes along a path of resources."""

    flows: Rows  # a row per message, see ``FLOW``
    resources: Rows  # a row per resource, see ``RESOURCE``
    slots: Rows  # flows x width rows, see ``SLOT``
    paths: Ints  # paths x width numbers, the resources of each path, -1 for none
    reached: Ints  # per resource, a list of those whose flows get new rates
    changed: Ints  # per message, a list of flows with a new rate
    changes: Ints  # one number, the length of ``changed``
    width: int  # places of a path
