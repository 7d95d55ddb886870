"""Gaps of devices and latencies of links in a run, measured from its ops' times alone.

A gap is the time between two ops of a device; it counts only if the op's input had arrived before
the previous op ended. A latency counts only if the op certainly waited for its input: the device
was free, and its gap over, before the input was made. Both are medians over all iterations, so that
a slow iteration or message does not change them; the terms of a simulated timeline are recovered
exactly. A link for whose messages no op certainly waited is assumed to be as fast as the other
links, or as fast as its ops need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppsim.core.ops import Kind
from ppsim.core.schedule import NONE, Schedule

Times = NDArray[np.float64]
ROUNDS = 3  # rounds that separate gaps from waits, each with the medians of the round before
FEWEST = 3  # samples that a label needs for its own median


class Spread(NamedTuple):
    """A median with its 10th and 90th percentile, and the number of samples."""

    median: float
    p10: float
    p90: float
    n: int


@dataclass(frozen=True)
class Terms:
    """Gaps and latencies of a run, in the unit of its times."""

    # by device, kind of the op before and kind of the op
    gaps: Mapping[tuple[int, Kind, Kind], Spread]
    # by sending and receiving device
    latencies: Mapping[tuple[int, int], Spread]
    # shape (ops,), the gap before each op; taken from other devices if this one has no such gap
    gap: Times
    latency: Times  # shape (devices, devices), of each link with messages, 0 elsewhere

    @property
    def typical_gap(self) -> float:
        """The median of all gaps; 0 if there are none."""
        return _median([spread.median for spread in self.gaps.values() for _ in range(spread.n)])

    @property
    def typical_latency(self) -> float:
        """The median of the links' latencies; 0 if no op waited."""
        return _median([spread.median for spread in self.latencies.values()])


@dataclass(frozen=True)
class Waits:
    """The previous op and the input that each op, or pair, waits for."""

    schedule: Schedule
    op: NDArray[np.int64]  # shape (entries,), the op, or the first op of a pair
    # shape (entries,), the op before on the device; -1 for a device's first
    previous: NDArray[np.int64]
    # shape (iterations, entries), end of the op that made the latest input from another device;
    # -inf for none
    input_end: Times
    # shape (iterations, entries), the link of that input: source x devices + target
    link: NDArray[np.int64]

    @cached_property
    def labels(self) -> list[tuple[int, Kind, Kind]]:
        """Device, kind of the op before and kind of the op, for each entry."""
        schedule = self.schedule
        kinds = schedule.kind[np.maximum(self.previous, 0)], schedule.kind[self.op]
        return [
            (int(d), Kind(b), Kind(k))
            for d, b, k in zip(schedule.device[self.op], *kinds, strict=True)
        ]


def measure_terms(
    schedule: Schedule, start: Times, end: Times, received: Times | None = None
) -> Terms:
    """Return the gaps and latencies of a run.

    Times have shape (iterations, ops). ``received``, the ends of receives, is NaN if unknown.
    """
    waits = find_waits(schedule, end)
    begun = start[:, waits.op]
    device_end = np.where(waits.previous == NONE, -np.inf, end[:, waits.previous])
    after_input, after_device = begun - waits.input_end, begun - device_end
    gap = latency = 0.0
    for _ in range(ROUNDS):
        free = np.isfinite(device_end) & (waits.input_end + 2 * latency <= device_end)
        waited = np.isfinite(waits.input_end) & (waits.input_end >= device_end + gap)
        gap = max(_median(after_device[free]), 0.0)
        latency = max(_median(after_input[waited]), 0.0)
    gaps = _by_label(waits.labels, after_device, free)
    each = np.zeros(len(schedule))
    each[waits.op] = [_gap_of(label, gaps) for label in waits.labels]
    each[waits.op[waits.previous == NONE]] = 0.0
    each[schedule.second_of_pairs] = each[schedule.first_of_pairs]
    latencies, matrix = _latencies(waits, waited, start, end, received, latency)
    return Terms(gaps, latencies, each, matrix)


