"""Reader of records of real runs by ppsim; one run of a record is read."""

from __future__ import annotations

import numpy as np

from ppsim.errors import InputError
from ppsim.real.runs.record import load
from ppsim.real.runs.record_file import is_record
from ppsim.real.traces.reader import Reader, RunFiles, TraceFile
from ppsim.real.traces.run import RealRun


def matches(file: TraceFile) -> bool:
    """Return whether a file is a record."""
    return file.is_text and is_record(file.text)


def read_files(run: RunFiles) -> RealRun:
    """Read one run of one record.

    Raises:
        InputError: there are two records, or the record has not exactly one run of the wanted name.
    """
    if len(run.files) > 1:
        raise InputError(
            f"{run.source} has {len(run.files)} records, and only one can be read",
            "the path of one of them",
        )
    path = next(iter(run.files))
    record = load(path)
    runs = [each for each in record.runs if run.schedule in ("", each.name)]
    if len(runs) != 1:
        names = ", ".join(each.name for each in record.runs)
        content = f"no run of {run.schedule}" if run.schedule else f"{len(runs)} runs"
        raise InputError(
            f"'{path}' has {content}", f"{path}:{record.runs[0].name}, or another of {names}"
        )
    found = runs[0]
    ops = found.lowered.compute_ops
    posted, start, end = (times[:, ops] for times in (found.posted, found.start, found.end))
    schedule, arrival = found.lowered.compute, np.where(start > posted, start, np.nan)
    times = np.arange(1, len(start) + 1), start, end, posted, arrival, np.zeros(schedule.n_devices)
    return RealRun(path, "record", schedule, *times)


READER = Reader(
    name="record",
    title="a record",
    expects="a file that --record wrote",
    place=40,
    matches=matches,
    read=read_files,
)
