"""The Pareto front: the points that no other point beats in both costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def front(points: Sequence[Sequence[float]] | NDArray[np.float64]) -> NDArray[np.bool_]:
    """Shape (n,): which points (n, 2) of two costs, such as (makespan, peak memory), no other point beats.

    A point is beaten by one that is no worse in both costs and better in one; equal points stay together. A cost that
    is not finite (a schedule that does not apply or does not fit) is never on the front.
    """
    cost = np.asarray(points, np.float64).reshape(-1, 2)
    known = np.flatnonzero(np.isfinite(cost).all(axis=1))
    order = known[np.lexsort((cost[known, 1], cost[known, 0]))]
    first, second = cost[order].T
    before = np.minimum.accumulate(np.concatenate(([np.inf], second)))[:-1]
    # Among equal first costs only the least second cost stays, however often it occurs.
    group = np.searchsorted(first, first)
    on = (second < before[group]) & (second == second[group])
    result = np.zeros(len(cost), bool)
    result[order[on]] = True
    return result
