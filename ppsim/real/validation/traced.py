"""A record of a run made elsewhere, from its files: every training step as one run.

The ops of a device are compared with its queue, so that a run of another schedule is refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppsim.core.costs import Costs
from ppsim.core.lowered import Lowered
from ppsim.core.ops import COMPUTE, RECEIVES, Kind
from ppsim.core.schedule import NONE, Schedule
from ppsim.engine.lowering.lower import lower
from ppsim.engine.simple.terms import measure_terms
from ppsim.errors import InputError
from ppsim.inputs.profile.costs import costs_from
from ppsim.inputs.profile.profile import Profile
from ppsim.real.runs.record import Link, Measured, Record
from ppsim.real.runs.session import link_of
from ppsim.real.runs.torch_runner import lower_as_torch
from ppsim.real.traces.profile import profile_of_run
from ppsim.real.traces.run import RealRun
from ppsim.real.traces.torch_trace import Action, Receive, Trace, arrivals_of, profile_of
from ppsim.real.validation.insitu import observed_costs
from ppsim.real.validation.ops_only import measured_of

Key = tuple[str, int, int]


class Span(NamedTuple):
    """When a device reached, started and ended an entry, in ms."""

    posted: float
    start: float
    end: float


@dataclass(frozen=True)
class DeviceTrace:
    """One device's whole steps, each a span per compute entry, and its sends and receives by name."""

    steps: list[list[Span]]
    messages: dict[Key, list[Span]]


def record_of(observed: RealRun, schedule: Schedule, profile: Profile | None, command: str) -> Record:
    """Make a record of the iterations of a run made elsewhere, without the first where there are more.

    Args:
        observed: the run, as its files show it.
        schedule: the schedule that was run.
        profile: costs of ops and messages alone; without one each iteration's costs come from the other ones.
        command: the command line, for the record.

    Raises:
        InputError: a device is missing, or devices ran something else.
    """
    if observed.traces and not np.isnan(observed.arrival).all():
        return _with_messages(observed, schedule, profile, command)
    refuse_other(observed, schedule)
    kept = observed.drop_first()
    lowered = lower(schedule)
    terms = measure_terms(schedule, kept.start, kept.end)
    runs = [measured_of(kept, at, lowered, terms) for at in range(len(kept.iterations))]
    runs = _with_costs(runs, profile, schedule)
    settings = {
        "ops": "trace",
        "shows": "ops",
        "runner": "elsewhere",
        "real_time": False,
        "message_bytes": 0,
        "link": asdict(Link()),
        "cores": 0,
        "costs": _source_of_costs(runs, profile),
        "gap_ms": terms.typical_gap,
        "latency_ms": terms.typical_latency,
    }
    return Record(tuple(runs), settings, asdict(profile_of_run(kept, command).provenance))


def refuse_other(observed: RealRun, schedule: Schedule) -> None:
    """Refuse a run of other ops, or in another order, than the schedule's."""
    shown = observed.schedule
    if schedule.n_devices != shown.n_devices:
        raise InputError(
            f"{observed.source} shows {shown.n_devices} devices, and {schedule.name} has {schedule.n_devices}",
            f"--devices {shown.n_devices}",
        )
    for device in range(schedule.n_devices):
        has, wanted = ([s.label(op) for op in range(*s.queue(device).indices(len(s)))] for s in (shown, schedule))
        if has != wanted:
            at = next((n for n, (one, other) in enumerate(zip(has, wanted, strict=False)) if one != other), None)
            what = (
                f"{len(has)} ops of {len(wanted)}" if at is None else f"{has[at]} where the schedule has {wanted[at]}"
            )
            raise InputError(
                f"{observed.source} is no run of {schedule.name}: on device {device} it shows {what}",
                "another -s, --devices or --mb, or none of them: the schedule is read off the run",
            )


