"""Measured memory peaks of pipeline devices: readers of common files, and a line fitted to them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ppsim.base.source import read_text
from ppsim.base.typed_json import decode
from ppsim.base.units import parse_size
from ppsim.base.unpack.texts import split_lines
from ppsim.errors import InputError
from ppsim.workload.cost.memory import Bytes

LARGEST = 16 << 20
MOST = 1e18
EXAMPLE = (
    'JSON such as {"unit": "GiB", "memory": [66.5, 63.0]}, a size per line, or a folder of '
    "pp_rank_0.json ..."
)
# Keys of a list of sizes, or of an object of sizes by rank, and their unit in bytes. "GB" in logs
# of PyTorch and Megatron is 2^30.
KEYS = {
    "memory_GB_per_rank": 2**30,
    "peak_by_rank_MB": 2**20,
    "memory_GiB": 2**30,
    "memory_MiB": 2**20,
    "memory_bytes": 1,
}
UNITS = {"B": 1, "MB": 2**20, "MiB": 2**20, "GB": 2**30, "GiB": 2**30}
SCALES = {unit[0].lower(): size for unit, size in UNITS.items()}


def read_peaks(path: str, devices: int) -> Bytes:
    """Read the measured peak of each pipeline device in bytes, shape (devices,).

    A file with more ranks than devices must list them in Megatron's order; the largest peak among
    a device's ranks counts.

    Raises:
        InputError: the file has no sizes, or its ranks do not divide evenly over devices.
    """
    values = _read_folder(path) if os.path.isdir(path) else _read_log(path)
    if len(values) < devices or len(values) % devices:
        raise InputError(
            f"'{path}' has the memory of {len(values)} ranks, and the pipeline has {devices} "
            f"devices",
            "one size per device, or one per rank",
        )
    found: Bytes = np.array(values).reshape(devices, -1).max(axis=1)
    return found


def _read_folder(path: str) -> list[float]:
    """Read the peaks in bytes of a Primus folder, which has one file for each pipeline rank.

    A file states the memory of each iteration in GiB.
    """
    files = sorted(
        Path(path).glob("pp_rank_*.json"), key=lambda file: int(re.sub(r"\D", "", file.stem) or 0)
    )
    values = []
    for file in files:
        data = _json(str(file))
        rows = data.values() if isinstance(data, dict) else ()
        sizes = [
            row["memory"] for row in rows if isinstance(row, dict) and _is_size(row.get("memory"))
        ]
        if not sizes:
            raise InputError(f"'{file}' has no memory of an iteration", EXAMPLE)
        values.append(max(sizes) * float(2**30))
    if not values:
        raise InputError(f"'{path}' has no pp_rank_*.json", EXAMPLE)
    return values


def _read_log(path: str) -> list[float]:
    """Read the peaks in bytes of a JSON file, or of a text file with one size per line."""
    text = read_text(path, EXAMPLE, largest=LARGEST)
    if text.lstrip().startswith(("{", "[")):
        data = _json(path)
        found = _find_sizes(data)
        if found is None:
            raise InputError(f"'{path}' has no memory by rank", EXAMPLE)
        return found
    whole = split_lines(text, f"'{path}'")
    lines = [(number, line.split(",")[-1]) for number, line in enumerate(whole, 1) if line.strip()]
    scale = 2.0**30
    if lines and not re.search(r"\d", lines[0][1]):  # a heading, which may name the unit
        unit = re.search(r"(bytes|[mg]i?b)\W*$", lines.pop(0)[1].lower())
        scale = SCALES[unit[1][0]] if unit else scale
    return [_line_size(path, number, cell.strip(), scale) for number, cell in lines]


def _line_size(path: str, number: int, cell: str, scale: float) -> float:
    """Return the bytes that a line states, with a unit or as a bare number of ``scale`` bytes."""
    if re.fullmatch(r"[0-9]+(\.[0-9]*)?", cell, re.ASCII) and float(cell) < MOST:
        return float(cell) * scale
    try:
        return float(parse_size(cell)[0])
    except InputError as error:
        raise InputError(f"'{path}', line {number}: {error}", EXAMPLE) from error


def _json(path: str) -> Any:
    return decode(read_text(path, EXAMPLE, largest=LARGEST), Any, f"'{path}'", EXAMPLE, None)


def _find_sizes(data: Any) -> list[float] | None:
    """Return the bytes of each rank, found at the top or in a nested object; None without any."""
    if isinstance(data, list):
        return _sizes(data, 2**30)
    if not isinstance(data, dict):
        return None
    for key, scale in (*KEYS.items(), ("memory", UNITS.get(str(data.get("unit", "GiB")), 0))):
        if key in data and scale:
            return _sizes(data[key], scale)
    for key, values in data.items():  # another name with a unit in it, such as peaks_gib
        unit = re.search(r"(?:^|_)(bytes|[mg]i?b)(?:$|_)", str(key).lower())
        if unit and (found := _sizes(values, SCALES[unit[1][0]])):
            return found
    return next(
        (
            found
            for value in data.values()
            if isinstance(value, dict) and (found := _find_sizes(value))
        ),
        None,
    )


def _sizes(values: Any, scale: int) -> list[float] | None:
    """Return the bytes in a list, or in an object keyed by rank; None if anything else is there."""
    if isinstance(values, Mapping):
        if not all(str(rank).isdigit() for rank in values):
            return None
        values = [values[rank] for rank in sorted(values, key=int)]
    if not isinstance(values, list) or not values:
        return None
    good = [float(v) * scale for v in values if _is_size(v)]
    return good if len(good) == len(values) else None


def _is_size(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < MOST


def fit_line(held: Bytes, peaks: Bytes) -> tuple[float, float]:
    """Fit base bytes and bytes per microbatch in flight to measured peaks, by least squares.

    Args:
        held: shape (devices,), microbatches in flight at each device's peak, by the schedule.
        peaks: shape (devices,), measured bytes.

    Returns:
        The base and the bytes per microbatch. The base is 0 if all devices have as many
            microbatches in flight.
    """
    if np.ptp(held) == 0:
        return 0.0, float(peaks.mean() / max(held.mean(), 1e-9))
    slope, base = np.polyfit(held, peaks, 1)
    return float(base), float(slope)
