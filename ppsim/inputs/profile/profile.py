"""The profile: measured costs of ops and messages on a machine, with their provenance.

A profile is a TOML file with ``schema = "ppsim.profile/1"``. Times are in milliseconds and sizes in
bytes. A measured time is the median of ``n`` runs, with the 10th and 90th percentile.
"""

from __future__ import annotations

from dataclasses import dataclass

from ppsim.base import toml
from ppsim.base.toml import RefusedValue, not_negative, require_one_of
from ppsim.errors import InputError

SCHEMA = "ppsim.profile/1"
ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
PARTS = ("layers", "embedding", "head", "stage")
KINDS = ("F", "B", "I", "W", "FB")
PATTERNS = ("early", "late", "ping-pong", "bidirectional", "batched", "all-reduce", "all-gather")
LINKS = ("same-host", "between-hosts", "host-staged")
NOT_A_LINK = "same-device"


@dataclass(frozen=True)
class Provenance:
    """The machine, time and method of a profile's measurement."""

    machine: str  # operating system and architecture
    cpu: str  # the processor's name
    cores: int  # number of processors that the process may use
    threads: int  # number of compute threads of each device
    load: float  # the machine's load average at the start of the measurement
    device: str  # the processor, or the GPU's name
    # clock rates, power, temperature and throttling that the machine reports; ppsim never sets them
    clocks: str
    torch: str  # its version
    python: str  # its version
    ppsim: str  # its version
    date: str  # ISO 8601 in UTC
    command: str  # the command line
    note: str = ""  # remarks, such as other load on the machine

    def __post_init__(self) -> None:
        not_negative(self, "cores", "threads", "load")


@dataclass(frozen=True)
class Workload:
    """The transformer that was measured."""

    hidden: int  # width
    heads: int  # attention heads
    sequence: int  # tokens of one sample
    microbatch_size: int  # samples of one microbatch
    layers: int  # layers of one device, a 1/P share of the model
    dtype: str  # of parameters and activations
    vocab: int  # tokens of the vocabulary; 0 if embedding and head were not measured

    def __post_init__(self) -> None:
        for key in ("hidden", "heads", "sequence", "microbatch_size", "layers"):
            if getattr(self, key) < 1:
                raise RefusedValue(key, f"must be 1 or more, got {getattr(self, key)}")
        not_negative(self, "vocab")
        require_one_of("dtype", self.dtype, ITEM_BYTES)

    @property
    def message_bytes(self) -> int:
        """Bytes that a stage sends to the next: one microbatch's activations."""
        return self.microbatch_size * self.sequence * self.hidden * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class OpTime:
    """The measured time of one op."""

    # ``layers`` (transformer layers), ``embedding``, ``head`` (norm, projection and loss), or
    # ``stage`` (a whole stage, from a trace)
    part: str
    # F, B, I, W, or FB: a forward and a full backward of two microbatches issued together
    kind: str
    layers: int  # transformer layers in the part; 0 is the fixed cost of an action
    median_ms: float
    p10_ms: float
    p90_ms: float
    n: int
    # ``cold`` (emptied before the op), ``warm``, or ``run`` (as in a real run)
    cache: str = "cold"
    stage: int = -1  # the stage, for part ``stage``; else -1
    host_ms: float = 0.0  # time in which the host issues the op to a GPU; 0 on a CPU
    # ``eager`` (torch launches each kernel), or ``graph`` (one CUDA graph, measured if the eager
    # row is launch-bound). Costs come from the eager rows, as runs are eager.
    launch: str = "eager"

    @property
    def launch_bound(self) -> bool:
        """True if the GPU waited for the host."""
        return self.host_ms > self.median_ms

    def __post_init__(self) -> None:
        require_one_of("launch", self.launch, ("eager", "graph"))
        require_one_of("part", self.part, PARTS)
        require_one_of("kind", self.kind, KINDS)
        require_one_of("cache", self.cache, ("cold", "warm", "run"))
        not_negative(self, "layers", "host_ms")
        if self.part == "stage" and self.stage < 0:
            raise RefusedValue(
                "stage", f"must be 0 or more in an op of part 'stage', got {self.stage}"
            )
        _check_spread(self)


@dataclass(frozen=True)
class Message:
    """The measured time of one message."""

    # ``same-host``, ``between-hosts``, ``host-staged`` (through host memory), or ``same-device`` (a
    # copy within one device: a lower bound, never used as a link)
    link: str
    # ``early`` (the receiver already waits), ``late`` (the sender waits; timed from the receive),
    # ``ping-pong`` (half a round trip), ``bidirectional`` and ``batched`` (both directions at once,
    # the latter by batch_isend_irecv), or a collective over all ranks: ``all-reduce``,
    # ``all-gather``
    pattern: str
    bytes: int
    median_ms: float
    p10_ms: float
    p90_ms: float
    n: int
    send_ms: float = 0.0  # time of the send call on the host; 0 if not measured
    receive_ms: float = 0.0  # time of the receive call on the host; 0 if not measured

    def __post_init__(self) -> None:
        require_one_of("link", self.link, (*LINKS, NOT_A_LINK))
        require_one_of("pattern", self.pattern, PATTERNS)
        if self.bytes < 1:
            raise RefusedValue("bytes", f"must be 1 or more, got {self.bytes}")
        not_negative(self, "send_ms", "receive_ms")
        _check_spread(self)


