"""Runs whose times are in files, measured or stated, with the families of their schedules."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from ppsim.ask.options import option
from ppsim.ask.words import title_of
from ppsim.base.text import STANDARD_INPUT
from ppsim.errors import InputError, UnknownFormat, UnknownSchedule

if TYPE_CHECKING:
    from ppsim.analysis.observed import Observed
    from ppsim.core.draft import Draft
    from ppsim.core.job import Job
    from ppsim.core.schedule import Schedule
    from ppsim.real.traces.run import RealRun


UNITS = ("s", "ms", "us", "ns")  # of the times of tables


def unit_option() -> Any:
    """Declare the option for the unit of a table's times."""
    return option(
        "--unit",
        type=click.Choice(UNITS),
        help="Unit of the times of a table of ops, if neither a column's name nor a header states "
        "it.",
    )


def read_named_run(paths: Sequence[str], schedule: str = "", unit: str = "") -> RealRun:
    """Return a real run of a folder or files, its schedule named as the family that has its queues.

    ``schedule`` chooses a run of a record of several; ``unit`` is that of a table which does not
    state its unit.
    """
    from ppsim.real.traces.read import read_run
    from ppsim.schedules import recognise

    run = read_run(paths, schedule, unit)
    return run.rename(recognise(run.schedule) or run.schedule.name)


def shows_run(path: str) -> bool:
    """Return True if a path is a folder or a file of a real run, or ``FILE:NAME``."""
    if not (os.path.exists(path) or os.path.exists(path.rpartition(":")[0])):
        return False
    from ppsim.real.traces import read

    return read.shows_run(path)


def unit_of_request(unit: str | None, path: str) -> str:
    """Return ``--unit`` if it is the unit of a run's times, not of costs; else empty."""
    return unit if unit in UNITS and shows_run(path) else ""


def table_unit(unit: str | None, path: str) -> str:
    """Return ``--unit`` for a table that does not state its unit; else empty."""
    from ppsim.real.traces.read import lacks_unit

    given = unit_of_request(unit, path)
    return given if given and lacks_unit(path) else ""


def add_run_formats(error: UnknownFormat) -> None:
    """Add the formats of real runs to the hint of a refusal, which names those of schedules."""
    from ppsim.real.traces.read import expected

    error.hint = f"{error.hint}; or a run: {expected()}"


def read_whole(file: str, unit: str = "") -> RealRun | None:
    """Return a real run with all its iterations; None if the file is not one."""
    return read_named_run([file], unit=unit) if shows_run(file) else None


def read_draft(
    file: str, iteration: str = "median", *, chosen: bool = False, unit: str = ""
) -> Draft:
    """Return the content of a schedule's file, or one iteration of a real run.

    Raises:
        InputError: an iteration is ``chosen``, and the file is not a real run.
    """
    if shows_run(file):
        observed = read_named_run([file], unit=unit).select(iteration)
        return observed.draft(observed.middle())
    from ppsim.inputs.drafts.read import read

    if chosen:
        raise InputError(
            f"'{file}' is not a real run, so --iteration has no effect", "leave it out"
        )
    return read(file)


@dataclass(frozen=True)
class StatedRun:
    """A run whose times are in its files."""

    observed: Observed  # its times, and numbers derived from them
    text: str  # a description of the run
    title: str  # the name of its schedule, for pictures
    family: str  # the family that has its queues; empty if there is none
    group_size: int | None = None  # the microbatches per group; None if the family has no groups
    is_real: bool = False  # True for a real run
    notes: tuple[str, ...] = ()  # sentences to print with the numbers
    job: Job | None = None  # all replicas of a recorded job
    replica: int = 0  # the replica of the job that these times are of


def read_stated(
    spec: str, iteration: str = "median", schedule: str = "", unit: str = ""
) -> StatedRun | None:
    """Return the run of files with its times; None for a schedule's name and a file without times.

    ``spec`` is a folder, a file, or ``FILE:NAME`` for one run of a record of several; ``schedule``
    is another way to choose that run.

    Raises:
        InputError: the files contain no whole run, or not the iteration.
    """
    if shows_run(spec):
        return _read_run(spec, iteration, schedule, unit)
    from ppsim.schedules import reads_ops

    # standard input can be read only once, and the simulation reads it
    if spec == STANDARD_INPUT or not reads_ops(spec):
        return None
    from ppsim.inputs.drafts.read import read_timeline

    try:
        timeline = read_timeline(spec)
    except UnknownFormat as error:
        add_run_formats(error)
        raise
    if timeline is None:
        return None
    from ppsim.analysis.observed import observe

    full_name = _name_of(timeline.schedule)
    named = replace(timeline.schedule, name=full_name or timeline.schedule.name)
    family, group_size = _family_and_group(full_name)
    title = title_of(replace(named, name=family) if family else named)
    observed = observe(replace(timeline, schedule=named))
    return StatedRun(observed, f"times stated by {spec}", title, family, group_size)


def _name_of(schedule: Schedule) -> str:
    """Return the name of the family that has a file's queues; else empty.

    The order of some families depends on costs, which are not known here: a file that states such a
    family's name is believed.
    """
    from ppsim.schedules import find, recognise

    if found := recognise(schedule):
        return found
    try:
        family = find(schedule.name)
    except UnknownSchedule:
        return ""
    return family.name if family.uses_costs else ""


def _read_run(spec: str, iteration: str, schedule: str, unit: str) -> StatedRun:
    """Return one iteration of a real run."""
    import numpy as np

    from ppsim.analysis.observed import observe

    run = read_named_run([spec], schedule, unit)
    chosen = run.drop_first() if iteration == "median" else run.select(iteration)
    at = chosen.middle()
    timeline = chosen.timeline(at)
    received = chosen.arrival[at] - chosen.start[at].min()
    observed = observe(timeline, None if np.isnan(received).all() else received)
    part = f"iteration {chosen.iterations[at]}, one of {len(run.iterations)}"
    if run.job is not None and len(run.job.replicas) > 1:
        part = f"replica {run.replica} of {len(run.job.replicas)}, {part}"
    family, group_size = _family_and_group(run.schedule.name)
    title = title_of(replace(run.schedule, name=family)) if family else run.schedule.name
    return StatedRun(
        observed,
        f"measured, {part} in {spec}",
        title,
        family,
        group_size,
        is_real=True,
        notes=run.notes,
        job=run.job,
        replica=run.replica,
    )


def _family_and_group(name: str) -> tuple[str, int | None]:
    """Return the family and the group size of a recognised schedule's name; empty if unknown."""
    from ppsim.schedules import find

    family, _, options = name.partition(" ")
    key, _, value = options.partition("=")
    try:
        return find(family).name, int(value) if key == "group-size" else None
    except UnknownSchedule:
        return "", None
