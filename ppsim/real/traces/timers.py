"""Read the timers in a log of Megatron-LM: at each report the totals of every rank, or their
minimum and maximum.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ppsim.base.source import name_of, read_bytes
from ppsim.base.text import STANDARD_INPUT, shorten
from ppsim.base.unpack.texts import decode_text, split_lines
from ppsim.errors import InputError

REPORT = re.compile(r"(?:\(min, max\) |max )?time(?:s)? across ranks \(ms\):")
NUMBER = r"([0-9]{1,15}(?:\.[0-9]{1,9})?)"
SPREAD = re.compile(
    rf"\s*(?:\S+:\s*)?(\S[^:]{{0,200}}?) \.*: (?:\({NUMBER}, {NUMBER}\)|{NUMBER})\s*"
)
NAME = re.compile(r"\s*(?:\d+:\s*)?([\w/.-][\w/. -]{0,199}):\s*")
RANK = re.compile(rf"\s*(?:\d+:\s*)?rank\s+([0-9]{{1,7}}): {NUMBER}\s*")
HINT = (
    "the log of the rank that prints timers: --timing-log-level 2, and --timing-log-option all "
    "for every rank"
)
LINE = 300  # bytes of memory that a line takes after it is read
MINIMUM, MAXIMUM = -2, -1  # in place of a rank's number
MOST_RANKS = 1 << 18
Times = NDArray[np.float64]


@dataclass(frozen=True)
class Timer:
    """One timer's totals in ms: medians over its reports, without the first of several reports."""

    name: str  # the log's name of the timer
    reports: int  # number of reports
    least_ms: float  # minimum over ranks; NaN where the log contains only the maximum
    most_ms: float  # maximum over ranks
    # total of each rank, shape (ranks,), NaN for a rank without this timer; empty where the log
    # contains no totals of ranks
    ranks: Times


def shows_timers(path: str) -> bool:
    """Return whether a path is a log with reports of timers."""
    if path == STANDARD_INPUT or not os.path.isfile(path):
        return False
    try:
        return b" across ranks (ms):" in read_bytes(path)
    except InputError:
        return False


def read_timers(path: str) -> list[Timer]:
    """Read all timers of a log, in the order of their first reports (InputError: it cannot be read,
    or contains no timer).
    """
    found: dict[str, list[dict[int, float]]] = defaultdict(list)
    timer, in_report = "", False
    name = f"'{name_of(path)}'"
    for line in split_lines(decode_text(read_bytes(path), name, "replace"), name, LINE):
        if REPORT.search(line):
            timer, in_report, line = "", True, REPORT.split(line)[-1]
        if not in_report or not line.strip():
            continue
        if row := RANK.fullmatch(line):
            if timer:
                found[timer][-1][int(row[1])] = float(row[2])
        elif row := SPREAD.fullmatch(line):
            low, high = (row[2], row[3]) if row[2] else ("nan", row[4])
            found[shorten(row[1].strip())].append({MINIMUM: float(low), MAXIMUM: float(high)})
        elif row := NAME.fullmatch(line):
            timer = shorten(row[1].strip())
            found[timer].append({})
        else:
            in_report = False
    timers = [_timer(name, reports) for name, reports in found.items() if any(reports)]
    if not timers:
        raise InputError(f"'{name_of(path)}' contains no readable timer", HINT)
    return timers


def _timer(name: str, reports: Sequence[dict[int, float]]) -> Timer:
    """Summarize the non-empty reports of one timer, each a time in ms by rank."""
    filled = [report for report in reports if report]
    kept = filled[1:] or filled
    ranks = range(max(max(report) for report in kept) + 1)
    if len(ranks) > MOST_RANKS:
        raise InputError(f"timer {name} has rank {ranks[-1]}, more than {MOST_RANKS}", HINT)
    each = np.array([[report.get(rank, np.nan) for rank in ranks] for report in kept])
    times = np.array([_median(column) for column in each.T])
    if len(ranks):
        return Timer(name, len(filled), float(np.nanmin(times)), float(np.nanmax(times)), times)
    least, most = (
        _median(np.array([report.get(key, np.nan) for report in kept]))
        for key in (MINIMUM, MAXIMUM)
    )
    return Timer(name, len(filled), least, most, times)


def _median(values: Times) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else float("nan")
