"""Times of collectives and messages on a machine, from the ranks of a group and the bytes."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

from ppsim.workload.hardware.efficiency import Efficiency
from ppsim.workload.hardware.hardware import Machine
from ppsim.workload.model.parallel import Parallel

# Doublings of nodes, from one on, at which an all-to-all reaches the share of links that was
# fitted: between two nodes its messages are larger, and fewer of them meet.
MANY = 2.0
# Ranks in a node, up to which a group whose ranks alternate with others' reaches the root of their
# links: as replicas of 2 and of 4 tensor ranks do in vTrain's runs.
MEET = 4
# seconds from GPU to GPU inside a node, on a ring of several: NCCL's tuning table has 0.6 to 3.4 us
HOP = 1.5e-6


@dataclass(frozen=True)
class Group:
    """Ranks that communicate: ``size`` of them, each ``stride`` after the one before.

    With ``run``, only that number of ranks follow each other in this way. The next ``run`` ranks
    begin ``jump`` after them, as where the ranks of a pipeline lie between those of two replicas.
    """

    size: int
    stride: int
    run: int = 0
    jump: int = 0

    @property
    def ranks(self) -> tuple[int, ...]:
        """Those of the first group of the kind."""
        run = self.run or self.size
        return tuple(n // run * self.jump + n % run * self.stride for n in range(self.size))

    def per_node(self, machine: Machine) -> int:
        """Return how many ranks of the group one node holds."""
        inside = max(1, min(self.run or self.size, machine.per_node // self.stride))
        return (
            inside * max(1, min(self.size // self.run, machine.per_node // self.jump))
            if self.run
            else inside
        )

    def step(self, machine: Machine) -> int:
        """Return how many nodes lie from one node of the group to the next, or from one run to the
        next.
        """
        apart = (
            self.jump * max(1, machine.per_node // self.jump)
            if self.run
            else self.stride * self.per_node(machine)
        )
        return max(1, apart // machine.per_node)

    def saved(self, machine: Machine, summed: bool) -> float:
        """Return the ratio of the bytes between nodes of a ring's gather and scatter to the bytes
        of a sum.

        NCCL adds up along trees: of two nodes each sends every byte to the other once. With more
        nodes, each in the middle of one of two trees, it is as much as a ring sends (Sanders, Speck
        and Traeff, 2009; NCCL 2.4).
        """
        return (
            2 * (self.size - 1) / self.size
            if summed and self.size == 2 * self.per_node(machine)
            else 1.0
        )


def group_of(parallel: Parallel, kind: str) -> Group:
    """Return the group of a kind: tp, cp, dp (of gradients, context parallelism included), ep,
    expert-dp or pp.

    Ranks are numbered with tensor parallelism first, then context parallelism, as Megatron does;
    then replicas and pipeline devices in the order of ``rank_order``.
    """
    p = parallel
    each = p.tp * p.cp
    apart = p.pipeline_first and p.pp > 1  # replicas
    match kind:
        case "tp":
            return Group(p.tp, 1)
        case "cp":
            return Group(p.cp, p.tp)
        case "dp":
            return (
                Group(p.dp * p.cp, p.tp, p.cp, each * p.pp) if apart else Group(p.dp * p.cp, p.tp)
            )
        case "ep":
            return Group(p.ep, 1)
        case "expert-dp":
            size = each * p.dp // p.ep
            return Group(size, p.ep, each // p.ep, each * p.pp) if apart else Group(size, p.ep)
    return Group(p.pp, each if apart else each * p.dp)


def gather_seconds(
    machine: Machine,
    found: Efficiency,
    group: Group,
    bytes_: float,
    calls: float = 1.0,
    summed: bool = False,
) -> float:
    """Compute the time of an all-gather, or a reduce-scatter, that makes, or starts from, that many
    bytes a rank.

    Bytes pass a ring of all ranks, and messages, each of which waits for the one before: NCCL's
    tree for gathers, PAT, is for one GPU a node. ``calls``: in how many gathers the bytes come.
    ``summed``: they are half of a sum. NCCL finds the rings of each group alone, so those of
    groups whose ranks alternate in a node meet at its links.
    """
    n = group.size
    if n == 1:
        return 0.0
    inside = group.per_node(machine)
    rate, crosses = machine.intra_bytes_per_s * found.curve.within, inside < n
    steps = found.software.collective_us * 1e-6 * (inside - 1)
    if crosses:
        nodes, step = n / inside, group.step(machine)
        links = inside if group.stride == 1 else inside / min(inside, MEET) ** 0.5
        far = group.saved(machine, summed) * machine.inter_bytes_per_s * found.curve.between * links
        rate = min(rate, far / machine.crowding(nodes, step))
        steps += (nodes - 1) * (machine.latency(True) + (inside - 1) * HOP)
    return bytes_ * (n - 1) / n / rate + calls * steps


def exchange_seconds(
    machine: Machine,
    found: Efficiency,
    group: Group,
    bytes_: float,
    visits: int = 0,
    most_nodes: int = 0,
) -> float:
    """Compute the time of an all-to-all in which each rank sends that many bytes in all, its own
    share included.

    With ``visits``, the number of experts of a token, the token is sent once to each node that has
    some of these experts, and from there once to each rank that has one, as DeepEP and HybridEP do.
    Without it, a token is sent once for each of its experts. ``most_nodes`` is the largest number
    of nodes that a token's experts lie on, as DeepSeek-V3's router limits it.
    """
    if group.size == 1:
        return 0.0
    near, far = exchange_bytes(machine, group, bytes_, visits, most_nodes)
    inside = group.per_node(machine)
    curve, power = found.curve, found.software.exchange
    spread = min(log2(max(group.size / inside, 1.0)) / MANY, 1.0)
    rates = (
        machine.intra_bytes_per_s * curve.within**power,
        machine.inter_bytes_per_s * curve.between ** (power * spread),
    )
    far *= machine.crowding(group.size / inside, group.step(machine), leaving=1.0)
    return max(near / rates[0], far / rates[1]) + machine.latency(inside < group.size)


def exchange_bytes(
    machine: Machine, group: Group, bytes_: float, visits: int = 0, most_nodes: int = 0
) -> tuple[float, float]:
    """Return the bytes that each rank sends within its node and to others in an all-to-all, as
    :func:`exchange_seconds` says.
    """
    n, inside = group.size, group.per_node(machine)
    if not visits or n == 1:
        return bytes_ * (inside - 1) / n, bytes_ * (n - inside) / n
    copy, nodes = bytes_ / visits, n / inside
    others = (nodes - 1) * (1 - (1 - 1 / nodes) ** visits)
    far = min(others, most_nodes * (1 - 1 / nodes)) if most_nodes else others
    return copy * n * (1 - (1 - 1 / n) ** visits) * (inside - 1) / inside, copy * far


def message_seconds(
    machine: Machine, found: Efficiency, parallel: Parallel, bytes_: float, source: int
) -> float:
    """Compute the time of a message from one pipeline device to the next: within a node where both
    are in one.

    All ranks of a device send at once, to another switch where the next device lies below one. Of
    replicas that begin in the middle of a node the slowest counts.
    """
    stride, nodes = group_of(parallel, "pp").stride, machine.per_node
    whole = parallel.pp * stride
    starts = (
        {n * whole % nodes for n in range(min(parallel.dp, nodes))}
        if parallel.pipeline_first
        else {0}
    )
    ends = [
        [(start + d % parallel.pp * stride) // nodes for d in (source, source + 1)]
        for start in starts
    ]
    here, there = max(ends, key=lambda pair: abs(pair[1] - pair[0]))
    rate = (
        machine.inter_bytes_per_s * found.curve.between
        if here != there
        else machine.intra_bytes_per_s * found.curve.within
    )
    shared = machine.cluster.shared
    if (
        shared.nodes_per_switch
        and here // shared.nodes_per_switch != there // shared.nodes_per_switch
    ):
        rate /= shared.oversubscription
    return bytes_ / rate + machine.latency(here != there)
