"""Show where the time of two runs differs: by cause, device and op."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from ppsim.ask.answer import Answer
from ppsim.ask.blocks import Block, Line, Table
from ppsim.ask.given import TypedOptions
from ppsim.ask.groups import (
    SHAPE,
    FaceOptions,
    FigureOptions,
    NetworkOptions,
    ShapeOptions,
    iteration_option,
)
from ppsim.ask.options import Request, group, option
from ppsim.ask.request import ask
from ppsim.ask.types import ScheduleName
from ppsim.ask.words import shape_line, title_of, title_with_chunks
from ppsim.ask.write import Writers, document_writers, inputs_of
from ppsim.base.numbers import MINUS, format_number, format_part
from ppsim.errors import InputError
from ppsim.prices.options import TIMING, CostOptions
from ppsim.questions.across.explain_text import bar
from ppsim.questions.runs.stated import table_unit
from ppsim.questions.runs.timed import MEASURED, STATED, TimedRun, time_runs

if TYPE_CHECKING:
    from ppsim.analysis.diff import Difference
    from ppsim.core.timeline import Timeline
    from ppsim.show.files.document import Document, PageExplanation

MOST_DEVICES = 16  # rows of the table of devices
MOST_OPS = 3  # ops listed for each kind of change
COLUMNS = 80  # width of a table in a pipe
BACKWARD = "backward"  # the sum of B, I and W


@dataclass(frozen=True, kw_only=True)
class DiffRequest(Request):
    """Show where the time of two runs differs: by cause, by device, by op.

    A and B are schedules (1f1b, interleaved:2), which are simulated with the given options, or
    files with times, such as a run's JSON or trace, or folders of real runs (Primus, Kineto) and
    records (FILE:NAME for one of several), whose times stay as they are. If one is a file and the
    other a schedule, the schedule is simulated in the shape of the file's run and, without options
    of costs, with its median times: the prediction of that run, or of another schedule.

    All differences are B - A. Every moment of a device is in an op of some kind or idle for some
    cause, so the differences sum to the difference of the makespans.

    \b
      ppsim diff 1f1b zb-1p --devices 4 --mb 8
      ppsim diff before.json after.json -o diff.svg
      ppsim diff 1f1b traces/
      ppsim diff traces/ zb-1p -o diff.html
    """

    question: ClassVar[str] = "diff"
    place: ClassVar[tuple[str, int]] = ("Why, and what would help", 2)
    specs: tuple[str, ...] = option(metavar="A B", nargs=-1, type=ScheduleName())
    iteration: str = iteration_option("median")
    shape: ShapeOptions = group(ShapeOptions, "Shape")
    costs: CostOptions = group(CostOptions, "Costs")
    network: NetworkOptions = group(NetworkOptions, "Messages")
    output: FigureOptions = group(FigureOptions, "Output")
    face: FaceOptions = group(FaceOptions, "Output")

    def check(self) -> None:
        """Raise InputError for another number of runs than two."""
        if len(self.specs) < 2:
            hint = "a name such as 1f1b (ppsim list), or a file, for each"
        elif len(self.specs) > 2:
            hint = "ppsim compare"
        else:
            return
        raise InputError(f"diff takes two runs, got {len(self.specs)}", hint)


def diff(before: str, after: str, **options: Any) -> Any:
    """Return the difference of two runs' device time by cause, in the unit of their times.

    Args:
        before: a schedule, or a file or folder with times.
        after: another one; differences are ``after`` - ``before``.
        options: the options of ``ppsim diff`` by name.

    Raises:
        InputError: an option is refused, or files contain no run.
    """
    return answer(ask(DiffRequest, {"specs": (before, after)} | options))


def answer(request: DiffRequest) -> Diff:
    """Time both runs, and return their differences."""
    from ppsim.analysis.diff import difference
    from ppsim.real.traces.timers import shows_timers
    from ppsim.schedules import reads_ops

    given, specs = TypedOptions.from_request(request), request.specs
    if logs := [spec for spec in specs if shows_timers(spec)]:
        raise InputError(
            f"{logs[0]} has totals of timers, not a run",
            f"ppsim read {logs[0]}, which shows them",
        )
    units = {spec: unit for spec in specs if (unit := table_unit(request.costs.unit, spec))}
    typed = given.spellings(tuple(name for name in TIMING if not (units and name == "unit")))
    runs = time_runs(
        specs, request.shape, request.costs, request.network, typed, request.iteration, units
    )
    if given.has("iteration") and all(run.source != MEASURED for run in runs):
        raise InputError(
            "--iteration chooses a step of a real run, and neither run is one", "leave it out"
        )
    sizes = given.spellings(SHAPE)
    if sizes and all(run.source in (STATED, MEASURED) or reads_ops(run.spec) for run in runs):
        verb = "has" if len(sizes) == 1 else "have"
        raise InputError(
            f"{', '.join(sizes)} {verb} no effect: the files state their shape", "leave it out"
        )
    simulated = [run.costs for run in runs if run.source not in (STATED, MEASURED)]
    inputs = inputs_of(given, simulated[0] if simulated else None)
    return Diff(request, difference(runs[0].idle, runs[1].idle), tuple(runs), inputs)


@dataclass(frozen=True)
class Diff(Answer[DiffRequest]):
    """The differences of two runs in time.

    Attributes:
        difference: the difference by cause, device and op.
        runs: both runs.
        inputs: the command, version and settings that repeat the answer.
    """

    difference: Difference
    runs: tuple[TimedRun, ...]
    inputs: Mapping[str, Any]

    @property
    def _names(self) -> tuple[str, ...]:
        specs = self.request.specs
        return ("A", "B") if specs[0] == specs[1] else specs

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.diff/1``."""
        from ppsim.analysis.diff import diff_object

        return diff_object(self.difference, self._names, self.inputs) | {
            "sources": [run.source for run in self.runs]
        }

    @property
    def verdict(self) -> str:
        """The faster run, the difference, and its largest causes, in one sentence."""
        from ppsim.analysis.diff import closing

        return closing(self.difference, self._names)

    def blocks(self) -> Iterator[Block]:
        """Both runs, and the differences by cause, by device and by op."""
        yield ""
        yield from _tables(self.difference, self.runs)

    def charts(self) -> Sequence[tuple[str, Timeline]]:
        """Both runs."""
        return [
            (f"{letter}: {_title(run)}", run.timeline)
            for letter, run in zip("AB", self.runs, strict=True)
        ]

    def writers(self, output: FigureOptions) -> Writers:
        """Return the writer of each -o: both runs, one above the other."""
        titles = [f"{letter}: {_title(run)}" for letter, run in zip("AB", self.runs, strict=True)]
        timelines = [idle.timeline for idle in self.difference.runs]

        def complete(document: Document, suffix: str) -> Document:
            if suffix != ".html":
                return document
            explanation = _page_explanation(self.difference, self._names)
            return replace(document, explanation=explanation)

        return document_writers(
            timelines,
            titles,
            self.inputs,
            output,
            self.difference.runs,
            complete,
            verdict=self.verdict,
        )


