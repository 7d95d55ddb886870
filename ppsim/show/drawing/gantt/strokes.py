"""The strokes of a Gantt figure: cells, numbers, arrows, headings and the time axis.

Each function adds one thing to a matplotlib figure, placed by a :class:`Design`. Cells share one
path per colour; only legible numbers and a few arrows are artists of their own. Shapes are added as
artists rather than patches, as matplotlib would measure patches to set limits that are set already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ppsim.analysis.idle import NAMES
from ppsim.base.notes import note
from ppsim.core.ops import Kind
from ppsim.show.drawing.canvas import POINT
from ppsim.show.drawing.gantt.design import HATCHING, Design
from ppsim.show.drawing.gantt.layout import (
    COLOUR_COUNT,
    LEAST_BORDERED,
    Cells,
    Messages,
    join_cells,
    raster,
)
from ppsim.show.drawing.gantt.panel import Panel
from ppsim.show.drawing.lanes import COLLECTIVE, Bars, Lane, busy_share
from ppsim.show.drawing.legend import LANE_FILL
from ppsim.show.drawing.letters import tick_step
from ppsim.show.drawing.palette import (
    CAUSE_FILL,
    COMM_ARROW,
    DEFAULT,
    DIMMED,
    LEVELS,
    Palette,
    blend,
    channels,
    text_colour,
)
from ppsim.show.drawing.paths import add_path, rectangles

if TYPE_CHECKING:
    from matplotlib.axes import Axes


LANE_EDGE = 0.25  # points
HAIRLINE = 0.3  # points, around ops that all devices run together
STRIP_DOTS = 24  # width of a column of a strip of messages, in dots
LEAST_SHARE = 0.2  # least share of a message's colour in a column that has a message
BUBBLE_HATCHING = "////"
LANE_HATCHING = "//////"  # of reduced gradients; gathered parameters are plain


def draw_gantt(axes: Axes, panel: Panel, design: Design, tall: int) -> None:
    """Draw the rows of one panel in ``tall`` dots: x is time, y the device, downwards."""
    devices, cells = panel.devices, panel.cells
    axes.set_xlim(0, design.span)
    axes.set_ylim(devices, 0)
    axes.set_xticks([])
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, pad=2, labelsize=design.font)
    row = tall / devices / POINT
    named = range(0, devices, tick_step(row, 0.95 * design.font))
    middle = (1 + design.gap - design.lane) / 2
    axes.set_yticks(
        [device + middle for device in named],
        [f"Device {device + design.look.base}" for device in named],
    )
    if design.vector:
        track = np.arange(devices)
        fill_track(axes, panel.end, track + design.gap, track + 1 - design.lane, design.palette)
        if panel.idle_cells:
            _fill_idle(axes, panel.idle_cells, design)
        fill_cells(axes, cells, cells.device + design.gap, cells.device + 1 - design.lane, design)
        inside = row * (1 - design.lane + design.gap)
        size, shown, texts = panel.choose_texts(design.scale, inside, design.font)
        if design.look.labels not in ("auto", "none") and not shown.any():
            note(
                f"no cell of {panel.title} has room for --labels {design.look.labels}: a wider "
                f"--width, or --window"
            )
        number_cells(axes, cells, cells.device + middle, size, shown, texts, design.palette)
        if panel.lane and design.bands:
            _fill_lane(axes, panel.lane, panel.lane_lit, design)
        if panel.bars:
            _draw_bars(axes, panel.bars, devices, design)
        if design.inside:
            _fill_inside(axes, panel.streams, design)
    else:
        shown_cells = join_cells(cells, panel.idle_cells) if panel.idle_cells else cells
        rows = min(devices, tall)
        image = raster(
            shown_cells, devices, panel.end, design.span, rows, design.across, design.palette
        )
        axes.imshow(
            image,
            extent=(0, design.span, devices, 0),
            aspect="auto",
            interpolation="nearest",
            zorder=1,
        )
        if design.gap:
            axes.hlines(
                range(1, devices),
                0,
                design.span,
                color="white",
                linewidth=2 * design.gap * row,
                zorder=2,
            )
    if design.arrows and panel.messages is not None:
        _draw_arrows(axes, panel.messages, design.gap)


def fill_track(
    axes: Axes, end: float, top: NDArray[Any], bottom: NDArray[Any], palette: Palette = DEFAULT
) -> None:
    """Draw the colour of bubbles from time 0, a row per entry of ``top`` and ``bottom``."""
    grey = rectangles(np.zeros(len(top)), np.full(len(top), end), top, bottom)
    add_path(axes, grey, facecolor=palette.bubble, zorder=1)
    if palette.bubble_hatch:
        lines = {
            "hatch": BUBBLE_HATCHING,
            "hatch_linewidth": 0.4,
            "edgecolor": palette.bubble_hatch,
        }
        add_path(axes, grey, fill=False, zorder=1, **lines)


def _fill_idle(axes: Axes, idle: Cells, design: Design) -> None:
    """Draw the idle time of each cause as one path, above the grey and below the cells."""
    for cause in np.unique(idle.colour) - COLOUR_COUNT:
        own = idle.colour == cause + COLOUR_COUNT
        device = idle.device[own]
        path = rectangles(
            idle.left[own], idle.right[own], device + design.gap, device + 1 - design.lane
        )
        add_path(axes, path, facecolor=CAUSE_FILL[NAMES[cause]], zorder=1.5)


def fill_cells(
    axes: Axes, cells: Cells, top: NDArray[Any], bottom: NDArray[Any], design: Design
) -> None:
    """Draw the cells, one path per colour, and all borders as one path on top.

    ``top`` and ``bottom`` have shape (cells,).
    """
    palette = design.palette
    for code in np.unique(2 * cells.colour.astype(np.int64) + cells.lit):
        colour, lit = divmod(int(code), 2)
        own = (cells.colour == colour) & (cells.lit == bool(lit))
        path = rectangles(cells.left[own], cells.right[own], top[own], bottom[own])
        fill = (
            palette.colours[colour]
            if lit
            else blend(palette.colours[colour], palette.bubble, DIMMED)
        )
        add_path(axes, path, facecolor=fill, zorder=3)
        if palette.lines[colour] and lit:
            lines = {"hatch": HATCHING, "hatch_linewidth": 0.5, "edgecolor": palette.lines[colour]}
            add_path(axes, path, fill=False, zorder=3, **lines)
    if design.border:
        whole = cells.bordered & ((cells.end - cells.left) * design.scale >= LEAST_BORDERED)
        path = rectangles(cells.left[whole], cells.end[whole], top[whole], bottom[whole])
        ink = "black" if design.style == "paper" else "white"
        add_path(
            axes, path, fill=False, edgecolor=ink, linewidth=design.border, zorder=4, clip_on=False
        )


def _fill_lane(axes: Axes, lane: Lane, lit: NDArray[np.bool_], design: Design) -> None:
    """Draw a band for each direction of messages and for collectives.

    An edge around each entry keeps even the shortest visible.
    """
    high = (design.lane - design.gap) / len(design.bands)
    for place, band in enumerate(design.bands):
        fill = LANE_FILL[band]
        if band in design.strips:
            _fill_strips(axes, lane, lane.band == band, (place, high), fill, design)
            continue
        for bright in (True, False):
            own = (lane.band == band) & (lit == bright)
            if not own.any():
                continue
            top = lane.device[own] + 1 - design.lane + place * high
            edges = lane.left[own], lane.right[own], top, top + high
            path = rectangles(*edges)
            look = {
                "alpha": 1.0 if bright else DIMMED,
                "edgecolor": COMM_ARROW,
                "linewidth": LANE_EDGE,
            }
            add_path(axes, path, facecolor=fill, zorder=3, **look)
            reduced = lane.kind[own] == Kind.REDUCE_GRAD
            if bright and reduced.any():
                lines = {"hatch": LANE_HATCHING, "hatch_linewidth": 0.6, "edgecolor": "white"}
                add_path(
                    axes,
                    rectangles(*(edge[reduced] for edge in edges)),
                    fill=False,
                    zorder=3,
                    **lines,
                )


def _draw_bars(axes: Axes, bars: Bars, devices: int, design: Design) -> None:
    """Draw a bar over all rows for each op that all devices run together.

    A collective is only outlined, as the rows show other ops at the same time.
    """
    for kind in np.unique(bars.kind):
        own = bars.kind == kind
        in_row = bool(bars.in_row[own][0])
        if not in_row and (COLLECTIVE not in design.bands or COLLECTIVE in design.strips):
            continue
        ends = (
            np.full(own.sum(), design.gap),
            np.full(own.sum(), devices - (design.lane if in_row else design.gap)),
        )
        path = rectangles(bars.left[own], bars.right[own], *ends)
        colour = design.palette.colours[LEVELS * kind] if in_row else LANE_FILL[COLLECTIVE]
        if in_row:
            add_path(axes, path, facecolor=colour, zorder=2)
        add_path(axes, path, fill=False, edgecolor=colour, linewidth=HAIRLINE, zorder=4.5)


def _fill_inside(axes: Axes, streams: Sequence[Cells], design: Design) -> None:
    """Draw the segments of ops below their cells, one track per stream."""
    high = (design.lane - design.gap) / len(streams)
    for place, cells in enumerate(streams):
        top = cells.device + 1 - design.lane + place * high
        fill_cells(axes, cells, top, top + high, design)


def _fill_strips(
    axes: Axes,
    lane: Lane,
    own: NDArray[np.bool_],
    place: tuple[int, float],
    fill: str,
    design: Design,
) -> None:
    """Draw a band of messages that are too short to see, as the share of time with a message."""
    band, high = place
    devices = int(axes.get_ylim()[0])
    count = max(1, design.across // STRIP_DOTS)
    share = busy_share(
        lane.device[own], lane.left[own], lane.right[own], devices, design.span, count
    )
    full, none = (np.array(channels(colour)) for colour in (fill, design.palette.bubble))
    seen = np.where(share > 0, LEAST_SHARE + (1 - LEAST_SHARE) * share, 0.0)[:, :, None]
    image = np.rint(none + seen * (full - none)).astype(np.uint8)
    for device in np.unique(lane.device[own]):
        top = device + 1 - design.lane + band * high
        extent = (0, design.span, top + high, top)
        axes.imshow(
            image[device : device + 1],
            extent=extent,
            aspect="auto",
            interpolation="nearest",
            zorder=3,
        )


def number_cells(
    axes: Axes,
    cells: Cells,
    y: NDArray[Any],
    size: float,
    shown: NDArray[np.bool_],
    texts: Sequence[str] = (),
    palette: Palette = DEFAULT,
) -> None:
    """Write the cells' labels, by default microbatches, in the middle of the cells that show them.

    ``y`` and ``shown`` have shape (cells,).
    """
    middle = (cells.left + cells.right) / 2
    look: dict[str, Any] = {"fontsize": size, "ha": "center", "va": "center_baseline", "zorder": 5}
    for cell in np.flatnonzero(shown).tolist():
        text, colour = (
            texts[cell] if texts else str(cells.number[cell]),
            palette.colours[cells.colour[cell]],
        )
        axes.text(middle[cell], y[cell], text, color=text_colour(colour), **look)


def _draw_arrows(axes: Axes, messages: Messages, gap: float) -> None:
    """Draw an arrow per message, behind the cells of rows that it passes.

    ``gap`` is the empty share of a row above and below its cells.
    """
    from matplotlib.patches import FancyArrowPatch

    edge = 0.5 - gap
    step = np.sign(messages.receiver - messages.sender)
    tail, head = messages.sender + 0.5 + step * edge, messages.receiver + 0.5 - step * edge
    look: dict[str, Any] = {
        "arrowstyle": "-|>,head_length=1.8,head_width=0.9",
        "mutation_scale": 1,
        "linewidth": 0.55,
    }
    look |= {"color": COMM_ARROW, "shrinkA": 0, "shrinkB": 0, "zorder": 2}
    for sent, y, arrived, onto in zip(messages.sent, tail, messages.arrived, head, strict=True):
        axes.add_artist(FancyArrowPatch((sent, y), (arrived, onto), **look))
