"""Chrome trace JSON with one process per device and slices named like torch's ops, e.g. ``2F0``."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
import numpy as np

from ppsim.base.text import quote, shorten
from ppsim.base.times import UNKNOWN
from ppsim.base.typed_json import decode
from ppsim.core.draft import Draft
from ppsim.core.ops import STAGELESS, TIMED
from ppsim.core.schedule import NONE
from ppsim.core.soundness import LONGEST
from ppsim.errors import InputError

SUFFIXES = (".trace.json",)
_OP = re.compile(r"(\d{1,9})?([A-Z][A-Z_]{0,40})(\d{1,9})", re.ASCII)
_KINDS = {kind.name: (int(kind), kind in STAGELESS) for kind in TIMED}
_PAIR = re.compile(r"\(([^();]{1,40});([^();]{1,40})\)OVERLAP_F_B")
_DEVICE = re.compile(r"(?:.* )?device (\d{1,9})", re.ASCII)
FROM_OPS = frozenset(("idle", "latency"))  # categories of slices that are derived from the ops
_HINT = "ppsim run -o x.trace.json writes a trace"
Process = int | str | float | None


class Name(msgspec.Struct, frozen=True):
    """The arguments of an event that names a process."""

    name: str = ""


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event of a trace, times in microseconds."""

    ph: str = ""
    name: str = ""
    cat: str = ""
    pid: Process = None
    ts: float | str | None = None
    dur: float | str | None = None
    args: msgspec.Raw = msgspec.Raw(b"null")


class Costs(msgspec.Struct, frozen=True):
    """The costs of a run; only their unit is read."""

    unit: str = "t_F"


class Details(msgspec.Struct, frozen=True):
    """The metadata of a trace; older traces draw one unit as 1 ms, whatever the unit."""

    unit: str | None = None
    microseconds_per_unit: object = UNKNOWN
    slices: Annotated[int, msgspec.Meta(ge=1)] = 1
    steps: Annotated[int, msgspec.Meta(ge=1)] = 1
    feeds_back: bool = False
    flushes: bool = True
    costs: Costs = Costs()


class Trace(msgspec.Struct, frozen=True):
    """A trace; other keys are skipped."""

    traceEvents: list[Event]  # noqa: N815
    otherData: Details = Details()  # noqa: N815


KEYS = frozenset((*Trace.__struct_fields__, *Details.__struct_fields__, *Event.__struct_fields__))


def matches(text: str) -> bool:
    """Return whether the text is a JSON object with trace events."""
    return text.lstrip().startswith("{") and '"traceEvents"' in text


def parse(text: str, source: str) -> Draft:
    """Return the ops on all streams with their times, and the spans of messages and collectives.

    Other events are skipped.

    Raises:
        InputError: the text is not a trace, or has no op, or has several runs.
    """
    trace = decode(text, Trace, source, _HINT, KEYS)
    scale: Any = trace.otherData.microseconds_per_unit
    if type(scale) not in (int, float) or not 0 < scale < np.inf:
        raise InputError(
            f"{source}: microseconds_per_unit is not a number above 0", "leave it out for 1000"
        )
    devices = _devices(trace.traceEvents, source)
    rows, times, messages = (
        list[tuple[int, ...]](),
        list[tuple[float, float]](),
        list[tuple[float, float]](),
    )
    finish = 0.0
    for event in trace.traceEvents:
        if event.ph != "X" or event.cat in FROM_OPS:
            continue
        if members := _members(event.name):
            if event.pid not in devices:
                raise InputError(
                    f"{source}: {event.name} runs in process {quote(event.pid)}, which has no name "
                    f"'device N'",
                    _HINT,
                )
            device, span = devices[event.pid], _span(event, source, scale)
            for part, (stage, kind, microbatch) in enumerate(
                members, start=1 if len(members) == 2 else 0
            ):
                rows.append((device, kind, stage, microbatch, device + 1, len(rows) + 1, part))
                times.append(span)
            finish = max(finish, span[1])
        elif event.pid in devices:
            span = _span(event, source, scale)
            finish = max(finish, span[1])
            messages.append(span)
    if not rows:
        raise InputError(
            f"{source} has no slices named like 2F0",
            "ppsim run -o x.trace.json writes such a trace",
        )
    return Draft.from_table(
        source,
        np.array(rows, np.int64),
        np.array(times),
        unit=shorten(
            trace.otherData.costs.unit if trace.otherData.unit is None else trace.otherData.unit
        ),
        finish=finish,
        n_slices=trace.otherData.slices,
        n_rounds=trace.otherData.steps,
        feeds_back=trace.otherData.feeds_back,
        flushes=trace.otherData.flushes,
        messages=np.array(messages) if messages else None,
    )


def _members(name: str) -> list[tuple[int, int, int]]:
    """Return stage, kind and microbatch of each op in a slice's name: one op, a pair, or none."""
    pair = _PAIR.fullmatch(name)
    found = [_member(member) for member in (pair.groups() if pair else (name,))]
    return [] if None in found else [op for op in found if op]


def _member(name: str) -> tuple[int, int, int] | None:
    """Return stage (-1 if its kind has none), kind and microbatch of an op; None for other text."""
    op = _OP.fullmatch(name)
    if op is None or op[2] not in _KINDS:
        return None
    kind, is_stageless = _KINDS[op[2]]
    if is_stageless != (op[1] is None):
        return None
    return NONE if is_stageless else int(op[1]), kind, int(op[3])


def _devices(events: list[Event], source: str) -> dict[Process, int]:
    """Return the device of each process, which the name of the process states."""
    devices: dict[Process, int] = {}
    for event in events:
        if event.ph != "M" or event.name != "process_name":
            continue
        try:
            named = msgspec.json.decode(event.args, type=Name)
        except msgspec.DecodeError:
            continue
        if found := _DEVICE.fullmatch(named.name[:200]):
            if int(found[1]) in devices.values():
                raise InputError(
                    f"{source} contains several runs: device {found[1]} occurs twice",
                    "write one per file",
                )
            devices[event.pid] = int(found[1])
    return devices


def _span(event: Event, source: str, scale: float) -> tuple[float, float]:
    """Return start and end of a slice, in units of ``scale`` microseconds."""
    begin, took = event.ts, event.dur
    if isinstance(begin, str | None) or isinstance(took, str | None):
        lost = "ts" if isinstance(begin, str | None) else "dur"
        raise InputError(
            f"{source}: {shorten(event.name, 40)} has no {lost}", "slices need ts and dur"
        )
    start, end = begin / scale, (begin + took) / scale
    if not max(abs(start), abs(end)) <= LONGEST or end < start:
        raise InputError(
            f"{source}: {shorten(event.name, 40)} has an impossible ts or dur",
            "microseconds, from 0",
        )
    return start, end
