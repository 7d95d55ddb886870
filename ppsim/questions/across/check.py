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
MOST_AROUND = 30  # letters of a line shown on either side of a cell
MOST_SHOWN = 50  # faults, and as many warnings
MOST_CELLS = 8  # of one fault
MODES = ("overlap", "batched", "blocking")


@dataclass(frozen=True, kw_only=True)
class CheckRequest(Request):
    """Check a schedule: torch's CSV, JSON, a trace, Mermaid text, or the order of a real run.

    Every op once and in an order that can run, sends and receives that match, and no deadlock.
    Exits 0 for a valid schedule, 1 for an invalid one, 2 for a file that cannot be read.

    \b
      ppsim check schedule.csv
      ppsim check schedule.csv --for torch-2.13 --github
      ppsim check lowered.csv --queues pair
      ppsim check merged.csv --schedule 1f1b --devices 8 --mb 32
    """

    question: ClassVar[str] = "check"
    place: ClassVar[tuple[str, int]] = ("What files and runs say", 1)
    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            ("github",),
            lambda g: not (g["as_json"] or g["quiet"]),
            "{options} is another way to print than --json or -q",
        ),
        Need(
            OWN,
            lambda g: bool(g["schedule"]),
            "{options} shapes a schedule, and none is named",
            "add --schedule NAME",
        ),
        Need(
            ("chunks",),
            lambda g: bool(g["schedule"] or g["stages"] or g["devices"]),
            "{options} is nothing without the number of devices or stages",
            "add --devices",
        ),
        Need(
            ("modes",),
            lambda g: not g["shapes"],
            "--shapes says that every message waits, so {options} cannot be given too",
        ),
    )
    file: str = option(metavar="FILE", type=click.Path(allow_dash=True), required=True)
    modes: tuple[str, ...] = common(
        "--mode",
        type=click.Choice(MODES),
        multiple=True,
        help="Look for deadlocks when sends and receives overlap, are batched, or block; "
        "repeatable (all three, or "
        "overlap alone with --for or --queues).",
    )
    runtime: str | None = common(
        "--for",
        type=click.Choice(["torch-2.13", "torch-2.15", "megatron"]),
        help="Add the limits of a runtime, and take the queues of its communicators.",
    )
    queues: str | None = common(
        "--queues",
        type=click.Choice(["edge", "pair", "rank"]),
        help="What has one in-order queue of sends and receives: a directed pair of devices, a "
        "pair, or a device; run "
        "times the same with --p2p overlap --channel direction, pair or group.",
    )
    shapes: str | None = option(
        "--shapes",
        type=click.Choice(["exchange"]),
        help="Shapes are sent ahead of messages, and both sides wait for them (Megatron's "
        "variable_seq_lengths): look "
        "for deadlocks where each message waits so, or each batch with --for megatron.",
    )
    lengths: str | None = option(
        "--lengths",
        metavar="FILE",
        help="A loader's file of sequences: every replica must have as many microbatches as the "
        "schedule.",
    )
    schedule: str | None = common(
        "--schedule",
        "-s",
        type=ScheduleName(),
        help="Expect the ops of this schedule, in the shape given.",
    )
    shape: ShapeOptions = group(ShapeOptions, "Shape")
    face: FaceOptions = group(FaceOptions, "Output")
    github: bool = flag("--github", help="Print GitHub annotations, for a workflow.", common=True)


def check(file: str, **options: Any) -> Check:
    """Prove that a schedule's file is valid, or find its faults; ``options`` as ``ppsim check``
    takes them, by name.

    Raises:
        InputError: a file that cannot be read, or an option that is refused.
    """
    return answer(ask(CheckRequest, {"file": file} | options))


