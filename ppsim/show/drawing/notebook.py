"""A Gantt chart for notebooks, as a plotly figure: zoom, hover and the reader's own changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ppsim.core.ops import Kind
from ppsim.core.soundness import require_type
from ppsim.core.timeline import Timeline
from ppsim.errors import InputError
from ppsim.show.drawing.palette import BUBBLE, BUBBLE_DARK, DEFAULT, IN_ROW, level_of, text_colour

if TYPE_CHECKING:
    from plotly.graph_objects import Bar, Figure

MOST_OPS = 50_000
ROW, HEIGHT = 34, 150  # height in pixels of a device's row, and of everything above and below
QUARTER = "\u2005"  # a blank of a quarter of the font's size, half as wide as a digit
LEAST_TEXT = 7  # smallest font size in points of a microbatch's number


def figure(timeline: Timeline) -> Figure:
    """Return a timeline as a plotly figure: a row per device, a trace per kind of op and chunk.

    Args:
        timeline: to draw; its ops' stage, microbatch, start and end are in the hover text.

    Raises:
        InputError: more ops than plotly can show; a page (``save`` to .html) can.
    """
    require_type("timeline", timeline, Timeline, "simulate(schedule, costs)")
    import plotly.graph_objects as go
    from plotly.io import templates

    schedule = timeline.schedule
    if len(schedule) > MOST_OPS:
        raise InputError(
            f"a notebook cannot show {len(schedule):,} ops ({MOST_OPS:,} at most)",
            "save to an .html page",
        )
    chunks = range(int(schedule.placement.chunk.max()) + 1)
    result = go.Figure([bar for kind in IN_ROW for bar in _bars(timeline, kind, chunks)])
    result.update_layout(
        title=f"{schedule.name}: {timeline.makespan:.6g} {timeline.unit}",
        barmode="overlay",
        bargap=0.12,
        plot_bgcolor=BUBBLE_DARK if "dark" in (templates.default or "") else BUBBLE,
        uniformtext={"minsize": LEAST_TEXT, "mode": "hide"},
        height=HEIGHT + ROW * schedule.n_devices,
        margin={"l": 80, "r": 20, "t": 50, "b": 90},
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
        xaxis={
            "title": f"time ({timeline.unit})",
            "range": [0, timeline.makespan],
            "showgrid": False,
        },
        yaxis={
            "autorange": "reversed",
            "tickmode": "linear",
            "dtick": 1,
            "tickprefix": "device ",
            "showgrid": False,
        },
    )
    return result


def _bars(timeline: Timeline, kind: Kind, chunks: range) -> Iterator[Bar]:
    """Yield a trace of bars for each chunk with ops of a kind."""
    import plotly.graph_objects as go

    schedule, last = timeline.schedule, chunks[-1]
    second = "second replica" if schedule.n_chunks == 1 else "second chunk"
    digits = len(str(schedule.n_microbatches - 1))
    duration = timeline.end - timeline.start
    # the two ops of a pair are drawn one after the other
    length = np.where(schedule.pair >= 0, duration / 2, duration)
    start = timeline.start + np.where(schedule.leads, 0.0, duration / 2)
    for chunk in chunks:
        ops = np.flatnonzero((schedule.kind == kind) & (schedule.chunk == chunk))
        if not len(ops):
            continue
        name = kind.info.name
        if last > 1:
            name += f", chunk {chunk}"
        elif chunk:
            name += f", {second}"
        colour = DEFAULT.fill(kind)[level_of(chunk, last)]
        numbers = np.stack([schedule.stage[ops], schedule.microbatch[ops]], axis=1)
        yield go.Bar(
            name=name,
            y=schedule.device[ops],
            x=length[ops],
            base=start[ops],
            orientation="h",
            marker={"color": colour, "line": {"color": "white", "width": 0.5}},
            text=[widen(number, digits) for number in schedule.microbatch[ops].tolist()],
            textfont={"color": text_colour(colour)},
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            constraintext="inside",
            customdata=np.column_stack([numbers, timeline.start[ops], timeline.end[ops]]),
            hovertemplate=f"{kind.name}: stage %{{customdata[0]}}, microbatch "
            "%{customdata[1]}<br>%{customdata[2]:.6~g} to %{customdata[3]:.6~g}"
            "<extra>%{y}</extra>",
        )


def widen(number: int, digits: int) -> str:
    """Return a number padded to ``digits``, so that either all numbers fit their bars or none."""
    text = str(number)
    blanks = QUARTER * (digits - len(text))
    return blanks + text + blanks
