"""Shared bandwidth in the detailed model: flows of bytes on paths of resources, max-min fair rates.

Part of :mod:`ppsim.engine.detailed.event_kernel`, and like it plain Python that numba compiles.
"""

from __future__ import annotations

from ppsim.engine.detailed.tables import Bandwidth


def add_flow(bandwidth: Bandwidth, message: int, path: int, size: float, now: float) -> None:
    """Add the flow of a message's bytes along a path."""
    flow = bandwidth.flows[message]
    flow.path = path
    flow.left = size
    flow.rate = 0.0
    flow.since = now
    for place in range(bandwidth.width):
        resource = bandwidth.paths[path * bandwidth.width + place]
        if resource >= 0:
            at = message * bandwidth.width + place
            slot = bandwidth.slots[at]
            slot.next = bandwidth.resources[resource].first
            slot.prev = -1
            if slot.next >= 0:
                bandwidth.slots[slot.next].prev = at
            bandwidth.resources[resource].first = at
    share_bandwidth(bandwidth, path, now)


def remove_flow(bandwidth: Bandwidth, message: int, now: float) -> None:
    """Remove a finished flow and redistribute its bandwidth."""
    flow = bandwidth.flows[message]
    flow.due = -1.0
    for place in range(bandwidth.width):
        resource = bandwidth.paths[flow.path * bandwidth.width + place]
        if resource >= 0:
            slot = bandwidth.slots[message * bandwidth.width + place]
            if slot.prev >= 0:
                bandwidth.slots[slot.prev].next = slot.next
            else:
                bandwidth.resources[resource].first = slot.next
            if slot.next >= 0:
                bandwidth.slots[slot.next].prev = slot.prev
    share_bandwidth(bandwidth, flow.path, now)


def share_bandwidth(bandwidth: Bandwidth, path: int, now: float) -> None:
    """Compute new rates for all flows that share a resource with ``path``, also through others.

    By progressive filling, the resource with the least bandwidth per flow fixes the rate of its
    flows, then the next one does. ``changed`` receives the flows whose rate changes.
    """
    found = collect_resources(bandwidth, path)
    bandwidth.changes[0] = 0
    while True:
        tight = -1
        share = 0.0
        for at in range(found):
            resource = bandwidth.resources[bandwidth.reached[at]]
            if resource.users > 0:
                each = resource.room / resource.users
                if tight < 0 or each < share:
                    tight = bandwidth.reached[at]
                    share = each
        if tight < 0:
            break
        slot = bandwidth.resources[tight].first
        while slot >= 0:
            if bandwidth.flows[slot // bandwidth.width].share < 0.0:
                fix_rate(bandwidth, slot // bandwidth.width, share, now)
            slot = bandwidth.slots[slot].next
    for at in range(found):
        bandwidth.resources[bandwidth.reached[at]].users = -1


def collect_resources(bandwidth: Bandwidth, path: int) -> int:
    """Write the resources of a path, and of all flows that share one with it, into ``reached``.

    Return their number.
    """
    found = append_resources(bandwidth, path, 0)
    at = 0
    while at < found:
        resource = bandwidth.resources[bandwidth.reached[at]]
        slot = resource.first
        while slot >= 0:
            flow = bandwidth.flows[slot // bandwidth.width]
            flow.share = -1.0
            resource.users += 1
            found = append_resources(bandwidth, flow.path, found)
            slot = bandwidth.slots[slot].next
        at += 1
    return found


def append_resources(bandwidth: Bandwidth, path: int, found: int) -> int:
    """Append the resources of a path to ``reached``, each once; return their new number."""
    for place in range(bandwidth.width):
        at = bandwidth.paths[path * bandwidth.width + place]
        if at >= 0 and bandwidth.resources[at].users < 0:
            bandwidth.resources[at].users = 0
            bandwidth.resources[at].room = bandwidth.resources[at].capacity
            bandwidth.reached[found] = at
            found += 1
    return found


def fix_rate(bandwidth: Bandwidth, message: int, share: float, now: float) -> None:
    """Fix a flow's rate and subtract it from the resources of its path."""
    flow = bandwidth.flows[message]
    flow.share = share
    for place in range(bandwidth.width):
        resource = bandwidth.paths[flow.path * bandwidth.width + place]
        if resource >= 0:
            bandwidth.resources[resource].room -= share
            bandwidth.resources[resource].users -= 1
    if flow.rate != share:
        flow.left = max(flow.left - flow.rate * (now - flow.since), 0.0)
        flow.since = now
        flow.rate = share
        bandwidth.changed[bandwidth.changes[0]] = message
        bandwidth.changes[0] += 1


# The functions that a kernel calls; numba inlines them.
PARTS = (add_flow, remove_flow, share_bandwidth, collect_resources, append_resources, fix_rate)
