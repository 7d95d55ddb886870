"""Where the user's notes stand on a Gantt chart, and the numbers beside its rows."""

from __future__ import annotations

from collections.abc import Iterator

from ppsim.base.text import one_line
from ppsim.base.units import format_held
from ppsim.engine.simple.metrics import measure
from ppsim.show.drawing.gantt.panel import Panel
from ppsim.show.drawing.letters import text_width
from ppsim.show.drawing.look import Note

BESIDE = 4.0  # points between the rows and what is beside them
# Of a note in heights of the font: free beside its text, its box's height, and from one line of
# notes to the next.
NOTE_PAD, NOTE_HIGH, NOTE_LINE = 0.15, 1.3, 1.75
NOTE_REACH = 0.12  # of a row that the line to a note's time and device ends below the row's edge


def place_notes(
    panel: Panel, font: float, scale: float, span: float, row: float, middle: float = 0.5
) -> Iterator[tuple[Note, float, int]]:
    """Place the user's notes, each with the time of its middle, and its line above the rows or 0
    for its own row.

    A note stays in its row where it covers no cell. ``scale`` is points per unit of time, ``row`` a
    row's height in points, ``middle`` that of its cells as a share. Raises InputError where the
    chart has no such time or device.
    """
    filled: list[float] = []  # up to where each line above the rows is
    for note in sorted(panel.look.notes, key=lambda each: each.time):
        time, device = panel.place_note(note)
        half, tall = (
            (text_width(one_line(note.text), font) / 2 + NOTE_PAD * font) / scale,
            NOTE_HIGH / 2 * font / row,
        )
        time, y, cells = max(half, min(time, span - half)), device + middle, panel.cells
        beside = (cells.right <= time - half) | (cells.left >= time + half)
        if (beside | (cells.device + 1 <= y - tall) | (cells.device >= y + tall)).all():
            yield note, time, 0
            continue
        line = next((n for n, end in enumerate(filled) if end < time - half), len(filled))
        filled[line : line + 1] = [time + half]
        yield note, time, line + 1


def row_notes(panel: Panel) -> list[str]:
    """What to write beside each device's row: its idle share, and its peak in the memory's unit or
    in activations.
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
    """Points that the numbers beside the rows take."""
    return BESIDE + max(text_width(note, font - 0.5) for note in row_notes(panel))
