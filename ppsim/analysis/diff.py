"""The difference of two runs' times by cause, device and op.

At every instant a device either runs an op of some kind or is idle for one cause, so the *terms* of
a device (time by kind, idle time by cause) sum to the makespan. The difference of two runs is the
difference of their terms, averaged over each run's devices. It sums to the difference of the
makespans, for any schedules and numbers of devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.analysis.idle import CAUSES, NAMES, Idle
from ppsim.analysis.observed import previous_op_ends
from ppsim.base.numbers import format_change, format_part
from ppsim.base.times import MICROSECONDS
from ppsim.core.lanes import refuse_lanes
from ppsim.core.ops import COMPUTE
from ppsim.core.schedule import NONE, Schedule
from ppsim.core.timeline import Timeline
from ppsim.errors import InputError

SCHEMA = "ppsim.diff/1"
PAIR = "pair"
WORK = (*(kind.name for kind in COMPUTE), PAIR)
TERMS = (*WORK, *NAMES)
MEANINGS = {kind.name: kind.info.name for kind in COMPUTE} | {PAIR: "two ops run as one"} | CAUSES
NEGLIGIBLE = 1e-9  # share of the longer makespan below which a difference is due to rounding
SAID = 3  # number of terms in the closing sentence

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Difference:
    """The difference of two runs."""

    # the idle times of both runs, with their timelines, in one unit
    runs: tuple[Idle, Idle]
    # for each run, shape (devices, terms): the time of each device in each of ``TERMS``; rows sum
    # to the makespan
    terms: tuple[Floats, Floats]
    # shape (ops, 2), indices of the ops that both runs have, in the first one's order
    ops: NDArray[np.int64]

    @property
    def makespans(self) -> tuple[float, float]:
        """The makespan of each run."""
        return self.runs[0].timeline.makespan, self.runs[1].timeline.makespan

    @property
    def means(self) -> tuple[Floats, Floats]:
        """For each run, shape (terms,): the terms averaged over its devices."""
        return self.terms[0].mean(axis=0), self.terms[1].mean(axis=0)

    @property
    def by_cause(self) -> dict[str, float]:
        """Second minus first by term; the values sum to the difference of the makespans."""
        first, second = self.means
        shown = np.flatnonzero((first != 0) | (second != 0))
        return {TERMS[term]: float(second[term] - first[term]) for term in shown}

    @property
    def by_device(self) -> Floats | None:
        """Shape (devices, terms): second minus first; None if numbers of devices differ."""
        first, second = self.terms
        return second - first if len(first) == len(second) else None

    @property
    def duration_change(self) -> Floats:
        """Shape (ops,): the change of each op's duration in the second run."""
        first, second = (self._duration(run) for run in (0, 1))
        return second - first

    @property
    def start_change(self) -> Floats:
        """Shape (ops,): the change of each op's start in the second run."""
        first, second = (self.runs[run].timeline.start[self.ops[:, run]] for run in (0, 1))
        return second - first

    def _duration(self, run: int) -> Floats:
        timeline, op = self.runs[run].timeline, self.ops[:, run]
        return timeline.end[op] - timeline.start[op]


def difference(first: Idle, second: Idle) -> Difference:
    """Return the difference of two runs, with times in the unit of the first.

    Raises:
        InputError: the units cannot be converted, or a run has several streams.
    """
    for run in (first, second):
        refuse_lanes(run.timeline.schedule, "a difference of two runs")
    second = convert_unit(second, first.timeline.unit)
    schedules = first.timeline.schedule, second.timeline.schedule
    return Difference((first, second), (terms_of(first), terms_of(second)), match_ops(*schedules))


def convert_unit(idle: Idle, unit: str) -> Idle:
    """Return the same run in another unit of time (InputError: not units of time)."""
    timeline = idle.timeline
    if timeline.unit == unit:
        return idle
    if not {timeline.unit, unit} <= MICROSECONDS.keys():
        raise InputError(
            f"times in {unit} and in {timeline.unit} cannot be compared",
            "give both runs costs in one unit, such as --tf 2.5 --unit ms, or --profile",
        )
    factor = MICROSECONDS[timeline.unit] / MICROSECONDS[unit]
    times = {name: getattr(timeline, name) * factor for name in ("start", "end", "finish")}
    return replace(
        idle,
        timeline=replace(timeline, unit=unit, comm=None, **times),
        start=idle.start * factor,
        end=idle.end * factor,
    )


def terms_of(idle: Idle) -> Floats:
    """Return each device's time in each of ``TERMS``, shape (devices, terms)."""
    timeline = idle.timeline
    schedule = timeline.schedule
    time = busy_time(timeline)
    term = np.where(schedule.pair != NONE, len(COMPUTE), schedule.kind).astype(np.int64)
    place = schedule.device * np.int64(len(WORK)) + term
    work = np.bincount(place, time, schedule.n_devices * len(WORK)).reshape(
        schedule.n_devices, len(WORK)
    )
    return np.concatenate([work, idle.by_device], axis=1)


