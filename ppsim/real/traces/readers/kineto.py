"""Kineto traces of torch's pipelines, one file per process: every training step is an iteration."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ppsim.base.source import name_of
from ppsim.errors import InputError
from ppsim.real.traces.clocks import align_clocks
from ppsim.real.traces.kineto_json import HINT
from ppsim.real.traces.reader import Reader, RunFiles, TraceFile
from ppsim.real.traces.run import KINDS, Entry, RealRun, Times, schedule_of
from ppsim.real.traces.torch_trace import Action, Receive, Trace, arrivals_of, begin_of, parse_trace

Key = tuple[str, int, int]
PLAIN = re.compile(r'"(Forward|Backward) [0-9]')


@dataclass(frozen=True)
class Steps:
    """One process's whole steps, whose ops are the same and in the same order."""

    keys: tuple[Key, ...]  # the ops in that order; a pair is one op of kind FB
    actions: list[list[Action]]  # its spans in each step
    # shape (steps, 4, ops): when each was reached, started and ended, and when its input arrived,
    # in ms
    times: Times
    # start and end of all sends and receives, by name
    messages: Mapping[Key, list[tuple[float, float]]]


def matches(file: TraceFile) -> bool:
    """Tell whether a file is a trace with a pipeline's spans, and not one of ours."""
    if not file.shows('"traceEvents"'):
        return False
    return '"PP:' in file.text or PLAIN.search(file.text) is not None


def is_profile(file: TraceFile) -> bool:
    """Tell whether a file is a trace of torch.profiler."""
    return file.shows('"traceEvents"', '"schemaVersion"')


def read_files(run: RunFiles) -> RealRun:
    """Read a run from each process's trace.

    Raises:
        InputError: no trace marks an op of a pipeline, or processes share no whole step.
    """
    if not any(matches(file) for file in run.files.values()):
        raise InputError(
            f"{run.source} is a trace of torch.profiler that marks no op of a pipeline: torch "
            "marks those of ScheduleGPipe and of schedules with several stages a device "
            "(LoopedBFS, interleaved, zero bubble, ZBV, DualPipeV) or from a CSV, not of "
            "Schedule1F1B, and Megatron-LM marks none",
            "record the run: 'from ppsim.record import record' and 'with record(FOLDER):' around "
            "its steps",
        )
    return read_kineto(run.source, run.texts)


def read_kineto(source: str, texts: Mapping[str, str]) -> RealRun:
    """Read a run from each process's trace by its path (InputError: no trace, or processes share no
    whole step).
    """
    traces = [parse_trace(text, path, rank) for rank, (path, text) in enumerate(texts.items())]
    by_path = dict(zip(texts, traces, strict=True))
    steps, together = split_steps(by_path)
    entries, spread = list[Entry](), list[tuple[int, int]]()
    for device, held in enumerate(steps):
        split = {key[1:] for key in held.keys if key[0] == "W"}
        for at, (action, key) in enumerate(zip(held.actions[0], held.keys, strict=True)):
            members = _members(action, key, split)
            for part, (kind, stage, microbatch) in enumerate(
                members, start=1 if len(members) == 2 else 0
            ):
                entries.append((device, KINDS[kind], stage, microbatch, part))
                spread.append((device, at))
    schedule = schedule_of(source, entries, len(steps))
    if not together:
        raise InputError(
            f"{source}: processes share no step", "traces of the same steps of one run"
        )
    times = np.array(
        [[steps[d].times[numbers[d], :, at] for d, at in spread] for numbers in together]
    )
    posted, start, end, arrival = (times[:, :, row] for row in range(4))
    zero = posted.min(axis=1, keepdims=True)
    reached = np.full_like(posted, np.nan) if np.isnan(arrival).all() else posted - zero
    columns = start - zero, end - zero, reached, arrival - zero, np.zeros(len(steps))
    numbers, notes = np.arange(len(together), dtype=np.int64), tuple(_notes(traces))
    return align_clocks(
        RealRun(source, "kineto", schedule, numbers, *columns, traces=by_path, notes=notes)
    )


