"""Show the facts of a run or a file: devices, schedule, medians."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import click
import numpy as np

from ppsim.ask.answer import Answer
from ppsim.ask.blocks import Block, Line, Table
from ppsim.ask.given import TypedOptions
from ppsim.ask.groups import FaceOptions, iteration_option
from ppsim.ask.options import Request, common, group, option
from ppsim.ask.request import ask
from ppsim.ask.types import ScheduleName
from ppsim.ask.words import count_text, shape_line
from ppsim.base.numbers import format_number
from ppsim.base.units import format_size
from ppsim.errors import InputError, UnknownFormat
from ppsim.questions.runs.stated import add_run_formats, read_named_run, shows_run, unit_option
from ppsim.questions.runs.timers import Timers, refuse_options

if TYPE_CHECKING:
    from ppsim.core.schedule import Schedule
    from ppsim.core.timeline import Timeline
    from ppsim.engine.simple.terms import Spread, Terms
    from ppsim.real.traces.run import RealRun
    from ppsim.show.drawing.card_queues import Queues
    from ppsim.show.files.provenance import Origin
    from ppsim.workload.plans.rank_chart import RankLayout

SCHEMA = "ppsim.read/1"


@dataclass(frozen=True, kw_only=True)
class ReadRequest(Request):
    """Show the facts of a real run or of a schedule's file.

    FILE is a folder, or the files of all devices: a table of ops (CSV, JSON lines, Parquet) with
    the usual names of its columns, Primus' pp_rank_N.json next to config.json, Kineto traces of
    torch's pipelines, a record of ppsim validate, a log with Megatron-LM's timers, a flowchart of
    ranks (ppsim plan -o ranks.mmd), or a schedule. The order of the ops gives the schedule, and its
    name if it is a known one. Medians are over all iterations of a run but the first.

    Files that ppsim writes (figures, pages, JSON, traces, Mermaid text, tables) contain the command
    that made them, which is printed for you to paste; -q prints it alone if the file has no ops.
    torch's CSV of a schedule has no place for a command: write a JSON file too (-o x.csv -o
    x.json).

    \b
      ppsim read run/
      ppsim read figure.svg
      ppsim read ops.parquet --unit us
      ppsim read rank0.json.gz rank1.json.gz --iteration 4-20
    """

    question: ClassVar[str] = "read"
    place: ClassVar[tuple[str, int]] = ("Files of schedules and runs", 2)
    files: tuple[str, ...] = option(metavar="FILE...", nargs=-1, required=True, type=click.Path())
    schedule: str = common(
        "--schedule",
        "-s",
        type=ScheduleName(),
        default="",
        help="The run to show, of a record of several.",
    )
    iteration: str = iteration_option("all")
    unit: str | None = unit_option()
    face: FaceOptions = group(FaceOptions)


def read(files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], **options: Any) -> Any:
    """Return the facts of a real run, in the unit of its files, or of a schedule's file.

    Args:
        files: a folder, a file, or the files of all devices.
        options: the options of ``ppsim read`` by name: ``schedule``, ``iteration``, ``unit``.

    Raises:
        InputError: an option is refused, or the files contain neither a whole run nor a schedule.
    """
    return answer(ask(ReadRequest, {"files": files} | options))


def answer(request: ReadRequest) -> ObservedRun | Shape | Timers | Written | Ranks:
    """Read the files of the request: ranks, timers, a schedule, a run, or a file of ppsim."""
    from ppsim.workload.plans.rank_chart import read_ranks, shows_ranks

    files = request.files
    if len(files) == 1 and shows_ranks(files[0]):
        refuse_options(TypedOptions.from_request(request), ("schedule", "iteration", "unit"))
        return Ranks(request, read_ranks(files[0]))
    from ppsim.real.traces.timers import read_timers, shows_timers

    if len(files) == 1 and shows_timers(files[0]):
        refuse_options(TypedOptions.from_request(request), ("schedule", "iteration", "unit"))
        return Timers(request, files[0], read_timers(files[0]))
    from ppsim.inputs.drafts.read import read as read_file
    from ppsim.inputs.drafts.read import require_sound
    from ppsim.schedules import recognise

    is_run = len(files) > 1 or shows_run(files[0])
    origin = None if is_run else _origin(files)
    try:
        draft = None if is_run else read_file(files[0])
        if draft and draft.start is None:
            schedule = require_sound(draft).schedule()
            named = replace(schedule, name=recognise(schedule) or "custom")
            return Shape(request, named, origin.command if origin else "")
        if draft:
            observed = read_named_run(files)
        else:
            observed = read_named_run(files, request.schedule, request.unit or "")
    except InputError as error:
        given = TypedOptions.from_request(request)
        origin = _origin(files)
        if origin is None or given.spellings(("schedule", "iteration", "unit")):
            if isinstance(error, UnknownFormat):
                add_run_formats(error)
            raise
        return Written(request, origin)
    if request.iteration == "all":
        kept = observed.drop_first()
    else:
        kept = observed.select(request.iteration)
    return ObservedRun(request, observed, kept, origin.command if origin else "")


def _origin(files: Sequence[str]) -> Origin | None:
    """Return the command that made a file, with its version; None for a folder, several files, and
    standard input.
    """
    from ppsim.show.files.provenance import read_origin

    return read_origin(files[0]) if len(files) == 1 and os.path.isfile(files[0]) else None


@dataclass(frozen=True)
class Written(Answer[ReadRequest]):
    """A file that ppsim wrote, without ops.

    Attributes:
        origin: the command and the version that made it.
    """

    origin: Origin

    @property
    def verdict(self) -> str:
        """The version that wrote the file, in a sentence that it has no ops."""
        version = f" {self.origin.version}" if self.origin.version else ""
        return f"{self.request.files[0]} was written by ppsim{version} and has no ops to show"

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.read/1`` for a file without ops."""
        source, origin = self.request.files[0], self.origin
        return {
            "schema": SCHEMA,
            "source": source,
            "format": "written",
            "version": origin.version or None,
            "command": origin.command,
        }

    def line(self) -> Iterator[Block]:
        """The command that made the file."""
        yield self.origin.command

    def blocks(self) -> Iterator[Block]:
        """The command that made the file, with its name."""
        yield from _command_line(self.origin.command)


