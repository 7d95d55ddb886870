"""A profile from Kineto (Chrome) traces of a real training run with torch.distributed.pipelining, one file per rank.

Torch's runtime names its spans ``PP:0F0``, ``PP:2SEND_F1`` or ``PP:(0F3;7B0)OVERLAP_F_B``; its GPipe schedule names
them ``Forward 0`` and ``Backward 0``. Where a GPU's own spans are there they are used: the host's only show launches.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import NamedTuple

from ppsim.base.source import name_of
from ppsim.base.text import one_line
from ppsim.calibration import kineto
from ppsim.calibration.clock import spread
from ppsim.calibration.kineto import HINT
from ppsim.errors import InputError
from ppsim.profiles.message_fits import fit_messages
from ppsim.profiles.profile import Message, OpTime, Profile, Provenance
from ppsim.version import VERSION

ACTION = re.compile(r"PP:(\d{1,9})(F|B|I|W|SEND_F|SEND_B|RECV_F|RECV_B)(\d{1,9})", re.ASCII)
PAIR = re.compile(r"PP:\((\d{1,9})F(\d{1,9});(\d{1,9})[BI](\d{1,9})\)OVERLAP_F_B", re.ASCII)
PLAIN = re.compile(r"(Forward|Backward) (\d{1,9})", re.ASCII)
RECEIVED = re.compile(r"(gloo|nccl):recv")


class Action(NamedTuple):
    """One span of the pipeline's runtime, times in ms since the file's epoch."""

    kind: str
    stage: int
    microbatch: int
    start: float
    end: float


class Receive(NamedTuple):
    """One message's receive: from the call to the arrival."""

    start: float
    end: float
    size: int


@dataclass(frozen=True)
class Trace:
    """What one rank's file holds; ``base_s`` is the epoch its times count from."""

    host: str
    device: str
    base_s: float
    actions: tuple[Action, ...]
    receives: tuple[Receive, ...]


def profile_from(paths: Sequence[str], command: str) -> Profile:
    """Op times per stage and message times from the traces of all ranks; the first step is left out where more follow.

    Raises:
        InputError: a file cannot be read, is no trace, or has no span of a pipeline.
    """
    traces = [read_trace(path, rank) for rank, path in enumerate(paths)]
    ops: dict[tuple[int, str], list[float]] = defaultdict(list)
    for trace in traces:
        for (kind, stage, _), samples in _steps(_compute(trace)).items():
            ops[stage, kind] += samples
    stages = {stage for stage, _ in ops}
    if not stages:
        raise InputError("the traces hold messages and no op", HINT)
    if len(stages) <= max(stages):
        missing = islice((stage for stage in range(max(stages)) if stage not in stages), 8)
        named = ", ".join(map(str, missing))
        raise InputError(f"the traces show nothing of stage {named}", "give the trace of every rank")
    messages = tuple(_messages(traces))
    first = max(0.0, min(trace.base_s + trace.actions[0].start * 1e-3 for trace in traces))
    made = Provenance(
        machine=", ".join(sorted({t.host for t in traces})) or "unknown",
        cpu="unknown",
        cores=0,
        threads=0,
        load=0.0,
        device=", ".join(sorted({t.device for t in traces})),
        clocks="unknown",
        torch="unknown",
        python="unknown",
        ppsim=VERSION,
        date=datetime.fromtimestamp(first, UTC).isoformat(timespec="seconds"),
        command=command,
        note=f"from {len(paths)} traces; a profiled run is slower than one without a profiler",
    )
    times = [
        OpTime("stage", kind, 0, stage=stage, cache="run", **spread(ms)) for (stage, kind), ms in sorted(ops.items())
    ]
    return Profile(made, None, tuple(times), messages, tuple(fit_messages(messages)))


def read_trace(path: str, rank: int) -> Trace:
    """Read one rank's trace, plain or gzipped; ``rank`` where the file does not tell.

    Raises:
        InputError: the file cannot be read, is no trace, or has no span of a pipeline.
    """
    file = kineto.read_file(path)
    rank = rank if file.distributed.rank is None else file.distributed.rank
    events = [event for event in file.events if event.ph == "X"]
    on_gpu = [event for event in events if event.cat == "gpu_user_annotation"]
    actions = list(_actions(on_gpu, rank, path))
    if actions:
        events = on_gpu
    else:
        actions = list(_actions(events, rank, path))
    if not actions:
        raise InputError(f"'{name_of(path)}' has no span of a pipeline", HINT)
    received = [event for event in events if RECEIVED.match(event.name)]
    return Trace(
        one_line(file.host),
        one_line(file.devices[0].name) if file.devices else "cpu",
        file.epoch_ns * 1e-9,
        tuple(sorted(actions, key=lambda action: action.start)),
        tuple(sorted(Receive(*kineto.span_of(event, path), kineto.bytes_of(event)) for event in received)),
    )


