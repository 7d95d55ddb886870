"""What the commands over several schedules share: their options, and one row per schedule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ppsim.cli._network import timed
from ppsim.cli._options import ScheduleName, build, chained

if TYPE_CHECKING:
    from ppsim.analysis.compare import Row

names_argument = click.argument("names", metavar="SCHEDULE...", nargs=-1, required=True, type=ScheduleName())

group_options = chained(
    click.option("--group-size", type=int, help="Microbatches per group of interleaved schedules, N."),
    click.option("--rule", type=click.Choice(["torch", "megatron"]), help="Rule for M and N of interleaved schedules."),
)

shape_options = chained(
    click.option(
        "--devices",
        "--pp",
        "--stages",
        type=int,
        required=True,
        help="Pipeline devices, P, the same for all; --stages counts them too.",
    ),
    click.option("--mb", "-m", "--microbatches", "microbatches", type=int, required=True, help="Microbatches, M."),
    group_options,
)


def row_of(name: str, options: Mapping[str, Any]) -> Row:
    """The schedule given as NAME or NAME:V, timed by the model the options ask for; or why it does not apply."""
    from ppsim.analysis.compare import row

    return row(
        name,
        lambda base, chunks: build(base, {**_taken(base, options), "chunks": chunks}),
        lambda schedule, costs: timed(schedule, costs, options),
    )


def _taken(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options without those that only other schedules take."""
    from ppsim.errors import UnknownSchedule
    from ppsim.schedules import find

    try:
        takes = find(name).options
    except UnknownSchedule:
        takes = ()
    return {key: value for key, value in options.items() if key not in ("group_size", "rule") or key in takes}