@dataclass(frozen=True)
class ObservedRun(Answer[ReadRequest]):
    """A real run, or a schedule with times.

    Attributes:
        run: the run with all its iterations.
        kept: the run with the iterations that medians are over.
        command: the command that made the file, as a line for a shell; empty if unknown.
    """

    run: RealRun
    kept: RealRun
    command: str

    @property
    def verdict(self) -> str:
        """The schedule that ran, and the time of an iteration or of a step of the job."""
        unit, counted_in = self.run.unit, count_text(len(self.kept.iterations), "iteration")
        time = f"{format_number(float(np.median(self.kept.makespans)))} {unit}"
        text = f"{self.run.source}: {self.run.schedule.name} took {time} (median of {counted_in})"
        if (job := self.run.job) is not None and len(job.replicas) > 1:
            step = f"{format_number(float(np.median(job.steps)))} {unit}"
            text += f" on replica {self.run.replica}, a step of {len(job.replicas)} replicas {step}"
        return text

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.read/1``; medians are over iterations ``kept``."""
        from ppsim.engine.simple.terms import measure_terms

        observed, kept, schedule = self.run, self.kept, self.run.schedule
        terms = measure_terms(schedule, kept.start, kept.end)
        return {
            "schema": SCHEMA,
            "source": observed.source,
            "format": observed.format,
            **_shape_object(schedule),
            "replicas": 1 if observed.job is None else len(observed.job.replicas),
            "replica": observed.replica,
            "steps": None if observed.job is None else observed.job.steps.tolist(),
            "unit": observed.unit,
            "iterations": [
                {"number": int(number), "makespan": float(makespan)}
                for number, makespan in zip(observed.iterations, observed.makespans, strict=True)
            ],
            "counted": kept.iterations.tolist(),
            "makespan": float(np.median(kept.makespans)),
            "stages": list(_stage_objects(kept)),
            **_terms_object(terms),
            "memory": None if kept.memory is None else np.median(kept.memory, axis=0).tolist(),
            "clock_offsets": observed.offset.tolist(),
            "notes": list(observed.notes),
            "understood": list(observed.column_notes),
            "command": self.command or None,
        }

    def charts(self) -> Sequence[tuple[str, Timeline]]:
        """The iteration whose time is nearest to the median."""
        kept = self.kept
        number = f", iteration {kept.iterations[kept.middle()]}" * (len(self.run.iterations) > 1)
        return [(f"{kept.schedule.name}{number}", kept.timeline(kept.middle()))]

    def _facts(self) -> Iterator[Block]:
        """The format, the shape and the times of the run, as lines."""
        return (Line(line, 11) for line in _headline(self.run, self.kept))

    def blocks(self) -> Iterator[Block]:
        """The facts of the run, the times of its stages, and the times between ops."""
        value = self.json_object()
        yield from self._facts()
        yield from _command_line(self.command)
        yield ""
        yield _stage_table(self.kept, value)
        yield ""
        yield from (Line(line, 11) for line in _between_ops_lines(value, self.kept.unit))


@dataclass(frozen=True)
class Shape(Answer[ReadRequest]):
    """A schedule without times.

    Attributes:
        schedule: the schedule of the file, with the name of the family that has its order, or
            ``custom``.
        command: the command that made the file, as a line for a shell; empty if unknown.
    """

    schedule: Schedule
    command: str

    @property
    def verdict(self) -> str:
        """The name and the shape of the schedule in the file."""
        return (
            f"{self.request.files[0]} contains {self.schedule.name} without times, "
            f"{shape_line(self.schedule)}"
        )

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.read/1``, without a run's numbers."""
        source, command = self.request.files[0], self.command or None
        shape = _shape_object(self.schedule)
        return {
            "schema": SCHEMA,
            "source": source,
            "format": "schedule",
            **shape,
            "command": command,
        }

    def queues(self) -> Queues:
        """The queues of the file."""
        from ppsim.show.drawing.card_queues import Queues

        schedule = self.schedule
        return Queues(schedule.offsets, schedule.kind, schedule.microbatch)

    def blocks(self) -> Iterator[Block]:
        """The facts of the file."""
        yield Line(f"file       {self.request.files[0]}: a schedule without times", 11)
        yield Line(_schedule_line(self.schedule), 11)
        yield from _command_line(self.command)


