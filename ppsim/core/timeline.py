"""The timeline: a schedule with the start and end of every op, and the cause of each start."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from ppsim.core.schedule import Schedule
from ppsim.core.soundness import require_type
from ppsim.errors import InputError


@dataclass(frozen=True)
class Timeline:
    """The start and end of every op of a schedule.

    Attributes:
        schedule: the schedule that was timed.
        start: shape (ops,), in ``unit``, from the start of the iteration.
        end: shape (ops,). Both ops of a pair share start and end.
        bound: shape (ops,), the op whose end or message determined the start, -1 for none. If two
            ops did at the same time, the previous op of the device's stream has precedence, then
            the input from the neighbouring stage. For an op on all devices it is the bound on the
            last device.
        unit: name of the time unit.
        finish: end of the last message, collective or host work, if that is after the last op.
        comm: latency of a message, a number or shape (devices, devices), if messages only take a
            latency; else None, also if it is not known.
        feedback: time until a result is fed back, as in :class:`ppsim.core.costs.Costs`.
    """

    schedule: Schedule
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    bound: NDArray[np.int32]
    unit: str
    finish: float = 0.0
    comm: float | NDArray[np.float64] | None = None
    feedback: float | None = None

    def __post_init__(self) -> None:
        require_type("schedule", self.schedule, Schedule, "timeline.schedule")
        require_type("unit", self.unit, str, '"ms"')
        require_type("finish", self.finish, Real, "0.0")
        require_type("bound", self.bound, np.ndarray, "np.full(len(schedule), -1)")
        for name in ("start", "end"):
            column = getattr(self, name)
            require_type(name, column, np.ndarray, "np.zeros(len(schedule))")
            if column.shape != self.schedule.kind.shape or column.dtype.kind not in "fiu":
                raise InputError(
                    f"{name} is not one number for each of {len(self.schedule)} ops",
                    "np.zeros(len(schedule))",
                )

    @cached_property
    def makespan(self) -> float:
        """End of the iteration: the end of the last op, or ``finish``."""
        return float(self.end.max(initial=self.finish))
