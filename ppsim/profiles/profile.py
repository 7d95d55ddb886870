"""The profile: what ops and messages cost on a machine, measured, with where the numbers come from.

A profile is a TOML file with ``schema = "ppsim.profile/1"``. Every time is in milliseconds and every size in
bytes, as the keys say; a measured time is the median of ``n`` runs with its 10th and 90th percentile.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ppsim.base import toml
from ppsim.base.toml import Refused
from ppsim.core.costs import Costs
from ppsim.core.ops import COMPUTE, Kind
from ppsim.core.schedule import Schedule
from ppsim.errors import InputError
from ppsim.profiles import line_fit

SCHEMA = "ppsim.profile/1"
ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
PARTS = ("layers", "embedding", "head", "stage")
KINDS = ("F", "B", "I", "W", "FB")
PATTERNS = ("early", "late", "ping-pong", "bidirectional", "batched", "all-reduce", "all-gather")
LINKS = ("same-host", "between-hosts", "host-staged")
NOT_A_LINK = "same-device"
INSTANT_MS = 1e-9


@dataclass(frozen=True)
class Provenance:
    """Where, when and how a profile was measured.

    Attributes:
        machine: operating system and architecture.
        cpu: the processor's name.
        cores: processors this process may use.
        threads: threads each device computed with.
        load: the machine's load average when the measuring began.
        device: what computed: the processor, or the GPU's name.
        clocks: clock rates, power, temperature and throttling as the machine reports them; never set.
        torch: its version.
        python: its version.
        ppsim: its version.
        date: when, ISO 8601 in UTC.
        command: the command line.
        note: anything a reader must know, such as other load on the machine.
    """

    machine: str
    cpu: str
    cores: int
    threads: int
    load: float
    device: str
    clocks: str
    torch: str
    python: str
    ppsim: str
    date: str
    command: str
    note: str = ""


@dataclass(frozen=True)
class Model:
    """The transformer that was measured.

    Attributes:
        hidden: width.
        heads: attention heads.
        sequence: tokens of one sample.
        microbatch_size: samples of one microbatch.
        layers: layers that one device holds, its 1/P share of the model.
        dtype: of parameters and activations.
        vocab: tokens of the vocabulary; 0 where embedding and head were not measured.
    """

    hidden: int
    heads: int
    sequence: int
    microbatch_size: int
    layers: int
    dtype: str
    vocab: int

    def __post_init__(self) -> None:
        for key in ("hidden", "heads", "sequence", "microbatch_size", "layers"):
            if getattr(self, key) < 1:
                raise Refused(key, f"must be 1 or more, got {getattr(self, key)}")
        if self.vocab < 0:
            raise Refused("vocab", f"must be 0 or more, got {self.vocab}")
        _one_of("dtype", self.dtype, ITEM_BYTES)

    @property
    def message_bytes(self) -> int:
        """Bytes that a stage sends to the next: one microbatch's activations."""
        return self.microbatch_size * self.sequence * self.hidden * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class OpTime:
    """How long one op takes.

    Attributes:
        part: ``layers`` (transformer layers), ``embedding``, ``head`` (norm, projection and loss), or
            ``stage`` (a whole stage, from a trace).
        kind: F, B, I, W, or FB: a forward and a full backward of two microbatches issued together.
        layers: transformer layers in the part; with none, what any action costs.
        stage: which stage, for part ``stage``; else -1.
        cache: ``cold`` (emptied before the op), ``warm``, or ``run`` (as a real run left it).
        host_ms: time the host needs to issue the op, where a GPU runs it; 0 on a CPU.
        launch: ``eager``, op by op of torch, or ``graph``: as one CUDA graph, measured where the eager row is
            launch-bound. Costs come from the eager rows, as a run is eager.
    """

    part: str
    kind: str
    layers: int
    median_ms: float
    p10_ms: float
    p90_ms: float
    n: int
    cache: str = "cold"
    stage: int = -1
    host_ms: float = 0.0
    launch: str = "eager"

    @property
    def launch_bound(self) -> bool:
        """Whether the GPU waited for the host."""
        return self.host_ms > self.median_ms

    def __post_init__(self) -> None:
        _one_of("launch", self.launch, ("eager", "graph"))
        _one_of("part", self.part, PARTS)
        _one_of("kind", self.kind, KINDS)
        _one_of("cache", self.cache, ("cold", "warm", "run"))
        _spread(self)