def split_steps(traces: Mapping[str, Trace]) -> tuple[list[Steps], list[list[int]]]:
    """Split traces, by their paths, into steps; returns each device's, and the number of each
    common step on all.
    """
    epoch = next(iter(traces.values())).base_s
    steps = [_steps(trace, path, (trace.base_s - epoch) * 1e3) for path, trace in traces.items()]
    steps.sort(key=lambda held: min(key[1] for key in held.keys))
    return steps, _common_steps(steps)


def _notes(traces: Sequence[Trace]) -> Iterator[str]:
    if (hosts := len({trace.host for trace in traces})) > 1:
        yield f"times of {hosts} hosts are compared as their own clocks have them"
    if any(trace.kernels for trace in traces):
        yield "no span tells of a receive: NCCL's kernels that receive are taken for them"


def _members(action: Action, key: Key, split: set[tuple[int, int]]) -> list[Key]:
    """List the ops of a span: the backward of a pair is I where a W of it runs too."""
    if key[0] != "FB":
        return [key]
    return [("F", *key[1:]), ("I" if action.backward in split else "B", *action.backward)]


def _steps(trace: Trace, path: str, epoch: float) -> Steps:
    """Split a trace into steps, each of all ops once, and keep the whole ones."""
    arrivals = arrivals_of(trace)
    steps, seen, messages = (
        list[list[Action]](),
        set[Key](),
        defaultdict[Key, list[tuple[float, float]]](list),
    )
    for action in trace.actions:
        key = action.key
        if action.kind.startswith(("SEND", "RECV")):
            messages[key].append((epoch + action.start, epoch + action.end))
            continue
        if key in seen or not steps:
            steps.append([])
            seen = set()
        steps[-1].append(action)
        seen.add(key)
    if not steps:
        raise InputError(f"'{name_of(path)}' holds messages and no op", HINT)
    queues = [tuple(a.key for a in step) for step in steps]
    longest = max(map(len, queues))
    queue = Counter(queue for queue in queues if len(queue) == longest).most_common(1)[0][0]
    whole = [step for step, own in zip(steps, queues, strict=True) if own == queue]
    times = np.array([[_times(a, arrivals, epoch) for a in step] for step in whole]).transpose(
        0, 2, 1
    )
    return Steps(queue, whole, times, messages)


def _times(
    action: Action, arrivals: Mapping[Action, Receive], epoch: float
) -> tuple[float, float, float, float]:
    """Read when an op was reached, started and ended, and when its input arrived."""
    arrived = arrivals[action].end if action in arrivals else np.nan
    return (
        epoch + action.start,
        epoch + begin_of(action, arrivals),
        epoch + action.end,
        epoch + arrived,
    )


def _common_steps(devices: Sequence[Steps]) -> list[list[int]]:
    """Match the steps of all devices by the time of their start: the number of each on every
    device.
    """
    begins, first = [held.times[:, 0].min(axis=1) for held in devices], devices[0].times
    nearest = np.stack([_nearest(begin, begins[0]) for begin in begins])
    apart = np.max(
        [abs(begin[near] - begins[0]) for begin, near in zip(begins, nearest, strict=True)], axis=0
    )
    found: list[list[int]] = nearest.T[apart <= first[:, 2].max(axis=1) - begins[0]].tolist()
    return found


def _nearest(begins: NDArray[np.float64], times: NDArray[np.float64]) -> NDArray[np.int64]:
    """The number of the beginning that is nearest to each time, the first of several."""
    order = np.argsort(begins, kind="stable")
    ordered = begins[order]
    after = np.minimum(np.searchsorted(ordered, times), len(ordered) - 1)
    sides = ordered[np.maximum(after - 1, 0)], ordered[after]
    before, behind = (order[np.searchsorted(ordered, side)] for side in sides)
    earlier, later = (np.abs(side - times) for side in sides)
    return np.where(
        earlier == later, np.minimum(before, behind), np.where(earlier < later, before, behind)
    )


READER = Reader(
    name="kineto",
    title="Kineto traces",
    expects="Kineto traces one per process",
    place=30,
    matches=matches,
    read=read_files,
    resembles=is_profile,
)
