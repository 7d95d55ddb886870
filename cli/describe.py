"""Explain one schedule in a screenful."""

from __future__ import annotations

import click

from ppsim.cli._fit import echo_wrapped
from ppsim.cli._options import json_option, make_command, one_schedule


@make_command("describe")
@one_schedule
@click.option("--devices", "--pp", type=int, default=4, show_default=True, help="Devices of the example.")
@click.option(
    "--mb",
    "-m",
    "--microbatches",
    "microbatches",
    type=int,
    default=8,
    show_default=True,
    help="Microbatches of the example.",
)
@json_option
def command(spec: str, devices: int, microbatches: int, as_json: bool) -> None:
    """Explain one schedule: idea, needs, closed forms, paper, a small chart.

    \b
      ppsim describe zb-1p
      ppsim describe dualpipe --devices 8 --mb 20
    """
    from ppsim.cli import _print as show
    from ppsim.errors import InputError
    from ppsim.schedules import family_of, schedule_from

    family = family_of(spec)
    if family is None:
        raise InputError(f"{spec} is a file of ops, not a schedule that is described", f"ppsim run {spec}")
    if as_json:
        show.echo_json({"schema": "ppsim.describe/1", **show.family_object(family)})
        return
    from ppsim.core.costs import costs_for
    from ppsim.simulation.columns import shape_of
    from ppsim.simulation.longest_path import simulate
    from ppsim.simulation.metrics import measure

    schedule = schedule_from(spec, devices=devices, microbatches=microbatches)
    timeline = simulate(schedule, costs_for(schedule))
    metrics = measure(timeline)
    facts = {
        "needs": show.needs(family),
        "placement": f"{family.placement}, {family.chunks} per device"
        + (" unless --chunks says so" if family.chunks > 1 else ""),
        "bubble": family.bubble,
        "peak activations": family.peak,
        "paper": family.paper,
        "torch": family.torch,
        "also called": ", ".join(family.aliases),
        "options": ", ".join(f"--{option.replace('_', '-')}" for option in family.options),
    }
    echo_wrapped([(family.title, "name"), f" ({family.name})\n"])
    echo_wrapped(" ".join(family.idea.split()) if show.console().is_terminal else family.idea)
    click.echo()
    for fact, text in facts.items():
        if text:
            echo_wrapped([(f"{fact:<18}", "quiet"), text], 18)
    click.echo()
    echo_wrapped(f"{show.shape_line(schedule)}, t_F = t_I = t_W = 1 per device", 2)
    show.print_gantt(timeline, metrics)
    click.echo()
    echo_wrapped(show.result_line(family.name, metrics, shape_of(schedule), timeline.unit))
