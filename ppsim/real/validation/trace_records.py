"""Make a record from the files of a run made elsewhere: each training step is one run.

The ops of each device must match its queue; a run of another schedule is refused.
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
    """Make a record of the iterations of a run made elsewhere, without the first of several.

    Costs come from the profile. Without a profile, the costs of each iteration come from the other
    iterations.

    Raises:
        InputError: a device is missing, or a device ran other ops than its queue.
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
    """Refuse a run whose ops, or their order, differ from the schedule (InputError)."""
    actual = observed.schedule
    if schedule.n_devices != actual.n_devices:
        raise InputError(
            f"{observed.source} shows {actual.n_devices} devices, and {schedule.name} has "
            f"{schedule.n_devices}",
            f"--devices {actual.n_devices}",
        )
    for device in range(schedule.n_devices):
        found, expected = (
            [s.label(op) for op in range(*s.queue(device).indices(len(s)))]
            for s in (actual, schedule)
        )
        if found != expected:
            pairs = enumerate(zip(found, expected, strict=False))
            at = next((n for n, (one, other) in pairs if one != other), None)
            difference = (
                f"{len(found)} ops of {len(expected)}"
                if at is None
                else f"{found[at]} where the schedule has {expected[at]}"
            )
            raise InputError(
                f"{observed.source} is not a run of {schedule.name}: on device {device} it shows "
                f"{difference}",
                "another -s, --devices or --mb, or none of them: the schedule is then inferred "
                "from the run",
            )


def _runs_with_costs(
    runs: list[Measured], profile: Profile | None, schedule: Schedule
) -> list[Measured]:
    """Add nominal costs to each run: the profile's times, or the times of the other runs."""
    if profile:
        return [
            replace(run, costs=replace(costs_from(profile, schedule), comm=0.0)) for run in runs
        ]
    others_of_each = [[other for other in runs if other is not run] or [run] for run in runs]
    return [
        replace(run, costs=observed_costs(run, others))
        for run, others in zip(runs, others_of_each, strict=True)
    ]


def _source_of_costs(runs: Sequence[Measured], profile: Profile | None) -> str:
    """Return the source of the runs' nominal costs in words."""
    return "the profile" if profile else "the other steps" if len(runs) > 1 else "the step itself"


def _message_record(
    observed: RealRun, schedule: Schedule, profile: Profile | None, command: str
) -> Record:
    """Make a record from traces that show the arrival of messages."""
    if schedule.placement.n_replicas > 1:
        raise InputError(
            f"{schedule.name} has each stage on two devices, which a trace does not distinguish"
        )
    refuse_other(observed, schedule)
    if (observed.schedule.pair != schedule.pair).any():
        raise InputError(
            f"{observed.source} is not a run of {schedule.name}: its pairs are different ops"
        )
    lowered = lower_as_torch(schedule)
    devices, steps = split_steps(observed.traces)
    runs = [_run_of_step(lowered, devices, step, number) for number, step in enumerate(steps)]
    runs = _runs_with_costs(runs[1:] or runs, profile, schedule)
    traced = profile_of(list(observed.traces.values()), command)
    sizes = [row.bytes for row in traced.message]
    size = int(np.median(sizes)) if sizes else 0
    settings = {
        "ops": "trace",
        "runner": "elsewhere",
        "real_time": False,
        "message_bytes": size,
        # The link is measured in all steps, including the predicted step. The prediction is still
        # held out: it scales the link to the latency of the other steps, and the ratio of latency
        # to bandwidth has no effect, since all messages of a pipeline have one size.
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
    """Make the run of one step, with times in ms since the first device started.

    ``numbers`` are the numbers of the step in the traces of the devices.
    """
    schedule = lowered.schedule
    times = np.zeros((3, len(schedule)))
    for device, (steps, number) in enumerate(zip(devices, numbers, strict=True)):
        _fill(times, schedule, device, steps, number)
    times -= times[0].min()
    finished = np.array([times[2, schedule.queue(d)].max() for d in range(schedule.n_devices)])
    costs = Costs(np.zeros((len(COMPUTE), schedule.n_stages)), unit="ms")
    posted, start, end = times[:, None]
    return Measured(
        f"{schedule.name} step {step}", lowered, costs, posted, start, end, finished[None]
    )


def _fill(
    times: NDArray[np.float64], schedule: Schedule, device: int, steps: Steps, number: int
) -> None:
    """Fill a device's columns with the times of a step; a send or receive that is missing in the
    trace takes no time.
    """
    posted, start, end, _ = steps.times[number]
    compute, previous_end = iter(zip(posted, start, end, strict=True)), posted[0]
    before = steps.times[number - 1, 2, -1] if number else -np.inf
    after = steps.times[number + 1, 0, 0] if number + 1 < len(steps.times) else np.inf
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
            found = [each for each in steps.messages.get(key, ()) if low <= each[0] < high]
            missing = previous_end, previous_end
            call, done = found[-1 if receives else 0] if found else missing
            span = call, call, done
        times[:, list(schedule.members(op))] = np.array(span)[:, None]
        previous_end = span[2]
