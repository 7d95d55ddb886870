"""Prove a schedule file, or show its faults."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import click

from ppsim.ask.answer import Answer
from ppsim.ask.blocks import Block, DrawnBlock, Line, Part
from ppsim.ask.given import Need
from ppsim.ask.groups import OWN, FaceOptions, ShapeOptions
from ppsim.ask.options import Request, common, flag, group, option
from ppsim.ask.request import ask
from ppsim.ask.types import ScheduleName
from ppsim.ask.words import count_text
from ppsim.base.text import shorten
from ppsim.errors import InputError
from ppsim.prices.build import build_schedule
from ppsim.questions.runs.stated import read_draft

if TYPE_CHECKING:
    from rich.console import Console

    from ppsim.core.draft import Draft
    from ppsim.inputs.check.checks import CheckReport
    from ppsim.inputs.check.expected_counts import ExpectedCounts
    from ppsim.inputs.check.faults import Fault
    from ppsim.show.drawing.card_queues import Queues

CIRCLE = "each waits for the next: "
MOST_AROUND = 30  # letters of a line to show on either side of a cell
MOST_SHOWN = 50  # faults to print, and as many warnings
MOST_CELLS = 8  # cells to print of one fault
MODES = ("overlap", "batched", "blocking")


@dataclass(frozen=True, kw_only=True)
class CheckRequest(Request):
    """Check a schedule: torch's CSV, JSON, a trace, Mermaid text, or the order of a real run.

    A valid schedule has every op once, in an order that can run, with sends and receives that
    match and cannot deadlock. Exits with 0 for a valid schedule, 1 for an invalid one, and 2 for a
    file that cannot be read.

    \b
      ppsim check schedule.csv
      ppsim check schedule.csv --for torch-2.13 --github
      ppsim check lowered.csv --queues pair
      ppsim check merged.csv --schedule 1f1b --devices 8 --mb 32
    """

    question: ClassVar[str] = "check"
    place: ClassVar[tuple[str, int]] = ("Files of schedules and runs", 1)
    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            ("github",),
            lambda g: not (g["as_json"] or g["quiet"]),
            "{options} prints annotations, and --json and -q print something else",
        ),
        Need(
            OWN,
            lambda g: bool(g["schedule"]),
            "{options} needs the name of a schedule",
            "add --schedule NAME",
        ),
        Need(
            ("chunks",),
            lambda g: bool(g["schedule"] or g["stages"] or g["devices"]),
            "{options} needs the number of devices or stages",
            "add --devices",
        ),
        Need(
            ("modes",),
            lambda g: not g["shapes"],
            "--shapes decides how sends and receives wait, so {options} cannot be given too",
        ),
    )
    file: str = option(metavar="FILE", type=click.Path(allow_dash=True), required=True)
    modes: tuple[str, ...] = common(
        "--mode",
        type=click.Choice(MODES),
        multiple=True,
        help="Look for deadlocks if sends and receives overlap, are batched, or block; repeatable "
        "(default: all three; with --for or --queues, overlap).",
    )
    runtime: str | None = common(
        "--for",
        type=click.Choice(["torch-2.13", "torch-2.15", "megatron"]),
        help="Check the limits of a runtime, and the queues of its communicators.",
    )
    queues: str | None = common(
        "--queues",
        type=click.Choice(["edge", "pair", "rank"]),
        help="Sends and receives run in order on each directed pair of devices (edge), pair, or "
        "device (rank); run simulates this with --p2p overlap --channel direction, pair or group.",
    )
    shapes: str | None = option(
        "--shapes",
        type=click.Choice(["exchange"]),
        help="Look for deadlocks if shapes are sent ahead of messages and both sides wait for "
        "them (Megatron's variable_seq_lengths): for each message, or with --for megatron for each "
        "batch.",
    )
    lengths: str | None = option(
        "--lengths",
        metavar="FILE",
        help="A loader's file of sequences, to check that every replica has as many microbatches "
        "as the schedule.",
    )
    schedule: str | None = common(
        "--schedule",
        "-s",
        type=ScheduleName(),
        help="Expect the ops of this schedule, in the given shape.",
    )
    shape: ShapeOptions = group(ShapeOptions, "Shape")
    face: FaceOptions = group(FaceOptions, "Output")
    github: bool = flag("--github", help="Print GitHub annotations, for a workflow.", common=True)


def check(file: str, **options: Any) -> Check:
    """Prove that a schedule's file is valid, or find its faults.

    ``options`` are the options of ``ppsim check`` by name.

    Raises:
        InputError: the file cannot be read, or an option is refused.
    """
    return answer(ask(CheckRequest, {"file": file} | options))


def answer(request: CheckRequest) -> Check:
    """Read the file and find its faults."""
    from ppsim.inputs.check.checks import check as find_faults

    draft = read_draft(request.file)
    modes, runtime, queues = request.modes, request.runtime, request.queues
    if (modes or queues or request.shapes) and not draft.has_comms:
        what = "--mode" if modes else "--queues" if queues else "--shapes"
        raise InputError(
            f"{draft.source} has no sends and receives, so {what} has no effect",
            "ppsim run -s FILE --lowered -o lowered.csv adds them",
        )
    if request.shapes:
        modes = ("batched",) if runtime == "megatron" else ("blocking",)
    # a runtime or communicator decides the mode of sends and receives; else all modes are checked
    modes = modes or (("overlap",) if runtime or queues else MODES)
    expected = _expected_counts(request.schedule, request.shape)
    report = find_faults(draft, modes, runtime or "", queues or "", expected)
    if request.lengths is not None:
        from ppsim.inputs.check.replicas import replica_faults
        from ppsim.inputs.profile.lengths import count_microbatches

        counts = count_microbatches(request.lengths)
        found = list(replica_faults(counts.tolist(), draft.n_microbatches // draft.n_slices))
        report = replace(report, faults=[*report.faults, *found])
    return Check(request, draft, report, modes, expected)


@dataclass(frozen=True)
class Check(Answer[CheckRequest]):
    """A schedule's file, and its faults.

    Attributes:
        draft: the content of the file.
        report: the faults and warnings.
        modes: the modes of sends and receives in which deadlocks were searched.
        expected: the counts that the file should have.
    """

    draft: Draft
    report: CheckReport
    modes: tuple[str, ...]
    expected: ExpectedCounts

    @property
    def valid(self) -> bool:
        """True if the schedule has no fault."""
        return self.report.valid

    @property
    def faults(self) -> list[dict[str, Any]]:
        """The faults: kind, device, row and cell in the file, message, hint."""
        return list(self.json_object()["faults"])

    @property
    def passed(self) -> bool:
        """True if the schedule is valid."""
        return self.valid

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.check/1``."""

        def facts(fault: Fault) -> dict[str, Any]:
            return {
                name: getattr(fault, name)
                for name in ("kind", "device", "row", "cell", "message", "hint")
            }

        return {
            "schema": "ppsim.check/1",
            "valid": self.valid,
            "faults": [facts(fault) for fault in self.report.faults],
            "warnings": [facts(fault) for fault in self.report.warnings],
        }

    @property
    def verdict(self) -> str:
        """The sentence "valid" with the checks that passed, or the number of faults."""
        return count_faults(self.report) + (self._proved() if self.valid else "")

    @property
    def tone(self) -> str:
        """The tone of good news for a valid schedule, else that of a fault."""
        return "good" if self.valid else "fault"

    def line(self) -> Iterator[Block]:
        """Return "valid", or the number of faults."""
        yield count_faults(self.report)

    def all_blocks(self) -> Iterator[Block]:
        """The verdict and the faults; with --github only the annotations."""
        return self.blocks() if self.request.github else super().all_blocks()

    def blocks(self) -> Iterator[Block]:
        """Each fault with its cells in the file."""
        if self.request.github:
            for level, faults in (("error", self.report.faults), ("warning", self.report.warnings)):
                yield from (
                    annotation(self.draft, fault, level, self.request.file) for fault in faults
                )
        else:
            yield DrawnBlock(self._prose)

    def queues(self) -> Queues:
        """The queues of the file, with the ops and devices that have faults."""
        from ppsim.show.drawing.card_queues import Queues

        draft = self.draft
        places_of_ops = zip(draft.row.tolist(), draft.cell.tolist(), strict=True)
        ops = {place: op for op, place in enumerate(places_of_ops)}
        faulty, devices = set[int](), set[int]()
        for fault in self.report.faults:
            places = [(fault.row or 0, fault.cell or 0), *fault.other_ops]
            found = {ops[place] for place in places if place in ops}
            faulty |= found
            if not found and fault.device is not None:
                devices.add(fault.device)
        return Queues(draft.offsets, draft.kind, draft.microbatch, faulty, devices)

    def _prose(self, screen: Console) -> Iterator[Block]:
        for line in self._text(screen).splitlines():
            yield Line(_toned_parts(line), len(line) - len(line.lstrip()) + 2)

    def _text(self, screen: Console) -> str:
        """Return the faults and warnings as text; empty without."""
        blocks = list[str]()
        for prefix, faults in (("", self.report.faults), ("warning: ", self.report.warnings)):
            blocks += ("\n".join(self._lines(f, prefix, screen)) for f in faults[:MOST_SHOWN])
            if (more := len(faults) - MOST_SHOWN) > 0:
                blocks.append(f"{prefix}{more} more; --json prints all")
        return "".join(f"\n{block}\n" for block in blocks)

    def _lines(self, fault: Fault, prefix: str, screen: Console) -> Iterator[str]:
        """Yield the lines of a fault: its message, its cells in the file, and its hint."""
        draft = self.draft
        heading = f"{prefix}{fault.kind}{_place(draft, fault)}: "
        # a message that is printed alone begins with the kind of fault
        message = fault.message.removeprefix(f"{fault.kind} ")
        if fault.circle:
            yield heading + message.removesuffix("; ".join(fault.waits)).removesuffix(": ")
            yield f"  {CIRCLE}{shorten(' -> '.join(fault.circle), 1000)}"
            yield from (f"  {shorten(wait, 1000)}" for wait in fault.waits[:MOST_CELLS])
        else:
            yield heading + shorten(message, 1000)
        cells = [(fault.row, fault.cell or 1), *fault.other_ops] if fault.row else []
        for row, cell in list(dict.fromkeys(cells))[:MOST_CELLS]:
            text, carets = draft.excerpt(row, cell, _letters_around(screen, draft, row, cell))
            if text:
                yield f"  line {row}: {text}"
                yield f"  {' ' * len(f'line {row}: ')}{carets}"
        if fault.hint:
            yield f"  try: {fault.hint}"

    def _proved(self) -> str:
        """Return the size of a valid schedule and the checks that it passed, as text."""
        draft, checked = self.draft, "every op once, in an order that can run"
        if draft.has_comms:
            queues = queue_note(self.request.runtime, self.request.queues)
            shapes = ", each message after its shape" if self.request.shapes else ""
            checked += f"; messages match; no deadlock ({', '.join(self.modes)}{shapes}){queues}"
        elif draft.start is not None:
            checked += ", one at a time on each device"
        if self.request.lengths is not None:
            checked += "; equal numbers of microbatches on all replicas"
        count = draft.n_microbatches // (draft.n_slices * draft.n_rounds)
        microbatches = count_text(count, "microbatch")
        microbatches += f" x {draft.n_slices} slices" if draft.n_slices > 1 else ""
        microbatches += f", {draft.n_rounds} steps" if draft.n_rounds > 1 else ""
        size = (
            f"{count_text(draft.n_devices, 'device')}, {count_text(draft.n_stages, 'stage')}, "
            f"{microbatches}"
        )
        return f": {size}; {checked}{order_note(draft, self.expected)}"


