"""``ppsim gallery``: every schedule drawn from the same costs, with an index."""

from __future__ import annotations

from typing import Any

import click

from ppsim.cli._options import command_line, cost_options, costs_of, inputs_of


@click.command("gallery", short_help="Draw every schedule from one set of costs.")
@click.option("--output", "-o", type=click.Path(file_okay=False), required=True, help="Folder for figures and index.")
@click.option("--devices", "--pp", type=int, default=4, show_default=True, help="Pipeline devices, P.")
@click.option("--mb", "-m", "--microbatches", "microbatches", type=int, default=8, show_default=True, help="M.")
@cost_options
@click.pass_context
def command(ctx: click.Context, /, output: str, devices: int, microbatches: int, **options: Any) -> None:
    """Draw every schedule on the same devices, from one set of costs, with an index page.

    \b
      ppsim gallery -o gallery --profile gallery/profile-cpu.toml
    """
    from pathlib import Path

    from ppsim.cli._print import result_line, title_of
    from ppsim.engine import simulate
    from ppsim.errors import InputError
    from ppsim.formats import Document, opened, save
    from ppsim.metrics import measure
    from ppsim.schedules import families, generate

    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    entries, timelines, refused = [], [], []
    for family in families():
        try:
            schedule = generate(family.name, devices=devices, microbatches=microbatches)
        except InputError as error:
            refused.append(str(error))
            continue
        costs = costs_of(schedule, options)
        timeline = simulate(schedule, costs)
        line = result_line(family.title, measure(timeline), costs.unit)
        for suffix in (".svg", ".png"):
            document = Document((timeline,), (title_of(schedule),), inputs_of(ctx, costs), style="paper")
            save(document, str(folder / f"{family.name}{suffix}"))
        entries.append(
            f"## {family.title}\n\n{family.idea}\n\n![{_alt(line, devices, microbatches)}]({family.name}.svg)\n"
        )
        timelines.append(timeline)
        click.echo(f"{line}\nwrote {folder / family.name}.svg .png", err=True)
    if not timelines:
        raise InputError(f"no schedule takes {devices} devices and {microbatches} microbatches", "--devices 4 --mb 8")
    with opened(str(folder / "README.md")) as out:
        out.write(_index(command_line(ctx), entries, refused).encode())


def _alt(line: str, devices: int, microbatches: int) -> str:
    return f"Gantt chart with {devices} devices and {microbatches} microbatches: {line}"


def _index(made_by: str, entries: list[str], refused: list[str]) -> str:
    head = f"# Gallery\n\nPredicted timelines, all made by one command:\n\n    {made_by} -o gallery\n"
    tail = ["\nNot drawn: " + "; ".join(refused) + "\n"] if refused else []
    return "\n".join([head, *entries, *tail])
