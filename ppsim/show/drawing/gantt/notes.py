"""Positions of the user's notes on a Gantt chart, and the numbers next to its rows."""

from __future__ import annotations

from collections.abc import Iterator

from ppsim.base.text import one_line
from ppsim.base.units import format_held
from ppsim.engine.simple.metrics import measure
from ppsim.show.drawing.gantt.panel import Panel
from ppsim.show.drawing.letters import text_width
from ppsim.show.drawing.look import Note

ROW_NOTE_GAP = 4.0  # points between the rows and their notes
# In units of the font's size: a note's padding, the height of its box, and the distance between
# lines of notes.
NOTE_PAD, NOTE_HIGH, NOTE_LINE = 0.15, 1.3, 1.75
NOTE_REACH = 0.12  # share of a row by which a note's line ends below the row's upper edge


def place_notes(
    panel: Panel, font: float, scale: float, span: float, row: float, middle: float = 0.5
) -> Iterator[tuple[Note, float, int]]:
    """Yield the user's notes, each with the time of its middle and its line above the rows.

    Line 0 is the note's device's row, where a note stays if it covers no cell. ``scale`` is points
    per unit of time, ``row`` a row's height in points, and ``middle`` the height of its cells'
    middle as a share of the row.

    Raises:
        InputError: the chart has no such time or device.
    """
    filled: list[float] = []  # the time at which each line above the rows is free again
    for note in sorted(panel.look.notes, key=lambda each: each.time):
        time, device = panel.place_note(note)
        half, tall = (
            (text_width(one_line(note.text), font) / 2 + NOTE_PAD * font) / scale,
            NOTE_HIGH / 2 * font / row,
        )
        time, y, cells = max(half, min(time, span - half)), device + middle, panel.cells
        before_or_after = (cells.right <= time - half) | (cells.left >= time + half)
        above_or_below = (cells.device + 1 <= y - tall) | (cells.device >= y + tall)
        if (before_or_after | above_or_below).all():
            yield note, time, 0
            continue
        line = next((n for n, end in enumerate(filled) if end < time - half), len(filled))
        filled[line : line + 1] = [time + half]
        yield note, time, line + 1


def row_notes(panel: Panel) -> list[str]:
    """Return the text next to each device's row: idle share, and peak.

    The peak is in the unit of the panel's memory, or in activations.
    """
    metrics = measure(panel.timeline)
    idle = metrics.idle / (metrics.makespan or 1.0)
    peaks = panel.memory.peak if panel.memory is not None else metrics.peak_activations
    unit = panel.memory.unit if panel.memory is not None else ""
    return [
        f"{round(100 * share)}% idle, {format_held(float(peak), unit)}"
        for share, peak in zip(idle, peaks, strict=True)
    ]


def row_notes_width(panel: Panel, font: float) -> float:
    """Return the width in points of the numbers next to the rows."""
    return ROW_NOTE_GAP + max(text_width(note, font - 0.5) for note in row_notes(panel))
