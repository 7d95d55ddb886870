"""A sweep as heat maps: each metric over microbatches, for every schedule and number of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.engine.simple.columns import Column


@dataclass(frozen=True)
class HeatMap:
    """Metrics of a sweep."""

    columns: tuple[Column, ...]  # the metrics
    rows: tuple[tuple[str, int], ...]  # schedule and number of devices of each row
    microbatches: tuple[int, ...]  # M of each column of cells
    # shape (metrics, rows, microbatches); NaN if the schedule does not apply to the shape
    values: NDArray[np.float64]
    # the same shape, whether the value is the least of rows with the same numbers of devices and
    # microbatches that fit the cap
    best: NDArray[np.bool_]
    unit: str  # of times


def heat_map(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> HeatMap:
    """Return the rows of a sweep as heat maps.

    Each row has ``name``, ``devices``, ``microbatches``, ``applies`` and the metrics.
    """
    applying = dict.fromkeys((row["name"], int(row["devices"])) for row in rows if row["applies"])
    places = sorted(applying, key=lambda place: place[1])
    across = sorted({row["microbatches"] for row in rows if row["applies"]})
    values = np.full((len(columns), len(places), len(across)), np.nan)
    within = np.ones(values.shape[1:], bool)
    for row in rows:
        if row["applies"]:
            place = places.index((row["name"], int(row["devices"])))
            values[:, place, across.index(row["microbatches"])] = [
                row.get(column.key, np.nan) for column in columns
            ]
            within[place, across.index(row["microbatches"])] = row.get("fits", True)
    best = np.zeros(values.shape, bool)
    devices = np.array([count for _, count in places])
    for count in np.unique(devices):
        here = devices == count
        fitting = np.where(within[here], values[:, here], np.nan)
        best[:, here] = fitting <= np.fmin.reduce(fitting, axis=1, keepdims=True)
    unit = next(row["unit"] for row in rows if row["applies"])
    return HeatMap(tuple(columns), tuple(places), tuple(across), values, best, unit)


def shades_of(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the shade of each cell of one metric, from 0 (least) to 1 (most); NaN stays NaN."""
    low, high = np.fmin.reduce(values, axis=None), np.fmax.reduce(values, axis=None)
    return (values - low) / (high - low) if high > low else values * 0.0
