"""Published runs, and the cost model's predictions of them."""

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
REASON = 300  # letters of why a row is left out
NAME = 60  # of software that the library lacks
# times that a measured step is above or below the prediction where one of the two is of something
# else
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
    """Predict a step of a row's run; of several choices, the fastest one."""
    return _predict(setup)[:2]


def _predict(setup: Setup) -> tuple[Parallel, Step, StageCosts]:
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
    """Return the measured rows of a table as runs that correct others.

    Args:
        rows: as of a table.
        user_names: the user's models and machine, which rows may name as well as the library's;
            the machine's measured op times count for rows on its GPU too.
        where: the name of the table in errors.

    Raises:
        InputError: none of them has a step and can be predicted, or one's step is far from any that
            could be.
    """
    found, why = [], "no row says how long a step took"
    for number, row in enumerate(rows):
        try:
            setup = setup_of(row, user_names)
            if user_names.machine and setup.machine.gpu == user_names.machine.gpu:
                setup = replace(
                    setup, machine=replace(setup.machine, measured=user_names.machine.measured)
                )
            parallel, step = predict(setup)
        except (SkippedRow, PpsimError, RefusedValue) as error:
            why = shorten(str(error), REASON)
            continue
        if setup.step_s:
            setting = _setting(row, setup, parallel)
            name = str(row.get("id", f"row {number}"))
            if not step.seconds / FAR <= setup.step_s <= step.seconds * FAR:
                steps = (
                    f"measured a step of {setup.step_s:.3g} s, and the plan's own is "
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
            f"{where}: no anchor has a measured step and can be predicted: {why}",
            "rows as plan --against takes them",
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
    """Return the prediction of every row of a table; a row without one has a ``reason`` instead.

    Args:
        rows: the table.
        runs: measured runs that correct predictions, each row's own left out; the library's without
            them.
        user_names: the user's models and machine, which rows may name as well as the library's.

    Returns:
        The rows, each with ``id``, ``predicted_step_s``, ``low_s``, ``high_s`` and
            ``measured_step_s``, and the summary
        of their errors.
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
    """Write the settings that were chosen because a row leaves them out."""
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
    """Summarise the errors of predicted rows: how many, mean and median of their sizes, and the
    mean of their signs.
    """
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
    held = [
        abs(r["predicted_peak_gib"] / r["measured_peak_gib"] - 1)
        for r in rows
        if "measured_peak_gib" in r
    ]
    memory = {"memory_rows": len(held), "mean_memory_error": sum(held) / len(held)} if held else {}
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
