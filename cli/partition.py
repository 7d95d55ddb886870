"""The best split of a model's layers over the stages of a schedule."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ppsim.cli._build import build_costs, build_memory, build_schedule, layer_times, parse_cap
from ppsim.cli._options import (
    CostOptions,
    ShapeOptions,
    cost_options,
    json_option,
    make_command,
    one_schedule,
    quiet_option,
    shape_options,
)
from ppsim.cli._partition_text import Answer, busy_of, print_answer, size_of
from ppsim.cli._write import command_line, inputs_of

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.curve import Curve
    from ppsim.core.schedule import Schedule
    from ppsim.layout.layout import Layout
    from ppsim.search.partition import Partition
    from ppsim.search.split_search import Report, Split
    from ppsim.search.splits import SplitProblem

SEARCH_ONLY = ("--num-layers", "--mtp-num-layers", "--min-layers", "--model", "--cap", "--time-limit")


class Asked(NamedTuple):
    """What a call asks to split: the schedule's spelling and shape, costs, layers, and the memory of devices.

    ``plans`` keeps the schedules that were planned for layouts.
    """

    spec: str
    shape: ShapeOptions
    costs: CostOptions
    layers: int
    mtp: int
    least: int
    model: str | None
    cap: str | None
    plans: dict[str, Schedule]


@make_command("partition")
@one_schedule
@shape_options
@cost_options
@click.option("--num-layers", type=click.IntRange(min=1), help="Transformer layers, where --t-layer is one time.")
@click.option("--mtp-num-layers", "mtp", type=click.IntRange(min=0), default=0, help="MTP layers, on the last stage.")
@click.option(
    "--min-layers",
    "least",
    type=click.IntRange(min=0),
    default=0,
    help="Fewest layers of a stage (0: a stage may hold the embedding, the head or nothing alone).",
)
@click.option("--model", type=click.Path(), help="Bytes for --cap from a model description (TOML), as ppsim memory.")
@click.option("--cap", metavar="SIZE", help="The most a device may hold: activations of one layer, or bytes: 80GiB.")
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds to search; Ctrl-C ends it earlier and keeps the best.",
)
@json_option
@quiet_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    spec: str,
    shape: ShapeOptions,
    costs: CostOptions,
    num_layers: int | None,
    mtp: int,
    least: int,
    model: str | None,
    cap: str | None,
    time_limit: float,
    as_json: bool,
    quiet: bool,
) -> None:
    """Find the split of layers over stages with the least makespan, over all contiguous splits.

    The embedding is on the first stage, the head on the last. A split is "optimal" where no other is faster, else
    "feasible", with the least makespan that others may have.

    \b
      ppsim partition 1f1b --devices 4 --mb 16 --num-layers 30 --t-embedding 0.2 --t-head 2.5
      ppsim partition -s interleaved --devices 4 --chunks 2 --mb 16 --t-layer 1,1,1,1,1.5,1.5,1.5,1.5,1,1,1,1 --comm 0.1
    """
    from ppsim.cli import _print as show

    layers = _count_layers(costs, num_layers, model)
    asked = Asked(spec, shape, costs, layers, mtp, least, model, cap, {})
    answer = _solve(asked, time_limit, show_bar=not as_json and not quiet)
    if as_json:
        prices = build_costs(answer.timeline.schedule, replace(costs, layout=str(answer.layout)))
        show.echo_json(_object(answer, inputs_of(ctx, prices)))
    elif quiet:
        split = ",".join(map(str, answer.layout.layers))
        click.echo(
            f"{size_of(answer)}  split {split}  makespan {answer.timeline.makespan:.15g} {answer.timeline.unit}  "
            f"{answer.found.status}  {answer.layout}"
        )
    else:
        print_answer(answer, _run_line(ctx, answer.layout))


def _count_layers(costs: CostOptions, num_layers: int | None, model: str | None) -> int:
    """Count the layers to split, as --t-layer, --num-layers or the model says.

    Raises:
        InputError: none says, or two disagree.
    """
    from ppsim.errors import InputError
    from ppsim.search.splits import MOST_LAYERS

    said = {}
    if isinstance(costs.t_layer, list):
        said["--t-layer"] = len(costs.t_layer)
    if num_layers is not None:
        said["--num-layers"] = num_layers
    if model:
        import numpy as np

        from ppsim.memory.transformer import read_model

        said["--model"] = int(np.sum(read_model(model).layers))
    if not said:
        raise InputError("the number of layers is missing", "give --num-layers, or --t-layer with a time for each")
    if len(set(said.values())) > 1:
        counts = ", ".join(f"{name} says {n}" for name, n in said.items())
        raise InputError(f"the number of layers is not clear: {counts}", "the same number in each")
    layers = next(iter(said.values()))
    if layers > MOST_LAYERS:
        raise InputError(f"{layers:,} layers are more than any model has", f"{MOST_LAYERS:,} at most")
    return layers


def _solve(asked: Asked, limit: float, show_bar: bool) -> Answer:
    """Search, with the queues planned for each split where a family's order depends on the costs."""
    from ppsim.cli._progress import progress_bar
    from ppsim.errors import PpsimError
    from ppsim.schedules import family_of
    from ppsim.simulation.longest_path import simulate

    family = family_of(asked.spec)
    schedule = build_schedule(asked.spec, asked.shape, CostOptions(recompute=asked.costs.recompute))
    _refuse_too_few(asked, schedule)
    begin, even = time.monotonic(), _even_layout(asked, schedule)
    find = _search_planned if family and family.uses_costs else _search
    with progress_bar(show_bar) as bar:

        def report(makespan: float, bound: float, timed: int) -> None:
            bar(min((time.monotonic() - begin) / limit, 1.0), f"best {makespan:.6g}, bound {bound:.6g}, {timed} timed")

        problem, cap = _problem(asked, schedule)
        found = find(asked, problem, cap, even, limit, report)
    if found is None:
        raise PpsimError(f"no split found fits --cap {asked.cap}", _least_cap(problem, cap))
    layout = _layout(asked, schedule, list(found.best[0]))
    final, first = (schedule, schedule) if find is _search else (_build(asked, layout), _build(asked, even))
    timeline, of_even = (simulate(each, _costs(asked, each, x)) for each, x in ((final, layout), (first, even)))
    return Answer(found, layout, timeline, problem, of_even.makespan, _held(asked, final, layout))


