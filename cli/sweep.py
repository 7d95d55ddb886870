"""Schedules over a grid of shapes, best marked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice, product
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ppsim.cli._build import build_costs, check_used
from ppsim.cli._options import (
    OWN,
    CostOptions,
    GridOptions,
    NetworkOptions,
    OutputOptions,
    ShapeOptions,
    cost_options,
    grid_options,
    json_option,
    make_command,
    network_options,
    output_options,
    quiet_option,
    several_schedules,
)
from ppsim.cli._several import check_shape, check_taken, time_schedule
from ppsim.cli._write import find_targets, inputs_of, write_tradeoff
from ppsim.errors import InputError
from ppsim.simulation.columns import columns_of

if TYPE_CHECKING:
    from rich.table import Table

    from ppsim.analysis.compare import Row
    from ppsim.simulation.columns import Column

MOST = 10_000


class Cell(NamedTuple):
    """One shape of the grid: the schedule's spelling, its devices (a fraction where it fits none), its microbatches."""

    spec: str
    devices: float
    microbatches: int


@make_command("sweep")
@several_schedules()
@grid_options
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
def command(
    ctx: click.Context,
    /,
    specs: tuple[str, ...],
    grid: GridOptions,
    costs: CostOptions,
    network: NetworkOptions,
    output: OutputOptions,
    metric: str,
    as_json: bool,
    quiet: bool,
) -> None:
    """Time schedules over devices, microbatches and chunks; -o draws time against memory with the Pareto front.

    \b
      ppsim sweep 1f1b zb-1p interleaved --devices 8 --mb 8:64:8 --chunks 2,4
      ppsim sweep 1f1b zb-1p dualpipe --devices 4:16:x2 --mb 32 --metric peak -o pareto.svg
    """
    from ppsim.analysis.compare import mark_front, sweep_object
    from ppsim.cli import _print as show
    from ppsim.cli._progress import progress_bar
    from ppsim.files.tradeoff import check_suffix

    for _, suffix in find_targets(output):
        check_suffix(suffix)
    check_shape(specs, grid.stages or grid.devices, grid.microbatches)
    check_taken(specs, grid)
    shapes = list(islice(_shapes(specs, grid), MOST + 1))
    if len(shapes) > MOST:
        raise InputError(f"a sweep takes {MOST:,} shapes, and these are more", "fewer --devices, --mb or --chunks")
    cells = [cell for cell, _ in shapes]
    rows: list[Row] = []
    with progress_bar(not as_json and not quiet) as report:
        for cell, shape in shapes:
            report(len(rows) / len(shapes), f"{cell.spec} {cell.devices}x{cell.microbatches}")
            rows.append(time_schedule(cell.spec, shape, costs, network))
    timelines = [row.timeline for row in rows if row.timeline]
    if not timelines:
        raise InputError(
            f"no shape of the grid works; the last: {rows[-1].reason}", "other --devices, --mb or --chunks"
        )
    check_used([timeline.schedule for timeline in timelines], costs)
    inputs = inputs_of(ctx, build_costs(timelines[0].schedule, costs, network))
    best = mark_front(rows, per_microbatch=True)
    if as_json:
        show.echo_json(sweep_object(rows, best, inputs))
    elif "-" not in output.output:
        if not quiet:
            _table(cells, rows, metric)
        click.echo(_closing(cells, rows, metric))
    _write([row for row in rows if row.timeline], inputs, output)


def _shapes(specs: tuple[str, ...], grid: GridOptions) -> Iterator[tuple[Cell, ShapeOptions]]:
    """Each cell of the grid with its shape: devices as given, or the stages over those of a device.

    Raises:
        InputError: --chunks with schedules that all state theirs.
    """
    from ppsim.schedules import family_of, split_chunks

    families = {spec: family_of(spec) for spec in specs}
    varied = {spec for spec, family in families.items() if family and family.chunks > 1 and not split_chunks(spec)[1]}
    if grid.chunks and not varied:
        raise InputError(f"--chunks has no effect: none of {', '.join(specs)} takes several", "NAME:V, or leave it out")
    for spec in specs:
        family = families[spec]
        if family is None:
            cell, shape = _stated(spec, grid)
            yield cell, shape
            continue
        spelled = [f"{spec}:{chunks}" for chunks in grid.chunks] if grid.chunks and spec in varied else [spec]
        for each, size, m in product(spelled, grid.stages or grid.devices or (), grid.microbatches or ()):
            stages, devices = (size, None) if grid.stages else (None, size)
            share = size / (split_chunks(each)[1] or family.chunks) if grid.stages else size
            yield (
                Cell(each, int(share) if share == int(share) else share, m),
                ShapeOptions(stages, devices, None, m, **_own(grid)),
            )


