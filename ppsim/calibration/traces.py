"""A profile from Kineto (Chrome) traces of a real training run with torch.distributed.pipelining, one file per rank.

Torch's runtime names its spans ``PP:0F0``, ``PP:2SEND_F1`` or ``PP:(0F3;7B0)OVERLAP_F_B``; its GPipe schedule names
them ``Forward 0`` and ``Backward 0``. Where a GPU's own spans are there they are used: the host's only show launches.
"""

from __future__ import annotations

import gzip
import json
import math
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ppsim.calibration.clock import spread
from ppsim.errors import InputError
from ppsim.profiles.message_fits import fit_messages
from ppsim.profiles.profile import Message, OpTime, Profile, Provenance
from ppsim.version import VERSION

ACTION = re.compile(r"PP:(\d+)(F|B|I|W|SEND_F|SEND_B|RECV_F|RECV_B)(\d+)")
PAIR = re.compile(r"PP:\((\d+)F(\d+);(\d+)[BI](\d+)\)OVERLAP_F_B")
PLAIN = re.compile(r"(Forward|Backward) (\d+)")
RECEIVED = re.compile(r"(gloo|nccl):recv")
HINT = "a trace that torch.profiler exported, one per rank, with the pipeline's own spans (PP:0F0, or Forward 0)"
BYTES = {
    "double": 8,
    "long": 8,
    "float": 4,
    "int": 4,
    "half": 2,
    "c10::half": 2,
    "c10::bfloat16": 2,
    "unsigned char": 1,
}


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
    missing = set(range(max(stage for stage, _ in ops))) - {stage for stage, _ in ops}
    if missing:
        named = ", ".join(map(str, sorted(missing)))
        raise InputError(f"the traces show nothing of stage {named}", "give the trace of every rank")
    messages = tuple(_messages(traces))
    first = min(trace.base_s + trace.actions[0].start * 1e-3 for trace in traces)
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
    """One rank's trace, plain or gzipped."""
    try:
        with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
            data = json.load(file)
    except (OSError, EOFError) as error:
        raise InputError(
            f"cannot read '{path}': {getattr(error, 'strerror', None) or error}", "check the path"
        ) from error
    except ValueError as error:
        raise InputError(f"'{path}' is not whole or not JSON: {error}", HINT) from error
    if not isinstance(data, dict) or not isinstance(data.get("traceEvents"), list):
        raise InputError(f"'{path}' has no traceEvents", HINT)
    base = data.get("baseTimeNanoseconds", 0) * 1e-9
    try:
        rank = int(data.get("distributedInfo", {}).get("rank", rank))
        events = [e for e in data["traceEvents"] if e.get("ph") == "X" and isinstance(e.get("name"), str)]
        on_gpu = [e for e in events if e.get("cat") == "gpu_user_annotation"]
        events = on_gpu if any(_actions(on_gpu, rank)) else events
        actions = sorted(_actions(events, rank), key=lambda a: a.start)
        receives = sorted(
            Receive(e["ts"] * 1e-3, (e["ts"] + e["dur"]) * 1e-3, _size(e)) for e in events if RECEIVED.match(e["name"])
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"'{path}' has an event that is not one of a trace: {error!r}", HINT) from error
    if not actions:
        raise InputError(f"'{path}' has no span of a pipeline", HINT)
    gpus = [d.get("name", "GPU") for d in data.get("deviceProperties", [])]
    return Trace(
        str(data.get("host_name", "")),
        gpus[0] if gpus else "cpu",
        base,
        tuple(actions),
        tuple(receives),
    )


def _actions(events: Sequence[Any], rank: int) -> Iterator[Action]:
    for event in events:
        name, span = event["name"], (event["ts"] * 1e-3, (event["ts"] + event["dur"]) * 1e-3)
        if found := ACTION.fullmatch(name):
            yield Action(found[2], int(found[1]), int(found[3]), *span)
        elif found := PAIR.fullmatch(name):
            yield Action("FB", int(found[1]), int(found[2]), *span)
        elif found := PLAIN.fullmatch(name):
            yield Action(found[1][0], rank, int(found[2]), *span)


def _size(event: Any) -> int:
    args = event.get("args", {})
    dims, types = args.get("Input Dims") or [], args.get("Input type") or []
    return sum(math.prod(d) * BYTES.get(str(t).lower(), 0) for d, t in zip(dims, types, strict=False) if d)


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
