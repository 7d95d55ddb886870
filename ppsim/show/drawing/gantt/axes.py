"""A Gantt chart in matplotlib axes of the user's own, beside whatever else they draw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppsim.core.ops import ONCE_A_STEP, Kind
from ppsim.show.drawing.gantt.layout import colours_of
from ppsim.show.drawing.look import PLAIN, Look
from ppsim.show.drawing.palette import LEVELS, text_colour
from ppsim.show.drawing.paths import add_path, rectangles

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ppsim.core.timeline import Timeline

MOST_LABELS = 2_000  # ops with their microbatch's number
ROW = 0.86  # of the height between two devices


def draw_into(ax: Axes, timeline: Timeline, title: str = "", look: Look = PLAIN) -> None:
    """Draw a timeline into axes ``ax``: a row per device from the top, the time across, in the unit
    of the costs.

    Limits, ticks and labels are set and may be changed afterwards; the title may be empty. Of the
    look, palette, window and the first device's number are used.
    """
    schedule = timeline.schedule
    # a pair's two ops side by side
    length = (timeline.end - timeline.start) * np.where(schedule.pair >= 0, 0.5, 1.0)
    start = np.where(schedule.leads, timeline.start, timeline.end - length)
    low = schedule.device - ROW / 2
    palette = look.colours
    colours = colours_of(schedule)
    for colour in np.unique(colours).tolist():
        kind, level = divmod(colour, LEVELS)
        name, fill = "_" if level else Kind(kind).info.name, palette.colours[colour]
        left, below, own = (
            start[colours == colour],
            low[colours == colour],
            length[colours == colour],
        )
        path = rectangles(left, left + own, below, below + ROW)
        add_path(ax, path, facecolor=fill, edgecolor="white", linewidth=0.3, label=name)
    first, last = look.window or (0.0, timeline.makespan)
    ax.set(
        xlim=(first, last),
        ylim=(schedule.n_devices - 0.5, -0.5),
        xlabel=timeline.unit,
        facecolor=palette.bubble,
    )
    ax.set_yticks(
        range(schedule.n_devices), [f"device {d + look.base}" for d in range(schedule.n_devices)]
    )
    if title:
        ax.set_title(title)
    numbered = ~np.isin(schedule.kind, ONCE_A_STEP)
    shown = np.flatnonzero((start < last) & (start + length > first) & numbered)
    for op in shown.tolist() if len(shown) <= MOST_LABELS else ():
        colour = text_colour(palette.colours[colours[op]])
        where, number = (
            (start[op] + length[op] / 2, schedule.device[op]),
            str(schedule.microbatch[op] + look.base),
        )
        ax.text(*where, number, color=colour, ha="center", va="center", size=6, clip_on=True)