def _build(asked: Asked, layout: Layout) -> Schedule:
    """Build the schedule of a family that plans with the costs, for a layout's."""
    text = str(layout)
    if text not in asked.plans:
        asked.plans[text] = build_schedule(asked.spec, asked.shape, replace(asked.costs, layout=text))
    return asked.plans[text]


def _refuse_too_few(asked: Asked, schedule: Schedule) -> None:
    from ppsim.errors import InputError

    if asked.layers < asked.least * schedule.n_stages:
        raise InputError(
            f"{asked.layers} layers are too few for {schedule.n_stages} stages with {asked.least} or more each",
            f"--min-layers {asked.layers // schedule.n_stages}, or fewer stages",
        )


def _even_layout(asked: Asked, schedule: Schedule) -> Layout:
    """Split layers as evenly as their number allows, more on earlier stages."""
    each, more = divmod(asked.layers, schedule.n_stages)
    return _layout(asked, schedule, [each + (stage < more) for stage in range(schedule.n_stages)])


def _layout(asked: Asked, schedule: Schedule, layers: list[int]) -> Layout:
    from ppsim.layout.layout import build_layout

    devices = schedule.n_devices if schedule.n_stages % schedule.n_devices == 0 else schedule.n_stages
    return build_layout(layers, devices, asked.mtp)


def _search(
    asked: Asked, problem: SplitProblem, cap: int | None, even: Layout, limit: float, report: Report
) -> Partition | None:
    """Search the best split for the queues of the problem."""
    from ppsim.search.partition import partition

    schedule = problem.schedule

    def accepts(split: Split) -> bool:
        return cap is None or _held(asked, schedule, _layout(asked, schedule, list(split))).peak.max() <= cap

    return partition(problem, accepts=accepts, time_limit=limit, report=report)


def _search_planned(
    asked: Asked, problem: SplitProblem, cap: int | None, even: Layout, limit: float, report: Report
) -> Partition | None:
    """Search the best split where each has queues of its own."""
    import math

    from ppsim.search.partition import partition
    from ppsim.search.partition_planned import partition_planned
    from ppsim.simulation.longest_path import simulate

    most, starts = problem.cap if cap is None else cap, [even.layers]
    of_even, _ = _problem(asked, _build(asked, even))
    if one_plan := partition(of_even, time_limit=limit / 10):
        starts.append(one_plan.best[0])

    def time_split(split: Split) -> float:
        layout = _layout(asked, problem.schedule, list(split))
        schedule = _build(asked, layout)
        if math.isfinite(most) and _held(asked, schedule, layout).peak.max() > most:
            return math.inf
        return simulate(schedule, _costs(asked, schedule, layout)).makespan

    def price(split: Split) -> Costs:
        return _costs(asked, problem.schedule, _layout(asked, problem.schedule, list(split)))

    return partition_planned(problem, time_split, price, starts, time_limit=limit, report=report)


