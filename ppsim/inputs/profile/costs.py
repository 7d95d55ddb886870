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
# In ms, NaN where the profile has none: of shape (kinds that compute, stages); (stages,) of F and B
# issued together.
StageTimes = tuple[Times, Times]


def costs_from(
    profile: Profile,
    schedule: Schedule,
    *,
    first_stage_splits: bool = False,
    content: Sequence[str] | None = None,
) -> Costs:
    """Return the costs of a schedule on the profile's machine, in ms.

    The profile's layers are a device's 1/P share of the model, so a stage holds layers x P / S of
    them. The first stage adds the embedding, the last one the head and the loss. As in torch's
    pipelining runtime, the first stage's I does nothing and its W is the whole backward, unless
    ``first_stage_splits``; the stages of a trace cost what the trace shows. A full backward that
    was not measured costs its two halves. A message costs what the profile's activations cost on
    its first link, with the receive already posted.

    A layout's ``content``, the letters of each stage, says where layers, embedding and head are
    instead. An MTP layer counts as a layer, and a stage without layers costs what the profile
    measured for any action.

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
    knows_full = not np.isnan(time[Kind.B]).any()
    time = np.nan_to_num(time)
    if not first_stage_splits and not by_stage and knows_full:
        time[Kind.I, 0], time[Kind.W, 0] = 0.0, time[Kind.B, 0]
    measured = (
        None
        if np.isnan(pair).all()
        else np.where(np.isnan(pair), time[Kind.F] + time[Kind.B], pair)
    )
    return Costs(time=time, comm=message_ms(profile), pair=measured, unit="ms")


def message_ms(profile: Profile, size: int | None = None) -> float:
    """Return the latency in ms of a message of ``size`` bytes, by default the profile's
    activations; 0 if there are none.

    Between measured sizes it is interpolated in the logarithm of both. Beyond them the shape of the
    fitted line continues, of the nearest range where there are two, from the height of the
    outermost measured size. Where only one size was measured, a smaller message takes as long and a
    larger one longer in proportion: one size does not tell latency from bandwidth, and no message
    is cheaper than this.
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
    """Fit the time of ``kind`` over the number of layers: fixed cost per action, cost per layer;
    None unmeasured.
    """
    rows = sorted({op.layers: op.median_ms for op in _coldest(ops, "layers", kind)}.items())
    return (
        line_fit.fit_line(*zip(*rows, strict=True))
        if rows and all(ms > 0 for _, ms in rows)
        else None
    )


def _traced_times(profile: Profile, schedule: Schedule) -> StageTimes:
    """Look up each stage as the trace shows it; where the schedule has another number of stages,
    share them out.
    """
    stages = sorted({op.stage for op in profile.op if op.part == "stage"})
    if stages[-1] != len(stages) - 1:
        missing = next(i for i, stage in enumerate(stages) if i != stage)
        raise InputError(
            f"the profile shows nothing of stage {missing}", "make it from the trace of every rank"
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
    """Return each stage's times from its number of layers and the extras of the first and the last
    stage.
    """
    n = schedule.n_stages
    table = np.full((len(KINDS), n), np.nan)
    counts = [
        np.array([sum(map(held.count, letters)) for held in content or ()]) for letters in PLACED
    ]
    for row, kind in enumerate(KINDS):
        line = layer_line(profile.op, kind)
        if line is None or profile.model is None:
            continue
        layers = profile.model.layers
        measured = {op.layers: op.median_ms for op in _coldest(profile.op, "layers", kind)}
        # The line gives the shape; the measured point at the profile's own layers gives the height.
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
    """Put rows in the order of :data:`KINDS` in that of the kinds that compute."""
    time = np.full((len(COMPUTE), table.shape[1]), np.nan)
    for kind in COMPUTE:
        if kind.name in KINDS:
            time[kind] = table[KINDS.index(kind.name)]
    return time, table[KINDS.index("FB")]


def _refuse_missing(time: Times, schedule: Schedule) -> None:
    """Raise InputError if an op's kind has no time on its stage."""
    # times of copies and of shares of the vocabulary are options, given with a profile
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
    """Refuse to share out stages where some lack a kind of op that the schedule has."""
    needed = [kind.name for kind in COMPUTE if (schedule.kind == kind).any()]
    for kind in needed:
        row = np.isnan(table[KINDS.index(kind)]) if kind in KINDS else np.ones(1, bool)
        if row.any() and not row.all():
            _refuse(kind, int(row.argmax()), schedule)


def _refuse(kind: str, stage: int, schedule: Schedule) -> None:
    raise InputError(
        f"the profile has no time of {kind} on stage {stage}, which {schedule.name} needs",
        "trace a run in which every stage has that kind of op; I and W cannot be told "
        "from a full B",
    )


def _end_ms(profile: Profile, part: str, kind: str) -> float:
    return next((op.median_ms for op in _coldest(profile.op, part, kind)), 0.0)


def _coldest(ops: Iterable[OpTime], part: str, kind: str) -> list[OpTime]:
    """Select ops of one part and kind; those with cold caches where both were measured.

    In a pipeline, ops of other microbatches run in between, so cold is closer.
    """
    found = [op for op in ops if op.part == part and op.kind == kind and op.launch == "eager"]
    return [op for op in found if op.cache != "warm"] or found
