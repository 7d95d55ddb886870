"""The summary of a profile as text, and the differences of two profiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ppsim.base.numbers import format_number
from ppsim.base.units import format_size
from ppsim.inputs.profile.costs import layer_line, message_ms
from ppsim.inputs.profile.line_fit import relative_errors
from ppsim.inputs.profile.profile import (
    KINDS,
    PATTERNS,
    Activation,
    Fit,
    Message,
    OpTime,
    Profile,
    StageSize,
)

ALIKE = 1.05  # ratio of two times up to which they count as equal
NAMES = {
    "F": "forward",
    "B": "backward",
    "I": "backward for input",
    "W": "backward for weights",
    "FB": "pair F&B",
}


@dataclass(frozen=True)
class Difference:
    """A time that both profiles have."""

    name: str  # the op or message
    before_ms: float  # median in the first
    after_ms: float  # median in the second
    ratio: float  # after / before
    overlap: bool  # whether the ranges from the 10th to the 90th percentile overlap


@dataclass(frozen=True)
class Differences:
    """Differences of two profiles: settings (name -> before, after), times, and rows that only one
    of them has.
    """

    settings: dict[str, tuple[Any, Any]]
    times: tuple[Difference, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]


def summary(profile: Profile) -> dict[str, Any]:
    """Return the times in ms of a stage's ops and its message, and the ratio of I + W to B."""
    layers = profile.model.layers if profile.model else None
    whole = [
        op
        for op in profile.op
        if op.part == "layers" and op.layers == layers and op.launch == "eager"
    ]
    ops = {op.kind: op for op in whole if op.cache != "warm"}
    result: dict[str, Any] = {f"{kind}_ms": ops[kind].median_ms for kind in KINDS if kind in ops}
    if {"B", "I", "W"} <= ops.keys() and ops["B"].median_ms > 0:
        result["split_over_full"] = (ops["I"].median_ms + ops["W"].median_ms) / ops["B"].median_ms
    result["message_bytes"] = profile.message_bytes
    result["message_ms"] = message_ms(profile)
    fixed = layer_line(profile.op, "F")
    result["fixed_per_action_ms"] = fixed.alpha if fixed else None
    return result


def result_line(profile: Profile) -> str:
    """Return the summary on one line."""
    found = summary(profile)
    times = "  ".join(
        f"{kind} {found[f'{kind}_ms']:.3g} ms" for kind in KINDS if f"{kind}_ms" in found
    )
    return f"{times}  message {format_number(found['message_ms'])} ms"


def sentence(profile: Profile) -> str:
    """Return one sentence on the times of a stage's ops and of its message."""
    found = summary(profile)
    times = {kind: found[f"{kind}_ms"] for kind in KINDS if f"{kind}_ms" in found}
    stage = "a stage"
    if not times:  # the profile of a trace has times for each stage instead
        stages = [op for op in profile.op if op.part == "stage" and op.launch == "eager"]
        stage = "the slowest stage of each kind"
        times = {
            kind: max(op.median_ms for op in stages if op.kind == kind)
            for kind in KINDS
            if any(op.kind == kind for op in stages)
        }
    texts = [f"{NAMES[kind]} {time:.3g} ms" for kind, time in times.items()]
    split = (
        f"; I and W together {found['split_over_full']:.2f} times B"
        if "split_over_full" in found
        else ""
    )
    size = f" of {format_size(found['message_bytes'])}" if found["message_bytes"] else ""
    message = f"a message{size} {format_number(found['message_ms'])} ms"
    if not profile.message:
        message = "no message was measured"
    return f"{stage} takes {', '.join(texts)}{split}; {message}"


def op_rows(profile: Profile) -> list[tuple[str, ...]]:
    """Return the table of ops: name, median, 10th and 90th percentile in ms, count, and remarks."""
    flags = (
        "launch-bound" if op.launch_bound else "wide spread" * (op.p90_ms > 1.5 * op.p10_ms)
        for op in profile.op
    )
    return [
        (
            op_name(op),
            f"{op.median_ms:.3f}",
            f"{op.p10_ms:.3f}",
            f"{op.p90_ms:.3f}",
            str(op.n),
            flag,
        )
        for op, flag in zip(profile.op, flags, strict=True)
    ]


def message_rows(profile: Profile, link: str) -> tuple[list[str], list[list[str]]]:
    """Return patterns of a link's messages, and for each size a row of their medians in ms."""
    rows = [m for m in profile.message if m.link == link]
    patterns = [p for p in PATTERNS if any(m.pattern == p for m in rows)]
    median = {(m.bytes, m.pattern): f"{m.median_ms:.3f}" for m in rows}
    sizes = sorted({m.bytes for m in rows})
    return patterns, [
        [_size(size), *(median.get((size, p), "") for p in patterns)] for size in sizes
    ]


