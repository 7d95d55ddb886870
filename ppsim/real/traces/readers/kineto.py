"""Reader of Kineto traces of torch's pipelines, one file per process; a training step is an
iteration.
"""

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
    """The complete steps of one process, which have the same ops in the same order."""

    keys: tuple[Key, ...]  # the ops in order; a pair is one op of kind FB
    actions: list[list[Action]]  # the spans of each step
    # shape (steps, 4, ops), ms at which an op was reached, started and ended, and its input arrived
    times: Times
    messages: Mapping[Key, list[tuple[float, float]]]  # start and end of sends and receives


def matches(file: TraceFile) -> bool:
    """Return whether a file is a trace with the spans of a pipeline, and not one of ppsim."""
    if not file.shows('"traceEvents"'):
        return False
    return '"PP:' in file.text or PLAIN.search(file.text) is not None


def is_profile(file: TraceFile) -> bool:
    """Return whether a file is a trace of torch.profiler."""
    return file.shows('"traceEvents"', '"schemaVersion"')


def read_files(run: RunFiles) -> RealRun:
    """Read a run from each process's trace.

    Raises:
        InputError: no trace has an op of a pipeline, or processes have no common complete step.
    """
    if not any(matches(file) for file in run.files.values()):
        raise InputError(
            f"{run.source} is a trace of torch.profiler without ops of a pipeline: torch "
            "marks the ops of ScheduleGPipe and of schedules with several stages per device "
            "(LoopedBFS, interleaved, zero bubble, ZBV, DualPipeV) or from a CSV, not those of "
            "Schedule1F1B; Megatron-LM marks no ops",
            "record the run: 'from ppsim.record import record' and 'with record(FOLDER):' around "
            "its steps",
        )
    return read_kineto(run.source, run.texts)


def read_kineto(source: str, texts: Mapping[str, str]) -> RealRun:
    """Read a run from the text of each process's trace, by path.

    Raises:
        InputError: a text is not a trace, or processes have no common complete step.
    """
    traces = [parse_trace(text, path, rank) for rank, (path, text) in enumerate(texts.items())]
    by_path = dict(zip(texts, traces, strict=True))
    steps, common = split_steps(by_path)
    entries, op_of_entry = list[Entry](), list[tuple[int, int]]()
    for device, device_steps in enumerate(steps):
        split = {key[1:] for key in device_steps.keys if key[0] == "W"}
        first_step = zip(device_steps.actions[0], device_steps.keys, strict=True)
        for at, (action, key) in enumerate(first_step):
            members = _members(action, key, split)
            for part, (kind, stage, microbatch) in enumerate(
                members, start=1 if len(members) == 2 else 0
            ):
                entries.append((device, KINDS[kind], stage, microbatch, part))
                op_of_entry.append((device, at))
    schedule = schedule_of(source, entries, len(steps))
    if not common:
        raise InputError(
            f"{source}: processes have no common step", "traces of the same steps of one run"
        )
    times = np.array(
        [[steps[d].times[numbers[d], :, at] for d, at in op_of_entry] for numbers in common]
    )
    posted, start, end, arrival = (times[:, :, row] for row in range(4))
    zero = posted.min(axis=1, keepdims=True)
    reached = np.full_like(posted, np.nan) if np.isnan(arrival).all() else posted - zero
    columns = start - zero, end - zero, reached, arrival - zero, np.zeros(len(steps))
    numbers, notes = np.arange(len(common), dtype=np.int64), tuple(_notes(traces))
    return align_clocks(
        RealRun(source, "kineto", schedule, numbers, *columns, traces=by_path, notes=notes)
    )


def split_steps(traces: Mapping[str, Trace]) -> tuple[list[Steps], list[list[int]]]:
    """Split traces, by path, into steps.

    Returns:
        The complete steps of each device, and for each common step its number on every device.
    """
    epoch = next(iter(traces.values())).base_s
    steps = [_steps(trace, path, (trace.base_s - epoch) * 1e3) for path, trace in traces.items()]
    steps.sort(key=lambda device_steps: min(key[1] for key in device_steps.keys))
    return steps, _common_steps(steps)


def _notes(traces: Sequence[Trace]) -> Iterator[str]:
    """Yield what a user must know about the times of traces."""
    if (hosts := len({trace.host for trace in traces})) > 1:
        yield f"times of {hosts} hosts are by their own clocks"
    if any(trace.kernels for trace in traces):
        yield "no spans of receives: NCCL's receiving kernels are used instead"


def _members(action: Action, key: Key, split: set[tuple[int, int]]) -> list[Key]:
    """Return the ops of a span; the backward of a pair is I if its cell is in ``split``."""
    if key[0] != "FB":
        return [key]
    return [("F", *key[1:]), ("I" if action.backward in split else "B", *action.backward)]


def _steps(trace: Trace, path: str, epoch: float) -> Steps:
    """Return the complete steps of a trace; each op is in a step once.

    ``epoch`` is added to all times, in ms.
    """
    arrivals = arrivals_of(trace)
    steps, seen = list[list[Action]](), set[Key]()
    messages = defaultdict[Key, list[tuple[float, float]]](list)
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
        raise InputError(f"'{name_of(path)}' has messages, but no ops", HINT)
    queues = [tuple(action.key for action in step) for step in steps]
    longest = max(map(len, queues))
    usual = Counter(queue for queue in queues if len(queue) == longest).most_common(1)[0][0]
    complete = [step for step, queue in zip(steps, queues, strict=True) if queue == usual]
    times = np.array([[_times(action, arrivals, epoch) for action in step] for step in complete])
    return Steps(usual, complete, times.transpose(0, 2, 1), messages)


def _times(
    action: Action, arrivals: Mapping[Action, Receive], epoch: float
) -> tuple[float, float, float, float]:
    """Return when an op was reached, started and ended, and when its input arrived, in ms."""
    arrived = arrivals[action].end if action in arrivals else np.nan
    return (
        epoch + action.start,
        epoch + begin_of(action, arrivals),
        epoch + action.end,
        epoch + arrived,
    )


def _common_steps(devices: Sequence[Steps]) -> list[list[int]]:
    """Return the number of each common step on every device.

    Steps of different devices are the same if their starts differ by less than device 0's step.
    """
    begins = [steps.times[:, 0].min(axis=1) for steps in devices]
    first = devices[0].times
    nearest = np.stack([_nearest(begin, begins[0]) for begin in begins])
    distance = np.max(
        [abs(begin[near] - begins[0]) for begin, near in zip(begins, nearest, strict=True)], axis=0
    )
    found: list[list[int]] = nearest.T[distance <= first[:, 2].max(axis=1) - begins[0]].tolist()
    return found


def _nearest(begins: NDArray[np.float64], times: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the index of the start nearest to each time, the first of equally near ones."""
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
