"""What ``ppsim partition`` prints of an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from ppsim.cli._fit import echo_wrapped

if TYPE_CHECKING:
    from ppsim.core.curve import Curve
    from ppsim.core.timeline import Timeline
    from ppsim.layout.layout import Layout
    from ppsim.search.partition import Partition
    from ppsim.search.splits import SplitProblem

MOST_ROWS, MOST_NAMED = 64, 8


class Answer(NamedTuple):
    """The best split found, timed as ``ppsim run --layout`` times it.

    ``even`` is the makespan of the most even split, ``held`` what devices hold with the best.
    """

    found: Partition
    layout: Layout
    timeline: Timeline
    problem: SplitProblem
    even: float
    held: Curve


def size_of(answer: Answer) -> str:
    """The schedule with its devices and microbatches."""
    schedule = answer.timeline.schedule
    return f"{schedule.name} {schedule.n_devices}x{schedule.n_microbatches}"


def busy_of(answer: Answer) -> list[float]:
    """Time that each device computes."""
    from ppsim.simulation.metrics import measure

    return [float(busy) for busy in measure(answer.timeline).busy]


def print_answer(answer: Answer, command: str) -> None:
    """Print the split, its proof, its devices, the next best ones, and the command that runs it."""
    from ppsim.base.numbers import format_number, format_share
    from ppsim.cli import _print as show
    from ppsim.layout.flags import flags_of

    timeline, layout, found = answer.timeline, answer.layout, answer.found
    schedule, unit = timeline.schedule, timeline.unit
    click.echo(f"{show.title_of(schedule)}  {show.shape_line(schedule)}, {show.counted(layout.n_layers, 'layer')}\n")
    click.echo(f"layout    {layout}")
    click.echo(f"split     {','.join(map(str, layout.layers))} layers per stage")
    gain = format_share(1 - timeline.makespan / answer.even) if answer.even else "0%"
    even = f"{gain} less than the even split's {format_number(answer.even)}"
    same = timeline.makespan >= answer.even * (1 - 1e-9)
    click.echo(f"makespan  {format_number(timeline.makespan)} {unit}, " + ("as the even split" if same else even))
    if found.status == "optimal":
        of = (
            f"none of the {answer.problem.n_splits:,} splits is faster"
            if answer.problem.n_splits > 1
            else "the only split"
        )
        proof = f"optimal: {of} ({found.timed:,} simulated)"
    else:
        gap = format_share(timeline.makespan / found.bound - 1) if found.bound else ""
        bound = f"no split is faster than {format_number(found.bound)}, gap {gap}" if gap else "without a bound"
        proof = f"feasible: {bound} ({found.timed:,} simulated)"
    echo_wrapped(f"status    {proof}", 10)
    _print_devices(answer)
    if found.runner_ups:
        click.echo("\nnext best" + ("" if found.ranked else " of those simulated"))
        for split, makespan in found.runner_ups:
            click.echo(f"  {format_number(makespan):>10}  {','.join(map(str, split))}")
    click.echo()
    echo_wrapped(f"flags     {flags_of(layout)}", 10)
    echo_wrapped(f"run it    {command}", 10)


def _print_devices(answer: Answer) -> None:
    """Print what each device holds and computes, and the one that decides."""
    from ppsim.base.numbers import format_number, format_share
    from ppsim.base.units import format_size
    from ppsim.layout.text import format_content

    timeline, layout, busy = answer.timeline, answer.layout, busy_of(answer)
    schedule, span = timeline.schedule, timeline.makespan
    held = "most held" if answer.held.unit == "B" else "activations"
    click.echo(f"\ndevice        busy    idle  {held:>11}  stages")
    for device in range(min(schedule.n_devices, MOST_ROWS)):
        own = sorted({int(s) for s in schedule.stage[schedule.queue(device)]})
        stages = "  ".join(f"{s}: {format_content(layout.content[s : s + 1]) or '(empty)'}" for s in own)
        idle = format_share(1 - busy[device] / span) if span else "0%"
        held = format_size(answer.held.peak[device], answer.held.unit)
        click.echo(f"{device:>6}  {format_number(busy[device]):>10}  {idle:>6}  {held:>11}  {stages}")
    if schedule.n_devices > MOST_ROWS:
        click.echo(f"... {schedule.n_devices - MOST_ROWS} more devices")
    most = max(busy)
    those = [device for device, own in enumerate(busy) if own >= most * (1 - 1e-9)]
    if len(those) == len(busy) > 1:
        who = "all devices compute alike"
    elif len(those) > MOST_NAMED:
        who = f"{len(those)} devices have most to compute"
    elif len(those) > 1:
        who = f"devices {', '.join(map(str, those[:-1]))} and {those[-1]} have most to compute"
    else:
        who = f"device {those[0]} has most to compute"
    echo_wrapped(
        f"\nwhy       {who}, {format_number(most)} of {format_number(span)} {timeline.unit}; the other "
        f"{format_number(span - most)} are filling, draining and waiting",
        10,
    )
