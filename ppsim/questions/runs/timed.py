"""Time the runs of a question: simulate spelled schedules, take the times that files state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from ppsim.ask.groups import NetworkOptions, ShapeOptions
from ppsim.errors import InputError
from ppsim.prices.build import build_costs, build_schedule, check_taken, check_used
from ppsim.prices.options import CostOptions
from ppsim.prices.several import options_taken
from ppsim.prices.timing import time_ops
from ppsim.questions.runs.stated import StatedRun, read_stated

if TYPE_CHECKING:
    from ppsim.analysis.idle import Idle
    from ppsim.core.costs import Costs
    from ppsim.core.execution import Execution
    from ppsim.core.schedule import Schedule
    from ppsim.core.timeline import Timeline

SIMULATED, STATED, MEASURED = "simulated", "stated", "measured"
BORROWED = "simulated with the median times of the other"


@dataclass(frozen=True)
class TimedRun:
    """One run with its idle time explained."""

    spec: str  # the schedule's spelling or the file, as typed
    idle: Idle  # its idle time by cause, with its timeline
    source: str  # ``simulated`` (with whose times), ``stated`` by a file, or ``measured``
    costs: Costs  # of the simulation, or derived from the stated times
    execution: Execution | None = None  # where sends and receives were simulated as ops

    @property
    def timeline(self) -> Timeline:
        """Times of the compute ops."""
        return self.idle.timeline


def time_runs(
    specs: Sequence[str],  # spellings and files
    shape: ShapeOptions,  # of the schedules that are spelled
    costs: CostOptions,  # of what is simulated
    network: NetworkOptions,  # of what is simulated
    # the options of costs and messages that were typed, to refuse where nothing is simulated
    typed: Sequence[str],
    iteration: str = "median",  # which step of real runs
    # of the times of tables by file, where they do not tell their own
    units: Mapping[str, str] = MappingProxyType({}),
) -> list[TimedRun]:
    """Time every run: files that state their times as they are, all else simulated in the shape
    given.

    Without a shape, the shape of a file holds for the schedule named with it, and so do its times
    without costs.

    Raises:
        InputError: a schedule or file that does not exist, or options that have no effect.
    """
    read = {
        spec: read_stated(spec, iteration, unit=units.get(spec, ""))
        for spec in dict.fromkeys(specs)
    }
    stated = {spec: show_stated(spec, run) for spec, run in read.items() if run}
    spelled = [spec for spec in dict.fromkeys(specs) if spec not in stated]
    if typed and not spelled:
        verb = "has" if len(typed) == 1 else "have"
        raise InputError(
            f"{', '.join(typed)} {verb} no effect: the files state their times", "leave it out"
        )
    for run in stated.values():
        schedule = run.timeline.schedule
        if shape.devices is None and shape.stages is None:
            shape = replace(shape, devices=schedule.n_devices)
        microbatches = shape.microbatches or schedule.whole_microbatches
        shape = replace(shape, microbatches=microbatches)
    check_taken(spelled, shape)
    for run in stated.values():
        schedule = run.timeline.schedule
        if schedule.n_slices > 1 and shape.slices is None:
            shape = replace(shape, slices=schedule.n_slices)
        if schedule.n_rounds > 1 and costs.steps is None:
            costs = replace(costs, steps=schedule.n_rounds)
    schedules = {
        spec: build_schedule(spec, _shape_of(spec, shape), costs, network) for spec in spelled
    }
    check_used(schedules.values(), costs)
    shown = _shown_costs(next(iter(stated.values()))) if len(stated) == 1 and not typed else None
    simulated = {
        spec: simulated_run(spec, each, costs, network, shown) for spec, each in schedules.items()
    }
    return [(stated | simulated)[spec] for spec in specs]


def show_stated(spec: str, stated: StatedRun) -> TimedRun:
    """Take a run with its own times, its idle time explained."""
    from ppsim.analysis.idle import explain_idle

    found, source = stated.observed, MEASURED if stated.is_real else STATED
    return TimedRun(spec, explain_idle(found.timeline, found.arrival), source, found.costs)


def simulated_run(
    spec: str,
    schedule: Schedule,
    costs: CostOptions,
    network: NetworkOptions,
    shown: Costs | None = None,
) -> TimedRun:
    """Simulate a schedule and explain its idle time.

    Costs that another run has ``shown`` are taken for a schedule of as many stages.
    """
    taken = shown is not None and shown.time.shape[1] == schedule.n_stages
    prices = build_costs(schedule, costs, network, shown if taken else None)
    run = explain_costs(spec, schedule, prices, network, costs.links)
    return replace(run, source=BORROWED) if taken and not run.execution else run


def explain_costs(
    spec: str, schedule: Schedule, prices: Costs, network: NetworkOptions, links: Sequence[str]
) -> TimedRun:
    """Simulate a schedule with these costs, its idle time explained."""
    from ppsim.analysis.idle import explain_run

    timeline, execution = time_ops(schedule, prices, network, links)
    return TimedRun(
        spec,
        explain_run(timeline, prices.latencies(schedule), execution),
        SIMULATED,
        prices,
        execution,
    )


def _shown_costs(run: TimedRun) -> Costs:
    """Return the costs that a run's times show, of whole sequences."""
    from ppsim.analysis.changes import times_sliced

    return times_sliced(run.costs, run.timeline.schedule.n_slices)


def _shape_of(spec: str, shape: ShapeOptions) -> ShapeOptions:
    """The options that a spelling takes; a file states its own shape."""
    from ppsim.schedules import reads_ops

    return ShapeOptions() if reads_ops(spec) else options_taken(spec, shape)
