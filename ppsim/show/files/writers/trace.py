"""Chrome trace JSON for Perfetto and chrome://tracing: one process per device, arrows for messages.

Slices carry torch's op names (``2F0``). Times in s, ms, us and ns are drawn to scale; one unit of
any other time is drawn as a millisecond. ``otherData`` states the unit and its length in
microseconds.

Messages that take time are slices in threads of the device that they leave: one thread per target,
or more if messages overlap. An arrow then leads from op to message to op. Messages with a latency
only have category ``latency``; ppsim's reader skips them, as they follow from the ops. Collectives
of an execution have a thread, and so has idle time, with a slice per cause if arrival times are
known.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from ppsim.analysis.idle import NAMES
from ppsim.base.json_output import dump_json
from ppsim.base.times import microseconds
from ppsim.core.costs import find_latencies
from ppsim.core.curve import Curve
from ppsim.core.lanes import used_streams
from ppsim.core.ops import FORWARDS, ONCE_A_STEP, Kind
from ppsim.core.ops import label as op_label
from ppsim.core.schedule import NONE, Schedule
from ppsim.core.timeline import Timeline
from ppsim.engine.memory.usage import activations, in_flight, scale_bytes, steps
from ppsim.show.drawing.lanes import assign_tracks, find_carriers, find_collectives
from ppsim.show.files.document import Abilities, Document, find_idles

if TYPE_CHECKING:
    from ppsim.analysis.idle import Idle
    from ppsim.core.execution import Execution

SUFFIXES = (".trace.json", ".trace.json.gz")
ABILITIES = Abilities(memory=True)
SLICE = 20_000  # ops that are encoded at a time
COMPUTE_THREAD = 0
IDLE_THREAD = 999_999
# Larger than any process number: Perfetto shows the thread that has its process's number first, as
# the main one.
COLLECTIVES_THREAD = 1_000_000
FIRST_MESSAGES_THREAD = COLLECTIVES_THREAD + 1
# Each stream in parallel with compute has a thread of its own.
THREAD = [
    COLLECTIVES_THREAD * min(1, kind.info.stream or 0) + (kind.info.stream or 0) for kind in Kind
]
CATEGORY = {kind: kind.info.name.replace(" ", "_") for kind in Kind}


@dataclass(frozen=True)
class SentMessages:
    """Messages of one timeline that take time, with their threads; arrays of shape (messages,)."""

    source: NDArray[np.int64]  # the sending device
    leave: NDArray[np.float64]
    arrive: NDArray[np.float64]
    thread: NDArray[np.int64]  # in the process of the sending device
    # shape (ops,), the message that carries each op's input, -1 for none
    carrier: NDArray[np.int64]
    names: list[tuple[int, int, str]]  # device, thread and name of each thread


@dataclass(frozen=True)
class Run:
    """One timeline of the trace."""

    timeline: Timeline
    sent: SentMessages | None  # None if the messages take no time or are unknown
    execution: Execution | None  # None for a timeline of the simple model
    first_process: int  # the number of device 0's process
    scale: float  # microseconds per unit of the timeline's times
    idle: Idle | None  # idle time by cause; None if unknown


def write(document: Document, out: IO[bytes], suffix: str) -> None:
    """Write the events one by one, without a second copy of all in memory; gzipped for ``.gz``."""
    if suffix.endswith(".gz"):
        with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=out, mtime=0) as packed:
            return _write(document, cast(IO[bytes], packed))
    return _write(document, out)


def _write(document: Document, out: IO[bytes]) -> None:
    slices = {timeline.schedule.n_slices for timeline in document.timelines}
    cut = {"slices": max(slices)} if len(slices) == 1 and max(slices) > 1 else {}
    steps = {timeline.schedule.n_rounds for timeline in document.timelines}
    loops = {timeline.schedule.feeds_back for timeline in document.timelines}
    if len(steps) == 1 and max(steps) > 1:
        cut["steps"] = max(steps)
    if loops == {True}:
        cut["feeds_back"] = True
    if {timeline.schedule.flushes for timeline in document.timelines} == {False}:
        cut["flushes"] = False
    details = dump_json({**document.inputs, **_time_scale(document), **cut})
    out.write(b'{"displayTimeUnit":"ms","otherData":' + details + b',"traceEvents":[')
    first_process, separator = 0, b"\n"
    runs = zip_longest(document.timelines, document.executions, find_idles(document))
    for number, (timeline, execution, idle) in enumerate(runs):
        prefix = f"{document.titles[number]} " if len(document.timelines) > 1 else ""
        sent = _executed(execution) if execution else _latencies(timeline)
        run = Run(timeline, sent, execution, first_process, microseconds(timeline.unit), idle)
        for events in _events(run, document.memory[number : number + 1], prefix):
            for event in events:
                out.write(separator + dump_json(event))
                separator = b",\n"
        first_process += timeline.schedule.n_devices
    out.write(b"\n]}\n")


def _time_scale(document: Document) -> dict[str, Any]:
    """Return the unit of the document's times and its microseconds; empty if units differ."""
    units = {timeline.unit for timeline in document.timelines}
    return (
        {"unit": min(units), "microseconds_per_unit": microseconds(min(units))}
        if len(units) == 1
        else {}
    )


