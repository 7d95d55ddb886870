"""Step curves: the value that each device holds over time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ppsim.core.columns import reduce_rows

# Units of what devices hold.
BYTES, ACTIVATIONS, LAYER_ACTIVATIONS = "B", "activations", "layer activations"


@dataclass(frozen=True)
class Curve:
    """One step line per device, flat and device-major."""

    name: str  # name of the quantity, such as ``live activations``
    unit: str  # unit of the values; empty for a count
    offsets: NDArray[np.int64]  # shape (P + 1,), where each device's steps start and end
    time: NDArray[np.float64]  # shape (steps,), ascending on each device, in the timeline's unit
    # shape (steps,), held from this time to the next step; before the first step it is zero
    value: NDArray[np.float64]
    # what each device's host holds for it, of the same unit; None where nothing is copied there
    host: Curve | None = None
    # names of the parts of one device's memory, where each line is the sum of a part and the parts
    # before it; empty where each line is a device
    parts: tuple[str, ...] = ()
    device: int = 0  # that device

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