def _actions(events: Sequence[kineto.Event], rank: int, path: str) -> Iterator[Action]:
    for event in events:
        if found := ACTION.fullmatch(event.name):
            kind, stage, microbatch = found[2], int(found[1]), int(found[3])
        elif found := PAIR.fullmatch(event.name):
            kind, stage, microbatch = "FB", int(found[1]), int(found[2])
        elif found := PLAIN.fullmatch(event.name):
            kind, stage, microbatch = found[1][0], rank, int(found[2])
        else:
            continue
        yield Action(kind, stage, microbatch, *kineto.span_of(event, path))


def _compute(trace: Trace) -> Iterator[tuple[Action, float]]:
    """Ops and their time in ms: from the span's start, or from the arrival of its input where that came later."""
    arrivals = arrivals_of(trace)
    for action in trace.actions:
        if action.kind not in ("F", "B", "I", "W", "FB"):
            continue
        start = action.start
        if action in arrivals:
            start = max(start, min(arrivals[action].end, action.end))
        yield action, action.end - start


def arrivals_of(trace: Trace) -> dict[Action, Receive]:
    """The receive that each op waited for: by name where receives are named, else the one within the op's span."""
    named: dict[tuple[str, int, int], list[Receive]] = defaultdict(list)
    for action in trace.actions:
        if action.kind.startswith("RECV"):
            found = _within(trace, action)
            if found:
                named[action.kind[-1], action.stage, action.microbatch].append(found)
    arrivals = {}
    for action in trace.actions:
        direction = "F" if action.kind == "F" else "B"
        if named and action.kind in ("F", "B", "I"):
            before = [r for r in named[direction, action.stage, action.microbatch] if r.start <= action.end]
            found = before[-1] if before else None
        else:
            found = _within(trace, action) if action.kind in ("F", "B") and not named else None
        if found:
            arrivals[action] = found
    return arrivals


def _within(trace: Trace, action: Action) -> Receive | None:
    at = bisect_left(trace.receives, (action.start,))
    if at < len(trace.receives) and trace.receives[at].start <= action.end:
        return trace.receives[at]
    return None


def _steps(timed: Iterator[tuple[Action, float]]) -> dict[tuple[str, int, int], list[float]]:
    """Times of each op over the steps, the first step left out where there are more."""
    times: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    for action, ms in timed:
        times[action.kind, action.stage, action.microbatch].append(ms)
    return {key: values[1:] or values for key, values in times.items()}


def _messages(traces: Sequence[Trace]) -> Iterator[Message]:
    """Messages between ranks of one host: from the later of send and receive to the arrival."""
    sends: dict[tuple[str, int, int], list[tuple[Trace, Action]]] = defaultdict(list)
    receives: dict[tuple[str, int, int], list[tuple[Trace, Receive]]] = defaultdict(list)
    for trace in traces:
        for action in trace.actions:
            if action.kind.startswith("SEND"):
                to = action.stage + (1 if action.kind == "SEND_F" else -1)
                sends[action.kind[-1], to, action.microbatch].append((trace, action))
            elif action.kind.startswith("RECV") and (found := _within(trace, action)):
                receives[action.kind[-1], action.stage, action.microbatch].append((trace, found))
    samples: dict[tuple[str, int], list[float]] = defaultdict(list)
    for key in sends.keys() & receives.keys():
        for (source, sent), (sink, got) in list(zip(sends[key], receives[key], strict=False))[1:]:
            if source.host != sink.host or not got.size:
                continue
            # Ranks of one host share a clock but may count from different epochs.
            shift = (source.base_s - sink.base_s) * 1e3
            pattern = "early" if got.start <= sent.start + shift else "late"
            samples[pattern, got.size].append(got.end - max(got.start, sent.start + shift))
    for (pattern, size), times in sorted(samples.items()):
        yield Message("same-host", pattern, size, **spread([max(t, 0.0) for t in times]))
