"""Correct devices' clocks where a run shows that they disagree: where ops start before their inputs
were made.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ppsim.core.schedule import Schedule
from ppsim.real.traces.run import RealRun, Times


def align_clocks(observed: RealRun) -> RealRun:
    """Subtract the lead of each device's clock from its times, where messages would arrive before
    they were sent.

    A message takes as long in both directions, so of two neighbours half the difference of their
    least latencies is that of their clocks. Runs whose clocks agree stay as they are, and so do
    those whose clocks cannot be compared.
    """
    schedule = observed.schedule
    least = least_latencies(schedule, observed.start, observed.end)
    if not (least < 0).any():
        return observed
    offset = offset_of(least)
    if offset is None:
        return replace(
            observed,
            notes=(
                *observed.notes,
                "clocks disagree: some ops start before their inputs were made",
            ),
        )
    shift = offset[schedule.device]
    moved = {
        name: getattr(observed, name) - shift for name in ("start", "end", "posted", "arrival")
    }
    first = moved["start"].min(axis=1, keepdims=True)
    moved = {name: times - first for name, times in moved.items()}
    most = float(np.abs(offset - np.median(offset)).max())
    note = (
        f"clocks were corrected by up to {most:.3g} {observed.unit}, from the latencies in both "
        f"directions"
    )
    return replace(observed, **moved, offset=offset, notes=(*observed.notes, note))


def offset_of(least: Times) -> Times | None:
    """Return each clock's lead over device 0's, from the least latencies by source and target; None
    if some are unknown.
    """
    offset = np.full(len(least), np.nan)
    offset[0] = 0.0
    reached = [0]
    for one in reached:
        for other in np.flatnonzero(np.isnan(offset)).tolist():
            if not np.isnan(least[one, other] + least[other, one]):
                offset[other] = offset[one] + (least[one, other] - least[other, one]) / 2
                reached.append(other)
    return None if np.isnan(offset).any() else offset


def least_latencies(schedule: Schedule, start: Times, end: Times) -> Times:
    """Find the least time from the end of an op to the start of one that needs it, by source and
    target device.

    The median over the iterations; NaN where no message goes. Shape (devices, devices).
    """
    crossing = np.flatnonzero(schedule.crosses)
    needs = schedule.dependency[crossing]
    link = schedule.device[needs].astype(np.int64) * schedule.n_devices + schedule.device[crossing]
    took = start[:, crossing] - end[:, needs]
    least = np.full(schedule.n_devices**2, np.nan)
    for each in np.unique(link).tolist():
        least[each] = np.median(took[:, link == each].min(axis=1))
    return least.reshape(schedule.n_devices, schedule.n_devices)
