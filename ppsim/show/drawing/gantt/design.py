"""Sizes of a Gantt figure, computed from its panels, style and width."""

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
WIDE = 5 * DOTS  # width from which on a figure has the larger font
HEAD = round(0.19 * DOTS)  # height of a panel's title and facts
BESIDE_NAMES = 5  # points on either side of the devices' names, together
LEAST_RIGHT = 0.06 * DOTS  # margin right of the time axis
LEAST_CELL = 3  # mean width of cells in dots, below which they are drawn as a raster
ARROW_GAP, ROW_GAP = 0.17, 0.06  # empty share of a row above and below its cells
LEAST_SEGMENT = 3.0  # points of a typical segment, below which segments are not drawn
LEAST_MESSAGE = 1.5  # points of a typical message, below which lanes are strips
LINE_HEAD = round(0.1 * DOTS)  # height of the start time above a line of a wrapped timeline
LINE_ROW = 0.115  # largest height of a device's row in such a line, in inches
MARKS = 1.35  # height of names above the rows (phases, folded middle) over the font's size
GAPS_FROM = 15  # height of a row in dots, below which rows touch
BORDERED_SHARE = 0.25  # share of cells too narrow for borders, above which no cell has one

HATCHING = "////////"  # the more signs, the closer the lines


def design_for(
    panels: Sequence[Panel],
    style: str,
    width: int,
    label_gap: float = 0.0,
    cap: float | None = None,
) -> Design:
    """Return the sizes for panels in a figure of ``width`` dots.

    ``label_gap`` is added in points between the devices' names and the rows.
    """
    look, narrow = panels[0].look, width < WIDE
    font = look.font_size or (SMALL_FONT if narrow else FONT)
    begin = look.window[0] if look.window else 0.0
    span = max(*(panel.view.length for panel in panels), look.until - begin) or 1.0
    left, across = _horizontal(panels, style, width, label_gap, font, span, cap)
    scale = across / POINT / span
    rows = sum(panel.devices for panel in panels)
    # Narrower cells would blend on the page; only a raster blends them in proportion.
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
    row = _row_dots(panels, rows, font, labels=labels, arrows=arrows, narrow=narrow)
    band = round(BAND * row)
    marks = round(MARKS * font * POINT) if look.phases or look.fold else 0
    bands = bands if band >= LEAST_BAND else ()
    strips = 2 if inside else len(bands)
    row_gap = ROW_GAP if (style == "screen" or bands) and row >= GAPS_FROM else 0.0
    gap = ARROW_GAP if arrows else row_gap
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


def _row_dots(
    panels: Sequence[Panel], rows: int, font: float, *, labels: bool, arrows: bool, narrow: bool
) -> int:
    """Return the height of a device's row in dots, without its lane; ``rows`` includes lanes."""
    devices = max(panel.devices for panel in panels)
    row = row_height(devices, rows, labels=labels, arrows=arrows, narrow=narrow)
    if panels[0].wrapped:
        row = min(row, round(LINE_ROW * DOTS))
    if panels[0].look.font_size:
        row = max(row, min(round(font / LABEL_HEIGHT * POINT), int(TALLEST / rows * DOTS)))
    return row


def _head(panels: Sequence[Panel], style: str, font: float) -> int:
    """Return the dots above a panel: for its title and facts, or a line's start time."""
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

    Right of the rows there is room for half of the last tick's text, or for texts next to curves of
    memory, strips of links and rows.
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
    """Return the cell width in points that decides on borders: a quantile, not the least."""
    widths = np.concatenate([panel.cells.width for panel in panels])
    return float(np.quantile(widths, BORDERED_SHARE)) * scale if len(widths) else 0.0


def _shows_inside(panels: Sequence[Panel], scale: float) -> bool:
    """Return True if segments of ops are known, few enough to draw, and wide enough to see."""
    cells = [cells for panel in panels for cells in panel.streams]
    if len(cells) < 2 * len(panels) or not 0 < sum(map(len, cells)) <= MOST_VECTOR_CELLS:
        return False
    return float(np.median(np.concatenate([each.width for each in cells]))) * scale >= LEAST_SEGMENT


def _strips(panels: Sequence[Panel], bands: Sequence[int], scale: float) -> tuple[int, ...]:
    """Return the bands whose entries are too short to see.

    Both directions of messages count together.
    """
    lanes = [panel.lane for panel in panels if panel.lane]
    found = []
    for band in bands:
        lengths = [(lane.right - lane.left)[_same_band(lane.band, band)] for lane in lanes]
        if np.median(np.concatenate(lengths)) * scale < LEAST_MESSAGE:
            found.append(band)
    return tuple(found)


def _same_band(bands: NDArray[np.uint8], band: int) -> NDArray[np.bool_]:
    """Return which entries match a band: collectives, or messages in either direction."""
    return np.asarray((bands == COLLECTIVE) == (band == COLLECTIVE))


def _bands(panels: Sequence[Panel]) -> tuple[int, ...]:
    """Return the bands that occur in the lanes."""
    return tuple(
        sorted({int(band) for panel in panels if panel.lane for band in np.unique(panel.lane.band)})
    )


def _has_arrows(panels: Sequence[Panel]) -> bool:
    """Return True if all panels that have messages can draw them as arrows."""
    with_messages = [panel for panel in panels if panel.timeline.schedule.crosses.any()]
    return bool(with_messages) and all(panel.messages is not None for panel in with_messages)


@dataclass(frozen=True)
class Design:
    """Sizes that all panels of a figure share."""

    style: str  # screen or paper
    font: float  # size in points
    left: int  # dots left of the rows, for the devices' names
    across: int  # dots from time 0 to ``span``
    span: float  # the longest makespan
    row: int  # height of a row in dots
    gap: float  # empty share of a row above and below its cells
    head: int  # dots above a panel for its title and facts, 0 for none
    border: float  # line width around cells in points
    vector: bool  # whether cells are drawn one by one
    arrows: bool  # whether messages are drawn as arrows
    # bands of the lane below each row, from the top; empty without a lane
    bands: tuple[int, ...]
    # share of a row for the lane, including the empty part below it; ``gap`` without a lane
    lane: float
    look: Look = PLAIN  # palette, labels and the user's other choices
    marks: int = 0  # dots above the rows for names of phases and of a folded middle
    # bands that show shares of time, as their entries are too short to see
    strips: tuple[int, ...] = ()
    # the user's notes, each with its time and its line above the rows
    notes: tuple[tuple[Note, float, int], ...] = ()
    inside: bool = False  # whether segments of ops are drawn below each row's cells

    @property
    def palette(self) -> Palette:
        """The colours."""
        return self.look.colours

    @property
    def scale(self) -> float:
        """Points per unit of time."""
        return self.across / POINT / self.span
