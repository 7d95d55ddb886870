"""Draw every schedule from one set of costs."""

from __future__ import annotations

import click

from ppsim.cli._build import build_costs
from ppsim.cli._options import CostOptions, cost_options, make_command
from ppsim.cli._write import command_line, inputs_of, quiet_matplotlib

HEADING = "# Gallery"


@make_command("gallery")
@click.option("--output", "-o", type=click.Path(file_okay=False), required=True, help="Folder for figures and index.")
@click.option("--devices", "--pp", type=int, default=4, show_default=True, help="Pipeline devices, P.")
@click.option("--mb", "-m", "--microbatches", "microbatches", type=int, default=8, show_default=True, help="M.")
@cost_options
@click.pass_context
def command(ctx: click.Context, /, output: str, devices: int, microbatches: int, costs: CostOptions) -> None:
    """Draw every schedule on the same devices, from one set of costs, with an index page.

    \b
      ppsim gallery -o gallery --profile gallery/profile-cpu.toml
    """
    from pathlib import Path

    from ppsim.base.atomic_file import open_atomically
    from ppsim.cli._print import result_line, title_of
    from ppsim.core.recompute import add_recompute
    from ppsim.errors import InputError
    from ppsim.files.document import Document, save
    from ppsim.schedules import families, generate
    from ppsim.simulation.columns import shape_of
    from ppsim.simulation.longest_path import simulate
    from ppsim.simulation.metrics import measure

    folder, drawn, refused = Path(output), [], []
    for family in families():
        try:
            schedule = generate(family.name, devices=devices, microbatches=microbatches)
            schedule = add_recompute(schedule) if costs.recompute else schedule
            prices = build_costs(schedule, costs)
        except InputError as error:
            refused.append(str(error))
            continue
        timeline = simulate(schedule, prices)
        drawn.append((family, Document((timeline,), (title_of(schedule),), inputs_of(ctx, prices), style="paper")))
    if not drawn:
        raise InputError(
            f"no schedule takes {devices} devices and {microbatches} microbatches; the last: {refused[-1]}",
            "--devices 4 --mb 8",
        )
    index = folder / "README.md"
    if index.exists() and not index.read_text(errors="replace").startswith(HEADING):
        raise InputError(f"'{index}' is there and is no gallery's index", "another folder")
    folder.mkdir(parents=True, exist_ok=True)
    quiet_matplotlib()
    entries = []
    for family, document in drawn:
        timeline = document.timelines[0]
        line = result_line(family.title, measure(timeline), shape_of(timeline.schedule), timeline.unit)
        for suffix in (".svg", ".png"):
            save(document, str(folder / f"{family.name}{suffix}"))
        entries.append(
            f"## {family.title}\n\n{family.idea}\n\n![{_alt(line, devices, microbatches)}]({family.name}.svg)\n"
        )
        click.echo(line)
        click.echo(f"wrote {folder / family.name}.svg .png", err=True)
    with open_atomically(str(index)) as out:
        out.write(_index(f"{command_line(ctx)} -o {output}", entries, refused).encode())


def _alt(line: str, devices: int, microbatches: int) -> str:
    return f"Gantt chart with {devices} devices and {microbatches} microbatches: {line}"


def _index(made_by: str, entries: list[str], refused: list[str]) -> str:
    head = f"{HEADING}\n\nPredicted timelines, all made by one command:\n\n    {made_by}\n"
    tail = ["\nNot drawn: " + "; ".join(refused) + "\n"] if refused else []
    return "\n".join([head, *entries, *tail])
