"""Make a profile from Kineto (Chrome) traces of a training run with torch.distributed.pipelining,
one trace per process.

Torch's runtime names its spans ``PP:0F0``, ``PP:2SEND_F1`` or ``PP:(0F3;7B0)OVERLAP_F_B``; its
GPipe schedule names them ``Forward 0`` and ``Backward 0``. Spans on the host only show launches of
kernels. On a GPU, an op lasts from the first to the last kernel that any thread launched during the
op's span on the host. The spans on the GPU would miss the kernels of backwards, since autograd
launches them from another thread. They are used only in traces without launches.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from math import inf
from typing import NamedTuple

from ppsim.base.source import name_of
from ppsim.base.text import one_line
from ppsim.errors import InputError
from ppsim.inputs.profile.line_fit import fit_messages
from ppsim.inputs.profile.profile import Message, OpTime, Profile, Provenance
from ppsim.real.calibration.clock import spread
from ppsim.real.traces import kineto_json
from ppsim.real.traces.kineto_json import HINT
from ppsim.version import VERSION

ACTION = re.compile(r"PP:(\d{1,9})(F|B|I|W|SEND_F|SEND_B|RECV_F|RECV_B)(\d{1,9})", re.ASCII)
PAIR = re.compile(r"PP:\((\d{1,9})F(\d{1,9});(\d{1,9})[BI](\d{1,9})\)OVERLAP_F_B", re.ASCII)
PLAIN = re.compile(r"(Forward|Backward) (\d{1,9})", re.ASCII)
RECEIVED = re.compile(r"(gloo|nccl):recv")
KERNEL = re.compile(r"nccl(Dev)?Kernel_SendRecv")
LAUNCHES = ("cuda_runtime", "cuda_driver")
COMPUTED = ("F", "B", "I", "W", "FB")

Input = tuple[str, int, int]  # direction F or B, stage, microbatch


class Action(NamedTuple):
    """One span of the pipeline's runtime, with times in ms since the file's epoch.

    Of a pair (kind FB), stage and microbatch are those of the forward; ``backward`` contains those
    of the backward.
    """

    kind: str
    stage: int
    microbatch: int
    start: float
    end: float
    backward: tuple[int, int] = (-1, -1)

    @property
    def key(self) -> tuple[str, int, int]:
        """Kind, stage and microbatch."""
        return self.kind, self.stage, self.microbatch

    @property
    def computes(self) -> bool:
        """Whether the span is an op of a stage, not a send or a receive."""
        return self.kind in COMPUTED

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Messages that the op needs if its inputs are computed on another device."""
        where = self.stage, self.microbatch
        if self.kind == "FB":
            return ("F", *where), ("B", *self.backward)
        return (("F" if self.kind == "F" else "B", *where),) if self.kind in ("F", "B", "I") else ()


class Receive(NamedTuple):
    """The receive of one message, times in ms since the file's epoch."""

    start: float  # of the call
    end: float  # arrival of the message
    size: int  # bytes, 0 if unknown


@dataclass(frozen=True)
class Trace:
    """The trace of one process."""

    host: str  # name of the machine
    device: str  # name of the GPU, or cpu
    base_s: float  # epoch of all times, in seconds since 1970
    actions: tuple[Action, ...]
    receives: tuple[Receive, ...]
    kernels: bool = False  # whether the receives are NCCL's kernels


