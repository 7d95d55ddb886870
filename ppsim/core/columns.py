"""Types of the arrays in schedules, timelines and kernels, and reductions of their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint8]  # of op kinds
Ids = NDArray[np.int32]  # of ops, stages, microbatches, devices, messages; -1 for none
Ints = NDArray[np.int64]  # offsets and counts
Floats = NDArray[np.float64]  # times, sizes, rates
Flags = NDArray[np.bool_]
Rows = NDArray[np.void]  # of a table whose rows have named fields


def reduce_rows(reduce: np.ufunc, values: NDArray[Any], offsets: Ints) -> NDArray[Any]:
    """Return the reduction of each row, shape (rows,); 0 for an empty row.

    ``offsets``, shape (rows + 1,), are the bounds of the rows in ``values``.
    """
    result = np.zeros(len(offsets) - 1, values.dtype)
    filled = np.flatnonzero(np.diff(offsets))
    if len(filled):
        result[filled] = reduce.reduceat(values, offsets[filled])
    return result