def _executed(execution: Execution) -> SentMessages:
    """Return the messages of an execution."""
    messages, schedule = execution.messages, execution.compute.schedule
    carrier = find_carriers(execution)[schedule.dependency]
    source, target = messages.source.astype(np.int64), messages.target.astype(np.int64)
    thread, names = _threads(schedule, source, target, messages.leave, messages.arrive)
    taken = np.where(schedule.crosses, carrier, NONE)
    return SentMessages(source, messages.leave, messages.arrive, thread, taken, names)


def _latencies(timeline: Timeline) -> SentMessages | None:
    """Return the messages of a timeline with latencies, in the order of the ops that receive them.

    None if all latencies are 0 or unknown.
    """
    if timeline.comm is None:
        return None
    schedule = timeline.schedule
    latency = find_latencies(schedule, timeline.comm, timeline.feedback)
    takes = np.flatnonzero(schedule.crosses & (latency > 0))
    if not len(takes):
        return None
    made = schedule.dependency[takes]
    source, target = schedule.device[made].astype(np.int64), schedule.device[takes].astype(np.int64)
    leave = timeline.end[made]
    arrive = leave + latency[takes]
    thread, names = _threads(schedule, source, target, leave, arrive)
    carrier = np.full(len(schedule), NONE, np.int64)
    carrier[takes] = np.arange(len(takes))
    return SentMessages(source, leave, arrive, thread, carrier, names)


def _threads(
    schedule: Schedule,
    source: NDArray[np.int64],
    target: NDArray[np.int64],
    leave: NDArray[np.float64],
    arrive: NDArray[np.float64],
) -> tuple[NDArray[np.int64], list[tuple[int, int, str]]]:
    """Return the thread number of each message, and device, number and name of each thread.

    Threads of messages are numbered after the threads of the schedule's streams.
    """
    devices, first = (
        schedule.n_devices,
        FIRST_MESSAGES_THREAD + max(used_streams(schedule), default=0),
    )
    link = source * devices + target
    track = assign_tracks(link, leave, arrive)
    most = track.max(initial=0) + 1
    threads, thread_of_message = np.unique(link * most + track, return_inverse=True)
    link, track = threads // most, threads % most
    device = link // devices
    number = first + np.arange(len(threads)) - np.searchsorted(device, device)
    names = [
        (int(device), int(thread), f"to device {target}" + (f" ({track + 1})" if track else ""))
        for device, thread, target, track in zip(device, number, link % devices, track, strict=True)
    ]
    return number[thread_of_message], names


