"""Groups of ranks on a machine: their GPUs, nodes and links, and a flowchart of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ppsim.workload.cost.communication import group_of
from ppsim.workload.hardware.hardware import Machine
from ppsim.workload.model.parallel import Parallel

MEANINGS = {
    "tp": "tensor: gathers and scatters in every layer",
    "cp": "context: keys and values in every layer",
    "ep": "expert: all-to-all in every MoE layer",
    "pp": "pipeline: activations and gradients of a microbatch",
    "dp": "data: gradients and weights once a step",
    "expert-dp": "data of experts: their gradients and weights once a step",
}


@dataclass(frozen=True)
class GroupLinks:
    """A kind of parallel group on a machine.

    Attributes:
        kind: tp, cp, ep, pp, dp or expert-dp.
        size: ranks of a group.
        count: number of groups of this kind.
        ranks: ranks of the first group.
        nodes: number of nodes of the first group.
        per_node: ranks of the first group on each of its nodes.
    """

    kind: str
    size: int
    count: int
    ranks: tuple[int, ...]
    nodes: int
    per_node: int

    @property
    def link(self) -> str:
        """The link between the group's ranks, in words."""
        if self.nodes == 1:
            return "inside a node"
        return (
            "between nodes"
            if self.per_node == 1
            else f"between nodes, {self.per_node} of a group in each"
        )


def group_links(machine: Machine, parallel: Parallel) -> list[GroupLinks]:
    """Return the kinds of groups with several ranks."""
    result = []
    for kind in MEANINGS:
        if kind == "expert-dp" and parallel.ep == 1:
            continue
        group = group_of(parallel, kind)
        if group.size == 1:
            continue
        nodes, count = len(set(machine.nodes_of(group.ranks).tolist())), parallel.gpus // group.size
        result.append(
            GroupLinks(kind, group.size, count, group.ranks, nodes, -(-group.size // nodes))
        )
    return result


def rank_grid(parallel: Parallel) -> NDArray[np.int64]:
    """Return the numbers of ranks by ``rank_order``, shape (dp, pp, cp, tp)."""
    p, numbers = parallel, np.arange(parallel.gpus)
    if p.pipeline_first:
        return numbers.reshape(p.dp, p.pp, p.cp, p.tp)
    return numbers.reshape(p.pp, p.dp, p.cp, p.tp).transpose(1, 0, 2, 3)


def span(ranks: tuple[int, ...] | list[int]) -> str:
    """Return ranks as text: up to four in full, others as a range or as first, second and last."""
    if len(ranks) <= 4:
        return " ".join(map(str, ranks))
    step = ranks[1] - ranks[0]
    return f"{ranks[0]}-{ranks[-1]}" if step == 1 else f"{ranks[0]} {ranks[1]} ... {ranks[-1]}"


MOST_DRAWN = 4  # most replicas, pipeline devices, or ranks of a device in a flowchart


def flowchart(machine: Machine, parallel: Parallel) -> str:
    """Return a Mermaid flowchart of ranks in boxes of pipeline devices and replicas.

    Arrows are messages and collectives. Of more than ``MOST_DRAWN`` replicas or pipeline devices
    the first ones and the last are drawn.
    """
    p, grid = parallel, rank_grid(parallel)
    replicas, devices = _shown_indices(p.dp), _shown_indices(p.pp)
    lines = ["flowchart LR"]
    for d in replicas:
        lines.append(f'  subgraph D{d}["data replica {d}"]')
        lines.append("    direction LR")
        for k in devices:
            ranks = grid[d, k].ravel().tolist()
            nodes = sorted(set(machine.nodes_of(ranks).tolist()))
            lines.append(f'    subgraph D{d}P{k}["pipeline device {k}, node {span(nodes)}"]')
            lines += [
                f'      R{ranks[i]}["rank {ranks[i]}<br/>{_place(p, i)}"]'
                for i in _shown_indices(len(ranks))
            ]
            if len(ranks) > MOST_DRAWN:
                lines.insert(-1, f'      D{d}P{k}M["{len(ranks) - MOST_DRAWN} more"]')
            lines.append("    end")
        lines.append("  end")
    lines += list(_arrows(machine, parallel, replicas, devices))
    cut = [
        f"{n} {noun}"
        for n, noun in ((p.dp, "replicas"), (p.pp, "pipeline devices"))
        if n > MOST_DRAWN
    ]
    if cut:
        lines.append(
            f"  %% of {' and '.join(cut)} the first {MOST_DRAWN - 1} and the last are drawn"
        )
    return "\n".join(lines) + "\n"


def _shown_indices(count: int) -> list[int]:
    return list(range(count)) if count <= MOST_DRAWN else [*range(MOST_DRAWN - 1), count - 1]


def _place(parallel: Parallel, index: int) -> str:
    tensor = f"tensor {index % parallel.tp}"
    return tensor if parallel.cp == 1 else f"context {index // parallel.tp}, {tensor}"


def _arrows(
    machine: Machine, parallel: Parallel, replicas: list[int], devices: list[int]
) -> Iterator[str]:
    nodes = machine.nodes_of(rank_grid(parallel)[:, :, 0, 0])
    for d in replicas:
        for here, after in pairwise(devices):
            link = (
                "" if after > here + 1 else _route_text(int(nodes[d, here]), int(nodes[d, after]))
            )
            yield f'  D{d}P{here} -->|"activations{link}"| D{d}P{after}'
    for here, after in pairwise(replicas):
        link = "" if after > here + 1 else _route_text(int(nodes[here, 0]), int(nodes[after, 0]))
        yield f'  D{here} <-.->|"gradients{link}"| D{after}'


def _route_text(source: int, target: int) -> str:
    return f" inside node {source}" if source == target else f" from node {source} to {target}"
