"""Lines through measured messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ppsim import fit
from ppsim.profile import Fit, Message

NOISY = 3.0


def fits(rows: Sequence[Message]) -> list[Fit]:
    """A line per link and pattern over all sizes and, with six sizes or more, one below and one above the break.

    Where the 90th percentile is mostly beyond three times the 10th, the machine's scheduler was measured rather
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
    if cut := fit.breakpoint_of(sizes, times):
        parts |= {"eager": slice(None, cut), "rendezvous": slice(cut, None)}
    result = []
    for name, part in parts.items():
        line = fit.line(sizes[part], times[part])
        span = (sizes[part][0], sizes[part][-1])
        result.append(
            Fit(
                rows[0].link,
                rows[0].pattern,
                name,
                "p10" if noisy else "median",
                *span,
                line.alpha,
                line.slope,
                line.median_residual,
                line.max_residual,
            )
        )
    return result
