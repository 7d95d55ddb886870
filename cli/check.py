"""Prove a schedule file, or show its faults."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from ppsim.cli._fit import Part, echo_wrapped
from ppsim.cli._options import ShapeOptions, json_option, make_command, quiet_option, shape_options
from ppsim.cli._stated import read_draft
from ppsim.cli._types import ScheduleName

if TYPE_CHECKING:
    from ppsim.check import CheckReport
    from ppsim.check.expected import Expected
    from ppsim.check.faults import Fault
    from ppsim.core.draft import Draft

CIRCLE = "each waits for the next: "
MOST_AROUND = 30  # letters of a line shown on either side of a cell
MOST_SHOWN = 50  # faults, and as many warnings
MOST_CELLS = 8  # of one fault
MODES = ("overlap", "batched", "blocking")


@make_command("check")
@click.argument("file", type=click.Path(allow_dash=True))
@click.option(
    "--mode",
    "modes",
    type=click.Choice(MODES),
    multiple=True,
    help="Look for deadlocks when sends and receives overlap, are batched, or block; repeatable (all three, or overlap "
    "alone with --for or --queues).",
)
@click.option(
    "--for",
    "runtime",
    type=click.Choice(["torch-2.13", "torch-2.15", "megatron"]),
    default=None,
    help="Add the limits of a runtime, and take the queues of its communicators.",
)
@click.option(
    "--queues",
    type=click.Choice(["edge", "pair", "rank"]),
    default=None,
    help="What has one in-order queue of sends and receives: a directed pair of devices, a pair, or a device; run "
    "times the same with --p2p overlap --channel direction, pair or group.",
)
@click.option(
    "--schedule", "-s", "schedule", type=ScheduleName(), help="Expect the ops of this schedule, in the shape given."
)
@shape_options
@json_option
@quiet_option
@click.option("--github", is_flag=True, help="Print GitHub annotations, for a workflow.")
@click.pass_context
def command(
    ctx: click.Context,
    file: str,
    modes: tuple[str, ...],
    runtime: str | None,
    queues: str | None,
    schedule: str | None,
    shape: ShapeOptions,
    as_json: bool,
    quiet: bool,
    github: bool,
) -> None:
    """Check a schedule: torch's CSV, JSON, a trace, Mermaid text, or the order of a real run.

    Every op once and in an order that can run, sends and receives that match, and no deadlock. Exits 0 for a valid
    schedule, 1 for an invalid one, 2 for a file that cannot be read.

    \b
      ppsim check schedule.csv
      ppsim check schedule.csv --for torch-2.13 --github
      ppsim check lowered.csv --queues pair
      ppsim check merged.csv --schedule 1f1b --devices 8 --mb 32
    """
    from ppsim.check import check
    from ppsim.errors import InputError

    draft = read_draft(file)
    if (modes or queues) and not draft.has_comms:
        what = "--mode" if modes else "--queues"
        raise InputError(
            f"{draft.source} has no sends and receives, so {what} has nothing to look at",
            "ppsim run -s FILE --lowered -o lowered.csv adds them",
        )
    # A runtime or a communicator says what sends and receives do; without one, all modes are looked at.
    modes = modes or (("overlap",) if runtime or queues else MODES)
    expected = _expected(schedule, shape)
    report = check(draft, modes, runtime or "", queues or "", expected)
    if as_json:
        from ppsim.cli._print import echo_json

        echo_json(check_object(report))
    elif github:
        for level, faults in (("error", report.faults), ("warning", report.warnings)):
            for fault in faults:
                click.echo(annotation(draft, fault, level, file))
    elif quiet:
        click.echo(verdict(report))
    else:
        for line in prose(draft, report, modes, queue_note(runtime, queues), order_note(draft, expected)).split("\n"):
            echo_wrapped(_toned(line), len(line) - len(line.lstrip()) + 2)
    if not report.valid:
        ctx.exit(1)


def _toned(line: str) -> list[Part]:
    """A line of :func:`prose` with what it is: a kind of fault, carets, what to try, the verdict."""
    words = line.strip()
    if words and not words.strip("^"):
        return [(line, "fault")]
    if words.startswith(CIRCLE):
        return [line[: line.index(CIRCLE)] + CIRCLE, (words.removeprefix(CIRCLE), "fault")]
    if words.startswith("try: "):
        return [(line, "try")]
    if line.startswith(("valid", "invalid")):
        first, colon, rest = line.partition(":")
        return [(first + colon, "good" if line.startswith("valid") else "fault"), rest]
    kind = re.match(r"(warning: )?[\w-]+(?=(, device \d+, op \d+| in line \d+(, cell \d+)?)?: )", line)
    return [(kind[0], "fault"), line[kind.end() :]] if kind and not line.startswith(" ") else [line]


def check_object(report: CheckReport) -> dict[str, Any]:
    """The object of --json, schema ``ppsim.check/1``."""

    def facts(fault: Fault) -> dict[str, Any]:
        return {name: getattr(fault, name) for name in ("kind", "device", "row", "cell", "message", "hint")}

    return {
        "schema": "ppsim.check/1",
        "valid": report.valid,
        "faults": [facts(fault) for fault in report.faults],
        "warnings": [facts(fault) for fault in report.warnings],
    }


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


def verdict(report: CheckReport) -> str:
    """Valid, or how many faults."""
    from ppsim.check import MOST_FAULTS

    if report.valid:
        return "valid"
    count = len(report.faults)
    return f"invalid: {count} fault{'s' * (count > 1)}{' or more' * (count >= MOST_FAULTS)}"


def _expected(schedule: str | None, shape: ShapeOptions) -> Expected:
    from ppsim.check.expected import Expected

    if schedule is not None:
        from ppsim.cli._build import build_schedule

        made = build_schedule(schedule, shape)
        return Expected(made.n_devices, made.n_stages, made.n_microbatches, made)
    stages = shape.stages or (shape.devices * shape.chunks if shape.devices and shape.chunks else None)
    devices = shape.devices or (stages // shape.chunks if stages and shape.chunks else None)
    return Expected(devices, stages, shape.microbatches)


def order_note(draft: Draft, expected: Expected) -> str:
    """Whether the order is that of the schedule named, empty without one."""
    if expected.schedule is None:
        return ""
    from ppsim.check.expected import same_order

    name = expected.schedule.name
    return f"; in the order of {name}" if same_order(draft, expected.schedule) else f"; in another order than {name}"


def queue_note(runtime: str | None, queues: str | None) -> str:
    """Which queues of communicators were looked at, empty for none in particular."""
    from ppsim.check.queues import QUEUES_OF

    per, batched = (queues, False) if queues else QUEUES_OF.get(runtime or "", ("", False))
    if not per:
        return ""
    return (
        f"; nor in one queue per {per}"
        + (", in batches" if batched else "")
        + (f", as {runtime} has" if not queues else "")
    )


def prose(draft: Draft, report: CheckReport, modes: tuple[str, ...], queues: str, order: str) -> str:
    """Each fault with the cells it concerns, and the verdict."""
    from ppsim.base.text import shorten

    blocks = []
    for title, faults in (("", report.faults), ("warning: ", report.warnings)):
        for fault in faults[:MOST_SHOWN]:
            said = fault.message.removeprefix(f"{fault.kind} ")  # messages printed alone begin with their kind
            lines = [f"{title}{fault.kind}{_place(draft, fault)}: {shorten(said, 1000)}"]
            if fault.circle:
                what = said.removesuffix("; ".join(fault.waits)).removesuffix(": ")
                lines = [f"{title}{fault.kind}{_place(draft, fault)}: {what}"]
                lines += [f"  {CIRCLE}{shorten(' -> '.join(fault.circle), 1000)}"]
                lines += [f"  {shorten(wait, 1000)}" for wait in fault.waits[:MOST_CELLS]]
            cells = [(fault.row, fault.cell or 1), *fault.also] if fault.row else []
            for row, cell in list(dict.fromkeys(cells))[:MOST_CELLS]:
                text, carets = draft.excerpt(row, cell, _room_around(draft, row, cell))
                lines += [f"  line {row}: {text}", f"  {' ' * len(f'line {row}: ')}{carets}"] if text else []
            blocks.append("\n".join([*lines, *([f"  try: {fault.hint}"] if fault.hint else [])]))
        if (more := len(faults) - MOST_SHOWN) > 0:
            blocks.append(f"{title}{more} more; --json prints all")
    summary = verdict(report)
    if report.valid:
        from ppsim.cli._print import counted

        checked = "every op once, in an order that can run"
        if draft.has_comms:
            checked += f"; messages match; no deadlock ({', '.join(modes)}){queues}"
        elif draft.start is not None:
            checked += ", one at a time on each device"
        checked += order
        microbatches = counted(draft.n_microbatches // draft.n_slices, "microbatch")
        if draft.n_slices > 1:
            microbatches += f" x {draft.n_slices} slices"
        summary += (
            f": {counted(draft.n_devices, 'device')}, {counted(draft.n_stages, 'stage')}, {microbatches}; {checked}"
        )
    return "\n\n".join([*blocks, summary])


def _room_around(draft: Draft, row: int, cell: int) -> int:
    """How many letters of a line fit on either side of a cell; carets under a line that wraps point nowhere."""
    from ppsim.cli._print import console

    screen, (first, last) = console(), draft.span(row, cell)
    used = len(f"  line {row}: ......") + last - first
    return max(4, min(MOST_AROUND, (screen.width - used) // 2)) if screen.is_terminal else MOST_AROUND


def _place(draft: Draft, fault: Fault) -> str:
    if fault.row is None:
        return ""
    if not draft.lines:
        return f", device {fault.device}, op {fault.cell}"
    cell = f", cell {fault.cell}" if draft.start is None else ""
    return f" in line {fault.row}{cell}"
