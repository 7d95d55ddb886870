"""``ppsim run``: one schedule, timed, shown and written."""

from __future__ import annotations

from typing import Any

import click

from ppsim.cli._options import (
    build,
    cost_options,
    documents,
    inputs_of,
    json_option,
    output_options,
    quiet_option,
    schedule_option,
    shape_options,
    targets,
    write_all,
)


@click.command("run")
@schedule_option
@shape_options
@cost_options
@output_options
@json_option
@quiet_option
@click.option("--gantt/--no-gantt", default=True, help="Draw the chart in the terminal (on).")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    r"""Time one schedule and show it.

    \b
      ppsim run --schedule 1f1b --stages 4 --mb 8
      ppsim run -s dualpipe --devices 8 --mb 20 -o fig.pdf -o report.html
    """
    from ppsim.cli import _print as show
    from ppsim.metrics import measure
    from ppsim.simulate import simulate

    targets(options)
    schedule, costs = build(options["schedule"], options)
    timeline = simulate(schedule, costs)
    inputs = inputs_of(ctx, costs)
    if options["as_json"]:
        from ppsim.formats.json import run_object

        show.echo_json(run_object(timeline, inputs))
    elif "-" not in options["output"]:
        metrics = measure(timeline)
        if options["quiet"]:
            click.echo(
                show.result_line(f"{schedule.name} {schedule.n_devices}x{schedule.n_microbatches}", metrics, costs.unit)
            )
        else:
            click.echo(f"{show.title_of(schedule)}  {show.shape_line(schedule)}")
            if options["gantt"]:
                show.print_gantt(timeline, metrics)
            click.echo()
            click.echo(show.summary(timeline, metrics))
    write_all(documents([timeline], [show.title_of(schedule)], inputs, options))
