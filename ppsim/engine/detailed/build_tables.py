"""Build the event kernel's tables from lowered queues, costs and a network."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ppsim.core.columns import Floats, Ints, Rows
from ppsim.core.costs import Costs
from ppsim.core.lowered import Lowered
from ppsim.core.ops import RECEIVES, SENDS, Kind, mask
from ppsim.core.schedule import NONE, Schedule
from ppsim.engine.detailed.event_kernel import COMPUTE, DEPARTED, NOTHING, POST, READY, STREAM
from ppsim.engine.detailed.spec import Network, links
from ppsim.engine.detailed.tables import (
    FLOW,
    RESOURCE,
    SLOT,
    Bandwidth,
    ChannelTable,
    DeviceTable,
    MessageTable,
    OpTable,
    RouteTable,
    Tables,
    WorkLists,
)
from ppsim.engine.lowering.matching import find_routes
from ppsim.engine.lowering.matching_kernel import Matching, Routes


class Paths(NamedTuple):
    """The paths of bytes if bandwidth is shared; a path is the resources of one link."""

    # shape (paths, width), the resources of each path, -1 for none; no paths if nothing is shared
    resources: Ints
    capacity: Floats  # shape (resources,), bytes per unit of time
    of_route: Ints  # shape (routes,), the path of each route, -1 for none


def build_tables(
    lowered: Lowered, matching: Matching, costs: Costs, network: Network
) -> tuple[Tables, Bandwidth]:
    """Return the kernel's tables at the start of a run."""
    schedule, mode, host = lowered.schedule, network.mode, network.host
    n, messages = len(schedule), len(matching.send)
    routes = find_routes(schedule.placement)
    of_boundary = np.broadcast_to(
        np.asarray(network.message, np.float64), max(routes.boundaries, 0)
    )
    size = np.resize(of_boundary, len(routes.source))  # bytes of a message on each route
    paths = _find_paths(lowered, network, routes, size)
    *channels, number = _find_channels(network, routes, schedule.n_devices)
    tables = Tables(
        ops=OpTable(
            kind=schedule.kind,
            pair=schedule.pair,
            batch=lowered.batch,
            message=matching.message,
            gathered=matching.gathered[:0] if network.collectives.blocking else matching.gathered,
            start=_find_durations(lowered, matching, costs, network, size),
            end=_make_unknown(n),
            bound=np.empty(n, np.int32),
        ),
        messages=MessageTable(
            route=matching.route,
            send=matching.send,
            receive=matching.receive,
            producer=matching.producer,
            send_ready=_make_unknown(messages),
            receive_ready=_make_unknown(messages),
            leave=_make_unknown(messages),
            send_end=_make_unknown(messages),
            arrive=_make_unknown(messages),
        ),
        routes=_build_routes(network, routes, size, paths.of_route, *channels),
        devices=_build_devices(schedule, float(host.preamble)),
        channels=_build_channels(number, n),
        work=_build_work(schedule.n_devices, 2 * messages),
        actions=_find_actions(network),
        is_receive=mask(RECEIVES),
        latency=mode == "latency",
        grouped=mode in ("overlap", "batched"),
        waits=mode in ("blocking", "batched"),
        gap=np.ascontiguousarray(np.broadcast_to(np.asarray(host.gap, np.float64), n)),
        late=float(network.late),
    )
    return tables, _build_bandwidth(messages, paths)


def _make_unknown(n: int) -> Floats:
    """Return ``n`` unknown times."""
    return np.full(n, -1.0)


def _build_routes(
    network: Network, routes: Routes, size: Floats, path: Ints, send: Ints, receive: Ints
) -> RouteTable:
    beta = links(network.beta, routes.source, routes.target)
    return RouteTable(
        delay=links(network.alpha, routes.source, routes.target)
        + np.where(path < 0, size / beta, 0.0),
        size=size,
        eager=size <= links(network.eager_bytes, routes.source, routes.target),
        source=routes.source,
        target=routes.target,
        path=path,
        send_channel=send,
        receive_channel=receive,
    )


def _find_actions(network: Network) -> Ints:
    """Return the action of a device for each kind of op."""
    action = np.full(len(Kind), COMPUTE)
    action[mask(SENDS + RECEIVES)] = NOTHING if network.mode == "latency" else POST
    if not network.collectives.blocking:
        action[[Kind.UNSHARD, Kind.REDUCE_GRAD]] = STREAM
    return action


