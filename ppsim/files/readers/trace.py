"""Chrome trace JSON with one process per device and slices named like torch's ops."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ppsim.base.times import UNKNOWN
from ppsim.core.draft import Draft
from ppsim.core.ops import COMPUTE, LETTERS, Kind
from ppsim.errors import InputError
from ppsim.files.readers.json import load

SUFFIXES = (".trace.json",)
_OP = re.compile(rf"(\d{{1,9}})([{LETTERS}])(\d{{1,9}})", re.ASCII)
_PAIR = re.compile(r"\(([^();]*);([^();]*)\)OVERLAP_F_B")
_DEVICE = re.compile(r"(?:.* )?device (\d{1,9})")


def matches(text: str) -> bool:
    """Whether the text is a JSON object with trace events."""
    return text.lstrip().startswith("{") and '"traceEvents"' in text


def parse(text: str, source: str) -> Draft:
    """The slices of compute ops with their times; other events are passed over.

    Raises:
        InputError: no trace, no op in it, or several runs.
    """
    value = load(text, source)
    events = value.get("traceEvents")
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise InputError(f"{source} has no traceEvents", "ppsim run -o x.trace.json writes a trace")
    devices = _devices(events, source)
    unit, per_unit = _unit(value.get("otherData"), source)
    rows, times = list[tuple[int, ...]](), list[tuple[float, float]]()
    for event in events:
        name = str(event.get("name", ""))
        pair = _PAIR.fullmatch(name)
        ops = [_OP.fullmatch(member) for member in (pair.groups() if pair else (name,))]
        if event.get("ph") != "X" or None in ops:
            continue
        if event.get("pid") not in devices:
            raise InputError(f"{source}: {name} runs in process {event.get('pid')!r}, which has no name 'device N'")
        device = devices[event["pid"]]
        begin = _number(event, "ts", source)
        span = begin / per_unit, (begin + _number(event, "dur", source)) / per_unit
        for part, op in enumerate(ops, start=1 if pair else 0):
            assert op is not None
            rows.append((device, Kind[op[2]], int(op[1]), int(op[3]), device + 1, len(rows) + 1, part))
            times.append(span)
    table = np.array(rows, np.int64).reshape(-1, 7)
    if not np.isin(table[:, 1], COMPUTE).any():
        raise InputError(f"{source} has no slices named like 2F0", "ppsim run -o x.trace.json writes such a trace")
    return Draft.from_table(source, table, np.array(times).reshape(-1, 2), unit=unit)


def _unit(details: object, source: str) -> tuple[str, float]:
    """The unit of times and its microseconds, as the trace states them; older traces draw any unit as 1 ms."""
    stated = details if isinstance(details, dict) else {}
    costs = stated.get("costs")
    unit = str(stated.get("unit", costs.get("unit", "t_F") if isinstance(costs, dict) else "t_F"))
    per_unit = stated.get("microseconds_per_unit", UNKNOWN)
    if type(per_unit) not in (int, float) or not 0 < per_unit < np.inf:
        raise InputError(f"{source}: microseconds_per_unit is no number above 0", "leave it out for 1000")
    return unit, float(per_unit)


def _devices(events: list[dict[str, Any]], source: str) -> dict[Any, int]:
    """The device of each process, by the process's name."""
    devices: dict[Any, int] = {}
    for event in events:
        name = str(event.get("args", {}).get("name", "")) if isinstance(event.get("args"), dict) else ""
        found = _DEVICE.fullmatch(name)
        if event.get("ph") == "M" and event.get("name") == "process_name" and found:
            if int(found[1]) in devices.values():
                raise InputError(f"{source} holds several runs: device {found[1]} is there twice", "write one per file")
            devices[event.get("pid")] = int(found[1])
    return devices


def _number(event: dict[str, Any], field: str, source: str) -> float:
    value = event.get(field)
    if type(value) not in (int, float) or not np.isfinite(value):  # type: ignore[arg-type]
        raise InputError(f"{source}: {event.get('name')} has no {field}", "slices need ts and dur")
    return float(value)  # type: ignore[arg-type]
