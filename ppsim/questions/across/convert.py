"""Convert between csv, json, traces, Mermaid and pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os.path import realpath
from typing import TYPE_CHECKING, Any, ClassVar

import click

from ppsim.ask.answer import Answer
from ppsim.ask.blocks import Block
from ppsim.ask.given import Need, TypedOptions, never
from ppsim.ask.groups import FigureOptions, iteration_option
from ppsim.ask.options import Request, flag, group, option
from ppsim.ask.request import ask
from ppsim.ask.words import count_text, shape_line, title_of
from ppsim.ask.write import Writers, find_targets, inputs_of
from ppsim.base.atomic_file import open_atomically
from ppsim.errors import InputError
from ppsim.prices.build import build_costs, check_used
from ppsim.prices.options import ADDING_OPS, GIVEN_COSTS, CostOptions
from ppsim.questions.runs.stated import read_draft, read_whole, unit_of_request

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.draft import Draft
    from ppsim.core.timeline import Timeline
    from ppsim.real.traces.run import RealRun

OPS = (".ops.csv", ".ops.jsonl", ".ops.parquet")  # tables with all steps of all replicas


@dataclass(frozen=True, kw_only=True)
class ConvertRequest(Request):
    """Convert a schedule: from torch's CSV, JSON, traces, Mermaid text and real runs, to all
    formats.

    Tables of ops (.ops.csv, .ops.jsonl, .ops.parquet) contain a whole real run, other formats one
    iteration. A file without times is timed with the given costs. A format is refused if it would
    lose a part of the file; so are --merge-bw and --split-bw if the file has times, because the new
    ops would have none.

    \b
      ppsim convert schedule.csv -o schedule.svg --tf 1 --tb 2
      ppsim convert run.json -o schedule.csv --lossy
      ppsim convert zb.csv -o merged.csv --merge-bw
      ppsim convert run/ -o run.html --iteration 7
      ppsim convert trace.parquet -o run.ops.csv
    """

    question: ClassVar[str] = "convert"
    place: ClassVar[tuple[str, int]] = ("Files of schedules and runs", 3)
    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            ADDING_OPS,
            never,
            "{options} adds ops, and convert writes only the ops of the file",
            "ppsim run FILE --recompute -o FILE",
        ),
        Need(
            ("merge_bw", "split_bw"),
            lambda g: not (g["merge_bw"] and g["split_bw"]),
            "{options} undo each other",
        ),
    )
    file: str = option(metavar="FILE", type=click.Path(allow_dash=True), required=True)
    output: FigureOptions = group(FigureOptions, "Output")
    costs: CostOptions = group(CostOptions, "Costs")
    iteration: str = iteration_option("median")
    lossy: bool = flag(
        "--lossy", help="Write a format even if it loses a part of the file.", common=True
    )
    merge_bw: bool = flag(
        "--merge-bw",
        help="Write I and W of a microbatch, where W follows its I, as one B.",
        common=True,
    )
    split_bw: bool = flag(
        "--split-bw", help="Write every B as I and W, one after the other.", common=True
    )

    def check(self) -> None:
        """Raise InputError without -o, and for an -o that is the file to read."""
        targets = [target for target, _ in find_targets(self.output)]
        if not targets:
            raise InputError(
                "nothing to write", "-o FILE, with a suffix such as .csv, .json, .svg or .mmd"
            )
        for target in targets:
            if "-" not in (self.file, target) and realpath(target) == realpath(self.file):
                raise InputError(f"'{target}' is the file that is read", "write to another file")


def convert(file: str, *targets: str, **options: Any) -> Converted:
    """Write a schedule's file in other formats.

    ``options`` are the options of ``ppsim convert`` by name.

    Raises:
        InputError: the file cannot be read, or a format would lose a part of it.
    """
    return answer(ask(ConvertRequest, {"file": file, "output": targets} | options)).save(*targets)


def answer(request: ConvertRequest) -> Converted:
    """Read the file, and the costs that time it if it has no times."""
    from ppsim.inputs.drafts.read import require_sound

    given = TypedOptions.from_request(request)
    unit = unit_of_request(request.costs.unit, request.file)
    draft = require_sound(
        read_draft(request.file, request.iteration, chosen=given.has("iteration"), unit=unit)
    )
    if request.merge_bw or request.split_bw:
        draft = _convert_backwards(draft, request.merge_bw, request.lossy)
    schedule = draft.schedule()
    unused = given.spellings(tuple(name for name in GIVEN_COSTS if not (unit and name == "unit")))
    if draft.start is not None and unused:
        raise InputError(
            f"{draft.source} has times, so {', '.join(unused)} cannot be given too", "leave it out"
        )
    check_used([schedule], request.costs)
    costs = None if draft.start is not None else build_costs(schedule, request.costs)
    has_tables = any(suffix in OPS for _, suffix in find_targets(request.output))
    run = None
    if has_tables and not given.has("iteration"):
        run = read_whole(request.file, unit)
    return Converted(request, draft, costs, run)


@dataclass(frozen=True)
class Converted(Answer[ConvertRequest]):
    """A schedule's file, to be written in other formats.

    Attributes:
        draft: the content of the file.
        costs: the costs that time it; None if it has times.
        run: a real run with all its iterations, for tables of ops; None if they are not written.
    """

    draft: Draft
    costs: Costs | None
    run: RealRun | None = None

    @property
    def verdict(self) -> str:
        """The shape of the file, the number of new files, and the source of their times."""
        schedule = self.draft.schedule()
        times = "times of the options" if self.costs else "the times of the file"
        files = count_text(len(self.request.output.output), "file")
        return f"{self.request.file}, {shape_line(schedule)}: {files} written, with {times}"

    def json_object(self) -> dict[str, Any]:
        """Return the inputs of the written files: the command, and the costs or the read file."""
        return inputs_of(self.typed_options, self.costs) | (
            {} if self.costs else {"converted from": self.request.file}
        )

    def charts(self) -> Sequence[tuple[str, Timeline]]:
        """The ops of the file with its times, or timed with the given costs."""
        timeline = self.draft.timeline()
        if timeline is None:
            from ppsim.engine.simple.longest_path import simulate

            assert self.costs, "a file without times is timed by costs"
            timeline = simulate(self.draft.schedule(), self.costs)
        return [(title_of(timeline.schedule), timeline)]

    def blocks(self) -> Iterator[Block]:
        """Nothing more: the files are the answer."""
        return iter(())

    def writers(self, output: FigureOptions) -> Writers:
        """Return the writer of each -o."""
        from ppsim.show.files.convert import convert
        from ppsim.show.files.document import style_of

        title, inputs = title_of(self.draft.schedule()), self.json_object()

        def write(target: str, suffix: str) -> None:
            if self.run is not None and suffix in OPS:
                _write_run(self.run, target, suffix)
                return
            convert(
                self.draft,
                target,
                suffix,
                title=title,
                costs=self.costs,
                lossy=self.request.lossy,
                inputs=inputs,
                verdict=self.verdict,
                style=style_of(suffix, output.style),
                width=output.width,
                look=output.look,
            )

        return [(target, partial(write, target, suffix)) for target, suffix in find_targets(output)]


def _write_run(run: RealRun, target: str, suffix: str) -> None:
    """Write all steps of all replicas as a table of ops."""
    from ppsim.base.tables import write_columns
    from ppsim.core.job import OPS_SCHEMA
    from ppsim.real.traces.ops_rows import ops_rows

    with open_atomically(target) as out:
        out.write(write_columns({"schema": OPS_SCHEMA, "unit": run.unit}, ops_rows(run), suffix))


def _convert_backwards(draft: Draft, merge: bool, lossy: bool) -> Draft:
    """Return a draft with I and W merged into B, or with B split; without times.

    Raises:
        InputError: the draft has times, and ``lossy`` is off.
    """
    from ppsim.core.draft import Draft
    from ppsim.core.split_backward import merge_backwards, split_backwards

    if draft.start is not None and not lossy:
        raise InputError(
            f"{draft.source} has times, and the ops that --{'merge' if merge else 'split'}-bw "
            f"makes have none",
            "--lossy leaves the times out",
        )
    schedule = (merge_backwards if merge else split_backwards)(draft.whole_schedule())
    return replace(Draft.from_schedule(schedule, draft.source), name=draft.name, idle=draft.idle)
