"""What the detailed model's kernel runs: lowered queues, costs and network as flat columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ppsim.costs import Costs
from ppsim.lowered import Lowered
from ppsim.network import Network, links
from ppsim.network_kernel import COMPUTE, EAGER, NOTHING, POST, RECEIVE, SEND, STREAM
from ppsim.network_tables import DEVICE, FLOW, LANE, OP, RESOURCE, SLOT, Flows, Tables
from ppsim.ops import Kind
from ppsim.schedule import NONE, Schedule
from ppsim.wiring import Wiring

Rows = NDArray[np.void]


def tables_of(lowered: Lowered, wiring: Wiring, costs: Costs, network: Network) -> tuple[Tables, Flows]:
    """The kernel's tables before anything has run."""
    schedule, mode = lowered.schedule, network.mode
    send = np.flatnonzero((schedule.kind == Kind.SEND_F) | (schedule.kind == Kind.SEND_B))
    source, target = schedule.device[send], wiring.peer[send]
    size = _sizes(schedule, send, network)
    beta = links(network.beta, source, target)
    route, routes, capacity = _routes(lowered, network, source, target, beta)
    route[size == 0] = NONE
    ops = _rows(OP, len(schedule))
    ops["device"] = schedule.device
    ops["last"] = _last(lowered, network)
    ops["action"] = _actions(schedule, network)
    ops["duration"] = _durations(lowered, wiring, costs, network, send, size)
    ops["needs"], ops["match"] = wiring.needs, wiring.match
    if not network.collectives.blocking:
        ops["gathered"] = wiring.gathered
    if mode == "latency":
        ops["feeds"][wiring.producer[send]] = send
    ops["side"][wiring.match[send]] = RECEIVE
    ops["side"][send] = np.where(size <= links(network.eager_bytes, source, target), EAGER, SEND)
    ops["delay"][send] = links(network.alpha, source, target) + np.where(route < 0, size / beta, 0.0)
    ops["route"][send] = route
    lanes = _lanes(lowered, wiring, network, ops)
    flows = _flows(ops, send, size, routes, capacity)
    devices = _rows(DEVICE, schedule.n_devices)
    devices["begin"], devices["stop"] = schedule.offsets[:-1], schedule.offsets[1:]
    devices["head"], devices["free"] = devices["begin"], network.host.preamble
    host, waits = network.host, mode in ("blocking", "batched")
    tables = Tables(
        ops, devices, lanes, float(network.late), float(host.gap), float(host.preamble), routes.size > 0, waits
    )
    return tables, flows


def _rows(fields: list[tuple[str, str]], n: int) -> Rows:
    """A table of ``n`` rows, -1 everywhere."""
    layout = np.dtype(fields, align=True)
    return np.full(n, np.array((NONE,) * len(fields), layout), layout)


def _flows(
    ops: Rows,
    send: NDArray[np.int64],
    size: NDArray[np.float64],
    routes: NDArray[np.int64],
    capacity: NDArray[np.float64],
) -> Flows:
    n = len(ops) if routes.size else 0
    width = routes.shape[1]
    flows, resources = _rows(FLOW, n), _rows(RESOURCE, len(capacity))
    resources["capacity"] = capacity
    if n:
        flows["size"][send] = size
        flows["route"] = ops["route"]
    changed = np.zeros(n, np.int64)
    reached, count = np.zeros(len(capacity), np.int64), np.zeros(1, np.int64)
    return Flows(flows, resources, _rows(SLOT, n * width), routes.ravel(), reached, changed, count, width)


def _sizes(schedule: Schedule, comm: NDArray[np.int64], network: Network) -> NDArray[np.float64]:
    """Bytes of the message of each send or receive."""
    size = np.asarray(network.message, np.float64)
    if size.ndim == 0:
        return np.full(len(comm), float(size))
    kind = schedule.kind[comm]
    below = (kind == Kind.RECV_F) | (kind == Kind.SEND_B)  # the boundary under the stage the op names
    return size[schedule.stage[comm] - below]


def _last(lowered: Lowered, network: Network) -> NDArray[np.int64]:
    """The last op issued together with each."""
    n = len(lowered.schedule)
    last = np.arange(n)
    pair = lowered.schedule.pair
    first = np.flatnonzero(pair > last)
    last[first] = pair[first]
    if network.mode in ("overlap", "batched"):
        batch = lowered.batch
        ends = np.flatnonzero((batch != NONE) & (np.append(batch[1:], NONE) != batch))
        members = np.flatnonzero(batch != NONE)
        last[members] = ends[np.searchsorted(ends, members)]
    return last


