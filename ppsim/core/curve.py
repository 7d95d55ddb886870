"""Step curves: a quantity of each device over time, such as its memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ppsim.core.columns import reduce_rows

# Units of memory.
BYTES, ACTIVATIONS, LAYER_ACTIVATIONS = "B", "activations", "layer activations"


@dataclass(frozen=True)
class Curve:
    """One step line per device, flat and device-major."""

    name: str  # name of the quantity, such as ``live activations``
    unit: str  # unit of the values; empty for a count
    offsets: NDArray[np.int64]  # shape (P + 1,), the bounds of each device's steps
    time: NDArray[np.float64]  # shape (steps,), ascending on each device, in the timeline's unit
    # shape (steps,), the value from this time to the next step; it is zero before the first step
    value: NDArray[np.float64]
    # the memory of each device's host, in the same unit; None if nothing is copied to hosts
    host: Curve | None = None
    # names of the parts of one device's memory, if each line is the sum of a part and the parts
    # before it; empty if each line is a device
    parts: tuple[str, ...] = ()
    device: int = 0  # the device of these parts

    @property
    def peak(self) -> NDArray[np.float64]:
        """Shape (P,), the largest value of each device."""
        return reduce_rows(np.maximum, self.value, self.offsets)

    @property
    def least(self) -> NDArray[np.float64]:
        """Shape (P,), the smallest value of each device from its first step on."""
        return reduce_rows(np.minimum, self.value, self.offsets)

    def divided(self, by: float, unit: str) -> Curve:
        """Return the same curve in another unit."""
        host = self.host and self.host.divided(by, unit)
        return replace(self, unit=unit, value=self.value / by, host=host)
