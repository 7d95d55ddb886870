"""Tables of ops in CSV, JSON lines or Parquet: a row per op, or per message or collective."""

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
    """Tell whether a file is a table with a column of kinds and one of times."""
    return is_table(file.data)


def read_files(run: RunFiles) -> RealRun:
    """Read tables as one run, of which one replica is shown: the one named, or the slowest."""
    tables = {path: file.data for path, file in run.files.items()}
    read = read_table(run.source, tables, run.unit)
    job, offset, repairs = job_of(read)
    start, end, notes = job.start[:, 0], job.end[:, 0], (*read.notes, *repairs)
    told = {
        "offset": np.median(offset, axis=(0, 1)),
        "notes": notes,
        "column_notes": read.column_notes,
    }
    found = RealRun.from_ops(run.source, "table", job.schedule, job.iterations, start, end, **told)
    whole = replace(found, unit=job.unit, job=job)
    shown = job.replicas[np.median(job.pipelines, axis=0).argmax()]
    if run.schedule:
        named = run.schedule.isdecimal() and len(run.schedule) < 10
        shown = int(run.schedule) if named else -1
        if shown not in job.replicas:
            raise InputError(
                f"{run.source} has no replica {shorten(run.schedule)}",
                f"one of {job.replicas[0]} to {job.replicas[-1]}",
            )
    return whole.select_replica(int(np.flatnonzero(job.replicas == shown)[0]))


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