def profile_of(traces: Sequence[Trace], command: str) -> Profile:
    """Make a profile from the traces of all processes: op times per stage, and message times.

    The first step is excluded, unless it is the only step; the profile's note then states this.

    Raises:
        InputError: the traces show no op, or no op of some stage.
    """
    ops: dict[tuple[int, str], list[float]] = defaultdict(list)
    single = False
    for trace in traces:
        for (kind, stage, _), samples in _op_times(trace).items():
            ops[stage, kind] += samples[1:] or samples
            single |= len(samples) == 1
    stages = {stage for stage, _ in ops}
    if not stages:
        raise InputError("the traces contain messages, but no op", HINT)
    if len(stages) <= max(stages):
        missing = islice((stage for stage in range(max(stages)) if stage not in stages), 8)
        listed = ", ".join(map(str, missing))
        raise InputError(
            f"the traces contain no op of stage {listed}", "give the trace of every process"
        )
    messages = tuple(_messages(traces))
    first = max(0.0, min(trace.base_s + trace.actions[0].start * 1e-3 for trace in traces))
    provenance = provenance_of(
        command,
        "; ".join(_notes(traces, single, messages)),
        machine=", ".join(sorted({t.host for t in traces})) or "unknown",
        device=", ".join(sorted({t.device for t in traces})),
        date=datetime.fromtimestamp(first, UTC).isoformat(timespec="seconds"),
    )
    times = [
        OpTime("stage", kind, 0, stage=stage, cache="run", **spread(ms))
        for (stage, kind), ms in sorted(ops.items())
    ]
    return Profile(provenance, None, tuple(times), messages, tuple(fit_messages(messages)))


def provenance_of(command: str, note: str, **known: str) -> Provenance:
    """Return the provenance of a run made elsewhere: ``known`` fields from its files, the others
    unknown.
    """
    unknown = dict.fromkeys(
        ("machine", "cpu", "device", "clocks", "torch", "python", "date"), "unknown"
    )
    return Provenance(
        **unknown | known, cores=0, threads=0, load=0.0, ppsim=VERSION, command=command, note=note
    )


def _notes(traces: Sequence[Trace], single: bool, messages: Sequence[Message]) -> Iterator[str]:
    """Yield notes for readers of the profile."""
    yield f"from {len(traces)} traces"
    yield "a profiled run is slower than one without a profiler"
    if single:
        yield "one step only, so its warm-up counts"
    sends = any(action.kind.startswith("SEND") for trace in traces for action in trace.actions)
    if sends and not messages:
        yield (
            "no message could be timed: sizes, or both sides on one host, are missing, so "
            "messages cost nothing"
        )


def parse_trace(text: str, path: str, rank: int) -> Trace:
    """Parse the trace of one process (InputError: it is not the trace of a pipeline).

    ``rank`` is used if the trace does not contain its rank.
    """
    file = kineto_json.parse_file(text, path)
    rank = rank if file.distributed.rank is None else file.distributed.rank
    events = [event for event in file.events if event.ph == "X"]
    on_gpu = [event for event in events if event.cat == "gpu_user_annotation"]
    actions = list(_actions(on_gpu, rank, path))
    kernels = _kernels_by_launch(events, path)
    computed = [
        action
        for action in _actions(_host_events(events), rank, path)
        if kernels and action.computes
    ]
    if computed:
        actions = [action for action in actions if not action.computes]
        actions += _place_on_device(computed, kernels)
    if actions:
        events = on_gpu
    else:
        actions = list(_actions(events, rank, path))
    if not actions:
        raise InputError(f"'{name_of(path)}' has no span of a pipeline", HINT)
    received = [event for event in events if RECEIVED.match(event.name)]
    # Spans on a GPU do not contain sizes, but the spans of the same messages on the host do. A
    # size is used if all of them agree.
    sizes = {kineto_json.bytes_of(event) for event in file.events if RECEIVED.match(event.name)} - {
        0
    }
    common = sizes.pop() if len(sizes) == 1 and events is on_gpu else 0
    receives = [
        Receive(*kineto_json.span_of(event, path), kineto_json.bytes_of(event) or common)
        for event in received
    ]
    by_kernels = [] if receives else list(_received_by_kernels(file.events, actions, path))
    return Trace(
        one_line(file.host),
        one_line(file.devices[0].name) if file.devices else "cpu",
        file.epoch_ns * 1e-9,
        tuple(sorted(actions, key=lambda action: action.start)),
        tuple(sorted(receives or by_kernels)),
        bool(by_kernels),
    )