def busy_time(timeline: Timeline) -> Floats:
    """Return the time for which each op occupies its device, shape (ops,).

    An overlap counts once, and the second op of a pair 0.
    """
    time = np.maximum(timeline.end - np.maximum(timeline.start, previous_op_ends(timeline)), 0.0)
    time[timeline.schedule.second_of_pairs] = 0.0
    return time


def match_ops(first: Schedule, second: Schedule) -> NDArray[np.int64]:
    """Return the indices of equal ops (kind, stage, microbatch) in both schedules, shape (ops, 2).

    Empty if the numbers of stages differ, as stages with the same number then have different work.
    """
    stages = first.n_stages
    if stages != second.n_stages:
        return np.empty((0, 2), np.int64)
    microbatches = max(first.n_microbatches, second.n_microbatches)
    keys = [
        (schedule.kind.astype(np.int64) * stages + schedule.stage) * microbatches
        + schedule.microbatch
        for schedule in (first, second)
    ]
    _, left, right = np.intersect1d(keys[0], keys[1], assume_unique=True, return_indices=True)
    order = np.argsort(left)
    return np.stack([left[order], right[order]], axis=1).astype(np.int64)


def largest(change: Floats, count: int, least: float) -> list[int]:
    """Return the indices of the ``count`` largest changes in either direction above ``least``."""
    order = np.argsort(-np.abs(change), kind="stable")[:count]
    return [int(op) for op in order if abs(change[op]) > least]


def stage_changes(found: Difference) -> list[tuple[str, float, float]]:
    """Return kinds of op by stage whose mean time differs, with both times, largest first."""
    schedule = found.runs[0].timeline.schedule
    op = found.ops[:, 0]
    group = schedule.kind[op].astype(np.int64) * schedule.n_stages + schedule.stage[op]
    least = NEGLIGIBLE * max(found.makespans)
    rows = []
    for each in np.unique(group).tolist():
        kind, stage = divmod(each, schedule.n_stages)
        alike = group == each
        first, second = (float(found._duration(run)[alike].mean()) for run in (0, 1))
        if abs(second - first) > least:
            rows.append((f"{COMPUTE[kind].name} of stage {stage}", first, second))
    return sorted(rows, key=lambda row: -abs(row[2] - row[1]))


def closing(found: Difference, names: Sequence[str]) -> str:
    """Return one sentence: the difference, and its main terms: ops, or causes of idle time."""
    first, second = found.makespans
    gap, unit = second - first, found.runs[0].timeline.unit
    least = NEGLIGIBLE * max(first, second)
    changes = found.by_cause
    causes = {name: change for name, change in changes.items() if name not in WORK}
    causes["ops"] = sum(change for name, change in changes.items() if name in WORK)
    terms = sorted(causes.items(), key=lambda pair: -abs(pair[1]))
    parts = [
        f"{name} {signed_part(change, found)}"
        for name, change in terms[:SAID]
        if abs(change) > least
    ]
    where = f", per device on average: {', '.join(parts)}" if parts else ""
    if abs(gap) <= least:
        return f"{names[1]} takes as long as {names[0]}{where}"
    word = "longer" if gap > 0 else "shorter"
    share = f" ({format_change(gap / first)})" if first else ""
    return (
        f"{names[1]} is {format_part(abs(gap), max(first, second))} {unit} {word} than "
        f"{names[0]}{share}{where}"
    )


def signed_part(change: float, found: Difference) -> str:
    """Return a difference as text with its sign, to the makespan's significant digits."""
    text = format_part(change, max(found.makespans))
    return f"+{text}" if change > 0 and text != "0" else text


def diff_object(
    found: Difference, names: Sequence[str], inputs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the object of ``--json``, schema ``ppsim.diff/1``; changes are second minus first."""
    schedule, ops = found.runs[0].timeline.schedule, found.ops
    first, second = found.makespans
    by_device = found.by_device
    shown = [term for term, name in enumerate(TERMS) if name in found.by_cause]
    return {
        "schema": SCHEMA,
        "inputs": dict(inputs),
        "unit": found.runs[0].timeline.unit,
        "runs": [_run_object(idle, name) for idle, name in zip(found.runs, names, strict=True)],
        "makespan": [first, second],
        "difference": second - first,
        "by_cause": [{TERMS[term]: float(mean[term]) for term in shown} for mean in found.means],
        "difference_by_cause": found.by_cause,
        "difference_by_device": None
        if by_device is None
        else {TERMS[t]: by_device[:, t].tolist() for t in shown},
        "ops": {
            "op": [schedule.label(op) for op in ops[:, 0].tolist()],
            "device": [
                run.timeline.schedule.device[ops[:, n]].tolist() for n, run in enumerate(found.runs)
            ],
            "duration_change": found.duration_change.tolist(),
            "start_change": found.start_change.tolist(),
        },
        "closing": closing(found, names),
    }


def _run_object(idle: Idle, name: str) -> dict[str, Any]:
    schedule = idle.timeline.schedule
    return {
        "name": name,
        "schedule": schedule.name,
        "devices": schedule.n_devices,
        "stages": schedule.n_stages,
        "microbatches": schedule.whole_microbatches,
        "ops": len(schedule),
        "idle": float(idle.by_device.sum()),
    }
