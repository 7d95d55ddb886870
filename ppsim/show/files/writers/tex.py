"""TikZ: a chart for LaTeX's ``\\input``, in the document's font, with text that can be edited."""

from __future__ import annotations

import unicodedata
from typing import IO

from ppsim.base.text import one_line, shorten
from ppsim.core.lanes import refuse_lanes
from ppsim.errors import InputError
from ppsim.show.drawing.canvas import figure_settings
from ppsim.show.drawing.gantt.notes import NOTE_REACH, place_notes
from ppsim.show.drawing.gantt.panel import Panel
from ppsim.show.drawing.legend import legend_entries
from ppsim.show.drawing.look import Note
from ppsim.show.drawing.palette import text_colour
from ppsim.show.files.document import Abilities, Document

SUFFIXES = (".tex",)
ABILITIES = Abilities(figure=True, view=True, paper=(".tex",))
MOST_CELLS = 4000  # TeX needs seconds for them
POINT = 72.27  # TeX's points of an inch
ROW = 11.0  # points
NAMES = 52.0  # width in points of the device names, left of the rows
FONT = 7.0  # largest font size of numbers, in points
# font size and line height of notes, in points
NOTE_FONT, NOTE_HIGH = 8.0, 14.0
LETTER = 4.6  # width of a letter of a title, in points
BOX = "\\rule[-1pt]{{{}pt}}{{7pt}}"
# Characters that TeX interprets, or has no plain glyph for.
SPECIAL = {sign: f"\\{sign}" for sign in "&%$#_{}"} | {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "<": "\\textless{}",
    ">": "\\textgreater{}",
    "|": "\\textbar{}",
    '"': "\\char34{}",
    "-": "-{}",
    "`": "`{}",
    "\N{MULTIPLICATION SIGN}": "$\\times$",
    "\N{MINUS SIGN}": "$-$",
    "\N{MICRO SIGN}": "$\\mu$",
    "\N{MIDDLE DOT}": "$\\cdot$",
}
UNICODE = "\\ifdefined\\Umathchar {}\\else ?\\fi{{}}"


def write(document: Document, out: IO[bytes], suffix: str) -> None:
    """Write one picture of all timelines on one axis, for ``\\input``; it needs the package tikz.

    Raises:
        InputError: more cells than TeX draws in seconds, or streams in parallel with compute.
    """
    for timeline in document.timelines:
        refuse_lanes(timeline.schedule, "TikZ")
    pairs = zip(document.timelines, document.titles, strict=True)
    panels = [Panel(timeline, title, look=document.look) for timeline, title in pairs]
    count = sum(len(panel.cells) for panel in panels)
    look = document.look
    if count > MOST_CELLS:
        raise InputError(
            f"TikZ would draw {count} cells ({MOST_CELLS:,} at most)", "a .pdf, or --window A:B"
        )
    begin = look.window[0] if look.window else 0.0
    span = max(*(panel.view.length for panel in panels), look.until - begin) or 1.0
    scale = (document.width * POINT - NAMES) / span
    lines = [
        f"% {one_line(str(document.inputs.get('command', 'ppsim')))}",
        "% \\usepackage{tikz}",
        *_colours(document),
    ]
    lines += ["\\begin{tikzpicture}[x=1pt,y=-1pt,line width=0.3pt]"]
    if look.title:
        lines.append(
            _text(
                0,
                -4,
                look.title,
                f"anchor=south west,align=left,text width={document.width * POINT:.4g}pt",
            )
        )
    top = 0.0
    for panel in panels:
        if len(panels) > 1:
            name = shorten(panel.title, int(document.width * POINT / LETTER))
            lines.append(_text(0, top + 0.5 * ROW, name, "anchor=west"))
            top += 1.3 * ROW
        notes = _notes(panel, scale, span) if panel is panels[0] else []
        top += NOTE_HIGH * max((line for *_, line in notes), default=0)
        lines += _rows(panel, top, scale)
        for note, middle, line in notes:
            time, device = panel.place_note(note)
            x, y = (
                NAMES + middle * scale,
                top + (-(line - 0.5) * NOTE_HIGH if line else (device + 0.5) * ROW),
            )
            if line:
                to = f"({NAMES + time * scale:.4g},{top + (device + NOTE_REACH) * ROW:.4g})"
                lines.append(f"\\draw ({x:.4g},{y:.4g}) -- {to}; \\fill {to} circle (0.8pt);")
            lines.append(_text(x, y, note.text, "fill=white,draw=black,inner sep=1.5pt"))
        top += (panel.devices + 0.5) * ROW
    lines.append(_text(NAMES, top + 3, "Time", "anchor=west"))
    lines.append(
        f"\\draw[->] ({NAMES + 26:.4g},{top + 3:.4g}) -- ({NAMES + 52:.4g},{top + 3:.4g});"
    )
    lines += [_legend(document, top + ROW), "\\end{tikzpicture}%", ""]
    out.write("\n".join(lines).encode())


