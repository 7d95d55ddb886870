"""Schedules in JSON: what ``ppsim run --json`` prints, or only its ``ops``, with or without times."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.core.draft import Draft
from ppsim.core.ops import Kind
from ppsim.errors import InputError

SUFFIXES = (".json",)
_SHAPE = '{"ops": {"device": [0, 0], "kind": ["F", "B"], "stage": [0, 0], "microbatch": [0, 0]}}'


def matches(text: str) -> bool:
    """Whether the text is a JSON object."""
    return text.lstrip().startswith("{")


def load(text: str, source: str) -> dict[str, Any]:
    """The object in a text.

    Raises:
        InputError: it is not JSON, or no object.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InputError(f"{source} is not JSON: {error}", f"a schedule is {_SHAPE}") from None
    if not isinstance(value, dict):
        raise InputError(f"{source} is JSON, but no object", f"a schedule is {_SHAPE}")
    return value


def parse(text: str, source: str) -> Draft:
    """The ops of one run, in the order given per device.

    Raises:
        InputError: no ops, columns of unequal length or of the wrong kind, or several runs.
    """
    value = load(text, source)
    if isinstance(runs := value.get("runs"), list):
        if len(runs) != 1 or not isinstance(runs[0], dict):
            raise InputError(f"{source} holds {len(runs)} runs", "write one run per file")
        value = runs[0]
    ops = value.get("ops")
    if not isinstance(ops, dict):
        raise InputError(f"{source} has no ops", f"a schedule is {_SHAPE}")
    device, stage, microbatch = (_integers(ops, name, source) for name in ("device", "stage", "microbatch"))
    kinds = ops.get("kind")
    names = {kind.name for kind in Kind}
    if not isinstance(kinds, list) or any(kind not in names for kind in kinds):
        raise InputError(f"{source}: ops.kind must be a list of {', '.join(names)}", f"a schedule is {_SHAPE}")
    index = np.arange(len(kinds))
    pair = _integers(ops, "pair", source) if "pair" in ops else np.full(len(kinds), -1)
    times = [_numbers(ops, name, source) for name in ("start", "end") if name in ops]
    columns = [device, stage, microbatch, pair, *times]
    if any(len(column) != len(kinds) for column in columns):
        raise InputError(f"{source}: the columns of ops differ in length", "give every op an entry in every column")
    paired = pair >= 0
    if paired.any() and not np.array_equal(pair[pair.clip(0, len(pair) - 1)][paired], index[paired]):
        raise InputError(f"{source}: ops.pair does not go both ways", "partners hold each other's index, others -1")
    if len(times) == 1:
        raise InputError(f"{source}: ops has one of start and end", "give both, or none")
    part = np.where(paired, np.where(pair > index, 1, 2), 0)
    begins = np.searchsorted(np.sort(device), device)
    cell = np.empty(len(kinds), np.int64)
    order = np.argsort(device, kind="stable")
    cell[order] = index + 1
    kind = np.array([Kind[name] for name in kinds], np.int64).reshape(-1)
    table = np.stack([device, kind, stage, microbatch, device + 1, cell - begins, part], axis=1)
    return Draft.from_table(
        source,
        table,
        np.stack(times, axis=1) if times else None,
        name=str(value.get("schedule", "")),
        unit=str(value.get("unit", "t_F")),
    )


def _integers(ops: dict[str, Any], name: str, source: str) -> NDArray[np.int64]:
    values = ops.get(name)
    if not isinstance(values, list) or any(type(v) is not int or abs(v) >= 1 << 31 for v in values):
        raise InputError(f"{source}: ops.{name} must be a list of whole numbers", f"a schedule is {_SHAPE}")
    array = np.array(values, np.int64).reshape(-1)
    if (array < (-1 if name in ("pair", "microbatch") else 0)).any():
        raise InputError(f"{source}: ops.{name} has {array.min()}", "count from 0")
    return array


def _numbers(ops: dict[str, Any], name: str, source: str) -> NDArray[np.float64]:
    values = ops.get(name)
    if not isinstance(values, list) or any(type(v) not in (int, float) for v in values):
        raise InputError(f"{source}: ops.{name} must be a list of numbers", "leave start and end out for no times")
    array = np.array(values, np.float64).reshape(-1)
    if not np.isfinite(array).all():
        raise InputError(f"{source}: ops.{name} has a value that is not finite")
    return array
