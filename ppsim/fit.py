"""Straight lines through measured times, by relative error.

Times of messages span five orders of magnitude: least squares on the absolute error would see only the
largest, so every equation is divided by its own time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Line:
    """``alpha + slope * x``, neither below zero.

    Attributes:
        alpha: the time at x = 0.
        slope: the time per unit of x.
        median_residual: median of |line - measured| / measured.
        max_residual: the largest of them.
    """

    alpha: float
    slope: float
    median_residual: float
    max_residual: float

    def at(self, x: float) -> float:
        """The line's time at ``x``."""
        return self.alpha + self.slope * x


def line(x: Sequence[float], y: Sequence[float]) -> Line:
    """The line with the least squared relative error through the points; ``y`` above zero.

    One point gives a line through the origin.
    """
    at, time = np.asarray(x, np.float64), np.asarray(y, np.float64)
    rows = np.stack([1 / time, at / time], axis=1)
    candidates = [_solve(rows, columns) for columns in ([0, 1], [1], [0])]
    allowed = [c for c in candidates[len(at) < 2 :] if (c >= 0).all()]
    alpha, slope = min(allowed, key=lambda c: float(np.sum((rows @ c - 1) ** 2)))
    residual = np.abs(rows @ np.array([alpha, slope]) - 1)
    if len(at) < 2:
        alpha, slope, residual = 0.0, float(time[0] / at[0]), np.zeros(1)
    return Line(float(alpha), float(slope), float(np.median(residual)), float(residual.max()))


def breakpoint_of(x: Sequence[float], y: Sequence[float]) -> int | None:
    """Where two lines fit best: the count of points of the first; None with fewer than six points."""
    if len(x) < 6:
        return None
    time = np.asarray(y, np.float64)

    def error(cut: int) -> float:
        parts = [(slice(None, cut), line(x[:cut], y[:cut])), (slice(cut, None), line(x[cut:], y[cut:]))]
        return sum(
            float(np.sum(((f.alpha + f.slope * np.asarray(x[s], np.float64)) / time[s] - 1) ** 2)) for s, f in parts
        )

    return min(range(3, len(x) - 2), key=error)


def _solve(rows: np.ndarray, columns: list[int]) -> np.ndarray:
    solution = np.zeros(2)
    solution[columns] = np.linalg.lstsq(rows[:, columns], np.ones(len(rows)), rcond=None)[0]
    return solution
