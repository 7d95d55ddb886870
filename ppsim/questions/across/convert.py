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
from ppsim.ask.option_names import GIVEN_COSTS
from ppsim.ask.options import Request, flag, group, option
from ppsim.ask.request import ask
from ppsim.ask.words import count_text, shape_line, title_of
from ppsim.ask.write import Writers, find_targets, inputs_of
from ppsim.base.atomic_file import open_atomically
from ppsim.errors import InputError
from ppsim.prices.build import build_costs, check_used
from ppsim.prices.options import CostOptions
from ppsim.questions.runs.stated import read_draft, read_whole, told_unit

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.draft import Draft
    from ppsim.core.timeline import Timeline
    from ppsim.real.traces.run import RealRun

OPS = (".ops.csv", ".ops.jsonl", ".ops.parquet")  # which hold all steps of all replicas


@dataclass(frozen=True, kw_only=True)
class ConvertRequest(Request):
    """Convert a schedule: torch's CSV, JSON, traces, Mermaid text and real runs are read, all
    formats are written.

    Tables of ops (.ops.csv, .ops.jsonl, .ops.parquet) take a real run whole, other formats one
    iteration. A file without times is timed by the costs given. A format that cannot carry all that
    the file states is refused; so are --merge-bw and --split-bw of a file with times, which say
    nothing of the new ops.

    \b
      ppsim convert schedule.csv -o schedule.svg --tf 1 --tb 2
      ppsim convert run.json -o schedule.csv --lossy
      ppsim convert zb.csv -o merged.csv --merge-bw
      ppsim convert run/ -o run.html --iteration 7
      ppsim convert trace.parquet -o run.ops.csv
    """

    question: ClassVar[str] = "convert"
    place: ClassVar[tuple[str, int]] = ("What files and runs say", 3)
    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            ("recompute", "offload", "encoder"),
            never,
            "{options} adds ops, and convert writes those that the file holds",
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
    lossy: bool = flag("--lossy", help="Write even what a format cannot carry whole.", common=True)
    merge_bw: bool = flag(
        "--merge-bw",
        help="Write I and W of a microbatch, where W follows its I, as one B.",
        common=True,
    )
    split_bw: bool = flag(
        "--split-bw", help="Write every B as I and W, one after the other.", common=True
    )

    def check(self) -> None:
        """Refuse a request that writes nothing, or overwrites the file that it reads."""
        targets = [target for target, _ in find_targets(self.output)]
        if not targets:
            raise InputError(
                "nothing to write", "-o FILE, with a suffix such as .csv, .json, .svg or .mmd"
            )
        for target in targets:
            if "-" not in (self.file, target) and realpath(target) == realpath(self.file):
                raise InputError(f"'{target}' is the file that is read", "write to another file")


def convert(file: str, *targets: str, **options: Any) -> Converted:
    """Write a schedule's file in other formats; ``options`` as ``ppsim convert`` takes them, by
    name.

    Raises:
        InputError: a file that cannot be read, or a format that cannot carry all that it states.
    """
    return answer(ask(ConvertRequest, {"file": file, "output": targets} | options)).save(*targets)


def answer(request: ConvertRequest) -> Converted:
    """Read the file, and make the costs that time it where it has no times."""
    from ppsim.inputs.drafts.read import require_sound

    given = TypedOptions.from_request(request)
    unit = told_unit(request.costs.unit, request.file)
    draft = require_sound(
        read_draft(request.file, request.iteration, chosen=given.has("iteration"), unit=unit)
    )
    if request.merge_bw or request.split_bw:
        draft = _convert_backwards(draft, request.merge_bw, request.lossy)
    schedule = draft.schedule()
    idle = given.spellings(tuple(name for name in GIVEN_COSTS if not (unit and name == "unit")))
    if draft.start is not None and idle:
        raise InputError(
            f"{draft.source} holds its own times, so it takes no {', '.join(idle)}", "leave it out"
        )
    check_used([schedule], request.costs)
    costs = None if draft.start is not None else build_costs(schedule, request.costs)
    tables = any(suffix in OPS for _, suffix in find_targets(request.output)) and not given.has(
        "iteration"
    )
    return Converted(request, draft, costs, read_whole(request.file, unit) if tables else None)


@dataclass(frozen=True)
class Converted(Answer[ConvertRequest]):
    """A schedule's file, to be written in other formats.

    Attributes:
        draft: the file's content.
        costs: that time it; None where it has times.
        run: a real run with all its iterations, for tables of ops; None where one was asked for.
    """

    draft: Draft
    costs: Costs | None
    run: RealRun | None = None

    @property
    def verdict(self) -> str:
        """The content of the file, and the source of the new files' times."""
        schedule = self.draft.schedule()
        times = "times of the options" if self.costs else "its own times"
        files = count_text(len(self.request.output.output), "file")
        return f"{self.request.file}, {shape_line(schedule)}: {files} written, with {times}"

    def json_object(self) -> dict[str, Any]:
        """The inputs that files carry: the command, and the costs or the converted file."""
        return inputs_of(self.typed_options, self.costs) | (
            {} if self.costs else {"converted from": self.request.file}
        )

    def charts(self) -> Sequence[tuple[str, Timeline]]:
        """The file's ops with its times, or with the costs given where it has none."""
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
        """Each file asked for."""
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
    """Merge I and W into B, or split B; times are dropped where losses are allowed, else
    refused.
    """
    from ppsim.core.draft import Draft
    from ppsim.core.split_backward import merge_backwards, split_backwards

    if draft.start is not None and not lossy:
        raise InputError(
            f"{draft.source} holds times, which say nothing of the ops that "
            f"--{'merge' if merge else 'split'}-bw makes",
            "--lossy leaves them out",
        )
    made = (merge_backwards if merge else split_backwards)(draft.whole_schedule())
    return replace(Draft.from_schedule(made, draft.source), name=draft.name, idle=draft.idle)
