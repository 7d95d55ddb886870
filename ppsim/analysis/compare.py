"""Comparison of schedules on the same devices: times, memory, and reasons not to apply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ppsim.analysis.tradeoff import front
from ppsim.base.numbers import format_number, with_unit
from ppsim.core.execution import Execution
from ppsim.core.timeline import Timeline
from ppsim.engine.simple.columns import Column, columns_of, peak_share, shape_of, size_object
from ppsim.engine.simple.metrics import Metrics
from ppsim.errors import PpsimError


@dataclass(frozen=True)
class Row:
    """One schedule of a comparison."""

    name: str  # as the user gave it
    timeline: Timeline | None = None  # None if the schedule does not apply
    metrics: Metrics | None = None  # None if the schedule does not apply
    refused: PpsimError | None = None  # the error if it does not apply
    execution: Execution | None = None  # of the detailed model
    # largest excess of a device over its cap, at most 0 if all fit; None without a cap
    excess: float | None = None

    @property
    def reason(self) -> str:
        """Why it does not apply, with what to try in brackets; empty where it does."""
        if self.refused is None:
            return ""
        hint = f" ({self.refused.hint})" if self.refused.hint else ""
        return f"{self.refused}{hint}"

    @property
    def fits(self) -> bool:
        """Whether the schedule applies and every device stays within the cap."""
        return self.metrics is not None and (self.excess is None or self.excess <= 0)

    @property
    def makespan(self) -> float:
        """End of the last op; infinite if the schedule does not apply."""
        return self.metrics.makespan if self.metrics else float("inf")

    @property
    def measured(self) -> tuple[Metrics, Timeline] | None:
        """Metrics and timeline; None if the schedule does not apply."""
        if not self.metrics:
            return None
        assert self.timeline, "metrics without a timeline"
        return self.metrics, self.timeline

    @property
    def peak(self) -> float:
        """Peak activations in microbatches of a device's 1/P share of the model."""
        return (
            peak_share(found[0], shape_of(found[1].schedule))
            if (found := self.measured)
            else float("nan")
        )

    def value(self, column: Column) -> float:
        """Return a number of the run; NaN if the schedule does not apply."""
        return (
            column.value(found[0], shape_of(found[1].schedule))
            if (found := self.measured)
            else float("nan")
        )


def mark_front(rows: Sequence[Row]) -> list[bool]:
    """Return which rows are on the Pareto front of time and peak among those that fit the cap."""
    times = compared_times(rows)
    return _mark([(t, r.peak) if r.fits else None for t, r in zip(times, rows, strict=True)])


def compared_times(rows: Sequence[Row]) -> list[float]:
    """Return the time of each row: periods if all schedules that apply go round, else makespans.

    It is infinite if a schedule does not apply.
    """
    around = [r.metrics.round if r.metrics else None for r in rows]
    if all(found for found, r in zip(around, rows, strict=True) if r.metrics):
        return [found.period if found else float("inf") for found in around]
    return [r.makespan for r in rows]


def _mark(points: Sequence[tuple[float, float] | None]) -> list[bool]:
    best = iter(front(np.array([point for point in points if point]).reshape(-1, 2)))
    return [bool(next(best)) if point else False for point in points]


def conclude(rows: Sequence[Row], gain: str = "") -> str:
    """Return one sentence: the fastest schedule that fits, against the first or second fastest.

    ``gain`` are words on the gain of the first of :func:`compared_two` over the second.
    """
    timed = [r for r in rows if r.fits]
    over = [r.name for r in rows if r.metrics and not r.fits]
    if not timed:
        return f"none fits the cap: {', '.join(over)}"
    parts = [_conclude_timed(timed), gain, f"over the cap: {', '.join(over)}" if over else ""]
    return "; ".join(part for part in parts if part)


def compared_two(rows: Sequence[Row]) -> tuple[Row, Row] | None:
    """Return the two schedules that :func:`conclude` compares, the fastest that fits first.

    None if fewer than two fit, and for rounds, which are compared by rate.
    """
    timed = [r for r in rows if r.fits]
    if len(timed) < 2 or all(r.metrics and r.metrics.round for r in timed):
        return None
    best = min(timed, key=lambda r: (r.makespan, r.peak))
    if best is not timed[0]:
        return best, timed[0]
    return best, min(timed[1:], key=lambda r: (r.makespan, r.peak))


