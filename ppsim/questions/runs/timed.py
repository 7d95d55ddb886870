"""Time the runs of a question: by the times of files, or by simulation."""

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
    """One run with its idle time by cause."""

    spec: str  # the schedule's spelling or the file, as typed
    idle: Idle  # its idle time by cause, with its timeline
    source: str  # the source of its times: SIMULATED, STATED, MEASURED, or begins with BORROWED
    costs: Costs  # the costs of the simulation, or derived from the times of a file
    execution: Execution | None = None  # the run with sends and receives as ops, if simulated so

    @property
    def timeline(self) -> Timeline:
        """The timeline of the compute ops."""
        return self.idle.timeline


def time_runs(
    specs: Sequence[str],
    shape: ShapeOptions,
    costs: CostOptions,
    network: NetworkOptions,
    typed: Sequence[str],
    iteration: str = "median",
    units: Mapping[str, str] = MappingProxyType({}),
) -> list[TimedRun]:
    """Time every run: files by the times that they state, schedules by simulation.

    A schedule next to a file is simulated in the file's shape, unless a shape is given, and with
    the file's median times, unless costs are given.

    Args:
        specs: spellings of schedules, and files.
        shape: the shape of the simulated schedules.
        costs: the costs of the simulated schedules.
        network: the messages of the simulated schedules.
        typed: the options of costs and messages that the user typed.
        iteration: the iteration of real runs.
        units: the unit of tables that do not state it, by file.

    Raises:
        InputError: a schedule or a file does not exist, or an option has no effect.
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
    lender = next(iter(stated.values())) if len(stated) == 1 and not typed else None
    simulated = {
        spec: simulated_run(spec, schedule, costs, network, lender)
        for spec, schedule in schedules.items()
    }
    return [(stated | simulated)[spec] for spec in specs]


def show_stated(spec: str, stated: StatedRun) -> TimedRun:
    """Return a run of files with its idle time by cause."""
    from ppsim.analysis.idle import explain_idle

    found, source = stated.observed, MEASURED if stated.is_real else STATED
    return TimedRun(spec, explain_idle(found.timeline, found.arrival), source, found.costs)


def simulated_run(
    spec: str,
    schedule: Schedule,
    costs: CostOptions,
    network: NetworkOptions,
    lender: TimedRun | None = None,
) -> TimedRun:
    """Simulate a schedule, and return it with its idle time by cause.

    It takes the median times of ``lender``, the run of a file, if that has as many stages.
    """
    if lender is None or lender.costs.time.shape[1] != schedule.n_stages:
        prices = build_costs(schedule, costs, network, None)
        return explain_costs(spec, schedule, prices, network, costs.links)
    prices = build_costs(schedule, costs, network, _costs_of_file(lender))
    run = explain_costs(spec, schedule, prices, network, costs.links)
    if run.execution:
        return run
    return replace(run, source=_borrowed_source(schedule, lender.timeline.schedule))


def explain_costs(
    spec: str, schedule: Schedule, prices: Costs, network: NetworkOptions, links: Sequence[str]
) -> TimedRun:
    """Simulate a schedule with given costs, and return it with its idle time by cause."""
    from ppsim.analysis.idle import explain_run

    timeline, execution = time_ops(schedule, prices, network, links)
    return TimedRun(
        spec,
        explain_run(timeline, prices.latencies(schedule), execution),
        SIMULATED,
        prices,
        execution,
    )


def _borrowed_source(schedule: Schedule, lender: Schedule) -> str:
    """Return the source of a schedule's times; it names the assumption if the lender's backwards
    are whole and the schedule's are split.
    """
    from ppsim.core.ops import Kind

    is_split, was_split = ((each.kind == Kind.W).any() for each in (schedule, lender))
    return f"{BORROWED} (I = W = B/2)" if is_split and not was_split else BORROWED


def _costs_of_file(run: TimedRun) -> Costs:
    """Return the costs derived from a run's times, for whole sequences."""
    from ppsim.analysis.changes import times_sliced

    return times_sliced(run.costs, run.timeline.schedule.n_slices)


def _shape_of(spec: str, shape: ShapeOptions) -> ShapeOptions:
    """Return the options of the shape that a schedule has; none for a file, which has its shape."""
    from ppsim.schedules import reads_ops

    return ShapeOptions() if reads_ops(spec) else options_taken(spec, shape)