def _host_events(events: Sequence[kineto_json.Event]) -> list[kineto_json.Event]:
    """Return the events without the spans on the GPU."""
    return [event for event in events if event.cat != "gpu_user_annotation"]


def _kernels_by_launch(
    events: Sequence[kineto_json.Event], path: str
) -> list[tuple[float, float, float]]:
    """Return (launch, start, end) in ms of each kernel except NCCL's, in the order of launches;
    empty if the trace does not contain the launches.
    """
    launches: dict[int, float] = {}
    kernels: list[tuple[int, float, float]] = []
    for event in events:
        if event.cat not in LAUNCHES and event.cat != "kernel":
            continue
        number = kineto_json.correlation_of(event)
        start, end = kineto_json.span_of(event, path)
        if number is None:
            continue
        if event.cat in LAUNCHES:
            launches[number] = start
        elif not event.name.startswith("nccl"):
            kernels.append((number, start, end))
    return sorted(
        (launches[number], start, end) for number, start, end in kernels if number in launches
    )


def _place_on_device(
    actions: Sequence[Action], kernels: Sequence[tuple[float, float, float]]
) -> Iterator[Action]:
    """Yield the ops with the times of their kernels instead of the host's; an op without kernels
    starts and ends at the end of the op before.
    """
    previous_end = kernels[0][1]
    for action in sorted(actions, key=lambda action: action.start):
        first, last = (bisect_left(kernels, (moment,)) for moment in (action.start, action.end))
        launched = kernels[first:last]
        start = min((begin for _, begin, _ in launched), default=previous_end)
        previous_end = max((end for _, _, end in launched), default=previous_end)
        yield action._replace(start=start, end=previous_end)


def _received_by_kernels(
    events: Sequence[kineto_json.Event], actions: Sequence[Action], path: str
) -> Iterator[Receive]:
    """Yield a receive for each kernel of NCCL that receives.

    A kernel that both sends and receives, or does not contain its direction, counts only if it
    starts during the span of a receive.
    """
    spans = sorted(
        (action.start, action.end) for action in actions if action.kind.startswith("RECV")
    )
    for event in events:
        if event.cat != "kernel" or not KERNEL.match(event.name):
            continue
        direction, size = kineto_json.kernel_of(event)
        start, end = kineto_json.span_of(event, path)
        at = bisect_right(spans, (start, inf)) - 1
        if direction == "recv" or (direction != "send" and at >= 0 and start <= spans[at][1]):
            yield Receive(start, end, size)


def _actions(events: Sequence[kineto_json.Event], rank: int, path: str) -> Iterator[Action]:
    """Yield an action for each event of the pipeline's runtime; ``rank`` is the stage for GPipe."""
    for event in events:
        backward = (-1, -1)
        if found := ACTION.fullmatch(event.name):
            kind, stage, microbatch = found[2], int(found[1]), int(found[3])
        elif found := PAIR.fullmatch(event.name):
            kind, stage, microbatch, backward = (
                "FB",
                int(found[1]),
                int(found[2]),
                (int(found[3]), int(found[4])),
            )
        elif found := PLAIN.fullmatch(event.name):
            kind, stage, microbatch = found[1][0], rank, int(found[2])
        else:
            continue
        yield Action(kind, stage, microbatch, *kineto_json.span_of(event, path), backward)


def _op_times(trace: Trace) -> dict[tuple[str, int, int], list[float]]:
    """Return the times of each op in all steps, in ms: from the start of its span, or from the
    arrival of its last input if later.
    """
    arrivals, times = arrivals_of(trace), defaultdict[tuple[str, int, int], list[float]](list)
    for action in trace.actions:
        if not action.computes:
            continue
        times[action.key].append(action.end - begin_of(action, arrivals))
    return times


