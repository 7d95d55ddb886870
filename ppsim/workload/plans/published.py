"""Predictions of published runs, and their errors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from statistics import median
from typing import Any

from ppsim.base.text import shorten
from ppsim.base.toml import RefusedValue
from ppsim.errors import InputError, PpsimError
from ppsim.workload.cost.costs import StageCosts, Step, queues_of, stage_costs, step_time
from ppsim.workload.cost.memory import device_memory
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans.nearby import Measured, Nearby, Setting, published, setting_of
from ppsim.workload.plans.row_numbers import Row, SkippedRow, number_of
from ppsim.workload.plans.rows import NONE, Setup, UserNames, measured_step, read_table, setup_of
from ppsim.workload.plans.stated import version_of

GIB = 2.0**30
REASON = 300  # most characters of the reason why a row is left out
NAME = 60  # most characters of the name of software that is not in the library
# ratio of a measured step to the prediction (or the reverse) above which a row must be wrong
FAR = 100.0
__all__ = [
    "Row",
    "Setup",
    "SkippedRow",
    "against",
    "anchors_of",
    "predict",
    "read_table",
    "setup_of",
    "summarise",
]


def predict(setup: Setup) -> tuple[Parallel, Step]:
    """Return the settings of a row's run and the predicted step; of several choices the fastest."""
    return _predict(setup)[:2]


def _predict(setup: Setup) -> tuple[Parallel, Step, StageCosts]:
    """Return the result of :func:`predict` with the costs of stages."""
    best: tuple[Parallel, Step, StageCosts] | None = None
    failure: PpsimError | None = None
    for parallel in setup.choices:
        try:
            costs = stage_costs(setup.model, setup.machine, parallel, setup.layout)
            step = step_time(setup.model, setup.machine, parallel, costs=costs)
        except PpsimError as error:
            failure = error
            continue
        if best is None or step.seconds < best[1].seconds:
            best = parallel, step, costs
    if best is None:
        raise failure or SkippedRow("nothing to choose from")
    return best


def anchors_of(
    rows: Iterable[Row], user_names: UserNames = NONE, where: str = "rows"
) -> tuple[Measured, ...]:
    """Return the rows with a measured step as runs that correct predictions.

    Args:
        rows: the rows of a table.
        user_names: the user's models and machine, which rows may name like those of the library;
            the machine's measured op times apply to rows on its GPU.
        where: the name of the table in messages.

    Raises:
        InputError: no anchor has a measured step and can be predicted, or a row's step is more than
            ``FAR`` times off the prediction.
    """
    found, reason = [], "no row states the time of a step"
    for number, row in enumerate(rows):
        try:
            setup = setup_of(row, user_names)
            if user_names.machine and setup.machine.gpu == user_names.machine.gpu:
                setup = replace(
                    setup, machine=replace(setup.machine, measured=user_names.machine.measured)
                )
            parallel, step = predict(setup)
        except (SkippedRow, PpsimError, RefusedValue) as error:
            reason = shorten(str(error), REASON)
            continue
        if setup.step_s:
            setting = _setting(row, setup, parallel)
            name = str(row.get("id", f"row {number}"))
            if not step.seconds / FAR <= setup.step_s <= step.seconds * FAR:
                steps = (
                    f"has a measured step of {setup.step_s:.3g} s and a predicted one of "
                    f"{step.seconds:.3g} s"
                )
                hint = (
                    "its unit (seconds; tokens/s of all GPUs, or of each), its number of GPUs, "
                    "or leave the row out"
                )
                raise InputError(f"{where}: {shorten(name)} {steps}", hint)
            found.append(
                Measured(name, setting, setup.step_s, math.log(setup.step_s / step.seconds))
            )
    if not found:
        raise InputError(
            f"{where}: no anchor has a measured step and can be predicted: {reason}",
            "rows in the format of plan --against",
        )
    return tuple(found)


def _setting(row: Row, setup: Setup, parallel: Parallel) -> Setting:
    version = version_of(row)
    software = shorten(version.named, NAME) if version.assumed else setup.software
    return setting_of(
        setup.model, setup.machine.gpu, parallel, software, version.release, not version.assumed
    )


