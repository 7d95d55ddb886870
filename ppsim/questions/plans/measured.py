"""Corrections, ranges and ties of plans by measured runs, and remarks on their shapes."""

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
# The logarithm of the ratio of step times up to which a simpler plan is the best one, though it is
# slower than the fastest.
CLOSE = 0.02
# the search simulates all plans that are slower than the fastest by at most this share of a step
NEAR = math.exp(0.05) * (1 + ROUNDING) - 1
# The logarithm of the error of a predicted ratio of two steps is within this in four of five pairs
# of runs of one job that differ in layout (gallery/measurements.md); within HALF where the runs
# differ in schedule, and none cuts sequences into slices: nothing checks the gains of those.
LAYOUTS_DIFFER = 0.14
BASELINE = "1f1b"  # the schedule that gains are over
PLAIN = ("", "1f1b", "interleaved", "gpipe")  # simple schedules, the simplest first
SIZES = ("tp", "cp", "ep", "pp", "vp")
TILE_SIDE = 128  # least rows or columns of a product that a multiprocessor computes at once
# fields in which two plans of one layout agree; their schedules may differ
LAYOUT = ("tp", "cp", "ep", "pp", "dp", "mbs", "recompute", "zero", "offload")


@dataclass(frozen=True)
class Corrections:
    """Corrections of a plan by measured runs."""

    # parts of the setting without a measured run: the GPU, the software, the kind of model
    unseen_parts: tuple[str, ...] = ()
    anchors: tuple[str, ...] = ()  # names of the user's runs
    factor: float = 1.0  # the factor of all plans' step times
    lines: tuple[str, ...] = ()  # the corrections as sentences
    ahead: float = 0.0  # share by which the fastest plan is faster than the best, a simpler one


def correct_plans(task: Task, version: Version, found: Findings, runs: Nearby) -> Corrections:
    """Correct the steps of all plans by measured runs, choose the best plan, and add ranges.

    All plans have one factor, that of the fastest, so their order stays as modelled. A factor for
    each plan ranked pairs of layouts worse than no correction.
    """
    from ppsim.workload.model.model import COMPRESSED
    from ppsim.workload.plans.nearby import unseen_parts
    from ppsim.workload.plans.search import best_of, order_of

    first = setting_of_row(task, version, min(found.simulated, key=order_of))
    correction = runs.correction_at(first)
    found.simulated = [_scaled_row(row, correction.factor) for row in found.simulated]
    if found.near_miss:
        found.near_miss = _scaled_row(found.near_miss, correction.factor)
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
    lines = [f"no published run has {part}\n" for part in lacking]
    if profiled:
        lines.append(
            "measured times replace the efficiency curve, so runs that the curve predicted correct "
            "nothing\n"
        )
    lines += describe_anchors(runs, first)
    return Corrections(
        lacking,
        tuple(run.name for run in runs.anchors),
        correction.factor,
        tuple(lines),
        choice.ahead,
    )


@dataclass(frozen=True)
class Choice:
    """The best plan, and the plans that tie with it.

    Attributes:
        best: the row of the best plan.
        ahead: the step saved by the fastest plan, as a share of the best plan's step.
    """

    best: Row
    ahead: float


def choose(rows: list[Row], layers: int) -> Choice:
    """Return the simplest plan within 2 % of the fastest; of equally simple plans the faster."""
    from ppsim.workload.plans.search import order_of

    fastest = min(row["step_s"] for row in rows)
    simple = [row for row in rows if math.log(row["step_s"] / fastest) <= CLOSE]
    best = min(simple, key=lambda row: (_complexity(row, layers), order_of(row)))
    return Choice(best, 1 - fastest / best["step_s"])


def slower_range(row: Row, best: Row) -> tuple[float, float]:
    """Return the range of the share by which a plan is slower than the best: four of five measured
    cases lie in it.
    """
    if row["key"] == best["key"]:
        return 0.0, 0.0
    from ppsim.workload.plans.space import cuts_sequences

    apart = math.log(row["step_s"] / best["step_s"])
    same = all(row[name] == best[name] for name in LAYOUT)
    is_checked = same and not any(cuts_sequences(each["schedule"]) for each in (row, best))
    far = HALF if is_checked else LAYOUTS_DIFFER
    return math.expm1(apart - far), math.expm1(apart + far)


def is_tied(row: Row, best: Row) -> bool:
    """Return True if a plan ties with the best: in four cases of five it may be as fast."""
    return row["key"] != best["key"] and slower_range(row, best)[0] <= 0


