"""The best split of layers for a pipeline that serves: most tokens in the fullest stage, or the
shortest stage.

A stage holds layers that follow each other, so that the tokens and the time of a range of layers
are sums, and a split is found exactly by dynamic programming over the stages.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

# shape (stages, N + 1, N + 1): of layers a to b on a stage, b not included
Ranges = NDArray[np.float64]
SAME = 1e-9


def most_of_least(values: Ranges) -> float:
    """Return the largest value that all stages of some split reach, each with a range of layers."""
    return _best_over_stages(values, np.minimum, np.max)


def least_of_most(values: Ranges) -> float:
    """Return the smallest value that no stage of some split exceeds."""
    return _best_over_stages(values, np.maximum, np.min)


def _best_over_stages(
    values: Ranges, join: np.ufunc, choose: Callable[..., NDArray[np.float64]]
) -> float:
    """Carry the best value of every number of layers from stage to stage."""
    best = values[0, 0]
    for stage in values[1:]:
        best = choose(join(best[:, None], stage), axis=0)
    return float(best[-1])


def most_even_split(times: Ranges, allowed: NDArray[np.bool_]) -> tuple[int, ...] | None:
    """Return the layers of each stage with the least sum of squared times, from allowed ranges;
    None if there are none.
    """
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
    """Return the best split by ``tokens``, then the longest stage, or the other way round by
    ``period``.

    Of equal ones the most even; None where no split is possible.
    """
    allowed = np.isfinite(times) & (tokens > -np.inf)
    for what in ("tokens", "period") if by == "tokens" else ("period", "tokens"):
        if what == "tokens":
            least = most_of_least(np.where(allowed, tokens, -np.inf))
            if least == -np.inf:
                return None
            allowed &= tokens >= least * (1 - SAME)
        else:
            most = least_of_most(np.where(allowed, times, np.inf))
            if most == np.inf:
                return None
            allowed &= times <= most * (1 + SAME)
    return most_even_split(times, allowed)