def _stated(spec: str, grid: GridOptions) -> tuple[Cell, ShapeOptions]:
    """The one cell of a file of ops, which states its own shape."""
    from ppsim.schedules import schedule_from

    made = schedule_from(spec)
    return Cell(spec, made.n_devices, made.n_microbatches), ShapeOptions(**_own(grid))


def _own(grid: GridOptions) -> dict[str, Any]:
    return {name: getattr(grid, name) for name in OWN}


def _table(grid: list[Cell], rows: list[Row], metric: str) -> None:
    """Schedules and devices down, microbatches across in as many tables as fit; the best of each column marked."""
    from ppsim.cli._print import console

    values = {key: _value(row, metric) for key, row in zip(grid, rows, strict=True)}
    best: dict[tuple[float, int], float] = {}
    for (_, devices, m), value in values.items():
        if value is not None:
            best[devices, m] = min(value, best.get((devices, m), value))
    cells = {
        key: "-" if value is None else _text(value, metric) + ("*" if value == best[key[1:]] else " ")
        for key, value in values.items()
    }
    across = sorted({m for _, _, m in grid})
    wide = console(at_least=100)
    left = max(len(f"{name}  {devices}  ") for name, devices, _ in [Cell("schedule", 0, 0), *grid])
    each = max(len(f"M={across[-1]}"), *map(len, cells.values())) + 2
    fits = max(1, (wide.width - left) // each)
    unit = next(row.timeline.unit for row in rows if row.timeline)
    title = f"{metric} ({unit})" if _column(metric).form == "time" else metric
    for first in range(0, len(across), fits):
        wide.print(_block(cells, across[first : first + fits], title))
    click.echo(f"* least {metric} of that M on as many devices; - the schedule does not take the shape")


def _block(cells: Mapping[Cell, str], across: list[int], title: str) -> Table:
    from rich.table import Table

    table = Table(
        box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), title=title, title_justify="left"
    )
    table.add_column("schedule", no_wrap=True)
    table.add_column("P", justify="right")
    for m in across:
        table.add_column(f"M={m}", justify="right", no_wrap=True)
    for name, devices in dict.fromkeys((name, devices) for name, devices, _ in cells):
        table.add_row(name, str(devices), *(cells.get(Cell(name, devices, m), "") for m in across))
    return table


def _closing(grid: list[Cell], rows: list[Row], metric: str) -> str:
    from ppsim.cli._print import counted

    found = [(value, key) for key, row in zip(grid, rows, strict=True) if (value := _value(row, metric)) is not None]
    least, (name, devices, microbatches) = min(found, key=lambda pair: pair[0])
    shape = f"{counted(int(devices), 'device')} with {counted(microbatches, 'microbatch')}"
    return f"{name} on {shape} has the least {metric}, {_text(least, metric)}"


def _value(row: Row, metric: str) -> float | None:
    return row.value(_column(metric)) if row.metrics else None


def _text(value: float, metric: str) -> str:
    return _column(metric).text(value)


def _column(metric: str) -> Column:
    return next(column for column in columns_of("sweep") if column.name == metric)


def _write(timed: list[Row], inputs: dict[str, Any], output: OutputOptions) -> None:
    from ppsim.analysis.tradeoff import Point

    points = []
    for r in timed:
        assert r.timeline is not None
        schedule = r.timeline.schedule
        points.append(Point(f"{r.name} {schedule.n_devices}x{schedule.n_microbatches}", r.makespan_per_mb, r.peak))
    unit = timed[0].timeline.unit if timed[0].timeline else ""
    write_tradeoff(points, f"makespan per microbatch ({unit})", inputs, output)
