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

COLUMNS = 96  # of the text
LINES = 18  # of the text at most
LETTERS = 200  # of a line at most
CHARTS = 4  # timelines at most
BARS = 16  # bars at most
# The notebook's own ink and ground, light or dark, but letters that stand below each other
# everywhere.
FONT = "12px/1.35 ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
TEXT = (
    f"margin:4px "
    f"0;padding:0;overflow-x:auto;white-space:pre;color:inherit;background:none;font:{FONT}"
)


def card_html(
    verdict: str,  # the answer in one sentence
    charts: Sequence[tuple[str, Timeline]],  # what to draw, each with its title
    blocks: Iterable[Block],  # what a terminal shows below the verdict
    bars: Bars | None = None,  # what to draw where there is no timeline
    queues: Queues | None = None,  # what to draw of a file without times
) -> str:
    """Return the card as HTML, without scripts or style sheets, which notebooks take out."""
    parts = [f'<p style="margin:4px 0;font-weight:600">{html.escape(verdict)}</p>']
    if charts:
        from ppsim.show.drawing.card_chart import charts_svg

        parts.append(charts_svg(charts[:CHARTS]))
    left = [f"the first {CHARTS} of {len(charts)} charts"] if len(charts) > CHARTS else []
    if bars and bars.bars:
        from ppsim.show.drawing.card_bars import bars_svg

        parts.append(bars_svg(bars, BARS))
        count = len(bars.bars)
        left += [f"the first {BARS} of {count} bars"] if count > BARS else []
    if queues:
        from ppsim.show.drawing.card_queues import queues_svg

        parts.append(queues_svg(queues))
    text = text_of((block for block in blocks if not isinstance(block, Chart)), COLUMNS)
    lines = [_shortened(line.rstrip()) for line in text.strip("\n").splitlines()]
    if len(lines) > LINES:
        left.append(f"the first {LINES - 1} of {len(lines)} lines")
        lines = lines[: LINES - 1]
    if lines:
        shown = html.escape("\n".join(lines))
        parts.append(f'<pre style="{TEXT}">{shown}</pre>')
    if left:
        said = f"{' and '.join(left)}; print(answer) and answer.save(FILE) have all"
        parts.append(f'<p style="margin:4px 0;opacity:0.7;font-size:12px">{said}</p>')
    return f'<div class="ppsim-card" style="max-width:100%">{"".join(parts)}</div>'


def _shortened(line: str) -> str:
    """Return a line that is not too long, with a sign where it goes on."""
    return line if len(line) <= LETTERS else line[: LETTERS - 1] + "\u2026"