def against(
    rows: list[Row], runs: Nearby | None = None, user_names: UserNames = NONE
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the predictions of a table's rows, and a summary of their errors.

    Args:
        rows: the table.
        runs: measured runs that correct the predictions of other runs; None takes the library's.
        user_names: the user's models and machine, which rows may name like those of the library.

    Returns:
        The rows, each with ``id``, ``predicted_step_s``, ``low_s``, ``high_s`` and
            ``measured_step_s``, or with a ``reason`` why it cannot be predicted; and the summary.
    """
    results = list(_predict_rows(rows, runs or published(), user_names))
    return results, summarise(results)


def _predict_rows(rows: list[Row], runs: Nearby, user_names: UserNames) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(rows):
        name = row.get("id") if isinstance(row, dict) else None
        result: dict[str, Any] = {"id": name if isinstance(name, str | int) else f"row {number}"}
        if source := row.get("source") if isinstance(row, dict) else None:
            result["source"] = shorten(str(source), REASON)
        result["predicted_step_s"] = None
        result["measured_step_s"] = None
        try:
            setup = setup_of(row, user_names)
            parallel, step, costs = _predict(setup)
        except (SkippedRow, PpsimError, RefusedValue) as error:
            yield {**result, "reason": shorten(str(error), REASON)}
            continue
        if setup.parallel.mbs != parallel.mbs and not number_of(row, "gbs"):
            setup = replace(setup, step_s=measured_step(row, setup.model, parallel))
        correction = runs.correction_at(_setting(row, setup, parallel), setup.step_s)
        seconds = step.seconds * correction.factor
        low, high = correction.range(seconds)
        result |= {
            "predicted_step_s": seconds,
            "measured_step_s": setup.step_s,
            "low_s": low,
            "high_s": high,
        }
        result |= {"modelled_step_s": step.seconds}
        if setup.assumptions:
            result["chosen"] = f"{setup.assumptions}: {_setup_text(setup, parallel)}"
        if setup.step_s:
            result["error"] = seconds / setup.step_s - 1
        queues = queues_of(parallel, costs) if parallel.pp > 1 else None
        peaks = device_memory(setup.model, parallel, setup.layout, schedule=queues).total / GIB
        result |= {
            "predicted_peak_gib": float(peaks.max()),
            "predicted_peaks_gib": [float(peak) for peak in peaks],
        }
        if held := number_of(row, "memory_alloc_GiB"):
            result["measured_peak_gib"] = held
        if reserved := number_of(row, "memory_GiB"):
            result["measured_reserved_gib"] = reserved
        rates = {
            "tflops_per_gpu": step.tflops / correction.factor,
            "mfu": step.mfu / correction.factor,
        }
        result |= {"bubble": step.bubble, **rates, "software": setup.software}
        yield {
            **result,
            "model": setup.model.name,
            "gpu": setup.machine.gpu.name,
            "layout": str(parallel),
        }


def _setup_text(setup: Setup, parallel: Parallel) -> str:
    """Return the settings that were chosen because a row leaves them out, as text."""
    chosen, p = setup.assumptions.split(", "), parallel
    sizes: dict[str, Any] = {"mbs": p.mbs, "vp": p.vp}
    sizes |= {name: getattr(p, name) for name in ("tp", "pp", "cp", "precision") if name in chosen}
    sizes |= {"seq": setup.model.seq} if "seq" in chosen else {}
    if "memory" in chosen:
        sizes |= {"offload": p.offload} if p.offload else {"recompute": p.recompute}
        sizes |= (
            {"of": "+".join(p.modules)}
            if p.recompute == "selective"
            else {"of layers": p.recompute_layers}
        )
    return ", ".join(f"{name} {value}" for name, value in sizes.items() if value is not None)


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the numbers of rows, the mean and median of absolute errors, and their mean (bias)."""
    errors = [row["error"] for row in rows if "error" in row]
    skipped = sum("reason" in row for row in rows)
    counts = {
        "rows": len(rows),
        "predicted": len(rows) - skipped,
        "compared": len(errors),
        "skipped": skipped,
    }
    if not errors:
        return counts
    sizes = [abs(error) for error in errors]
    peaks = [
        abs(row["predicted_peak_gib"] / row["measured_peak_gib"] - 1)
        for row in rows
        if "measured_peak_gib" in row
    ]
    memory = {}
    if peaks:
        memory = {"memory_rows": len(peaks), "mean_memory_error": sum(peaks) / len(peaks)}
    ranged = [row for row in rows if "error" in row and "low_s" in row]
    inside = sum(row["low_s"] <= row["measured_step_s"] <= row["high_s"] for row in ranged)
    return {
        **counts,
        **({"within_range": inside / len(ranged)} if ranged else {}),
        "mean_error": sum(sizes) / len(sizes),
        "median_error": median(sizes),
        "mean_bias": sum(errors) / len(errors),
        "within_10_percent": sum(size <= 0.1 for size in sizes) / len(sizes),
        **memory,
    }
