"""Costs of a schedule from a measured profile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ppsim.core.costs import Costs
from ppsim.core.ops import COMPUTE, Kind
from ppsim.core.schedule import Schedule
from ppsim.errors import InputError
from ppsim.inputs.profile import line_fit
from ppsim.inputs.profile.profile import KINDS, LINKS, OpTime, Profile

INSTANT_MS = 1e-9
PLACED = ("tm", "E", "L")  # letters of a layout: layers, the embedding, the head
Times = NDArray[np.float64]
# In ms, NaN if not in the profile: times of compute ops, shape (kinds, stages), and of F and B
# issued together, shape (stages,).
StageTimes = tuple[Times, Times]


def costs_from(
    profile: Profile,
    schedule: Schedule,
    *,
    first_stage_splits: bool = False,
    content: Sequence[str] | None = None,
) -> Costs:
    """Return the costs of a schedule on the profile's machine, in ms.

    The profile's layers are a device's 1/P share of the model, so a stage has layers x P / S
    layers. The first stage also has the embedding, the last one the head and the loss. As in
    torch's pipelining runtime, the first stage's I does nothing and its W is the whole backward,
    unless ``first_stage_splits``; with a trace, each stage has its time in the trace. A full
    backward that was not measured takes as long as I and W together. Every message takes as long as
    the profile's activations on its first link, with the receive already posted.

    ``content``, the letters of each stage in a layout, places layers, embedding and head
    differently. An MTP layer counts as a layer; a stage without layers takes the fixed time of an
    action.

    Raises:
        InputError: the profile lacks a kind of op that the schedule has, on all stages or on one.
    """
    by_stage = any(op.part == "stage" for op in profile.op)
    if by_stage and content is not None:
        raise InputError(
            "the profile has times of whole stages, none of layers", "--t-layer, or measure layers"
        )
    time, pair = (
        _traced_times(profile, schedule) if by_stage else _layered_times(profile, schedule, content)
    )
    full, half, weight = time[Kind.B], time[Kind.I], time[Kind.W]
    time[Kind.B] = np.where(np.isnan(full), half + weight, full)
    _refuse_missing(time, schedule)
    has_full = not np.isnan(time[Kind.B]).any()
    time = np.nan_to_num(time)
    if not first_stage_splits and not by_stage and has_full:
        time[Kind.I, 0], time[Kind.W, 0] = 0.0, time[Kind.B, 0]
    measured = (
        None
        if np.isnan(pair).all()
        else np.where(np.isnan(pair), time[Kind.F] + time[Kind.B], pair)
    )
    return Costs(time=time, comm=message_ms(profile), pair=measured, unit="ms")


def message_ms(profile: Profile, size: int | None = None) -> float:
    """Return the latency in ms of a message of ``size`` bytes, by default the profile's
    activations; 0 without measured messages.

    Between measured sizes, the logarithm of the time is interpolated over the logarithm of the
    size. Beyond them, the fitted line (of the nearest range) is scaled to the outermost measured
    size. If only one size was measured, latency and bandwidth cannot be separated: a smaller
    message takes as long, and a larger one takes longer in proportion to its size.
    """
    found = [m for m in profile.message if m.pattern == "early" and m.link in LINKS]
    found = found or [m for m in profile.message if m.pattern == "ping-pong" and m.link in LINKS]
    if not found:
        return 0.0
    link = min((m.link for m in found), key=LINKS.index)
    rows = sorted((m.bytes, max(m.median_ms, INSTANT_MS)) for m in found if m.link == link)
    sizes, times = zip(*rows, strict=True)
    if size is None:
        size = profile.message_bytes or int(np.median(sizes))
    if sizes[0] <= size <= sizes[-1]:
        return float(np.exp(np.interp(np.log(size), np.log(sizes), np.log(times))))
    if sizes[0] == sizes[-1]:
        return float(times[-1] * max(1.0, size / sizes[-1]))
    end = 0 if size < sizes[0] else -1
    lines = [
        f
        for f in profile.fit
        if (f.link, f.pattern) == (link, found[0].pattern) and f.range != "all"
    ]
    line = lines[end] if lines else line_fit.fit_line(sizes, times)
    height = line.time_at(sizes[end])
    return float(times[end] * line.time_at(size) / height) if height > 0 else float(times[end])


def layer_line(ops: Iterable[OpTime], kind: str) -> line_fit.Line | None:
    """Return the line of the time of ``kind`` over the number of layers, in ms; None if unmeasured.

    Its parameters are the fixed time of an action and the time per layer.
    """
    rows = sorted({op.layers: op.median_ms for op in _coldest(ops, "layers", kind)}.items())
    return (
        line_fit.fit_line(*zip(*rows, strict=True))
        if rows and all(ms > 0 for _, ms in rows)
        else None
    )


def _traced_times(profile: Profile, schedule: Schedule) -> StageTimes:
    """Return the times of each stage in a trace.

    For another number of stages, the sum is divided equally among the stages of the schedule.
    """
    stages = sorted({op.stage for op in profile.op if op.part == "stage"})
    if stages[-1] != len(stages) - 1:
        missing = next(i for i, stage in enumerate(stages) if i != stage)
        raise InputError(
            f"the profile has no stage {missing}", "make it from the traces of all ranks"
        )
    table = np.full((len(KINDS), len(stages)), np.nan)
    for row, kind in enumerate(KINDS):
        for op in _coldest(profile.op, "stage", kind):
            table[row, op.stage] = op.median_ms
    full, half, weight = (table[KINDS.index(kind)] for kind in "BIW")
    full[:] = np.where(np.isnan(full), half + weight, full)
    if len(stages) != schedule.n_stages:
        _refuse_uneven(table, schedule)
        table = np.repeat(
            table.sum(axis=1, keepdims=True) / schedule.n_stages, schedule.n_stages, axis=1
        )
    return _reorder_rows(table)


def _layered_times(
    profile: Profile, schedule: Schedule, content: Sequence[str] | None = None
) -> StageTimes:
    """Return the times of each stage, from its layers, its embedding and its head."""
    n = schedule.n_stages
    table = np.full((len(KINDS), n), np.nan)
    counts = [
        np.array([sum(map(stage.count, letters)) for stage in content or ()]) for letters in PLACED
    ]
    for row, kind in enumerate(KINDS):
        line = layer_line(profile.op, kind)
        if line is None or profile.model is None:
            continue
        layers = profile.model.layers
        measured = {op.layers: op.median_ms for op in _coldest(profile.op, "layers", kind)}
        # The line is scaled to the time measured with the number of layers of a device.
        height = measured.get(layers, line.time_at(layers)) / line.time_at(layers)
        ends = [
            sum(_end_ms(profile, part, letter) for letter in kind) for part in ("embedding", "head")
        ]
        if content is not None:
            times = line.alpha + line.slope * counts[0]
            table[row] = height * times + counts[1] * ends[0] + counts[2] * ends[1]
            continue
        table[row] = height * line.time_at(layers * schedule.n_devices / n)
        table[row, 0] += ends[0]
        table[row, n - 1] += ends[1]
    return _reorder_rows(table)


def _reorder_rows(table: Times) -> StageTimes:
    """Return rows in the order of :data:`KINDS` as rows in the order of :data:`COMPUTE`, and FB."""
    time = np.full((len(COMPUTE), table.shape[1]), np.nan)
    for kind in COMPUTE:
        if kind.name in KINDS:
            time[kind] = table[KINDS.index(kind.name)]
    return time, table[KINDS.index("FB")]


def _refuse_missing(time: Times, schedule: Schedule) -> None:
    """Raise InputError if an op's kind has no time on its stage."""
    # times of copies and of the split vocabulary are given by options, not by the profile
    schedule = schedule.compute_only
    kind, stage = np.divmod(
        np.unique(schedule.kind * np.int64(schedule.n_stages) + schedule.stage), schedule.n_stages
    )
    for k, s in zip(kind.tolist(), stage.tolist(), strict=True):
        if np.isnan(time[k]).all():
            raise InputError(
                f"the profile has no times of {Kind(k).name}, which {schedule.name} needs",
                "add them to the profile, or leave it out",
            )
        if np.isnan(time[k, s]):
            _refuse(Kind(k).name, s, schedule)


