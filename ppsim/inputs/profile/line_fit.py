"""Straight lines through measured times, by relative error.

Times of messages span five orders of magnitude: least squares on the absolute error would see only the
largest, so every equation is divided by its own time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# LEAST points per line. EARNED: a second line must leave at most this share of the squared error, as the Bayesian
# information criterion asks of three more numbers for ten points. NEGLIGIBLE: a relative error that counts as none.
LEAST, EARNED, NEGLIGIBLE = 3, 0.5, 0.01


@dataclass(frozen=True)
class Line:
    """``alpha + slope * x``, neither below zero."""

    alpha: float  # the time at x = 0
    slope: float  # the time per unit of x
    median_residual: float  # median of |line - measured| / measured
    max_residual: float  # the largest of them

    def at(self, x: float) -> float:
        """Compute the line's time at ``x``."""
        return self.alpha + self.slope * x


def fit_line(x: Sequence[float], y: Sequence[float]) -> Line:
    """Fit the line with the least squared relative error through the points; ``y`` above zero.

    One point gives a line through the origin, or a constant where it is at ``x`` = 0.
    """
    at, time = np.asarray(x, np.float64), np.asarray(y, np.float64)
    rows = np.stack([1 / time, at / time], axis=1)
    candidates = [_solve(rows, columns) for columns in ([0, 1], [1], [0])]
    allowed = [c for c in candidates[len(at) < 2 :] if (c >= 0).all()]
    alpha, slope = min(allowed, key=lambda c: float(np.sum((rows @ c - 1) ** 2)))
    residual = np.abs(rows @ np.array([alpha, slope]) - 1)
    if len(at) < 2:
        alpha, slope = (0.0, float(time[0] / at[0])) if at[0] else (float(time[0]), 0.0)
        residual = np.zeros(1)
    return Line(float(alpha), float(slope), float(np.median(residual)), float(residual.max()))


def split_ranges(x: Sequence[float], y: Sequence[float]) -> list[slice]:
    """Split the points in two ranges where a second line at least halves the squared relative error, else in one.

    The two lines are not joined. Each has three points or more, and the break is where the error is least.
    """

    def error(parts: Sequence[slice]) -> float:
        return sum(_error(fit_line(x[part], y[part]), x[part], y[part]) for part in parts)

    whole = [slice(0, len(x))]
    broken = [[slice(0, cut), slice(cut, len(x))] for cut in range(LEAST, len(x) - LEAST + 1)]
    best = min(broken, key=error, default=whole)
    return best if error(best) <= EARNED * error(whole) and error(whole) > len(x) * NEGLIGIBLE**2 else whole


def _error(found: Line, x: Sequence[float], y: Sequence[float]) -> float:
    """Sum the squared relative errors."""
    return sum((found.at(at) / time - 1) ** 2 for at, time in zip(x, y, strict=True))


def _solve(rows: np.ndarray, columns: list[int]) -> np.ndarray:
    solution = np.zeros(2)
    solution[columns] = np.linalg.lstsq(rows[:, columns], np.ones(len(rows)), rcond=None)[0]
    return solution
