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
from ppsim.base.toml import RefusedValue, require_one_of
from ppsim.engine.detailed import cluster as clusters
from ppsim.engine.detailed.cluster import Cluster, DividedBandwidth, Link, Nodes, check_one_node
from ppsim.engine.detailed.named_links import NAMED
from ppsim.errors import InputError

SCHEMA = "ppsim.gpu/1"
LIBRARY = Path(__file__).parents[1] / "library"
EXAMPLE = "memory_gib, hbm_gb_per_s and a table [tflops]"
# the units that compute in a training precision
UNITS = {
    "bf16": "bf16",
    "fp16": "fp16",
    "fp8": "fp8",
    "mxfp8": "fp8",
    "nvfp4": "fp4",
    "fp32": "bf16",
}


# Families of chips with an efficiency curve; ``tests/workload`` compares with the curves.
FAMILIES = ("ampere", "hopper", "blackwell", "cdna3", "cdna4")
MOST = 1e9  # largest number in a GPU's file; the smallest one above 0 is its inverse


def _refuse_beyond(row: object, *names: str) -> None:
    """Refuse a field that is not between 1 / MOST and MOST (RefusedValue)."""
    for name in names:
        if not 1 / MOST <= (value := getattr(row, name)) <= MOST:
            raise RefusedValue(name, f"must be more than 0 and {MOST:g} at most, got {value:g}")


@dataclass(frozen=True)
class Tflops:
    """Peak dense throughput of matrix products in TFLOP/s, by precision; 0 where there is none."""

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
        name: its name in the library.
        memory_gib: memory in GiB.
        hbm_gb_per_s: bandwidth of the memory in GB/s.
        tflops: peaks in TFLOP/s.
        host_gb_per_s: bandwidth to the host's memory in each direction, in GB/s.
        family: family of chips that share an efficiency curve, one of ``FAMILIES``; empty takes
            default values.
        watts: power limit in watts; 0: not known.
        host: kind of the CPU that launches kernels: x86 or grace.
        multiprocessors: number of NVIDIA's SMs or AMD's compute units.
        exponentials: exponentials computed per second, in 10^12; attention needs one for each
            score; 0: not known.
        source: the source of the numbers.
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
        if self.family:
            require_one_of("family", self.family, FAMILIES)

    @property
    def sixteen(self) -> str:
        """The 16-bit format of the GPU's matrix units: bf16, or fp16 if it has no bf16."""
        return "bf16" if self.tflops.bf16 else "fp16"

    def peak(self, precision: str) -> float:
        """Return the peak in FLOP/s for a training precision.

        Raises:
            InputError: the GPU has no units for the precision.
        """
        value: float = getattr(self.tflops, UNITS[precision]) * 1e12
        if not value:
            raise InputError(
                f"{self.name} has no {UNITS[precision]} units", f"--precision {self.sixteen}"
            )
        return value


class Factors(NamedTuple):
    """A number for each of F, I, W and B; a full backward B need not take as long as I and W."""

    f: float = 1.0
    i: float = 1.0
    w: float = 1.0
    b: float = 1.0


AS_THE_CURVE = Factors()
NOTHING = Factors._make([0.0] * 4)


