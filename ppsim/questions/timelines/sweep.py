"""Time schedules over a grid of shapes, and mark the best."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import click
import numpy as np

from ppsim.ask.answer import Answer
from ppsim.ask.blocks import Block, DrawnBlock, Line, heading
from ppsim.ask.given import Need, TypedOptions
from ppsim.ask.groups import (
    OWN,
    FaceOptions,
    GridOptions,
    NetworkOptions,
    OutputOptions,
    SeveralSchedules,
    ShapeOptions,
    cap_option,
    mbs_option,
)
from ppsim.ask.options import Request, common, flag, group
from ppsim.ask.request import ask
from ppsim.ask.tasks import SentFile, TaskOptions, finish_tasks, send_files
from ppsim.ask.terminal import TONES, count_colours, shows_colours
from ppsim.ask.types import NumberTexts
from ppsim.ask.words import count_text
from ppsim.ask.write import Writers, find_targets, inputs_of, tradeoff_writers, write_table
from ppsim.base.notes import progress
from ppsim.base.numbers import align_decimals
from ppsim.base.patterns import matches
from ppsim.base.tables import TABLES, table_suffix
from ppsim.engine.simple.columns import Column, columns_of
from ppsim.errors import InputError, PpsimError
from ppsim.inputs.profile.chunk_times import is_law_file
from ppsim.prices.build import (
    build_costs,
    build_schedule,
    check_taken,
    refuse_unused,
    stages_of,
    times_used,
)
from ppsim.prices.cap import Cap, fits_none, note_above_gpu, read_cap
from ppsim.prices.chunked import count_chunks
from ppsim.prices.options import NAMING_FILES, CostOptions, ask_costs
from ppsim.prices.parts.modelled import ModelledOptions, price_by_model
from ppsim.prices.several import find_sizes, options_taken, refuse_other_steps, time_schedule

if TYPE_CHECKING:
    from rich.console import Console
    from rich.style import Style
    from rich.table import Table

    from ppsim.core.schedule import Schedule
    from ppsim.show.drawing.card_bars import Bars

MOST_SAID = 3  # numbers of devices in the verdict
MOST = 10_000  # shapes of a sweep
SCALES = ("mb_scale", "slice_scale")
# Keys of a row in the results file that are not part of the answer: the options of times that the
# schedule uses, and the message and the hint of its refusal.
USED, REFUSAL = "times_used", "refusal"
OTHER_SHAPES = "other --devices, --mb or --chunks"
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class SweepRequest(Request):
    """Time schedules over devices, microbatches and chunks.

    COUNTS are numbers (4,8), steps (8:64:8 is 8, 16, ... 64) or factors (4:16:x2 is 4, 8, 16).

    -o draws time against memory with the Pareto front, or with --heat a heat map, or writes the
    table (csv, json, parquet). A page (html) has both pictures.

    \b
      ppsim sweep 1f1b zb-1p interleaved --devices 8 --mb 8:64:8 --chunks 2,4
      ppsim sweep 1f1b zb-1p dualpipe --devices 4:16:x2 --mb 32 --metric peak -o pareto.svg
      ppsim sweep 1f1b zb-1p interleaved --devices 4,8 --mb 8:128:8 --heat -o heat.pdf -o both.html
      ppsim sweep 1f1b zb-1p --devices 2,4,8 --mb 32 --model llama3-8b --cluster dgx-h100 --tp 2
      ppsim sweep forward-only --devices 1,2 --chunked 8192 --law 9,4e-4,.05,5e-7 --metric makespan
      ppsim sweep 1f1b zb-1p --devices 8 --mb 8:512:8 --dask tcp://10.0.0.1:8786 --results r.parquet
    """

    question: ClassVar[str] = "sweep"
    place: ClassVar[tuple[str, int]] = ("How long a step takes, and which schedule is best", 3)
    tables: ClassVar[bool] = True
    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            ("metric",),
            lambda g: not g["as_json"],
            "--json has every metric, so {options} has no effect",
        ),
        Need(
            ("stages", "devices"),
            lambda g: not (g["stages"] and g["devices"]),
            "{options} both set the devices of a sweep",
            "give one of them, and --chunks or NAME:V",
        ),
        Need(
            ("mbs",),
            lambda g: bool(g["model"]),
            "{options} needs the microbatches of a model",
            "add --model NAME --cluster NAME",
        ),
    )
    schedules: SeveralSchedules = group(SeveralSchedules, "Shape")
    grid: GridOptions = group(GridOptions, "Shape")
    metric: str = common(
        "--metric",
        type=click.Choice([column.name for column in columns_of("sweep")]),
        default="bubble_rate",
        help="The metric of the table.",
    )
    costs: CostOptions = group(CostOptions, "Costs")
    modelled: ModelledOptions = group(ModelledOptions, "Costs")
    mbs: int | None = mbs_option("--model")
    network: NetworkOptions = group(NetworkOptions, "Messages")
    cap: NumberTexts | None = cap_option()
    output: OutputOptions = group(OutputOptions, "Output")
    heat: bool = flag(
        "--heat",
        help="Draw --metric over the grid as a heat map, instead of time against memory.",
        common=True,
    )
    tasks: TaskOptions = group(TaskOptions, "Work")
    face: FaceOptions = group(FaceOptions, "Output")

    def check(self) -> None:
        """Raise InputError for a format that cannot show a sweep."""
        from ppsim.show.files.tradeoff import check_suffix

        for _, suffix in find_targets(self.output, tables=True):
            if suffix not in TABLES:
                check_suffix(suffix, self.heat and suffix != ".html")
            else:
                table_suffix(f"x{suffix}")


class Shapes(list[dict[str, Any]]):
    """The rows of a sweep; a notebook shows them as the answer's card.

    Attributes:
        answer: the whole answer, with its verdict.
    """

    def __init__(self, answer: Sweep) -> None:
        super().__init__(answer.table)
        self.answer = answer

    def _repr_html_(self) -> str:
        """The card that a notebook shows."""
        return self.answer._repr_html_()


def sweep(schedules: Sequence[str], **options: Any) -> Shapes:
    """Return the rows of ``ppsim sweep --json``, for pandas, polars or pyarrow.

    A row is a schedule in a shape. If the schedule refuses the shape, ``applies`` is False and
    ``reason`` says why.

    Args:
        schedules: names or files.
        options: the options of ``ppsim sweep`` by name; ``devices``, ``microbatches`` and
            ``chunks`` may be lists.

    Raises:
        InputError: an option is refused, or no shape of the grid works.
    """
    return Shapes(answer(ask(SweepRequest, {"names": schedules} | options)))


def answer(request: SweepRequest) -> Sweep:
    """Time the schedules of the request on each shape of the grid."""
    costs, network = price_by_model(request.costs, request.network, request.modelled, request.mbs)
    if costs.modelled:
        note_above_gpu(request.cap, costs.modelled.machine)
    shapes = _grid_shapes(request, costs)
    rows = _time_shapes(request, shapes, costs, network)
    timed = [pair for pair, row in zip(shapes, rows, strict=True) if row["applies"]]
    if not timed:
        message, hint = rows[-1].get(REFUSAL, [rows[-1]["reason"], ""])
        raise InputError(f"no shape of the grid works; the last: {message}", hint or OTHER_SHAPES)
    numbers = [row for row in rows if row["applies"]]
    if all(_value(row, request.metric) is None for row in numbers):
        raise InputError(
            f"none of these schedules has a {request.metric}, because none repeats",
            "decode or forward-only",
        )
    used = set().union(*(row[USED] for row in numbers))
    refuse_unused(used, [row["schedule"] for row in numbers], costs)
    schedules = _first_schedule_of_each(timed, costs, network)
    refuse_other_steps(schedules)
    prices = build_costs(schedules[timed[0][0].spec], costs, network)
    inputs = inputs_of(TypedOptions.from_request(request), prices)
    answered = tuple(
        {name: value for name, value in row.items() if name not in (USED, REFUSAL)} for row in rows
    )
    return Sweep(request, tuple(cell for cell, _ in shapes), answered, inputs)


def _grid_shapes(request: SweepRequest, costs: CostOptions) -> list[tuple[Cell, ShapeOptions]]:
    """Return the cells of the grid, each with its shape.

    Raises:
        InputError: there are too many, no size is given, or an option has no effect.
    """
    specs, grid = request.schedules.specs, request.grid
    if stages := stages_of(costs, grid.stages, grid.devices):
        grid = replace(grid, stages=[stages])
    size, count = grid.stages or grid.devices, grid.microbatches or costs.chunked
    stated = find_sizes(specs, size, count)
    sizes: dict[str, Any] = {name: [number] for name, number in stated.items()}
    grid = replace(grid, **sizes)
    check_taken(specs, grid)
    shapes = list(islice(cells_of(specs, grid, costs), MOST + 1))
    if len(shapes) > MOST:
        raise InputError(
            f"a sweep times at most {MOST:,} shapes, and these are more",
            "fewer --devices, --mb or --chunks",
        )
    return shapes


def _time_shapes(
    request: SweepRequest,
    shapes: list[tuple[Cell, ShapeOptions]],
    costs: CostOptions,
    network: NetworkOptions,
) -> list[Mapping[str, Any]]:
    """Return the row of each shape, timed by the workers that the request asks for."""
    from ppsim.schedules import reads_ops

    files = files_of(request.schedules.specs, costs, network)
    work = {cell.key: (cell, shape) for cell, shape in shapes}
    run_in_process = [cell.key for cell, _ in shapes if reads_ops(cell.spec)]
    with progress(not request.face.as_json and not request.face.quiet) as report:
        cap = read_cap(request.cap) if request.cap else None
        fewest = min((cell.devices for cell, _ in shapes), default=1) if costs.chunked else None
        time_cell = TimeCell(costs, network, files if request.tasks.dask else {}, cap, fewest)
        contents = {path: sha256(sent.content).hexdigest() for path, sent in files.items()}
        # rows of a results file are valid for these inputs; without sizes, so that a grid may grow
        valid_for = [_own_options(request.grid), asdict(costs), asdict(network), contents]
        if cap:
            valid_for.append(asdict(cap))
        found = finish_tasks(
            time_cell,
            work,
            request.tasks,
            valid_for,
            report,
            run_in_process,
            is_sound=partial(_is_sound, cap is not None),
        )
    return [found[cell.key] for cell, _ in shapes]


def _first_schedule_of_each(
    timed: Sequence[tuple[Cell, ShapeOptions]], costs: CostOptions, network: NetworkOptions
) -> dict[str, Schedule]:
    """Return the first schedule of each name in the grid."""
    schedules: dict[str, Schedule] = {}
    for cell, shape in timed:
        if cell.spec not in schedules:
            taken = options_taken(cell.spec, shape)
            schedules[cell.spec] = build_schedule(cell.spec, taken, costs, network, quiet=True)
    return schedules


@dataclass(frozen=True)
class Sweep(Answer[SweepRequest]):
    """Schedules over a grid of shapes.

    Attributes:
        cells: the schedule and the shape of each row.
        rows: the numbers of each cell, or the reason why the schedule refuses the shape.
        inputs: the command, version and settings that repeat the answer.
    """

    cells: tuple[Cell, ...]
    rows: tuple[Mapping[str, Any], ...]
    inputs: Mapping[str, Any]

    @property
    def table(self) -> list[dict[str, Any]]:
        """The cells as rows of numbers; one whose schedule refuses the shape has the reason."""
        return list(self.to_json()["shapes"])

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.sweep/1``."""
        from ppsim.analysis.compare import sweep_object

        capped = {"cap": self.request.cap, "fits": self._any_fits} if self.request.cap else {}
        return sweep_object(self.rows, self.inputs) | capped

    @property
    def _any_fits(self) -> bool:
        return any(map(_fits, self.rows))

    def error_after_output(self) -> PpsimError | None:
        """The error that nothing fits the cap, with the least cap that something fits, or None."""
        if self._any_fits:
            return None
        excesses = [row["excess"] for row in self.rows if row["applies"]]
        return fits_none(self.request.cap or "", excesses)

    @property
    def verdict(self) -> str:
        """The schedule and shape with the least metric: of all, or on each number of devices if the
        metric is not a share.
        """
        lines = [*self._best_lines()]
        verdict = "; ".join(lines[:MOST_SAID])
        if len(lines) > MOST_SAID:
            numbers = count_text(len(lines) - MOST_SAID, "more number")
            verdict += f"; below, the least of {numbers} of devices"
        return verdict

    @property
    def tone(self) -> str:
        """The tone of a fault if nothing fits the cap."""
        return "name" if self._any_fits else "fault"

    def line(self) -> Iterator[Block]:
        """A line for each number of devices."""
        yield from (Line(line, 2) for line in self._best_lines())

    def _best_lines(self) -> Iterator[str]:
        """Yield a sentence on the schedule and shape with the least metric, one for each number of
        devices if the metric depends on it.
        """
        metric = self.request.metric
        found = [
            (value, cell)
            for cell, row in zip(self.cells, self.rows, strict=True)
            if (value := _value(row, metric)) is not None and _fits(row)
        ]
        if not found:
            yield f"no shape fits the cap of {self.request.cap}"
            return
        unit = next(row["unit"] for row in self.rows if row["applies"])
        counts = sorted({cell.devices for _, cell in found})
        is_share = _column(metric).form == "share"
        for comparable in [counts] if is_share else [[count] for count in counts]:
            group = [(value, cell) for value, cell in found if cell.devices in comparable]
            least, (name, devices, microbatches) = min(group, key=lambda pair: pair[0])
            size = count_text(int(devices), "device")
            shape = f"{size} with {count_text(microbatches, 'microbatch')}"
            among = f" of {count_text(len(group), 'shape')}" if len(group) > 1 else ""
            yield (
                f"{name} on {shape} has the least {metric}{among}, "
                f"{_column(metric).text(least, unit)}"
            )

    def blocks(self) -> Iterator[Block]:
        """Tables of the metric, and sentences on its least values."""
        yield ""
        yield DrawnBlock(self._tables, at_least=100)
        yield Line(
            f"* least {self.request.metric} for that M on as many devices; - the schedule refuses "
            f"the shape"
        )
        if self.request.cap:
            cap = read_cap(self.request.cap)
            amount = cap.describe(self.request.costs) + " a device" * cap.in_bytes
            yield Line(f"! over the cap of {amount}")
        if len(lines := [*self._best_lines()]) > MOST_SAID:
            yield from (Line(line, 2) for line in lines)

    def bars(self) -> Bars:
        """The metric of each cell as bars, the least first."""
        from ppsim.show.drawing.card_bars import Bar, Bars

        metric = self.request.metric
        column = _column(metric)
        found = sorted(
            (value, f"{row['name']} {row['devices']}x{row['microbatches']}", row["unit"])
            for row in self.rows
            if (value := _value(row, metric)) is not None and _fits(row)
        )
        bars = [Bar(name, value, column.text(value, unit)) for value, name, unit in found]
        return Bars(f"{metric} by devices x microbatches, the least first", bars)

    def writers(self, output: OutputOptions) -> Writers:
        """Return the writer of each -o: the table, time against memory, or heat maps."""
        from ppsim.analysis.heat import heat_map
        from ppsim.analysis.tradeoff import Point

        timed = [row for row in self.rows if row["applies"]]
        points = [
            Point(
                f"{r['name']} {r['devices']}x{r['microbatches']}",
                r["makespan_per_mb"],
                r["peak_activations_share"],
                r["name"].partition(":")[0],
                f"{r['devices']} devices",
                _fits(r),
            )
            for r in timed
        ]
        key = _column(self.request.metric).key
        columns = [
            column for column in columns_of("sweep") if any(column.key in row for row in timed)
        ]
        # the map of the metric comes first
        heat = heat_map(sorted(columns, key=lambda column: column.key != key), self.rows)
        draw = None
        if self.request.heat:
            from ppsim.show.files.tradeoff import save_heat

            draw = partial(save_heat, heat, key, width=output.width, inputs=self.inputs)
        time = f"makespan per microbatch ({timed[0]['unit']})"
        return tradeoff_writers(
            points,
            time,
            self.inputs,
            output,
            table=self._write_table,
            heat=heat,
            figure=draw,
            verdict=self.verdict,
        )

    def _write_table(self, target: str, suffix: str) -> None:
        from ppsim.analysis.compare import mark_shapes

        marked = [
            {**row, "pareto": best}
            for row, best in zip(self.rows, mark_shapes(self.rows), strict=True)
        ]
        write_table(marked, self.whole_object, self.inputs, target, suffix)

    def _tables(self, screen: Console) -> Iterable[Block]:
        """Yield tables with a row for each schedule and number of devices, and a column for each
        number of microbatches; the best of each column is marked.
        """
        metric = self.request.metric
        values = {
            cell: _value(row, metric) for cell, row in zip(self.cells, self.rows, strict=True)
        }
        best: dict[tuple[float, int], float] = {}
        over = {cell for cell, row in zip(self.cells, self.rows, strict=True) if not _fits(row)}
        for cell, value in values.items():
            _, devices, m = cell
            if value is not None and cell not in over:
                best[devices, m] = min(value, best.get((devices, m), value))
        column = _column(metric)
        texts = align_decimals(
            ["-" if value is None else column.text(value) for value in values.values()]
        )
        cells = {
            cell: text
            if value is None
            else text + ("!" if cell in over else "*" if value == best[cell[1:]] else " ")
            for text, (cell, value) in zip(texts, values.items(), strict=True)
        }
        counts = sorted({m for _, _, m in self.cells})
        looks = _shade(values, count_colours(screen)) if shows_colours(screen) else {}
        left = max(
            len(f"{name}  {devices}  ")
            for name, devices, _ in [Cell("schedule", 0, 0), *self.cells]
        )
        wide = max(len(f"M={counts[-1]} "), *map(len, cells.values()))
        fits = max(1, (screen.width - left) // (wide + 2))
        unit = next(row["unit"] for row in self.rows if row["applies"])
        title = f"{metric} ({unit})" if _column(metric).form == "time" else metric
        yield heading(title)
        for first in range(0, len(counts), fits):
            yield _table_of(cells, looks, counts[first : first + fits], wide)


def _shade(values: Mapping[Cell, float | None], colours: int) -> dict[Cell, Style]:
    """Return the style of each cell on a terminal with ``colours`` colours: darker for more."""
    from rich.style import Style

    from ppsim.analysis.heat import shades_of
    from ppsim.show.drawing.palette import FEW_COLOURS, HEAT, XTERM_HEAT, blend, text_colour
    from ppsim.show.drawing.terminal import xterm_style

    shades = shades_of(np.array([np.nan if value is None else value for value in values.values()]))

    def style(shade: float) -> Style:
        if colours == FEW_COLOURS:
            return xterm_style(XTERM_HEAT[round(shade * (len(XTERM_HEAT) - 1))])
        fill = blend(HEAT[1], HEAT[0], shade)
        return Style(color=text_colour(fill), bgcolor=fill)

    shaded = zip(values, shades.tolist(), strict=True)
    return {cell: style(shade) for cell, shade in shaded if values[cell] is not None}


def _table_of(
    cells: Mapping[Cell, str], looks: Mapping[Cell, Style], counts: list[int], wide: int
) -> Table:
    """Return a table with a column for each M of ``counts``; cells have ``wide`` letters."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("schedule", no_wrap=True)
    table.add_column("P", justify="right")
    for m in counts:
        table.add_column(f"M={m} ".rjust(wide), no_wrap=True)
    for name, devices in dict.fromkeys((name, devices) for name, devices, _ in cells):
        row = [Cell(name, devices, m) for m in counts]
        texts = [(cells.get(cell, "").rjust(wide), looks.get(cell, "")) for cell in row]
        shown = (Text(text, look or TONES["good" * text.endswith("*")]) for text, look in texts)
        table.add_row(name, str(devices), *shown)
    return table


def _value(row: Mapping[str, Any], metric: str) -> float | None:
    return row.get(_column(metric).key) if row["applies"] else None


def _fits(row: Mapping[str, Any]) -> bool:
    return bool(row["applies"] and row.get("fits", True))


def _column(metric: str) -> Column:
    return next(column for column in columns_of("sweep") if column.name == metric)


class Cell(NamedTuple):
    """One cell of the grid: a schedule's spelling, its devices and its microbatches.

    ``devices`` is a fraction if the stages do not divide into the schedule's chunks.
    """

    spec: str
    devices: float
    microbatches: int

    @property
    def key(self) -> str:
        """The cell as text."""
        return f"{self.spec} {self.devices}x{self.microbatches}"


@dataclass(frozen=True)
class TimeCell:
    """A function that times a cell in its shape and returns the row.

    Attributes:
        costs: the options of costs.
        network: the options of messages.
        files: the user's files that options and schedules name, by path; empty if all tasks run on
            this machine.
        cap: the memory cap of a device.
        fewest: the number of devices whose stages the law of chunks is for; None without chunks.
    """

    costs: CostOptions
    network: NetworkOptions
    files: Mapping[str, SentFile] = field(default_factory=dict)
    cap: Cap | None = None
    fewest: float | None = None

    def __call__(self, task: tuple[Cell, ShapeOptions]) -> dict[str, Any]:
        """Time one cell, and return its row."""
        from ppsim.analysis.compare import row_object

        cell, shape = task
        placed = {path: sent.place() for path, sent in self.files.items()}
        source, suffix, rest = cell.spec.partition(".py")
        spec = placed.get(source + suffix, source + suffix) + rest
        costs, cluster = self._costs_with(placed), self.network.cluster
        if self.fewest is not None:
            costs = _share_law(costs, self.fewest, cell.devices)
        network = replace(self.network, cluster=placed.get(cluster, cluster) if cluster else None)
        timed = time_schedule(spec, shape, costs, network, self.cap)
        row = _plain(row_object(timed, "rows", "sweep"))
        if timed.timeline:
            row[USED] = sorted(times_used(timed.timeline.schedule, costs))
        if timed.refused:
            row[REFUSAL] = [str(timed.refused), timed.refused.hint]
        # texts name the user's paths, not those where the files were placed
        for path, place in placed.items():
            for name in ("name", "reason"):
                if name in row and place != path:
                    row[name] = row[name].replace(place, path)
            if REFUSAL in row and place != path:
                row[REFUSAL] = [text.replace(place, path) for text in row[REFUSAL]]
        return row

    def _costs_with(self, placed: Mapping[str, str]) -> CostOptions:
        """Return the options of costs with the places of sent files instead of their paths."""
        given: dict[str, Any] = {
            name: getattr(self.costs, name) or "" for name in (*NAMING_FILES, "law")
        }
        given = {name: placed.get(path, path) or None for name, path in given.items()}
        for name in SCALES:
            parts = (text.rpartition("=") for text in getattr(self.costs, name))
            given[name] = tuple(
                kinds + equals + placed.get(path, path) for kinds, equals, path in parts
            )
        return replace(self.costs, **given)


def _is_sound(capped: bool, _: str, row: Mapping[str, Any]) -> bool:
    """Return True if a row has all keys of :class:`TimeCell`'s rows, with values of their types."""
    if row.get("applies") is not True:
        refused = {"name": str, "applies": bool, "reason": str, f"{REFUSAL}?": [str]}
        return matches(row, refused) and len(row.get(REFUSAL, ["", ""])) == 2
    columns = [column for place in ("rows", "sweep") for column in columns_of(place)]
    numbers = {column.key + "?" * column.of_round: float for column in columns}
    sizes = dict.fromkeys(("devices", "stages", "chunks", "microbatches"), int)
    texts = dict.fromkeys(("name", "schedule", "unit"), str)
    verdict = {"fits": bool, "excess": float} if capped else {}
    listed = {"peak_activations": [int], USED: [str]}
    kinds = {"applies": bool, **texts, **sizes, **numbers, **verdict, **listed}
    return matches(row, kinds) and all(row[name] > 0 for name in sizes)


def files_of(
    specs: tuple[str, ...], costs: CostOptions, network: NetworkOptions
) -> dict[str, SentFile]:
    """Return the files that options and schedules name, by path, to send them with the tasks."""
    parts = [spec.partition(".py") for spec in specs]
    code = [source + suffix for source, suffix, _ in parts if suffix]
    factors = [text.rpartition("=")[2] for name in SCALES for text in getattr(costs, name)]
    law = costs.law if is_law_file(costs.law or "") else None
    return send_files(
        [
            *specs,
            *code,
            *factors,
            *(getattr(costs, name) for name in NAMING_FILES),
            law,
            network.cluster,
        ]
    )


def cells_of(
    specs: tuple[str, ...], grid: GridOptions, costs: CostOptions
) -> Iterator[tuple[Cell, ShapeOptions]]:
    """Yield each cell of the grid with its shape.

    A prompt in chunks without a number of microbatches has its best number of chunks.

    Raises:
        InputError: --chunks is given, and all schedules have their numbers of chunks.
    """
    from ppsim.schedules import family_of, schedule_from, split_chunks

    families = {spec: family_of(spec) for spec in specs}
    varied = {
        spec
        for spec, family in families.items()
        if family and family.chunks > 1 and not split_chunks(spec)[1]
    }
    if grid.chunks and not varied:
        raise InputError(
            f"--chunks has no effect: the chunks of {', '.join(specs)} are fixed",
            "NAME:V, or leave it out",
        )
    sizes = grid.stages or grid.devices or ()
    for spec in specs:
        family = families[spec]
        if family is None:
            schedule = schedule_from(spec)  # a file of ops, which states its shape
            cell = Cell(spec, schedule.n_devices, schedule.whole_microbatches)
            yield cell, ShapeOptions(**_own_options(grid))
            continue
        names = [spec]
        if grid.chunks and spec in varied:
            names = [f"{spec}:{chunks}" for chunks in grid.chunks]
        numbers = {size: grid.microbatches or [] for size in sizes}
        if costs.chunked and not grid.microbatches:
            numbers = {size: [_count_chunks(spec, costs, min(sizes), size)] for size in sizes}
        for name, size, m in ((n, s, m) for n in names for s in sizes for m in numbers[s]):
            stages, devices = (size, None) if grid.stages else (None, size)
            share = size / (split_chunks(name)[1] or family.chunks) if grid.stages else size
            cell = Cell(name, int(share) if share == int(share) else share, m)
            yield cell, ShapeOptions(stages, devices, None, m, **_own_options(grid))


def _own_options(grid: GridOptions) -> dict[str, Any]:
    """Return the options of the shape that only some families have."""
    return {name: getattr(grid, name) for name in OWN}


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with lists and numbers instead of arrays."""
    return {
        name: value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        for name, value in row.items()
    }


def _count_chunks(spec: str, costs: CostOptions, fewest: int, devices: int) -> int:
    """Return the number of chunks of a prompt on ``devices`` devices; the law is for ``fewest``."""
    return count_chunks(spec, ask_costs(_share_law(costs, fewest, devices)), devices)


def _share_law(costs: CostOptions, fewest: float, devices: float) -> CostOptions:
    """Return the costs on ``devices`` devices of a law that is for a stage on ``fewest`` devices.

    On more devices a stage has fewer layers, and its time shrinks in proportion.
    """
    if devices == fewest or not (costs.tf is None or isinstance(costs.tf, int | float)):
        return costs
    return replace(costs, tf=(1.0 if costs.tf is None else costs.tf) * fewest / devices)
