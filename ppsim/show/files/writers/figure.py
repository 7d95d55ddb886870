"""Figures: a Gantt chart per timeline, on one time axis, as png, svg or pdf."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from ppsim.show.drawing.canvas import write_figure
from ppsim.show.drawing.gantt.figure import plot
from ppsim.show.files.document import Abilities, Document

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")
ABILITIES = Abilities(figure=True, view=True, memory=True, paper=(".pdf",))


def write(document: Document, out: IO[bytes], suffix: str) -> None:
    """Write the figure, with ``document.inputs`` as JSON; equal documents give equal bytes.

    Raises:
        InputError: timelines in different units, an unknown style, or a width out of range.
    """
    title = ", ".join(document.titles)
    write_figure(lambda: draw_document(document), out, suffix, title=title, inputs=document.inputs)


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
