"""Compare measured runs with predictions, and split the difference by cause."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.core.ops import Kind, Stream
from ppsim.core.schedule import NONE
from ppsim.core.timeline import Timeline
from ppsim.real.runs.record import Measured, Record
from ppsim.real.validation import predict
from ppsim.real.validation.levels import predict_runs
from ppsim.real.validation.ops_only import predict_ops_only
from ppsim.real.validation.predict import LEVELS, Prediction
from ppsim.real.validation.verdict import Validation, Verdict

CLEAR_DIFFERENCE = 0.02  # relative, between the makespans of two schedules that are ranked
_ON_COMPUTE = np.array([kind.info.stream in (None, Stream.COMPUTE) for kind in Kind])


def validate(record: Record, calibrate_on: Sequence[str] = ()) -> Validation:
    """Predict every run of a record from the other runs, and compare.

    Args:
        record: the measured runs.
        calibrate_on: names of the runs with the costs; by default the first run for ops that sleep,
            and all other runs for ops that compute.
    """
    timed = record.settings["ops"] == "timed"
    names = tuple(calibrate_on) or (
        (record.runs[0].name,) if timed else tuple(r.name for r in record.runs)
    )
    used = {
        run.name: [r for r in record.runs if r.name in names and r is not run]
        for run in record.runs
    }
    if record.settings.get("shows") == "ops":
        predictions = [predict_ops_only(run, used[run.name] or [run]) for run in record.runs]
    else:
        predictions = predict_runs(record, used)
    verdicts = tuple(
        _verdict(run, prediction, held_out=bool(used[run.name]))
        for run, prediction in zip(record.runs, predictions, strict=True)
    )
    right = total = 0
    steps_of_one = record.settings["ops"] == "trace"
    for one, other in combinations((v for v in verdicts if v.held_out and not steps_of_one), 2):
        difference = abs(one.makespan - other.makespan)
        if difference > CLEAR_DIFFERENCE * min(one.makespan, other.makespan):
            total += 1
            right += (one.makespan < other.makespan) == (one.best.makespan < other.best.makespan)
    return Validation(verdicts, right, total)


def find_middle(run: Measured) -> int:
    """Return the number of the repetition whose makespan is closest to the median."""
    makespans = run.makespans
    return int(np.argmin(np.abs(makespans - np.median(makespans))))


def _verdict(run: Measured, prediction: Prediction, *, held_out: bool) -> Verdict:
    """Compare a run with its prediction."""
    makespans = run.makespans
    middle = float(np.median(makespans))
    errors = {
        level: float(each[0]) / middle - 1
        if len(each) == 1
        else float(np.median(each / makespans - 1))
        for level, each in ((level, prediction.makespans[level]) for level in LEVELS)
    }
    row = find_middle(run)
    best, timeline = prediction.best, _timeline(run, row)
    ops, posted = best.timeline, predict.posted_times(best, prediction.gap, prediction.preamble)
    predicted = time_by_class(ops.schedule, posted, ops.start, ops.end, best.makespan)
    schedule, end = run.lowered.schedule, run.end[row]
    measured = time_by_class(schedule, run.posted[row], run.start[row], end, float(end.max()))
    return Verdict(
        run=run,
        makespan=middle,
        spread=(float(np.quantile(makespans, 0.1)), float(np.quantile(makespans, 0.9))),
        errors=errors,
        best=best,
        floor=prediction.floor,
        measured=timeline,
        residual=predicted - measured,
        shift=best.compute.start - timeline.start,
        held_out=held_out,
    )


def _timeline(run: Measured, row: int) -> Timeline:
    """Return the timeline of the compute ops of one repetition; the cause of each start is not
    measured.
    """
    ops = run.lowered.compute_ops
    unbound = np.full(len(ops), NONE, np.int32)
    return Timeline(run.lowered.compute, run.start[row, ops], run.end[row, ops], unbound, "ms")


def time_by_class(
    schedule: Any,
    posted: NDArray[np.float64],
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    total: float,
) -> NDArray[np.float64]:
    """Sum each device's time in ops, in calls of sends and receives, in waits, and the rest; shape
    (devices, classes).
    """
    first, compute = schedule.leads & _ON_COMPUTE[schedule.kind], ~schedule.communicates
    kinds = (
        np.where(compute, end - start, 0.0),
        np.where(compute, 0.0, end - posted),
        np.where(compute, start - posted, 0.0),
    )
    sums = [
        np.bincount(schedule.device[first], values[first], schedule.n_devices) for values in kinds
    ]
    return np.stack([*sums, total - np.sum(sums, axis=0)], axis=1)
