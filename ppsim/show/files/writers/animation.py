"""Animations for talks: a gif in which the Gantt chart appears from left to right."""

from __future__ import annotations

import json
from typing import IO

import numpy as np

from ppsim.show.drawing.canvas import render
from ppsim.show.files.document import Abilities, Document
from ppsim.show.files.writers.figure import draw_document

SUFFIXES = (".gif",)
ABILITIES = Abilities(figure=True, memory=True)
DOTS = 144  # dots per inch, twice a projector's
FRAMES, FRAME_MS, LAST_MS = 80, 75, 3000
LINE = (90, 90, 90)  # colour of the line at the current time
SHADES = 128


def write(document: Document, out: IO[bytes], suffix: str) -> None:
    """Write the frames, with ``document.inputs`` as JSON in the comment.

    Equal documents give equal bytes; errors are those of a figure.
    """
    from PIL import Image

    figure, whole = render(lambda: draw_document(document), DOTS)
    height = len(whole)
    areas = [axes.get_window_extent() for axes in figure.axes]
    times = (
        max(timeline.makespan for timeline in document.timelines) * np.arange(1, FRAMES) / FRAMES
    )
    palette = Image.fromarray(whole).quantize(SHADES)
    frames = []
    for time in times:
        frame = whole.copy()
        for axes, area in zip(figure.axes, areas, strict=True):
            now = round(axes.transData.transform((time, 0))[0])
            rows = slice(max(0, height - round(area.y1)), height - round(area.y0))
            frame[rows, now : round(area.x1) + 1] = 255
            frame[rows, now : now + 2] = LINE
        frames.append(Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE))
    frames.append(palette)
    frames[0].save(
        out,
        format="GIF",
        save_all=True,
        append_images=frames[1:],
        duration=[FRAME_MS] * (FRAMES - 1) + [LAST_MS],
        loop=0,
        comment=json.dumps(dict(document.inputs)).encode(),
    )