@dataclass(frozen=True)
class Measured:
    """Ratios of a profile's measured op times to the efficiency curve's.

    Attributes:
        name: name of the profile.
        layer: ratios for dense layers.
        embedding: ratios for the embedding.
        head: ratios for the output and the loss.
        fixed: seconds of an op of a stage in addition to its layers.
        stages: ratios for whole stages, one for each or one for all; empty if layers were measured.
        taken: the times that the profile corrects, in words.
        left: the times that it does not correct, in words.
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
    """The nodes of one kind in a mixed cluster, as a machine, and their number of GPUs."""

    machine: Machine
    gpus: int


@dataclass(frozen=True)
class Machine:
    """A cluster and its GPUs.

    Attributes:
        name: its name in the library, or its file.
        gpu: its GPU; in a mixed cluster that of the nodes with the highest peak in sum.
        cluster: the links between GPUs.
        measured: corrections by a profile's measured op times, or None.
        kinds: the kinds of nodes of a mixed cluster in the order of ranks, or empty.
    """

    name: str
    gpu: Gpu
    cluster: Cluster
    measured: Measured | None = None
    kinds: tuple[Kind, ...] = ()

    @property
    def gpus(self) -> int:
        """Number of GPUs of a mixed cluster or of a single node; 0 if a plan may use any number."""
        if self.cluster.single_node:
            return self.per_node
        return sum(kind.gpus for kind in self.kinds)

    def check_gpus(self, gpus: int) -> None:
        """Refuse more GPUs than a single node has (InputError)."""
        check_one_node(self.cluster, gpus, "GPUs")

    @property
    def title(self) -> str:
        """Name of the GPU; in a mixed cluster the number and name of each kind."""
        return (
            " + ".join(f"{kind.gpus:,} x {kind.machine.gpu.name}" for kind in self.kinds)
            or self.gpu.name
        )

    @property
    def memory_bytes(self) -> float:
        """Bytes of memory of a GPU; in a mixed cluster of the largest."""
        gpus = [kind.machine.gpu for kind in self.kinds] or [self.gpu]
        return max(gpu.memory_gib for gpu in gpus) * 2**30

    @property
    def reversed(self) -> Machine:
        """The same machine with the last kind of nodes first."""
        return replace(self, kinds=self.kinds[::-1])

    def peak(self, precision: str) -> float:
        """Return the peak of a GPU in FLOP/s for a training precision; the mean of mixed GPUs.

        Raises:
            InputError: a GPU has no units for the precision.
        """
        if not self.kinds:
            return self.gpu.peak(precision)
        return sum(kind.gpus * kind.machine.gpu.peak(precision) for kind in self.kinds) / self.gpus

    @property
    def per_node(self) -> int:
        """GPUs of a node; of several kinds of nodes, those of the largest."""
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
        """Return the factor by which oversubscribed switches slow a group's traffic.

        A ring leaves a switch once for all of the group's nodes below it. Of an all-to-all, the
        share to nodes below other switches leaves.

        Args:
            nodes: nodes of the group.
            step: distance from one node of the group to the next, in nodes.
            leaving: share of an all-to-all's traffic that may leave a switch; None for a ring.
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
        """Return the latency of a message in seconds, within a node or between nodes."""
        link = (self.cluster.inter or self.cluster.intra) if crosses_nodes else self.cluster.intra
        return link.alpha_us * 1e-6


def gpus() -> Mapping[str, Path]:
    """Return the files of the library's GPUs, by name."""
    return toml.list_installed(LIBRARY / "gpus")


def machines() -> Mapping[str, Path]:
    """Return the files of the library's clusters, by name."""
    return toml.list_installed(LIBRARY / "clusters")


def read_gpu(spec: str) -> Gpu:
    """Read a GPU by a name of the library or from a TOML file.

    Raises:
        InputError: there is no such name or file, or the file does not describe a GPU.
    """
    known = gpus()
    if spec.lower() in known:
        return toml.read_installed(known[spec.lower()], Gpu, SCHEMA)
    if not spec.endswith(".toml"):
        raise _unknown_error("GPU", spec, known)
    return toml.read(spec, Gpu, SCHEMA, EXAMPLE)


def read_cluster(spec: str) -> Cluster:
    """Read a cluster's links by a name of the library, in words, or from a cluster file.

    Words are such as ``h100x8,nvlink4,ib-400``.

    Raises:
        InputError: there is no such name or file, the file does not describe a cluster, or a word
            is not known.
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
    """Read a cluster and its GPU by a name of the library, in words, or from a cluster file.

    A cluster file names its GPU, as in ``gpu = "h100"``.

    Raises:
        InputError: there is no such name or file, the file does not describe a cluster, or it does
            not name its GPU.
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
            f"'{spec}' does not name its GPU",
            f'gpu = "h100"; one of {", ".join(gpus())}',
        )
    return Machine(title, _gpu_of(spec, cluster.gpu), cluster)


def _gpu_of(spec: str, name: str) -> Gpu:
    return read_gpu(str(Path(spec).parent / name) if name.endswith(".toml") else name)


def _kind(spec: str, cluster: Cluster, nodes: Nodes) -> Kind:
    """Return the nodes of one kind as a machine, and their number of GPUs."""
    gpu = _gpu_of(spec, nodes.gpu)
    fields: dict[str, Any] = {
        name: value
        for name in ("intra", "inter", "shared")
        if (value := getattr(nodes, name)) is not None
    }
    fields["devices_per_node"] = nodes.devices_per_node or cluster.devices_per_node
    one_kind = replace(cluster, gpu=nodes.gpu, nodes=(), **fields)
    gpu = replace(gpu, memory_gib=nodes.memory_gib or gpu.memory_gib)
    return Kind(Machine(spec, gpu, one_kind), nodes.count * one_kind.devices_per_node)


ONE_KIND = "h100x8,nvlink4,ib-400"
COUNTED = re.compile(r"(?:([1-9][0-9]{0,4})x)?([a-z][a-z0-9.-]*?)(?:x([1-9][0-9]{0,4}))?")
WITHIN = ("nvlink", "xgmi", "pcie")  # links inside a node; all other links are between nodes
LINKS = (*WITHIN, "slingshot", "ib-", "roce-", "ethernet-")


