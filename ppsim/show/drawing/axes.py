"""A Gantt chart in matplotlib axes of the user's own, beside whatever else they draw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppsim.core.ops import Kind
from ppsim.show.drawing.look import PLAIN, Look
from ppsim.show.drawing.palette import text_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ppsim.core.timeline import Timeline

MOST_LABELS = 2_000  # ops with their microbatch's number
ROW = 0.86  # of the height between two devices


def draw_into(ax: Axes, timeline: Timeline, title: str = "", look: Look = PLAIN) -> None:
    """Draw a timeline into axes ``ax``: a row per device from the top, the time across, in the unit of the costs.

    Limits, ticks and labels are set and may be changed afterwards; the title may be empty. Of the look, palette, window
    and the first device's number are used.
    """
    from matplotlib.collections import PolyCollection

    schedule = timeline.schedule
    length = (timeline.end - timeline.start) * np.where(schedule.pair >= 0, 0.5, 1.0)  # a pair's two ops side by side
    start = np.where(schedule.leads, timeline.start, timeline.end - length)
    low = schedule.device - ROW / 2
    corners = np.stack(
        [
            np.stack([start, low], axis=1),
            np.stack([start + length, low], axis=1),
            np.stack([start + length, low + ROW], axis=1),
            np.stack([start, low + ROW], axis=1),
        ],
        axis=1,
    )
    palette = look.colours
    second = schedule.chunk % 2
    for kind in np.unique(schedule.kind).tolist():
        for tint in (0, 1):
            ops = (schedule.kind == kind) & (second == tint)
            name, fill = Kind(kind).info.name if not tint else "_", palette.fill(Kind(kind))[tint]
            ax.add_collection(
                PolyCollection(corners[ops], facecolors=fill, edgecolors="white", linewidths=0.3, label=name)
            )
    first, last = look.window or (0.0, timeline.makespan)
    ax.set(xlim=(first, last), ylim=(schedule.n_devices - 0.5, -0.5), xlabel=timeline.unit, facecolor=palette.bubble)
    ax.set_yticks(range(schedule.n_devices), [f"device {d + look.base}" for d in range(schedule.n_devices)])
    if title:
        ax.set_title(title)
    shown = np.flatnonzero((start < last) & (start + length > first))
    for op in shown.tolist() if len(shown) <= MOST_LABELS else ():
        colour = text_colour(palette.fill(Kind(schedule.kind[op]))[second[op]])
        where, number = (start[op] + length[op] / 2, schedule.device[op]), str(schedule.microbatch[op] + look.base)
        ax.text(*where, number, color=colour, ha="center", va="center", size=6, clip_on=True)
