"""Time against memory: one point per schedule or shape, and the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ppsim.analysis.pareto import front


@dataclass(frozen=True)
class Point:
    """Time and memory of one schedule.

    Attributes:
        name: as the reader knows it.
        makespan: how long it runs; infinite where it does not apply.
        peak: the most a device holds; not a number where it does not apply.
    """

    name: str
    makespan: float
    peak: float


@dataclass(frozen=True)
class Tradeoff:
    """Points that apply, and which of them are on the front.

    Attributes:
        points: in the order given; points at the same place are one, with their names joined.
        best: shape (points,), whether nothing beats the point.
    """

    points: tuple[Point, ...]
    best: NDArray[np.bool_]


def tradeoff(points: Sequence[Point]) -> Tradeoff:
    """Join points that coincide, leave out those that do not apply, and mark the front."""
    names: dict[tuple[float, float], list[str]] = {}
    for point in points:
        if np.isfinite([point.makespan, point.peak]).all():
            names.setdefault((point.makespan, point.peak), []).append(point.name)
    return Tradeoff(
        tuple(Point(", ".join(joined), *place) for place, joined in names.items()), front(np.array(list(names)))
    )
