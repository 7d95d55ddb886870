"""What the detailed model's kernel runs: lowered queues, costs and network as flat columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ppsim.core.costs import Costs
from ppsim.core.lowered import Lowered
from ppsim.core.ops import Kind
from ppsim.core.schedule import NONE
from ppsim.lowering.matching import Legs, Wiring, legs_of
from ppsim.network.event_kernel import COMPUTE, NOTHING, POST, STREAM
from ppsim.network.spec import Network, links
from ppsim.network.tables import FLOW, RESOURCE, SLOT, Devices, Flows, Lanes, Ops, Sides, Stacks, Tables, Ways

Ints = NDArray[np.int64]
Times = NDArray[np.float64]


def tables_of(lowered: Lowered, wiring: Wiring, costs: Costs, network: Network) -> tuple[Tables, Flows]:
    """The kernel's tables before anything has run."""
    schedule, mode, host = lowered.schedule, network.mode, network.host
    n, devices = len(schedule), schedule.n_devices
    legs = legs_of(schedule.placement)
    size = _sizes(network, legs)
    routes, capacity, route = _routes(lowered, network, legs, size)
    out, into, channels = _channels(network, legs, devices)
    gathered = wiring.gathered[:0] if network.collectives.blocking else wiring.gathered
    tables = Tables(
        Ops(
            schedule.kind,
            schedule.pair,
            lowered.batch,
            wiring.message,
            gathered,
            _durations(lowered, wiring, costs, network, size),
            _unknown(n),
            np.empty(n, np.int32),
        ),
        Sides(wiring.leg, wiring.send, wiring.receive, wiring.producer, *(_unknown(len(wiring.leg)) for _ in range(5))),
        Ways(
            _delays(network, legs, size, route),
            size,
            size <= links(network.eager_bytes, legs.source, legs.target),
            legs.source,
            legs.target,
            route,
            out,
            into,
        ),
        Devices(
            schedule.offsets,
            schedule.offsets[:-1].copy(),
            np.full(devices, NONE),
            np.full(devices, float(host.preamble)),
            np.full(devices, -1.0),
        ),
        _lanes(channels, n),
        _actions(network),
        mode == "latency",
        mode in ("overlap", "batched"),
        mode in ("blocking", "batched"),
        _stacks(devices, 2 * len(wiring.leg)),
        float(host.gap),
        float(network.late),
    )
    return tables, _flows(len(wiring.leg), routes, capacity)


def _unknown(n: int) -> Times:
    """Times that are not known yet."""
    return np.full(n, -1.0)


def _sizes(network: Network, legs: Legs) -> Times:
    """Bytes of a message on each leg."""
    of_boundary = np.broadcast_to(np.asarray(network.message, np.float64), max(legs.boundaries, 0))
    return np.resize(of_boundary, len(legs.source))


def _delays(network: Network, legs: Legs, size: Times, route: Ints) -> Times:
    """How long a message travels; to its first byte, where bandwidth is divided."""
    beta = links(network.beta, legs.source, legs.target)
    return links(network.alpha, legs.source, legs.target) + np.where(route < 0, size / beta, 0.0)


def _actions(network: Network) -> Ints:
    action = np.full(len(Kind), COMPUTE)
    action[Kind.SEND_F : Kind.RECV_B + 1] = NOTHING if network.mode == "latency" else POST
    if not network.collectives.blocking:
        action[[Kind.UNSHARD, Kind.REDUCE_GRAD]] = STREAM
    return action


def _durations(lowered: Lowered, wiring: Wiring, costs: Costs, network: Network, size: Times) -> Times:
    schedule, host, collectives = lowered.schedule, network.host, network.collectives
    duration = np.zeros(len(schedule))
    duration[lowered.compute_ops] = costs.durations(lowered.compute)
    if network.mode != "latency":
        for ops, once, per_byte in (
            (wiring.send, host.send, host.send_per_byte),
            (wiring.receive, host.receive, host.receive_per_byte),
        ):
            if per_byte or np.any(once):
                duration[ops] = once + per_byte * size[wiring.leg]
    for kind in (Kind.UNSHARD, Kind.RESHARD, Kind.REDUCE_GRAD):
        ops = np.flatnonzero(schedule.kind == kind)
        of_stage = np.broadcast_to(getattr(collectives, kind.name.lower()), schedule.n_stages)
        duration[ops] = of_stage[schedule.stage[ops]]
    return duration


