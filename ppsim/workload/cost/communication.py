"""How long collectives and messages take on a machine, from the ranks of a group and the bytes."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from ppsim.workload.hardware.efficiency import Efficiency
from ppsim.workload.hardware.hardware import Machine
from ppsim.workload.model.parallel import Parallel


@dataclass(frozen=True)
class Group:
    """Ranks that communicate: ``size`` of them, each ``stride`` after the one before.

    Ranks are numbered with tensor parallelism first, then context, data and pipeline parallelism, as Megatron does.
    """

    size: int
    stride: int

    def per_node(self, machine: Machine) -> int:
        """Return how many ranks of the group one node holds."""
        return max(1, min(self.size, machine.per_node // self.stride))

    def step(self, machine: Machine) -> int:
        """Return how many nodes lie from one node of the group to the next."""
        return max(1, self.stride * self.per_node(machine) // machine.per_node)


def group_of(parallel: Parallel, kind: str) -> Group:
    """Return the group of a kind: tp, cp, dp (of gradients, context parallelism included), ep, expert-dp or pp."""
    p = parallel
    match kind:
        case "tp":
            return Group(p.tp, 1)
        case "cp":
            return Group(p.cp, p.tp)
        case "dp":
            return Group(p.dp * p.cp, p.tp)
        case "ep":
            return Group(p.ep, 1)
        case "expert-dp":
            return Group(p.tp * p.cp * p.dp // p.ep, p.ep)
    return Group(p.pp, p.tp * p.cp * p.dp)


def gather_seconds(machine: Machine, found: Efficiency, group: Group, bytes_: float) -> float:
    """Compute the time of an all-gather, or a reduce-scatter, that makes, or starts from, that many bytes a rank.

    Bytes pass a ring; messages, each of which waits for the one before, a ring inside a node and a tree of nodes, as
    NCCL's PAT does from 2.23 on.
    """
    n = group.size
    if n == 1:
        return 0.0
    inside = group.per_node(machine)
    rate, crosses = machine.within * found.curve.within, inside < n
    steps = found.software.collective_us * 1e-6 * (inside - 1)
    if crosses:
        nodes, step = n / inside, group.step(machine)
        rate = min(rate, machine.between * found.curve.between * inside / machine.crowding(nodes, step))
        steps += machine.latency(True) * ceil(log2(nodes))
    return bytes_ * (n - 1) / n / rate + steps


def exchange_seconds(
    machine: Machine, found: Efficiency, group: Group, bytes_: float, visits: int = 0, most_nodes: int = 0
) -> float:
    """Compute the time of an all-to-all in which each rank sends that many bytes in all, its own share included.

    With ``visits`` a token goes to so many experts, evenly spread, and is sent once to each node that has some of them
    and from there once to each rank that has, as DeepEP and HybridEP do; without, once for each of its experts. With
    ``most_nodes`` its experts lie on so many nodes at most, as DeepSeek-V3's router limits them.
    """
    n = group.size
    if n == 1:
        return 0.0
    inside = group.per_node(machine)
    near, far = bytes_ * (inside - 1) / n, bytes_ * (n - inside) / n
    nodes = n / inside
    if visits:
        copy = bytes_ / visits
        near = copy * n * (1 - (1 - 1 / n) ** visits) * (inside - 1) / inside
        others = (nodes - 1) * (1 - (1 - 1 / nodes) ** visits)
        far = copy * (min(others, most_nodes * (1 - 1 / nodes)) if most_nodes else others)
    rates = machine.within * found.curve.within, machine.between * found.curve.between
    far *= machine.crowding(nodes, group.step(machine), leaving=1.0)
    return max(near / rates[0], far / rates[1]) + machine.latency(inside < n)


def message_seconds(machine: Machine, found: Efficiency, parallel: Parallel, bytes_: float, source: int) -> float:
    """Compute the time of a message from one pipeline device to the next: within a node where both are in one.

    All ranks of a device send at once, to another switch where the next device lies below one.
    """
    stride = parallel.tp * parallel.cp * parallel.dp
    here, there = (device * stride // machine.per_node for device in (source, (source + 1) % parallel.pp))
    rate = machine.between * found.curve.between if here != there else machine.within * found.curve.within
    shared = machine.cluster.shared
    if shared.nodes_per_switch and here // shared.nodes_per_switch != there // shared.nodes_per_switch:
        rate /= shared.oversubscription
    return bytes_ / rate + machine.latency(here != there)
