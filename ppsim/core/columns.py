"""The types of the arrays that schedules, timelines and kernels are made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint8]  # of op kinds
Ids = NDArray[np.int32]  # of ops, stages, microbatches, devices, messages; -1 for none
Ints = NDArray[np.int64]  # offsets and counts
Floats = NDArray[np.float64]  # times, sizes, rates
Flags = NDArray[np.bool_]
Rows = NDArray[np.void]  # of a table whose rows have named fields
