"""Seconds that collectives and messages take on a machine, by group of ranks and by bytes."""

from __future__ import annotations

from dataclasses import dataclass

from ppsim.workload.hardware.efficiency import Efficiency
from ppsim.workload.hardware.hardware import Machine
from ppsim.workload.model.parallel import Parallel

# Shares of links' bandwidth, within a node and between nodes, that all-to-all kernels made for
# experts reach: the means of what is published of DeepEP and HybridEP (README.md, docs/legacy.md
# and docs/README_Hybrid-EP.md of DeepEP), less what a rank sends to itself: 563 to 669 of 900 GB/s
# on B200 and GB200 and 134 to 138 of 200 on H800; 34 to 46 of 50 over two, four and eight nodes.
KERNELS = (0.69, 0.86)
# ranks per node up to which a group whose ranks alternate with another group's reaches only the
# square root of their links, as replicas of 2 and 4 tensor ranks do in vTrain's runs
MEET = 4


@dataclass(frozen=True)
class Group:
    """Ranks that communicate: ``size`` ranks, ``stride`` apart.

    With ``run``, only ``run`` ranks in a row are ``stride`` apart, and each next run begins
    ``jump`` ranks after the start of the one before. Replicas have such groups where the ranks of
    a whole pipeline lie between them.
    """

    size: int
    stride: int
    run: int = 0
    jump: int = 0

    @property
    def ranks(self) -> tuple[int, ...]:
        """Rank numbers of the first group of the kind."""
        run = self.run or self.size
        return tuple(n // run * self.jump + n % run * self.stride for n in range(self.size))

    def per_node(self, machine: Machine) -> int:
        """Return the number of the group's ranks in one node."""
        inside = max(1, min(self.run or self.size, machine.per_node // self.stride))
        return (
            inside * max(1, min(self.size // self.run, machine.per_node // self.jump))
            if self.run
            else inside
        )

    def step(self, machine: Machine) -> int:
        """Return the distance in nodes from one node of the group (or one run) to the next."""
        apart = (
            self.jump * max(1, machine.per_node // self.jump)
            if self.run
            else self.stride * self.per_node(machine)
        )
        return max(1, apart // machine.per_node)

    def saved(self, machine: Machine, summed: bool) -> float:
        """Return the bytes between nodes of a ring's gather and scatter over those of a sum.

        NCCL sums along trees. Over two nodes each node sends every byte to the other once. Over
        more nodes a tree sends as many bytes as a ring: each node is an inner node of one of two
        trees (Sanders, Speck and Traeff, 2009; NCCL 2.4).
        """
        return (
            2 * (self.size - 1) / self.size
            if summed and self.size == 2 * self.per_node(machine)
            else 1.0
        )


def group_of(parallel: Parallel, kind: str) -> Group:
    """Return the group of a kind: tp, cp, dp, ep, expert-dp or pp.

    The group dp reduces gradients, so it has the context-parallel ranks too. As in Megatron,
    tensor-parallel ranks are numbered first, then context-parallel ranks, then replicas and
    pipeline devices in the order of ``rank_order``.
    """
    p = parallel
    each = p.tp * p.cp
    apart = p.pipeline_first and p.pp > 1  # whether a pipeline lies between two replicas
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
    """Compute the seconds of an all-gather or a reduce-scatter on a ring of all ranks.

    NCCL's tree for gathers, PAT, supports one GPU a node only. NCCL finds the rings of each group
    separately, so groups whose ranks alternate in a node compete for its links.

    Args:
        machine: the cluster.
        found: the efficiency of GPU and software.
        group: the ranks.
        bytes_: bytes that a gather makes, or that a scatter starts from, on each rank.
        calls: number of collectives that the bytes are divided over.
        summed: whether the collective is one half of an all-reduce.
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
        steps += (nodes - 1) * machine.latency(True)
    return bytes_ * (n - 1) / n / rate + calls * steps


def exchange_seconds(
    machine: Machine,
    found: Efficiency,
    group: Group,
    bytes_: float,
    visits: int = 0,
    most_nodes: int = 0,
) -> float:
    """Compute the seconds of an all-to-all.

    Args:
        machine: the cluster.
        found: the efficiency of GPU and software.
        group: the ranks.
        bytes_: bytes that each rank sends, with the part for itself.
        visits: experts of a token. The token is then sent once to each node that has some of these
            experts, and from there once to each rank that has one, as DeepEP and HybridEP do. 0: a
            token is sent once for each of its experts.
        most_nodes: limit of the nodes that a token's experts lie on, as DeepSeek-V3's router has
            one; 0: none.
    """
    if group.size == 1:
        return 0.0
    near, far = exchange_bytes(machine, group, bytes_, visits, most_nodes)
    inside = group.per_node(machine)
    curve, power = found.curve, found.software.alltoall
    within, between = KERNELS if visits else (curve.within**power, curve.between**power)
    far *= machine.crowding(group.size / inside, group.step(machine), leaving=1.0)
    return max(
        near / (machine.intra_bytes_per_s * within), far / (machine.inter_bytes_per_s * between)
    ) + machine.latency(inside < group.size)


def exchange_bytes(
    machine: Machine, group: Group, bytes_: float, visits: int = 0, most_nodes: int = 0
) -> tuple[float, float]:
    """Return the bytes of an all-to-all that a rank sends within its node, and to other nodes.

    The arguments are those of :func:`exchange_seconds`.
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
    """Compute the seconds of a message from pipeline device ``source`` to the next one.

    All ranks of a device send at once. The message stays inside a node if both devices are in it,
    and takes the oversubscribed links if the next device is below another switch. Where replicas
    begin in the middle of a node, the slowest one counts.
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
