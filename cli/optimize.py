"""Find the best schedule for given costs and memory, with proof."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import click

from ppsim.cli._build import add_memory
from ppsim.cli._optimize_text import print_front, print_outcome
from ppsim.cli._options import (
    CostOptions,
    FigureOptions,
    ShapeOptions,
    cost_options,
    figure_options,
    group_options,
    json_option,
    make_command,
    quiet_option,
)
from ppsim.cli._problems import PLACEMENTS, SearchOptions, check_times, find_known, make_problems
from ppsim.cli._tasks import TaskOptions, open_results, say_kept, task_options
from ppsim.cli._types import COUNT
from ppsim.cli._write import find_targets, inputs_of, make_documents, write_all, write_tradeoff
from ppsim.errors import PpsimError

if TYPE_CHECKING:
    from ppsim.base.results import Results
    from ppsim.base.workers import Workers
    from ppsim.core.schedule import Schedule
    from ppsim.core.timeline import Timeline
    from ppsim.files.document import Document
    from ppsim.search.optimize import Known, Outcome
    from ppsim.search.problem import Problem, Solution

ALONE = "search"  # the key of a search that is no part of a front
LEAST_S = 0.5  # seconds that the search has whatever the list took

search_options = group_options(
    "search",
    SearchOptions,
    click.option(
        "--placement",
        type=click.Choice([*PLACEMENTS, "auto"]),
        default="linear",
        show_default=True,
        help="Which device holds which stage; auto tries all.",
    ),
    click.option(
        "--cap",
        type=click.FloatRange(min=0, min_open=True),
        help="Activations that a device may hold, of one stage each; with --placement auto of its 1/P share, with "
        "--layout of one layer.",
    ),
    click.option(
        "--after-i",
        type=click.FloatRange(0, 1),
        default=1.0,
        show_default=True,
        help="Share of an activation that is still held between I and W.",
    ),
    click.option(
        "--objective",
        type=click.Choice(["span", "makespan"]),
        default="span",
        show_default=True,
        help="What is to be least: the longest time from a device's first start to its last end, or the makespan.",
    ),
)


@make_command("optimize")
@click.option("--devices", "--pp", type=COUNT, help="Pipeline devices, P.")
@click.option("--chunks", "--vpp", type=COUNT, help="Stages per device, V (2 for v and loop).")
@click.option("--mb", "-m", "--microbatches", "microbatches", type=COUNT, help="Microbatches, M.")
@search_options
@click.option("--front", is_flag=True, help="Find the best for each cap: time against memory; -o draws it.")
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="Seconds; the best found by then is the answer. Ends earlier with a proof. The first run on a machine "
    "compiles, which takes up to 20 s of them.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of the random numbers. The same seed and number of cores give the same best where not the time ends it.",
)
@task_options
@cost_options
@figure_options
@json_option
@quiet_option
@click.option("--gantt/--no-gantt", default=True, help="Draw the chart in the terminal (on).")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    devices: int | None,
    chunks: int | None,
    microbatches: int | None,
    search: SearchOptions,
    front: bool,
    time_limit: float,
    seed: int,
    tasks: TaskOptions,
    costs: CostOptions,
    output: FigureOptions,
    as_json: bool,
    quiet: bool,
    gantt: bool,
) -> None:
    """Find the best schedule for given costs and memory, and how far from the best possible it can be.

    Backwards run as I and W. Starts from every schedule of the list, searches, and proves small problems with OR-tools
    (extra optimize). The bound is a time that no schedule beats: optimal means that it is attained. Exits with 1 where
    no schedule fits the cap, and says which cap would do. Ctrl-C ends the search and keeps the best; with
    --results the same command goes on from it.

    \b
      ppsim optimize --devices 4 --mb 8 --cap 4 -o best.csv -o best.svg
      ppsim optimize --devices 4 --mb 8 --placement auto --tf 10 --ti 11 --tw 8 --comm 1 --front
      ppsim optimize --devices 8 --mb 32 --front --time-limit 3600 --results front.csv
    """
    from ppsim.base.deadline import end_by
    from ppsim.search.improve import prepare_walks
    from ppsim.search.kept import describe_problem
    from ppsim.search.optimize import find_front

    begin = time.monotonic()
    ctx.with_resource(end_by(begin + time_limit))
    _find_targets(output, front)
    problems = make_problems(ShapeOptions(None, devices, chunks, microbatches), costs, search)
    _check_feasible(problems, search)
    prepare_walks(problems[0])
    inputs = inputs_of(ctx, problems[0].costs)
    kept_for = [[describe_problem(problem) for problem in problems], seed, time_limit]
    with open_results(tasks, kept_for) as results, ExitStack() as stack:
        known = [find_known(problem, costs, begin + time_limit) for problem in problems]
        check_times(problems, known, costs)
        # What generating the list took counts too.
        time_limit = max(LEAST_S, time_limit - (time.monotonic() - begin))
        workers = cache(lambda: stack.enter_context(_open(tasks.dask)))  # what the file has needs none
        optimize = partial(_optimize, seed=seed, show=not as_json and not quiet, workers=workers)
        run = partial(_search, results, optimize)
        if front:
            rows = find_front(problems, known, _shares(problems, search), run, time_limit)
        else:
            rows = [(0.0, run(ALONE, problems, known, (), time_limit))]
        if any(found.interrupted for _, found in rows):
            say_kept(results)
    if front:
        _show_front(rows, known, inputs, output, as_json, quiet)
    else:
        _show_best(rows[0][1], costs, inputs, output, as_json, quiet, gantt)


def _show_best(
    found: Outcome,
    costs: CostOptions,
    inputs: dict[str, Any],
    output: FigureOptions,
    as_json: bool,
    quiet: bool,
    gantt: bool,
) -> None:
    """Print the best schedule, and write it."""
    timeline = _time(found)
    if as_json:
        from ppsim.cli._print import echo_json

        echo_json({"schema": "ppsim.optimize/1", "inputs": inputs, **_object(found)})
    elif "-" not in output.output:
        print_outcome(found, timeline, quiet, gantt)

    def complete(document: Document, suffix: str) -> Document:
        from ppsim.files.document import abilities_of

        if document.style == "paper" or not abilities_of(suffix).memory:
            return document
        return add_memory(document, [found.problem.costs], costs, asked=False)

    written = make_documents([timeline], ["optimized"], inputs, output)
    write_all([(complete(document, suffix), target, suffix) for document, target, suffix in written])


def _open(dask: str | None) -> AbstractContextManager[Workers | None]:
    """Connect to the workers of a Dask cluster, if one is asked for."""
    from ppsim.base.workers import open_workers

    return open_workers(dask) if dask else nullcontext()


def _search(
    results: Results,
    optimize: Callable[[Sequence[Problem], Sequence[Sequence[Known]], Sequence[Schedule], float], Outcome],
    key: str,
    problems: Sequence[Problem],
    known: Sequence[Sequence[Known]],
    seeds: Sequence[Schedule],
    time_limit: float,
) -> Outcome:
    """Take a search's outcome from the results, or search and keep it.

    Of a single search Ctrl-C keeps the best, and the next run starts from it. A cap of a front is searched again, so
    that the front is the same as without Ctrl-C.
    """
    from ppsim.search.kept import outcome_of, row_of

    kept = outcome_of(results.rows[key], problems, known) if key in results.rows else None
    if kept and not kept.interrupted:
        return kept
    found = optimize(problems, known, [*seeds, kept.solution.schedule] if kept else seeds, time_limit)
    if key == ALONE or not found.interrupted:
        results.add(key, row_of(found))
    return found


def _find_targets(output: FigureOptions, front: bool) -> None:
    """Refuse files that cannot be written before anything is searched."""
    from ppsim.files.tradeoff import check_suffix

    for _, suffix in find_targets(output):
        if front:
            check_suffix(suffix)


def _check_feasible(problems: Sequence[Problem], search: SearchOptions) -> None:
    """Refuse a cap below what any schedule needs.

    Raises:
        PpsimError: on every placement; with the least cap that works.
    """
    if all(not problem.is_feasible for problem in problems):
        least = min(
            float(p.least_caps.max()) / share for p, share in zip(problems, _shares(problems, search), strict=True)
        )
        stages = int(problems[0].least_caps.max())
        why = "one microbatch goes forward through all stages before its first backward" if stages > 1 else "it runs F"
        of_layers = " activations of one layer" if problems[0].layers else ""
        raise PpsimError(
            f"no schedule fits --cap {search.cap:g}: {why}, so a device holds {least:g}{of_layers} at least",
            f"--cap {least:g}, the least that works",
        )


def _shares(problems: Sequence[Problem], search: SearchOptions) -> list[int]:
    """The activations that one unit of a cap stands for on each placement."""
    by_share = search.placement == "auto" and problems[0].layers is None
    return [problem.placement.n_chunks if by_share else 1 for problem in problems]


def _optimize(
    problems: Sequence[Problem],
    known: Sequence[Sequence[Known]],
    seeds: Sequence[Schedule],
    time_limit: float,
    *,
    seed: int,
    show: bool,
    workers: Callable[[], Workers | None],
) -> Outcome:
    """Search the placements that are feasible, with the best and the bound so far on a bar."""
    from ppsim.base.numbers import format_number
    from ppsim.cli._progress import progress_bar
    from ppsim.search.optimize import optimize

    ready = workers()
    begin = time.monotonic()
    with progress_bar(show) as bar:

        def report(best: Solution, bound: float) -> None:
            value = best.score(problems[0].objective)[0]
            share = min(1.0, (time.monotonic() - begin) / time_limit)
            bar(share, f"best {format_number(value)}, bound {format_number(bound)}")

        pairs = [(p, k) for p, k in zip(problems, known, strict=True) if p.is_feasible]
        return optimize(
            [p for p, _ in pairs],
            [k for _, k in pairs],
            seeds=seeds,
            seed=seed,
            time_limit=time_limit,
            report=report,
            workers=ready,
        )


def _time(found: Outcome) -> Timeline:
    from ppsim.simulation.longest_path import simulate

    return simulate(found.solution.schedule, found.problem.costs)


def _object(found: Outcome) -> dict[str, Any]:
    """The numbers of an outcome in JSON."""
    problem, solution = found.problem, found.solution
    best = found.best_known
    return {
        "schedule": solution.schedule.name,
        "placement": problem.placement.name,
        "devices": problem.n_devices,
        "stages": problem.n_stages,
        "chunks": problem.placement.n_chunks,
        "microbatches": problem.microbatches,
        "unit": problem.costs.unit,
        "objective": problem.objective,
        "makespan": solution.makespan,
        "span": solution.span,
        "bound": found.bound,
        "gap": found.gap,
        "status": found.status,
        "peak_activations": solution.peak_activations,
        "activations_of": problem.holder,
        "cap": None if problem.cap is None else problem.caps,
        "after_i": problem.after_i,
        "origin": solution.origin,
        "interrupted": found.interrupted,
        "best_known": best.name if best else None,
        "known": [
            {"name": k.name, "makespan": k.makespan, "span": k.span, "peak": k.peak_activations, "fits": k.fits}
            for k in found.known
        ],
    }


def _show_front(
    rows: Sequence[tuple[float, Outcome]],
    known: Sequence[Sequence[Known]],
    inputs: dict[str, Any],
    output: FigureOptions,
    as_json: bool,
    quiet: bool,
) -> None:
    """Print and draw the best of each cap, and the schedules of the list."""
    from ppsim.analysis.tradeoff import Point
    from ppsim.cli import _print as show

    problem = rows[0][1].problem
    if as_json:
        front = [{"cap": cap, **{k: v for k, v in _object(f).items() if k not in ("cap", "known")}} for cap, f in rows]
        show.echo_json({"schema": "ppsim.optimize-front/1", "inputs": inputs, "front": front})
    elif "-" not in output.output:
        print_front(rows, quiet)
    if not output.output:
        return
    # Each placement's stages are other shares of the model, layers are the same.
    share = (lambda chunks: chunks) if problem.layers is None else (lambda chunks: 1)
    points = [
        Point(f"cap {cap:g}", f.value, float(f.solution.peak_activations.max()) / share(f.problem.placement.n_chunks))
        for cap, f in rows
    ]
    for entry in (entry for entries in known for entry in entries):
        value = entry.span if problem.objective == "span" else entry.makespan
        points.append(Point(entry.name, value, entry.peak_activations / share(entry.schedule.n_chunks)))
    whose = "a device's 1/P share" if problem.layers is None else "one layer"
    write_tradeoff(
        points, f"{problem.objective} ({problem.costs.unit})", inputs, output, memory=f"peak activations (of {whose})"
    )
