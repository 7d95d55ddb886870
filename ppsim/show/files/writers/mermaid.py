"""Mermaid gantt text, which GitHub and many notebooks draw."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from itertools import product
from typing import IO, Any

import numpy as np

from ppsim.base.text import mermaid_line
from ppsim.base.times import scaled_unit
from ppsim.core.lanes import used_streams
from ppsim.core.ops import Kind, Stream
from ppsim.core.timeline import Timeline
from ppsim.errors import InputError
from ppsim.show.drawing.palette import DEFAULT
from ppsim.show.files.document import Abilities, Document, require_one

SUFFIXES = (".mmd",)
ABILITIES = Abilities(one_schedule=True)
MOST_OPS = 400
LARGEST = 10**12  # scale of times
# Mermaid has four styles of bars, here by colour key. Ops that other formats hatch combine two.
STYLE = {"forward": "", "backward": "done, ", "input": "active, ", "weights": "crit, "}
OTHER = "active, crit, "
HATCHED = "done, crit, "
# Mermaid's theme variables for the fill of each style, with colour key and tint. All but the first
# have black text, so I and W use their lighter tint.
FILLS = {
    "taskBkgColor": ("forward", 0),
    "doneTaskBkgColor": ("backward", 0),
    "activeTaskBkgColor": ("input", 1),
    "critBkgColor": ("weights", 1),
}
KIND_LETTERS = np.array([len(kind.name) for kind in Kind])
LETTER = 7.0  # width of a label's letter in pixels
NARROWEST, WIDEST = 800, 6000  # width of the chart in pixels
SECTION_NAMES = 150  # width of the sections' names in pixels


def write(document: Document, out: IO[bytes], suffix: str) -> None:
    """Write a section per device and stream, with bars named like ``2F0`` and whole times.

    Raises:
        InputError: there are too many ops, or an op is too short for whole times.
    """
    timeline = require_one(document, suffix)
    if len(timeline.schedule) > MOST_OPS:
        raise InputError(
            f"Mermaid cannot draw {len(timeline.schedule)} ops ({MOST_OPS} at most)",
            "an .svg or .html shows them all",
        )
    out.write(text(timeline, document.titles[0], document.inputs).encode())


def text(timeline: Timeline, title: str, inputs: Mapping[str, Any] | None = None) -> str:
    """Return the chart as Mermaid source, with version and command of ``inputs`` in a comment."""
    schedule, scale = timeline.schedule, _scale(timeline)
    heading = mermaid_line(f"{title}, time in {scaled_unit(timeline.unit, scale)}")
    lines = ["---", "displayMode: compact", "---"]
    if inputs and "command" in inputs:
        lines.append("%% " + mermaid_line(f"ppsim {inputs.get('ppsim')}: {inputs['command']}"))
    if schedule.n_slices > 1:
        lines.append(f"%% slices: {schedule.n_slices}")
    if schedule.n_rounds > 1:
        lines.append(f"%% steps: {schedule.n_rounds}")
    lines += ["%% each step needs the one before"] * schedule.feeds_back
    lines += ["%% steps never drain"] * (not schedule.flushes)
    lines += [_look(timeline), "gantt", f"    title {heading}"]
    lines += ["    dateFormat x", "    axisFormat %Q"]
    for device, stream in product(
        range(schedule.n_devices), (Stream.COMPUTE, *used_streams(schedule))
    ):
        queue = schedule.queue(device)
        leads = queue.start + np.flatnonzero(schedule.leads[queue])
        ops = [op for op in leads.tolist() if Kind(schedule.kind[op]).info.stream == stream]
        if ops or stream == Stream.COMPUTE:
            lines.append(f"    section device {device}{f' {stream.label}' if stream else ''}")
        for op in ops:
            name = " + ".join(schedule.label(member) for member in schedule.members(op))
            start, end = round(timeline.start[op] * scale), round(timeline.end[op] * scale)
            info = Kind(schedule.kind[op]).info
            style = HATCHED if info.hatched else STYLE.get(info.colour, OTHER)
            lines.append(f"    {name} :{style}o{op}, {start}, {end}")
    return "\n".join(lines) + "\n"


def _look(timeline: Timeline) -> str:
    """Return the line that sets the chart's colours, and a width at which labels fit their bars."""
    schedule, spans = timeline.schedule, timeline.end - timeline.start
    leads = schedule.leads & (spans > 0)
    name = (
        len(f"{schedule.n_stages - 1}{schedule.n_microbatches - 1}") + KIND_LETTERS[schedule.kind]
    )
    letters = np.where(schedule.pair >= 0, 2 * name + 3, name)[leads] * LETTER + LETTER
    needed = float((letters / spans[leads]).max(initial=0.0)) * timeline.makespan + SECTION_NAMES
    theme = {variable: DEFAULT.tints[key][tint] for variable, (key, tint) in FILLS.items()} | {
        **dict.fromkeys(("taskTextColor", "taskTextLightColor"), "#ffffff"),
        **dict.fromkeys(("taskTextDarkColor", "taskTextOutsideColor"), "#000000"),
        **dict.fromkeys(
            ("taskBorderColor", "activeTaskBorderColor", "doneTaskBorderColor", "critBorderColor"),
            "#fff",
        ),
        **dict.fromkeys(
            ("sectionBkgColor", "sectionBkgColor2", "altSectionBkgColor"), DEFAULT.bubble
        ),
    }
    width = round(min(max(NARROWEST, needed), WIDEST))
    settings = {"theme": "base", "gantt": {"useWidth": width}, "themeVariables": theme}
    return f"%%{{init: {json.dumps(settings)}}}%%"


def _scale(timeline: Timeline) -> int:
    """Return the smallest power of ten that makes all times whole numbers.

    If none does, return one that gives the shortest bar four digits.
    """
    times = np.concatenate([timeline.start, timeline.end])
    spans = timeline.end - timeline.start
    shortest = float(spans[spans > 0].min(initial=1.0))
    if shortest < 1 / LARGEST:
        raise InputError(
            f"a bar of {shortest:g} {timeline.unit} is too short for Mermaid's whole numbers",
            "an .svg or .html can show it",
        )
    least = 10 ** math.ceil(-math.log10(shortest))
    scales = (
        s
        for s in (least, 10 * least, 100 * least)
        if np.allclose(times * s, np.round(times * s), 1e-12, 1e-6)
    )
    return min(next(scales, 1000 * least), LARGEST)
