"""Clusters: a TOML file that describes the links between devices, and the network made from it.

Times are in microseconds, sizes in bytes, bandwidths in GB/s (10^9 bytes per second)::

    schema = "ppsim.cluster/1"
    devices_per_node = 8
    message_bytes = 33554432
    single_node = false           # true if there is no other node

    [intra]                       # between two devices of a node
    alpha_us = 4
    gb_per_s = 300

    [inter]                       # between nodes
    link = "ib-400"               # its latency and bandwidth; or alpha_us and gb_per_s
    eager_bytes = 65536

    [shared]                      # bandwidth that links share, in each direction
    nics_per_node = 4
    nic_gb_per_s = 50

    [operation]                   # for plans
    price_per_gpu_hour = 2.5
    gpu_hours_per_failure = 45600
    checkpoint_s = 30
    restart_s = 600

For plans, a cluster may have several kinds of nodes. Each has its GPU, and the keys that differ
from the rest of the file::

    [[nodes]]
    gpu = "h100"
    count = 4

    [[nodes]]
    gpu = "a100-80gb"
    count = 8
    devices_per_node = 4
    memory_gib = 40
    intra = { link = "nvlink3" }
    inter = { link = "ib-200" }
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace

import numpy as np

from ppsim.base import toml
from ppsim.base.times import MICROSECONDS
from ppsim.base.toml import RefusedValue, not_negative, require_one_of
from ppsim.base.units import parse_size
from ppsim.core.soundness import LONGEST
from ppsim.engine.detailed.named_links import NAMED
from ppsim.engine.detailed.spec import CHANNELS, Collectives, Host, Network, Shared, Value
from ppsim.errors import InputError

SCHEMA = "ppsim.cluster/1"
MIB = 2**20
MOST = (1 << 31) - 1  # devices or network cards of a node
MOST_BYTES = 1 << 50


@dataclass(frozen=True)
class Link:
    """The link between two devices."""

    alpha_us: float = 0.0  # latency
    gb_per_s: float | None = None  # bandwidth in each direction; no limit without it
    eager_bytes: int = -1  # up to this size a send needs no receive; -1: every send does
    # a name such as nvlink4 or ib-400, for default latency and bandwidth
    link: str = ""

    def __post_init__(self) -> None:
        if self.link:
            require_one_of("link", self.link, NAMED)
            alpha, speed = NAMED[self.link]
            object.__setattr__(self, "alpha_us", self.alpha_us or alpha)
            object.__setattr__(
                self, "gb_per_s", self.gb_per_s if self.gb_per_s is not None else speed
            )
        not_negative(self, "alpha_us")
        _positive(self, "gb_per_s")
        if not -1 <= self.eager_bytes <= MOST_BYTES:
            raise RefusedValue(
                "eager_bytes",
                f"must be -1 or more and {MOST_BYTES} at most, got {self.eager_bytes}",
            )


@dataclass(frozen=True)
class DividedBandwidth:
    """Bandwidth that links of several devices share, in each direction; no limit if left out."""

    device_gb_per_s: float | None = None  # of a device, for all that it sends or receives
    node_gb_per_s: float | None = None  # of a node, to and from others
    nics_per_node: int = 1  # network cards of a node; devices are assigned to them in order
    nic_gb_per_s: float | None = None  # of a network card, to and from other nodes
    # nodes below one leaf switch, or below the leaves of one pod; by default all nodes
    nodes_per_switch: int | None = None
    # the bandwidth of a switch's nodes over the bandwidth of its links to other switches
    oversubscription: float = 1.0

    def __post_init__(self) -> None:
        _positive(self, "device_gb_per_s", "node_gb_per_s", "nic_gb_per_s")
        _count(
            self,
            "nics_per_node",
            *(["nodes_per_switch"] if self.nodes_per_switch is not None else []),
        )
        if not 1 <= self.oversubscription <= MOST:
            raise RefusedValue(
                "oversubscription",
                f"must be 1 or more and {MOST} at most, got {self.oversubscription:g}",
            )


@dataclass(frozen=True)
class Calls:
    """Host time per call that issues an op, in microseconds.

    See :class:`ppsim.engine.detailed.spec.Host`, and ``late`` of
    :class:`ppsim.engine.detailed.spec.Network`.
    """

    send_us: float = 0.0
    send_us_per_mib: float = 0.0
    receive_us: float = 0.0
    receive_us_per_mib: float = 0.0
    late_us: float = 0.0
    gap_us: float = 0.0
    preamble_us: float = 0.0
    epilogue_us: float = 0.0

    def __post_init__(self) -> None:
        not_negative(self, *(f.name for f in fields(self)))


@dataclass(frozen=True)
class Fsdp:
    """Durations of FSDP ops in microseconds (:class:`ppsim.engine.detailed.spec.Collectives`)."""

    unshard_us: float = 0.0
    reshard_us: float = 0.0
    reduce_grad_us: float = 0.0
    blocking: bool = False

    def __post_init__(self) -> None:
        not_negative(self, "unshard_us", "reshard_us", "reduce_grad_us")


@dataclass(frozen=True)
class Operation:
    """Cost of running the cluster, such as power and price; only plans use it."""

    price_per_gpu_hour: float | None = None  # in any currency
    watts_per_gpu: float | None = None  # of a GPU and its share of the node, under load
    # mean GPU hours between failures; Llama 3 had one in 45,600 (arXiv 2407.21783)
    gpu_hours_per_failure: float | None = None
    checkpoint_s: float = 0.0  # seconds for which a checkpoint stops training
    restart_s: float = 0.0  # seconds from a failure until training continues

    def __post_init__(self) -> None:
        _positive(self, "price_per_gpu_hour", "watts_per_gpu", "gpu_hours_per_failure")
        not_negative(self, "checkpoint_s", "restart_s")


@dataclass(frozen=True)
class Nodes:
    """Nodes of one kind in a mixed cluster; missing fields default to the rest of the file."""

    gpu: str  # the GPU of their devices
    count: int  # number of nodes
    devices_per_node: int | None = None  # of this kind
    memory_gib: float | None = None  # of a GPU, if it differs from the library's
    intra: Link | None = None  # links within a node
    inter: Link | None = None  # links to other nodes; between two kinds the slower one counts
    shared: DividedBandwidth | None = None  # bandwidth that links share

    def __post_init__(self) -> None:
        _count(self, "count", *(["devices_per_node"] if self.devices_per_node is not None else []))
        _positive(self, "memory_gib")


@dataclass(frozen=True)
class Cluster:
    """The nodes and links of a cluster.

    Pipeline device ``d`` is device ``d mod devices_per_node`` of node ``d // devices_per_node``.
    """

    devices_per_node: int  # pipeline devices of a node
    intra: Link  # links within a node
    message_bytes: int = 0  # of an activation or gradient; 0 for messages with a latency only
    # what carries one message at a time (see :class:`ppsim.engine.detailed.spec.Network`)
    channel: str = "direction"
    inter: Link | None = None  # links between nodes; by default as ``intra``
    single_node: bool = False  # whether there is no other node
    # bandwidth that links share
    shared: DividedBandwidth = field(default_factory=DividedBandwidth)
    host: Calls = field(default_factory=Calls)  # costs of the host
    fsdp: Fsdp = field(default_factory=Fsdp)  # durations of FSDP ops
    operation: Operation = field(default_factory=Operation)  # cost of running it
    # the GPU of the devices, a name of the planning library or a file; only plans use it
    gpu: str = ""
    # the kinds of nodes if there are several, in the order of ranks; only for plans
    nodes: tuple[Nodes, ...] = ()

    def __post_init__(self) -> None:
        _count(self, "devices_per_node")
        if self.gpu and self.nodes:
            raise RefusedValue("gpu", "must be left out, as each of [[nodes]] has its own")
        if not 0 <= self.message_bytes <= MOST_BYTES:
            raise RefusedValue(
                "message_bytes",
                f"must be 0 or more and {MOST_BYTES} at most, got {self.message_bytes}",
            )
        require_one_of("channel", self.channel, CHANNELS)

    @property
    def between_gb_per_s(self) -> float:
        """Bandwidth from a device to other nodes when its whole node sends; inf without a limit."""
        shared, link = self.shared, self.inter or self.intra
        rates = [math.inf if link.gb_per_s is None else link.gb_per_s]
        if shared.nic_gb_per_s:
            rates.append(shared.nic_gb_per_s * shared.nics_per_node / self.devices_per_node)
        if shared.node_gb_per_s:
            rates.append(shared.node_gb_per_s / self.devices_per_node)
        return min(rates)


def read(path: str) -> Cluster:
    """Read a cluster from a file (InputError: missing or invalid; the message has the line)."""
    return toml.read(path, Cluster, SCHEMA, "devices_per_node = 8 and a table [intra]")


def check_one_node(cluster: Cluster, devices: int, what: str) -> None:
    """Raise InputError for more devices than a cluster of one node has; ``what`` names them."""
    if cluster.single_node and devices > cluster.devices_per_node:
        least = -(-devices // cluster.devices_per_node)
        raise InputError(
            f"{devices:,} {what} are {least:,} nodes of {cluster.devices_per_node}, and the "
            f"cluster is one node",
            f"name the card between nodes, such as ib-400, or {cluster.devices_per_node} at most",
        )


def network(cluster: Cluster, devices: int, unit: str, mode: str) -> Network:
    """Return the network of ``devices`` devices on a cluster, with times in ``unit``.

    Raises:
        InputError: ``unit`` is not a unit of time, or the cluster does not apply.
    """
    if unit not in MICROSECONDS:
        raise InputError(
            f"a cluster's times are in microseconds, and costs in {unit} have no length in time",
            "costs in ms: --profile FILE, or --unit ms with --tf, --ti and --tw",
        )
    if cluster.nodes:
        raise InputError(
            "a cluster of several kinds of nodes is for ppsim plan and model",
            "a file without [[nodes]]",
        )
    check_one_node(cluster, devices, "devices")
    us = 1.0 / MICROSECONDS[unit]
    node = np.arange(devices) // cluster.devices_per_node
    inter, host, fsdp = cluster.inter or cluster.intra, cluster.host, cluster.fsdp

    def by_link(within: float, between: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        return np.where(node[:, None] == node, within, between).astype(np.float64)

    return Network(
        mode=mode,
        channel=cluster.channel,
        alpha=by_link(cluster.intra.alpha_us * us, inter.alpha_us * us),
        beta=by_link(_bandwidth(cluster.intra.gb_per_s, us), _bandwidth(inter.gb_per_s, us)),
        eager_bytes=by_link(cluster.intra.eager_bytes, inter.eager_bytes),
        message=float(cluster.message_bytes),
        late=host.late_us * us,
        host=Host(
            send=host.send_us * us,
            send_per_byte=host.send_us_per_mib * us / MIB,
            receive=host.receive_us * us,
            receive_per_byte=host.receive_us_per_mib * us / MIB,
            gap=host.gap_us * us,
            preamble=host.preamble_us * us,
            epilogue=host.epilogue_us * us,
        ),
        collectives=Collectives(
            fsdp.unshard_us * us, fsdp.reshard_us * us, fsdp.reduce_grad_us * us, fsdp.blocking
        ),
        shared=tuple(_shared(cluster, devices, us)),
    )


def _shared(cluster: Cluster, devices: int, us: float) -> list[Shared]:
    divided, each = cluster.shared, np.arange(devices)
    node, seat = np.divmod(each, cluster.devices_per_node)
    card = node * divided.nics_per_node + seat * divided.nics_per_node // cluster.devices_per_node
    groups = [
        (divided.device_gb_per_s, each, None, "device"),
        (divided.node_gb_per_s, node, node, "node"),
        (divided.nic_gb_per_s, card, node, "card"),
    ]
    if divided.nodes_per_switch and divided.oversubscription > 1:
        switch, seats = (
            node // divided.nodes_per_switch,
            divided.nodes_per_switch * cluster.devices_per_node,
        )
        groups.append(
            (seats * cluster.between_gb_per_s / divided.oversubscription, switch, switch, "switch")
        )
    return [Shared(_bandwidth(speed, us), *which) for speed, *which in groups if speed is not None]


def _bandwidth(gb_per_s: float | None, us: float) -> float:
    """Return bytes per unit of time; 1 GB/s is 1000 bytes per microsecond."""
    return gb_per_s * 1e3 / us if gb_per_s is not None else np.inf


def _count(row: object, *keys: str) -> None:
    for key in keys:
        if (count := getattr(row, key)) < 1:
            raise RefusedValue(key, f"must be 1 or more, got {count}")
        if count > MOST:
            raise RefusedValue(key, f"must be {MOST} at most, got {count}")


def _positive(row: object, *keys: str) -> None:
    for key in keys:
        if (value := getattr(row, key)) is not None and not 1 / LONGEST <= value <= LONGEST:
            what = "more than 0" if value <= 0 else f"{1 / LONGEST:g} to {LONGEST:g}"
            raise RefusedValue(key, f"must be {what}, got {value:g}; without it there is no limit")


def network_from_options(
    devices: int,  # P
    unit: str,  # the costs' unit
    *,
    p2p: str = "latency",  # the mode
    comm: Value = 0.0,  # latency of a message, without a cluster
    channel: str | None = None,  # replaces the cluster's, or ``direction``
    # a cluster, or the path of its file; see :mod:`ppsim.engine.detailed.cluster`
    cluster: str | Cluster | None = None,
    message: str | None = None,  # size of a message, such as ``4MiB``, replaces the cluster's
) -> Network:
    """Return the network that a command's options describe.

    Raises:
        InputError: an unknown mode or channel, an invalid file, a size of messages without a
            cluster, or a cluster with costs that have no unit of time.
    """
    size = None if message is None else float(parse_size(message)[0])
    if cluster is None:
        if size is not None:
            raise InputError(
                "the size of a message has no effect without links", "give a cluster file as well"
            )
        return Network(mode=p2p, channel=channel or "direction", alpha=comm)
    built = network(read(cluster) if isinstance(cluster, str) else cluster, devices, unit, p2p)
    return replace(
        built, channel=channel or built.channel, message=built.message if size is None else size
    )
