"""The panel of a figure that shows the use of links and shared network cards, a strip each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ppsim.analysis.link_use import IN, LINK, LinkUse, mean_in_columns
from ppsim.base.numbers import format_share
from ppsim.show.drawing.canvas import DOTS, POINT
from ppsim.show.drawing.letters import text_width
from ppsim.show.drawing.memory_panel import LINE_HEIGHT, NAME_GAP
from ppsim.show.drawing.palette import COMM_LANE, MUTED, channels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEAD = 1.5  # height of the panel's title over the font's size
GAP = round(0.1 * DOTS)  # dots above the title
# width of a column in dots: if single messages are visible, and if only their mean is
FINE, COARSE = 2, 24
LEAST_STEP = 12  # dots between changes of use, below which columns are coarse
LEVELS = 24  # height of a strip at full use, in pixels of its image
SPACE = 6  # pixels between strips
INK = "#444444"
# colour of unused strips: pale on a light page, dark on a dark one
NONE = (*channels(MUTED), 26)


def link_panel_height(use: LinkUse | None, font: float) -> int:
    """Return the panel's height in dots, with its title and the gap above; 0 without links."""
    return GAP + round((HEAD + LINE_HEIGHT * len(use)) * font * POINT) if use else 0


def link_names(use: LinkUse, base: int) -> list[str]:
    """Return the names of the rows: ``0 → 1``, ``card of 0-1 out``, ``15 other links``.

    Devices are counted from ``base``.
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
    """Return each row's mean use over the iteration, and its most messages at once, as text."""
    return [
        f"{format_share(float(mean))}, {most}"
        for mean, most in zip(use.mean, use.most_messages, strict=True)
    ]


def link_margins(use: LinkUse | None, font: float, base: int) -> tuple[float, float]:
    """Return the widths in points of the names on the left and the notes on the right of strips.

    Both are 0 without links.
    """
    if not use:
        return 0.0, 0.0
    left = max(text_width(name, font) for name in link_names(use, base))
    return left, NAME_GAP + max(text_width(note, font - 0.5) for note in link_notes(use))


def draw_links(axes: Axes, use: LinkUse, *, span: float, font: float, base: int) -> None:
    """Draw the title and a strip for each row into axes with time as x."""
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
    place: dict[str, Any] = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points"}
    for row, (name, note) in enumerate(zip(link_names(use, base), link_notes(use), strict=True)):
        axes.annotate(name, (0, row + middle), (-2, 0), ha="right", **place, **style)
        right = style | {"fontsize": font - 0.5, "color": INK}
        axes.annotate(note, (1, row + middle), (NAME_GAP, 0), ha="left", **place, **right)
    measure = "share of bandwidth in use" if use.of_bandwidth else "share of time in use"
    axes.text(
        0,
        -0.35 * HEAD,
        f"Links: {measure}; right: mean, most messages at once",
        ha="left",
        color=INK,
        **style,
    )


def _column_count(use: LinkUse, dots: int) -> int:
    steps = int(np.diff(use.curve.offsets)[use.count == 1].max(initial=1))
    return max(1, dots // (FINE if dots >= LEAST_STEP * steps else COARSE))
