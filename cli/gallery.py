"""Draw every schedule from one set of costs."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import click

from ppsim.base.atomic_file import open_atomically
from ppsim.cli._command import Question
from ppsim.cli._progress import progress_bar
from ppsim.errors import InputError
from ppsim.questions.build import build_costs
from ppsim.questions.given import Given
from ppsim.questions.groups import CostOptions
from ppsim.questions.options import Request, common, group
from ppsim.questions.write import command_line, inputs_of, quiet_matplotlib

if TYPE_CHECKING:
    from ppsim.schedules import Family
    from ppsim.show.files.document import Document

HEADING = "# Gallery"
INTRODUCTION = (
    "Each picture is above the command that makes it.\n"
    "Timelines are predicted, except where a run was measured. One command makes them all:"
)
OTHER_COSTS = "costs"  # what the second picture of a schedule is called after its name


@dataclass(frozen=True, kw_only=True)
class GalleryRequest(Request):
    """Draw every schedule on the same devices, with an index page.

    Each is drawn as in a textbook, F = I = W = 1 and messages for nothing, and beside that with the costs given.

    \b
      ppsim gallery -o gallery --profile gallery/profile-cpu.toml
    """

    question: ClassVar[str] = "gallery"
    output: str = common(
        "--output", "-o", type=click.Path(file_okay=False), required=True, help="Folder for figures and index."
    )
    devices: int = common("--devices", "--pp", default=4, help="Pipeline devices, P.")
    microbatches: int = common("--mb", "-m", "--microbatches", default=8, help="Microbatches, M.")
    costs: CostOptions = group(CostOptions, "Costs")


def _draw(ctx: click.Context, asked: GalleryRequest) -> None:
    from ppsim.schedules import families
    from ppsim.show.files.document import save

    folder, devices, microbatches = Path(asked.output), asked.devices, asked.microbatches
    index = Path(_place_in(folder, "README.md"))
    if index.exists() and not index.read_text(errors="replace").startswith(HEADING):
        raise InputError(f"'{index}' is there and is no gallery's index", "another folder")
    quiet_matplotlib()
    folder.mkdir(parents=True, exist_ok=True)
    sections, refused = [], []
    with progress_bar() as report:
        for number, family in enumerate(families()):
            report(number / len(families()), family.title)
            try:
                documents = _documents(asked, family)
            except InputError as error:
                refused.append(str(error))
                continue
            for file, document in documents:
                save(document, _place_in(folder, file))
            sections.append(_section(family, documents, devices, microbatches))
    if not sections:
        reason = f"no schedule takes {devices} devices and {microbatches} microbatches; the last: {refused[-1]}"
        raise InputError(reason, "--devices 4 --mb 8")
    made_by = f"{command_line(Given.of(asked))} -o {asked.output}"
    head = f"{HEADING}\n\n{INTRODUCTION}\n\n    {made_by}\n\nSchedules: {links_to(sections)}.\n"
    tail = ["\nNot drawn: " + "; ".join(refused) + "\n"] if refused else []
    with open_atomically(str(index)) as out:
        out.write("\n".join([head, *sections, *tail]).encode())
    click.echo(f"wrote {len(sections)} schedules to {asked.output}", err=True)


def _place_in(folder: Path, name: str) -> str:
    """Return the path of a file of the gallery (InputError: a link is there, which leads elsewhere)."""
    path = folder / name
    if path.is_symlink():
        raise InputError(f"'{path}' is a link, and a gallery writes in its own folder only", "remove it")
    return str(path)


def _documents(asked: GalleryRequest, family: Family) -> list[tuple[str, Document]]:
    """A schedule's pictures with their names: textbook costs, and the costs given where they are others."""
    from ppsim.core.recompute import add_recompute
    from ppsim.engine.simple.longest_path import simulate
    from ppsim.questions.words import title_of
    from ppsim.schedules import generate
    from ppsim.show.files.document import Document

    costs = asked.costs
    plain = replace(CostOptions(), recompute=costs.recompute)
    result = []
    for file, given in [(family.name, plain), *([(f"{family.name}-{OTHER_COSTS}", costs)] if costs != plain else [])]:
        schedule = generate(family.name, devices=asked.devices, microbatches=asked.microbatches)
        schedule = add_recompute(schedule) if costs.recompute else schedule
        prices = build_costs(schedule, given)
        title = title_of(schedule)
        document = Document((simulate(schedule, prices),), (title,), inputs_of(Given.of(asked), prices), style="paper")
        result.append((f"{file}.svg", document))
    return result


def _section(family: Family, documents: list[tuple[str, Document]], devices: int, microbatches: int) -> str:
    """A schedule's part of the index: its idea and its pictures, each in words."""
    from ppsim.engine.simple.columns import shape_of
    from ppsim.engine.simple.metrics import measure
    from ppsim.questions.words import result_line

    lines = []
    for file, document in documents:
        timeline = document.timelines[0]
        line = result_line(family.title, measure(timeline), shape_of(timeline.schedule), timeline.unit)
        alt = f"Gantt chart with {devices} devices and {microbatches} microbatches: {line}"
        lines.append(f'<img alt="{alt}" src="{file}" width="100%">\n')
        numbers = ", ".join(re.split("  +", line.removeprefix(family.title).strip()))
        other = file.endswith(f"-{OTHER_COSTS}.svg")
        lines.append(f"{'With the costs given' if other else 'Textbook costs, F = I = W = 1'}: {numbers}.\n")
    shape = f"--devices {devices} --mb {microbatches}"
    lines.append(f"    ppsim run {family.name} {shape} --style paper -o {family.name}.svg\n")
    return "\n".join([f"## {family.title}\n", f"{family.idea}\n", *lines])


def links_to(sections: list[str]) -> str:
    """Links to sections of the index, by their headings."""
    titles = [section.partition("\n")[0].removeprefix("## ") for section in sections]
    plain = [re.sub("[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles]
    again = [plain[:n].count(anchor) for n, anchor in enumerate(plain)]  # a heading that was there gets a number
    anchors = [f"{anchor}-{count}" if count else anchor for anchor, count in zip(plain, again, strict=True)]
    return ", ".join(f"[{title}](#{anchor})" for title, anchor in zip(titles, anchors, strict=True))


command = Question(GalleryRequest, _draw)
