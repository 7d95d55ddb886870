"""Plan how to train a model on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ppsim.cli._options import OutputOptions, json_option, make_command, output_options, quiet_option
from ppsim.cli._plan_options import SpaceOptions, space_options
from ppsim.cli._tasks import TaskOptions, open_tasks, task_options
from ppsim.errors import InputError

if TYPE_CHECKING:
    from ppsim.planning.task import Found, Task

FEW = 64  # candidates of a round that new processes would not run sooner


@make_command("plan")
@click.option("--model", metavar="NAME|FILE", help="The model: of the library (ppsim model), TOML, or config.json.")
@click.option("--cluster", metavar="NAME|FILE", help="The cluster: of the library, or a cluster file that names a gpu.")
@click.option("--gpus", type=click.IntRange(1, 1 << 20), help="GPUs in all.")
@click.option("--gbs", type=click.IntRange(1, 1 << 24), help="Sequences in a step (global batch size).")
@space_options
@click.option(
    "--top", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many plans to print, no near copies."
)
@click.option("--front", is_flag=True, help="Also the plans that need less memory: the front of time against memory.")
@click.option(
    "--flags",
    type=click.Choice(["megatron", "torchtitan"]),
    help="Plan for this framework's schedules; print the best plan as launch flags, or as TOML.",
)
@click.option("--ranks", is_flag=True, help="Print where the best plan's ranks lie, and the links that they use.")
@click.option("--against", type=click.Path(), metavar="TABLE", help="Predict published runs of a JSON table instead.")
@click.option("--improve", is_flag=True, help="With --against: plan each run anew, and say what that would change.")
@task_options
@output_options
@json_option
@quiet_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    model: str | None,
    cluster: str | None,
    gpus: int | None,
    gbs: int | None,
    space: SpaceOptions,
    top: int,
    front: bool,
    flags: str | None,
    ranks: bool,
    against: str | None,
    improve: bool,
    tasks: TaskOptions,
    output: OutputOptions,
    as_json: bool,
    quiet: bool,
) -> None:
    """Find the fastest ways to train a model on so many GPUs that fit their memory, and say why the others lose.

    Sizes of tensor, context, expert, pipeline and data parallelism, chunks, microbatch size, schedule, recompute and
    layout are free unless an option fixes them. -o writes the plans (csv, json, parquet) or draws: the layout of ranks
    (mmd, svg, png, pdf), or with --front time against memory.

    \b
      ppsim plan --model llama3-70b --cluster dgx-h100 --gpus 256 --gbs 1024
      ppsim plan --model gpt3-175b --cluster dgx-a100 --gpus 1024 --gbs 1536 --schedules 1f1b --flags megatron
      ppsim plan --against measured_runs.json
    """
    from ppsim.cli import _plan

    if against is not None:
        _plan.compare(against, improve, as_json, quiet, tasks)
        return
    missing = [f"--{name}" for name in ("model", "cluster", "gpus", "gbs") if ctx.params[name] is None]
    if missing:
        hint = "--model llama3-70b --cluster dgx-h100 --gpus 256 --gbs 1024; names: ppsim model"
        raise InputError(f"a plan needs {', '.join(missing)}", hint)
    assert model is not None
    assert cluster is not None
    assert gpus is not None
    assert gbs is not None
    targets = _plan.check_targets(output, front)
    task = _plan.make_task(model, cluster, gpus, gbs, space, top, front, flags)
    if not as_json and not quiet:
        _plan.note_length(model, task, space)
    found = _search(task, tasks, show=not as_json and not quiet)
    if not found.rows:
        _plan.refuse(task, found)
    inputs = _plan.inputs_of_plan(ctx)
    if as_json:
        from ppsim.cli import _print as show

        show.echo_json(_plan.plan_object(task, found, inputs))
    elif "-" not in output.output:
        _plan.echo_plans(task, found, quiet=quiet)
        if ranks:
            _plan.echo_ranks(task, found)
        if flags:
            _plan.echo_flags(task, found, flags)
    _plan.write(task, found, inputs, output, targets)


def _search(task: Task, tasks: TaskOptions, *, show: bool) -> Found:
    """Search on all cores or on Dask; Ctrl-C ends the search and keeps what it has found."""
    from ppsim.base.workers import count_cores
    from ppsim.cli._progress import progress_bar
    from ppsim.planning.search import search
    from ppsim.planning.task import Found

    found = Found()

    def run(function: Any, candidates: Any) -> Any:
        place = {candidate.key: index for index, candidate in enumerate(candidates)}
        here = place if len(place) < FEW and not tasks.dask else ()
        for key, row in run_keyed(function, {candidate.key: candidate for candidate in candidates}, here):
            yield place[key], row

    try:
        with progress_bar(show) as report, open_tasks(tasks, repr(task), count_cores()) as run_keyed:
            search(task, run, found, report)
    except KeyboardInterrupt:
        if not found.rows:
            raise
        click.echo("Interrupted: the best plans found so far", err=True)
    return found