def _toned_parts(line: str) -> list[Part]:
    """Return a line of a check's text in parts: kinds of fault, carets and hints have tones."""
    words = line.strip()
    if words and not words.strip("^"):
        return [(line, "fault")]
    if words.startswith(CIRCLE):
        return [line[: line.index(CIRCLE)] + CIRCLE, (words.removeprefix(CIRCLE), "fault")]
    if words.startswith("try: "):
        return [(line, "try")]
    kind = re.match(
        r"(warning: )?[\w-]+(?=(, device \d+, op \d+| in line \d+(, cell \d+)?)?: )", line
    )
    return [(kind[0], "fault"), line[kind.end() :]] if kind and not line.startswith(" ") else [line]


def annotation(draft: Draft, fault: Fault, level: str, file: str) -> str:
    """Return a fault as a GitHub workflow command."""
    where = f"file={_escape(file, ':,')}"
    if fault.row and draft.lines:
        first, last = draft.span(fault.row, fault.cell or 1)
        where += f",line={fault.row},col={first + 1},endColumn={last}"
    text = fault.message + (f"\ntry: {fault.hint}" if fault.hint else "")
    return f"::{level} {where},title=ppsim check%3A {fault.kind}::{_escape(text)}"


def _escape(text: str, more: str = "") -> str:
    for sign in ("%", "\r", "\n", *more):
        text = text.replace(sign, f"%{ord(sign):02X}")
    return text


