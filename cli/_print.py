"""What commands print on a terminal."""

from __future__ import annotations

import os
from collections.abc import Iterable
from math import isnan
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

    from ppsim.core.schedule import Schedule
    from ppsim.core.timeline import Timeline
    from ppsim.drawing.terminal_marks import Marks
    from ppsim.schedules import Family
    from ppsim.simulation.columns import Shape
    from ppsim.simulation.metrics import Metrics


WIDEST = 160  # columns of a chart


def shape_line(schedule: Schedule) -> str:
    """The size in words: 4 devices x 2 chunks = 8 stages, 8 microbatches x 4 slices."""
    return (
        f"{counted(schedule.n_devices, 'device')} x {counted(schedule.n_chunks, 'chunk')} = "
        f"{counted(schedule.n_stages, 'stage')}, {counted(schedule.whole_microbatches, 'microbatch')}"
        + (f" x {schedule.n_slices} slices" if schedule.n_slices > 1 else "")
        + (", 2 replicas" if schedule.placement.n_replicas > 1 else "")
    )


def result_line(name: str, metrics: Metrics, shape: Shape, unit: str) -> str:
    """The numbers of one run on one line."""
    from ppsim.simulation.columns import columns_of

    return "  ".join([name, *(f"{c.heading} {c.text(c.of(metrics, shape), unit)}" for c in columns_of("line"))])


def summary(timeline: Timeline, metrics: Metrics) -> str:
    """The numbers of one run, one line each, with what they mean."""
    from ppsim.simulation.columns import columns_of, shape_of

    shape = shape_of(timeline.schedule)
    rows = (
        (c.heading, c.text(c.of(metrics, shape), timeline.unit), c.note_on(metrics, shape))
        for c in columns_of("summary")
        if not isnan(c.of(metrics, shape))
    )
    return "\n".join(f"{name:<18} {value:>12}   {note}" for name, value, note in rows)


def print_recomputed(schedules: Iterable[Schedule]) -> None:
    """Say what counts as an activation where a schedule recomputes."""
    if any(schedule.recomputed.any() for schedule in schedules):
        click.echo("with recompute an activation counts from its R on; the input that F keeps for it does not count")


def print_gantt(timeline: Timeline, metrics: Metrics, marks: Marks | None = None) -> None:
    """The chart, in colour where the terminal has it, letters elsewhere; ``marks`` are drawn in idle time."""
    from ppsim.drawing.terminal import gantt

    # A pipe has no width of its own, and numbers are left out where there are few columns.
    screen = console() if "COLUMNS" in os.environ else console(WIDEST)
    colour = shows_colours(screen)
    # Of 16 colours both shades of a kind would get the same: letters tell the ops apart.
    basic = screen.is_terminal and screen.color_system == "standard" and not screen.no_color
    columns = min(screen.width, WIDEST)
    screen.print(gantt(timeline, metrics, columns, colour, screen.encoding, basic=basic, marks=marks), crop=False)


def shows_colours(screen: Console) -> bool:
    """Whether a console has the colours of figures."""
    return screen.is_terminal and screen.color_system in ("256", "truecolor") and not screen.no_color


def console(at_least: int = 20, *, err: bool = False) -> Console:
    """Standard output, or standard error, as rich sees it; in a pipe at least so many columns wide."""
    from rich.console import Console

    # Brackets and colons of units and file names are no markup.
    plain: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False}
    screen = Console(soft_wrap=True, stderr=err, **plain)
    return screen if screen.is_terminal or screen.width >= at_least else Console(width=at_least, stderr=err, **plain)


def title_of(schedule: Schedule) -> str:
    """The schedule's name as figures write it."""
    from ppsim.errors import UnknownSchedule
    from ppsim.schedules import find

    try:
        return find(schedule.name).title
    except UnknownSchedule:
        return schedule.name


def echo_json(value: object) -> None:
    """One JSON object on standard output."""
    from ppsim.base.json_output import dump_json

    click.echo(dump_json(value).decode())


def counted(number: int, noun: str) -> str:
    """A number and its noun: 1 device, 4 devices."""
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def needs(family: Family) -> str:
    """The rules of a schedule as one line."""
    return "; ".join(rule.text for rule in family.rules) or "any P, V, M"


def family_object(family: Family) -> dict[str, object]:
    """A schedule's facts for --json."""
    return {
        "name": family.name,
        "title": family.title,
        "aliases": family.aliases,
        "torch": family.torch,
        "placement": family.placement,
        "chunks": family.chunks,
        "split_backward": family.split,
        "needs": [rule.text for rule in family.rules],
        "bubble": family.bubble,
        "peak_activations": family.peak,
        "idea": family.idea,
        "paper": family.paper,
        "options": family.options,
    }