def _events(run: Run, memory: Sequence[Curve], prefix: str) -> Iterator[list[dict[str, Any]]]:
    timeline, execution, schedule = run.timeline, run.execution, run.timeline.schedule
    leads = schedule.leads.tolist()
    yield list(_names(run, prefix))
    if run.idle:
        waiting = np.unique(run.idle.device).tolist()
        yield [_thread_name(run.first_process + device, IDLE_THREAD, "idle") for device in waiting]
        yield from ([_idle(run, run.idle, place)] for place in range(len(run.idle.op)))
    for begin in range(0, len(schedule), SLICE):
        ops = range(begin, min(begin + SLICE, len(schedule)))
        yield [_slice(run, op) for op in ops if leads[op]]
    if execution and run.sent:
        for message in range(len(execution.messages)):
            yield [_message(run, run.sent, execution, message)]
        yield [_collective(run, execution, int(op)) for op in find_collectives(execution)]
    elif run.sent:
        yield from (
            [_latency(run, run.sent, int(op))] for op in np.flatnonzero(run.sent.carrier != NONE)
        )
    for flow, op in enumerate(np.flatnonzero(schedule.crosses)):
        yield _arrow(run, int(op), (run.first_process << 32) + flow)
    for curve in (activations(timeline), in_flight(timeline), *scale_bytes(memory)):
        name = f"{curve.name} ({curve.unit})" if curve.unit.endswith("B") else curve.name
        for device in range(schedule.n_devices):
            yield [
                {
                    "ph": "C",
                    "name": name,
                    "pid": run.first_process + device,
                    "ts": time * run.scale,
                    "args": {"held": held},
                }
                for time, held in zip(*steps(curve, device), strict=True)
            ]


def _names(run: Run, prefix: str) -> Iterator[dict[str, Any]]:
    """Yield events that name and order the processes, one per device, and their threads."""
    schedule, execution, first_process = run.timeline.schedule, run.execution, run.first_process
    streams = used_streams(schedule)
    for device in range(schedule.n_devices):
        process = first_process + device
        yield {
            "ph": "M",
            "name": "process_name",
            "pid": process,
            "args": {"name": f"{prefix}device {device}"},
        }
        yield {
            "ph": "M",
            "name": "process_sort_index",
            "pid": process,
            "args": {"sort_index": process},
        }
        yield _thread_name(process, COMPUTE_THREAD, "compute")
        for stream in streams:
            yield _thread_name(process, COLLECTIVES_THREAD + stream, stream.label)
    gathering: list[int] = []
    if execution:
        collectives = find_collectives(execution)
        gathering = np.unique(execution.lowered.schedule.device[collectives]).tolist()
    for device, thread, name in [
        *((d, COLLECTIVES_THREAD, "collectives") for d in gathering),
        *(run.sent.names if run.sent else ()),
    ]:
        order = {
            "ph": "M",
            "name": "thread_sort_index",
            "tid": thread,
            "args": {"sort_index": thread},
        }
        yield _thread_name(first_process + device, thread, name)
        yield order | {"pid": first_process + device}


def _thread_name(process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": name}}


def _slice(run: Run, op: int) -> dict[str, Any]:
    timeline, schedule = run.timeline, run.timeline.schedule
    partner = int(schedule.pair[op])
    start, end = timeline.start[op], timeline.end[op]
    name, category = schedule.label(op), CATEGORY[Kind(schedule.kind[op])]
    if partner != NONE:
        name, category = f"({name};{schedule.label(partner)})OVERLAP_F_B", "overlap"
    before = timeline.end[op - 1] if op > schedule.offsets[schedule.device[op]] else 0.0
    args = {
        "stage": schedule.stage[op],
        **_microbatch_numbers(schedule, op),
        "chunk": schedule.chunk[op],
        "idle_before": max(start - before, 0.0),
    }
    return _span(
        run, name, category, schedule.device[op], THREAD[schedule.kind[op]], (start, end), args
    )


def _microbatch_numbers(schedule: Schedule, op: int) -> dict[str, Any]:
    """Return an op's step, if the schedule has several, and its microbatch in the step.

    An op that runs once a step has no microbatch.
    """
    step, microbatch = divmod(int(schedule.microbatch[op]), schedule.round_microbatches)
    steps = {"step": step} if schedule.n_rounds > 1 else {}
    return steps if int(schedule.kind[op]) in ONCE_A_STEP else {**steps, "microbatch": microbatch}


def _span(
    run: Run,
    name: str,
    category: str,
    device: int,
    thread: int,
    times: tuple[float, float],
    args: dict[str, Any],
) -> dict[str, Any]:
    """Return a slice of a thread of one device."""
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": run.first_process + device,
        "tid": thread,
        "ts": times[0] * run.scale,
        "dur": (times[1] - times[0]) * run.scale,
        "args": args,
    }