def _with_costs(runs: list[Measured], profile: Profile | None, schedule: Schedule) -> list[Measured]:
    """Give each run what its ops were meant to cost: the profile's times, or those of the other runs."""
    if profile:
        return [replace(run, costs=replace(costs_from(profile, schedule), comm=0.0)) for run in runs]
    alone = [[other for other in runs if other is not run] or [run] for run in runs]
    return [replace(run, costs=observed_costs(run, others)) for run, others in zip(runs, alone, strict=True)]


def _source_of_costs(runs: Sequence[Measured], profile: Profile | None) -> str:
    return "the profile" if profile else "the other steps" if len(runs) > 1 else "the step itself"


def _with_messages(observed: RealRun, schedule: Schedule, profile: Profile | None, command: str) -> Record:
    """Make a record of traces that show when messages were received."""
    traces, paths = list(observed.traces.values()), list(observed.traces)
    lowered = lower_as_torch(schedule)
    devices = _by_device(schedule, traces, paths)
    steps = list(_common_steps(devices))
    runs = [_measured(lowered, devices, found, number) for number, found in enumerate(steps)]
    runs = _with_costs(runs[1:] or runs, profile, schedule)
    traced = profile_of(traces, command)
    sizes = [row.bytes for row in traced.message]
    size = int(np.median(sizes)) if sizes else 0
    settings = {
        "ops": "trace",
        "runner": "elsewhere",
        "real_time": False,
        "message_bytes": size,
        # Of all steps, the predicted one too. Held-out scales it by the latency of the other steps, so that only the
        # ratio of latency and bandwidth is shared, and with the one size of a pipeline's messages that is 0.
        "link": asdict(link_of((profile or traced).message, size)),
        "cores": 0,
        "costs": _source_of_costs(runs, profile),
    }
    if clocks := [note for note in observed.notes if "clocks" in note]:
        settings["clocks"] = clocks[0]
    return Record(tuple(runs), settings, asdict(traced.provenance))


def _by_device(schedule: Schedule, traces: Sequence[Trace], paths: Sequence[str]) -> list[DeviceTrace]:
    """Sort traces by device: a trace belongs to the device that holds its stages."""
    if schedule.placement.n_replicas > 1:
        raise InputError(f"{schedule.name} holds each stage on two devices, and a trace does not tell them apart")
    devices: dict[int, DeviceTrace] = {}
    for trace, path in zip(traces, paths, strict=True):
        stage = next((a.stage for a in trace.actions if not a.kind.startswith(("SEND", "RECV"))), NONE)
        if not 0 <= stage < schedule.n_stages:
            raise InputError(f"'{path}' shows stage {stage}, and {schedule.name} has {schedule.n_stages} stages")
        device = int(schedule.placement.devices[0, stage])
        if device in devices:
            raise InputError(f"'{path}' shows device {device}, and so does a file before it", "one file per process")
        devices[device] = _device_trace(schedule, device, trace, path, (trace.base_s - traces[0].base_s) * 1e3)
    missing = ", ".join(str(d) for d in range(schedule.n_devices) if d not in devices)
    if missing:
        raise InputError(f"there is no trace of device {missing} of {schedule.n_devices}", "the trace of every process")
    return [devices[device] for device in range(schedule.n_devices)]


def _device_trace(schedule: Schedule, device: int, trace: Trace, path: str, epoch: float) -> DeviceTrace:
    """Split the trace of one device into steps; its times count from ``epoch``, in ms."""
    queue = [_key(schedule, op) for op in _entries(schedule, device)]
    arrivals = arrivals_of(trace)
    compute = [a for a in trace.actions if not a.kind.startswith(("SEND", "RECV"))]
    keys = [(a.kind, a.stage, a.microbatch) for a in compute]
    steps, at = [], 0
    while at + len(queue) <= len(keys):
        if keys[at : at + len(queue)] == queue:
            steps.append([_span(a, arrivals, epoch) for a in compute[at : at + len(queue)]])
            at += len(queue)
        else:
            at += 1
    if not steps:
        raise InputError(
            f"'{path}' is no trace of {schedule.name}: {_difference(keys, queue)}", "another -s, --devices or --mb"
        )
    messages: dict[Key, list[Span]] = defaultdict(list)
    for action in trace.actions:
        if action.kind.startswith(("SEND", "RECV")):
            start, end = epoch + action.start, epoch + action.end
            messages[action.kind, action.stage, action.microbatch].append(Span(start, start, end))
    return DeviceTrace(steps, messages)


