"""Compare schedules on the same devices."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ppsim.cli._build import add_memory, build_costs
from ppsim.cli._fit import echo_wrapped, print_table
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
    quiet_option,
    several_schedules,
    shape_options,
)
from ppsim.cli._several import time_schedules
from ppsim.cli._write import find_targets, inputs_of, make_documents, write_around, write_tradeoff
from ppsim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ppsim.analysis.compare import Row
    from ppsim.core.timeline import Timeline

ESSENTIAL = ("makespan", "bubble_rate", "peak_activations_share")  # the last columns to go on a narrow terminal


@make_command("compare")
@several_schedules()
@shape_options
@cost_options
@network_options
@figure_options
@click.option("--memory", is_flag=True, help="Draw what the devices hold below each chart.")
@click.option("--tradeoff", is_flag=True, help="Draw time against peak activations, with the Pareto front, not charts.")
@json_option
@quiet_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    specs: tuple[str, ...],
    shape: ShapeOptions,
    costs: CostOptions,
    network: NetworkOptions,
    output: FigureOptions,
    memory: bool,
    tradeoff: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Compare schedules on the same devices; NAME:V sets the stages per device. The first is the baseline.

    \b
      ppsim compare gpipe 1f1b interleaved:2 zb-1p --devices 4 --mb 8
      ppsim compare 1f1b dualpipe dualpipe-v --devices 8 --mb 20 -o compare.svg
    """
    from ppsim.analysis.compare import compare_object, conclude
    from ppsim.cli import _print as show

    _check_suffixes(output, tradeoff)
    rows = time_schedules(specs, shape, costs, network)
    timelines = [r.timeline for r in rows if r.timeline]
    prices = [build_costs(timeline.schedule, costs, network) for timeline in timelines]
    inputs = inputs_of(ctx, prices[0])
    written = [] if tradeoff else make_documents(timelines, [_title(t) for t in timelines], inputs, output)
    if executions := tuple(r.execution for r in rows if r.execution):
        written = [
            (replace(document, executions=executions) if suffix == ".html" else document, target, suffix)
            for document, target, suffix in written
        ]
    if memory:
        written = [
            (add_memory(document, prices, costs, asked=True), target, suffix) for document, target, suffix in written
        ]
    with write_around(written):
        if as_json:
            show.echo_json(compare_object(rows, inputs))
        elif "-" not in output.output:
            if not quiet:
                _table(rows)
                click.echo()
            echo_wrapped(conclude(rows))
    if tradeoff:
        from ppsim.analysis.tradeoff import Point

        points = (Point(r.name, r.makespan, r.peak, r.name.partition(":")[0]) for r in rows if r.timeline)
        write_tradeoff(points, f"makespan ({timelines[0].unit})", inputs, output)


def _check_suffixes(output: FigureOptions, tradeoff: bool) -> None:
    """Refuse a format that cannot show several schedules before anything is timed."""
    from ppsim.files.document import abilities_of
    from ppsim.files.tradeoff import check_suffix

    for _, suffix in find_targets(output):
        if tradeoff:
            check_suffix(suffix)
        elif abilities_of(suffix).one_schedule:
            raise InputError(f"{suffix} holds one schedule, and a comparison has several", "write each with ppsim run")


def _title(timeline: Timeline) -> str:
    from ppsim.cli._print import title_of

    chunks = timeline.schedule.n_chunks
    return title_of(timeline.schedule) + (f" (V={chunks})" if chunks > 1 else "")


def _table(rows: list[Row]) -> None:
    from ppsim.analysis.compare import mark_front
    from ppsim.cli._print import print_recomputed
    from ppsim.simulation.columns import columns_of

    timed = [r for r in rows if r.timeline]
    first, unit = timed[0], timed[0].timeline.unit if timed[0].timeline else ""
    headings = ["schedule\n"]
    for column in columns_of("compare"):
        headings.append(column.narrow.format(unit=unit))
        if column.key == "makespan":
            headings.append(f"vs\n{first.name}")
    cells = [[r.name, *_cells(r, first, "*" if best else " ")] for r, best in zip(rows, mark_front(rows), strict=True)]
    spare = [column.narrow.format(unit=unit) for column in columns_of("compare") if column.key not in ESSENTIAL]
    spare.append(f"vs\n{first.name}")
    fastest = min(r.makespan for r in timed)

    def tone(row: int, column: int) -> str:
        if column == 0:
            return "name"
        best = headings[column].startswith("makespan") and rows[row].makespan == fastest
        return "good" if best or cells[row][column].endswith("*") else "quiet" if not rows[row].timeline else ""

    print_table(headings, cells, at_least=100, spare=spare, tone=tone)
    echo_wrapped("peak act. counts microbatches of a device's 1/P share of the model; * nothing is faster with less")
    print_recomputed([r.timeline.schedule for r in timed if r.timeline])
    for r in rows:
        if r.reason:
            echo_wrapped(f"{r.name} does not apply: {r.reason}")


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
