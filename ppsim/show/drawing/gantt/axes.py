"""A Gantt chart in the user's matplotlib axes."""

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

MOST_LABELS = 2_000  # ops up to which microbatches are numbered
ROW = 0.86  # height of a row over the distance of two


def draw_into(ax: Axes, timeline: Timeline, title: str = "", look: Look = PLAIN) -> None:
    """Draw a timeline into axes ``ax``: a row per device from the top, time in the costs' unit.

    It sets limits, ticks and labels, which may be changed afterwards. Of ``look`` it uses the
    palette, the window and the first device's number.
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
        selected = colours == colour
        left, below, duration = start[selected], low[selected], length[selected]
        path = rectangles(left, left + duration, below, below + ROW)
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
            str(schedule.microbatch[op] % schedule.round_microbatches + look.base),
        )
        ax.text(*where, number, color=colour, ha="center", va="center", size=6, clip_on=True)