def _difference(keys: Sequence[Key], queue: Sequence[Key]) -> str:
    first = keys.index(queue[0]) if queue[0] in keys else 0
    for has, wanted in zip(keys[first:], queue, strict=False):
        if has != wanted:
            return "it shows {1}{0}{2} where the schedule has {4}{3}{5}".format(*has, *wanted)
    return f"it shows {len(keys) - first} ops of a step of {len(queue)}"


def _span(action: Action, arrivals: dict[Action, Receive], epoch: float) -> Span:
    start = action.start
    if action in arrivals:
        start = max(start, min(arrivals[action].end, action.end))
    return Span(epoch + action.start, epoch + start, epoch + action.end)


def _entries(schedule: Schedule, device: int) -> Iterator[int]:
    """List the ops of a device, of a pair its first."""
    queue = schedule.queue(device)
    return iter((queue.start + np.flatnonzero(schedule.leads[queue])).tolist())


def _key(schedule: Schedule, op: int) -> Key:
    """Name an op as a trace does; a pair by its forward."""
    kind = Kind(schedule.kind[op]).name
    if schedule.pair[op] != NONE:
        kind = "FB"
        op = op if schedule.kind[op] == Kind.F else int(schedule.pair[op])
    return kind, int(schedule.stage[op]), int(schedule.microbatch[op])


def _common_steps(devices: Sequence[DeviceTrace]) -> Iterator[list[int]]:
    """Match the steps of all devices by the time of their start; yields the number of each on every device."""
    begins = [np.array([step[0].posted for step in trace.steps]) for trace in devices]
    for number, step in enumerate(devices[0].steps):
        length = step[-1].end - step[0].posted
        nearest = [int(np.argmin(np.abs(begin - begins[0][number]))) for begin in begins]
        apart = [abs(begin[k] - begins[0][number]) for begin, k in zip(begins, nearest, strict=True)]
        if max(apart) <= length:
            yield nearest


def _measured(lowered: Lowered, devices: Sequence[DeviceTrace], numbers: Sequence[int], step: int) -> Measured:
    """Make a run of one step, its times counted from the start of its first device."""
    schedule = lowered.schedule
    times = np.zeros((3, len(schedule)))
    for device, (trace, number) in enumerate(zip(devices, numbers, strict=True)):
        _fill(times, schedule, device, trace, number)
    times -= times[0].min()
    finished = np.array([times[2, schedule.queue(d)].max() for d in range(schedule.n_devices)])
    costs = Costs(np.zeros((len(COMPUTE), schedule.n_stages)), unit="ms")
    posted, start, end = times[:, None]
    return Measured(f"{schedule.name} step {step}", lowered, costs, posted, start, end, finished[None])


def _fill(times: NDArray[np.float64], schedule: Schedule, device: int, trace: DeviceTrace, number: int) -> None:
    """Fill a device's columns; a send or receive that the trace does not name takes no time at its place."""
    compute, at = iter(trace.steps[number]), trace.steps[number][0].posted
    before = trace.steps[number - 1][-1].end if number else -np.inf
    after = trace.steps[number + 1][0].posted if number + 1 < len(trace.steps) else np.inf
    until = trace.steps[number][-1].end
    for op in _entries(schedule, device):
        if schedule.computes[op]:
            span = next(compute)
        else:
            receives = schedule.kind[op] in RECEIVES
            low, high = (before, until) if receives else (trace.steps[number][0].posted, after)
            found = [span for span in trace.messages.get(_key(schedule, op), ()) if low <= span.posted < high]
            span = found[-1 if receives else 0] if found else Span(at, at, at)
        times[:, list(schedule.members(op))] = np.array(span)[:, None]
        at = span.end
