"""The best split of layers for serving: most tokens in the fullest stage, or shortest period.

Stages have consecutive layers, so dynamic programming over the stages finds the split exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

# shape (stages, N + 1, N + 1): a value of layers a to b - 1 on each stage
Ranges = NDArray[np.float64]
SAME = 1e-9


def largest_minimum(values: Ranges) -> float:
    """Return the largest value that all stages of some split reach."""
    return _best_over_stages(values, np.minimum, np.max)


def smallest_maximum(values: Ranges) -> float:
    """Return the smallest value that no stage of some split exceeds."""
    return _best_over_stages(values, np.maximum, np.min)


def _best_over_stages(
    values: Ranges, join: np.ufunc, choose: Callable[..., NDArray[np.float64]]
) -> float:
    """Return the best value over all splits: ``join`` combines stages, ``choose`` splits."""
    best = values[0, 0]
    for stage in values[1:]:
        best = choose(join(best[:, None], stage), axis=0)
    return float(best[-1])


def most_even_split(times: Ranges, allowed: NDArray[np.bool_]) -> tuple[int, ...] | None:
    """Return the split of allowed ranges with the least sum of squared times; None if none."""
    costs = np.where(allowed, times**2, np.inf)
    best, chosen = costs[0, 0], []
    for stage in costs[1:]:
        total = best[:, None] + stage
        chosen.append(total.argmin(axis=0))
        best = total.min(axis=0)
    end = times.shape[1] - 1
    if not np.isfinite(best[end]):
        return None
    ends = [end]
    for source in reversed(chosen):
        ends.append(int(source[ends[-1]]))
    bounds = [0, *reversed(ends)]
    return tuple(right - left for left, right in pairwise(bounds))


def split_for(tokens: Ranges, times: Ranges, by: str) -> tuple[int, ...] | None:
    """Return the best split by ``tokens``, then by period, or the other way round by ``period``.

    Among equal splits the most even one; None if no split is possible.
    """
    allowed = np.isfinite(times) & (tokens > -np.inf)
    for goal in ("tokens", "period") if by == "tokens" else ("period", "tokens"):
        if goal == "tokens":
            least = largest_minimum(np.where(allowed, tokens, -np.inf))
            if least == -np.inf:
                return None
            allowed &= tokens >= least * (1 - SAME)
        else:
            most = smallest_maximum(np.where(allowed, times, np.inf))
            if most == np.inf:
                return None
            allowed &= times <= most * (1 + SAME)
    return most_even_split(times, allowed)
