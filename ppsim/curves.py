"""Curves over time: what each device holds from when to when, as steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ppsim.timeline import Timeline


@dataclass(frozen=True)
class Curve:
    """One step line per device, flat and device-major.

    Attributes:
        name: what is counted, such as ``live activations``.
        unit: unit of the values; empty for a count.
        offsets: shape (P + 1,), where each device's steps begin and end.
        time: shape (steps,), ascending on each device, in the timeline's unit.
        value: shape (steps,), held from this time to the next step; before the first step it is zero.
    """

    name: str
    unit: str
    offsets: NDArray[np.int64]
    time: NDArray[np.float64]
    value: NDArray[np.float64]


def activations(timeline: Timeline) -> Curve:
    """Live activations in stage-microbatches: each from the start of its F to the end of its B or W.

    Changes at one moment are netted, so that a B and the F that follows at once do not show as a spike.
    """
    schedule = timeline.schedule
    change = np.array([1, -1, 0, -1])[schedule.kind]
    at = np.flatnonzero(change)
    time = np.where(change[at] > 0, timeline.start[at], timeline.end[at])
    device = schedule.device[at]
    order = np.lexsort((time, device))
    time, device = time[order], device[order]
    held = np.cumsum(change[at][order])  # every device ends at zero, so one running sum serves all
    last = np.ones(len(at), np.bool_)
    last[:-1] = (np.diff(time) > 0) | (np.diff(device) > 0)
    offsets = np.searchsorted(device[last], np.arange(schedule.n_devices + 1))
    return Curve("live activations", "", offsets, time[last], held[last].astype(np.float64))