def answer(request: CheckRequest) -> Check:
    """Read the file and look for faults."""
    from ppsim.inputs.check.checks import check as find_faults

    draft = read_draft(request.file)
    modes, runtime, queues = request.modes, request.runtime, request.queues
    if (modes or queues or request.shapes) and not draft.has_comms:
        what = "--mode" if modes else "--queues" if queues else "--shapes"
        raise InputError(
            f"{draft.source} has no sends and receives, so {what} has nothing to look at",
            "ppsim run -s FILE --lowered -o lowered.csv adds them",
        )
    if request.shapes:
        modes = ("batched",) if runtime == "megatron" else ("blocking",)
    # A runtime or a communicator decides the mode of sends and receives; without one, all modes are
    # looked at.
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
        draft: the file's content.
        report: the faults and warnings.
        modes: how sends and receives were taken, where deadlocks were looked for.
        expected: the counts that the file should have.
    """

    draft: Draft
    report: CheckReport
    modes: tuple[str, ...]
    expected: ExpectedCounts

    @property
    def valid(self) -> bool:
        """Whether there is no fault."""
        return self.report.valid

    @property
    def faults(self) -> list[dict[str, Any]]:
        """The faults: kind, device, row and cell in the file, message, hint."""
        return list(self.json_object()["faults"])

    @property
    def passed(self) -> bool:
        """Whether the schedule is valid."""
        return self.valid

    def json_object(self) -> dict[str, Any]:
        """The object of schema ``ppsim.check/1``."""

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
        """Whether the schedule is valid, with the checks; or the number of faults."""
        return count_faults(self.report) + (self._proved() if self.valid else "")

    @property
    def tone(self) -> str:
        """Good where the schedule is valid, else the tone of a fault."""
        return "good" if self.valid else "fault"

    def line(self) -> Iterator[Block]:
        """Return whether it is valid, or how many faults there are."""
        yield count_faults(self.report)

    def all_blocks(self) -> Iterator[Block]:
        """The verdict and the faults; for GitHub annotations alone."""
        return self.blocks() if self.request.github else super().all_blocks()

    def blocks(self) -> Iterator[Block]:
        """Each fault with the cells it concerns."""
        if self.request.github:
            for level, faults in (("error", self.report.faults), ("warning", self.report.warnings)):
                yield from (
                    annotation(self.draft, fault, level, self.request.file) for fault in faults
                )
        else:
            yield DrawnBlock(self._prose)

    def queues(self) -> Queues:
        """The queues of the file with its faults."""
        from ppsim.show.drawing.card_queues import Queues

        draft = self.draft
        ops = {
            place: op
            for op, place in enumerate(zip(draft.row.tolist(), draft.cell.tolist(), strict=True))
        }
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
        """Each fault with the cells it concerns; empty for none."""
        draft, blocks = self.draft, list[str]()
        for title, faults in (("", self.report.faults), ("warning: ", self.report.warnings)):
            for fault in faults[:MOST_SHOWN]:
                # messages printed alone begin with their kind
                said = fault.message.removeprefix(f"{fault.kind} ")
                lines = [f"{title}{fault.kind}{_place(draft, fault)}: {shorten(said, 1000)}"]
                if fault.circle:
                    what = said.removesuffix("; ".join(fault.waits)).removesuffix(": ")
                    lines = [f"{title}{fault.kind}{_place(draft, fault)}: {what}"]
                    lines += [f"  {CIRCLE}{shorten(' -> '.join(fault.circle), 1000)}"]
                    lines += [f"  {shorten(wait, 1000)}" for wait in fault.waits[:MOST_CELLS]]
                cells = [(fault.row, fault.cell or 1), *fault.other_ops] if fault.row else []
                for row, cell in list(dict.fromkeys(cells))[:MOST_CELLS]:
                    text, carets = draft.excerpt(row, cell, _room_around(screen, draft, row, cell))
                    lines += (
                        [f"  line {row}: {text}", f"  {' ' * len(f'line {row}: ')}{carets}"]
                        if text
                        else []
                    )
                blocks.append(
                    "\n".join([*lines, *([f"  try: {fault.hint}"] if fault.hint else [])])
                )
            if (more := len(faults) - MOST_SHOWN) > 0:
                blocks.append(f"{title}{more} more; --json prints all")
        return "".join(f"\n{block}\n" for block in blocks)

    def _proved(self) -> str:
        """The checks that a valid schedule passed."""
        draft, checked = self.draft, "every op once, in an order that can run"
        if draft.has_comms:
            queues = queue_note(self.request.runtime, self.request.queues)
            shapes = ", each message behind its shape" if self.request.shapes else ""
            checked += f"; messages match; no deadlock ({', '.join(self.modes)}{shapes}){queues}"
        elif draft.start is not None:
            checked += ", one at a time on each device"
        if self.request.lengths is not None:
            checked += "; as many microbatches on every replica"
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
    """Tone a line of a check's text: a kind of fault, carets or a hint."""
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
    """One GitHub workflow command."""
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
    """Return "valid", or how many faults there are."""
    if report.valid:
        return "valid"
    from ppsim.inputs.check.checks import MOST_FAULTS

    count = len(report.faults)
    return f"invalid: {count} fault{'s' * (count > 1)}{' or more' * (count >= MOST_FAULTS)}"


def _expected_counts(schedule: str | None, shape: ShapeOptions) -> ExpectedCounts:
    from ppsim.inputs.check.expected_counts import ExpectedCounts

    if schedule is not None:
        made = build_schedule(schedule, shape)
        return ExpectedCounts(made.n_devices, made.n_stages, made.n_microbatches, made)
    stages = shape.stages or (
        shape.devices * shape.chunks if shape.devices and shape.chunks else None
    )
    devices = shape.devices or (stages // shape.chunks if stages and shape.chunks else None)
    return ExpectedCounts(devices, stages, shape.microbatches)


def order_note(draft: Draft, expected: ExpectedCounts) -> str:
    """Return whether the order is that of the schedule named, empty without one."""
    if expected.schedule is None:
        return ""
    from ppsim.inputs.check.expected_counts import same_order

    name = expected.schedule.name
    return (
        f"; in the order of {name}"
        if same_order(draft, expected.schedule)
        else f"; in another order than {name}"
    )


def queue_note(runtime: str | None, queues: str | None) -> str:
    """The kind of communicator queues that was checked; empty where none was chosen."""
    from ppsim.inputs.check.queues import QUEUES_OF

    per, batched = (queues, False) if queues else QUEUES_OF.get(runtime or "", ("", False))
    if not per:
        return ""
    return (
        f"; nor in one queue per {per}"
        + (", in batches" if batched else "")
        + (f", as {runtime} has" if not queues else "")
    )


def _room_around(screen: Console, draft: Draft, row: int, cell: int) -> int:
    """Return the number of letters of a line that fit on either side of a cell, so that its caret
    stays below it.
    """
    first, last = draft.span(row, cell)
    used = len(f"  line {row}: ......") + last - first
    return (
        max(4, min(MOST_AROUND, (screen.width - used) // 2)) if screen.is_terminal else MOST_AROUND
    )


def _place(draft: Draft, fault: Fault) -> str:
    if fault.row is None:
        return ""
    if not draft.lines:
        return f", device {fault.device}, op {fault.cell}"
    cell = f", cell {fault.cell}" if draft.start is None else ""
    return f" in line {fault.row}{cell}"
