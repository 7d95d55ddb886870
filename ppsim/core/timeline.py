"""The timeline: a schedule with the start and end of every op, and the cause of each start."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ppsim.core.schedule import Schedule


@dataclass(frozen=True)
class Timeline:
    """The start and end of every op of a schedule.

    Attributes:
        schedule: the schedule that was timed.
        start: shape (ops,), in ``unit``, from the start of the iteration.
        end: shape (ops,). Both ops of a pair share start and end.
        bound: shape (ops,), the op whose end or message set the start. Where two decide at one
            time, the previous op of the device's stream comes first, then the input from the
            neighbouring stage. An op on all devices has the bound of the last device; -1 where
            nothing set it.
        unit: name of the time unit.
        finish: end of the last message, collective or host work, if that is after the last op.
        comm: latency of a message, a number or shape (devices, devices), where messages only have
            one; None where it is not known, or messages take more than that.
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

    @cached_property
    def makespan(self) -> float:
        """End of the iteration: of its last op, or ``finish``."""
        return float(self.end.max(initial=self.finish))
