"""Reader of tables of ops in CSV, JSON lines or Parquet: a row per op, message or collective."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ppsim.base.text import shorten
from ppsim.errors import InputError
from ppsim.real.traces.reader import Reader, RunFiles, TraceFile
from ppsim.real.traces.run import RealRun
from ppsim.real.traces.tables.file import SUFFIXES
from ppsim.real.traces.tables.job import job_of
from ppsim.real.traces.tables.table import is_table, read_table


def matches(file: TraceFile) -> bool:
    """Return whether a file is a table with a column of kinds and one of times."""
    return is_table(file.data)


def read_files(run: RunFiles) -> RealRun:
    """Read tables as one run, with the times of the named or the slowest replica."""
    tables = {path: file.data for path, file in run.files.items()}
    table = read_table(run.source, tables, run.unit)
    job, offset, repairs = job_of(table)
    found = RealRun.from_ops(
        run.source,
        "table",
        job.schedule,
        job.iterations,
        job.start[:, 0],
        job.end[:, 0],
        offset=np.median(offset, axis=(0, 1)),
        notes=(*table.notes, *repairs),
        column_notes=table.column_notes,
    )
    with_job = replace(found, unit=job.unit, job=job)
    replica = job.replicas[np.median(job.pipelines, axis=0).argmax()]
    if run.schedule:
        is_number = run.schedule.isascii() and run.schedule.isdecimal() and len(run.schedule) < 10
        replica = int(run.schedule) if is_number else -1
        if replica not in job.replicas:
            raise InputError(
                f"{run.source} has no replica {shorten(run.schedule)}",
                f"one of {job.replicas[0]} to {job.replicas[-1]}",
            )
    return with_job.select_replica(int(np.flatnonzero(job.replicas == replica)[0]))


READER = Reader(
    name="table",
    title="a table of ops",
    expects="a table of ops (CSV, JSON lines, Parquet)",
    place=10,
    matches=matches,
    read=read_files,
    suffixes=(*SUFFIXES, ".json"),
    takes_unit=True,
)