def certainty_text(rows: Sequence[Row]) -> str:
    """Return a sentence on the plans that the first one beats, and on those that tie with it;
    empty for one plan.
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
    text = (
        f"{'; '.join(said)}. A plan is beaten if its predicted step is {schedules} longer and only "
        f"its schedule differs, or else {layouts} longer: four of five measured cases then agree"
    )
    from ppsim.workload.plans.space import cuts_sequences

    if any(cuts_sequences(row["schedule"]) for row in rows):
        text += "; gains of schedules that cut sequences are unchecked"
    return text


def _plans(places: Sequence[int]) -> str:
    """Return the numbers of plans as text: plan 2, or plans 2, 4-7 and 9."""
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
    """Return the modelled gain of a plan's schedule over 1f1b in the same layout.

    None without a pipeline, for 1f1b, and if 1f1b cannot run the layout.
    """
    if row["pp"] == 1:
        return None
    from ppsim.workload.plans.space import cuts_sequences, layout_layers, read_key

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
    is_sliced = cuts_sequences(row["schedule"])
    return gain_of(BASELINE, seconds, row["modelled_step_s"], is_sliced=is_sliced)


def uneven_stages(row: Row, layers: int, framework: str) -> str:
    """Return a remark that a plan's layers do not divide over its stages; empty if they do.

    For Megatron-LM (``framework``) it names the flag that such a plan needs.
    """
    stages = row["pp"] * row["vp"]
    if row["layout"] != "even" or layers % stages == 0:
        return ""
    chunks = f" x {row['vp']} chunks" if row["vp"] > 1 else ""
    needs = "; Megatron-LM needs --pipeline-model-parallel-layout for that"
    needs = needs if framework == "megatron" else ""
    return (
        f"plan 1: {layers} layers do not divide over {row['pp']} devices{chunks}, so its {stages} "
        "stages have different numbers of layers" + needs
    )


def uneven_sides(row: Row, model: Model) -> str:
    """Return a remark on sides of matrix products that are not multiples of a tile; empty if all
    are.

    Nine published runs of three such models took about 20 % longer than predicted: a tile that is
    partly empty costs more than its empty part.
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
    """Return the setting of a plan, by which similar measured runs are found."""
    from ppsim.workload.plans.nearby import setting_of
    from ppsim.workload.plans.space import read_key

    parallel = read_key(row["key"]).parallel(task.axes.base)
    return setting_of(
        task.model, task.machine.gpu, parallel, version.software.name, version.release
    )


def _scaled_row(row: Row, factor: float) -> Row:
    """Return a plan with its step multiplied by a factor, and the terms and rates that follow."""
    steps = {"modelled_step_s": row["step_s"], "step_s": row["step_s"] * factor}
    terms = {name: seconds * factor for name, seconds in row["terms"].items()}
    rates = {name: row[name] / factor for name in ("tokens_per_s", "mfu", "tflops_per_gpu")}
    return row | steps | {"terms": terms} | rates


def _complexity(row: Row, layers: int) -> tuple[int, int]:
    """Return the rank of a plan's schedule by simplicity, and the number of choices that are not
    the plain ones.

    ``layers`` is of the model: if they do not divide over the stages, their split is such a choice.
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


def describe_anchors(runs: Nearby, planned: Setting | None = None) -> Iterator[str]:
    """Yield a sentence for each software, GPU and kind of model of the user's runs: the factor by
    which they correct the plans of a search, and their spread.

    ``planned`` is the setting of the fastest plan; without it, the factor is for other jobs on the
    runs' GPU.
    """
    groups: dict[tuple[str, str, bool], list[Measured]] = {}
    for run in runs.anchors:
        of = run.setting
        groups.setdefault((of.software, of.gpu, of.experts), []).append(run)
    several_kinds = len({experts for _, _, experts in groups}) > 1
    for (software, gpu, experts), group in groups.items():
        setting = planned or replace(group[0].setting, job="")
        kind = f" ({'mixtures of experts' if experts else 'dense models'})" * several_kinds
        line = f"{count_text(len(group), 'anchor')} of {software} on {gpu}{kind}: "
        line += _correction_text(runs, group, setting)
        if len(group) > 1:
            errors = [run.error for run in group]
            low = format_change(math.exp(min(errors)) - 1)
            high = format_change(math.exp(max(errors)) - 1)
            line += f"; their steps are {low} to {high} off the predicted ones"
        yield line + "\n"


def _correction_text(runs: Nearby, group: Sequence[Measured], setting: Setting) -> str:
    """Return the factor by which a group of the user's runs corrects a setting, as text."""
    factor = f"step x {runs.correction_at(setting).factor:.3g}"
    if twins := sum(run.setting.is_twin_of(setting) for run in group):
        return f"{factor}, from {count_text(twins, 'run')} with the fastest plan's sizes"
    if not any(run.setting.corrects(setting) for run in group):
        return "no correction, as GPU, software or kind of model differ"
    if any(run.setting.is_twin_of(setting) for run in runs.anchors):
        return "no correction, as other runs have the fastest plan's sizes"
    return factor
