"""The legend of a Gantt figure, on as few lines as its width allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ppsim.core.ops import Kind
from ppsim.show.drawing.canvas import POINT
from ppsim.show.drawing.gantt.design import HATCHING, Design
from ppsim.show.drawing.gantt.panel import Panel
from ppsim.show.drawing.lanes import COLLECTIVE
from ppsim.show.drawing.legend import LANE_FILL, Entry, legend_entries
from ppsim.show.drawing.letters import text_width
from ppsim.show.drawing.palette import COLLECTIVE as COLLECTIVE_LANE
from ppsim.show.drawing.palette import COMM_ARROW

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# In units of the font's size: a box's width and height, a low box's height, the start of the name,
# the space between entries; and the distance between lines.
BOX, BOX_HEIGHT, LOW_BOX_HEIGHT, NAME_AT, APART = 1.1, 0.75, 0.35, 1.5, 1.4
LEGEND_LINE = 1.7
LEAST_SEEN = 2  # dots, below which cells blend in print


def figure_legend(panels: Sequence[Panel], design: Design) -> list[Entry]:
    """Return the legend's entries in order, with remarks on cells' texts and on narrow cells."""
    causes = {name for panel in panels if panel.idle for name in panel.idle.by_cause}
    entries = legend_entries(
        [panel.timeline for panel in panels], design.bands, causes, design.palette
    )
    kinds = {int(kind) for panel in panels if panel.lane for kind in np.unique(panel.lane.kind)}
    if Kind.REDUCE_GRAD in kinds and COLLECTIVE in {*design.bands} - {*design.strips}:
        gathers = (
            [Entry("Parameters (FSDP)", (COLLECTIVE_LANE,), low=True)]
            if Kind.UNSHARD in kinds
            else []
        )
        gradients = Entry("Gradients (FSDP)", (COLLECTIVE_LANE,), low=True, hatch="#FFFFFF")
        entries = [each for each in entries if each.colours != (COLLECTIVE_LANE,)] + [
            *gathers,
            gradients,
        ]
    blurred = {LANE_FILL[band] for band in design.strips}
    entries = [
        replace(each, name=f"{each.name}, by share of time")
        if each.low and blurred & {*each.colours}
        else each
        for each in entries
    ]
    if design.vector and any("." in words[0] for words in _texts_shown(panels, design)):
        entries.append(Entry("1.3: chunk 1, microbatch 3"))
    narrowest = min(float(panel.cells.width.min(initial=np.inf)) for panel in panels)
    if not design.vector and narrowest * design.scale * POINT < LEAST_SEEN:
        entries.append(Entry("Cells too narrow to print blend"))
    return entries


def _texts_shown(panels: Sequence[Panel], design: Design) -> Iterator[list[str]]:
    """Yield the cell texts of each panel that shows any."""
    for panel in panels:
        _, shown, texts = panel.choose_texts(design.scale, design.row / POINT, design.font)
        if shown.any():
            yield texts


def legend_lines(entries: Sequence[Entry], room: float, font: float) -> list[list[Entry]]:
    """Return the entries on as few lines of ``room`` points as possible, about as many on each."""
    for count in range(1, len(entries) + 1):
        ends = [-(-len(entries) * line // count) for line in range(count + 1)]
        lines = [list(entries[first:last]) for first, last in pairwise(ends)]
        if count == len(entries) or max(_line_width(line, font) for line in lines) <= room:
            return lines
    return []


def draw_legend_line(figure: Figure, entries: Sequence[Entry], design: Design, y: float) -> None:
    """Draw one line of the legend, centred below the rows, ``y`` dots above the figure's bottom."""
    from matplotlib.patches import Rectangle
    from matplotlib.transforms import Affine2D

    font, page = design.font, float(figure.get_figwidth()) * 72
    points = Affine2D().scale(1 / 72) + figure.dpi_scale_trans
    width = _line_width(entries, font)
    x = max(min((design.left + design.across / 2) / POINT - width / 2, page - width - 2), 2)
    y /= POINT
    for entry in entries:
        box = _box_width(entry, font)
        tall, ink = (
            (LOW_BOX_HEIGHT * font, COMM_ARROW) if entry.low else (BOX_HEIGHT * font, "black")
        )
        for number, colour in enumerate(entry.colours):
            part = box / len(entry.colours)
            patch = Rectangle(
                (x + number * part, y - tall / 2), part, tall, facecolor=colour, linewidth=0
            )
            figure.add_artist(patch).set_transform(points)
        if entry.hatch:
            lines: dict[str, Any] = {
                "hatch": HATCHING,
                "hatch_linewidth": 0.5,
                "edgecolor": entry.hatch,
            }
            patch = Rectangle((x, y - tall / 2), box, tall, fill=False, linewidth=0, **lines)
            figure.add_artist(patch).set_transform(points)
        if entry.colours:
            frame = Rectangle(
                (x, y - tall / 2), box, tall, fill=False, edgecolor=ink, linewidth=0.4
            )
            figure.add_artist(frame).set_transform(points)
        look: dict[str, Any] = {"fontsize": font, "va": "center_baseline", "parse_math": False}
        figure.text(x + _name_at(entry, font), y, entry.name, transform=points, **look)
        x += _entry_width(entry, font)


def _box_width(entry: Entry, font: float) -> float:
    """Return the width of an entry's box in points, at least half a usual box per colour."""
    return BOX * font * max(1.0, len(entry.colours) / 2) * bool(entry.colours)


def _name_at(entry: Entry, font: float) -> float:
    """Return the points from the start of an entry to its name."""
    return (_box_width(entry, font) + (NAME_AT - BOX) * font) * bool(entry.colours)


def _entry_width(entry: Entry, font: float) -> float:
    """Return the points from the start of an entry to the start of the next."""
    return _name_at(entry, font) + text_width(entry.name, font) + APART * font


def _line_width(entries: Sequence[Entry], font: float) -> float:
    return sum(_entry_width(entry, font) for entry in entries) - APART * font
