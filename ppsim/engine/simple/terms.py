"""Time of a run between its ops, from the ops' times alone: gaps of devices, latencies of links.

A gap counts only where the op's input had arrived before the op before it ended, and a latency only
where the op surely waited for its input: where the input was made when the device, its gap over,
was ready for the op. Both are medians over all iterations, so that one slow iteration or message
does not move them, and the terms of a simulated timeline come back exactly. A link on which no op
surely waited is assumed to be as fast as the others, or as fast as its ops need.
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
ROUNDS = 3  # to tell gaps from waits, each with the medians of the one before
FEWEST = 3  # samples for a median of its own


class Spread(NamedTuple):
    """A median with its 10th and 90th percentile, and the number of samples."""

    median: float
    p10: float
    p90: float
    n: int


@dataclass(frozen=True)
class Terms:
    """Time of a run between its ops, in the unit of its times."""

    # by device, kind of the op before and kind of the op
    gaps: Mapping[tuple[int, Kind, Kind], Spread]
    # by the device that sends and the one that receives
    latencies: Mapping[tuple[int, int], Spread]
    # shape (ops,), the gap before each op; of a kind that a device does not show, that of other
    # devices
    gap: Times
    latency: Times  # shape (devices, devices), of each link that messages take, 0 elsewhere

    @property
    def typical_gap(self) -> float:
        """The median of all gaps; 0 if there are none."""
        return _median([spread.median for spread in self.gaps.values() for _ in range(spread.n)])

    @property
    def typical_latency(self) -> float:
        """Median of the links' latencies; 0 where no op waited."""
        return _median([spread.median for spread in self.latencies.values()])


@dataclass(frozen=True)
class Waits:
    """The two things that each op, or pair, waits for."""

    schedule: Schedule
    op: NDArray[np.int64]  # shape (entries,), the op, of a pair its first
    # the entry before it on its device, by its op; -1 for a device's first
    previous: NDArray[np.int64]
    # shape (iterations, entries), when the latest input from another device was made; -inf for none
    input_end: Times
    link: NDArray[np.int64]  # likewise, the link that it came on: source x devices + target

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
    """Return gaps and latencies; times have shape (iterations, ops), ``received`` is NaN where
    unknown.
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
    """Measure the latency of each link, and the value used for it."""
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
    sure[:, schedule.pair != NONE] = False  # which input a pair waited for is not known
    sure = sure[:, op] if received is None else sure[:, op] | ~np.isnan(received[:, op])
    latencies: dict[tuple[int, int], Spread] = {}
    matrix = np.zeros((schedule.n_devices, schedule.n_devices))
    for each in np.unique(link).tolist():
        ends, own, pairs = (
            divmod(each, schedule.n_devices),
            link == each,
            waited & (waits.link == each),
        )
        shown = wait[:, own][sure[:, own]]
        if not len(shown):  # a pair waits for the later input, as a rule
            shown = (start[:, waits.op] - waits.input_end)[pairs]
        if len(shown):
            latencies[ends] = _spread_of(shown)
            matrix[ends] = max(latencies[ends].median, 0.0)
        else:
            matrix[ends] = min(typical, max(float(np.median(wait[:, own].min(axis=1))), 0.0))
    return latencies, matrix


def find_waits(schedule: Schedule, end: Times) -> Waits:
    """Find the inputs from other devices, and the op before, of each op or pair."""
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
    """Look up a gap: of the device and both kinds, else of both kinds, of the device, of any."""
    own = gaps.get(label)
    if own is not None and own.n >= FEWEST:
        return max(own.median, 0.0)
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