def _title(run: TimedRun) -> str:
    """Return the schedule's name with its chunks; for a file also the path."""
    name, title = title_of(run.timeline.schedule), title_with_chunks(run.timeline.schedule)
    if run.source not in (STATED, MEASURED) or name == run.spec:
        return title
    return f"{title} ({run.spec})"


def _tables(found: Difference, runs: tuple[TimedRun, ...]) -> Iterator[Block]:
    """Yield the sources of both runs, tables by cause and device, and lines on ops."""
    from ppsim.analysis.idle import CAUSES

    unit = found.runs[0].timeline.unit
    for letter, run, makespan in zip("AB", runs, found.makespans, strict=True):
        size = shape_line(run.timeline.schedule)
        time = f"{format_number(makespan)} {unit}"
        yield Line(f"{letter}  {_title(run)}: {size}, {run.source}, {time}", 3)
    yield ""
    yield Line(f"where the time goes, in {unit} per device on average:")
    rows = [*_cause_rows(found)]

    def tone(row: int, column: int) -> str:
        if column == 3 and rows[row][0] in (*CAUSES, "makespan"):
            return {"+": "bad", MINUS: "good"}.get(rows[row][3][0], "")
        return "" if column else "name"

    yield Table(["", "A", "B", "B - A", "meaning"], rows, COLUMNS, left=("meaning",), tone=tone)
    if found.by_device is not None:
        yield ""
        yield Line("device by device, B - A:")
        yield from _device_table(found)
    yield ""
    for line in _op_lines(found):
        yield Line(line, 2)


def _cause_rows(found: Difference) -> Iterator[list[str]]:
    """Yield a row for each term of the time, and a last one for the makespans."""
    from ppsim.analysis.diff import MEANINGS, TERMS, signed_part

    first, second = found.means
    for name, change in found.by_cause.items():
        term = TERMS.index(name)
        numbers = (format_part(float(mean[term]), max(found.makespans)) for mean in (first, second))
        yield [name, *numbers, signed_part(change, found), MEANINGS[name]]
    ends = found.makespans
    yield ["makespan", *map(format_number, ends), signed_part(ends[1] - ends[0], found), ""]


