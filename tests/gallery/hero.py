"""The picture that README begins with: a measured run, what its devices wait for, and what another
schedule gains.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import ppsim as pp
from ppsim.core.ops import Kind

if TYPE_CHECKING:
    from ppsim.analysis.idle import Idle

NAME = "hero.svg"
RUN = Path(__file__).parents[1] / "data" / "real_runs" / "primus_pp8"
BETTER = "zb-1p"
# What colours mean: ops, and three causes of idle time in words; every cause but fill and drain is
# a wait.
COLOURS = {
    "F": "forward",
    "B": "backward",
    "W": "its weights' part",
    "wait": "waits for another stage",
    "fill": "fill: nothing has arrived yet",
    "drain": "drain: nothing is left to do",
}
WIDTH, LEFT, ROW, GAP, HEAD = 1000, 60, 17, 3, 34
STYLE = """
text { font: 14px system-ui, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; fill: #1f2328; }
.title { font-weight: 600; font-size: 16px; }
.small { font-size: 12px; fill: #59636e; }
.gain { font-weight: 700; font-size: 22px; fill: #1a7f37; }
.arrow { stroke: #1a7f37; fill: #1a7f37; stroke-width: 2; }
.F { fill: #1f4e9c; } .B { fill: #7fa8dd; } .W { fill: #b5cdee; }
.fill { fill: #f2c14e; } .wait { fill: #e4572e; } .drain { fill: #f6dfa4; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; } .small { fill: #b1bac4; } .gain { fill: #56d364; }
  .arrow { stroke: #56d364; fill: #56d364; }
  .F { fill: #4c84d6; } .B { fill: #9dbfeb; } .W { fill: #c9dcf5; }
  .fill { fill: #d9a520; } .wait { fill: #e4572e; } .drain { fill: #8a7440; }
}
"""


def draw_hero(target: Path) -> None:
    """Draw the picture, as svg."""
    runs = [each.idle for each in pp.diff(str(RUN), BETTER).runs]
    measured, better = (run.timeline.makespan for run in runs)
    scale = (WIDTH - LEFT - 8) / measured
    height = HEAD + runs[0].timeline.schedule.n_devices * (ROW + GAP)
    gain = 1 - better / measured
    titles = (
        f"1F1B, measured on eight MI300X: {measured:,.0f} ms a step",
        f"ZB-1P with the same costs, predicted: {better:,.0f} ms",
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {2 * height + 56}">',
        f"<title>{titles[0]}; {titles[1]}, {gain:.1%} less</title>",
        f"<style>{STYLE}</style>",
    ]
    for number, (run, title) in enumerate(zip(runs, titles, strict=True)):
        lines += [f'<text class="title" x="{LEFT}" y="{number * height + 22}">{title}</text>']
        lines += _rows(run, number * height + HEAD, scale)
    lines += _gain(
        LEFT + better * scale, LEFT + measured * scale, 1.5 * height + HEAD / 2, f"{gain:.1%} less"
    )
    lines += [*_legend(2 * height + 34), "</svg>", ""]
    target.write_text("\n".join(lines))


def _rows(run: Idle, top: float, scale: float) -> Iterator[str]:
    """Yield the rows of all devices: a path for each colour, a rectangle for each op and each idle
    time.
    """
    timeline, schedule = run.timeline, run.timeline.schedule
    bars: dict[str, list[str]] = {name: [] for name in COLOURS}
    for device in range(schedule.n_devices):
        y = top + device * (ROW + GAP)
        yield (
            f'<text class="small" x="{LEFT - 8}" y="{y + 13}" text-anchor="end">GPU {device}</text>'
        )
        for op in range(schedule.offsets[device], schedule.offsets[device + 1]):
            kind = Kind(schedule.kind[op])
            name = "F" if kind is Kind.F else "W" if kind is Kind.W else "B"
            # A hair of space keeps neighbours apart.
            bars[name].append(_bar(timeline.start[op], timeline.end[op], y, scale, space=0.6))
        for name, start, end in _idle(run, device):
            bars[name].append(_bar(start, end, y, scale))
    yield from (
        f'<path class="{name}" d="{"".join(parts)}"/>' for name, parts in bars.items() if parts
    )


def _idle(run: Idle, device: int) -> Iterator[tuple[str, float, float]]:
    """Yield the idle times of a device as colour, start and end, those of one colour that touch as
    one.
    """
    from ppsim.analysis.idle import DRAIN

    first = run.timeline.start[run.timeline.schedule.offsets[device]]
    before: tuple[str, float, float] | None = None
    for segment in (run.device == device).nonzero()[0]:
        start, end = float(run.start[segment]), float(run.end[segment])
        name = "drain" if run.cause[segment] == DRAIN else "fill" if end <= first else "wait"
        if before and before[0] == name and before[2] == start:
            before = (name, before[1], end)
            continue
        if before:
            yield before
        before = (name, start, end)
    if before:
        yield before


def _bar(start: float, end: float, y: float, scale: float, space: float = 0.0) -> str:
    left, width = LEFT + start * scale, max((end - start) * scale - space, 0.3)
    return f"M{left:.1f} {y:g}h{width:.1f}v{ROW}h-{width:.1f}z"


def _gain(left: float, right: float, y: float, text: str) -> Iterator[str]:
    """Yield an arrow from the end of the measured step back to that of the better one, in the
    corner left empty.
    """
    yield f'<path class="arrow" d="M{right - 4:.1f} {y} H{left + 14:.1f}"/>'
    yield f'<path class="arrow" d="M{left + 4:.1f} {y} l12 -7 v14 z"/>'
    yield (
        f'<text class="gain" x="{(left + right) / 2:.1f}" y="{y - 16}" '
        f'text-anchor="middle">{text}</text>'
    )


def _legend(y: float) -> Iterator[str]:
    """Yield what colours mean, side by side."""
    x = float(LEFT)
    for name, text in COLOURS.items():
        yield f'<rect class="{name}" x="{x:.0f}" y="{y - 12}" width="14" height="14"/>'
        yield f'<text class="small" x="{x + 20:.0f}" y="{y}">{text}</text>'
        x += 44 + 5.9 * len(text)
