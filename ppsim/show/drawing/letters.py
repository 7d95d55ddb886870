"""Text on paper: its width in points, its lines, and the units that are set as formulas."""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import lru_cache

from ppsim.base.text import shorten

MEASURED = 100.0  # font size in points for measuring; widths are proportional to the size
LONGEST_UNIT = 40  # characters
LONGEST_TITLE = 200  # characters; no longer title fits
MOST_LINES = 3  # lines of the title above a figure
NARROWEST_LETTER = 0.2  # width over the font's size


def is_symbol(unit: str) -> bool:
    """Return True if a unit is a letter with an index, such as t_F, which figures set as math."""
    return re.fullmatch(r"t_[A-Za-z0-9]", unit) is not None


def text_width(text: str, size: float, weight: str = "normal") -> float:
    """Return the width of a text in points."""
    from matplotlib import rcParams

    fonts = (*rcParams["font.family"], *rcParams["font.sans-serif"])
    return _measured_width(text, weight, fonts) * (size / MEASURED)


@lru_cache(maxsize=4096)  # a figure measures the same texts in several sizes
def _measured_width(text: str, weight: str, fonts: tuple[str, ...]) -> float:
    """Return the width in points of a text of size ``MEASURED``; ``fonts`` are those in use."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    properties = FontProperties(size=MEASURED, weight=weight)
    return float(text_to_path.get_text_width_height_descent(text, properties, ismath=False)[0])


def tick_step(row: float, font: float) -> int:
    """Return n to name every n-th device: 1 if names fit rows of ``row`` points, else 2, 4 ..."""
    step = 1
    while row < font and step * row < 1.5 * font:
        step *= 2
    return step


def wrap_text(text: str, room: float, size: float, weight: str = "bold") -> list[str]:
    """Return a text as at most ``MOST_LINES`` lines of ``room`` points, the last one shortened."""
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
    """Return a text shortened to ``room`` points."""
    # Measuring long texts is slow, so cut first to as many of the narrowest letters as fit.
    text = shorten(text, max(4, int(room / (NARROWEST_LETTER * size))))
    if text_width(text, size, weight) <= room:
        return text
    fits = bisect_left(
        range(len(text)),
        x=True,
        key=lambda end: text_width(f"{text[: end + 1]}...", size, weight) > room,
    )
    return f"{text[:fits].rstrip()}..." if fits else ""
