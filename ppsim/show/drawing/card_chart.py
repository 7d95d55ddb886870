"""A small Gantt chart as SVG for a notebook card, without style sheet or script.

Its colours are readable on light and dark pages.
"""

from __future__ import annotations

import base64
import html
import io
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ppsim.base.numbers import format_number
from ppsim.core.ops import ONCE_A_STEP
from ppsim.core.schedule import NONE
from ppsim.core.timeline import Timeline
from ppsim.show.drawing.lanes import compute_row
from ppsim.show.drawing.legend import legend_entries
from ppsim.show.drawing.palette import DEFAULT, LEVELS, channels, level_of, text_colour

WIDE = 640  # width of the chart with its names, in pixels
NAMES = 44  # width of the devices' names in pixels
LINE = 14  # height of a line of text in pixels
ROW, LEAST_ROW = 15.0, 2.0  # height of a device's row in pixels
TALLEST = 200.0  # height of all rows of all charts together, in pixels
MOST_ROWS = 64  # devices drawn, evenly spaced
MOST_CELLS = 500  # ops that are drawn as shapes; more are drawn as pixels
MOST_NUMBERS = 250  # ops up to which cells show their microbatches
LETTERS = 18_000  # length of encoded images of all charts together
LETTER = 5.6  # width of a digit in pixels
IDLE = "#80808026"  # a little darker on a light page, a little lighter on a dark one
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def charts_svg(charts: Sequence[tuple[str, Timeline]]) -> str:
    """Return timelines as SVG, one above the other on one time axis, each below its title.

    The picture is at most 640 pixels wide.
    """
    rows = [(title, compute_row(timeline)) for title, timeline in charts]
    span = max(timeline.makespan for _, timeline in rows) or 1.0
    devices = sum(min(timeline.schedule.n_devices, MOST_ROWS) for _, timeline in rows)
    height = min(ROW, max(LEAST_ROW, TALLEST / devices))
    count = sum(len(timeline.schedule) for _, timeline in rows)
    least = LINE - 3 if count <= MOST_NUMBERS else float("inf")  # height of rows with numbers
    parts, top = list[str](), 0.0
    for title, timeline in rows:
        time = f"{format_number(timeline.makespan)} {timeline.unit}"
        parts.append(text(NAMES, top + LINE - 4, f"{title}: {time}"))
        top += LINE
        shown = _shown_devices(timeline.schedule.n_devices)
        parts += _names(shown, top, height)
        width = (WIDE - NAMES) * timeline.makespan / span
        box = (top, width, height)
        if count <= MOST_CELLS:
            parts += _cells(timeline, shown, box, numbers=height >= least)
        else:
            parts.append(_pixels(timeline, shown, box, len(rows)))
        top += len(shown) * height + 4
    legend, top = _legend([timeline for _, timeline in rows], top)
    parts.append(legend)
    return frame(parts, top, "; ".join(title for title, _ in rows))


def frame(parts: Sequence[str], height: float, label: str) -> str:
    """Return an SVG picture of shapes; ``label`` is its text for screen readers."""
    size = f'viewBox="0 0 {WIDE} {height:.0f}" width="{WIDE}" role="img"'
    look = "max-width:100%;height:auto;display:block"
    font = f'font-family="{MONO}" font-size="10" fill="currentColor"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} aria-label="{html.escape(label)}" '
        f'style="{look}" {font}>{"".join(parts)}</svg>'
    )


def _shown_devices(count: int) -> list[int]:
    """Return the devices to draw: all, or some of them evenly spaced."""
    if count <= MOST_ROWS:
        return list(range(count))
    chosen: list[int] = np.linspace(0, count - 1, MOST_ROWS).round().astype(int).tolist()
    return chosen


def text(x: float, y: float, words: str, look: str = "") -> str:
    """Return an SVG text that begins at ``x`` on baseline ``y``; ``look`` is further attributes."""
    return f'<text x="{x:.0f}" y="{y:.1f}"{" " * bool(look)}{look}>{html.escape(words)}</text>'


def _names(devices: Sequence[int], top: float, height: float) -> list[str]:
    """Return the names of the devices; only the first and last if rows are too low for text."""
    places = range(len(devices)) if height >= LINE - 3 else sorted({0, len(devices) - 1})
    return [
        text(0, top + place * height + height / 2 + 3.5, f"dev {devices[place]}")
        for place in places
    ]


def _times(timeline: Timeline) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return start and end of each op in the picture; ops of a pair are drawn in sequence."""
    schedule, middle = timeline.schedule, (timeline.start + timeline.end) / 2
    paired = schedule.pair != NONE
    start = np.where(paired & ~schedule.leads, middle, timeline.start)
    end = np.where(paired & schedule.leads, middle, timeline.end)
    return start, end


def _fills(timeline: Timeline) -> NDArray[np.int64]:
    """Return the index of each op's colour in ``DEFAULT.colours``."""
    schedule = timeline.schedule
    last = int(schedule.placement.chunk.max())
    found: NDArray[np.int64] = LEVELS * schedule.kind.astype(np.int64) + level_of(
        schedule.chunk.astype(np.int64), last
    )
    return found


