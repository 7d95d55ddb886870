"""Idle time of one device, or before one op."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ppsim.analysis.explain import Explanation
from ppsim.analysis.idle import CAUSES, NAMES, Idle
from ppsim.base.numbers import format_part
from ppsim.core.lanes import list_waits
from ppsim.core.ops import TIMED, Kind
from ppsim.core.schedule import NONE, Schedule
from ppsim.core.timeline import Timeline
from ppsim.errors import InputError

NEGLIGIBLE = 1e-9  # share of the makespan below which slack is due to rounding
NUMBER, KIND = "[0-9]{1,9}", "|".join(kind.name for kind in TIMED)
LABEL = re.compile(f"({NUMBER})?({KIND})({NUMBER})", re.IGNORECASE)
AT_STAGE = re.compile(f"({KIND})({NUMBER})@({NUMBER})", re.IGNORECASE)


@dataclass(frozen=True)
class Part:
    """A part of a gap with one cause."""

    cause: str  # its name
    time: float  # its length
    blamed: int  # the op that runs, is in transit or could run; -1 for none


@dataclass(frozen=True)
class Gap:
    """Idle time of a device between two ops, or after its last."""

    op: int  # the op after it, -1 after the last
    start: float  # in the timeline's unit
    end: float  # in the timeline's unit
    parts: tuple[Part, ...]  # in order of time


def gaps_of(idle: Idle, device: int) -> list[Gap]:
    """Return the gaps of a device in order of time (InputError: not a device of the schedule)."""
    devices = idle.timeline.schedule.n_devices
    if not 0 <= device < devices:
        raise InputError(f"there is no device {device}", f"a device from 0 to {devices - 1}")
    return _gaps(idle, np.flatnonzero(idle.device == device))


def gap_before(idle: Idle, op: int) -> Gap | None:
    """Return the gap before an op, or None if there is none."""
    found = _gaps(idle, np.flatnonzero(idle.op == op))
    return found[0] if found else None


def find_op(schedule: Schedule, text: str) -> int:
    """Return the op that ``2B5``, or ``B5@2``, names; of a pair, its first op.

    Raises:
        InputError: the text is not an op, or the schedule has no such op.
    """
    label = text.strip()
    if placed := AT_STAGE.fullmatch(label):
        label = f"{placed[3]}{placed[1]}{placed[2]}"
    match = LABEL.fullmatch(label)
    if match is None:
        raise InputError(
            f"not an op: '{text[:40]}'", "stage, kind and microbatch, such as 2B5, or B5@2"
        )
    kind = Kind[match[2].upper()]
    stage = NONE if match[1] is None else int(match[1])
    named = (
        (schedule.kind == kind) & (schedule.stage == stage) & (schedule.microbatch == int(match[3]))
    )
    if not named.any():
        kinds = ", ".join(Kind(each).name for each in np.unique(schedule.kind).tolist())
        raise InputError(
            f"{schedule.name} has no op {text.strip()}",
            f"a stage from 0 to {schedule.n_stages - 1}, one of {kinds}, and a microbatch from 0 "
            f"to {schedule.n_microbatches - 1}",
        )
    op = int(np.flatnonzero(named)[0])
    return op - 1 if NONE != schedule.pair[op] < op else op


def device_lines(explanation: Explanation, device: int) -> list[str]:
    """Return lines of text: a device's idle time by cause, and each gap with its causes."""
    timeline, schedule = explanation.timeline, explanation.timeline.schedule
    gaps, part = gaps_of(explanation.idle, device), partial(format_part, whole=timeline.makespan)
    total = sum(gap.end - gap.start for gap in gaps)
    lines = [f"device {device}: idle {part(total)} of {part(timeline.makespan)} {timeline.unit}"]
    causes = sorted(
        zip(explanation.idle.by_device[device].tolist(), NAMES, strict=True), reverse=True
    )
    lines.append("  " + ", ".join(f"{name} {part(time)}" for time, name in causes if time > 0))
    for gap in gaps:
        until = f"before {_name(schedule, gap.op)}" if gap.op != NONE else "after its last op"
        span = f"{part(gap.start)} to {part(gap.end)} ({part(gap.end - gap.start)})"
        lines.append(f"  {span} {until}: {_parts_text(timeline, gap.parts)}")
    return lines


