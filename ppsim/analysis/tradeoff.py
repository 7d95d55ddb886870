"""Time against memory: one point per schedule or shape, and the Pareto fronts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Point:
    """Time and memory of one schedule."""

    name: str  # in the picture
    makespan: float  # infinite if the schedule does not apply
    peak: float  # the largest peak of a device; NaN if the schedule does not apply
    family: str = ""  # the schedule without its shape, which determines the colour
    # points are compared within a group, such as shapes on 8 devices; each group has a front
    group: str = ""
    fits: bool = True  # whether it stays within the cap; other points are on no front


@dataclass(frozen=True)
class Tradeoff:
    """Points that apply, and which of them are on a Pareto front."""

    # in the order given; points at the same place are one, with their names joined
    points: tuple[Point, ...]
    best: NDArray[np.bool_]  # shape (points,), whether the point is on its group's front

    def select_group(self, group: str) -> Tradeoff:
        """Return the points of one group."""
        chosen = np.array([point.group == group for point in self.points], bool)
        return Tradeoff(
            tuple(point for point in self.points if point.group == group), self.best[chosen]
        )


def tradeoff(points: Sequence[Point]) -> Tradeoff:
    """Return the points that apply, with coinciding points of a group joined, and the fronts."""
    places: dict[tuple[str, bool, float, float], list[Point]] = {}
    for point in points:
        if np.isfinite([point.makespan, point.peak]).all():
            places.setdefault((point.group, point.fits, point.makespan, point.peak), []).append(
                point
            )
    joined = tuple(
        replace(
            same[0],
            name=", ".join(point.name for point in same)
            + ("" if same[0].fits else " (over the cap)"),
        )
        for same in places.values()
    )
    best = np.zeros(len(joined), bool)
    for group in dict.fromkeys(point.group for point in joined):
        here = [
            number for number, point in enumerate(joined) if point.group == group and point.fits
        ]
        best[here] = front([(joined[number].makespan, joined[number].peak) for number in here])
    return Tradeoff(joined, best)


def front(points: Sequence[Sequence[float]] | NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which points are on the Pareto front of two costs, shape (n,).

    ``points``, shape (n, 2), have costs such as makespan and peak memory. A point is dominated by
    one that is not worse in both costs and better in one; equal points are both on the front or
    both not. A point with a cost that is not finite is never on it.
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
