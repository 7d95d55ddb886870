"""What measured runs say of plans: corrections, ranges, ties, and what no run was seen of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ppsim.base.numbers import format_share

if TYPE_CHECKING:
    from ppsim.workload.plans.nearby import Nearby, Setting
    from ppsim.workload.plans.task import Found, Row, Task

CLOSE = 0.02, 0.05  # logarithms of the ratio of times below which plans always tie, and beyond which they never do
PLAIN = ("", "1f1b", "interleaved", "gpipe")  # schedules, the simpler first
SIZES = ("tp", "cp", "ep", "pp", "vp")


@dataclass(frozen=True)
class Told:
    """What measured runs say of plans."""

    unseen: tuple[str, ...] = ()  # what no run was seen of: the GPU, the software, the kind of model
    anchors: tuple[str, ...] = ()  # names of the user's runs
    # factors by which the user's runs correct parts of the best plan's step
    terms: Mapping[str, float] = field(default_factory=dict)
    lines: tuple[str, ...] = ()  # all of it in words


def correct_plans(task: Task, software: str, found: Found, runs: Nearby) -> Told:
    """Correct the steps of all that was simulated by measured runs, choose the best anew, and give each a range.

    The simplest of those that tie come first.
    A plan ties with the fastest where its time is no further from it than the errors of the two may differ, within
    ``CLOSE``.
    """
    import numpy as np

    from ppsim.workload.model.model import COMPRESSED
    from ppsim.workload.plans.nearby import EIGHTY, unseen
    from ppsim.workload.plans.search import best_of

    known = {row["key"]: _setting(task, software, row) for row in found.simulated}
    factors = runs.factors([known[row["key"]] for row in found.simulated]).tolist()
    found.simulated = [_scaled(row, factor) for row, factor in zip(found.simulated, factors, strict=True)]
    found.rows = best_of(task, found.simulated.copy())
    settings = [known[row["key"]] for row in found.rows]
    corrections, left = runs.together(settings)
    for row, correction in zip(found.rows, corrections, strict=True):
        row["low_s"], row["high_s"] = correction.range(row["step_s"])
    steps = np.log([row["step_s"] for row in found.rows])
    best = int(steps.argmin())
    differ = np.sqrt(np.maximum(left.diagonal() + left[best, best] - 2 * left[best], 0.0))
    apart = np.clip(EIGHTY * differ, *CLOSE)
    for row, tied in zip(found.rows, (steps - steps[best] <= apart).tolist(), strict=True):
        row["tied"] = tied
    if sum(row["tied"] for row in found.rows) == 1:
        found.rows[best]["tied"] = False
    first = settings[best]
    found.rows.sort(key=lambda row: (not row["tied"], _parts(row) if row["tied"] else 0, row["step_s"]))
    profiled = task.machine.measured is not None
    lacking = () if profiled else tuple(unseen(runs, first, bool(task.model.experts)))
    if set(COMPRESSED) & set(task.model.mixers):
        lacking += ("compressed attention: it is priced as dense kernels of as many keys, likely too fast",)
    if task.machine.kinds:
        lacking += (f"several kinds of nodes: corrected as on {first.gpu}",)
    lines = [f"no measured run was seen of {what}\n" for what in lacking]
    lines += ["measured times are in the curve's place, so runs that it predicted correct nothing\n"] * profiled
    lines += [*describe_anchors(runs)]
    return Told(
        lacking, tuple(run.name for run in runs.anchors), runs.terms(first) if runs.anchors else {}, tuple(lines)
    )


def _setting(task: Task, software: str, row: Row) -> Setting:
    from ppsim.workload.plans.nearby import setting_of
    from ppsim.workload.plans.space import read_key

    terms = row["terms"]
    work = terms["compute"] + terms["recompute"] + terms["communication"]
    end = terms["gradients"] + terms["optimizer"]
    waits = (row["step_s"] - end) * terms["communication"] / work
    parallel = read_key(row["key"]).parallel(task.axes.base)
    return setting_of(task.model, task.machine.gpu, parallel, software, (row["step_s"] - end - waits, waits, end))


def _scaled(row: Row, factor: float) -> Row:
    """Correct the step of a plan, and all that follows from it."""
    more = {"modelled_step_s": row["step_s"], "step_s": row["step_s"] * factor}
    terms = {name: seconds * factor for name, seconds in row["terms"].items()}
    rates = {name: row[name] / factor for name in ("tokens_per_s", "mfu", "tflops_per_gpu")}
    return row | more | {"terms": terms} | rates


def _parts(row: Row) -> tuple[int, int]:
    """Order plans by how much there is to set up: the schedule, then sizes, offload and layers that recompute."""
    schedule = PLAIN.index(row["schedule"]) if row["schedule"] in PLAIN else len(PLAIN)
    return schedule, sum(row[name] > 1 for name in SIZES) + bool(row["offload"]) + (row["recompute_layers"] is not None)


def describe_anchors(runs: Nearby) -> Iterator[str]:
    """Say what the user's runs corrected: each term where there are several, one factor where there is one."""
    groups = Counter((run.setting.software, run.setting.gpu) for run in runs.anchors)
    for (software, gpu), count in groups.items():
        here = [run for run in runs.anchors if (run.setting.software, run.setting.gpu) == (software, gpu)]
        moved = {run.name: runs.at(run.setting).factor for run in here}
        name, factor = max(moved.items(), key=lambda item: abs(item[1] - 1))
        line = f"{count} anchor{'s' if count > 1 else ''} of {software} on {gpu}: "
        if count > 1:
            terms = runs.terms(here[0].setting)
            line += ", ".join(f"{term} x {value:.3g}" for term, value in terms.items())
            line += f"; most moved: {name} by {format_share(factor - 1)}"
        else:
            line += f"step x {factor:.3g}"
        yield line + "\n"
