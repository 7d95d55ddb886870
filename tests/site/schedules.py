"""Pages of the schedules, made of the registry, and a page of each to play with."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from ppsim import schedules
from ppsim.base.numbers import format_number, format_share
from ppsim.engine.simple.columns import peak_share, shape_of
from ppsim.questions.timelines.run import run
from ppsim.schedules import Family
from tests.gallery.figures import run_quietly
from tests.gallery.schedules import DEVICES, MICROBATCHES, PROFILE, SHAPE
from tests.guides.replay import ROOT
from tests.site.fields import cell
from tests.site.links_out import add_links

WHEN = ROOT / "gallery" / "site" / "when.toml"
PLACEMENTS = {
    "linear": "linear: device d holds stage d",
    "loop": "loop: device d holds stages d, d + P, ...",
    "v": "V: stages go down the devices and up again",
    "bidirectional": "two replicas: device d holds stages d and P-1-d",
    "bidirectional-v": "two replicas, each in a V",
}
INDEX = """# Schedules

Every schedule that ppsim generates. Numbers are for {devices} devices and {microbatches}
microbatches, with a forward of 1 t_F on each device, a backward of 2 and free messages. Bubble is
the idle share of the iteration. Peak is the largest number of activations on a device, in
activations of a device's 1/P share of the model. `ppsim compare` does this for your shape and
costs: see [choose a schedule](../guides/choose-a-schedule.md).

Queues are compared, op by op, with the queues of public original implementations: torch's
pipelining, Megatron-LM, DeepSeek's DualPipe, Sea AI Lab's zero bubble, Chimera and others. The
other schedules are checked against their papers' formulas.

| schedule | makespan | bubble | peak | when to use it |
|---|---|---|---|---|
"""
LETTERS = """P is the number of devices, V the number of stages on each, M the number of
microbatches; t_F, t_I, t_W and t_B are the times of a forward, of a backward for the input and for
the weights, and of a full backward. The [glossary](../glossary.md) explains the terms."""
PLAYGROUND = """# Playground

Each page shows a schedule of {devices} devices and {microbatches} microbatches, and works without
Python: zoom, point at ops, highlight a microbatch, show the critical path or memory over time.
Press *edit* to move, split and place ops: the page computes the new times at once, shows the cost
of each edit and the name of the resulting schedule, and keeps the edits in its address. `ppsim run
NAME {shape} -o page.html` writes such a page, also for your shape and costs, and `ppsim serve`
opens a page with controls. [Lessons](../lessons/index.md) are exercises.

A [blank sheet](blank.html) begins with empty rows (`ppsim run 1f1b {shape} --blank -o blank.html`).

| schedule | page |
|---|---|
"""


def uses() -> dict[str, str]:
    """Return when to use each schedule, by name; its idea where no sentence says so."""
    said = tomllib.loads(WHEN.read_text())
    return {
        family.name: said.get(family.name, family.idea.partition("\n")[0])
        for family in schedules.families()
    } | said


def schedule_pages() -> dict[str, str]:
    """Return the pages of all schedules by their path: an index, then one each, by title."""
    families = schedules.families()
    when = uses()
    rows = [_index_row(family, when[family.name]) for family in families]
    head = INDEX.format(devices=DEVICES, microbatches=MICROBATCHES)
    pages = {"schedules/index.md": head + "\n".join(rows) + "\n"}
    return pages | {
        f"schedules/{each.name}.md": schedule_page(each, when[each.name]) for each in families
    }


@cache
def measured(name: str, profile: str | None = None) -> tuple[str, str, str]:
    """Return a schedule's makespan, bubble and peak at the shape of the gallery, as texts."""
    where = str(ROOT / profile) if profile else None
    found = run(name, devices=DEVICES, microbatches=MICROBATCHES, profile=where)
    peak = peak_share(found.metrics, shape_of(found.schedule))
    makespan = f"{format_number(found.metrics.makespan)} {found.timeline.unit}"
    return makespan, format_share(found.metrics.bubble_rate), format_number(peak)


def _index_row(family: Family, when: str) -> str:
    numbers = " | ".join(measured(family.name))
    return f"| [{cell(family.title)}]({family.name}.md) | {numbers} | {cell(when)} |"


def schedule_page(family: Family, when: str) -> str:
    """Return a schedule's page: picture, idea, when to use it, rules and closed forms, numbers."""
    name = family.name
    facts = [
        ("needs", "; ".join(rule.text for rule in family.rules) or "any P, V and M"),
        ("placement", PLACEMENTS[family.placement]),
        ("bubble", f"`{family.bubble}`"),
        ("peak activations", f"`{family.peak}`"),
        ("paper", cell(family.paper)),
        ("torch", f"`{family.torch}`" if family.torch else ""),
        ("also called", ", ".join(f"`{alias}`" for alias in family.aliases)),
    ]
    plain = measured(name)
    costs = measured(name, PROFILE)
    idea = " ".join(family.idea.split())
    command = f"ppsim run {name} {SHAPE}"
    lines = [
        f"# {family.title}",
        "",
        cell(idea),
        "",
        f"**When to use it:** {cell(when)}",
        "",
        _picture(family, f"../{name}.svg", plain),
        "",
        f"[Open it in the playground](../playground/{name}.html)"
        "{ .md-button .md-button--primary }",
        "",
        "| property | value |",
        "|---|---|",
        *(f"| {key} | {value} |" for key, value in facts if value),
        "",
        LETTERS,
        "",
        "## With measured costs",
        "",
        _picture(family, f"../{name}-costs.svg", costs),
        "",
        "| costs | makespan | bubble | peak activations |",
        "|---|---|---|---|",
        f"| F = I = W = 1 | {' | '.join(plain)} |",
        f"| [a small transformer on a CPU](../formats/profile.md) | {' | '.join(costs)} |",
        "",
        "## Try it",
        "",
        f"```console\n$ {command}\n$ ppsim explain {name} {SHAPE}\n$ ppsim compare 1f1b {name} "
        f"{SHAPE}\n```",
        "",
    ]
    return "\n".join(lines)


def _picture(family: Family, source: str, numbers: tuple[str, str, str]) -> str:
    makespan, bubble, _ = numbers
    alt = (
        f"Gantt chart of {family.title} with {DEVICES} devices and {MICROBATCHES} microbatches, "
        f"makespan {makespan}, bubble {bubble}"
    )
    return f'<img alt="{alt}" src="{source}" width="100%">'


def playground_page() -> str:
    """Return the list of the pages to play with."""
    rows = [
        f"| [{cell(each.title)}](../schedules/{each.name}.md) | [open]({each.name}.html) |"
        for each in schedules.families()
    ]
    head = PLAYGROUND.format(devices=DEVICES, microbatches=MICROBATCHES, shape=SHAPE)
    return head + "\n".join(rows) + "\n"


def write_playground(folder: Path) -> None:
    """Write the page of each schedule into a folder, as the command writes it, with links to the
    site.
    """
    folder.mkdir(parents=True, exist_ok=True)
    playground = {"all schedules": "index.html"}
    for family in schedules.families():
        target = folder / f"{family.name}.html"
        run_quietly(["run", family.name, *SHAPE.split(), "-o", str(target)])
        about = {f"about {family.title}": f"../schedules/{family.name}.html"}
        add_links(target, playground | about)
    blank = folder / "blank.html"
    run_quietly(["run", "1f1b", *SHAPE.split(), "--blank", "-o", str(blank)])
    add_links(blank, playground)
