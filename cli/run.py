"""Time one schedule and show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ppsim.cli._network import DETAILED, executed, network_options
from ppsim.cli._options import (
    SHAPE,
    build,
    cost_options,
    costs_of,
    documents,
    inputs_of,
    json_option,
    output_options,
    quiet_option,
    schedule_option,
    shape_options,
    targets,
    with_memory,
    write_all,
)
from ppsim.errors import InputError, UnknownSchedule

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.execution import Execution
    from ppsim.files.document import Document


@click.command("run")
@schedule_option
@shape_options
@cost_options
@output_options
@json_option
@quiet_option
@network_options
@click.option("--lowered", is_flag=True, help="Write csv with sends and receives (torch's compute_comms).")
@click.option("--gantt/--no-gantt", default=True, help="Draw the chart in the terminal (on).")
@click.option(
    "--memory/--no-memory", default=None, help="Draw what the devices hold below figures (on, except in style paper)."
)
@click.option("--steady", is_flag=True, help="Numbers only, for any --mb: extend a proved steady state, run no more.")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Time one schedule and show it.

    \b
      ppsim run --schedule 1f1b --stages 4 --mb 8
      ppsim run -s dualpipe --devices 8 --mb 20 -o fig.pdf -o report.html
    """
    from ppsim.cli import _print as show
    from ppsim.simulation.columns import shape_of
    from ppsim.simulation.longest_path import simulate
    from ppsim.simulation.metrics import measure

    targets(options)
    if options["lowered"] and not any(suffix == ".csv" for _, suffix in targets(options)):
        raise InputError("--lowered says how to write csv, and none is written", "add -o FILE.csv")
    if options["steady"] and any(options[name] for name in DETAILED):
        raise InputError("--steady knows the simple model only", "leave out --steady, or the options of messages")
    if options["steady"] and _steady(ctx, options):
        return
    schedule, costs = build(options["schedule"], options)
    if options["steady"]:
        click.echo("no steady state that repeats exactly was proved: timing every op", err=True)
    execution = executed(schedule, costs, options)
    timeline = execution.compute if execution else simulate(schedule, costs)
    inputs = inputs_of(ctx, costs)
    if options["as_json"]:
        from ppsim.files.writers.json import run_object

        show.echo_json(run_object(timeline, inputs, execution))
    elif "-" not in options["output"]:
        metrics = measure(timeline)
        if options["quiet"]:
            name = f"{schedule.name} {schedule.n_devices}x{schedule.n_microbatches}"
            click.echo(show.result_line(name, metrics, shape_of(schedule), costs.unit))
        else:
            click.echo(f"{show.title_of(schedule)}  {show.shape_line(schedule)}")
            if options["gantt"]:
                show.print_gantt(timeline, metrics)
            click.echo()
            click.echo(show.summary(timeline, metrics))
    written = documents([timeline], [show.title_of(schedule)], inputs, options)
    write_all([(_complete(doc, suffix, costs, execution, options), target, suffix) for doc, target, suffix in written])


def _complete(
    document: Document, suffix: str, costs: Costs, execution: Execution | None, options: dict[str, Any]
) -> Document:
    """The document with what its format can show besides: comm ops, messages, memory."""
    from dataclasses import replace

    if execution and suffix == ".csv" and options["lowered"]:
        return replace(document, timelines=(execution.timeline,))
    if execution:
        document = replace(document, executions=(execution,))
    wanted = document.style != "paper" if options["memory"] is None else options["memory"]
    if not wanted or suffix not in (".png", ".svg", ".pdf", ".html", ".trace.json"):
        return document
    return with_memory(document, [costs], options)


def _steady(ctx: click.Context, options: dict[str, Any]) -> bool:
    """Print the numbers of the steady-state shortcut; False where it proves nothing and every op must be timed."""
    from ppsim.cli import _print as show
    from ppsim.schedules._steady import steady_state
    from ppsim.simulation.columns import shape_of

    if options["output"]:
        raise InputError("--steady has numbers only, no timeline", "leave out --output or --steady")
    if options["microbatches"] is None:
        return False
    name, numbers = options["schedule"], {key: options[key] for key in SHAPE}
    try:
        found = steady_state(name, lambda schedule: costs_of(schedule, options), **numbers)
    except UnknownSchedule:  # a file holds one length only
        found = None
    if found is None:
        return False
    small, microbatches, unit = found.simulated, options["microbatches"], found.costs.unit
    if options["as_json"]:
        from ppsim.files.writers.json import steady_object

        show.echo_json(steady_object(found, microbatches, inputs_of(ctx, found.costs)))
        return True
    shape = shape_of(small)._replace(microbatches=microbatches)
    click.echo(show.result_line(f"{small.name} {small.n_devices}x{microbatches}", found.metrics, shape, unit))
    if not options["quiet"]:
        every = f"{found.period:g} {unit} for {found.microbatches} more microbatches"
        click.echo(f"makespan {found.metrics.makespan:.15g}: {every}, proved on a run of {small.n_microbatches}")
    return True
