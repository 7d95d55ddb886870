"""Draw every schedule from one set of costs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ppsim.cli._build import build_costs
from ppsim.cli._options import CostOptions, cost_options, make_command
from ppsim.cli._write import command_line, inputs_of, quiet_matplotlib

if TYPE_CHECKING:
    from ppsim.files.document import Document
    from ppsim.schedules import Family

HEADING = "# Gallery"
INTRODUCTION = (
    "Each picture is above the command that makes it, and `ppsim rerun FILE` makes it again from what the file says of "
    "itself.\nTimelines are predicted, except where a run was measured. One command makes them all:"
)
OTHER_COSTS = "costs"  # what the second picture of a schedule is called after its name


@make_command("gallery")
@click.option("--output", "-o", type=click.Path(file_okay=False), required=True, help="Folder for figures and index.")
@click.option("--figures", type=click.Path(), metavar="FILE", help="A TOML list of further figures, to come first.")
@click.option("--check", "only_check", is_flag=True, help="Change nothing; say which files would come out different.")
@click.option("--devices", "--pp", type=int, default=4, show_default=True, help="Pipeline devices, P.")
@click.option(
    "--mb", "-m", "--microbatches", "microbatches", type=int, default=8, show_default=True, help="Microbatches, M."
)
@cost_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    output: str,
    figures: str | None,
    only_check: bool,
    devices: int,
    microbatches: int,
    costs: CostOptions,
) -> None:
    """Draw every schedule on the same devices, with an index page.

    Each is drawn as in a textbook, F = I = W = 1 and messages for nothing, and beside that with the costs given.

    \b
      ppsim gallery -o gallery --figures gallery/figures.toml --profile gallery/profile-cpu.toml
    """
    from tempfile import TemporaryDirectory

    from ppsim.cli._gallery import differing
    from ppsim.errors import InputError

    folder = Path(output)
    index = folder / "README.md"
    if index.exists() and not index.read_text(errors="replace").startswith(HEADING):
        raise InputError(f"'{index}' is there and is no gallery's index", "another folder")
    quiet_matplotlib()
    if not only_check:
        folder.mkdir(parents=True, exist_ok=True)
        drawn = _draw(ctx, folder, output, figures, devices, microbatches, costs)
        return click.echo(f"wrote {drawn} to {output}", err=True)
    if not folder.is_dir():
        raise InputError(f"there is no folder '{output}' to check", "leave out --check to make it")
    with TemporaryDirectory() as fresh:
        _draw(ctx, Path(fresh), output, figures, devices, microbatches, costs)
        found = differing(folder, Path(fresh))
    click.echo("\n".join([*found, f"{len(found)} files differ" if found else "the gallery is up to date"]))
    return ctx.exit(1) if found else None


def _draw(
    ctx: click.Context,
    folder: Path,
    name: str,
    figures: str | None,
    devices: int,
    microbatches: int,
    costs: CostOptions,
) -> str:
    """Draw all figures into the folder, and write its index; returns how many."""
    from ppsim.base.atomic_file import open_atomically
    from ppsim.cli._gallery import draw_entry, entry_section, read_figures
    from ppsim.cli._progress import progress_bar
    from ppsim.errors import InputError
    from ppsim.files.document import save
    from ppsim.schedules import families

    entries = read_figures(figures) if figures else ()
    sections, refused, drawn = [], [], 0
    with progress_bar() as report:
        for number, entry in enumerate(entries):
            report(number / (len(entries) + len(families())), entry.title)
            draw_entry(entry, folder)
            sections.append(entry_section(entry))
        for number, family in enumerate(families(), start=len(entries)):
            report(number / (len(entries) + len(families())), family.title)
            try:
                documents = _documents(ctx, family, devices, microbatches, costs)
            except InputError as error:
                refused.append(str(error))
                continue
            for file, document in documents:
                save(document, str(folder / file))
            sections.append(_section(family, documents, devices, microbatches))
            drawn += 1
    if not drawn:
        reason = f"no schedule takes {devices} devices and {microbatches} microbatches; the last: {refused[-1]}"
        raise InputError(reason, "--devices 4 --mb 8")
    with open_atomically(str(folder / "README.md")) as out:
        out.write(_index(f"{command_line(ctx)} -o {name}", sections, refused, drawn).encode())
    return f"{drawn} schedules and {len(entries)} figures"


def _documents(
    ctx: click.Context, family: Family, devices: int, microbatches: int, costs: CostOptions
) -> list[tuple[str, Document]]:
    """A schedule's pictures with their names: textbook costs, and the costs given where they are others."""
    from ppsim.cli._print import title_of
    from ppsim.core.recompute import add_recompute
    from ppsim.files.document import Document
    from ppsim.schedules import generate
    from ppsim.simulation.longest_path import simulate

    plain = replace(CostOptions(), recompute=costs.recompute)
    result = []
    for file, given in [(family.name, plain), *([(f"{family.name}-{OTHER_COSTS}", costs)] if costs != plain else [])]:
        schedule = generate(family.name, devices=devices, microbatches=microbatches)
        schedule = add_recompute(schedule) if costs.recompute else schedule
        prices = build_costs(schedule, given)
        title = title_of(schedule)
        document = Document((simulate(schedule, prices),), (title,), inputs_of(ctx, prices), style="paper")
        result.append((f"{file}.svg", document))
    return result


def _section(family: Family, documents: list[tuple[str, Document]], devices: int, microbatches: int) -> str:
    """A schedule's part of the index: its idea and its pictures, each in words."""
    from ppsim.cli._print import result_line
    from ppsim.simulation.columns import shape_of
    from ppsim.simulation.metrics import measure

    lines = []
    for file, document in documents:
        timeline = document.timelines[0]
        line = result_line(family.title, measure(timeline), shape_of(timeline.schedule), timeline.unit)
        lines.append(f"![Gantt chart with {devices} devices and {microbatches} microbatches: {line}]({file})\n")
        numbers = ", ".join(re.split("  +", line.removeprefix(family.title).strip()))
        other = file.endswith(f"-{OTHER_COSTS}.svg")
        lines.append(f"{'With the costs given' if other else 'Textbook costs, F = I = W = 1'}: {numbers}.\n")
    shape = f"--devices {devices} --mb {microbatches}"
    lines.append(f"    ppsim run {family.name} {shape} --style paper -o {family.name}.svg\n")
    return "\n".join([f"## {family.title}\n", f"{family.idea}\n", *lines])


def _index(made_by: str, sections: list[str], refused: list[str], schedules: int) -> str:
    """The page: what it is, links to all sections, the ``schedules`` last ones of one schedule each, the sections."""
    titles = [section.partition("\n")[0].removeprefix("## ") for section in sections]
    links = [f"[{title}](#{re.sub('[^a-z0-9 -]', '', title.lower()).replace(' ', '-')})" for title in titles]
    first = len(links) - schedules
    named = (("Pictures", links[:first]), ("Schedules", links[first:]))
    lists = [f"{name}: {', '.join(found)}.\n" for name, found in named if found]
    head = "\n".join([f"{HEADING}\n\n{INTRODUCTION}\n\n    {made_by}\n", *lists])
    tail = ["\nNot drawn: " + "; ".join(refused) + "\n"] if refused else []
    return "\n".join([head, *sections, *tail])