def _device_table(found: Difference) -> Iterator[Block]:
    """Yield a table with a row for each device and a column for each term that differs."""
    from ppsim.analysis.diff import TERMS, signed_part

    by_device = found.by_device
    assert by_device is not None
    texts = [[signed_part(float(change), found) for change in row] for row in by_device]
    shown = [term for term in range(len(TERMS)) if any(row[term] != "0" for row in texts)]
    if not shown:
        yield "  no device differs"
        return
    order = sorted(range(len(by_device)), key=lambda device: -float(abs(by_device[device]).sum()))
    devices = sorted(order[:MOST_DEVICES])
    rows = [[f"dev {d}", *(texts[d][term] for term in shown)] for d in devices]
    size = [float(abs(by_device[:, term]).sum()) for term in shown]
    spare = [TERMS[term] for _, term in sorted(zip(size, shown, strict=True))]
    yield Table(["", *(TERMS[term] for term in shown)], rows, COLUMNS, spare)
    if len(devices) < len(order):
        yield Line(f"the {len(devices)} devices that differ most of {len(order)}: --json has all")


def _op_lines(found: Difference) -> Iterator[str]:
    """Yield lines on the ops that both runs have: their number, and the largest changes of mean
    times, times and starts.
    """
    schedules = [idle.timeline.schedule for idle in found.runs]
    stages = [schedule.n_stages for schedule in schedules]
    if stages[0] != stages[1]:
        yield f"no op is in both runs: they cut the model into {stages[0]} and {stages[1]} stages"
        return
    from ppsim.analysis.diff import NEGLIGIBLE, largest, signed_part, stage_changes

    counts = " and ".join(str(len(schedule)) for schedule in schedules)
    yield f"{len(found.ops)} ops are in both runs (of {counts})"
    whole, schedule = max(found.makespans), schedules[0]
    least = NEGLIGIBLE * whole
    if rows := stage_changes(found)[:MOST_OPS]:
        parts = (
            f"{name} {format_part(a, whole)} to {format_part(b, whole)}" for name, a, b in rows
        )
        yield f"mean time of an op: {' · '.join(parts)}"
    for what, change in (("time", found.duration_change), ("start", found.start_change)):
        ops = largest(change, MOST_OPS, least)
        parts = (
            f"{schedule.label(int(found.ops[i, 0]))} {signed_part(float(change[i]), found)} "
            f"(dev {schedule.device[found.ops[i, 0]]})"
            for i in ops
        )
        yield f"largest change of {what}: {' · '.join(parts) if ops else 'none'}"


def _page_explanation(found: Difference, names: tuple[str, ...]) -> PageExplanation:
    """Return the differences for a page: by cause, by device and cause, and pairs of equal ops."""
    from ppsim.analysis.diff import MEANINGS, TERMS, closing, signed_part
    from ppsim.show.files.document import PageExplanation

    unit, ends = found.runs[0].timeline.unit, found.makespans
    joined = _backwards(found)
    changes = [*_joined_changes(found.by_cause, joined).items(), ("makespan", ends[1] - ends[0])]
    meanings = {
        **MEANINGS,
        BACKWARD: f"{' + '.join(joined)}: only one of the runs splits backwards",
    }
    bars = [
        bar(name, meanings.get(name, ""), 0.0, value, signed_part(value, found))
        for name, value in changes
    ]
    by_device = found.by_device if found.by_device is not None else ()
    devices = [
        _joined_changes(dict(zip(TERMS, map(float, row), strict=True)), joined) for row in by_device
    ]
    shown = [name for name in (devices[0] if devices else ()) if any(row[name] for row in devices)]
    rows = [
        {
            "device": device,
            "values": [row[name] for name in shown],
            "texts": [signed_part(row[name], found) if row[name] else "" for name in shown],
        }
        for device, row in enumerate(devices)
    ]
    matrix = {"heading": f"B − A by device, {unit}", "columns": shown, "rows": rows}
    heading = f"B − A, {unit} of a device on average"
    return PageExplanation(
        {"lead": closing(found, names), "heading": heading, "bars": bars, "matrix": matrix},
        twins=found.ops,
    )


def _backwards(found: Difference) -> list[str]:
    """Return the kinds of backward to sum: all that occur, if the runs have different kinds."""
    from ppsim.analysis.diff import TERMS

    kinds: list[str] = [name for name in ("B", "I", "W") if name in found.by_cause]
    runs = [{name for name in kinds if mean[TERMS.index(name)] > 0} for mean in found.means]
    return kinds if runs[0] != runs[1] and len(kinds) > 1 else []


def _joined_changes(changes: Mapping[str, float], joined: Sequence[str]) -> dict[str, float]:
    """Return changes with those of ``joined`` summed, at the place of the first."""
    total = sum(changes[name] for name in joined)
    named = {BACKWARD if name in joined else name: value for name, value in changes.items()}
    return {name: total if name == BACKWARD else value for name, value in named.items()}