@dataclass(frozen=True)
class Message:
    """How long one message takes.

    Attributes:
        link: ``same-host``, ``between-hosts``, ``host-staged`` (through host memory), or ``same-device``: a copy
            within one device, a lower bound and never a link.
        pattern: ``early`` (the receiver waits already), ``late`` (the sender waits; from the receive on),
            ``ping-pong`` (half a round trip), ``bidirectional`` and ``batched`` (both ways at once; the latter by
            batch_isend_irecv), or a collective over all ranks: ``all-reduce``, ``all-gather``.
        send_ms: time the host spends in the send call; 0 where not measured.
        receive_ms: the same of the receive call.
    """

    link: str
    pattern: str
    bytes: int
    median_ms: float
    p10_ms: float
    p90_ms: float
    n: int
    send_ms: float = 0.0
    receive_ms: float = 0.0

    def __post_init__(self) -> None:
        _one_of("link", self.link, (*LINKS, NOT_A_LINK))
        _one_of("pattern", self.pattern, PATTERNS)
        if self.bytes < 1:
            raise Refused("bytes", f"must be 1 or more, got {self.bytes}")
        _spread(self)


@dataclass(frozen=True)
class Fit:
    """A message's time as a line, ``alpha_ms + ms_per_byte * bytes``, by relative error.

    Attributes:
        range: ``all``, or of two lines, where they describe the sizes better: ``eager``, that of small messages,
            or ``rendezvous``, that of large ones.
        through: ``median``, or ``p10`` where the medians show the scheduler rather than the link.
        low_bytes: smallest size fitted.
        high_bytes: largest size fitted.
        alpha_ms: the latency.
        ms_per_byte: the inverse bandwidth.
        median_residual: median relative error over the sizes.
        max_residual: the largest.
    """

    link: str
    pattern: str
    range: str
    through: str
    low_bytes: int
    high_bytes: int
    alpha_ms: float
    ms_per_byte: float
    median_residual: float
    max_residual: float

    def at(self, size: float) -> float:
        """The line's time for a message of ``size`` bytes, in ms."""
        return self.alpha_ms + self.ms_per_byte * size

    def covers(self, size: float) -> bool:
        """Whether it was fitted to sizes on both sides of ``size``, or to it."""
        return self.low_bytes <= size <= self.high_bytes


@dataclass(frozen=True)
class Activation:
    """Memory that one microbatch holds on a device between its ops.

    Attributes:
        part: as in :class:`OpTime`.
        layers: as in :class:`OpTime`.
        after_f_bytes: held after F, input and output included.
        after_i_bytes: held after I.
        after_w_bytes: held after W.
    """

    part: str
    layers: int
    after_f_bytes: int
    after_i_bytes: int
    after_w_bytes: int


@dataclass(frozen=True)
class Profile:
    """Measured costs; see the module's docstring."""

    provenance: Provenance
    model: Model | None = None
    op: tuple[OpTime, ...] = ()
    message: tuple[Message, ...] = ()
    fit: tuple[Fit, ...] = ()
    activation: tuple[Activation, ...] = ()


def read(path: str) -> Profile:
    """The profile in a file.

    Raises:
        InputError: the file cannot be read or is not a profile; the message names the line.
    """
    profile = toml.read(path, Profile, SCHEMA)
    if not profile.op:
        raise InputError(f"'{path}' has no [[op]]: nothing was measured", "measure again with ppsim calibrate")
    return profile


def write(profile: Profile, target: str) -> None:
    """Write the profile to a file, whole or not at all; standard output for ``-``.

    Raises:
        InputError: the path cannot be written.
    """
    from ppsim.base.atomic_file import opened

    with opened(target) as out:
        out.write(toml.dump(profile, SCHEMA).encode())


def costs_from(profile: Profile, schedule: Schedule, *, first_stage_splits: bool = False) -> Costs:
    """Costs of a schedule on the profile's machine, in ms.

    The profile's layers are a device's 1/P share of the model, so a stage holds layers x P / S of them. The
    first stage adds the embedding, the last one the head and the loss. As in torch's pipelining runtime, the
    first stage's I does nothing and its W is the whole backward, unless ``first_stage_splits``; the stages of a
    trace cost what the trace shows. A message
    costs what the profile's activations cost on its first link, with the receive already posted.

    Raises:
        InputError: the profile lacks a kind of op that the schedule has.
    """
    per_stage = {kind: _stage_times(profile, kind, schedule) for kind in KINDS}
    times = {kind: per_stage[kind.name] for kind in COMPUTE}
    full, half, weight = times[Kind.B], times[Kind.I], times[Kind.W]
    if full is None and half is not None and weight is not None:
        times[Kind.B] = full = half + weight
    for kind in np.unique(schedule.kind):
        if times.get(Kind(kind)) is None:
            raise InputError(f"the profile has no times of {Kind(kind).name}, which {schedule.name} needs")
    time = np.stack([np.zeros(schedule.n_stages) if row is None else row for row in times.values()])
    by_stage = any(op.part == "stage" for op in profile.op)
    if not first_stage_splits and full is not None and not by_stage:
        time[Kind.I, 0], time[Kind.W, 0] = 0.0, time[Kind.B, 0]
    pair = per_stage["FB"]
    return Costs(time=time, comm=message_ms(profile), pair=pair, unit="ms")