def _cells(
    timeline: Timeline, devices: Sequence[int], box: tuple[float, float, float], *, numbers: bool
) -> list[str]:
    """Return ops as boxes, one path per colour, with their microbatches if these fit."""
    schedule, (top, width, height) = timeline.schedule, box
    start, end = _times(timeline)
    fills = _fills(timeline)
    scale = width / (timeline.makespan or 1.0)
    paths, texts_of = defaultdict(list), defaultdict(list)
    digits = LETTER * len(str(schedule.round_microbatches - 1)) + 2
    widths = scale * (end - start)
    # Either all cells of a kind have numbers, or none.
    kinds = np.setdiff1d(schedule.kind, ONCE_A_STEP).tolist() if numbers else []
    numbered = {kind for kind in kinds if widths[schedule.kind == kind].min() >= digits}
    parts = []
    for place, device in enumerate(devices):
        y = top + place * height
        parts.append(
            f'<path fill="{IDLE}" d="M{NAMES} {y:.1f}h{width:.1f}v{height - 1:.1f}h-{width:.1f}z"/>'
        )
        own = schedule.queue(device)
        for op in range(own.start, own.stop):
            x, wide = NAMES + scale * start[op], scale * (end[op] - start[op])
            colour = DEFAULT.colours[fills[op]]
            gap = 0.6 if wide > 3 else 0.0
            paths[colour].append(
                f"M{x:.1f} {y:.1f}h{wide - gap:.1f}v{height - 1:.1f}h-{wide - gap:.1f}z"
            )
            if int(schedule.kind[op]) in numbered:
                place_of = f'x="{x + wide / 2:.0f}" y="{y + height / 2 + 2.5:.1f}"'
                number = schedule.microbatch[op] % schedule.round_microbatches
                texts_of[text_colour(colour)].append(f"<text {place_of}>{number}</text>")
    parts += [f'<path fill="{colour}" d="{"".join(path)}"/>' for colour, path in paths.items()]
    look = 'text-anchor="middle" font-size="9"'
    parts += [
        f'<g fill="{colour}" {look}>{"".join(texts)}</g>' for colour, texts in texts_of.items()
    ]
    return parts


def _pixels(
    timeline: Timeline, devices: Sequence[int], box: tuple[float, float, float], count: int
) -> str:
    """Return the ops as an image with a row of pixels per device.

    Its resolution is chosen so that the images of all ``count`` charts have at most ``LETTERS``
    letters.
    """
    from matplotlib.image import imsave

    schedule, (top, width, height) = timeline.schedule, box
    start, end = _times(timeline)
    colours = np.array([(*channels(colour), 255) for colour in DEFAULT.colours], np.uint8)
    fills, columns = _fills(timeline), WIDE - NAMES
    while True:
        image = np.zeros((len(devices), columns, 4), np.uint8)
        image[:] = (128, 128, 128, 38)
        at = (np.arange(columns) + 0.5) * (timeline.makespan / columns)
        for row, device in enumerate(devices):
            own = schedule.queue(device)
            op = own.start + np.searchsorted(start[own], at, "right") - 1
            busy = (op >= own.start) & (at < end[op])
            image[row, busy] = colours[fills[op[busy]]]
        out = io.BytesIO()
        imsave(out, image, format="png")
        found = base64.b64encode(out.getvalue()).decode()
        if len(found) * count <= LETTERS or columns <= WIDE // 8:
            break
        columns //= 2
    place = f'x="{NAMES}" y="{top:.1f}" width="{width:.1f}" height="{len(devices) * height:.1f}"'
    look = 'preserveAspectRatio="none" style="image-rendering:pixelated"'
    return f'<image {place} {look} href="data:image/png;base64,{found}"/>'


def _legend(timelines: Sequence[Timeline], top: float) -> tuple[str, float]:
    """Return the legend, a box and a name for each kind that occurs, and its lower end."""
    parts, x = list[str](), float(NAMES)
    for entry in legend_entries(timelines):
        fills = (IDLE,) if entry.name == "Bubble" else entry.colours
        wide = 10 * len(fills) + 4 + 6.1 * len(entry.name)
        if x > NAMES and x + wide > WIDE:
            x, top = float(NAMES), top + LINE
        for fill in fills:
            parts.append(
                f'<rect x="{x:.0f}" y="{top + 2:.1f}" width="10" height="9" fill="{fill}"/>'
            )
            x += 10
        parts.append(text(x + 4, top + LINE - 4, entry.name))
        x += 4 + 6.1 * len(entry.name) + 14
    return "".join(parts), top + LINE