def _actions(schedule: Schedule, network: Network) -> NDArray[np.int64]:
    action = np.full(len(Kind), COMPUTE)
    action[Kind.SEND_F : Kind.RECV_B + 1] = NOTHING if network.mode == "latency" else POST
    if not network.collectives.blocking:
        action[[Kind.UNSHARD, Kind.REDUCE_GRAD]] = STREAM
    return action[schedule.kind]


def _durations(
    lowered: Lowered,
    wiring: Wiring,
    costs: Costs,
    network: Network,
    send: NDArray[np.int64],
    size: NDArray[np.float64],
) -> NDArray[np.float64]:
    schedule, host, collectives = lowered.schedule, network.host, network.collectives
    duration = np.zeros(len(schedule))
    duration[wiring.compute] = costs.durations(lowered.compute)
    if network.mode != "latency":
        duration[send] = host.send + host.send_per_byte * size
        duration[wiring.match[send]] = host.receive + host.receive_per_byte * size
    for kind in (Kind.UNSHARD, Kind.RESHARD, Kind.REDUCE_GRAD):
        ops = np.flatnonzero(schedule.kind == kind)
        of_stage = np.broadcast_to(getattr(collectives, kind.name.lower()), schedule.n_stages)
        duration[ops] = of_stage[schedule.stage[ops]]
    return duration


def _lanes(lowered: Lowered, wiring: Wiring, network: Network, ops: Rows) -> Rows:
    """The channels of each device; sets each op's lane, turn and follower."""
    schedule = lowered.schedule
    if network.mode != "overlap" or network.channel == "message":
        return _rows(LANE, 0)
    comm = np.flatnonzero(wiring.match != NONE)
    channel = schedule.device[comm].astype(np.int64)
    if network.channel != "group":
        channel = channel * schedule.n_devices + wiring.peer[comm]
    if network.channel == "direction":
        channel = 2 * channel + (ops["side"][comm] == RECEIVE)
    sort = np.argsort(channel, kind="stable")
    order, channel, batch = comm[sort], channel[sort], lowered.batch[comm[sort]]
    opens = np.append(channel[:1] == channel[:1], np.diff(channel) != 0)
    alone = opens | np.append(channel[:1] == channel[:1], (np.diff(batch) != 0) | (batch[1:] == NONE))
    lane, turn = np.cumsum(opens) - 1, np.cumsum(alone) - 1
    ops["lane"][order], ops["turn"][order] = lane, turn
    ops["follower"][order[:-1]] = np.where(opens[1:], NONE, order[1:])
    lanes = _rows(LANE, int(opens.sum()))
    if len(order):
        first = np.flatnonzero(opens)
        lanes["turn"], lanes["open"] = turn[first], np.bincount(turn)[turn[first]]
        lanes["next"] = ops["follower"][order[first + lanes["open"] - 1]]
    return lanes


def _routes(
    lowered: Lowered,
    network: Network,
    source: NDArray[np.int32],
    target: NDArray[np.int32],
    beta: NDArray[np.float64],
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.float64]]:
    """Each message's route, what each route flows through (routes, width), and the capacity of each resource.

    A link on its own divides nothing where its messages go one by one.
    """
    one_by_one = network.mode == "blocking" or (network.channel != "message" and (lowered.batch == NONE).all())
    if network.mode == "latency" or (one_by_one and not network.shared):
        return np.full(len(source), NONE, np.int32), np.empty((0, 0), np.int64), np.empty(0)
    devices = lowered.schedule.n_devices
    pairs, first, route = np.unique(source.astype(np.int64) * devices + target, return_index=True, return_inverse=True)
    out, into = np.divmod(pairs, devices)
    capacity = [beta[first]]
    columns = [np.arange(len(pairs))]
    for shared in network.shared:
        apart = np.ones(len(pairs), np.bool_) if shared.node is None else shared.node[out] != shared.node[into]
        for side in (out, into):
            columns.append(np.where(apart, sum(map(len, capacity)) + shared.group[side], NONE))
            capacity.append(np.full(int(shared.group.max()) + 1, shared.capacity))
    resources, limits = np.stack(columns, axis=1), np.concatenate(capacity)
    resources[np.isinf(limits)[resources] & (resources != NONE)] = NONE
    free = (resources == NONE).all(axis=1)
    return np.where(free[route], NONE, route).astype(np.int32), resources, limits
