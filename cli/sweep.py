"""Schedules over a grid of shapes, best marked."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice, product
from typing import TYPE_CHECKING, Any

import click

from ppsim.cli._network import network_options
from ppsim.cli._options import (
    Counts,
    cost_options,
    costs_of,
    inputs_of,
    json_option,
    output_options,
    quiet_option,
    targets,
    write_tradeoff,
)
from ppsim.cli._several import group_options, names_argument, row_of
from ppsim.errors import InputError
from ppsim.simulation.columns import columns_of

if TYPE_CHECKING:
    from rich.table import Table

    from ppsim.analysis.compare import Row
    from ppsim.simulation.columns import Column

MOST = 10_000


@click.command("sweep")
@names_argument
@click.option(
    "--devices", "--pp", "--stages", type=Counts(), required=True, help="Pipeline devices, P: 4,8 or 4:16:x2."
)
@click.option("--mb", "-m", "--microbatches", "microbatches", type=Counts(), required=True, help="Microbatches, M.")
@click.option("--chunks", "--vpp", type=Counts(), help="Stages per device, V, of schedules that take several.")
@group_options
@click.option(
    "--metric",
    type=click.Choice([column.name for column in columns_of("sweep")]),
    default="bubble_rate",
    show_default=True,
    help="What the table shows.",
)
@cost_options
@network_options
@output_options
@json_option
@quiet_option
@click.pass_context
def command(ctx: click.Context, /, names: tuple[str, ...], **options: Any) -> None:
    """Time schedules over devices, microbatches and chunks; -o draws time against memory with the Pareto front.

    \b
      ppsim sweep 1f1b zb-1p interleaved --devices 8 --mb 8:64:8 --chunks 2,4
      ppsim sweep 1f1b zb-1p dualpipe --devices 4:16:x2 --mb 32 --metric peak -o pareto.svg
    """
    from ppsim.analysis.compare import on_front, sweep_object
    from ppsim.cli import _print as show
    from ppsim.cli._progress import progress_bar
    from ppsim.files.tradeoff import check_suffix

    for _, suffix in targets(options):
        check_suffix(suffix)
    grid = list(islice(_grid(names, options), MOST + 1))
    if len(grid) > MOST:
        raise InputError(f"a sweep takes {MOST:,} shapes, and these are more", "fewer --devices, --mb or --chunks")
    rows: list[Row] = []
    with progress_bar(not options["as_json"] and not options["quiet"]) as report:
        for name, devices, microbatches in grid:
            report(len(rows) / len(grid), f"{name} {devices}x{microbatches}")
            rows.append(row_of(name, {**options, "devices": devices, "microbatches": microbatches}))
    timed = [row for row in rows if row.timeline]
    if not timed:
        raise InputError(
            f"no shape of the grid works; the last: {rows[-1].reason}", "other --devices, --mb or --chunks"
        )
    best = on_front(rows, per_microbatch=True)
    if options["as_json"]:
        show.echo_json(sweep_object(rows, best, command_inputs(ctx, timed[0], options)))
    elif "-" not in options["output"]:
        if not options["quiet"]:
            _table(grid, rows, options["metric"])
        click.echo(_closing(grid, rows, options["metric"]))
    _write(timed, command_inputs(ctx, timed[0], options), options)


def command_inputs(ctx: click.Context, row: Row, options: dict[str, Any]) -> dict[str, Any]:
    """What a file embeds of the sweep: its command, and the costs of its first shape."""
    assert row.timeline is not None
    return inputs_of(ctx, costs_of(row.timeline.schedule, options))


def _grid(names: tuple[str, ...], options: dict[str, Any]) -> Any:
    from ppsim.schedules import find

    for name in names:
        several = options["chunks"] if ":" not in name and find(name).chunks > 1 else None
        for spelled in [f"{name}:{chunks}" for chunks in several] if several else [name]:
            for devices, microbatches in product(options["devices"], options["microbatches"]):
                yield spelled, devices, microbatches


def _table(grid: list[tuple[str, int, int]], rows: list[Row], metric: str) -> None:
    """Schedules and devices down, microbatches across in as many tables as fit; the best of each column marked."""
    from ppsim.cli._print import console

    values = {key: _value(row, metric) for key, row in zip(grid, rows, strict=True)}
    best: dict[tuple[int, int], float] = {}
    for (_, devices, m), value in values.items():
        if value is not None:
            best[devices, m] = min(value, best.get((devices, m), value))
    cells = {
        key: "-" if value is None else _text(value, metric) + ("*" if value == best[key[1:]] else " ")
        for key, value in values.items()
    }
    across = sorted({m for _, _, m in grid})
    wide = console(at_least=100)
    left = max(len(f"{name}  {devices}  ") for name, devices, _ in [("schedule", 0, 0), *grid])
    each = max(len(f"M={across[-1]}"), *map(len, cells.values())) + 2
    fits = max(1, (wide.width - left) // each)
    for first in range(0, len(across), fits):
        wide.print(_block(cells, across[first : first + fits], metric))
    click.echo(f"* least {metric} of that M on as many devices; - the schedule does not take the shape")


def _block(cells: Mapping[tuple[str, int, int], str], across: list[int], metric: str) -> Table:
    from rich.table import Table

    table = Table(
        box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), title=metric, title_justify="left"
    )
    table.add_column("schedule", no_wrap=True)
    table.add_column("P", justify="right")
    for m in across:
        table.add_column(f"M={m}", justify="right", no_wrap=True)
    for name, devices in dict.fromkeys((name, devices) for name, devices, _ in cells):
        table.add_row(name, str(devices), *(cells[name, devices, m] for m in across))
    return table


def _closing(grid: list[tuple[str, int, int]], rows: list[Row], metric: str) -> str:
    from ppsim.cli._print import counted

    found = [(value, key) for key, row in zip(grid, rows, strict=True) if (value := _value(row, metric)) is not None]
    least, (name, devices, microbatches) = min(found, key=lambda pair: pair[0])
    shape = f"{counted(devices, 'device')} with {counted(microbatches, 'microbatch')}"
    return f"{name} on {shape} has the least {metric}, {_text(least, metric)}"


def _value(row: Row, metric: str) -> float | None:
    return row.value(_column(metric)) if row.metrics else None


def _text(value: float, metric: str) -> str:
    return _column(metric).text(value)


def _column(metric: str) -> Column:
    return next(column for column in columns_of("sweep") if column.name == metric)


def _write(timed: list[Row], inputs: dict[str, Any], options: dict[str, Any]) -> None:
    from ppsim.analysis.tradeoff import Point

    points = []
    for r in timed:
        assert r.timeline is not None
        schedule = r.timeline.schedule
        points.append(Point(f"{r.name} {schedule.n_devices}x{schedule.n_microbatches}", r.makespan_per_mb, r.peak))
    unit = timed[0].timeline.unit if timed[0].timeline else ""
    write_tradeoff(points, f"makespan per microbatch ({unit})", inputs, options)