def count_faults(report: CheckReport) -> str:
    """Return "valid", or the number of faults as text."""
    if report.valid:
        return "valid"
    from ppsim.inputs.check.checks import MOST_FAULTS

    count = len(report.faults)
    return f"invalid: {count} fault{'s' * (count > 1)}{' or more' * (count >= MOST_FAULTS)}"


def _expected_counts(schedule: str | None, shape: ShapeOptions) -> ExpectedCounts:
    """Return the counts that a file should have: of the named schedule, or of the given shape."""
    from ppsim.inputs.check.expected_counts import ExpectedCounts

    if schedule is not None:
        built = build_schedule(schedule, shape)
        return ExpectedCounts(built.n_devices, built.n_stages, built.n_microbatches, built)
    stages, devices = shape.stages, shape.devices
    if shape.chunks:
        stages = stages or (devices * shape.chunks if devices else None)
        devices = devices or (stages // shape.chunks if stages else None)
    return ExpectedCounts(devices, stages, shape.microbatches)


def order_note(draft: Draft, expected: ExpectedCounts) -> str:
    """Return a clause: the file has the order of the named schedule, or another; empty without."""
    if expected.schedule is None:
        return ""
    from ppsim.inputs.check.expected_counts import same_order

    name = expected.schedule.name
    if same_order(draft, expected.schedule):
        return f"; in the order of {name}"
    return f"; in another order than {name}"


def queue_note(runtime: str | None, queues: str | None) -> str:
    """Return a clause on the queues of communicators that were checked; empty without."""
    from ppsim.inputs.check.queues import QUEUES_OF

    per, batched = (queues, False) if queues else QUEUES_OF.get(runtime or "", ("", False))
    if not per:
        return ""
    note = f"; nor in one queue per {per}"
    if batched:
        note += ", in batches"
    return note if queues else f"{note}, as {runtime} has"


def _letters_around(screen: Console, draft: Draft, row: int, cell: int) -> int:
    """Return the number of letters to show on either side of a cell, so that the line is not
    wrapped and its carets stay below the cell.
    """
    if not screen.is_terminal:
        return MOST_AROUND
    first, last = draft.span(row, cell)
    used = len(f"  line {row}: ......") + last - first
    return max(4, min(MOST_AROUND, (screen.width - used) // 2))


def _place(draft: Draft, fault: Fault) -> str:
    """Return the place of a fault as text: its device and op, or its line and cell."""
    if fault.row is None:
        return ""
    if not draft.lines:
        return f", device {fault.device}, op {fault.cell}"
    cell = f", cell {fault.cell}" if draft.start is None else ""
    return f" in line {fault.row}{cell}"
