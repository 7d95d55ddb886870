"""Fit straight lines to measured times of ops and messages, by relative error.

Times of messages span five orders of magnitude. Least squares on the absolute error would fit only
the largest, so every equation is divided by its time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np

from ppsim.inputs.profile.profile import Fit, Message

# LEAST: the fewest points of a line. EARNED: with a second line, the squared error must fall to
# this share or less, as the Bayesian information criterion requires of three more parameters for
# ten points. NEGLIGIBLE: a relative error that counts as none.
LEAST, EARNED, NEGLIGIBLE = 3, 0.5, 0.01
# ratio of the 90th to the 10th percentile above which the scheduler of the machine dominates
NOISY = 3.0


@dataclass(frozen=True)
class Line:
    """``alpha + slope * x``, neither below zero."""

    alpha: float  # the time at x = 0
    slope: float  # the time per unit of x
    median_residual: float  # median of |line - measured| / measured
    max_residual: float  # the largest of them

    def time_at(self, x: float) -> float:
        """Return the line's time at ``x``."""
        return self.alpha + self.slope * x


def fit_line(x: Sequence[float], y: Sequence[float]) -> Line:
    """Return the line with the least squared relative error; all ``y`` must be above zero.

    One point gives a line through the origin, or a constant if its ``x`` is 0.
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
    """Return two ranges of points if two lines at least halve the squared relative error, else one.

    The two lines need not meet. Each has three points or more, and the error is least with the
    returned ranges.
    """

    def error(parts: Sequence[slice]) -> float:
        return sum(_error(fit_line(x[part], y[part]), x[part], y[part]) for part in parts)

    whole = [slice(0, len(x))]
    broken = [[slice(0, cut), slice(cut, len(x))] for cut in range(LEAST, len(x) - LEAST + 1)]
    best = min(broken, key=error, default=whole)
    return (
        best
        if error(best) <= EARNED * error(whole) and error(whole) > len(x) * NEGLIGIBLE**2
        else whole
    )


def _error(found: Line, x: Sequence[float], y: Sequence[float]) -> float:
    """Return the sum of the squared relative errors."""
    return sum((found.time_at(at) / time - 1) ** 2 for at, time in zip(x, y, strict=True))


def _solve(rows: np.ndarray, columns: list[int]) -> np.ndarray:
    solution = np.zeros(2)
    solution[columns] = np.linalg.lstsq(rows[:, columns], np.ones(len(rows)), rcond=None)[0]
    return solution


def fit_messages(rows: Sequence[Message]) -> list[Fit]:
    """Return the fitted lines of each link and pattern: one for all sizes and, if two lines fit
    better, one for small and one for large messages.

    If most 90th percentiles are more than three times the 10th, the times show the scheduler of the
    machine rather than the link, and the 10th percentiles are fitted instead of the medians.
    """
    series: dict[tuple[str, str], list[Message]] = defaultdict(list)
    for row in rows:
        series[row.link, row.pattern].append(row)
    return [
        line for found in series.values() for line in _lines(sorted(found, key=lambda m: m.bytes))
    ]


def _lines(rows: Sequence[Message]) -> list[Fit]:
    noisy = sorted(row.p90_ms > NOISY * row.p10_ms for row in rows)[len(rows) // 2]
    sizes = [row.bytes for row in rows]
    times = [row.p10_ms if noisy else row.median_ms for row in rows]
    if len(rows) < 2 or min(times) <= 0:
        return []
    parts = {"all": slice(None)}
    if len(found := split_ranges(sizes, times)) > 1:
        parts |= dict(zip(("eager", "rendezvous"), found, strict=True))
    result = []
    for name, part in parts.items():
        line = fit_line(sizes[part], times[part])
        span = (sizes[part][0], sizes[part][-1])
        result.append(
            Fit(
                rows[0].link,
                rows[0].pattern,
                name,
                "p10" if noisy else "median",
                *span,
                *astuple(line),
            )
        )
    return result


def relative_errors(
    rows: Sequence[Message], lines: Sequence[Fit]
) -> dict[tuple[str, str], tuple[float, float]]:
    """Return the median and the largest relative error of the lines of each link and pattern."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        fits = [
            f
            for f in lines
            if (f.link, f.pattern) == (row.link, row.pattern) and f.covers(row.bytes)
        ]
        time = row.p10_ms if fits and fits[-1].through == "p10" else row.median_ms
        if fits and time > 0:
            found[row.link, row.pattern].append(abs(fits[-1].time_at(row.bytes) / time - 1))
    return {key: (float(np.median(errors)), max(errors)) for key, errors in found.items()}
