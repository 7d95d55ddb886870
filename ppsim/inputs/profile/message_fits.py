"""Lines through measured messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import astuple

import numpy as np

from ppsim.inputs.profile import line_fit
from ppsim.inputs.profile.profile import Fit, Message

NOISY = 3.0


def fit_messages(rows: Sequence[Message]) -> list[Fit]:
    """Fit a line per link and pattern to all sizes and, where two lines fit better, one below and above the break.

    Where the 90th percentile is mostly more than three times the 10th, the machine's scheduler was measured rather
    than the link, and the line goes through the 10th percentiles.
    """
    series: dict[tuple[str, str], list[Message]] = defaultdict(list)
    for row in rows:
        series[row.link, row.pattern].append(row)
    return [line for found in series.values() for line in _lines(sorted(found, key=lambda m: m.bytes))]


def _lines(rows: Sequence[Message]) -> list[Fit]:
    noisy = sorted(row.p90_ms > NOISY * row.p10_ms for row in rows)[len(rows) // 2]
    sizes = [row.bytes for row in rows]
    times = [row.p10_ms if noisy else row.median_ms for row in rows]
    if len(rows) < 2 or min(times) <= 0:
        return []
    parts = {"all": slice(None)}
    if len(found := line_fit.split_ranges(sizes, times)) > 1:
        parts |= dict(zip(("eager", "rendezvous"), found, strict=True))
    result = []
    for name, part in parts.items():
        line = line_fit.fit_line(sizes[part], times[part])
        span = (sizes[part][0], sizes[part][-1])
        result.append(Fit(rows[0].link, rows[0].pattern, name, "p10" if noisy else "median", *span, *astuple(line)))
    return result


def relative_errors(rows: Sequence[Message], lines: Sequence[Fit]) -> dict[tuple[str, str], tuple[float, float]]:
    """Compute per link and pattern the median and the largest relative error of its lines over all sizes."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        own = [f for f in lines if (f.link, f.pattern) == (row.link, row.pattern) and f.covers(row.bytes)]
        time = row.p10_ms if own and own[-1].through == "p10" else row.median_ms
        if own and time > 0:
            found[row.link, row.pattern].append(abs(own[-1].at(row.bytes) / time - 1))
    return {key: (float(np.median(errors)), max(errors)) for key, errors in found.items()}
