"""The tables of the event kernel: columns by op, message, route, device, channel and flow.

Indices are -1 for none. Times are -1 until they are known, or the code of a device that waits for
them (see :mod:`ppsim.core.waiting`).
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
    ("room", "f8"),  # unassigned capacity while rates are computed
    # flows without a rate, while rates are computed; -1 for a resource not involved
    ("users", "i8"),
    ("first", "i8"),  # first slot of the list of its flows
]
# slot f x width + p is place ``p`` of flow ``f`` in a resource's list
SLOT = [("next", "i8"), ("prev", "i8")]


class OpTable(NamedTuple):
    """Columns with one entry per op of the lowered queues."""

    kind: Codes  # code of the kind
    pair: Ids  # the partner op
    batch: Ids  # number of the batch that the op is posted in
    message: Ids  # the message that the op sends, receives or consumes
    gathered: Ids  # the UNSHARD that has to end before the op starts; empty if no op needs one
    start: Floats  # the op's duration at first (a pair's total on both ops), receives the start
    end: Floats  # time at which the device, or its stream, is free again
    bound: Ids  # the op whose end, or message, decided the start


class MessageTable(NamedTuple):
    """Columns with one entry per message."""

    route: Ids  # its route
    send: Ints  # its send
    receive: Ids  # its receive
    producer: Ids  # the op whose result it carries
    send_ready: Floats  # time at which its send reached the head of its channel
    receive_ready: Floats  # time at which its receive reached the head of its channel
    leave: Floats  # time at which it left
    send_end: Floats  # end of its send
    arrive: Floats  # end of its receive


class RouteTable(NamedTuple):
    """Columns with one entry per route."""

    delay: Floats  # time from departure to arrival, or to the first byte if bandwidth is shared
    size: Floats  # bytes of a message
    eager: Flags  # whether a send starts without its receive
    source: Ids  # the sending device
    target: Ids  # the receiving device
    path: Ints  # the path of the bytes if bandwidth is shared
    send_channel: Ints  # the channel of sends
    receive_channel: Ints  # the channel of receives


class DeviceTable(NamedTuple):
    """Columns with one entry per device."""

    offsets: Ints  # start of its queue, and of the next one
    head: Ints  # the first op that has not run
    # number of unfinished ops that it posted at ``head`` and waits for; -1 before they are posted
    pending: Ints
    free: Floats  # earliest time at which the device can start the op at ``head``
    stream: Floats  # end of the collectives issued so far


class ChannelTable(NamedTuple):
    """Columns with one entry per channel, which carries one op, or one batch, at a time."""

    previous_end: Floats  # end of the ops before the current op or batch
    last_end: Floats  # latest end of all ops so far
    batch: Ints  # the current or latest batch; -1 for a single op
    unfinished: Ints  # number of unfinished ops that it carries
    first: Ints  # first op that waits for the channel
    last: Ints  # last op that waits for the channel
    next: Ids  # for each op, the op that waits after it


class WorkLists(NamedTuple):
    """The work lists of the event loop; see :mod:`ppsim.engine.detailed.event_kernel`."""

    ready: Ints  # devices that can continue
    posted: Ints  # sends and receives just posted, in order
    opened: Ints  # sends and receives at the head of their channels
    ended: Ints  # sides of messages that have ended, encoded
    departed: Ints  # messages that have left and will share bandwidth
    depth: Ints  # the length of each list


class Tables(NamedTuple):
    """All tables of the kernel, except those of shared bandwidth."""

    ops: OpTable
    messages: MessageTable
    routes: RouteTable
    devices: DeviceTable
    channels: ChannelTable  # empty if messages do not queue
    work: WorkLists
    actions: Ints  # the action of a device for each kind of op
    # whether an op of each kind is a receive; an array, as compiled code branches over a tuple's
    # entries
    is_receive: Flags
    latency: bool  # whether a message leaves when the op that makes it ends, posted or not
    grouped: bool  # whether the ops of a batch are issued together
    waits: bool  # whether a device waits for the sends and receives that it has posted
    gap: Floats  # shape (ops,), gap of the device after an action whose last op this is
    late: float  # extra time if the receive is posted after the send


class Bandwidth(NamedTuple):
    """The messages that share bandwidth; each is a flow of bytes along a path of resources."""

    flows: Rows  # a row per message, see ``FLOW``
    resources: Rows  # a row per resource, see ``RESOURCE``
    slots: Rows  # flows x width rows, see ``SLOT``
    paths: Ints  # paths x width numbers, the resources of each path, -1 for none
    reached: Ints  # room for all resources: a list of those whose flows get new rates
    changed: Ints  # room for all messages: a list of flows with a new rate
    changes: Ints  # one number, the length of ``changed``
    width: int  # most resources of a path
