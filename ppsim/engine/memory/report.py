"""The report of ``ppsim memory``: bars over time, devices over a cap, the JSON object."""

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

    timeline: Timeline
    model: MemoryModel  # of the stages
    curve: Curve  # each device's memory over time
    peaks: list[Peak]  # by device
    cap: float | tuple[float, ...] | None = None  # memory cap of all devices, or of each
    # with data-parallel replicas of different microbatches: the number of this replica, and the
    # peaks of all devices, shape (replicas, devices)
    replica: int | None = None
    peaks_of_replicas: NDArray[np.float64] | None = None

    @property
    def fullest(self) -> Peak:
        """The largest peak of any device."""
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
        """The cap of all devices; None if caps differ, or without a cap."""
        return None if isinstance(self.cap, tuple) else self.cap

    @property
    def device_caps(self) -> tuple[float, ...]:
        """The cap of each device if caps differ; else empty."""
        return self.cap if isinstance(self.cap, tuple) else ()

    @property
    def least_spare(self) -> tuple[float, Peak]:
        """The smallest margin of a device below its cap, negative above it, and its peak."""
        return min(
            ((self.cap_of(p.device) - p.value, p) for p in self.peaks),
            key=lambda pair: pair[0],
        )

    def label(self, op: int) -> str:
        """Return an op's label, or ``the start`` for the time before the first op."""
        return "the start" if op == NONE else self.timeline.schedule.label(op)


@dataclass(frozen=True)
class Excess:
    """A device that exceeds its cap."""

    device: int
    time: float  # at which it first exceeds the cap
    op: int  # the op that runs then
    excess: float  # of its peak over the cap


def report(
    timeline: Timeline, model: MemoryModel, cap: float | tuple[float, ...] | None = None
) -> MemoryReport:
    """Return the memory report of a timeline."""
    return MemoryReport(timeline, model, curves(timeline, model), peaks(timeline, model), cap)


def report_replicas(
    runs: Iterable[tuple[Timeline, MemoryModel]], cap: float | tuple[float, ...] | None = None
) -> MemoryReport:
    """Return the report of the replica nearest to, or furthest above, its cap.

    Without a cap, it is the fullest replica.

    Args:
        runs: the timeline and memory model of each data-parallel replica.
        cap: the memory cap of all devices, or of each.
    """
    found = list[MemoryReport]()
    for timeline, model in runs:
        found.append(report(timeline, model, cap))
    spare = [each.least_spare[0] if cap else -each.fullest.value for each in found]
    worst = spare.index(min(spare))
    peaks = np.array([[peak.value for peak in each.peaks] for each in found], np.float64)
    return replace(found[worst], replica=worst, peaks_of_replicas=peaks)


def find_excess(report: MemoryReport, peak: Peak) -> Excess:
    """Return the first time at which the device of a peak exceeds its cap, and the excess."""
    cap = report.cap_of(peak.device)
    time, value = steps(report.curve, peak.device)
    first = float(time[np.argmax(value > cap)])
    return Excess(peak.device, first, op_at(report.timeline, peak.device, first), peak.value - cap)


def columns(curve: Curve, device: int, span: float, count: int) -> NDArray[np.float64]:
    """Return a device's largest value in each of ``count`` equal parts of the time to ``span``."""
    time, value = steps(curve, device)
    edges = np.linspace(0, span, count + 1)
    first = np.maximum(np.searchsorted(time, edges[:-1] * (1 + 1e-12), "right") - 1, 0)
    last = np.maximum(np.searchsorted(time, edges[1:] * (1 - 1e-12), "left"), first + 1)
    return np.maximum.reduceat(np.append(value, 0.0), np.stack((first, last), 1).ravel())[::2]


def bars(curve: Curve, device: int, span: float, count: int, levels: str = LEVELS) -> str:
    """Return a device's curve as ``count`` characters, each for the largest value in its time.

    ``levels`` are the characters from 0 to the largest peak of all devices.
    """
    share = columns(curve, device, span, count) / (curve.peak.max() or 1.0)
    return "".join(levels[int(n)] for n in np.ceil(share * (len(levels) - 1) - 1e-9))


def memory_object(
    report: MemoryReport, inputs: Mapping[str, Any], nearest: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the object of ``ppsim memory --json``, schema ``ppsim.memory/1``.

    ``peak``, ``peak_time``, ``peak_op`` and each list of ``static`` and ``parts`` have one entry
    per device. The ``parts`` of a device, including static memory, sum to its peak. ``curve`` has
    columns device, time, value.
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
    """Return the reported replica, and the peaks of all replicas; empty without replicas."""
    if report.peaks_of_replicas is None:
        return {}
    return {"replica": report.replica, "peak_of_replicas": report.peaks_of_replicas.tolist()}