def _latencies(
    waits: Waits,
    waited: NDArray[np.bool_],
    start: Times,
    end: Times,
    received: Times | None,
    typical: float,
) -> tuple[dict[tuple[int, int], Spread], Times]:
    """Return measured latencies by link, and a matrix of the latencies to use."""
    schedule = waits.schedule
    op = np.flatnonzero(schedule.crosses)
    need = schedule.dependency[op]
    link = schedule.device[need].astype(np.int64) * schedule.n_devices + schedule.device[op]
    until = (
        start[:, op]
        if received is None
        else np.where(np.isnan(received[:, op]), start[:, op], received[:, op])
    )
    wait = until - end[:, need]
    sure = np.zeros((len(start), len(schedule)), bool)
    sure[:, waits.op] = waited
    sure[:, schedule.pair != NONE] = False  # a pair may have waited for either input
    sure = sure[:, op] if received is None else sure[:, op] | ~np.isnan(received[:, op])
    latencies: dict[tuple[int, int], Spread] = {}
    matrix = np.zeros((schedule.n_devices, schedule.n_devices))
    for each in np.unique(link).tolist():
        ends = divmod(each, schedule.n_devices)
        on_link = link == each
        samples = wait[:, on_link][sure[:, on_link]]
        if not len(samples):  # assume that pairs waited for their later input
            pairs = waited & (waits.link == each)
            samples = (start[:, waits.op] - waits.input_end)[pairs]
        if len(samples):
            latencies[ends] = _spread_of(samples)
            matrix[ends] = max(latencies[ends].median, 0.0)
        else:
            matrix[ends] = min(typical, max(float(np.median(wait[:, on_link].min(axis=1))), 0.0))
    return latencies, matrix


def find_waits(schedule: Schedule, end: Times) -> Waits:
    """Return the op before and the latest input from another device of each op or pair."""
    op = np.flatnonzero(schedule.leads)
    before = np.full(len(op), NONE, np.int64)
    same = np.diff(schedule.device[op]) == 0
    before[1:][same] = op[:-1][same]
    made = np.full((len(end), len(schedule)), -np.inf)
    link = np.zeros((len(end), len(schedule)), np.int64)
    crossing = np.flatnonzero(schedule.crosses)
    needs = schedule.dependency[crossing]
    made[:, crossing] = end[:, needs]
    link[:, crossing] = (
        schedule.device[needs].astype(np.int64) * schedule.n_devices + schedule.device[crossing]
    )
    first, second = schedule.first_of_pairs, schedule.second_of_pairs
    later = made[:, second] > made[:, first]
    link[:, first] = np.where(later, link[:, second], link[:, first])
    made[:, first] = np.maximum(made[:, first], made[:, second])
    return Waits(schedule, op, before, made[:, op], link[:, op])


def _by_label(
    labels: list[tuple[int, Kind, Kind]], samples: Times, counts: NDArray[np.bool_]
) -> dict[tuple[int, Kind, Kind], Spread]:
    columns: dict[tuple[int, Kind, Kind], list[int]] = {}
    for at, label in enumerate(labels):
        columns.setdefault(label, []).append(at)
    found = {label: samples[:, at][counts[:, at]] for label, at in columns.items()}
    return {label: _spread_of(values) for label, values in sorted(found.items()) if len(values)}


def _gap_of(label: tuple[int, Kind, Kind], gaps: Mapping[tuple[int, Kind, Kind], Spread]) -> float:
    """Return the gap of a label: of device and both kinds, else of both kinds, device, or any."""
    exact = gaps.get(label)
    if exact is not None and exact.n >= FEWEST:
        return max(exact.median, 0.0)
    for fits in (lambda key: key[1:] == label[1:], lambda key: key[0] == label[0], lambda _: True):
        found = [spread.median for key, spread in gaps.items() if spread.n >= FEWEST and fits(key)]
        if found:
            return max(_median(found), 0.0)
    return 0.0


def _spread_of(values: Times) -> Spread:
    low, middle, high = np.quantile(values, [0.1, 0.5, 0.9]).tolist()
    return Spread(middle, low, high, len(values))


def _median(values: Times | list[float]) -> float:
    return float(np.median(values)) if len(values) else 0.0
