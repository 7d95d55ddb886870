"""Text on paper: its width in points, its lines, and the units that are set as formulas."""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import lru_cache

from ppsim.base.text import shorten

MEASURED = 100.0  # points: the size in which texts are measured, as widths are in proportion
LONGEST_UNIT = 40  # characters
LONGEST_TITLE = 200  # characters, beyond which no title fits
MOST_LINES = 3  # of the title above a figure
NARROWEST_LETTER = 0.2  # of the font's size


def is_symbol(unit: str) -> bool:
    """Return whether a unit is a letter with an index, such as t_F, which figures write as a
    formula.
    """
    return re.fullmatch(r"t_[A-Za-z0-9]", unit) is not None


def text_width(text: str, size: float, weight: str = "normal") -> float:
    """Return the width of a text in points."""
    from matplotlib import rcParams

    fonts = (*rcParams["font.family"], *rcParams["font.sans-serif"])
    return _measured_width(text, weight, fonts) * (size / MEASURED)


@lru_cache(maxsize=4096)  # a figure asks for the same texts in several sizes
def _measured_width(text: str, weight: str, fonts: tuple[str, ...]) -> float:
    """Return the width of a text in points, ``MEASURED`` large, in the fonts that are set."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    properties = FontProperties(size=MEASURED, weight=weight)
    return float(text_to_path.get_text_width_height_descent(text, properties, ismath=False)[0])


def tick_step(row: float, font: float) -> int:
    """Return n so that every n-th device is named: 1 if names fit rows of ``row`` points, else a
    power of two.
    """
    step = 1
    while row < font and step * row < 1.5 * font:
        step *= 2
    return step


def wrap_text(text: str, room: float, size: float, weight: str = "bold") -> list[str]:
    """Break a text between words into at most ``MOST_LINES`` lines of ``room`` points; the last is
    shortened if needed.
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
    """Shorten a text to ``room`` points."""
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