@dataclass(frozen=True)
class Fit:
    """The line ``alpha_ms + ms_per_byte * bytes``, fitted to message times by relative error."""

    link: str
    pattern: str
    # ``all`` sizes, or if two lines fit better, ``eager`` (small messages) and ``rendezvous``
    # (large ones)
    range: str
    through: str  # ``median``, or ``p10`` if the medians show the scheduler rather than the link
    low_bytes: int  # smallest size fitted
    high_bytes: int  # largest size fitted
    alpha_ms: float  # the latency
    ms_per_byte: float  # the inverse bandwidth
    median_residual: float  # median relative error over the sizes
    max_residual: float  # the largest

    def __post_init__(self) -> None:
        require_one_of("link", self.link, (*LINKS, NOT_A_LINK))
        require_one_of("pattern", self.pattern, PATTERNS)
        require_one_of("range", self.range, ("all", "eager", "rendezvous"))
        require_one_of("through", self.through, ("median", "p10"))
        not_negative(
            self,
            "low_bytes",
            "high_bytes",
            "alpha_ms",
            "ms_per_byte",
            "median_residual",
            "max_residual",
        )

    def time_at(self, size: float) -> float:
        """Return the line's time for a message of ``size`` bytes, in ms."""
        return self.alpha_ms + self.ms_per_byte * size

    def covers(self, size: float) -> bool:
        """Return whether ``size`` is within the range of sizes fitted."""
        return self.low_bytes <= size <= self.high_bytes


@dataclass(frozen=True)
class Activation:
    """The memory of one microbatch on a device between its ops."""

    part: str  # as in :class:`OpTime`
    layers: int  # as in :class:`OpTime`
    after_f_bytes: int  # held after F, input and output included
    after_i_bytes: int  # held after I
    after_w_bytes: int  # held after W

    def __post_init__(self) -> None:
        require_one_of("part", self.part, PARTS)
        not_negative(self, "layers", "after_f_bytes", "after_i_bytes", "after_w_bytes")


@dataclass(frozen=True)
class StageSize:
    """Sizes of one stage of the user's model."""

    stage: int
    message_bytes: int  # sent to the next stage for a microbatch; 0 for the last stage
    parameters: int  # number of parameters
    parameter_bytes: int  # size of all parameters
    after_f_bytes: int  # as in :class:`Activation`
    after_i_bytes: int  # as in :class:`Activation`
    after_w_bytes: int  # as in :class:`Activation`

    def __post_init__(self) -> None:
        not_negative(self, "stage", "message_bytes", "parameters", "parameter_bytes")
        not_negative(self, "after_f_bytes", "after_i_bytes", "after_w_bytes")


@dataclass(frozen=True)
class Profile:
    """Measured costs; see the module's docstring."""

    provenance: Provenance
    model: Workload | None = None
    op: tuple[OpTime, ...] = ()
    message: tuple[Message, ...] = ()
    fit: tuple[Fit, ...] = ()
    activation: tuple[Activation, ...] = ()
    stage: tuple[StageSize, ...] = ()

    @property
    def message_bytes(self) -> int | None:
        """Bytes that a stage sends to the next, the largest of all stages; None if unmeasured."""
        if self.model:
            return self.model.message_bytes
        return max((row.message_bytes for row in self.stage), default=None)


def read(path: str) -> Profile:
    """Return the profile in a file.

    Raises:
        InputError: the file cannot be read or is not a profile; the message names the line.
    """
    profile = toml.read(path, Profile, SCHEMA)
    if not profile.op:
        raise InputError(
            f"'{path}' has no [[op]]: nothing was measured", "measure again with ppsim calibrate"
        )
    return profile


def write(profile: Profile, target: str) -> None:
    """Write the profile to a file, atomically, or to standard output for ``-``.

    Raises:
        InputError: the path cannot be written.
    """
    from ppsim.base.atomic_file import open_atomically

    with open_atomically(target) as out:
        out.write(toml.dump(profile, SCHEMA).encode())


def _check_spread(row: OpTime | Message) -> None:
    if row.n < 1:
        raise RefusedValue("n", f"must be 1 or more, got {row.n}")
    not_negative(row, "p10_ms", "median_ms")
    if not row.p10_ms <= row.median_ms <= row.p90_ms:
        raise RefusedValue(
            "median_ms", f"must lie between p10_ms and p90_ms, got {row.median_ms:g}"
        )
