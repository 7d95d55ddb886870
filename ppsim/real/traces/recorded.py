"""Our own record of a real run, as ``ppsim validate --record`` wrote it."""

from __future__ import annotations

import numpy as np

from ppsim.errors import InputError
from ppsim.real.runs.record import load
from ppsim.real.runs.record_file import SCHEMA
from ppsim.real.traces.run import RealRun


def matches(text: str) -> bool:
    """Tell whether a text is a record."""
    return f'"{SCHEMA}"' in text[:200]


def read_recorded(path: str, schedule: str) -> RealRun:
    """Read one run of a record (InputError: it is no record, or has several runs and none of that name)."""
    record = load(path)
    runs = [run for run in record.runs if schedule in ("", run.name)]
    if len(runs) != 1:
        names = ", ".join(run.name for run in record.runs)
        what = f"no run of {schedule}" if schedule else f"{len(runs)} runs"
        raise InputError(f"'{path}' holds {what}", f"{path}:{record.runs[0].name}, or another of {names}")
    run = runs[0]
    posted, start, end = (times[:, run.lowered.compute_ops] for times in (run.posted, run.start, run.end))
    followed, arrival = run.lowered.compute, np.where(start > posted, start, np.nan)
    times = np.arange(1, len(start) + 1), start, end, posted, arrival, np.zeros(followed.n_devices)
    return RealRun(path, "record", followed, *times)