@dataclass(frozen=True)
class Ranks(Answer[ReadRequest]):
    """A flowchart of ranks.

    Attributes:
        layout: the sizes of groups and the order of ranks.
    """

    layout: RankLayout

    @property
    def verdict(self) -> str:
        """The sizes of groups and the order of ranks."""
        return f"{self._sizes()}, in the order {self.layout.rank_order}"

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.read/1`` for a flowchart of ranks."""
        found = self.layout
        sizes = {"gpus": found.gpus, **found.sizes, "rank_order": found.rank_order}
        return {"schema": SCHEMA, "source": self.request.files[0], "format": "ranks", **sizes}

    def blocks(self) -> Iterator[Block]:
        """The sizes of groups, the order of ranks, and the commands that read the file."""
        found = self.layout
        yield Line(f"file       {self.request.files[0]}: placement of ranks", 11)
        yield Line(f"sizes      {self._sizes()}", 11)
        yield Line(
            f"order      {found.rank_order}, the nearest first; expert-parallel ranks "
            f"are not drawn",
            11,
        )
        yield Line(
            f"use it     ppsim model NAME --rank-order {shlex.quote(self.request.files[0])}, or "
            f"ppsim plan",
            11,
        )

    def _sizes(self) -> str:
        named = ", ".join(f"{name} {size}" for name, size in self.layout.sizes.items())
        return f"{count_text(self.layout.gpus, 'GPU')}: {named}"


def _command_line(command: str) -> Iterator[Block]:
    """Yield the command that made a file, unwrapped for pasting; nothing if it is unknown."""
    if command:
        yield f"command    {command}"


def _shape_object(schedule: Schedule) -> dict[str, Any]:
    """Return the name and the shape of a schedule, for JSON."""
    return {
        "schedule": schedule.name,
        "placement": schedule.placement.name,
        "devices": schedule.n_devices,
        "stages_per_device": schedule.n_chunks,
        "microbatches": schedule.n_microbatches,
    }


def _stage_objects(run: RealRun) -> Iterator[dict[str, Any]]:
    """Yield the median, 10th and 90th percentile of each stage's ops, by kind."""
    from ppsim.core.ops import Kind

    schedule, seconds = run.schedule, run.end - run.start
    for stage in range(schedule.n_stages):
        of_stage = schedule.stage == stage
        kinds = {}
        for kind in np.unique(schedule.kind[of_stage]).tolist():
            times = seconds[:, of_stage & (schedule.kind == kind)]
            low, middle, high = np.quantile(times, [0.1, 0.5, 0.9]).tolist()
            kinds[Kind(kind).name] = {"median": middle, "p10": low, "p90": high}
        yield {"stage": stage, "device": int(schedule.device[of_stage][0]), "times": kinds}