def _find_durations(
    lowered: Lowered, matching: Matching, costs: Costs, network: Network, size: Floats
) -> Floats:
    """Return the time for which each op occupies its device or stream; a pair's total on both."""
    schedule, host, collectives = lowered.schedule, network.host, network.collectives
    duration = np.zeros(len(schedule))
    duration[lowered.compute_ops] = costs.durations(lowered.compute)
    if network.mode != "latency":
        for ops, once, per_byte in (
            (matching.send, host.send, host.send_per_byte),
            (matching.receive, host.receive, host.receive_per_byte),
        ):
            if per_byte or np.any(once):
                duration[ops] = once + per_byte * size[matching.route]
    for kind in (Kind.UNSHARD, Kind.RESHARD, Kind.REDUCE_GRAD):
        ops = np.flatnonzero(schedule.kind == kind)
        of_stage = np.broadcast_to(getattr(collectives, kind.name.lower()), schedule.n_stages)
        duration[ops] = of_stage[schedule.stage[ops]]
    return duration


def _find_channels(network: Network, routes: Routes, devices: int) -> tuple[Ints, Ints, int]:
    """Return the channels of each route's sends and receives, and the number of channels.

    Channels are -1 if messages do not queue.
    """
    none = np.full(len(routes.source), NONE, np.int64)
    if network.mode != "overlap" or network.channel == "message":
        return none, none, 0
    send, receive = routes.source.astype(np.int64), routes.target.astype(np.int64)
    if network.channel != "group":
        send, receive = send * devices + receive, receive * devices + send
    if network.channel == "direction":
        send, receive = 2 * send, 2 * receive + 1
    named, number = np.unique(np.concatenate([send, receive]), return_inverse=True)
    return number[: len(send)], number[len(send) :], len(named)


def _find_paths(lowered: Lowered, network: Network, routes: Routes, size: Floats) -> Paths:
    """Return the paths of routes.

    A link that shares nothing with others has no path if its messages travel one by one.
    """
    one_by_one = network.mode == "blocking" or (
        network.channel != "message" and (lowered.batch == NONE).all()
    )
    unshared = Paths(
        np.empty((0, 0), np.int64), np.empty(0), np.full(len(routes.source), NONE, np.int64)
    )
    if network.mode == "latency" or (one_by_one and not network.shared):
        return unshared
    _, first = np.unique(routes.link, return_index=True)
    source, target = routes.source[first], routes.target[first]
    capacity = [links(network.beta, source, target)]
    columns = [np.arange(len(first))]
    for shared in network.shared:
        apart = (
            np.ones(len(first), np.bool_)
            if shared.node is None
            else shared.node[source] != shared.node[target]
        )
        groups, group = np.unique(shared.group, return_inverse=True)
        for end in (source, target):
            columns.append(np.where(apart, sum(map(len, capacity)) + group[end], NONE))
            capacity.append(np.full(len(groups), shared.capacity))
    resources, limits = np.stack(columns, axis=1), np.concatenate(capacity)
    resources[np.isinf(limits)[resources] & (resources != NONE)] = NONE
    free = (resources == NONE).all(axis=1)[routes.link] | (size == 0)
    return unshared if free.all() else Paths(resources, limits, np.where(free, NONE, routes.link))


def _build_devices(schedule: Schedule, preamble: float) -> DeviceTable:
    devices = schedule.n_devices
    return DeviceTable(
        offsets=schedule.offsets,
        head=schedule.offsets[:-1].copy(),
        pending=np.full(devices, NONE),
        free=np.full(devices, preamble),
        stream=_make_unknown(devices),
    )


def _build_channels(channels: int, ops: int) -> ChannelTable:
    """Return channels that have carried no message, with empty queues."""
    previous_end, last_end = np.zeros((2, channels))
    batch, first, last = np.full((3, channels), NONE)
    return ChannelTable(
        previous_end=previous_end,
        last_end=last_end,
        batch=batch,
        unfinished=np.zeros(channels, np.int64),
        first=first,
        last=last,
        next=np.empty(ops if channels else 0, np.int32),
    )


def _build_work(devices: int, sides: int) -> WorkLists:
    """Return work lists with all devices ready."""
    posted, opened, ended, departed = np.empty((4, sides), np.int64)
    depth = np.zeros(DEPARTED + 1, np.int64)
    depth[READY] = devices
    return WorkLists(np.arange(devices)[::-1].copy(), posted, opened, ended, departed, depth)


def _build_bandwidth(messages: int, paths: Paths) -> Bandwidth:
    flows, width = messages if len(paths.resources) else 0, paths.resources.shape[1]
    resources = build_rows(RESOURCE, len(paths.capacity))
    resources["capacity"] = paths.capacity
    return Bandwidth(
        flows=build_rows(FLOW, flows),
        resources=resources,
        slots=build_rows(SLOT, flows * width),
        paths=paths.resources.ravel(),
        reached=np.empty(len(paths.capacity), np.int64),
        changed=np.empty(flows, np.int64),
        changes=np.zeros(1, np.int64),
        width=width,
    )


def build_rows(fields: list[tuple[str, str]], n: int) -> Rows:
    """Return a table of ``n`` rows with these fields, -1 everywhere."""
    layout = np.dtype(fields, align=True)
    return np.full(n, np.array((NONE,) * len(fields), layout), layout)
