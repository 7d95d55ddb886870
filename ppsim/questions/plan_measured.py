"""What measured runs say of plans: corrections, ranges, ties, and what no run was seen of."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ppsim.base.numbers import format_share

if TYPE_CHECKING:
    from ppsim.workload.plans.nearby import Nearby, Setting
    from ppsim.workload.plans.task import Found, Row, Task

ROUNDING = 1e-9
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
    ahead: float = 0.0  # how much faster the fastest plan is than the best, which is simpler


def correct_plans(task: Task, software: str, found: Found, runs: Nearby) -> Told:
    """Correct the steps of all plans by measured runs, choose the best of them, and give each a range.

    Published runs give one factor for all plans of a search, so plans rank as they are modelled: a factor
    of each plan's own ranked pairs of layouts worse than none. Several runs of the user's own give each plan
    a factor between theirs.
    """
    import numpy as np

    from ppsim.workload.model.model import COMPRESSED
    from ppsim.workload.plans.nearby import unseen
    from ppsim.workload.plans.search import best_of, order_of

    fastest = min(found.simulated, key=order_of)
    known = {row["key"]: setting_of_row(task, software, row) for row in found.simulated}
    middle = runs.at(known[fastest["key"]]).factor
    low, high = anchored_factors(runs) or (middle, middle)
    factors = np.clip(runs.factors([known[row["key"]] for row in found.simulated]), low, high).tolist()
    found.simulated = [_scaled(row, factor) for row, factor in zip(found.simulated, factors, strict=True)]
    choice = choose(found.simulated, known, runs, task.model.layers)
    best = choice.best
    listed = [row for row in best_of(task, found.simulated.copy()) if row["key"] != best["key"]]
    found.rows = [best, *(listed if task.front else listed[: task.keep - 1])]
    settings = [known[row["key"]] for row in found.rows]
    corrections, _ = runs.together(settings)
    for row, correction in zip(found.rows, corrections, strict=True):
        row["low_s"], row["high_s"] = correction.range(row["step_s"])
        row["tied"] = row["key"] in choice.tied
    first = settings[0]
    profiled = task.machine.measured is not None
    lacking = () if profiled else tuple(unseen(runs, first, bool(task.model.experts)))
    if set(COMPRESSED) & set(task.model.mixers):
        lacking += ("compressed attention: it is priced as dense kernels of as many keys, likely too fast",)
    if task.machine.kinds:
        lacking += (f"several kinds of nodes: corrected as on {first.gpu}",)
    lines = [f"no measured run was seen of {what}\n" for what in lacking]
    lines += ["measured times are in the curve's place, so runs that it predicted correct nothing\n"] * profiled
    lines += [*describe_anchors(runs)]
    terms = runs.terms(first) if runs.anchors else {}
    return Told(lacking, tuple(run.name for run in runs.anchors), terms, tuple(lines), choice.ahead)


def anchored_factors(runs: Nearby) -> tuple[float, float] | None:
    """Return the least and the largest factor by which several runs of the user's own correct steps."""
    if len(runs.anchors) < 2:
        return None
    factors = [runs.at(run.setting).factor for run in runs.anchors]
    return min(factors), max(factors)


def near_the_fastest(runs: Nearby) -> float:
    """Return how much slower than the fastest a plan may be modelled and still tie with it, as a share."""
    low, high = anchored_factors(runs) or (1.0, 1.0)
    return math.exp(CLOSE[1]) * high / low * (1 + ROUNDING) - 1


@dataclass(frozen=True)
class Choice:
    """The best plan.

    Attributes:
        best: its row.
        tied: keys of the best and of all plans that tie with it; empty where none does.
        ahead: how much faster the fastest plan is than the best, as a share of the best's step.
    """

    best: Row
    tied: frozenset[str]
    ahead: float


def choose(rows: list[Row], known: Mapping[str, Setting], runs: Nearby, layers: int) -> Choice:
    """Choose the simplest of the plans that always tie with the fastest, of as simple ones the fastest.

    So simplicity costs 2 % of a step at most. Two plans tie where their times differ less than the errors of
    the two may, within ``CLOSE``; none ties that is further from the fastest.
    """
    import numpy as np

    from ppsim.workload.plans.search import order_of

    fastest = min(row["step_s"] for row in rows)
    near = sorted((row for row in rows if math.log(row["step_s"] / fastest) <= CLOSE[1]), key=order_of)
    always = [row for row in near if math.log(row["step_s"] / fastest) <= CLOSE[0]]
    best = min(always, key=lambda row: (_parts(row, layers), order_of(row)))
    differ = runs.differing([known[row["key"]] for row in near], [known[best["key"]]])[:, 0]
    steps = np.log([row["step_s"] for row in near])
    ties = np.abs(steps - math.log(best["step_s"])) <= np.clip(differ, *CLOSE)
    tied = frozenset(row["key"] for row, tie in zip(near, ties.tolist(), strict=True) if tie)
    return Choice(best, tied if len(tied) > 1 else frozenset(), 1 - fastest / best["step_s"])


def setting_of_row(task: Task, software: str, row: Row) -> Setting:
    """Return the setting of a plan, as measured runs near it are found."""
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


def _parts(row: Row, layers: int) -> tuple[int, int]:
    """Return a plan's place by how much there is to set up: its schedule's, and how many choices are not plain.

    ``layers`` of the model: a pipeline over which they do not divide has a division to set up.
    """
    schedule = PLAIN.index(row["schedule"]) if row["schedule"] in PLAIN else len(PLAIN)
    choices = (
        *(row[name] > 1 for name in (*SIZES, "zero")),
        row["offload"] > 0,
        row["recompute"] != "none",
        row["recompute_layers"] is not None,
        row["layout"] != "even" or layers % (row["pp"] * row["vp"]) > 0,
    )
    return schedule, sum(choices)


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
