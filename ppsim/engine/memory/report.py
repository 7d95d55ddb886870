"""The report of ``ppsim memory``: bars over time, devices that exceed a cap and when, and the same
as one object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.core.curve import Curve
from ppsim.core.schedule import NONE
from ppsim.core.timeline import Timeline
from ppsim.engine.memory.usage import MemoryModel, Peak, curves, op_at, peaks, steps, sum_static
from ppsim.engine.simple.columns import size_object

LEVELS = " ▁▂▃▄▅▆▇█"
ASCII_LEVELS = " .:-=+*#@"


@dataclass(frozen=True)
class MemoryReport:
    """Memory of one timeline."""

    timeline: Timeline  # the timeline
    model: MemoryModel  # the memory model of its stages
    curve: Curve  # each device's memory over time
    peaks: list[Peak]  # each device's peak
    # the most a device may hold: one number, one for each device, or None
    cap: float | tuple[float, ...] | None = None
    # with data-parallel replicas of different microbatches: the number of this one, and the peak of
    # each device of each, shape (replicas, devices)
    replica: int | None = None
    peaks_of_replicas: NDArray[np.float64] | None = None

    @property
    def fullest(self) -> Peak:
        """The largest peak of all devices."""
        return max(self.peaks, key=lambda peak: peak.value)

    @property
    def exceeding(self) -> list[Peak]:
        """Peaks of the devices that exceed the cap, the largest first."""
        over = [peak for peak in self.peaks if peak.value > self.cap_of(peak.device)]
        return sorted(over, key=lambda peak: -peak.value)

    def cap_of(self, device: int) -> float:
        """Return the memory cap of a device; infinite without a cap."""
        if self.cap is None:
            return float("inf")
        return self.cap[device] if isinstance(self.cap, tuple) else self.cap

    @property
    def common_cap(self) -> float | None:
        """The cap that all devices share; None if caps differ."""
        return None if isinstance(self.cap, tuple) else self.cap

    @property
    def device_caps(self) -> tuple[float, ...]:
        """The cap of each device where they have different ones; empty where they share one."""
        return self.cap if isinstance(self.cap, tuple) else ()

    @property
    def least_spare(self) -> tuple[float, Peak]:
        """The smallest free memory of a device below its cap, negative above it, and that device's
        peak.
        """
        return min(
            ((self.cap_of(p.device) - p.value, p) for p in self.peaks),
            key=lambda pair: pair[0],
        )

    def label(self, op: int) -> str:
        """Return the op's text form, or words for the time before the first op."""
        return "the start" if op == NONE else self.timeline.schedule.label(op)


@dataclass(frozen=True)
class Excess:
    """The first time that a device exceeds the cap, the op that runs then, and the excess of its
    peak.
    """

    device: int
    time: float
    op: int
    excess: float


def report(
    timeline: Timeline, model: MemoryModel, cap: float | tuple[float, ...] | None = None
) -> MemoryReport:
    """Compute the curves and peaks of a timeline."""
    return MemoryReport(timeline, model, curves(timeline, model), peaks(timeline, model), cap)


def report_replicas(
    runs: Iterable[tuple[Timeline, MemoryModel]], cap: float | tuple[float, ...] | None = None
) -> MemoryReport:
    """Report the replica nearest to its cap, or furthest above it, without a cap the fullest.

    Args:
        runs: the timeline of each data-parallel replica, with what its stages hold.
        cap: the most a device may hold.
    """
    found = list[MemoryReport]()
    for timeline, model in runs:
        found.append(report(timeline, model, cap))
    spare = [each.least_spare[0] if cap else -each.fullest.value for each in found]
    worst = spare.index(min(spare))
    peaks = np.array([[peak.value for peak in each.peaks] for each in found], np.float64)
    return replace(found[worst], replica=worst, peaks_of_replicas=peaks)


def find_excess(report: MemoryReport, peak: Peak) -> Excess:
    """Find when the device of a peak above the cap first exceeds it."""
    cap = report.cap_of(peak.device)
    time, value = steps(report.curve, peak.device)
    first = float(time[np.argmax(value > cap)])
    return Excess(peak.device, first, op_at(report.timeline, peak.device, first), peak.value - cap)


def columns(curve: Curve, device: int, span: float, count: int) -> NDArray[np.float64]:
    """Return the most that a device holds in each of ``count`` equal parts of the time up to
    ``span``.
    """
    time, value = steps(curve, device)
    edges = np.linspace(0, span, count + 1)
    first = np.maximum(np.searchsorted(time, edges[:-1] * (1 + 1e-12), "right") - 1, 0)
    last = np.maximum(np.searchsorted(time, edges[1:] * (1 - 1e-12), "left"), first + 1)
    return np.maximum.reduceat(np.append(value, 0.0), np.stack((first, last), 1).ravel())[::2]


def bars(curve: Curve, device: int, span: float, count: int, levels: str = LEVELS) -> str:
    """Draw a device's curve in ``count`` columns, as high as its maximum in that time; full height
    is the largest peak.

    ``levels`` are the signs of the heights, from none to full.
    """
    share = columns(curve, device, span, count) / (curve.peak.max() or 1.0)
    return "".join(levels[int(n)] for n in np.ceil(share * (len(levels) - 1) - 1e-9))


def memory_object(
    report: MemoryReport, inputs: Mapping[str, Any], nearest: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Make the object that ``ppsim memory --json`` prints, schema ``ppsim.memory/1``.

    ``peak``, ``peak_time``, ``peak_op`` and each list of ``static`` and ``parts`` have one entry
    per device; ``parts`` add up to the device's peak, static memory included. ``curve`` has columns
    device, time, value.
    """
    schedule, curve = report.timeline.schedule, report.curve
    over = [find_excess(report, peak) for peak in report.exceeding]
    return {
        "schema": "ppsim.memory/1",
        "inputs": dict(inputs),
        **size_object(schedule),
        "unit": curve.unit,
        "time_unit": report.timeline.unit,
        "makespan": report.timeline.makespan,
        "peak": [peak.value for peak in report.peaks],
        "peak_time": [peak.time for peak in report.peaks],
        "peak_op": [schedule.label(peak.op) if peak.op != NONE else None for peak in report.peaks],
        "static": {
            name: amount.tolist() for name, amount in sum_static(schedule, report.model).items()
        },
        "parts": {
            name: [peak.parts[name] for peak in report.peaks] for name in report.peaks[0].parts
        },
        **_replicas_object(report),
        "cap": report.cap,
        "fits": not over,
        "over": [
            {"device": p.device, "time": p.time, "op": report.label(p.op), "excess": p.excess}
            for p in over
        ],
        "nearest": list(nearest),
        "curve": {
            "device": np.repeat(np.arange(schedule.n_devices), np.diff(curve.offsets)),
            "time": curve.time,
            "value": curve.value,
        },
    }


def _replicas_object(report: MemoryReport) -> dict[str, Any]:
    """Return which replica is reported, and the peak of each device of each; empty for one."""
    if report.peaks_of_replicas is None:
        return {}
    return {"replica": report.replica, "peak_of_replicas": report.peaks_of_replicas.tolist()}
