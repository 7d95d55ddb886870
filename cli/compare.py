"""Compare schedules on the same devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ppsim.cli._network import network_options
from ppsim.cli._options import (
    cost_options,
    costs_of,
    documents,
    inputs_of,
    json_option,
    output_options,
    quiet_option,
    targets,
    with_memory,
    write_all,
    write_tradeoff,
)
from ppsim.cli._several import names_argument, row_of, shape_options
from ppsim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ppsim.analysis.compare import Row
    from ppsim.core.timeline import Timeline

ONE_SCHEDULE = (".csv", ".mmd")


@click.command("compare")
@names_argument
@shape_options
@cost_options
@network_options
@output_options
@click.option("--memory", is_flag=True, help="Draw what the devices hold below each chart.")
@click.option("--tradeoff", is_flag=True, help="Draw time against peak activations, with the Pareto front, not charts.")
@json_option
@quiet_option
@click.pass_context
def command(ctx: click.Context, /, names: tuple[str, ...], **options: Any) -> None:
    """Compare schedules on the same devices; NAME:V sets the stages per device. The first is the baseline.

    \b
      ppsim compare gpipe 1f1b interleaved:2 zb-1p --devices 4 --mb 8
      ppsim compare 1f1b dualpipe dualpipe-v --devices 8 --mb 20 -o compare.svg
    """
    from ppsim.analysis.compare import closing, compare_object
    from ppsim.cli import _print as show

    targets(options)
    _check(options)
    rows = [row_of(name, options) for name in names]
    fitting = [r for r in rows if r.timeline]
    if not fitting:
        reasons = "\n".join(f"  {r.name}: {r.reason}" for r in rows)
        raise InputError(f"none of these schedules takes this shape:\n{reasons}", "another --mb or --devices")
    inputs = inputs_of(ctx, _costs_of(fitting[0], options))
    if options["as_json"]:
        show.echo_json(compare_object(rows, inputs))
    elif "-" not in options["output"]:
        if not options["quiet"]:
            _table(rows)
            click.echo()
        click.echo(closing(rows))
    if options["tradeoff"]:
        from ppsim.analysis.tradeoff import Point

        unit = fitting[0].timeline.unit if fitting[0].timeline else ""
        points = (Point(r.name, r.makespan, r.peak) for r in fitting)
        write_tradeoff(points, f"makespan ({unit})", inputs, options)
        return
    timelines = [r.timeline for r in fitting if r.timeline]
    written = documents(timelines, [_title(t) for t in timelines], inputs, options)
    if options["memory"]:
        costs = [costs_of(timeline.schedule, options) for timeline in timelines]
        written = [(with_memory(document, costs, options), target, suffix) for document, target, suffix in written]
    write_all(written)


def _check(options: dict[str, Any]) -> None:
    """Refuse what cannot be written before anything is timed."""
    from ppsim.files.tradeoff import check_suffix

    wanted = [suffix for _, suffix in targets(options)]
    if options["tradeoff"] and not wanted:
        raise InputError("--tradeoff says what -o draws, and there is no -o", "add -o FILE.svg")
    for suffix in wanted:
        if options["tradeoff"]:
            check_suffix(suffix)
        elif suffix in ONE_SCHEDULE:
            raise InputError(f"{suffix} holds one schedule, and a comparison has several", "write each with ppsim run")


def _title(timeline: Timeline) -> str:
    from ppsim.cli._print import title_of

    chunks = timeline.schedule.n_chunks
    return title_of(timeline.schedule) + (f" (V={chunks})" if chunks > 1 else "")


def _costs_of(first: Row, options: dict[str, Any]) -> Any:
    assert first.timeline is not None
    return costs_of(first.timeline.schedule, options)


def _table(rows: list[Row]) -> None:
    from rich.table import Table

    from ppsim.analysis.compare import on_front
    from ppsim.cli._print import console
    from ppsim.simulation.columns import columns_of

    timed = [r for r in rows if r.timeline]
    first, unit = timed[0], timed[0].timeline.unit if timed[0].timeline else ""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("schedule\n", no_wrap=True)
    for column in columns_of("compare"):
        table.add_column(column.narrow.format(unit=unit), justify="right", no_wrap=True)
        if column.key == "makespan":
            table.add_column(f"vs\n{first.name}", justify="right", no_wrap=True)
    for r, best in zip(rows, on_front(rows), strict=True):
        table.add_row(r.name, *_cells(r, first, "*" if best else " "))
    console(at_least=100).print(table)
    click.echo("peak act. counts microbatches of a device's 1/P share of the model; * nothing is faster with less")
    for r in rows:
        if r.reason:
            click.echo(f"{r.name} does not apply: {r.reason}")


def _cells(r: Row, first: Row, mark: str) -> Iterator[str]:
    """The numbers of one schedule, its makespan's change from the first, and the mark of the front at its peak."""
    from ppsim.simulation.columns import columns_of

    for column in columns_of("compare"):
        applies = r.metrics is not None
        text = column.text(r.value(column)) if applies else "-"
        yield text + mark if applies and column.key == "peak_activations_share" else text
        if column.key == "makespan":
            change = f"{r.makespan / first.makespan - 1:+.1%}" if applies and first.makespan else "-"
            yield "baseline" if r is first else change
