"""Figures for papers: legible numbers, if needed by folding the middle or by wrapping into lines.

A note names options that show more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from ppsim.base.notes import note
from ppsim.base.numbers import format_share
from ppsim.show.drawing.canvas import DOTS, POINT
from ppsim.show.drawing.gantt.design import design_for
from ppsim.show.drawing.gantt.panel import Panel
from ppsim.show.drawing.view import find_repetition

WIDTHS = 3.3, 6.75, 9.0, 12.0, 16.0  # widths in inches to suggest: a column, a page, and more
ENOUGH = 0.25  # share of numbered cells, below which a repeating middle is folded
LINES = 2, 3  # numbers of lines into which a timeline may be wrapped
MOST_ROWS = 24  # rows of all lines together
LEGIBLE = 0.4  # share of numbered cells, below which a timeline is wrapped into lines
MORE = 0.2  # share of cells that a wider figure must number in addition to be suggested


def fit_for_paper(panels: Sequence[Panel], width: int) -> list[Panel]:
    """Return panels with legible numbers for a figure of ``width`` dots.

    Numbers are thinned out, the middle is folded, or the timeline is wrapped into lines; a note on
    standard error explains it.
    """
    look = panels[0].look
    if look.labels != "auto":
        return list(panels)
    drawn = [replace(panel, thin=True) for panel in panels]
    share = _numbered(drawn, width)
    if share == 1:
        return drawn
    folded = _folded(drawn)
    more = _numbered([folded], width) if folded else 0.0
    better = more > share
    if folded and more >= share and share < ENOUGH:
        drawn, share, better = [folded], more, False
        end = f"{panels[0].timeline.makespan:.10g}"
        note(
            f"{panels[0].title} is folded to fit {width / DOTS:g} inches; --window 0:{end} draws "
            f"all of it"
        )
    if share < LEGIBLE and (lines := _lines(panels, width)) and _numbered(lines, width) > share:
        whole, drawn, share = drawn, lines, _numbered_of_all(lines, width)
        room = f", where {format_share(share)} of the cells have their number" * (share < 1)
        wider = _wider(whole, width, share) if share < 1 else []
        more_shown = f"; {wider[0]} shows more" if wider else ""
        note(
            f"{panels[0].title} is drawn in {len(lines)} lines to fit {width / DOTS:g} inches"
            f"{room}{more_shown}; --window 0:{panels[0].timeline.makespan:.10g} draws it in one"
        )
    elif share < 1:
        names = ", ".join(panel.title for panel in panels)
        ways = ["--fold"] if better else []
        hint = " or ".join([*ways, *_wider(drawn, width, share)] or ["--window A:B"])
        room = f"{format_share(share)} of the cells have their number"
        note(f"{names}: too wide for {width / DOTS:g} inches, where {room}: {hint} shows more")
    return drawn


def _wider(panels: Sequence[Panel], width: int, share: float) -> list[str]:
    """Return the option for the least width that numbers many more cells than ``share``.

    Empty if no width does.
    """
    enough = min(1.0, share + MORE)
    found = (
        f"--width {each:g}"
        for each in WIDTHS
        if each * DOTS > width and _numbered(panels, round(each * DOTS)) >= enough
    )
    return [*islice(found, 1)]


def _lines(panels: Sequence[Panel], width: int) -> list[Panel] | None:
    """Return the panel wrapped into the fewest lines with legible numbers, or into most lines.

    None if it has to stay in one line. All lines are equally long, a multiple of the shortest cell,
    so that few cells are cut.
    """
    panel, look = panels[0], panels[0].look
    extras = panel.memory is not None or panel.lane is not None or panel.inside is not None
    fixed = look.window or look.fold or look.until or look.notes or look.phases or look.title
    counts = [count for count in LINES if count * panel.devices <= MOST_ROWS]
    if len(panels) > 1 or extras or fixed or look.per_device or not counts:
        return None
    step, end = float(panel.cells.width.min(initial=np.inf)), panel.timeline.makespan
    found: list[Panel] = []
    for count in counts:
        long = math.ceil(end / count / step - 1e-9) * step
        windows = [(at * long, min((at + 1) * long, end)) for at in range(count)]
        found = [
            replace(panel, look=replace(look, window=window), thin=True, wrapped=True)
            for window in windows
            if window[0] < window[1]
        ]
        if _numbered(found, width) >= LEGIBLE:
            break
    return found


def _folded(panels: Sequence[Panel]) -> Panel | None:
    """Return the panel with its middle folded; None if that is impossible or unwanted."""
    panel, look = panels[0], panels[0].look
    if (
        len(panels) > 1
        or look.window
        or look.fold
        or look.until
        or look.notes
        or find_repetition(panel.timeline) is None
    ):
        return None
    return replace(panel, look=replace(look, fold=True))


def _numbered(panels: Sequence[Panel], width: int) -> float:
    """Return the share of cells with a number, in the panel with the fewest."""
    return min(_shares(panels, width))


def _numbered_of_all(panels: Sequence[Panel], width: int) -> float:
    """Return the share of cells with a number, of the cells of all panels together."""
    counts = [panel.whole_cells for panel in panels]
    return float(np.average(_shares(panels, width), weights=counts)) if any(counts) else 1.0


def _shares(panels: Sequence[Panel], width: int) -> list[float]:
    """Return the share of cells with a number, for each panel."""
    design = design_for(panels, "paper", width)
    if not design.vector:
        return [0.0] * len(panels)
    row = design.row * (1 - design.lane + design.gap) / POINT
    return [panel.numbered(design.scale, row, design.font) for panel in panels]
