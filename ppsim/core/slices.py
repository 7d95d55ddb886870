"""Slices: sequences are cut into K pieces, which pass the pipeline one by one like microbatches.

Slice k of microbatch m counts as microbatch m x K + k. A slice attends to those before it. So on
every stage, its forward needs the keys and values of their forwards, and its backward needs the
gradients of the backwards of the slices after it. All slices of a microbatch run a stage on the
same device, so only the order of the queue matters here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ppsim.core.ops import BACKWARDS, FORWARDS, mask

SLICE_ORDER = "run the forwards of slices in their order, the backwards in reverse"


def find_early_slices(
    kind: NDArray[np.uint8],
    stage: NDArray[np.int32],
    microbatch: NDArray[np.int32],
    n_microbatches: int,
    n_slices: int,
) -> NDArray[np.int64]:
    """Return neighbouring slices of a sequence that run in the wrong order, shape (faults, 2).

    A fault is the op that runs too early, and the op it needs. Columns are as in a schedule, shape
    (ops,), in the order of its queues; ``n_microbatches`` counts slices, K of each sequence.
    """
    found = []
    for kinds, step in ((FORWARDS, 1), (BACKWARDS, -1)):
        op = np.flatnonzero(mask(kinds)[kind])
        cell = stage[op] * np.int64(n_microbatches) + microbatch[op]
        order = np.argsort(cell, kind="stable")
        op, cell = op[order], cell[order]
        joined = (np.diff(cell) == 1) & (cell[1:] % n_microbatches % n_slices != 0)
        wrong = np.flatnonzero(joined & (np.diff(op) * step < 0))
        found.append(np.stack([op[wrong + 1], op[wrong]][::step], axis=1))
    early = np.concatenate(found)
    return early[np.argsort(early[:, 0], kind="stable")]
