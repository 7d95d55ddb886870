"""The types of the arrays that schedules, timelines and kernels are made of, and sums of their
rows.
"""

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
    """Reduce the values of each row, which ``offsets`` of shape (rows + 1,) cut them into; 0 for an
    empty one.
    """
    result = np.zeros(len(offsets) - 1, values.dtype)
    filled = np.flatnonzero(np.diff(offsets))
    if len(filled):
        result[filled] = reduce.reduceat(values, offsets[filled])
    return result
