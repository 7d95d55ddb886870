"""Figures: a Gantt chart per timeline, on one time axis, as png, svg or pdf."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any

from ppsim.analysis.heat import HeatMap
from ppsim.analysis.tradeoff import Tradeoff
from ppsim.show.drawing.canvas import write_figure
from ppsim.show.drawing.gantt import plot
from ppsim.show.files.document import Abilities, Document

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")
ABILITIES = Abilities(figure=True, view=True, memory=True, paper=(".pdf",))


def write(document: Document, out: IO[bytes], suffix: str) -> None:
    """Write the figure; equal documents give equal bytes, and the file carries ``document.inputs`` as JSON.

    Raises:
        InputError: timelines in different units, an unknown style, or a width that no figure can have.
    """
    title = ", ".join(document.titles)
    write_figure(lambda: draw_document(document), out, suffix, title=title, inputs=document.inputs)


def write_tradeoff(
    found: Tradeoff,
    out: IO[bytes],
    suffix: str,
    *,
    time: str,
    memory: str,
    width: float,
    inputs: Mapping[str, Any],
    heat: HeatMap | None = None,
) -> None:
    """Draw time against memory; ``time`` and ``memory`` are the axes' labels."""
    from ppsim.show.drawing.tradeoff import figure_of

    title = f"{time} against {memory}"
    write_figure(lambda: figure_of(found, time, memory, width), out, suffix, title=title, inputs=inputs)


def write_heat(
    heat: HeatMap, key: str, out: IO[bytes], suffix: str, *, width: float, inputs: Mapping[str, Any]
) -> None:
    """Draw one metric of a sweep as a heat map."""
    from ppsim.show.drawing.heat_map import figure_of

    write_figure(lambda: figure_of(heat, key, width), out, suffix, title=f"{key} of a sweep", inputs=inputs)


def draw_document(document: Document) -> Figure:
    """Draw the charts of a document as one figure."""
    return plot(
        document.timelines,
        titles=document.titles,
        style=document.style,
        width=document.width,
        memory=document.memory,
        cap=document.cap,
        executions=document.executions,
        idles=document.idles,
        insides=document.insides,
        look=document.look,
    )
