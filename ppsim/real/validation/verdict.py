"""The result of a validation: measured and predicted runs, errors, noise, and the JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.core.execution import Execution
from ppsim.core.timeline import Timeline
from ppsim.engine.simple.metrics import Metrics, measure
from ppsim.errors import InputError
from ppsim.real.runs.record import Measured, Record
from ppsim.real.validation.predict import LEVELS

CLASSES = ("compute", "P2P", "wait", "host")


@dataclass(frozen=True)
class Verdict:
    """One measured and predicted schedule; times in ms, errors relative to the measured
    makespan.
    """

    run: Measured  # the measurements
    makespan: float  # median over the repetitions
    spread: tuple[float, float]  # 10th and 90th percentile of the makespans
    # (predicted - measured) / measured at each level; for the replay the median over repetitions
    errors: Mapping[str, float]
    best: Execution  # the held-out prediction
    # noise of the measurements: the median absolute error of repetitions predicted from the run's
    # other repetitions; None for a single repetition
    floor: float | None
    measured: Timeline  # the timeline of the repetition closest to the median
    # predicted - measured time of each device in each of :data:`CLASSES`, shape (devices, classes)
    residual: NDArray[np.float64]
    # predicted - measured start of every compute op in ``measured``, shape (ops,)
    shift: NDArray[np.float64]
    held_out: bool  # whether the costs come from other schedules

    @property
    def predicted(self) -> float:
        """Predicted makespan in ms: the measured makespan plus the median error."""
        return self.makespan * (1 + self.errors["held-out"])

    @property
    def within_noise(self) -> bool:
        """Whether the held-out error is at most the noise of the measurements."""
        return self.floor is not None and abs(self.errors["held-out"]) <= self.floor


@dataclass(frozen=True)
class Validation:
    """All schedules of one session."""

    verdicts: tuple[Verdict, ...]  # one per schedule
    ranked_right: int  # number of pairs whose predictions are in the right order
    # number of pairs of schedules whose makespans differ by more than 2 %, and which are both
    # predicted from the costs of other schedules
    pairs: int

    def lost_in_noise(self, tolerance: float) -> bool:
        """Return whether all errors beyond the tolerance are within the noise of the
        measurements.
        """
        held_out = [v for v in self.verdicts if v.held_out] or self.verdicts
        beyond = [v for v in held_out if abs(v.errors["held-out"]) > tolerance]
        return bool(beyond) and all(v.within_noise for v in beyond)

    def errors(self, level: str) -> NDArray[np.float64]:
        """Return the absolute errors at a level: of schedules with costs from other schedules, or
        of all schedules for the replay.
        """
        chosen = [v for v in self.verdicts if v.held_out or level == "replay"]
        return np.abs([v.errors[level] for v in chosen or self.verdicts])


def select_step(validation: Validation, step: str) -> Validation:
    """Keep steps: ``median`` (by makespan), a number, a range such as 4-20, or ``all`` (InputError:
    there is no such step).
    """
    if step == "all":
        return validation
    by_number = {v.run.name.rsplit(" ", 1)[-1]: v for v in validation.verdicts}
    middle = sorted(validation.verdicts, key=lambda v: v.makespan)[
        (len(validation.verdicts) - 1) // 2
    ]
    chosen = (
        (middle,)
        if step == "median"
        else tuple(v for number, v in by_number.items() if _is_step_in(step, number))
    )
    if not chosen:
        raise InputError(
            f"the traces have no complete step {step}",
            f"median, all, or one of {', '.join(by_number)}",
        )
    return replace(validation, verdicts=chosen)


def _is_step_in(steps: str, number: str) -> bool:
    """Return whether a step's number is equal to ``steps``, or in that range."""
    first, dash, last = steps.partition("-")
    is_plain = steps.isascii() and len(steps) < 40
    if not (dash and is_plain and first.isdecimal() and last.isdecimal()):
        return steps == number
    return int(first) <= int(number) <= int(last)


def find_worst_ops(verdict: Verdict, count: int = 5) -> list[tuple[str, int, float, float]]:
    """Return the compute ops with the largest errors of their start: label, device, measured start
    and predicted - measured start, in ms.
    """
    schedule = verdict.measured.schedule
    order = np.argsort(-np.abs(verdict.shift), kind="stable")[:count]
    return [
        (
            schedule.label(int(op)),
            int(schedule.device[op]),
            float(verdict.measured.start[op]),
            float(verdict.shift[op]),
        )
        for op in order
    ]


def validation_object(validation: Validation, record: Record, tolerance: float) -> dict[str, Any]:
    """Build the object that ``ppsim validate --json`` prints, schema ``ppsim.validate/1``."""
    rows = [_verdict_object(v) for v in validation.verdicts]
    worst = float(validation.errors("held-out").max())
    value = {
        "schema": "ppsim.validate/1",
        "provenance": dict(record.provenance),
        "settings": dict(record.settings),
        "schedules": rows,
        "errors": {
            level: {
                "median": float(np.median(validation.errors(level))),
                "worst": float(validation.errors(level).max()),
            }
            for level in LEVELS
        },
        "ranked_right": validation.ranked_right,
        "ranked_pairs": validation.pairs,
        "tolerance": tolerance,
        "passed": worst <= tolerance,
        "lost_in_noise": validation.lost_in_noise(tolerance),
    }
    return value | (
        {key: rows[0][key] for key in ("predicted", "measured", "residuals")}
        if len(rows) == 1
        else {}
    )


def _verdict_object(verdict: Verdict) -> dict[str, Any]:
    """Build the JSON object of one schedule."""
    return {
        "name": verdict.run.name,
        "held_out": verdict.held_out,
        "predicted": _numbers(measure(verdict.best.compute), verdict.predicted),
        "measured": _numbers(measure(verdict.measured), verdict.makespan)
        | {
            "p10": verdict.spread[0],
            "p90": verdict.spread[1],
            "repetitions": len(verdict.run.makespans),
        },
        "errors": dict(verdict.errors),
        "noise_floor": verdict.floor,
        "within_noise": verdict.within_noise,
        "residuals": {
            "classes": CLASSES,
            "per_device": verdict.residual,
            "worst_ops": [
                {"op": op, "device": device, "measured_start": start, "shift": shift}
                for op, device, start, shift in find_worst_ops(verdict)
            ],
        },
    }


def _numbers(metrics: Metrics, makespan: float) -> dict[str, Any]:
    """Build the JSON object of one measured or predicted timeline."""
    return {
        "makespan": makespan,
        "bubble_rate": metrics.bubble_rate,
        "bubble_over_ideal": metrics.bubble_over_ideal,
        "bubble_rate_span": metrics.bubble_rate_span,
        "busy": metrics.busy,
    }
