"""Correction of devices' clocks in runs where ops start before their inputs were made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ppsim.core.schedule import Schedule
from ppsim.real.traces.run import RealRun, Times


def align_clocks(observed: RealRun) -> RealRun:
    """Return the run with the lead of each device's clock subtracted from its times.

    A message is assumed to take as long in both directions. The clocks of two neighbours then
    differ by half the difference of their least latencies. A run in which no message arrives before
    it is sent is returned unchanged, and so is one whose clocks cannot be compared.
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
    shifted = {
        name: getattr(observed, name) - shift for name in ("start", "end", "posted", "arrival")
    }
    first = shifted["start"].min(axis=1, keepdims=True)
    shifted = {name: times - first for name, times in shifted.items()}
    largest = float(np.abs(offset - np.median(offset)).max())
    note = (
        f"clocks were corrected by up to {largest:.3g} {observed.unit}, from the latencies in both "
        f"directions"
    )
    return replace(observed, **shifted, offset=offset, notes=(*observed.notes, note))


def offset_of(least: Times) -> Times | None:
    """Return each clock's lead over device 0's, or None if a lead is unknown.

    ``least`` are the least latencies by source and target, as of :func:`least_latencies`.
    """
    offset = np.full(len(least), np.nan)
    offset[0] = 0.0
    known = [0]
    for device in known:
        for other in np.flatnonzero(np.isnan(offset)).tolist():
            if not np.isnan(least[device, other] + least[other, device]):
                offset[other] = offset[device] + (least[device, other] - least[other, device]) / 2
                known.append(other)
    return None if np.isnan(offset).any() else offset


def least_latencies(schedule: Schedule, start: Times, end: Times) -> Times:
    """Return the minimum latency of messages by source and target, shape (devices, devices).

    A latency is the time from the end of an op to the start of the op that needs its result. The
    result is the median over iterations of the minimum in each iteration, NaN without messages.
    """
    crossing = np.flatnonzero(schedule.crosses)
    needs = schedule.dependency[crossing]
    link = schedule.device[needs].astype(np.int64) * schedule.n_devices + schedule.device[crossing]
    latency = start[:, crossing] - end[:, needs]
    least = np.full(schedule.n_devices**2, np.nan)
    for each in np.unique(link).tolist():
        least[each] = np.median(latency[:, link == each].min(axis=1))
    return least.reshape(schedule.n_devices, schedule.n_devices)
