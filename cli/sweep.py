"""Schedules over a grid of shapes, best marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from ppsim.cli._build import build_costs, build_schedule, refuse_unused, stages_of
from ppsim.cli._cells import USED, Cell, TimeCell, cells_of, files_of, inputs_of_cells
from ppsim.cli._fit import TONES, echo_wrapped
from ppsim.cli._options import (
    CostOptions,
    GridOptions,
    NetworkOptions,
    OutputOptions,
    cost_options,
    grid_options,
    json_option,
    make_command,
    network_options,
    output_options,
    quiet_option,
    several_schedules,
)
from ppsim.cli._several import check_shape, check_taken, options_taken
from ppsim.cli._tasks import TaskOptions, finish_tasks, task_options
from ppsim.cli._write import find_targets, inputs_of, write_tradeoff
from ppsim.errors import InputError
from ppsim.simulation.columns import columns_of

if TYPE_CHECKING:
    from rich.table import Table

    from ppsim.simulation.columns import Column

MOST = 10_000


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
@click.option("--heat", is_flag=True, help="Draw --metric over the grid as a heat map, not time against memory.")
@task_options
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
    heat: bool,
    tasks: TaskOptions,
    as_json: bool,
    quiet: bool,
) -> None:
    """Time schedules over devices, microbatches and chunks.

    -o draws time against memory with the Pareto front, or a heat map, or writes the table: csv, json, parquet. A page
    (.html) has both.

    \b
      ppsim sweep 1f1b zb-1p interleaved --devices 8 --mb 8:64:8 --chunks 2,4
      ppsim sweep 1f1b zb-1p dualpipe --devices 4:16:x2 --mb 32 --metric peak -o pareto.svg
      ppsim sweep 1f1b zb-1p interleaved --devices 4,8 --mb 8:128:8 --heat -o heat.pdf -o both.html
      ppsim sweep 1f1b zb-1p --devices 8 --mb 8:512:8 --dask tcp://10.0.0.1:8786 --results rows.parquet
    """
    from ppsim.analysis.compare import sweep_object
    from ppsim.cli import _print as show
    from ppsim.cli._progress import progress_bar
    from ppsim.schedules import reads_ops

    _check_targets(output, heat)
    if stages := stages_of(costs, grid.stages, grid.devices):
        grid = replace(grid, stages=[stages])
    check_shape(specs, grid.stages or grid.devices, grid.microbatches)
    check_taken(specs, grid)
    shapes = list(islice(cells_of(specs, grid), MOST + 1))
    if len(shapes) > MOST:
        raise InputError(f"a sweep takes {MOST:,} shapes, and these are more", "fewer --devices, --mb or --chunks")
    files = files_of(specs, costs, network)
    work = {cell.key: (cell, shape) for cell, shape in shapes}
    here = [cell.key for cell, _ in shapes if reads_ops(cell.spec)]
    with progress_bar(not as_json and not quiet) as report:
        time_cell = TimeCell(costs, network, files if tasks.dask else {})
        kept_for = inputs_of_cells(grid, costs, network, files)
        found = finish_tasks(time_cell, work, tasks, kept_for, report, here)
    rows = [found[cell.key] for cell, _ in shapes]
    timed = [(cell, shape, row) for (cell, shape), row in zip(shapes, rows, strict=True) if row["applies"]]
    if not timed:
        raise InputError(
            f"no shape of the grid works; the last: {rows[-1]['reason']}", "other --devices, --mb or --chunks"
        )
    refuse_unused(set().union(*(row[USED] for *_, row in timed)), [row["schedule"] for *_, row in timed], costs)
    cell, shape, _ = timed[0]
    schedule = build_schedule(cell.spec, options_taken(cell.spec, shape), costs, network, quiet=True)
    inputs = inputs_of(ctx, build_costs(schedule, costs, network))
    rows = [{name: value for name, value in row.items() if name != USED} for row in rows]
    if as_json:
        show.echo_json(sweep_object(rows, inputs))
    elif "-" not in output.output:
        cells = [cell for cell, _ in shapes]
        if not quiet:
            _table(cells, rows, metric)
        echo_wrapped(_closing(cells, rows, metric), 2)
    _write(rows, inputs, output, metric if heat else "")


def _check_targets(output: OutputOptions, heat: bool) -> None:
    from ppsim.base.tables import TABLES, table_suffix
    from ppsim.files.tradeoff import check_suffix

    for _, suffix in find_targets(output, tables=True):
        if suffix not in TABLES:
            check_suffix(suffix, heat and suffix != ".html")
        else:
            table_suffix(f"x{suffix}")


def _table(grid: list[Cell], rows: list[Mapping[str, Any]], metric: str) -> None:
    """Schedules and devices down, microbatches across in as many tables as fit; the best of each column marked."""
    from ppsim.cli._print import console, shows_colours

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
    looks = _shade(values) if shows_colours(wide) else {}
    left = max(len(f"{name}  {devices}  ") for name, devices, _ in [Cell("schedule", 0, 0), *grid])
    each = max(len(f"M={across[-1]}"), *map(len, cells.values())) + 2
    fits = max(1, (wide.width - left) // each)
    unit = next(row["unit"] for row in rows if row["applies"])
    title = f"{metric} ({unit})" if _column(metric).form == "time" else metric
    for first in range(0, len(across), fits):
        wide.print(_block(cells, looks, across[first : first + fits], title))
    echo_wrapped(f"* least {metric} of that M on as many devices; - the schedule does not take the shape")


def _shade(values: Mapping[Cell, float | None]) -> dict[Cell, str]:
    """The colours of each cell on a terminal, darker for more."""
    import numpy as np

    from ppsim.analysis.heat import shades_of
    from ppsim.drawing.palette import HEAT, blend, text_colour

    shades = shades_of(np.array([np.nan if value is None else value for value in values.values()]))
    fills = {
        cell: blend(HEAT[1], HEAT[0], shade)
        for cell, shade in zip(values, shades.tolist(), strict=True)
        if values[cell] is not None
    }
    return {cell: f"{text_colour(fill)} on {fill}" for cell, fill in fills.items()}


def _block(cells: Mapping[Cell, str], looks: Mapping[Cell, str], across: list[int], title: str) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), title=title, title_justify="left"
    )
    table.add_column("schedule", no_wrap=True)
    table.add_column("P", justify="right")
    for m in across:
        table.add_column(f"M={m}", justify="right", no_wrap=True)
    for name, devices in dict.fromkeys((name, devices) for name, devices, _ in cells):
        row = [Cell(name, devices, m) for m in across]
        texts = [(cells.get(cell, ""), looks.get(cell, "")) for cell in row]
        shown = (Text(text, look or TONES["good" * text.endswith("*")]) for text, look in texts)
        table.add_row(name, str(devices), *shown)
    return table


def _closing(grid: list[Cell], rows: list[Mapping[str, Any]], metric: str) -> str:
    from ppsim.cli._print import counted

    found = [(value, key) for key, row in zip(grid, rows, strict=True) if (value := _value(row, metric)) is not None]
    least, (name, devices, microbatches) = min(found, key=lambda pair: pair[0])
    shape = f"{counted(int(devices), 'device')} with {counted(microbatches, 'microbatch')}"
    return f"{name} on {shape} has the least {metric}, {_text(least, metric)}"


def _value(row: Mapping[str, Any], metric: str) -> float | None:
    return row[_column(metric).key] if row["applies"] else None


def _text(value: float, metric: str) -> str:
    return _column(metric).text(value)


def _column(metric: str) -> Column:
    return next(column for column in columns_of("sweep") if column.name == metric)


def _write(rows: Sequence[Mapping[str, Any]], inputs: dict[str, Any], output: OutputOptions, heat: str) -> None:
    """Write every -o; figures show the metric ``heat`` as a heat map where one is named."""
    from ppsim.analysis.compare import mark_shapes, sweep_object
    from ppsim.analysis.heat import heat_map
    from ppsim.analysis.tradeoff import Point
    from ppsim.base.atomic_file import open_atomically
    from ppsim.base.json_output import dump_json
    from ppsim.base.tables import save_table
    from ppsim.files.tradeoff import save_heat

    def write_table(target: str, suffix: str) -> None:
        if suffix == ".json":
            with open_atomically(target) as out:
                out.write(dump_json(sweep_object(rows, inputs), end=b"\n"))
            return
        marked = [{**row, "pareto": best} for row, best in zip(rows, mark_shapes(rows), strict=True)]
        save_table(marked, target, suffix, inputs)

    timed = [row for row in rows if row["applies"]]
    points = [
        Point(
            f"{r['name']} {r['devices']}x{r['microbatches']}",
            r["makespan_per_mb"],
            r["peak_activations_share"],
            r["name"].partition(":")[0],
            f"{r['devices']} devices",
        )
        for r in timed
    ]
    found = heat_map(columns_of("sweep"), rows)
    draw = partial(save_heat, found, _column(heat).key, width=output.width, inputs=inputs) if heat else None
    time = f"makespan per microbatch ({timed[0]['unit']})"
    write_tradeoff(points, time, inputs, output, table=write_table, heat=found, figure=draw)