def _terms_object(terms: Terms) -> dict[str, Any]:
    """Return gaps between ops and latencies of messages, with their spreads."""

    def spread(found: Spread) -> dict[str, float]:
        return {"median": found.median, "p10": found.p10, "p90": found.p90, "n": found.n}

    return {
        "gap": terms.typical_gap,
        "gaps": [
            {"device": d, "after": a.name, "before": b.name, **spread(s)}
            for (d, a, b), s in terms.gaps.items()
        ],
        "latency": terms.typical_latency,
        "latencies": [
            {"source": a, "target": b, **spread(s)} for (a, b), s in terms.latencies.items()
        ],
    }


def _headline(observed: RealRun, kept: RealRun) -> Iterator[str]:
    """Yield lines on the format, the schedule, the job, the iterations and notes of a run."""
    from ppsim.real.traces.read import title_of

    yield f"file       {observed.source}: {title_of(observed.format)}"
    yield _schedule_line(observed.schedule)
    numbers, makespans = observed.iterations, observed.makespans
    if (job := observed.job) is not None and len(job.replicas) > 1:
        step = format_number(float(np.median(job.steps)))
        yield (
            f"job        {len(job.replicas)} replicas; a step takes {step} {job.unit} (median) "
            f"with its collectives"
        )
        yield f"           replica {observed.replica} is shown below; FILE:NUMBER shows another"
    count = count_text(len(numbers), "iteration")
    ends = (kept.makespans.min(), kept.makespans.max())
    times = " to ".join(dict.fromkeys(format_number(time) for time in ends))
    middle = format_number(float(np.median(kept.makespans)))
    yield (
        f"run        {count}; {len(kept.iterations)} counted: {middle} {observed.unit} (median), "
        f"{times}"
    )
    if len(kept.iterations) == len(numbers) - 1 and numbers[0] != kept.iterations[0]:
        yield f"           the first one, left out: {format_number(makespans[0])} {observed.unit}"
    for note in observed.notes:
        yield f"           {note}"
    for line in observed.column_notes:
        name, _, text = line.partition(": ")
        yield f"{name:<10} {text}"


def _schedule_line(schedule: Schedule) -> str:
    """Return a line on the name, the shape and the placement of a schedule."""
    name = "an order unknown to ppsim" if schedule.name == "custom" else schedule.name
    return f"schedule   {name}: {shape_line(schedule)}, {schedule.placement.name} placement"


def _stage_table(run: RealRun, value: dict[str, Any]) -> Table:
    """Return a table of the times of each stage, and of its device's memory if known."""
    kinds = [kind for kind in "FBIWR" if any(kind in row["times"] for row in value["stages"])]
    memory = value["memory"]
    headings = [
        "stage",
        "device",
        *(h for kind in kinds for h in (f"{kind}, {run.unit}", f"{kind} p10 to p90")),
    ]
    rows = []
    for row in value["stages"]:
        cells = [str(row["stage"]), str(row["device"])]
        for kind in kinds:
            time = row["times"].get(kind)
            cells.append("" if time is None else format_number(time["median"]))
            cells.append(
                "" if time is None else f"{format_number(time['p10'])} {format_number(time['p90'])}"
            )
        rows.append(cells + ([] if memory is None else [format_size(round(memory[row["device"]]))]))
    return Table([*headings, *([] if memory is None else ["memory"])], rows)


def _between_ops_lines(value: dict[str, Any], unit: str) -> Iterator[str]:
    """Yield a line on gaps between ops, and one on latencies of messages."""
    for term, key, name in (
        ("gap", "gaps", "device {device} {after}-{before}"),
        ("latency", "latencies", "{source}-{target}"),
    ):
        rows = [row for row in value[key] if row["n"] > 2]
        if not rows:
            yield f"{term:<11}not known"
            continue
        worst = sorted(rows, key=lambda row: -row["median"])[:3]
        most = ", ".join(f"{name.format_map(row)} {format_number(row['median'])}" for row in worst)
        yield f"{term:<11}{format_number(value[term])} {unit} (median); most: {most}"
