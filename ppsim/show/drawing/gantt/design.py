"""The measures of a Gantt figure, which follow from its panels, its style and its width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ppsim.show.drawing.canvas import DOTS, POINT
from ppsim.show.drawing.gantt.layout import (
    BAND,
    LABEL_HEIGHT,
    LEAST_BAND,
    MOST_VECTOR_CELLS,
    TALLEST,
    border_width,
    choose_labels,
    row_height,
)
from ppsim.show.drawing.gantt.notes import place_notes, row_notes_width
from ppsim.show.drawing.gantt.panel import Panel
from ppsim.show.drawing.lanes import COLLECTIVE
from ppsim.show.drawing.letters import text_width
from ppsim.show.drawing.link_panel import link_margins
from ppsim.show.drawing.look import PLAIN, Look, Note
from ppsim.show.drawing.memory_panel import names_width
from ppsim.show.drawing.palette import Palette

FONT, SMALL_FONT = 6.5, 6.0  # points
WIDE = 5 * DOTS  # from here on a figure has the larger font
HEAD = round(0.19 * DOTS)  # above a panel, for its title and facts
BESIDE_NAMES = 5  # points between the devices' names and the rows, and left of the names
LEAST_RIGHT = 0.06 * DOTS  # right of the time axis
LEAST_CELL = 3  # dots a cell needs on average to be drawn one by one
ARROW_GAP, ROW_GAP = 0.17, 0.06  # share of a row that stays empty above and below
LEAST_SEGMENT = 3.0  # points of a typical segment, below which cells are drawn as one
LEAST_MESSAGE = 1.5  # points of a typical message, below which lanes are strips
LINE_HEAD = round(0.1 * DOTS)  # above a line of a timeline that is drawn in several, for its time
LINE_ROW = 0.115  # inches of a device's row in these at most
MARKS = 1.35  # heights of the font above the rows for the names of phases and of a folded middle
GAPS_FROM = 15  # dots of a row, below which rows touch
BORDERED_SHARE = 0.25  # of the cells may be too narrow for borders before all lose them

HATCHING = "////////"  # the more signs, the closer the lines


def design_for(
    panels: Sequence[Panel],
    style: str,
    width: int,
    label_gap: float = 0.0,
    cap: float | None = None,
) -> Design:
    """Return the measures for panels in a figure of ``width`` dots, with ``label_gap`` points
    between names and rows.
    """
    look, narrow = panels[0].look, width < WIDE
    font = look.font_size or (SMALL_FONT if narrow else FONT)
    begin = look.window[0] if look.window else 0.0
    span = max(*(panel.view.length for panel in panels), look.until - begin) or 1.0
    left, across = _horizontal(panels, style, width, label_gap, font, span, cap)
    scale = across / POINT / span
    devices, rows = max(panel.devices for panel in panels), sum(panel.devices for panel in panels)
    # Narrower cells blend on the page; only a raster blends them in the right proportion.
    count = sum(len(panel.cells) for panel in panels)
    vector = count <= min(MOST_VECTOR_CELLS, rows * across / LEAST_CELL)
    bands = _bands(panels) if vector else ()
    arrows = vector and not bands and _has_arrows(panels)
    labels = vector and any(
        panel.thin or choose_labels(panel.cells, scale, font / LABEL_HEIGHT, font)[1].any()
        for panel in panels
    )
    inside = vector and not bands and _shows_inside(panels, scale)
    strips = 2 if inside else len(bands)
    rows = math.ceil(rows * (1 + BAND * strips))
    row = row_height(devices, rows, labels=labels, arrows=arrows, narrow=narrow)
    if panels[0].wrapped:
        row = min(row, round(LINE_ROW * DOTS))
    if look.font_size:
        row = max(row, min(round(font / LABEL_HEIGHT * POINT), int(TALLEST / rows * DOTS)))
    band = round(BAND * row)
    marks = round(MARKS * font * POINT) if look.phases or look.fold else 0
    bands = bands if band >= LEAST_BAND else ()
    strips = 2 if inside else len(bands)
    gap = (
        ARROW_GAP
        if arrows
        else ROW_GAP
        if (style == "screen" or bands) and row >= GAPS_FROM
        else 0.0
    )
    lane = gap + band * strips / (row + band * strips)
    middle = (1 + gap - lane) / 2
    return Design(
        style=style,
        font=font,
        left=left,
        across=across,
        span=span,
        row=row + band * strips,
        gap=gap,
        head=_head(panels, style, font) + marks,
        border=border_width(min(_typical_cell(panels, scale) if vector else 0.0, row / POINT)),
        vector=vector,
        arrows=arrows,
        bands=bands,
        lane=lane,
        look=look,
        marks=marks,
        strips=_strips(panels, bands, scale),
        notes=tuple(
            place_notes(panels[0], font, scale, span, (row + band * strips) / POINT, middle)
        ),
        inside=inside,
    )


def _head(panels: Sequence[Panel], style: str, font: float) -> int:
    """Return the dots above a panel for its title and facts, or for the time of a line."""
    if panels[0].wrapped:
        return LINE_HEAD
    titled = len(panels) > 1 or style == "screen" or panels[0].look.title
    return round(HEAD * max(1.0, font / FONT)) if titled else 0


def _horizontal(
    panels: Sequence[Panel],
    style: str,
    width: int,
    label_gap: float,
    font: float,
    span: float,
    cap: float | None,
) -> tuple[int, int]:
    """Return the dots left of the rows, for the devices' names, and the dots across the rows.

    That is half of the last tick's text, or what is beside curves of memory and strips of links.
    """
    longest = f"Device {max(panel.devices for panel in panels) - 1 + panels[0].look.base}"
    sides = [link_margins(panel.links, font, panel.look.base) for panel in panels]
    widest = max(text_width(longest, font), *(left for left, _ in sides))
    left = round((widest + BESIDE_NAMES + label_gap) * POINT)
    last_tick = (
        text_width(f"{span:,.0f}" if span >= 10 else "0.00", font) / 2 if style == "screen" else 0.0
    )
    names = max(names_width(panel.memory, font, cap, panel.look.base) for panel in panels)
    names = max(names, *(right for _, right in sides))
    if panels[0].look.per_device:
        names = max(names, *(row_notes_width(panel, font) for panel in panels))
    return left, width - left - round(max(LEAST_RIGHT, (max(last_tick, names) + 1) * POINT))


def _typical_cell(panels: Sequence[Panel], scale: float) -> float:
    """Return the cell width in points that decides on borders; a few narrow cells do not remove all
    borders.
    """
    widths = np.concatenate([panel.cells.width for panel in panels])
    return float(np.quantile(widths, BORDERED_SHARE)) * scale if len(widths) else 0.0


def _shows_inside(panels: Sequence[Panel], scale: float) -> bool:
    """Return whether the segments of ops are known, few enough to draw, and wide enough to see."""
    cells = [cells for panel in panels for cells in panel.streams]
    if len(cells) < 2 * len(panels) or not 0 < sum(map(len, cells)) <= MOST_VECTOR_CELLS:
        return False
    return float(np.median(np.concatenate([each.width for each in cells]))) * scale >= LEAST_SEGMENT


def _strips(panels: Sequence[Panel], bands: Sequence[int], scale: float) -> tuple[int, ...]:
    """Return the bands with entries too short to see; both directions of messages count
    together.
    """
    lanes = [panel.lane for panel in panels if panel.lane]
    found = []
    for band in bands:
        own = [
            lane.right[mask] - lane.left[mask]
            for lane in lanes
            for mask in [_same_band(lane.band, band)]
        ]
        if np.median(np.concatenate(own)) * scale < LEAST_MESSAGE:
            found.append(band)
    return tuple(found)


def _same_band(bands: NDArray[np.uint8], band: int) -> NDArray[np.bool_]:
    """Return which entries belong to a band: collectives, or messages of any direction, shape
    (entries,).
    """
    return np.asarray((bands == COLLECTIVE) == (band == COLLECTIVE))


def _bands(panels: Sequence[Panel]) -> tuple[int, ...]:
    """Return the bands that occur in the lanes."""
    return tuple(
        sorted({int(band) for panel in panels if panel.lane for band in np.unique(panel.lane.band)})
    )


def _has_arrows(panels: Sequence[Panel]) -> bool:
    """Return whether every panel with messages can draw them as arrows."""
    talking = [panel for panel in panels if panel.timeline.schedule.crosses.any()]
    return bool(talking) and all(panel.messages is not None for panel in talking)


@dataclass(frozen=True)
class Design:
    """The measures that all panels of a figure share."""

    style: str  # screen or paper
    font: float  # size in points
    left: int  # dots beside the rows, where the devices' names stand
    across: int  # dots from time 0 to ``span``
    span: float  # the longest makespan
    row: int  # dots of a row
    gap: float  # share of a row that stays empty, above and below
    head: int  # dots above a panel for its title and facts, 0 for none
    border: float  # line width around cells in points
    vector: bool  # whether cells are drawn one by one
    arrows: bool  # whether messages are drawn as arrows
    # those of the lane below each row, downwards; none where no lane is drawn
    bands: tuple[int, ...]
    # share of a row that the lane takes, with the empty part below it; ``gap`` where there is none
    lane: float
    look: Look = PLAIN  # palette, labels and the user's other choices
    marks: int = 0  # dots above the rows for the names of phases and of a folded middle, 0 for none
    # the bands that show shares of time, as what is in them is too short to see
    strips: tuple[int, ...] = ()
    # the user's, each with its time and its line above the rows
    notes: tuple[tuple[Note, float, int], ...] = ()
    inside: bool = False  # whether the segments of ops are drawn below each row's cells

    @property
    def palette(self) -> Palette:
        """The colours."""
        return self.look.colours

    @property
    def scale(self) -> float:
        """Points per unit of time."""
        return self.across / POINT / self.span
