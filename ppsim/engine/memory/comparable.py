"""Curves of several schedules in one unit, so that one axis shows all of them."""

from __future__ import annotations

from collections.abc import Sequence

from ppsim.base.units import binary_unit
from ppsim.core.curve import Curve
from ppsim.core.schedule import Schedule
from ppsim.engine.memory.usage import ACTIVATIONS, BYTES

SHARES = "1/P shares"  # of the model: an activation of one of V stages on a device is 1/V of one


def share_unit(curves: Sequence[Curve], schedules: Sequence[Schedule]) -> list[Curve]:
    """Convert curves of the same quantity, one per schedule, to one unit.

    Counts of activations become shares of a device's 1/P of the model where the schedules have different numbers of
    stages per device; bytes take the binary unit that fits the largest peak.
    """
    if curves and all(curve.unit == BYTES for curve in curves):
        unit, size = binary_unit(max(float(curve.peak.max()) for curve in curves))
        return [curve.divided(size, unit) for curve in curves]
    if len({schedule.n_chunks for schedule in schedules}) < 2:
        return list(curves)
    return [
        curve.divided(schedule.n_chunks, SHARES) if curve.unit in ("", ACTIVATIONS) else curve
        for curve, schedule in zip(curves, schedules, strict=True)
    ]
