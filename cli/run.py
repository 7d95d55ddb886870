"""Time one schedule and show it."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from ppsim.cli._build import add_memory, build, build_costs, check_used, measure_with_bound, shape_of_layout
from ppsim.cli._fit import echo_wrapped
from ppsim.cli._network import execute_slots, note_queues, time_ops
from ppsim.cli._options import (
    CostOptions,
    FigureOptions,
    NetworkOptions,
    ShapeOptions,
    cost_options,
    figure_options,
    json_option,
    make_command,
    network_options,
    one_schedule,
    quiet_option,
    shape_options,
)
from ppsim.cli._write import find_targets, inputs_of, make_documents, write_around
from ppsim.errors import UnknownSchedule

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.execution import Execution
    from ppsim.core.schedule import Schedule
    from ppsim.core.timeline import Timeline
    from ppsim.files.document import Document
    from ppsim.simulation.metrics import Metrics


@make_command("run")
@one_schedule
@shape_options
@cost_options
@figure_options
@json_option
@quiet_option
@network_options
@click.option("--lowered", is_flag=True, help="Write csv with sends and receives (torch's compute_comms).")
@click.option("--merge-bw", is_flag=True, help="Run I and W of a microbatch, where W follows its I, as one B.")
@click.option("--gantt/--no-gantt", default=True, help="Draw the chart in the terminal (on).")
@click.option(
    "--memory/--no-memory", default=None, help="Draw what the devices hold below figures (on, except in style paper)."
)
@click.option(
    "--grid", is_flag=True, help="Show the steps on integer time slots, empty where a device must wait; -o csv or json."
)
@click.option("--reorder", is_flag=True, help="Search an order of unequal microbatches (--mb-scale) that is faster.")
@click.option("--steady", is_flag=True, help="Numbers only, for very many --mb: extend a proved steady state.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    spec: str,
    shape: ShapeOptions,
    costs: CostOptions,
    network: NetworkOptions,
    output: FigureOptions,
    as_json: bool,
    quiet: bool,
    lowered: bool,
    merge_bw: bool,
    gantt: bool,
    memory: bool | None,
    grid: bool,
    reorder: bool,
    steady: bool,
) -> None:
    """Time one schedule and show it.

    The bound is proved: no order of the same ops takes less on the same devices, each holding no more activations than
    in this schedule. Other ops, such as backwards split into I and W, another placement or more memory may.

    \b
      ppsim run 1f1b --stages 4 --mb 8
      ppsim run -s dualpipe --devices 8 --mb 20 -o fig.pdf -o report.html
    """
    find_targets(output)
    if steady and _print_steady(ctx, spec, shape, costs, as_json, quiet):
        return
    schedule, prices = build(spec, shape, costs, network, merge_bw)
    if grid:
        _show_grid(ctx, schedule, network.order, output, as_json, lowered)
        return
    if steady:
        click.echo("no steady state that repeats exactly was proved: timing every op", err=True)
    timeline, execution = time_ops(schedule, prices, network, costs.links, to_torch=lowered)
    inputs, metrics = inputs_of(ctx, prices), measure_with_bound(timeline, prices)

    def complete(document: Document, suffix: str) -> Document:
        from ppsim.files.document import abilities_of

        if execution and lowered and abilities_of(suffix).lowered:
            return replace(document, timelines=(execution.timeline,))
        document = replace(document, bounds=(metrics.bound,), executions=(execution,) if execution else ())
        wanted = document.style != "paper" if memory is None else memory
        if not wanted or not abilities_of(suffix).memory:
            return document
        return add_memory(document, [prices], costs, asked=bool(memory))

    written = make_documents([timeline], [_title(timeline)], inputs, output)
    with write_around([(complete(document, suffix), target, suffix) for document, target, suffix in written]):
        if as_json:
            from ppsim.cli._print import echo_json
            from ppsim.files.writers.json import run_object

            echo_json(run_object(timeline, inputs, execution, metrics.bound))
        elif "-" not in output.output:
            _print_run(timeline, metrics, execution, quiet, gantt)
        if reorder:
            _suggest_order(timeline, prices)
        if lowered and execution:
            note_queues(execution.timeline.schedule)


def _suggest_order(timeline: Timeline, prices: Costs) -> None:
    """Print the fastest order of microbatches found by simulation, on stderr where stdout is a file's or JSON's."""
    from ppsim.analysis.reorder import reorder
    from ppsim.base.numbers import format_number, format_share

    found = reorder(timeline.schedule, prices)
    if found.after >= found.before * (1 - 1e-9):
        click.echo(f"reorder: none of {found.tried} orders of the microbatches is faster", err=True)
        return
    order = ",".join(map(str, found.order.tolist()))
    gain = format_share(1 - found.after / found.before)
    times = f"{format_number(found.before)} to {format_number(found.after)} {timeline.unit}"
    click.echo(
        f"reorder: {times}, {gain} less, of {found.tried} orders simulated; run the microbatches as {order}", err=True
    )


def _show_grid(
    ctx: click.Context, schedule: Schedule, order: str | None, output: FigureOptions, as_json: bool, lowered: bool
) -> None:
    """Print or write the schedule on integer slots, a slot for every step, with sends and receives where asked for."""
    import orjson

    from ppsim.analysis.grid import cells_of, csv_of, text_of
    from ppsim.base.atomic_file import open_atomically
    from ppsim.cli import _print as show
    from ppsim.core.costs import costs_for
    from ppsim.errors import InputError
    from ppsim.simulation.longest_path import simulate

    slots = costs_for(schedule, tb=1.0, ti=1.0, tw=1.0, per="stage")
    execution = execute_slots(schedule, slots, order) if lowered else None
    rows = cells_of(execution.timeline if execution else simulate(schedule, slots))
    value = {"schema": "ppsim.grid/1", "inputs": inputs_of(ctx, slots), "schedule": schedule.name, "rows": rows}
    writers = {".csv": lambda: csv_of(rows).encode(), ".json": lambda: orjson.dumps(value)}
    for target, suffix in find_targets(output):
        if suffix not in writers:
            raise InputError(f"a grid cannot be written as {suffix}", f"one of {' '.join(writers)}")
        with open_atomically(target) as out:
            out.write(writers[suffix]())
    if as_json:
        show.echo_json(value)
    elif "-" not in output.output:
        click.echo(text_of(rows))


def _title(timeline: Timeline) -> str:
    from ppsim.cli._print import title_of

    return title_of(timeline.schedule)


def _print_run(timeline: Timeline, metrics: Metrics, execution: Execution | None, quiet: bool, gantt: bool) -> None:
    from ppsim.cli import _print as show
    from ppsim.drawing.terminal_marks import marks_of_messages
    from ppsim.simulation.columns import shape_of

    schedule = timeline.schedule
    if quiet:
        name = f"{schedule.name} {schedule.n_devices}x{schedule.whole_microbatches}"
        echo_wrapped(show.result_line(name, metrics, shape_of(schedule), timeline.unit))
        return
    echo_wrapped([(show.title_of(schedule), "name"), f"  {show.shape_line(schedule)}"])
    if gantt:
        show.print_gantt(timeline, metrics, marks_of_messages(execution) if execution else None)
    click.echo()
    for line in show.summary(timeline, metrics).splitlines():
        echo_wrapped([line[:19], (line[19:34], "name"), (line[34:], "quiet")], 34)
    show.print_recomputed([schedule])


def _print_steady(
    ctx: click.Context, spec: str, shape: ShapeOptions, costs: CostOptions, as_json: bool, quiet: bool
) -> bool:
    """Print the numbers of the steady-state shortcut; False where it proves nothing and every op must be timed."""
    from ppsim.cli import _print as show
    from ppsim.schedules import split_chunks, steady_state
    from ppsim.simulation.columns import shape_of

    if shape.microbatches is None:
        return False
    name, chunks = split_chunks(spec)
    full = shape_of_layout(spec, shape, costs.layout) if costs.layout else shape
    numbers = asdict(full) | ({"chunks": chunks} if chunks and shape.chunks in (None, chunks) else {})

    def price(schedule: Schedule) -> Costs:
        check_used([schedule], costs)
        return build_costs(schedule, costs)

    try:
        found = steady_state(name, price, recompute=costs.recompute, **numbers)
    except UnknownSchedule:  # a file holds one length only
        found = None
    if found is None:
        return False
    small, microbatches, unit = found.simulated, shape.microbatches, found.costs.unit
    if as_json:
        from ppsim.files.writers.json import steady_object

        show.echo_json(steady_object(found, microbatches, inputs_of(ctx, found.costs)))
        return True
    whole = shape_of(small)._replace(microbatches=microbatches)
    click.echo(show.result_line(f"{small.name} {small.n_devices}x{microbatches}", found.metrics, whole, unit))
    if not quiet:
        every = f"{found.period:g} {unit} for {found.microbatches} more microbatches"
        click.echo(f"makespan {found.metrics.makespan:.15g}: {every}, proved on a run of {small.n_microbatches}")
    return True
