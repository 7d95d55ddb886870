"""Time against memory: one point per schedule or shape, and the Pareto front, which no point beats
in both costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Point:
    """Time and memory of one schedule."""

    name: str  # as the reader knows it
    makespan: float  # how long it runs; infinite where it does not apply
    peak: float  # the most a device holds; not a number where it does not apply
    family: str = ""  # the schedule, whatever its shape; points of one have one colour
    # the group within which points are compared, such as shapes on 8 devices; each has a front of
    # its own
    group: str = ""
    fits: bool = True  # whether it is within a cap; other points are on no front


@dataclass(frozen=True)
class Tradeoff:
    """Points that apply, and which of them are on the front."""

    # in the order given; points at the same place are one, with their names joined
    points: tuple[Point, ...]
    best: NDArray[np.bool_]  # shape (points,), whether nothing of its group beats the point

    def select_group(self, group: str) -> Tradeoff:
        """Return the points of one group."""
        own = np.array([point.group == group for point in self.points], bool)
        return Tradeoff(
            tuple(point for point in self.points if point.group == group), self.best[own]
        )


def tradeoff(points: Sequence[Point]) -> Tradeoff:
    """Join points of a group that coincide, leave out points that do not apply, and mark each
    group's front.
    """
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
    """Return which points, shape (n, 2), of two costs such as (makespan, peak memory) are on the
    Pareto front.

    A point is beaten by one that is no worse in both costs and better in one; equal points stay
    together. A cost that is not finite (a schedule that does not apply or does not fit) is never on
    the front.
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