class _Word(NamedTuple):
    """One word of a cluster's description: its text, the name in it, and the number or None."""

    text: str
    name: str
    number: int | None


def _is_words(spec: str) -> bool:
    """Return whether a cluster is given in words, not by a name of the library or a file."""
    if spec.endswith(".toml") or spec.lower() in machines():
        return False
    return "," in spec or _word_of(spec.lower()).name in gpus()


def _word_of(text: str) -> _Word:
    match = COUNTED.fullmatch(text)
    if match is None or (match[1] and match[3]):
        return _Word(text, text, None)
    count = match[1] or match[3]
    return _Word(text, match[2], int(count) if count else None)


def _cluster_of_words(spec: str) -> Cluster:
    """Return the cluster that words describe, such as ``a100-80gbx8,nvlink3,ib-200``.

    The words, in any order, are the GPUs of a node, their link, and the network cards of a node. A
    card without a number means one card per GPU, or one per node for Ethernet. Without a card the
    cluster is a single node. A node of one GPU needs no link.

    Raises:
        InputError: a word is not known, is missing, or occurs twice.
    """
    words = [_word_of(text) for text in spec.lower().replace(" ", "").split(",")]
    node = _gpus_of_node(spec, [word for word in words if word.name not in NAMED])
    within, between = _links_of(spec, node, [word for word in words if word.name in NAMED])
    count = node.number or 1
    inner = Link(link=within.name) if within else Link()
    if between is None:
        return Cluster(count, inner, gpu=node.name, single_node=True)
    cards = between.number or (1 if between.name.startswith("ethernet") else count)
    shared = DividedBandwidth(nics_per_node=cards, nic_gb_per_s=NAMED[between.name][1])
    return Cluster(count, inner, inter=Link(link=between.name), shared=shared, gpu=node.name)


def _gpus_of_node(spec: str, words: list[_Word]) -> _Word:
    """Return the word for a node's GPUs, among words that name no link.

    Raises:
        InputError: there is no such word, or several.
    """
    found = [word for word in words if word.name in gpus()]
    counted = [word for word in words if word.number and not word.name.startswith(LINKS)]
    if len(found) > 1 or len(counted) > 1 or "+" in spec:
        raise InputError(
            f"{quote(spec)} are several kinds of nodes, and words describe one kind",
            f"a cluster file with a table [[nodes]] for each kind, or one kind: {ONE_KIND}",
        )
    if len(found) == 1 and len(words) > 1:
        other = next(word for word in words if word not in found)
        raise InputError(
            f"not a link: {quote(other.text)} in {quote(spec)}",
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
        raise InputError(
            f"{quote(spec)} lacks the number of GPUs in a node",
            spec.lower().replace(found[0].text, f"{found[0].text}x8", 1),
        )
    return found[0]


def _links_of(spec: str, node: _Word, links: list[_Word]) -> tuple[_Word | None, _Word | None]:
    """Return the words for the links within a node and between nodes, None for no such link.

    Raises:
        InputError: a needed link is missing, or there are too many.
    """
    kinds = [link.name.startswith(WITHIN) for link in links]
    if len(links) > 2:
        raise InputError(
            f"{quote(spec)} names {len(links)} links; there can be one within a node and one "
            f"between nodes",
            ONE_KIND,
        )
    within: _Word | None = None
    between: _Word | None = None
    if len(links) == 2:
        within, between = links if kinds != [False, True] else links[::-1]
    elif links and kinds[0]:
        within = links[0]
    elif links:
        between = links[0]
    if within is None and (node.number or 1) > 1:
        rest = f",{between.text}" if between else ""
        raise InputError(
            f"{quote(spec)} names no link within a node",
            f"{node.text},nvlink4{rest}; names: ppsim list --links",
        )
    if within and within.number:
        raise InputError(
            f"{quote(spec)} gives {quote(within.name)} a number; only cards between nodes have one",
            spec.lower().replace(within.text, within.name, 1),
        )
    return within, between


def _unknown_error(noun: str, spec: str, known: Mapping[str, Path]) -> InputError:
    guess = guess_of(spec.lower(), known)
    file_hint = "or a .toml file"
    if noun == "GPU":
        file_hint = "or a file of your own GPU, named in a cluster file (see ppsim plan --help)"
    return InputError(
        f"no {noun} {quote(spec)} in the library.{guess}",
        f"one of {', '.join(known)}, {file_hint}",
    )
