"""Text on paper: its width in points, its lines, and the units that are set as formulas."""

from __future__ import annotations

import re
from bisect import bisect_left

from ppsim.base.text import shorten

LONGEST_UNIT = 40  # characters
LONGEST_TITLE = 200  # characters, beyond which no title fits
MOST_LINES = 3  # of the title above a figure
NARROWEST_LETTER = 0.2  # of the font's size


def is_symbol(unit: str) -> bool:
    """Whether a unit is a letter with an index, such as t_F, which figures write as a formula."""
    return re.fullmatch(r"t_[A-Za-z0-9]", unit) is not None


def text_width(text: str, size: float, weight: str = "normal") -> float:
    """Width in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    properties = FontProperties(size=size, weight=weight)
    return float(text_to_path.get_text_width_height_descent(text, properties, ismath=False)[0])


def tick_step(row: float, font: float) -> int:
    """Label every n-th device: 1 where names fit rows of ``row`` points, else the least power of
    two that does.
    """
    step = 1
    while row < font and step * row < 1.5 * font:
        step *= 2
    return step


def wrap_text(text: str, room: float, size: float, weight: str = "bold") -> list[str]:
    """Break a text between words into lines of so many points, at most ``MOST_LINES``, the last cut
    where it must.
    """
    lines: list[str] = []
    for word in shorten(text, MOST_LINES * LONGEST_TITLE).split():
        if lines and text_width(f"{lines[-1]} {word}", size, weight) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    last = [" ".join(lines[MOST_LINES - 1 :])] if len(lines) > MOST_LINES else []
    return [
        cut_to_width(line, room, size, weight) for line in [*lines[: MOST_LINES - len(last)], *last]
    ]


def cut_to_width(text: str, room: float, size: float, weight: str = "bold") -> str:
    """Cut a text to what fits into so many points."""
    # Nothing longer is measured, as that takes long: no figure has room for as many of the
    # narrowest letters.
    text = shorten(text, max(4, int(room / (NARROWEST_LETTER * size))))
    if text_width(text, size, weight) <= room:
        return text
    fits = bisect_left(
        range(len(text)),
        x=True,
        key=lambda end: text_width(f"{text[: end + 1]}...", size, weight) > room,
    )
    return f"{text[:fits].rstrip()}..." if fits else ""