def message_ms(profile: Profile, size: int | None = None, pattern: str = "early") -> float:
    """Latency of a message of ``size`` bytes, by default the profile's activations; 0 without any measured.

    Between measured sizes it is interpolated in the logarithm of both; beyond them the fitted line continues, that
    of the nearest range where there are two.
    """
    found = [m for m in profile.message if m.pattern == pattern and m.link in LINKS]
    found = found or [m for m in profile.message if m.pattern == "ping-pong" and m.link in LINKS]
    if not found:
        return 0.0
    link = min((m.link for m in found), key=LINKS.index)
    rows = sorted((m.bytes, max(m.median_ms, INSTANT_MS)) for m in found if m.link == link)
    sizes, times = zip(*rows, strict=True)
    if size is None:
        size = profile.model.message_bytes if profile.model else int(np.median(sizes))
    if sizes[0] <= size <= sizes[-1] or len(rows) == 1:
        return float(np.exp(np.interp(np.log(size), np.log(sizes), np.log(times))))
    lines = [f for f in profile.fit if (f.link, f.pattern) == (link, found[0].pattern) and f.range != "all"]
    if lines:
        return (lines[0] if size < sizes[0] else lines[-1]).at(size)
    return line_fit.line(sizes, times).at(size)


def layer_line(ops: Iterable[OpTime], kind: str) -> line_fit.Line | None:
    """Time of ``kind`` over the number of layers: fixed cost per action and cost per layer; None unmeasured."""
    rows = sorted({op.layers: op.median_ms for op in _coldest(ops, "layers", kind)}.items())
    return line_fit.line(*zip(*rows, strict=True)) if rows and all(ms > 0 for _, ms in rows) else None


def _stage_times(profile: Profile, kind: str, schedule: Schedule) -> NDArray[np.float64] | None:
    """Shape (stages,): time of ``kind`` on each stage, None where the profile has none."""
    n = schedule.n_stages
    whole = {op.stage: op.median_ms for op in _coldest(profile.op, "stage", kind)}
    if whole:
        traced = 1 + max(op.stage for op in profile.op)
        given = np.array([whole.get(s, 0.0) for s in range(traced)])
        return given if traced == n else np.full(n, given.sum() / n)
    line = layer_line(profile.op, kind)
    if line is None or profile.model is None:
        return None
    layers = profile.model.layers
    measured = {op.layers: op.median_ms for op in _coldest(profile.op, "layers", kind)}
    # The line gives the shape; the measured point at the profile's own layers gives the height.
    height = measured.get(layers, line.at(layers)) / line.at(layers)
    times = np.full(n, height * line.at(layers * schedule.n_devices / n))
    for part, stage in (("embedding", 0), ("head", n - 1)):
        times[stage] += sum(_end_ms(profile, part, letter) for letter in ("FB" if kind == "FB" else kind))
    return times


def _end_ms(profile: Profile, part: str, kind: str) -> float:
    return next((op.median_ms for op in _coldest(profile.op, part, kind)), 0.0)


def _coldest(ops: Iterable[OpTime], part: str, kind: str) -> list[OpTime]:
    """Ops of one part and kind; those with cold caches where both were measured.

    In a pipeline, ops of other microbatches run in between, so cold is closer.
    """
    found = [op for op in ops if op.part == part and op.kind == kind and op.launch == "eager"]
    return [op for op in found if op.cache != "warm"] or found


def _one_of(key: str, value: str, allowed: Iterable[str]) -> None:
    if value not in allowed:
        raise Refused(key, f"must be one of {', '.join(allowed)}, got {value!r}")


def _spread(row: OpTime | Message) -> None:
    if row.median_ms < 0 or row.n < 1:
        key = "n" if row.n < 1 else "median_ms"
        raise Refused(key, f"must be {'1' if key == 'n' else '0'} or more, got {getattr(row, key)}")
    if not row.p10_ms <= row.median_ms <= row.p90_ms:
        raise Refused("median_ms", f"must lie between p10_ms and p90_ms, got {row.median_ms:g}")
