"""Bandwidth divided among messages: max-min fair rates by progressive filling, kept up as flows come and go.

A flow is a message whose bytes are on their way; its route is the list of resources they go through: the link, and
what that link shares with others. Like ``ppsim.network_kernel``, for CPython and numba alike.
"""

from __future__ import annotations

from typing import Any, NamedTuple

# Field and type of each table's rows.
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


PARTS = (join, part, divide, collect, reach, settle)
