"""Bars as SVG for the notebook card of an answer without a timeline."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from ppsim.base.text import shorten
from ppsim.show.drawing.card_chart import LETTER, LINE, WIDE, frame

LONGEST = 40  # letters of a bar's name
LETTER_WIDE = LETTER + 0.6  # width in pixels of a letter of names and values
GAP = 8.0  # pixels between names, bars and values
OPACITY = 0.45  # of a bar, so that its mark is visible


@dataclass(frozen=True)
class Bar:
    """One bar, from ``low`` to ``high``."""

    name: str
    high: float
    text: str  # to the right of the bar
    low: float = 0.0
    mark: float | None = None  # a line across the bar, None for none


@dataclass(frozen=True)
class Bars:
    """Bars on one axis, from the least ``low`` to the greatest ``high``."""

    title: str  # of the bars, with the unit
    bars: Sequence[Bar]


def bars_svg(found: Bars, most: int) -> str:
    """Return the first ``most`` bars below their title as SVG, at most 640 pixels wide."""
    shown = found.bars[:most]
    names = [shorten(bar.name, LONGEST) for bar in shown]
    left = GAP + LETTER_WIDE * max(map(len, names))
    wide = WIDE - left - GAP - LETTER_WIDE * max(len(bar.text) for bar in shown)
    least, greatest = min(bar.low for bar in shown), max(bar.high for bar in shown)
    scale = wide / ((greatest - least) or 1.0)
    parts = [f'<text x="{left:.0f}" y="{LINE - 4}">{html.escape(found.title)}</text>']
    for place, (name, bar) in enumerate(zip(names, shown, strict=True)):
        top = LINE * (place + 1)
        x, end = left + scale * (bar.low - least), left + scale * (bar.high - least)
        box = f'x="{x:.1f}" y="{top + 2}" width="{max(end - x, 0.5):.1f}" height="{LINE - 4}"'
        parts.append(f'<text x="0" y="{top + LINE - 4}">{html.escape(name)}</text>')
        parts.append(f'<rect {box} fill="currentColor" fill-opacity="{OPACITY}"/>')
        if bar.mark is not None:
            at = left + scale * (bar.mark - least)
            parts.append(f'<rect x="{at - 1:.1f}" y="{top + 1}" width="2" height="{LINE - 2}"/>')
        value = html.escape(bar.text)
        parts.append(f'<text x="{end + GAP / 2:.1f}" y="{top + LINE - 4}">{value}</text>')
    return frame(parts, LINE * (len(shown) + 1), found.title)
