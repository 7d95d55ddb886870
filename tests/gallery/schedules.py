"""The gallery's pictures of every schedule, and their part of its index."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ppsim.ask.words import result_line
from ppsim.engine.simple.columns import shape_of
from ppsim.questions.timelines.run import run
from tests.gallery.figures import run_quietly

if TYPE_CHECKING:
    from ppsim.schedules import Family

DEVICES, MICROBATCHES = 4, 8
SHAPE = f"--devices {DEVICES} --mb {MICROBATCHES}"
PROFILE = "gallery/profile-cpu.toml"  # as its commands name it, from the top of the repository


def draw_schedule(family: Family, folder: Path) -> str:
    """Draw a schedule in a folder, at textbook costs and at measured ones; returns its part of the
    index.
    """
    command = f"run {family.name} {SHAPE} --style paper"
    textbook = _picture(
        family, command.split(), folder / f"{family.name}.svg", "Textbook costs, F = I = W = 1"
    )
    measured = [*command.split(), "--profile", PROFILE]
    costs = _picture(
        family, measured, folder / f"{family.name}-costs.svg", "With the costs given", PROFILE
    )
    line = f"    ppsim {command} -o {family.name}.svg\n"
    return "\n".join([f"## {family.title}\n", f"{family.idea}\n", *textbook, *costs, line])


def _picture(
    family: Family, words: list[str], target: Path, costs: str, profile: str | None = None
) -> list[str]:
    """Draw one picture; returns its lines of the index, with what it shows in words."""
    run_quietly([*words, "-o", str(target)])
    found = run(family.name, devices=DEVICES, microbatches=MICROBATCHES, profile=profile)
    line = result_line(family.title, found.metrics, shape_of(found.schedule), found.timeline.unit)
    alt = f"Gantt chart with {DEVICES} devices and {MICROBATCHES} microbatches: {line}"
    numbers = ", ".join(re.split("  +", line.removeprefix(family.title).strip()))
    return [f'<img alt="{alt}" src="{target.name}" width="100%">\n', f"{costs}: {numbers}.\n"]
