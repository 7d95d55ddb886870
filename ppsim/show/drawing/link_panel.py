"""The panel of a figure that shows how much links and shared network cards are in use: a strip for
each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ppsim.analysis.link_use import IN, LINK, LinkUse, mean_in_columns
from ppsim.base.numbers import format_share
from ppsim.show.drawing.canvas import DOTS, POINT
from ppsim.show.drawing.letters import text_width
from ppsim.show.drawing.memory_panel import BESIDE, LINE_HEIGHT
from ppsim.show.drawing.palette import COMM_LANE, MUTED, channels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEAD = 1.5  # heights of the font above the strips, for their title
GAP = round(0.1 * DOTS)  # above the heading
# dots of a column: where single messages can be seen, and where only their mean can
FINE, COARSE = 2, 24
LEAST_STEP = 12  # dots between a step and the next, below which columns are coarse
LEVELS = 24  # dots of a strip at full use
SPACE = 6  # dots between strips, in the same measure
INK = "#444444"
# of a strip that is not in use: pale on a light page, dark on a dark one
NONE = (*channels(MUTED), 26)


def link_panel_height(use: LinkUse | None, font: float) -> int:
    """Return the height of the panel in dots, with its heading and the gap above it; 0 without
    links.
    """
    return GAP + round((HEAD + LINE_HEIGHT * len(use)) * font * POINT) if use else 0


def link_names(use: LinkUse, base: int) -> list[str]:
    """Return the name of each row, devices counted from ``base``: ``0 → 1``, ``card of 0-1 out``,
    ``15 other links``.
    """
    names = []
    for name, devices, direction, count in zip(
        use.name, use.devices, use.direction, use.count, strict=True
    ):
        seen = [device + base for device in devices]
        if not seen:
            names.append(f"{count} other {name}s" if count > 1 else f"1 other {name}")
        elif name == LINK:
            names.append(f"{seen[0]} \u2192 {seen[1]}")
        else:
            whole = seen == list(range(seen[0], seen[-1] + 1)) and len(seen) > 1
            who = f"{seen[0]}-{seen[-1]}" if whole else ",".join(map(str, seen))
            names.append(f"{name} of {who} {'in' if direction == IN else 'out'}")
    return names


def link_notes(use: LinkUse) -> list[str]:
    """Return each row's use over the iteration, and its most messages at once."""
    return [
        f"{format_share(float(mean))}, {most}"
        for mean, most in zip(use.mean, use.most_messages, strict=True)
    ]


def link_margins(use: LinkUse | None, font: float, base: int) -> tuple[float, float]:
    """Return the width in points of the names left and the notes right of the strips; 0 without
    links.
    """
    if not use:
        return 0.0, 0.0
    left = max(text_width(name, font) for name in link_names(use, base))
    return left, BESIDE + max(text_width(note, font - 0.5) for note in link_notes(use))


def draw_links(axes: Axes, use: LinkUse, *, span: float, font: float, base: int) -> None:
    """Draw a strip for each row into axes with time as x and the height of the strips and the
    heading.
    """
    rows = len(use)
    columns = _column_count(use, round(axes.get_window_extent().width * DOTS / axes.figure.dpi))
    high = np.ceil(mean_in_columns(use.curve, span, columns) * LEVELS - 1e-9)
    shown = np.zeros((rows, LEVELS + SPACE, columns), np.bool_)
    shown[:, SPACE:] = np.arange(LEVELS, 0, -1)[:, None] <= high[:, None, :]
    image = np.where(shown[..., None], (*channels(COMM_LANE), 255), NONE)
    image[:, :SPACE] = 0
    axes.axis("off")
    flat = image.reshape(rows * (LEVELS + SPACE), columns, 4).astype(np.uint8)
    axes.imshow(flat, extent=(0, span, rows, 0), aspect="auto", interpolation="nearest")
    axes.set_xlim(0, span)
    axes.set_ylim(rows, -HEAD / LINE_HEIGHT)
    middle = 0.5 + SPACE / 2 / (LEVELS + SPACE)
    style: dict[str, Any] = {"va": "center_baseline", "fontsize": font}
    beside: dict[str, Any] = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points"}
    for row, (name, note) in enumerate(zip(link_names(use, base), link_notes(use), strict=True)):
        axes.annotate(name, (0, row + middle), (-2, 0), ha="right", **beside, **style)
        right = style | {"fontsize": font - 0.5, "color": INK}
        axes.annotate(note, (1, row + middle), (BESIDE, 0), ha="left", **beside, **right)
    what = "share of bandwidth in use" if use.of_bandwidth else "share of time in use"
    axes.text(
        0,
        -0.35 * HEAD,
        f"Links: {what}; right: mean, most messages at once",
        ha="left",
        color=INK,
        **style,
    )


def _column_count(use: LinkUse, dots: int) -> int:
    steps = int(np.diff(use.curve.offsets)[use.count == 1].max(initial=1))
    return max(1, dots // (FINE if dots >= LEAST_STEP * steps else COARSE))