def _least_cap(problem: SplitProblem, cap: int | None) -> str:
    """The least number of activations that a split fits, where all splits can be listed."""
    from ppsim.search.partition import MOST_LISTED
    from ppsim.search.splits import list_ends

    if cap is not None:
        return "a larger --cap, more devices, or recompute in the model"
    if problem.n_splits > MOST_LISTED:
        return "a larger --cap"
    ends = list_ends(problem.n_layers, problem.schedule.n_stages, problem.least)
    return f"--cap {int(problem.peaks(ends).min())}, the least that any split needs"


def _problem(asked: Asked, schedule: Schedule) -> tuple[SplitProblem, int | None]:
    """Make the problem of a split, and the cap in bytes where there is one, which is checked apart."""
    import math

    import numpy as np

    from ppsim.memory.usage import BYTES
    from ppsim.search.splits import SplitProblem

    costs, weights = asked.costs, np.ones(asked.layers)
    none = one = asked
    if not costs.profile:
        times = layer_times(costs)
        weights = times.of_layers(asked.layers).copy()
        t_mtp = times.of_mtp if asked.mtp else None
        none = asked._replace(costs=replace(costs, t_layer=0.0, t_mtp=t_mtp))
        one = asked._replace(costs=replace(costs, t_layer=1.0, t_mtp=t_mtp))
    base = _costs(none, schedule, _layout(asked, schedule, [0] * schedule.n_stages))
    more = _costs(one, schedule, _layout(asked, schedule, [1] * schedule.n_stages))
    pair = None if more.pair is None or base.pair is None else more.pair - base.pair
    rate = replace(base, time=np.maximum(more.time - base.time, 0.0), pair=pair)
    in_bytes = bool(asked.model or costs.profile)
    cap = None if asked.cap is None else parse_cap(asked.cap, BYTES if in_bytes else "")
    most = math.inf if cap is None or in_bytes else cap
    return SplitProblem(schedule, base, rate, weights, asked.least, most, asked.mtp), cap if in_bytes else None


def _costs(asked: Asked, schedule: Schedule, layout: Layout) -> Costs:
    """Make the costs of a layout, with the time that the model's recomputation takes."""
    prices = build_costs(schedule, replace(asked.costs, layout=str(layout)))
    if not asked.model:
        return prices
    from ppsim.memory.transformer import read_model, recompute_share, with_recompute

    return with_recompute(prices, recompute_share(read_model(asked.model)))


def _held(asked: Asked, schedule: Schedule, layout: Layout) -> Curve:
    """Bytes, or activations of layers, that devices hold with a layout; bytes of a profile where there is a cap."""
    from ppsim.memory.usage import curves, layer_model
    from ppsim.simulation.longest_path import simulate

    costs = replace(asked.costs, layout=str(layout))
    timeline = simulate(schedule, _costs(asked, schedule, layout))
    if not asked.model and (not costs.profile or asked.cap is None):
        return curves(timeline, layer_model(schedule, layout.content))
    return curves(timeline, build_memory(schedule, build_costs(schedule, costs), costs, asked.model)[0])


def _run_line(ctx: click.Context, layout: Layout) -> str:
    """Write the command that runs the split found: this one as typed, without what only a search takes."""
    import shlex

    words, result = shlex.split(command_line(ctx)), list[str]()
    at = 0
    while at < len(words):
        if words[at] in SEARCH_ONLY:
            at += 2
            continue
        result.append(words[at])
        at += 1
    result[1:2] = ["run"]
    return shlex.join([*result, "--layout", str(layout)])


def _object(answer: Answer, inputs: dict[str, Any]) -> dict[str, object]:
    """The answer as --json prints it."""
    from ppsim.layout.flags import flags_of

    timeline, layout, found = answer.timeline, answer.layout, answer.found
    schedule, busy = timeline.schedule, busy_of(answer)
    return {
        "schema": "ppsim.partition/1",
        "inputs": inputs,
        "schedule": schedule.name,
        "devices": schedule.n_devices,
        "stages": schedule.n_stages,
        "chunks": schedule.n_chunks,
        "microbatches": schedule.n_microbatches,
        "unit": timeline.unit,
        "layers": layout.n_layers,
        "split": layout.layers,
        "layout": str(layout),
        "flags": flags_of(layout),
        "makespan": timeline.makespan,
        "status": found.status,
        "bound": timeline.makespan if found.status == "optimal" else found.bound,
        "splits": answer.problem.n_splits,
        "timed": found.timed,
        "even_makespan": answer.even,
        "busy": busy,
        "bottleneck": busy.index(max(busy)),
        "peak": answer.held.peak.tolist(),
        "peak_unit": answer.held.unit,
        "runner_ups": [{"split": split, "makespan": makespan} for split, makespan in found.runner_ups],
    }