def _refuse_uneven(table: Times, schedule: Schedule) -> None:
    """Raise InputError if only some stages of a trace have a kind of op that the schedule has."""
    needed = [kind.name for kind in COMPUTE if (schedule.kind == kind).any()]
    for kind in needed:
        row = np.isnan(table[KINDS.index(kind)]) if kind in KINDS else np.ones(1, bool)
        if row.any() and not row.all():
            _refuse(kind, int(row.argmax()), schedule)


def _refuse(kind: str, stage: int, schedule: Schedule) -> None:
    raise InputError(
        f"the profile has no time of {kind} on stage {stage}, which {schedule.name} needs",
        "trace a run in which every stage has that kind of op; a full B does not give the times of "
        "I and W",
    )


def _end_ms(profile: Profile, part: str, kind: str) -> float:
    return next((op.median_ms for op in _coldest(profile.op, part, kind)), 0.0)


def _coldest(ops: Iterable[OpTime], part: str, kind: str) -> list[OpTime]:
    """Return the ops of one part and kind, those with cold caches if both were measured.

    In a pipeline, ops of other microbatches run in between, so cold caches are more realistic.
    """
    found = [op for op in ops if op.part == part and op.kind == kind and op.launch == "eager"]
    return [op for op in found if op.cache != "warm"] or found