def _notes(panel: Panel, scale: float, span: float) -> list[tuple[Note, float, int]]:
    """Return each note with its middle, in the timeline's unit, and its line.

    The widths do not depend on the machine's settings of matplotlib.
    """
    if not panel.look.notes:
        return []
    with figure_settings(".tex"):
        return [*place_notes(panel, NOTE_FONT, scale, span, ROW)]


def _colours(document: Document) -> list[str]:
    """Return definitions of named colours, which a paper may redefine."""
    colours = [*document.look.colours.colours, document.look.colours.bubble]
    return [
        f"\\definecolor{{ppsim{number}}}{{HTML}}{{{colour[1:]}}}%"
        for number, colour in enumerate(colours)
    ]


def _rows(panel: Panel, top: float, scale: float) -> list[str]:
    """Return the rows of a timeline: idle background, cells, numbers, names of devices."""
    cells, look = panel.cells, panel.look
    bubble = len(look.colours.colours)
    end = panel.end * scale + NAMES
    bottom = top + panel.devices * ROW
    lines = [f"\\fill[ppsim{bubble}] ({NAMES},{top:.4g}) rectangle ({end:.2f},{bottom:.4g});"]
    size, shown, texts = panel.choose_texts(scale, ROW, look.font_size or FONT)
    fills, numbers = look.colours.colours, list[str]()
    for i in range(len(cells)):
        left, right = NAMES + cells.left[i] * scale, NAMES + cells.right[i] * scale
        y = top + int(cells.device[i]) * ROW
        colour = int(cells.colour[i])
        share = "" if cells.lit[i] else "!22!white"
        box = f"({left:.2f},{y:.4g}) rectangle ({right:.2f},{y + ROW:.4g})"
        lines.append(f"\\filldraw[fill=ppsim{colour}{share},draw=black] {box};")
        if shown[i] and texts[i]:
            ink = "white" if text_colour(fills[colour]) == "#ffffff" and cells.lit[i] else "black"
            style = (
                f"inner sep=0pt,text={ink},font=\\fontsize{{{size:.3g}}}{{{size:.3g}}}\\selectfont"
            )
            numbers.append(
                f"\\node[{style}] at ({(left + right) / 2:.2f},{y + ROW / 2:.4g}) {{{texts[i]}}};"
            )
    lines += numbers  # drawn after all cells, as some are wider than their cell
    for device in range(panel.devices):
        name = f"Device {device + look.base}"
        lines.append(_text(NAMES - 3, top + (device + 0.5) * ROW, name, "anchor=east"))
    return lines


def _legend(document: Document, top: float) -> str:
    """Return the legend of the colours in use; TeX breaks it into lines."""
    known = [*document.look.colours.colours, document.look.colours.bubble]
    names, between = [], "\\quad "
    palette = document.look.colours
    for entry in legend_entries(document.timelines, palette=palette):
        wide = BOX.format(8 / len(entry.colours))
        box = "".join(
            f"\\textcolor{{ppsim{known.index(colour)}}}{{{wide}}}" for colour in entry.colours
        )
        names.append(f"\\mbox{{\\fboxsep0pt\\fboxrule0.3pt\\fbox{{{box}}} {escape(entry.name)}}}")
    where = (
        f"anchor=north west,align=center,text width={document.width * POINT:.4g}pt,inner sep=0pt"
    )
    return f"\\node[{where}] at (0,{top:.4g}) {{\\footnotesize {between.join(names)}}};"


def _text(x: float, y: float, text: str, where: str) -> str:
    return f"\\node[inner sep=0pt,{where}] at ({x:.4g},{y:.4g}) {{\\footnotesize {escape(text)}}};"


def escape(text: str) -> str:
    """Return a text escaped for TeX: none of its commands run, unprintable characters are dropped.

    A character that pdfTeX's default fonts lack is printed as ``?`` by pdfTeX, and as it is by
    engines that read Unicode.
    """
    plain = "".join(
        sign for sign in unicodedata.normalize("NFC", one_line(text)) if sign.isprintable()
    )
    return "".join(
        SPECIAL.get(sign) or (sign if _is_in_fonts(sign) else UNICODE.format(sign))
        for sign in plain
    )


def _is_in_fonts(sign: str) -> bool:
    parts = unicodedata.normalize("NFD", sign)
    return parts[0].isascii() and ord(sign) < 0x180 and "\N{COMBINING OGONEK}" not in parts