def begin_of(action: Action, arrivals: Mapping[Action, Receive]) -> float:
    """Return the time when an op began to compute: the start of its span, or the arrival of its
    last input if later.
    """
    found = arrivals.get(action)
    return max(action.start, min(found.end, action.end)) if found else action.start


def arrivals_of(trace: Trace) -> dict[Action, Receive]:
    """Find the last receive that each op or pair waited for.

    Receives are matched by stage and microbatch if the trace contains these, otherwise by time:
    the receives during the op's span.
    """
    by_input: dict[Input, list[Receive]] = defaultdict(list)
    for action in trace.actions:
        if action.kind.startswith("RECV"):
            by_input[action.kind[-1], action.stage, action.microbatch] += _receives_within(
                trace, action
            )
    arrivals = {}
    for action in trace.actions:
        if any(by_input.values()):
            known = [by_input[key] for key in action.inputs if key in by_input]
            found = [r[at - 1] for r in known if (at := bisect_right(r, (action.end, inf, inf)))]
        else:
            found = _receives_within(trace, action, len(action.inputs))
        if found:
            arrivals[action] = max(found, key=lambda receive: receive.end)
    return arrivals


def _receives_within(trace: Trace, action: Action, count: int = 1) -> list[Receive]:
    """Return up to ``count`` receives that begin during the span of an action."""
    at = bisect_left(trace.receives, (action.start,))
    return [r for r in trace.receives[at : at + count] if r.start <= action.end]


def _messages(traces: Sequence[Trace]) -> Iterator[Message]:
    """Time messages between processes on one host, from the later of send and receive to the
    arrival.

    The first of several messages is excluded, since it belongs to the first step.
    """
    samples: dict[tuple[str, int], list[float]] = defaultdict(list)
    for host in dict.fromkeys(trace.host for trace in traces):
        sends, receives = _sides([trace for trace in traces if trace.host == host])
        for key in sends.keys() & receives.keys():
            steps = list(_pairs(sorted(sends[key]), sorted(receives[key])))
            for sent, receive in steps[1:] or steps:
                pattern = "early" if receive.start <= sent else "late"
                samples[pattern, receive.size].append(receive.end - max(receive.start, sent))
    for (pattern, size), times in sorted(samples.items()):
        yield Message("same-host", pattern, size, **spread(times))


def _sides(traces: Sequence[Trace]) -> tuple[dict[Input, list[float]], dict[Input, list[Receive]]]:
    """Collect the times of each message's sends, and its receives of known size, over all steps.

    Times count from the epoch of the first trace: processes on one host share a clock, but their
    traces have different epochs.
    """
    sends: dict[Input, list[float]] = defaultdict(list)
    receives: dict[Input, list[Receive]] = defaultdict(list)
    for trace in traces:
        shift = (trace.base_s - traces[0].base_s) * 1e3
        for action in trace.actions:
            if action.kind.startswith("SEND"):
                to = action.stage + (1 if action.kind == "SEND_F" else -1)
                sends[action.kind[-1], to, action.microbatch].append(action.start + shift)
            elif action.kind.startswith("RECV"):
                key = action.kind[-1], action.stage, action.microbatch
                receives[key] += [
                    Receive(receive.start + shift, receive.end + shift, receive.size)
                    for receive in _receives_within(trace, action)
                    if receive.size
                ]
    return sends, receives


def _pairs(sends: Sequence[float], receives: Sequence[Receive]) -> Iterator[tuple[float, Receive]]:
    """Match the sends of a message with its receives: a message arrives after its send and before
    the send of the next step.

    A receive that is missing in a trace therefore excludes a single step.
    """
    arrivals = sorted(receives, key=lambda receive: receive.end)
    for number, sent in enumerate(sends):
        at = bisect_left(arrivals, sent, key=lambda receive: receive.end)
        next_send = sends[number + 1] if number + 1 < len(sends) else inf
        if at < len(arrivals) and arrivals[at].end < next_send:
            yield sent, arrivals[at]
