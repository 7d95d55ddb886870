"""The tables of the detailed model's kernel: a row per op, device and channel, and what bandwidth is divided by.

Indices are -1 for none, times -1 until they are known. Few tables, as each costs at every call in compiled code.
"""

from __future__ import annotations

from typing import Any, NamedTuple

# Field and type of each table's rows.
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
    ("free", "f8"),  # from when it can take the op at ``head``
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
    ("free", "f8"),  # when all before it were over
]
FLOW = [
    ("size", "f8"),  # bytes of the message
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


class Tables(NamedTuple):
    """All there is to run, and how far it has come.

    Attributes:
        ops: a row per op, see ``OP``.
        devices: a row per device, see ``DEVICE``.
        lanes: a row per channel and device, see ``LANE``.
        late: added where the receive is posted after the send.
        gap: time of a device between two actions.
        preamble: when the devices begin.
        ordered: whether events are taken in order of time.
        waits: whether a device waits for the messages it has posted.
    """

    ops: Any
    devices: Any
    lanes: Any
    late: float
    gap: float
    preamble: float
    ordered: bool
    waits: bool


class Flows(NamedTuple):
    """The messages that divide bandwidth.

    Attributes:
        flows: a row per op, see ``FLOW``; used for sends that have a route.
        resources: a row per resource, see ``RESOURCE``.
        slots: flows x width rows, see ``SLOT``.
        routes: routes x width numbers, the resources of each route, -1 for none.
        reached: per resource, a list of those whose flows get new rates.
        changed: per op, a list of flows with a new rate.
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