def heading(profile: Profile) -> Iterator[str]:
    """Yield lines on the measured model and the machine."""
    made, model = profile.provenance, profile.model
    yield (
        f"{made.device} on {made.cpu}, {made.cores} cores, load {made.load:g}, torch "
        f"{made.torch}, {made.date}"
    )
    if made.note:
        yield f"note: {made.note}"
    if model:
        yield (
            f"hidden {model.hidden}, heads {model.heads}, sequence {model.sequence}, microbatch "
            f"size {model.microbatch_size}, {model.layers} layer{'s' * (model.layers != 1)} a "
            f"device, {model.dtype}, vocabulary {model.vocab}"
        )


def lines(profile: Profile) -> Iterator[str]:
    """Yield lines on ratios of op times, and on the memory of a microbatch."""
    for kind in KINDS:
        if line := layer_line(profile.op, kind):
            yield (
                f"{kind}: {line.alpha:.3f} ms + {line.slope:.3f} ms a layer (off by at most "
                f"{line.max_residual:.0%})"
            )
    found = summary(profile)
    if "split_over_full" in found:
        yield f"I + W take {found['split_over_full']:.2f} x B"
    for row in profile.activation:
        part = f"{row.layers} layer{'s' * (row.layers != 1)}" if row.layers else row.part
        yield (
            f"activations of a microbatch, {part}: "
            f"{_memory_text(row, lambda size: f'{size / 2**20:.2f} MiB')}"
        )
    for stage in profile.stage:
        sends = f", sends {format_size(stage.message_bytes)}" if stage.message_bytes else ""
        yield (
            f"stage {stage.stage}: {stage.parameters} parameters; a microbatch holds "
            f"{_memory_text(stage, format_size)}{sends}"
        )


def _memory_text(row: Activation | StageSize, write: Callable[[int], str]) -> str:
    """Return the memory of a microbatch after each of its ops."""
    return ", ".join(
        f"{write(getattr(row, f'after_{kind.lower()}_bytes'))} after {kind}" for kind in "FIW"
    )


def fit_lines(profile: Profile) -> Iterator[str]:
    """Yield lines on the fitted times of messages."""
    together = relative_errors(profile.message, profile.fit)
    for fit in profile.fit:
        speed = (
            f" + bytes / {format_number(1e-6 / fit.ms_per_byte)} GB/s" if fit.ms_per_byte else ""
        )
        yield (
            f"{fit.link} {fit.pattern}, {_range(fit)}, {fit.through}: {fit.alpha_ms * 1e3:.0f} "
            f"us{speed}  (off by {fit.median_residual:.0%}, at most {fit.max_residual:.0%})"
        )
        if fit.range == "rendezvous" and (fit.link, fit.pattern) in together:
            middle, most = together[fit.link, fit.pattern]
            yield f"{fit.link} {fit.pattern}, both ranges: off by {middle:.0%}, at most {most:.0%}"


def differences(before: Profile, after: Profile) -> Differences:
    """Return the differences of two profiles."""
    old, new = _settings(before), _settings(after)
    changed = {k: (old.get(k), new.get(k)) for k in old | new if old.get(k) != new.get(k)}
    first, second = _times(before), _times(after)
    times = tuple(
        Difference(
            name,
            a.median_ms,
            b.median_ms,
            _ratio(a.median_ms, b.median_ms),
            a.p10_ms <= b.p90_ms and b.p10_ms <= a.p90_ms,
        )
        for name, a in first.items()
        if (b := second.get(name))
    )
    return Differences(
        changed, times, tuple(first.keys() - second.keys()), tuple(second.keys() - first.keys())
    )


def differing(found: Differences) -> list[Difference]:
    """Return the times that differ by more than the spread or 5 %, the largest change first."""
    rows = [row for row in found.times if not row.overlap or not 1 / ALIKE <= row.ratio <= ALIKE]
    return sorted(
        rows, key=lambda row: -abs(math.log(row.ratio)) if 0 < row.ratio < math.inf else -math.inf
    )


def _ratio(before: float, after: float) -> float:
    """Return ``after / before``: 1 if both are 0, infinity if only ``before`` is."""
    return after / before if before else 1.0 if after == 0 else math.inf


def _settings(profile: Profile) -> dict[str, Any]:
    return asdict(profile.provenance) | (asdict(profile.model) if profile.model else {})


def _times(profile: Profile) -> dict[str, OpTime | Message]:
    ops: dict[str, OpTime | Message] = {op_name(op): op for op in profile.op}
    return ops | {f"{m.link} {m.pattern} {_size(m.bytes)}": m for m in profile.message}


def op_name(op: OpTime) -> str:
    """Return the part, kind and cache state of a measured op: 2 layers F, cold."""
    part = {
        "layers": f"{op.layers} layer{'s' * (op.layers != 1)}",
        "stage": f"stage {op.stage}",
    }.get(op.part, op.part)
    return f"{part} {op.kind}, {op.cache}" + ", as a graph" * (op.launch == "graph")


def _size(size: int) -> str:
    unit = 0
    while size >= 1024 and size % 1024 == 0 and unit < 3:
        size, unit = size // 1024, unit + 1
    return f"{size} {('B', 'KiB', 'MiB', 'GiB')[unit]}"


def _range(fit: Fit) -> str:
    if fit.range == "all":
        return "all sizes"
    return f"{fit.range} sizes, {_size(fit.low_bytes)} to {_size(fit.high_bytes)}"
