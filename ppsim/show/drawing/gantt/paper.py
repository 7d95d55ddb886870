"""Figures for papers: numbers that have room, a folded middle where few have, and a note of what
else would help.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ppsim.base.notes import note
from ppsim.base.numbers import format_share
from ppsim.show.drawing.canvas import DOTS, POINT
from ppsim.show.drawing.gantt.design import design_for
from ppsim.show.drawing.gantt.panel import Panel
from ppsim.show.drawing.view import find_repetition

WIDTHS = 3.3, 6.75, 9.0, 12.0, 16.0  # inches that are tried: a column, a page, and more
ENOUGH = 0.25  # share of numbered cells, below which a middle that repeats is folded
MORE = 0.2  # of the cells that a wider figure must number beyond, to be worth a word


def fit_for_paper(panels: Sequence[Panel], width: int) -> list[Panel]:
    """Return panels whose cells have their numbers in a figure of so many dots: thinned, folded, or
    with a note.
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
    if share < 1:
        names = ", ".join(panel.title for panel in panels)
        ways = ["--fold"] if better else []
        wider = (each for each in WIDTHS if each * DOTS > width)
        enough = min(1.0, share + MORE)
        ways += [
            f"--width {each:g}" for each in wider if _numbered(drawn, round(each * DOTS)) >= enough
        ][:1]
        hint = " or ".join(ways or ["--window A:B"])
        room = f"{format_share(share)} of the cells have their number"
        note(f"{names}: too wide for {width / DOTS:g} inches, where {room}: {hint} shows more")
    return drawn


def _folded(panels: Sequence[Panel]) -> Panel | None:
    """The panel with its middle folded; None where it cannot be, or must not."""
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
    """The share of the cells that have their number, in the panel that has fewest."""
    design = design_for(panels, "paper", width)
    if not design.vector:
        return 0.0
    row = design.row * (1 - design.lane + design.gap) / POINT
    return min(panel.numbered(design.scale, row, design.font) for panel in panels)