def _idle(run: Run, idle: Idle, place: int) -> dict[str, Any]:
    """Return a slice of idle time, named by its cause (``idle: compute``).

    Its args name the waiting op and the op that it waits for.
    """
    ops = {"waits": idle.op[place], "for": idle.blamed[place]}
    args = {name: run.timeline.schedule.label(int(op)) for name, op in ops.items() if op != NONE}
    times = idle.start[place], idle.end[place]
    return _span(
        run,
        f"idle: {NAMES[idle.cause[place]]}",
        "idle",
        idle.device[place],
        IDLE_THREAD,
        times,
        args,
    )


def _message(run: Run, sent: SentMessages, execution: Execution, message: int) -> dict[str, Any]:
    """Return the slice of an execution's message, from departure to arrival.

    Its args have the times at which both sides were posted, and the message's bytes.
    """
    schedule, messages = execution.lowered.schedule, execution.messages
    send, times = int(messages.send[message]), (messages.leave[message], messages.arrive[message])
    args = {
        "stage": schedule.stage[send],
        "microbatch": schedule.microbatch[send],
        "send_posted": messages.posted[message],
        "receive_posted": messages.awaited[message],
        **({"bytes": messages.size[message]} if messages.size[message] else {}),
    }
    return _span(
        run,
        schedule.label(send),
        "p2p",
        messages.source[message],
        sent.thread[message],
        times,
        args,
    )


def _latency(run: Run, sent: SentMessages, op: int) -> dict[str, Any]:
    """Return the slice of the message that carries an op's input, from departure to arrival."""
    schedule, message = run.timeline.schedule, int(sent.carrier[op])
    made = int(schedule.dependency[op])
    kind = Kind.SEND_F if schedule.kind[made] in FORWARDS else Kind.SEND_B
    name = op_label(kind, int(schedule.stage[made]), int(schedule.microbatch[made]))
    times = sent.leave[message], sent.arrive[message]
    args = {"stage": schedule.stage[made], **_microbatch_numbers(schedule, made)}
    return _span(run, name, "latency", sent.source[message], sent.thread[message], times, args)


def _collective(run: Run, execution: Execution, op: int) -> dict[str, Any]:
    schedule, timeline = execution.lowered.schedule, execution.timeline
    kind, stage, times = (
        Kind(schedule.kind[op]),
        schedule.stage[op],
        (timeline.start[op], timeline.end[op]),
    )
    name, args = f"{stage}{kind.name}", {"stage": stage}
    return _span(run, name, CATEGORY[kind], schedule.device[op], COLLECTIVES_THREAD, times, args)


def _arrow(run: Run, op: int, flow: int) -> list[dict[str, Any]]:
    """Return the arrow from the op that makes an input to the op that uses it.

    It passes through the slice of the message, if there is one.
    """
    timeline, sent, schedule = run.timeline, run.sent, run.timeline.schedule
    source = int(schedule.dependency[op])
    # An arrow leaves from inside its slice: one microsecond before the end, or half way through a
    # shorter one.
    inset = min(1.0, (timeline.end[source] - timeline.start[source]) * run.scale / 2)
    stops = [
        ("s", schedule.device[source], COMPUTE_THREAD, timeline.end[source] * run.scale - inset)
    ]
    if sent and (message := int(sent.carrier[op])) != NONE:
        leave = sent.leave[message] * run.scale
        stops.append(("t", sent.source[message], sent.thread[message], leave))
    stops.append(("f", schedule.device[op], COMPUTE_THREAD, timeline.start[op] * run.scale))
    return [
        {
            "ph": phase,
            "id": flow,
            "name": "message",
            "cat": "p2p",
            "pid": run.first_process + device,
            "tid": thread,
            "ts": time,
            **({"bp": "e"} if phase == "f" else {}),
        }
        for phase, device, thread, time in stops
    ]
