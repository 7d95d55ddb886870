"""Messages of a Gantt chart as arrows, where they are no ops of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppsim.show.drawing.gantt_layout import Messages
from ppsim.show.drawing.palette import COMM_ARROW

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_arrows(axes: Axes, messages: Messages, gap: float) -> None:
    """Draw an arrow per message; one that passes other devices' rows goes behind their cells, ``gap`` rows apart."""
    from matplotlib.patches import FancyArrowPatch

    edge = 0.5 - gap
    step = np.sign(messages.receiver - messages.sender)
    tail, head = messages.sender + 0.5 + step * edge, messages.receiver + 0.5 - step * edge
    for sent, y, arrived, onto in zip(messages.sent, tail, messages.arrived, head, strict=True):
        axes.add_artist(
            FancyArrowPatch(
                (sent, y),
                (arrived, onto),
                arrowstyle="-|>,head_length=1.8,head_width=0.9",
                mutation_scale=1,
                linewidth=0.55,
                color=COMM_ARROW,
                shrinkA=0,
                shrinkB=0,
                zorder=2,
            )
        )