def _channels(network: Network, legs: Legs, devices: int) -> tuple[Ints, Ints, int]:
    """The channel of each leg's sends, of its receives, and how many there are; 0 where messages do not queue."""
    none = np.full(len(legs.source), NONE, np.int64)
    if network.mode != "overlap" or network.channel == "message":
        return none, none, 0
    out, into = legs.source.astype(np.int64), legs.target.astype(np.int64)
    if network.channel != "group":
        out, into = out * devices + into, into * devices + out
    if network.channel == "direction":
        out, into = 2 * out, 2 * into + 1
    named, number = np.unique(np.concatenate([out, into]), return_inverse=True)
    return number[: len(out)], number[len(out) :], len(named)


def _routes(lowered: Lowered, network: Network, legs: Legs, size: Times) -> tuple[Ints, Times, Ints]:
    """What each route flows through (routes, width), the capacity of each resource, and the route of each leg.

    A link on its own divides nothing where its messages go one by one.
    """
    one_by_one = network.mode == "blocking" or (network.channel != "message" and (lowered.batch == NONE).all())
    if network.mode == "latency" or (one_by_one and not network.shared):
        return _undivided(legs)
    _, first = np.unique(legs.link, return_index=True)
    out, into = legs.source[first], legs.target[first]
    capacity = [links(network.beta, out, into)]
    columns = [np.arange(len(first))]
    for shared in network.shared:
        apart = np.ones(len(first), np.bool_) if shared.node is None else shared.node[out] != shared.node[into]
        for side in (out, into):
            columns.append(np.where(apart, sum(map(len, capacity)) + shared.group[side], NONE))
            capacity.append(np.full(int(shared.group.max()) + 1, shared.capacity))
    resources, limits = np.stack(columns, axis=1), np.concatenate(capacity)
    resources[np.isinf(limits)[resources] & (resources != NONE)] = NONE
    free = (resources == NONE).all(axis=1)[legs.link] | (size == 0)
    return _undivided(legs) if free.all() else (resources, limits, np.where(free, NONE, legs.link))


def _undivided(legs: Legs) -> tuple[Ints, Times, Ints]:
    return np.empty((0, 0), np.int64), np.empty(0), np.full(len(legs.source), NONE, np.int64)


def _lanes(channels: int, ops: int) -> Lanes:
    """Nothing has run, and nothing waits."""
    before, free = np.zeros((2, channels))
    batch, first, last = np.full((3, channels), NONE)
    return Lanes(
        before, free, batch, np.zeros(channels, np.int64), first, last, np.empty(ops if channels else 0, np.int32)
    )


def _stacks(devices: int, sides: int) -> Stacks:
    """All devices are ready."""
    posted, opened, over, set_out = np.empty((4, sides), np.int64)
    return Stacks(np.arange(devices)[::-1].copy(), posted, opened, over, set_out, np.array([devices, 0, 0, 0, 0]))


def _flows(messages: int, routes: Ints, capacity: Times) -> Flows:
    n, width = messages if len(routes) else 0, routes.shape[1]
    resources = _rows(RESOURCE, len(capacity))
    resources["capacity"] = capacity
    reached, changed, count = np.empty(len(capacity), np.int64), np.empty(n, np.int64), np.zeros(1, np.int64)
    return Flows(_rows(FLOW, n), resources, _rows(SLOT, n * width), routes.ravel(), reached, changed, count, width)


def _rows(fields: list[tuple[str, str]], n: int) -> NDArray[np.void]:
    """A table of ``n`` rows, -1 everywhere."""
    layout = np.dtype(fields, align=True)
    return np.full(n, np.array((NONE,) * len(fields), layout), layout)
