"""The result of a validation: each run measured and predicted, errors, noise, and the JSON."""

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
    """One schedule, measured and predicted; times in ms, errors as shares of the measured
    makespan.
    """

    run: Measured  # the measurements
    makespan: float  # median over the repetitions; ``spread`` is its 10th and 90th percentile
    spread: tuple[float, float]  # see above
    # level to (predicted - measured) / measured; of a replay the median over repetitions
    errors: Mapping[str, float]
    best: Execution  # the held-out prediction
    # the median error of the same model with costs from the run's own other repetitions, which is
    # the noise of the measurements; None where there are none
    floor: float | None
    measured: Timeline  # the timeline of the repetition closest to the median
    # shape (devices, classes), predicted - measured time per device and class of :data:`CLASSES`
    residual: NDArray[np.float64]
    # shape (ops,), predicted - measured start of every compute op, in that repetition
    shift: NDArray[np.float64]
    held_out: bool  # whether the costs came from other schedules

    @property
    def predicted(self) -> float:
        """Predicted makespan beside the measured one: that of the median error."""
        return self.makespan * (1 + self.errors["held-out"])

    @property
    def within_noise(self) -> bool:
        """Whether the held-out prediction is as close as the run's own other repetitions are."""
        return self.floor is not None and abs(self.errors["held-out"]) <= self.floor


@dataclass(frozen=True)
class Validation:
    """All schedules of one session."""

    verdicts: tuple[Verdict, ...]  # one per schedule
    ranked_right: int  # of these pairs, those whose predictions are in the right order
    # number of pairs of schedules more than 2 % apart, both predicted from the costs of other
    # schedules
    pairs: int

    def lost_in_noise(self, tolerance: float) -> bool:
        """Whether errors beyond the tolerance are no larger than the noise of the measurements, and
        so tell nothing.
        """
        held_out = [v for v in self.verdicts if v.held_out] or self.verdicts
        beyond = [v for v in held_out if abs(v.errors["held-out"]) > tolerance]
        return bool(beyond) and all(v.within_noise for v in beyond)

    def errors(self, level: str) -> NDArray[np.float64]:
        """Select the absolute errors of a level: of schedules whose costs came from others, of all
        for a replay.
        """
        held = [v for v in self.verdicts if v.held_out or level == "replay"] or list(self.verdicts)
        return np.abs([v.errors[level] for v in held])


def select_step(validation: Validation, step: str) -> Validation:
    """Select steps: ``median`` by makespan, a number, a range such as 4-20, or ``all`` (InputError:
    there is none).
    """
    if step == "all":
        return validation
    named = {v.run.name.rsplit(" ", 1)[-1]: v for v in validation.verdicts}
    middle = sorted(validation.verdicts, key=lambda v: v.makespan)[
        (len(validation.verdicts) - 1) // 2
    ]
    chosen = (
        (middle,)
        if step == "median"
        else tuple(named[number] for number in named if _within(step, number))
    )
    if not chosen:
        raise InputError(
            f"the traces have no whole step {step}", f"median, all, or one of {', '.join(named)}"
        )
    return replace(validation, verdicts=chosen)


def _within(steps: str, number: str) -> bool:
    """Tell whether a number is the one named, or in the range named."""
    first, dash, last = steps.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal() and len(steps) < 40):
        return steps == number
    return int(first) <= int(number) <= int(last)


def find_worst_ops(verdict: Verdict, count: int = 5) -> list[tuple[str, int, float, float]]:
    """Find the compute ops whose start is furthest off: label, device, measured start, predicted -
    measured, in ms.
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
    return {
        "makespan": makespan,
        "bubble_rate": metrics.bubble_rate,
        "bubble_over_ideal": metrics.bubble_over_ideal,
        "bubble_rate_span": metrics.bubble_rate_span,
        "busy": metrics.busy,
    }
