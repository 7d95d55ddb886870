"""Runs whose times are in files, real or stated: how commands read them, schedules named where they
are a family's.
"""

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
    """Declare the option that tells the unit of a table's times."""
    return option(
        "--unit",
        type=click.Choice(UNITS),
        help="Tables of ops: the unit of times, where neither a column's name nor a header tells "
        "it (found).",
    )


def read_named_run(paths: Sequence[str], schedule: str = "", unit: str = "") -> RealRun:
    """Return a real run from a folder or files, its schedule named as the family with its queues.

    ``schedule`` chooses a run of a record of several; ``unit`` is of a table's times, where it does
    not tell its own.
    """
    from ppsim.real.traces.read import read_run
    from ppsim.schedules import recognise

    run = read_run(paths, schedule, unit)
    return run.rename(recognise(run.schedule) or run.schedule.name)


def shows_run(path: str) -> bool:
    """Return whether a path is a folder or a file of a real run, or ``FILE:NAME``, rather than a
    schedule.
    """
    if not (os.path.exists(path) or os.path.exists(path.rpartition(":")[0])):
        return False
    from ppsim.real.traces import read

    return read.shows_run(path)


def unit_of_request(unit: str | None, path: str) -> str:
    """Return the unit of a table's times from ``--unit`` (elsewhere the unit of costs); empty
    without one.
    """
    return unit if unit in UNITS and shows_run(path) else ""


def table_unit(unit: str | None, path: str) -> str:
    """As :func:`unit_of_request`, of tables only: the times of other runs have their unit."""
    from ppsim.real.traces.read import lacks_unit

    told = unit_of_request(unit, path)
    return told if told and lacks_unit(path) else ""


def add_run_formats(error: UnknownFormat) -> None:
    """Add the formats of real runs to the hint of a refusal, which names those of schedules."""
    from ppsim.real.traces.read import expected

    error.hint = f"{error.hint}; or a run: {expected()}"


def read_whole(file: str, unit: str = "") -> RealRun | None:
    """Read all of a real run; None where a file shows none."""
    return read_named_run([file], unit=unit) if shows_run(file) else None


def read_draft(
    file: str, iteration: str = "median", *, chosen: bool = False, unit: str = ""
) -> Draft:
    """Read a schedule's file, or one iteration of a run (InputError: one is ``chosen``, and it
    holds no run).
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

    observed: Observed  # its times and the numbers derived from them
    text: str  # a description of the run, for people
    title: str  # the name of its schedule, for pictures
    family: str  # the family whose queues it followed; empty for none
    group_size: int | None = None  # the microbatches per group, where the family takes that
    is_real: bool = False  # whether it is a real run
    notes: tuple[str, ...] = ()  # sentences that readers of the numbers must know
    job: Job | None = None  # all replicas of a run that shows them
    replica: int = 0  # the number of the one whose times these are


def read_stated(
    spec: str, iteration: str = "median", schedule: str = "", unit: str = ""
) -> StatedRun | None:
    """Read the times of a real run or of a file; None for a schedule's name and for a file without
    times.

    ``spec`` is a folder, a file, or ``FILE:NAME`` for one run of a record of several, which
    ``schedule`` chooses too.

    Raises:
        InputError: the files show no whole run, or have no such iteration.
    """
    if shows_run(spec):
        return _read_run(spec, iteration, schedule, unit)
    from ppsim.schedules import reads_ops

    # standard input can be read once: the simulation reads it
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

    found = _name_of(timeline.schedule)
    named = replace(timeline.schedule, name=found or timeline.schedule.name)
    name, group = _family(found)
    title = title_of(replace(named, name=name) if name else named)
    shown = observe(replace(timeline, schedule=named))
    return StatedRun(shown, f"times stated by {spec}", title, name, group)


def _name_of(schedule: Schedule) -> str:
    """Return the name of the family whose queues a file has, or that it states where queues of the
    family follow costs; else empty.
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
    """Read one iteration of a real run."""
    import numpy as np

    from ppsim.analysis.observed import observe

    run = read_named_run([spec], schedule, unit)
    chosen = run.drop_first() if iteration == "median" else run.select(iteration)
    at = chosen.middle()
    timeline = chosen.timeline(at)
    received = chosen.arrival[at] - chosen.start[at].min()
    found = observe(timeline, None if np.isnan(received).all() else received)
    word = f"iteration {chosen.iterations[at]} of {len(run.iterations)}"
    if run.job is not None and len(run.job.replicas) > 1:
        word = f"replica {run.replica} of {len(run.job.replicas)}, {word}"
    name, group = _family(run.schedule.name)
    title = title_of(replace(run.schedule, name=name)) if name else run.schedule.name
    text = f"measured, {word} in {spec}"
    return StatedRun(found, text, title, name, group, True, run.notes, run.job, run.replica)


def _family(name: str) -> tuple[str, int | None]:
    """The family and the group size in the name of a recognised schedule; empty for one that is not
    ours.
    """
    from ppsim.schedules import find

    family, _, options = name.partition(" ")
    key, _, value = options.partition("=")
    try:
        return find(family).name, int(value) if key == "group-size" else None
    except UnknownSchedule:
        return "", None