def op_lines(explanation: Explanation, op: int) -> list[str]:
    """Return lines of text on one op: its inputs, its slack, and the ops that wait for it."""
    timeline, schedule = explanation.timeline, explanation.timeline.schedule
    unit, part = timeline.unit, partial(format_part, whole=timeline.makespan)
    span = f"{part(timeline.start[op])} to {part(timeline.end[op])} {unit}"
    lines = [f"{_name(schedule, op)} on device {schedule.device[op]}: {span}"]
    bound = int(timeline.bound[op])
    if bound == NONE:
        lines.append("  waits for: nothing")
    else:
        same = schedule.device[bound] == schedule.device[op]
        why = "on the same device" if schedule.has_lanes else "the op before it on the device"
        why = why if same else f"its input, from device {schedule.device[bound]}"
        lines.append(
            f"  waits for: {_name(schedule, bound)}, {why}, which ends at "
            f"{part(timeline.end[bound])}"
        )
    gap = gap_before(explanation.idle, op)
    idle = f"{part(gap.end - gap.start)}: {_parts_text(timeline, gap.parts)}" if gap else "none"
    lines.append(f"  idle before it: {idle}")
    if explanation.slack:
        slack = float(explanation.slack.slack[op])
        critical = slack <= NEGLIGIBLE * timeline.makespan
        text = "0: any delay delays the iteration" if critical else f"{part(slack)} {unit}"
        lines.append(f"  slack: {text}")
    after = [_name(schedule, each) for each in _users(schedule, op)]
    lines.append(f"  its result goes to: {', '.join(after) or 'no other op'}")
    return lines


def view_object(explanation: Explanation, device: int | None, op: int | None) -> dict[str, Any]:
    """Return the keys that views add to the object of ``--json``: ``gaps`` and ``op``."""
    timeline, schedule = explanation.timeline, explanation.timeline.schedule
    found: dict[str, Any] = {}
    if device is not None:
        found["gaps"] = [_gap_object(schedule, gap) for gap in gaps_of(explanation.idle, device)]
    if op is not None:
        gap, bound = gap_before(explanation.idle, op), int(timeline.bound[op])
        found["op"] = {
            "op": schedule.label(op),
            "device": int(schedule.device[op]),
            "start": float(timeline.start[op]),
            "end": float(timeline.end[op]),
            "waits_for": schedule.label(bound) if bound != NONE else None,
            "gap": _gap_object(schedule, gap) if gap else None,
            "slack": float(explanation.slack.slack[op]) if explanation.slack else None,
            "result_to": [schedule.label(each) for each in _users(schedule, op)],
        }
    return found


def _gaps(idle: Idle, segments: np.ndarray[Any, np.dtype[np.int64]]) -> list[Gap]:
    """Return gaps, with segments before the same op joined."""
    found: list[Gap] = []
    for i in segments.tolist():
        op, start, end = int(idle.op[i]), float(idle.start[i]), float(idle.end[i])
        part = Part(NAMES[idle.cause[i]], end - start, int(idle.blamed[i]))
        if found and found[-1].op == op:
            found[-1] = Gap(op, found[-1].start, end, (*found[-1].parts, part))
        else:
            found.append(Gap(op, start, end, (part,)))
    return found


def _users(schedule: Schedule, op: int) -> list[int]:
    """Return the ops that need the result of an op, or of either op of a pair."""
    members = [op] if schedule.pair[op] == NONE else [op, op + 1]
    if schedule.has_lanes:
        waits = list_waits(schedule)
        return np.unique(waits.op[np.isin(waits.need, members) & ~waits.on_lane]).tolist()
    return [int(each) for each in np.flatnonzero(np.isin(schedule.dependency, members))]


def _parts_text(timeline: Timeline, parts: tuple[Part, ...]) -> str:
    schedule, texts = timeline.schedule, []
    for part in parts:
        if len(parts) > 1 and format_part(part.time, timeline.makespan) == "0":
            continue
        blamed = (
            f" ({_name(schedule, part.blamed)})"
            if part.blamed != NONE
            else f" ({CAUSES[part.cause]})"
        )
        texts.append(f"{part.cause} {format_part(part.time, timeline.makespan)}{blamed}")
    return ", ".join(texts)


def _name(schedule: Schedule, op: int) -> str:
    if schedule.pair[op] == NONE:
        return schedule.label(op)
    first = min(op, int(schedule.pair[op]))
    return f"{schedule.label(first)}+{schedule.label(first + 1)}"


def _gap_object(schedule: Schedule, gap: Gap) -> dict[str, Any]:
    return {
        "before": schedule.label(gap.op) if gap.op != NONE else None,
        "start": gap.start,
        "end": gap.end,
        "parts": [
            {
                "cause": p.cause,
                "time": p.time,
                "op": schedule.label(p.blamed) if p.blamed != NONE else None,
            }
            for p in gap.parts
        ],
    }
