"""The best split of a model's layers over the stages of a schedule."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ppsim.base.signals import first_signal
from ppsim.cli._build import build_costs, build_schedule
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
from ppsim.cli._partition_problem import (
    Asked,
    even_layout,
    hold,
    least_cap,
    make_layout,
    make_problem,
    plan,
    price,
    search_split,
)
from ppsim.cli._partition_text import Answer, busy_of, print_answer, size_of
from ppsim.cli._write import command_line, inputs_of

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule
    from ppsim.layout.layout import Layout
    from ppsim.search.partition import Partition
    from ppsim.search.split_search import Report, Split
    from ppsim.search.splits import SplitProblem

SEARCH_ONLY = ("--num-layers", "--mtp-num-layers", "--min-layers", "--model", "--cap", "--time-limit")


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

    layers, again = _count_layers(costs, num_layers, model), _read_share(model)
    asked = Asked(spec, shape, costs, layers, mtp, least, model, cap, again, {})
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
        print_answer(answer, _line_again(ctx, answer.layout, model))


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


def _read_share(model: str | None) -> float:
    """Read what share of a forward the backward of a model runs again."""
    if not model:
        return 0.0
    from ppsim.memory.transformer import read_model, recompute_share

    return recompute_share(read_model(model))


def _solve(asked: Asked, limit: float, show_bar: bool) -> Answer:
    """Search, with the queues planned for each split where a family's order depends on the costs."""
    from ppsim.cli._progress import progress_bar
    from ppsim.errors import PpsimError
    from ppsim.schedules import family_of
    from ppsim.simulation.longest_path import simulate

    family = family_of(asked.spec)
    schedule = build_schedule(asked.spec, asked.shape, CostOptions(recompute=asked.costs.recompute))
    _refuse_too_few(asked, schedule)
    begin, even, planned = time.monotonic(), even_layout(asked, schedule), bool(family and family.uses_costs)
    with progress_bar(show_bar) as bar:

        def report(makespan: float, bound: float, timed: int) -> None:
            bar(min((time.monotonic() - begin) / limit, 1.0), f"best {makespan:.6g}, bound {bound:.6g}, {timed} timed")

        problem = make_problem(asked, schedule)
        found = (_search_planned if planned else search_split)(asked, problem, even, limit, report)
    if found is None:
        late = time.monotonic() - begin >= limit
        raise PpsimError(
            f"no split found fits --cap {asked.cap}" + (" in the time given" if late else ""),
            least_cap(asked, problem, limit, planned=planned),
        )
    layout = make_layout(asked, schedule, list(found.best[0]))
    final, first = (plan(asked, layout), plan(asked, even)) if planned else (schedule, schedule)
    timeline, of_even = (simulate(each, price(asked, each, x)) for each, x in ((final, layout), (first, even)))
    return Answer(found, layout, timeline, problem, of_even.makespan, hold(asked, final, layout))


def _refuse_too_few(asked: Asked, schedule: Schedule) -> None:
    from ppsim.errors import InputError

    if asked.layers < asked.least * schedule.n_stages:
        raise InputError(
            f"{asked.layers} layers are too few for {schedule.n_stages} stages with {asked.least} or more each",
            f"--min-layers {asked.layers // schedule.n_stages}, or fewer stages",
        )


def _search_planned(
    asked: Asked, problem: SplitProblem, even: Layout, limit: float, report: Report
) -> Partition | None:
    """Search the best split where each has queues of its own."""
    import math

    from ppsim.search.partition import partition
    from ppsim.search.partition_planned import partition_planned
    from ppsim.simulation.longest_path import simulate

    starts = [even.layers]
    if one_plan := partition(make_problem(asked, plan(asked, even)), time_limit=limit / 10):
        starts.append(one_plan.best[0])
    if first_signal():  # which has ended that search, and so ends this one
        limit = 0.0

    def time_split(split: Split) -> float:
        layout = make_layout(asked, problem.schedule, list(split))
        schedule = plan(asked, layout)
        if asked.cap and hold(asked, schedule, layout).peak.max() > problem.cap:
            return math.inf
        return simulate(schedule, price(asked, schedule, layout)).makespan

    def price_split(split: Split) -> Costs:
        return price(asked, problem.schedule, make_layout(asked, problem.schedule, list(split)))

    return partition_planned(problem, time_split, price_split, starts, time_limit=limit, report=report)


def _line_again(ctx: click.Context, layout: Layout, model: str | None) -> str:
    """Write the command that runs the split found, or with a model says what it holds: this one as typed otherwise."""
    import shlex

    words, result = shlex.split(command_line(ctx)), list[str]()
    at = 0
    while at < len(words):
        if words[at] in SEARCH_ONLY and not (model and words[at] in ("--model", "--cap")):
            at += 2
            continue
        result.append(words[at])
        at += 1
    result[1:2] = ["memory" if model else "run"]
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
