"""A notebook's card of an answer: the verdict, a small picture and the table, in at most 30 kB."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ppsim.ask.blocks import Block, Chart
from ppsim.ask.terminal import text_of

if TYPE_CHECKING:
    from ppsim.core.timeline import Timeline
    from ppsim.show.drawing.card_bars import Bars
    from ppsim.show.drawing.card_queues import Queues

COLUMNS = 96  # columns of the text
LINES = 18  # most lines of the text
LETTERS = 200  # most letters of a line
CHARTS = 4  # most timelines
BARS = 16  # most bars
# Colours are the notebook's, light or dark; the font has a fixed width everywhere.
FONT = "12px/1.35 ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
TEXT = (
    f"margin:4px "
    f"0;padding:0;overflow-x:auto;white-space:pre;color:inherit;background:none;font:{FONT}"
)


def card_html(
    verdict: str,
    charts: Sequence[tuple[str, Timeline]],
    blocks: Iterable[Block],
    bars: Bars | None = None,
    queues: Queues | None = None,
) -> str:
    """Return the card as HTML, without scripts and style sheets, which notebooks remove.

    Args:
        verdict: the answer in one sentence.
        charts: the timelines to draw, with their titles.
        blocks: the blocks below the verdict on a terminal.
        bars: the bars to draw, for an answer without timeline.
        queues: the queues to draw, for a file without times.
    """
    parts = [f'<p style="margin:4px 0;font-weight:600">{html.escape(verdict)}</p>']
    if charts:
        from ppsim.show.drawing.card_chart import charts_svg

        parts.append(charts_svg(charts[:CHARTS]))
    limits = [f"the first {CHARTS} of {len(charts)} charts"] if len(charts) > CHARTS else []
    if bars and bars.bars:
        from ppsim.show.drawing.card_bars import bars_svg

        parts.append(bars_svg(bars, BARS))
        if len(bars.bars) > BARS:
            limits.append(f"the first {BARS} of {len(bars.bars)} bars")
    if queues:
        from ppsim.show.drawing.card_queues import queues_svg

        parts.append(queues_svg(queues))
    text = text_of((block for block in blocks if not isinstance(block, Chart)), COLUMNS)
    lines = [_shortened(line.rstrip()) for line in text.strip("\n").splitlines()]
    if len(lines) > LINES:
        limits.append(f"the first {LINES - 1} of {len(lines)} lines")
        lines = lines[: LINES - 1]
    if lines:
        shown = html.escape("\n".join(lines))
        parts.append(f'<pre style="{TEXT}">{shown}</pre>')
    if limits:
        note = f"{' and '.join(limits)}; print(answer) and answer.save(FILE) have all"
        parts.append(f'<p style="margin:4px 0;opacity:0.7;font-size:12px">{note}</p>')
    return f'<div class="ppsim-card" style="max-width:100%">{"".join(parts)}</div>'


def _shortened(line: str) -> str:
    """Return a line, cut with an ellipsis if it is too long."""
    return line if len(line) <= LETTERS else line[: LETTERS - 1] + "\u2026"
