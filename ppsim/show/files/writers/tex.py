"""TikZ: a chart as text that a paper includes, in the document's own font and text width, with numbers it can edit."""

from __future__ import annotations

import re
from typing import IO

import numpy as np

from ppsim.base.text import one_line
from ppsim.core.lanes import refuse_lanes
from ppsim.errors import InputError
from ppsim.show.drawing.gantt_layout import choose_labels, label_texts
from ppsim.show.drawing.gantt_panel import Panel
from ppsim.show.drawing.legend import legend_entries
from ppsim.show.drawing.palette import text_colour
from ppsim.show.files.document import Abilities, Document

SUFFIXES = (".tex",)
ABILITIES = Abilities(figure=True, view=True, paper=(".tex",))
MOST_CELLS = 4000  # which TeX takes seconds for
POINT = 72.27  # TeX's points of an inch
ROW = 11.0  # points
NAMES = 52.0  # points left of the rows
FONT = 7.0  # points of a number at most
LEGEND = 14.0  # points of its line
LETTER = 4.6  # points of a letter of the legend
# What TeX reads as its own.
SPECIAL = {sign: f"\\{sign}" for sign in "&%$#_{}"} | {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
}


def write(document: Document, out: IO[bytes], suffix: str) -> None:
    """One picture of all timelines on one axis, to be read with ``\\input``; it needs the package tikz.

    Raises:
        InputError: more cells than TeX draws in seconds, or streams beside compute.
    """
    for timeline in document.timelines:
        refuse_lanes(timeline.schedule, "TikZ")
    pairs = zip(document.timelines, document.titles, strict=True)
    panels = [Panel(timeline, title, look=document.look) for timeline, title in pairs]
    count = sum(len(panel.cells) for panel in panels)
    if count > MOST_CELLS:
        raise InputError(f"TikZ would draw {count} cells ({MOST_CELLS:,} at most)", "a .pdf, or --window A:B")
    begin = document.look.window[0] if document.look.window else 0.0
    span = max(*(panel.view.length for panel in panels), document.look.until - begin) or 1.0
    scale = (document.width * POINT - NAMES) / span
    lines = [f"% {one_line(str(document.inputs.get('command', 'ppsim')))}", "% \\usepackage{tikz}", *_colours(document)]
    lines += ["\\begin{tikzpicture}[x=1pt,y=-1pt,line width=0.3pt]"]
    top = 0.0
    for panel in panels:
        if len(panels) > 1 or document.look.title:
            name = document.look.title if len(panels) == 1 else panel.title
            lines.append(_text(0, top + 0.5 * ROW, name, "anchor=west"))
            top += 1.3 * ROW
        lines += _rows(panel, top, scale)
        for note in document.look.notes if panel is panels[0] else ():
            time, device = panel.place_note(note)
            place = NAMES + time * scale, top + (device + 0.5) * ROW
            lines.append(_text(*place, note.text, "fill=white,draw=black,inner sep=1.5pt"))
        top += (panel.devices + 0.5) * ROW
    lines += [_text(0, top + 3, "Time", "anchor=west"), f"\\draw[->] (26,{top + 3:.4g}) -- (52,{top + 3:.4g});"]
    lines += [*_legend(document, top + LEGEND), "\\end{tikzpicture}", ""]
    out.write("\n".join(lines).encode())


def _colours(document: Document) -> list[str]:
    """A name for each colour, which a paper may define anew."""
    colours = [*document.look.colours.colours, document.look.colours.bubble]
    return [f"\\definecolor{{ppsim{number}}}{{HTML}}{{{colour[1:]}}}" for number, colour in enumerate(colours)]


def _rows(panel: Panel, top: float, scale: float) -> list[str]:
    """The rows of a timeline: bubble, cells in their colours, numbers, names of devices."""
    cells, look = panel.cells, panel.look
    bubble = len(look.colours.colours)
    end = panel.end * scale + NAMES
    bottom = top + panel.devices * ROW
    lines = [f"\\fill[ppsim{bubble}] ({NAMES},{top:.4g}) rectangle ({end:.2f},{bottom:.4g});"]
    size, shown = choose_labels(cells, scale, ROW, look.font_size or FONT)
    texts = label_texts(cells, look.labels, look.base)
    fills = np.array(look.colours.colours, object)
    for i in range(len(cells)):
        left, right = NAMES + cells.left[i] * scale, NAMES + cells.right[i] * scale
        y = top + int(cells.device[i]) * ROW
        colour = int(cells.colour[i])
        share = "" if cells.lit[i] else "!22!white"
        text = ""
        if shown[i] and texts[i]:
            ink = "white" if text_colour(fills[colour]) == "#ffffff" and cells.lit[i] else "black"
            font = f"\\fontsize{{{size:.3g}}}{{{size:.3g}}}\\selectfont"
            text = f" node[midway,inner sep=0pt,text={ink},font={font}] {{{texts[i]}}}"
        lines.append(
            f"\\filldraw[fill=ppsim{colour}{share},draw=black] "
            f"({left:.2f},{y:.4g}) rectangle ({right:.2f},{y + ROW:.4g}){text};"
        )
    for device in range(panel.devices):
        name = f"Device {device + look.base}"
        lines.append(_text(NAMES - 3, top + (device + 0.5) * ROW, name, "anchor=east"))
    return lines


def _legend(document: Document, top: float) -> list[str]:
    """The colours in use, in a line below."""
    lines, x = [], NAMES
    known = document.look.colours
    for entry in legend_entries(document.timelines, palette=known):
        colour = entry.colours[0]
        names = [*known.colours, known.bubble]
        fill = f"ppsim{names.index(colour)}" if colour in names else "white"
        box = f"({x:.4g},{top - 4:.4g}) rectangle ({x + 8:.4g},{top + 4:.4g})"
        lines += [f"\\filldraw[fill={fill},draw=black] {box};", _text(x + 10, top, entry.name, "anchor=west")]
        x += 22 + LETTER * len(entry.name)
    return lines


def _text(x: float, y: float, text: str, where: str) -> str:
    return f"\\node[inner sep=0pt,{where}] at ({x:.4g},{y:.4g}) {{\\footnotesize {escape(text)}}};"


def escape(text: str) -> str:
    """A text as TeX prints it: no command of it runs, and what is no printable sign is left out."""
    plain = "".join(sign for sign in one_line(text) if sign.isprintable())
    return re.sub(r"[\\~^&%$#_{}]", lambda found: SPECIAL[found[0]], plain)
