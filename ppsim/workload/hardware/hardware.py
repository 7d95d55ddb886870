"""GPUs and clusters: their descriptions, from the library or a file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppsim.base import toml
from ppsim.base.text import guess_of, quote
from ppsim.base.toml import RefusedValue
from ppsim.engine.detailed import cluster as clusters
from ppsim.engine.detailed.cluster import Cluster, DividedBandwidth, Link, Nodes, check_one_node
from ppsim.engine.detailed.named_links import NAMED
from ppsim.errors import InputError

SCHEMA = "ppsim.gpu/1"
LIBRARY = Path(__file__).parents[1] / "library"
EXAMPLE = "memory_gib, hbm_gb_per_s and a table [tflops]"
# What a precision of training computes with: NVFP4 in FP4 units, MXFP8 in FP8 units.
UNITS = {
    "bf16": "bf16",
    "fp16": "fp16",
    "fp8": "fp8",
    "mxfp8": "fp8",
    "nvfp4": "fp4",
    "fp32": "bf16",
}


MOST = 1e9  # of a GPU's numbers; none but 0 is below its inverse


def _refuse_beyond(row: object, *names: str) -> None:
    for name in names:
        if not 1 / MOST <= (value := getattr(row, name)) <= MOST:
            raise RefusedValue(name, f"must be more than 0 and {MOST:g} at most, got {value:g}")


@dataclass(frozen=True)
class Tflops:
    """Peak dense throughput of matrix products in TFLOP/s, by precision; 0 where the GPU lacks
    it.
    """

    bf16: float = 0.0
    fp16: float = 0.0
    fp8: float = 0.0
    fp4: float = 0.0

    def __post_init__(self) -> None:
        named = [name for name in ("bf16", "fp16", "fp8", "fp4") if getattr(self, name)]
        _refuse_beyond(self, *named, *([] if {"bf16", "fp16"} & {*named} else ["bf16"]))


@dataclass(frozen=True)
class Gpu:
    """A GPU.

    Attributes:
        name: as the library calls it.
        memory_gib: its memory.
        hbm_gb_per_s: bandwidth of its memory.
        tflops: its peaks.
        host_gb_per_s: bandwidth to the host's memory in each direction.
        family: of chips with the same units, which share an efficiency curve; empty takes usual
            values.
        watts: the power that it may draw; 0: not known.
        host: what launches its kernels: x86 or grace.
        multiprocessors: that share the tiles of a product: NVIDIA's SMs, AMD's compute units.
        exponentials: that it computes, 10^12 a second, of which attention needs one a score; 0: not
            known.
        source: where the numbers are from.
    """

    name: str
    memory_gib: float
    hbm_gb_per_s: float
    tflops: Tflops
    host_gb_per_s: float = 50.0
    family: str = ""
    watts: float = 0.0
    host: str = "x86"
    multiprocessors: int = 132
    exponentials: float = 0.0
    source: str = ""

    def __post_init__(self) -> None:
        _refuse_beyond(self, "memory_gib", "hbm_gb_per_s", "host_gb_per_s", "multiprocessors")
        _refuse_beyond(self, *(name for name in ("watts", "exponentials") if getattr(self, name)))
        if self.host not in ("x86", "grace"):
            raise RefusedValue("host", f"must be x86 or grace, got {self.host!r}")

    @property
    def sixteen(self) -> str:
        """The 16-bit format that it computes with: bf16, or fp16 where it has no bf16."""
        return "bf16" if self.tflops.bf16 else "fp16"

    def peak(self, precision: str) -> float:
        """Return the peak in FLOP/s for a precision of training.

        Raises:
            InputError: the GPU does not compute in it.
        """
        value: float = getattr(self.tflops, UNITS[precision]) * 1e12
        if not value:
            raise InputError(
                f"{self.name} has no {UNITS[precision]} units", f"--precision {self.sixteen}"
            )
        return value


class Factors(NamedTuple):
    """A number for each kind of op; B is a full backward, which need not take as long as its
    halves.
    """

    f: float = 1.0
    i: float = 1.0
    w: float = 1.0
    b: float = 1.0


AS_THE_CURVE = Factors()
NOTHING = Factors._make([0.0] * 4)


@dataclass(frozen=True)
class Measured:
    """Measured op times of a profile, over the efficiency curve's.

    Attributes:
        name: of the profile.
        layer: of dense layers.
        embedding: of the embedding.
        head: of the output and the loss.
        fixed: seconds of an op of a stage in addition to its layers.
        stages: of whole stages, one for each or one for all; empty where layers were measured.
        taken: what is taken from the profile, in words.
        left: what is not.
    """

    name: str
    layer: Factors = AS_THE_CURVE
    embedding: Factors = AS_THE_CURVE
    head: Factors = AS_THE_CURVE
    fixed: Factors = NOTHING
    stages: tuple[Factors, ...] = ()
    taken: str = ""
    left: str = ""


class Kind(NamedTuple):
    """Nodes of one kind in a cluster of several, as a machine of their own, and how many GPUs they
    have.
    """

    machine: Machine
    gpus: int


@dataclass(frozen=True)
class Machine:
    """A cluster and its GPUs.

    Attributes:
        name: as the library calls it, or the file.
        gpu: its GPU.
        cluster: how GPUs are joined.
        measured: op times of a profile that count instead of the efficiency curve, or None.
        kinds: of nodes, where there are several, in the order of ranks; ``gpu`` is then that of
            most peak in all.
    """

    name: str
    gpu: Gpu
    cluster: Cluster
    measured: Measured | None = None
    kinds: tuple[Kind, ...] = ()

    @property
    def gpus(self) -> int:
        """GPUs in all, where there are several kinds of nodes or one node; else 0, for any
        number.
        """
        if self.cluster.single_node:
            return self.per_node
        return sum(kind.gpus for kind in self.kinds)

    def check_gpus(self, gpus: int) -> None:
        """Refuse more GPUs than a single node has (InputError)."""
        check_one_node(self.cluster, gpus, "GPUs")

    @property
    def title(self) -> str:
        """The GPU, or how many of each."""
        return (
            " + ".join(f"{kind.gpus:,} x {kind.machine.gpu.name}" for kind in self.kinds)
            or self.gpu.name
        )

    @property
    def reversed(self) -> Machine:
        """The same machine with the last kind of nodes first."""
        return replace(self, kinds=self.kinds[::-1])

    def peak(self, precision: str) -> float:
        """Return the peak in FLOP/s for a precision of training, of several kinds of nodes the
        mean.

        Raises:
            InputError: a GPU does not compute in it.
        """
        if not self.kinds:
            return self.gpu.peak(precision)
        return sum(kind.gpus * kind.machine.gpu.peak(precision) for kind in self.kinds) / self.gpus

    @property
    def per_node(self) -> int:
        """GPUs that NVLink or its like joins; of several kinds of nodes the most."""
        return max(
            [kind.machine.per_node for kind in self.kinds] or [self.cluster.devices_per_node]
        )

    @property
    def uneven(self) -> bool:
        """Whether nodes have different numbers of GPUs."""
        return len({kind.machine.per_node for kind in self.kinds}) > 1

    def nodes_of(self, ranks: Any) -> NDArray[np.int64]:
        """Return the node of each rank."""
        if not self.kinds:
            return np.asarray(ranks) // self.per_node
        sizes = [
            size
            for kind in self.kinds
            for size in [kind.machine.per_node] * (kind.gpus // kind.machine.per_node)
        ]
        return np.searchsorted(np.cumsum(sizes), ranks, "right")

    @property
    def intra_bytes_per_s(self) -> float:
        """Bytes a second from one GPU to others of its node."""
        return (self.cluster.intra.gb_per_s or 1e6) * 1e9

    @property
    def inter_bytes_per_s(self) -> float:
        """Bytes a second from one GPU to other nodes, when all of a node send at once."""
        return min(self.cluster.between_gb_per_s, 1e6) * 1e9

    def crowding(self, nodes: float, step: int, leaving: float | None = None) -> float:
        """Return how many times as long traffic of a group takes as its switches have fewer links
        up than down.

        A ring leaves a switch once for all of its members there; traffic to any other node leaves
        by their share.

        Args:
            nodes: of the group.
            step: from one of its nodes to the next.
            leaving: share of the traffic that leaves a switch, by the group's nodes below one; of a
                ring without it.
        """
        shared = self.cluster.shared
        if not shared.nodes_per_switch or nodes * step <= shared.nodes_per_switch:
            return 1.0
        below = max(shared.nodes_per_switch // step, 1)
        share = (
            1 / below
            if leaving is None
            else max(nodes - below, 0.0) / max(nodes - 1, 1.0) * leaving
        )
        return max(1.0, shared.oversubscription * share)

    def latency(self, crosses_nodes: bool) -> float:
        """Return the seconds of a message that its bytes do not account for."""
        link = (self.cluster.inter or self.cluster.intra) if crosses_nodes else self.cluster.intra
        return link.alpha_us * 1e-6


def gpus() -> Mapping[str, Path]:
    """List the GPUs of the library: names and files."""
    return toml.list_installed(LIBRARY / "gpus")


def machines() -> Mapping[str, Path]:
    """List the clusters of the library: names and files."""
    return toml.list_installed(LIBRARY / "clusters")


def read_gpu(spec: str) -> Gpu:
    """Read a GPU: a name of the library or a TOML file.

    Raises:
        InputError: no such name or file, or one that describes no GPU.
    """
    known = gpus()
    if spec.lower() in known:
        return toml.read_installed(known[spec.lower()], Gpu, SCHEMA)
    if not spec.endswith(".toml"):
        raise _unknown_error("GPU", spec, known)
    return toml.read(spec, Gpu, SCHEMA, EXAMPLE)


def read_cluster(spec: str) -> Cluster:
    """Read how devices are joined: a name of the library, words such as ``h100x8,nvlink4,ib-400``,
    or a cluster file.

    Raises:
        InputError: no such name or file, or one that describes no cluster; or words that are not
            understood.
    """
    if _is_words(spec):
        return _cluster_of_words(spec)
    known = machines()
    if spec.lower() in known:
        return toml.read_installed(known[spec.lower()], Cluster, clusters.SCHEMA)
    if "." not in spec and "/" not in spec and not os.path.exists(spec):
        raise _unknown_error("cluster", spec, known)
    return clusters.read(spec)


def read_machine(spec: str) -> Machine:
    """Read a cluster whose GPU is named: a name of the library, words, or a cluster file with ``gpu
    = "h100"``.

    Raises:
        InputError: no such name or file, one that describes no cluster, or one that does not name
            its GPU.
    """
    known = machines()
    if spec.lower() not in known and not spec.endswith(".toml") and not _is_words(spec):
        raise _unknown_error("cluster", spec, known)
    cluster, title = read_cluster(spec), spec.lower() if spec.lower() in known else spec
    if cluster.nodes:
        kinds = tuple(_kind(spec, cluster, nodes) for nodes in cluster.nodes)
        largest = max(kind.machine.per_node for kind in kinds)
        if uneven := [kind for kind in kinds if kind.gpus % largest]:
            raise InputError(
                f"'{spec}': {uneven[0].gpus} x {uneven[0].machine.gpu.name} are not a multiple of "
                f"{largest}, the GPUs of "
                "the largest node: ranks that work together would begin in the middle of one",
                f"a count in [[nodes]] that gives a multiple of {largest} GPUs",
            )
        most = max(
            kinds, key=lambda kind: kind.gpus * kind.machine.gpu.peak(kind.machine.gpu.sixteen)
        )
        return (
            Machine(title, most.machine.gpu, cluster, kinds=kinds)
            if len(kinds) > 1
            else kinds[0].machine
        )
    if not cluster.gpu:
        raise InputError(
            f"'{spec}' does not say which GPU its devices are",
            f'gpu = "h100"; one of {", ".join(gpus())}',
        )
    return Machine(title, _gpu_of(spec, cluster.gpu), cluster)


def _gpu_of(spec: str, name: str) -> Gpu:
    return read_gpu(str(Path(spec).parent / name) if name.endswith(".toml") else name)


def _kind(spec: str, cluster: Cluster, nodes: Nodes) -> Kind:
    """Make a machine of the nodes of one kind."""
    gpu, own = (
        _gpu_of(spec, nodes.gpu),
        {name: getattr(nodes, name) for name in ("intra", "inter", "shared")},
    )
    links: dict[str, Any] = {name: value for name, value in own.items() if value is not None}
    links |= {"devices_per_node": nodes.devices_per_node or cluster.devices_per_node}
    alone = replace(cluster, gpu=nodes.gpu, nodes=(), **links)
    gpu = replace(gpu, memory_gib=nodes.memory_gib or gpu.memory_gib)
    return Kind(Machine(spec, gpu, alone), nodes.count * alone.devices_per_node)


ONE_KIND = "h100x8,nvlink4,ib-400"
COUNTED = re.compile(r"(?:([1-9][0-9]{0,4})x)?([a-z][a-z0-9.-]*?)(?:x([1-9][0-9]{0,4}))?")
WITHIN = ("nvlink", "xgmi", "pcie")  # links of these kinds join the GPUs of a node, others nodes
LINKS = (*WITHIN, "slingshot", "ib-", "roce-", "ethernet-")


class _Part(NamedTuple):
    """One of the words of a cluster: a name and its number, None where there is none."""

    text: str
    name: str
    number: int | None


def _is_words(spec: str) -> bool:
    """Return whether a cluster is described in words, not by a name of the library or a file."""
    if spec.endswith(".toml") or spec.lower() in machines():
        return False
    return "," in spec or _part_of(spec.lower()).name in gpus()


def _part_of(text: str) -> _Part:
    match = COUNTED.fullmatch(text)
    if match is None or (match[1] and match[3]):
        return _Part(text, text, None)
    count = match[1] or match[3]
    return _Part(text, match[2], int(count) if count else None)


def _cluster_of_words(spec: str) -> Cluster:
    """Make a cluster of words in any order: GPUs of a node, their link, and the cards between
    nodes.

    ``a100-80gbx8,nvlink3,ib-200``: without their number there is a card for each GPU, or one for a
    node where it is Ethernet. Without cards there is one node; a node of one GPU needs no link.

    Raises:
        InputError: a word that is not one of these, one that is missing or twice there.
    """
    parts = [_part_of(text) for text in spec.lower().replace(" ", "").split(",")]
    node = _gpus_of_node(spec, [part for part in parts if part.name not in NAMED])
    within, between = _links_of(spec, node, [part for part in parts if part.name in NAMED])
    count = node.number or 1
    inner = Link(link=within.name) if within else Link()
    if between is None:
        return Cluster(count, inner, gpu=node.name, single_node=True)
    cards = between.number or (1 if between.name.startswith("ethernet") else count)
    shared = DividedBandwidth(nics_per_node=cards, nic_gb_per_s=NAMED[between.name][1])
    return Cluster(count, inner, inter=Link(link=between.name), shared=shared, gpu=node.name)


def _gpus_of_node(spec: str, parts: list[_Part]) -> _Part:
    """Find the word for the GPUs of a node among the words that do not name links (InputError:
    there is not one).
    """
    found = [part for part in parts if part.name in gpus()]
    counted = [part for part in parts if part.number and not part.name.startswith(LINKS)]
    if len(found) > 1 or len(counted) > 1 or "+" in spec:
        what = f"{quote(spec)} are several kinds of nodes, and words are for one kind"
        raise InputError(
            what, f"a cluster file with a table [[nodes]] for each kind, or one kind: {ONE_KIND}"
        )
    if len(found) == 1 and len(parts) > 1:
        other = next(part for part in parts if part not in found)
        raise InputError(
            f"{quote(spec)} has a link of no known name, {quote(other.text)}",
            f"one of {', '.join(NAMED)}",
        )
    if not found and len(counted) == 1:
        raise _unknown_error("GPU", counted[0].name, gpus())
    if not found:
        hint = (
            f"GPUxCOUNT, its link, and CARD or CARDxCOUNT between nodes: {ONE_KIND}; names: "
            f"ppsim list --gpus --links"
        )
        raise InputError(f"not a cluster in words: {quote(spec)}", hint)
    if found[0].number is None:
        what = f"{quote(spec)} does not say how many GPUs a node has"
        raise InputError(what, spec.lower().replace(found[0].text, f"{found[0].text}x8", 1))
    return found[0]


def _links_of(spec: str, node: _Part, links: list[_Part]) -> tuple[_Part | None, _Part | None]:
    """Find the links within a node and between nodes (InputError: one is missing, or there are too
    many).
    """
    kinds = [link.name.startswith(WITHIN) for link in links]
    if len(links) > 2:
        what = (
            f"{quote(spec)} names {len(links)} links, where one is within a node and one "
            f"between nodes"
        )
        raise InputError(what, ONE_KIND)
    within: _Part | None = None
    between: _Part | None = None
    if len(links) == 2:
        within, between = links if kinds != [False, True] else links[::-1]
    elif links and kinds[0]:
        within = links[0]
    elif links:
        between = links[0]
    if within is None and (node.number or 1) > 1:
        what = f"{quote(spec)} names no link within a node"
        rest = f",{between.text}" if between else ""
        raise InputError(what, f"{node.text},nvlink4{rest}; names: ppsim list --links")
    if within and within.number:
        what = (
            f"{quote(spec)} gives {quote(within.name)} a number, which cards between nodes have "
            f"alone"
        )
        raise InputError(what, spec.lower().replace(within.text, within.name, 1))
    return within, between


def _unknown_error(what: str, spec: str, known: Mapping[str, Path]) -> InputError:
    guess = guess_of(spec.lower(), known)
    own = "or a .toml file"
    if what == "GPU":
        own = "or your own in a file, which a cluster file names (ppsim plan --help shows both)"
    return InputError(
        f"no {what} {quote(spec)} in the library.{guess}", f"one of {', '.join(known)}, {own}"
    )