def _conclude_timed(timed: Sequence[Row]) -> str:
    if all(r.metrics and r.metrics.round for r in timed):
        return _conclude_rounds(timed)
    two = compared_two(timed)
    if two is None:
        only_one = timed[0]
        unit = only_one.timeline.unit if only_one.timeline else ""
        time = f"{format_number(only_one.makespan)} {unit}".rstrip()
        only = "the only one that applies" if only_one.excess is None else "the only one that fits"
        return f"{only_one.name} takes {time}, {only}"
    best, other = two
    memory = best.peak / other.peak if other.peak else 1.0
    held = (
        "the same peak activations"
        if abs(memory - 1) < 1e-9
        else f"{memory:.2g} times the peak activations"
    )
    if other.peak and not best.peak:
        held = "no activations held"
    unit = best.timeline.unit if best.timeline else ""
    least, most = format_number(best.makespan), f"{format_number(other.makespan)} {unit}".rstrip()
    if best.makespan == other.makespan:
        return f"{best.name} takes as long as {other.name}, {most}, with {held}"
    if not best.makespan:
        return f"{best.name} takes no time and {other.name} takes {most}, with {held}"
    faster = f"{other.makespan / best.makespan:.2f} times faster than {other.name}"
    return f"{best.name} is {faster} ({least} against {most}), with {held}"


def _conclude_rounds(timed: Sequence[Row]) -> str:
    """Return one sentence that compares the rates of schedules that go round."""
    rates = {r.name: r.metrics.round.rate for r in timed if r.metrics and r.metrics.round}
    best = max(rates, key=lambda name: rates[name])
    counts = next(r.metrics.round.counts for r in timed if r.metrics and r.metrics.round)
    unit = next(r.timeline.unit for r in timed if r.timeline)

    def rate(name: str) -> str:
        return f"{with_unit(format_number(rates[name]), counts)} per {unit}"

    if len(rates) == 1:
        only = "the only one that applies" if timed[0].excess is None else "the only one that fits"
        return f"{best} has a rate of {rate(best)}, {only}"
    first = timed[0].name
    other = (
        first
        if best != first
        else max((name for name in rates if name != best), key=lambda name: rates[name])
    )
    if rates[best] == rates[other]:
        return f"{best} has the same rate as {other}, {rate(best)}"
    times = f"{rates[best] / rates[other]:.2f} times the rate of {other}"
    return f"{best} has {times} ({format_number(rates[best])} against {rate(other)})"


def compare_object(rows: Sequence[Row], inputs: Mapping[str, Any], closing: str) -> dict[str, Any]:
    """Return the object of ``ppsim compare --json``, schema ``ppsim.compare/1``.

    Schedules that do not apply have a reason; ``closing`` is the verdict (:func:`conclude`).
    """
    return {
        "schema": "ppsim.compare/1",
        "inputs": dict(inputs),
        "schedules": [
            row_object(r, "rows") | {"pareto": best}
            for r, best in zip(rows, mark_front(rows), strict=True)
        ],
        "closing": closing,
    }


def mark_shapes(rows: Sequence[Mapping[str, Any]]) -> list[bool]:
    """Return which rows of a sweep are on the Pareto front of time per microbatch and peak.

    Only rows with the same number of devices are compared, as 1/P of the model depends on it. Rows
    that exceed the cap are on no front.
    """
    fronts = [False] * len(rows)
    places: dict[int, list[int]] = {}
    for place, row in enumerate(rows):
        if row["applies"] and row.get("fits", True):
            places.setdefault(row["devices"], []).append(place)
    for group in places.values():
        points = [
            (rows[place]["makespan_per_mb"], rows[place]["peak_activations_share"])
            for place in group
        ]
        for place, best in zip(group, _mark(points), strict=True):
            fronts[place] = best
    return fronts


def sweep_object(rows: Sequence[Mapping[str, Any]], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object of ``ppsim sweep --json``, schema ``ppsim.sweep/1``: one row per shape."""
    shapes = [{**row, "pareto": best} for row, best in zip(rows, mark_shapes(rows), strict=True)]
    return {"schema": "ppsim.sweep/1", "inputs": dict(inputs), "shapes": shapes}


def row_object(r: Row, *places: str) -> dict[str, Any]:
    """Return one schedule for JSON, with the numbers that these places show."""
    if r.measured is None:
        return {"name": r.name, "applies": False, "reason": r.reason}
    metrics, timeline = r.measured
    shape = shape_of(timeline.schedule)
    return {
        "name": r.name,
        "applies": True,
        **size_object(timeline.schedule),
        "unit": timeline.unit,
        **{
            column.key: column.json(metrics, shape)
            for place in places
            for column in columns_of(place)
            if column.applies(metrics)
        },
        **({} if r.excess is None else {"fits": r.fits, "excess": max(r.excess, 0.0)}),
    }
