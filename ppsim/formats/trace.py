"""Chrome trace JSON, as Perfetto and chrome://tracing read it: one process per device, arrows for messages.

Slices carry torch's op names (``2F0``). One time unit is drawn as one millisecond.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np

from ppsim.curves import Curve, activations
from ppsim.formats import Document
from ppsim.memory import in_flight, readable, steps
from ppsim.ops import NAMES, Kind
from ppsim.schedule import NONE
from ppsim.timeline import Timeline

SUFFIXES = (".trace.json",)
MICROSECONDS = 1000.0
SLICE = 20_000
CATEGORY = {kind: name.replace(" ", "_") for kind, name in NAMES.items()}


def write(document: Document, out: IO[bytes], suffix: str) -> None:
    """Write the events piece by piece, so that millions of ops need no second copy in memory."""
    import orjson

    out.write(b'{"displayTimeUnit":"ms","otherData":' + orjson.dumps(dict(document.inputs)) + b',"traceEvents":[')
    first_process, separator = 0, b"\n"
    for number, (timeline, title) in enumerate(zip(document.timelines, document.titles, strict=True)):
        prefix = f"{title} " if len(document.timelines) > 1 else ""
        for events in _events(timeline, document.memory[number : number + 1], prefix, first_process):
            for event in events:
                out.write(separator + orjson.dumps(event, option=orjson.OPT_SERIALIZE_NUMPY))
                separator = b",\n"
        first_process += timeline.schedule.n_devices
    out.write(b"\n]}\n")


def _events(
    timeline: Timeline, memory: Sequence[Curve], prefix: str, first_process: int
) -> Iterator[list[dict[str, Any]]]:
    schedule = timeline.schedule
    names = []
    for device in range(schedule.n_devices):
        process = first_process + device
        names += [
            {"ph": "M", "name": "process_name", "pid": process, "args": {"name": f"{prefix}device {device}"}},
            {"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}},
            {"ph": "M", "name": "thread_name", "pid": process, "tid": 0, "args": {"name": "compute"}},
        ]
    yield names
    for begin in range(0, len(schedule), SLICE):
        ops = range(begin, min(begin + SLICE, len(schedule)))
        yield [_slice(timeline, op, first_process) for op in ops if not _is_second(timeline, op)]
    for flow, op in enumerate(np.flatnonzero(schedule.crosses)):
        yield _arrow(timeline, int(op), (first_process << 32) + flow, first_process)
    for curve in (activations(timeline), in_flight(timeline), *readable(memory)):
        name = f"{curve.name} ({curve.unit})" if curve.unit.endswith("B") else curve.name
        for device in range(schedule.n_devices):
            yield [
                {
                    "ph": "C",
                    "name": name,
                    "pid": first_process + device,
                    "ts": time * MICROSECONDS,
                    "args": {"held": held},
                }
                for time, held in zip(*steps(curve, device), strict=True)
            ]


def _is_second(timeline: Timeline, op: int) -> bool:
    return NONE != timeline.schedule.pair[op] < op


def _slice(timeline: Timeline, op: int, first_process: int) -> dict[str, Any]:
    schedule = timeline.schedule
    partner = int(schedule.pair[op])
    start, end = timeline.start[op], timeline.end[op]
    name, category = schedule.label(op), CATEGORY[Kind(schedule.kind[op])]
    if partner != NONE:
        name, category = f"({name};{schedule.label(partner)})OVERLAP_F_B", "overlap"
    before = timeline.end[op - 1] if op > schedule.offsets[schedule.device[op]] else 0.0
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": first_process + schedule.device[op],
        "tid": 0,
        "ts": start * MICROSECONDS,
        "dur": (end - start) * MICROSECONDS,
        "args": {
            "stage": schedule.stage[op],
            "microbatch": schedule.microbatch[op],
            "chunk": schedule.chunk[op],
            "idle_before": start - before,
        },
    }


def _arrow(timeline: Timeline, op: int, flow: int, first_process: int) -> list[dict[str, Any]]:
    schedule = timeline.schedule
    source = int(schedule.dependency[op])
    # An arrow leaves from inside its slice: one microsecond before the end, or half way through a shorter one.
    inset = min(1.0, (timeline.end[source] - timeline.start[source]) * MICROSECONDS / 2)
    ends = (
        ("s", source, timeline.end[source] * MICROSECONDS - inset),
        ("f", op, timeline.start[op] * MICROSECONDS),
    )
    return [
        {
            "ph": phase,
            "id": flow,
            "name": "message",
            "cat": "p2p",
            "pid": first_process + schedule.device[at],
            "tid": 0,
            "ts": time,
            **({"bp": "e"} if phase == "f" else {}),
        }
        for phase, at, time in ends
    ]
