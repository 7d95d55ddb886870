"""A record of a run made elsewhere, from its files: every training step as one run.

The ops of a device are compared with its queue, so that a run of another schedule is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np
from numpy.typing import NDArray

from ppsim.core.costs import Costs
from ppsim.core.lowered import Lowered
from ppsim.core.ops import COMPUTE, RECEIVES, Kind
from ppsim.core.schedule import Schedule
from ppsim.engine.lowering.lower import lower
from ppsim.engine.simple.terms import measure_terms
from ppsim.errors import InputError
from ppsim.inputs.profile.costs import costs_from
from ppsim.inputs.profile.profile import Profile
from ppsim.real.runs.record import Measured, Record
from ppsim.real.runs.record_file import Link
from ppsim.real.runs.session import link_of
from ppsim.real.runs.torch_runner import lower_as_torch
from ppsim.real.traces.profile import profile_of_run
from ppsim.real.traces.readers.kineto import Steps, split_steps
from ppsim.real.traces.run import RealRun
from ppsim.real.traces.torch_trace import profile_of
from ppsim.real.validation.insitu import observed_costs
from ppsim.real.validation.ops_only import measured_of


def record_of(
    observed: RealRun, schedule: Schedule, profile: Profile | None, command: str
) -> Record:
    """Return a record of the iterations of a run made elsewhere, without the first if there are
    several.

    A profile has costs of ops and messages alone; without one each iteration's costs come from the
    other ones.

    Raises:
        InputError: a device is missing, or devices ran something else.
    """
    if observed.traces and not np.isnan(observed.arrival).all():
        return _message_record(observed, schedule, profile, command)
    refuse_other(observed, schedule)
    kept = observed.drop_first()
    lowered = lower(schedule)
    terms = measure_terms(schedule, kept.start, kept.end)
    runs = [measured_of(kept, at, lowered, terms) for at in range(len(kept.iterations))]
    runs = _runs_with_costs(runs, profile, schedule)
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
            f"{observed.source} shows {shown.n_devices} devices, and {schedule.name} has "
            f"{schedule.n_devices}",
            f"--devices {shown.n_devices}",
        )
    for device in range(schedule.n_devices):
        has, wanted = (
            [s.label(op) for op in range(*s.queue(device).indices(len(s)))]
            for s in (shown, schedule)
        )
        if has != wanted:
            at = next(
                (
                    n
                    for n, (one, other) in enumerate(zip(has, wanted, strict=False))
                    if one != other
                ),
                None,
            )
            what = (
                f"{len(has)} ops of {len(wanted)}"
                if at is None
                else f"{has[at]} where the schedule has {wanted[at]}"
            )
            raise InputError(
                f"{observed.source} is not a run of {schedule.name}: on device {device} it shows "
                f"{what}",
                "another -s, --devices or --mb, or none of them: the schedule is read off the run",
            )


def _runs_with_costs(
    runs: list[Measured], profile: Profile | None, schedule: Schedule
) -> list[Measured]:
    """Return each run with nominal costs: the profile's times, or the times of the other runs."""
    if profile:
        return [
            replace(run, costs=replace(costs_from(profile, schedule), comm=0.0)) for run in runs
        ]
    alone = [[other for other in runs if other is not run] or [run] for run in runs]
    return [
        replace(run, costs=observed_costs(run, others))
        for run, others in zip(runs, alone, strict=True)
    ]


def _source_of_costs(runs: Sequence[Measured], profile: Profile | None) -> str:
    return "the profile" if profile else "the other steps" if len(runs) > 1 else "the step itself"


def _message_record(
    observed: RealRun, schedule: Schedule, profile: Profile | None, command: str
) -> Record:
    """Return a record of traces that show the arrival of messages."""
    if schedule.placement.n_replicas > 1:
        raise InputError(
            f"{schedule.name} holds each stage on two devices, and a trace does not tell them apart"
        )
    refuse_other(observed, schedule)
    if (observed.schedule.pair != schedule.pair).any():
        raise InputError(
            f"{observed.source} is not a run of {schedule.name}: other ops run as pairs"
        )
    lowered = lower_as_torch(schedule)
    devices, steps = split_steps(observed.traces)
    runs = [_run_of_step(lowered, devices, found, number) for number, found in enumerate(steps)]
    runs = _runs_with_costs(runs[1:] or runs, profile, schedule)
    traced = profile_of(list(observed.traces.values()), command)
    sizes = [row.bytes for row in traced.message]
    size = int(np.median(sizes)) if sizes else 0
    settings = {
        "ops": "trace",
        "runner": "elsewhere",
        "real_time": False,
        "message_bytes": size,
        # Of all steps, the predicted one too. Held-out scales it by the latency of the other steps,
        # so that only the ratio of latency and bandwidth is shared, and with the one size of a
        # pipeline's messages that is 0.
        "link": asdict(link_of((profile or traced).message, size)),
        "cores": 0,
        "costs": _source_of_costs(runs, profile),
    }
    if clocks := [note for note in observed.notes if "clocks" in note]:
        settings["clocks"] = clocks[0]
    return Record(tuple(runs), settings, asdict(traced.provenance))


def _run_of_step(
    lowered: Lowered, devices: Sequence[Steps], numbers: Sequence[int], step: int
) -> Measured:
    """Return the run of one step, with times from the start of its first device."""
    schedule = lowered.schedule
    times = np.zeros((3, len(schedule)))
    for device, (held, number) in enumerate(zip(devices, numbers, strict=True)):
        _fill(times, schedule, device, held, number)
    times -= times[0].min()
    finished = np.array([times[2, schedule.queue(d)].max() for d in range(schedule.n_devices)])
    costs = Costs(np.zeros((len(COMPUTE), schedule.n_stages)), unit="ms")
    posted, start, end = times[:, None]
    return Measured(
        f"{schedule.name} step {step}", lowered, costs, posted, start, end, finished[None]
    )


def _fill(
    times: NDArray[np.float64], schedule: Schedule, device: int, held: Steps, number: int
) -> None:
    """Fill a device's columns; a send or receive that the trace does not name takes no time at its
    place.
    """
    posted, start, end, _ = held.times[number]
    compute, at = iter(zip(posted, start, end, strict=True)), posted[0]
    before = held.times[number - 1, 2, -1] if number else -np.inf
    after = held.times[number + 1, 0, 0] if number + 1 < len(held.times) else np.inf
    queue = schedule.queue(device)
    for op in (queue.start + np.flatnonzero(schedule.leads[queue])).tolist():
        if schedule.computes[op]:
            span = next(compute)
        else:
            receives = schedule.kind[op] in RECEIVES
            low, high = (before, end[-1]) if receives else (posted[0], after)
            key = (
                Kind(schedule.kind[op]).name,
                int(schedule.stage[op]),
                int(schedule.microbatch[op]),
            )
            found = [each for each in held.messages.get(key, ()) if low <= each[0] < high]
            begin, done = found[-1 if receives else 0] if found else (at, at)
            span = begin, begin, done
        times[:, list(schedule.members(op))] = np.array(span)[:, None]
        at = span[2]
