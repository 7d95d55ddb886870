"""Measured runs against plans: corrections, ranges, ties, and settings without any measured run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ppsim.ask.words import count_text
from ppsim.base.numbers import format_change, format_share
from ppsim.errors import PpsimError
from ppsim.workload.plans.gains import HALF, Gain, gain_of

if TYPE_CHECKING:
    from ppsim.workload.model.model import Model
    from ppsim.workload.plans.nearby import Measured, Nearby, Setting
    from ppsim.workload.plans.software import Version
    from ppsim.workload.plans.task import Findings, Row, Task

ROUNDING = 1e-9
# The logarithm of the ratio of times by which a plan may be slower than the fastest and still be
# the best, being simpler.
CLOSE = 0.02
# share of a step by which a plan may be slower than the fastest and still be simulated, always
NEAR = math.exp(0.05) * (1 + ROUNDING) - 1
# How far the ratio of two plans' predicted steps is off in four pairs of five, in logarithms, where
# runs of one job differ in layout (gallery/measurements.md); HALF where they differ in schedule.
LAYOUTS_DIFFER = 0.14
BASELINE = "1f1b"  # the schedule over which others gain
PLAIN = ("", "1f1b", "interleaved", "gpipe")  # schedules, the simpler first
SIZES = ("tp", "cp", "ep", "pp", "vp")
TILE_SIDE = 128  # rows or columns of a product that a multiprocessor makes at a time, at least
# in addition to the schedule
LAYOUT = ("tp", "cp", "ep", "pp", "dp", "mbs", "recompute", "zero", "offload")


@dataclass(frozen=True)
class Corrections:
    """Corrections of a plan by measured runs."""

    # parts of the setting that no run has: the GPU, the software, the kind of model
    unseen_parts: tuple[str, ...] = ()
    anchors: tuple[str, ...] = ()  # names of the user's runs
    factor: float = 1.0  # by which all plans' steps are multiplied
    lines: tuple[str, ...] = ()  # all of it in words
    ahead: float = 0.0  # how much faster the fastest plan is than the best, which is simpler


def correct_plans(task: Task, version: Version, found: Findings, runs: Nearby) -> Corrections:
    """Correct the steps of all plans by measured runs, choose the best of them, and give each a
    range.

    One factor, the fastest plan's, for all: plans rank as they are modelled. A factor of each
    plan's own ranked pairs of layouts worse than none.
    """
    from ppsim.workload.model.model import COMPRESSED
    from ppsim.workload.plans.nearby import unseen_parts
    from ppsim.workload.plans.search import best_of, order_of

    first = setting_of_row(task, version, min(found.simulated, key=order_of))
    correction = runs.correction_at(first)
    found.simulated = [_scaled_row(row, correction.factor) for row in found.simulated]
    choice = choose(found.simulated, task.model.layers)
    best = choice.best
    listed = [row for row in best_of(task, found.simulated.copy()) if row["key"] != best["key"]]
    found.rows = [best, *(listed if task.front else listed[: task.keep - 1])]
    for row in found.rows:
        row["low_s"], row["high_s"] = correction.range(row["step_s"])
        row["slower_low"], row["slower_high"] = slower_range(row, best)
        row["tied"] = is_tied(row, best)
    best["tied"] = any(is_tied(row, best) for row in found.simulated)
    profiled = task.machine.measured is not None
    lacking = () if profiled else tuple(unseen_parts(runs, first))
    if set(COMPRESSED) & set(task.model.mixers):
        lacking += (
            "compressed attention: it is priced as dense kernels of as many keys, likely too fast",
        )
    if task.machine.kinds:
        lacking += (f"several kinds of nodes: corrected as on {first.gpu}",)
    lines = [f"no measured run was seen of {what}\n" for what in lacking]
    lines += [
        "measured times are in the curve's place, so runs that it predicted correct nothing\n"
    ] * profiled
    lines += [*describe_anchors(runs)]
    return Corrections(
        lacking,
        tuple(run.name for run in runs.anchors),
        correction.factor,
        tuple(lines),
        choice.ahead,
    )


@dataclass(frozen=True)
class Choice:
    """The best plan.

    Attributes:
        best: its row.
        ahead: how much faster the fastest plan is than the best, as a share of the best's step.
    """

    best: Row
    ahead: float


def choose(rows: list[Row], layers: int) -> Choice:
    """Choose the simplest of the plans within 2 % of the fastest, of as simple ones the fastest."""
    from ppsim.workload.plans.search import order_of

    fastest = min(row["step_s"] for row in rows)
    simple = [row for row in rows if math.log(row["step_s"] / fastest) <= CLOSE]
    best = min(simple, key=lambda row: (_parts(row, layers), order_of(row)))
    return Choice(best, 1 - fastest / best["step_s"])


def slower_range(row: Row, best: Row) -> tuple[float, float]:
    """Return the least and the greatest share by which a plan is slower than the best, in four
    cases of five.
    """
    if row["key"] == best["key"]:
        return 0.0, 0.0
    apart = math.log(row["step_s"] / best["step_s"])
    same = all(row[name] == best[name] for name in LAYOUT)
    far = HALF if same else LAYOUTS_DIFFER
    return math.expm1(apart - far), math.expm1(apart + far)


def is_tied(row: Row, best: Row) -> bool:
    """Return whether another plan is tied with the best: it is not surely slower, in four cases of
    five.
    """
    return row["key"] != best["key"] and slower_range(row, best)[0] <= 0


def sureness(rows: Sequence[Row]) -> str:
    """Say which of the other plans the first one beats, and which are tied with it; empty for one
    plan.
    """
    others = list(enumerate(rows[1:], 2))
    beaten = [place for place, row in others if not row["tied"]]
    tied = [place for place, row in others if row["tied"]]
    said = []
    if beaten:
        said.append(f"plan 1 beats {_plans(beaten)}")
    if tied:
        said.append(f"{_plans(tied)} {'is' if len(tied) == 1 else 'are'} tied with plan 1")
    if not said:
        return ""
    schedules, layouts = (format_share(math.expm1(far)) for far in (HALF, LAYOUTS_DIFFER))
    return (
        f"{'; '.join(said)}. A plan is beaten where four measured cases in five would agree: "
        f"predicted {schedules} slower if its schedule alone differs, else {layouts}"
    )


def _plans(places: Sequence[int]) -> str:
    """Plans by their places: plan 2, or plans 2, 4-7 and 9."""
    runs: list[list[int]] = []
    for place in places:
        if runs and place == runs[-1][-1] + 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    named = texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
    return f"plan{'s' * (len(places) > 1)} {named}"


def gain_of_plan(task: Task, row: Row) -> Gain | None:
    """Return the gain of a plan's schedule over 1f1b in the same layout, as both are modelled.

    None without a pipeline, of 1f1b itself, and where 1f1b takes no such layout.
    """
    if row["pp"] == 1:
        return None
    from ppsim.workload.plans.space import layout_layers, read_key

    candidate = read_key(row["key"])
    plain = candidate._replace(schedule=BASELINE, vp=1)
    if candidate == plain or layout_layers(task.model, row["pp"], plain.layout) is None:
        return None
    from ppsim.workload.cost.costs import step_time
    from ppsim.workload.plans.layers_by_speed import layout_of

    base = plain.parallel(task.axes.base)
    layout, machine = layout_of(task, plain), task.machine_of(plain.layout)
    try:
        seconds = step_time(task.model, machine, base, layout).seconds
    except PpsimError:
        return None
    is_sliced = candidate.parallel(task.axes.base).pieces > 1
    return gain_of(BASELINE, seconds, row["modelled_step_s"], is_sliced=is_sliced)


def uneven_stages(row: Row, layers: int) -> str:
    """Say that a plan's stages hold different numbers of layers, as these do not divide; empty
    where they do.
    """
    stages = row["pp"] * row["vp"]
    if row["layout"] != "even" or layers % stages == 0:
        return ""
    chunks = f" x {row['vp']} chunks" if row["vp"] > 1 else ""
    return (
        f"plan 1: {layers} layers do not divide over {row['pp']} devices{chunks}, so its {stages} "
        "stages hold different numbers of them; Megatron-LM takes that by "
        "--pipeline-model-parallel-layout alone"
    )


def uneven_sides(row: Row, model: Model) -> str:
    """Say which sides of a plan's products do not divide over tiles; empty where all do.

    Nine published runs of three such models took about 20 % longer than predicted: of a tile that
    is partly empty more is lost than the empty part.
    """
    sides: dict[str, float] = {"hidden size": model.hidden, "width of an expert": model.expert_ffn}
    sides["share of attention"] = model.heads * model.head_dim / row["tp"]
    if 2 * model.moe_layers < model.layers:
        sides["share of an MLP"] = model.ffn / row["tp"]
    uneven = [f"{name} {size:,g}" for name, size in sides.items() if size % TILE_SIDE]
    if not uneven:
        return ""
    are = "is not a multiple" if len(uneven) == 1 else "are not multiples"
    return (
        f"plan 1: {' and '.join(uneven)} {are} of {TILE_SIDE}, the side of a tile; published runs "
        "of such shapes took about 20 % longer than predicted"
    )


def setting_of_row(task: Task, version: Version, row: Row) -> Setting:
    """Return the setting of a plan, by which measured runs of it are found."""
    from ppsim.workload.plans.nearby import setting_of
    from ppsim.workload.plans.space import read_key

    parallel = read_key(row["key"]).parallel(task.axes.base)
    return setting_of(
        task.model, task.machine.gpu, parallel, version.software.name, version.release
    )


def _scaled_row(row: Row, factor: float) -> Row:
    """Correct the step of a plan, and all that follows from it."""
    more = {"modelled_step_s": row["step_s"], "step_s": row["step_s"] * factor}
    terms = {name: seconds * factor for name, seconds in row["terms"].items()}
    rates = {name: row[name] / factor for name in ("tokens_per_s", "mfu", "tflops_per_gpu")}
    return row | more | {"terms": terms} | rates


def _parts(row: Row, layers: int) -> tuple[int, int]:
    """Return a plan's place by how much there is to set up: its schedule's, and how many choices
    are not plain.

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
    """Yield sentences on the factor by which the user's runs of each software and GPU correct
    others, and on their spread.
    """
    groups: dict[tuple[str, str], list[Measured]] = {}
    for run in runs.anchors:
        groups.setdefault((run.setting.software, run.setting.gpu), []).append(run)
    for (software, gpu), here in groups.items():
        stranger = replace(here[0].setting, job="")
        line = (
            f"{count_text(len(here), 'anchor')} of {software} on {gpu}: step x "
            f"{runs.correction_at(stranger).factor:.3g}"
        )
        if len(here) > 1:
            low, high = (
                format_change(math.exp(end(run.error for run in here)) - 1) for end in (min, max)
            )
            line += f"; their steps are {low} to {high} off the predicted ones"
        yield line + "\n"
