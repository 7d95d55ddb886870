"""Tables and sentences that fit a terminal: whole columns are left out, and numbers are never cut.

Colours are those of the terminal's theme, which are legible on its background; muted text is a grey
that is legible on light and dark ones.
"""

from __future__ import annotations

import contextlib
import io
import os
import textwrap
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import click

from ppsim.ask.blocks import Block, Chart, DrawnBlock, Line, Part, Table
from ppsim.base.numbers import align_rows
from ppsim.base.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from ppsim.core.timeline import Timeline
    from ppsim.engine.simple.metrics import Metrics
    from ppsim.show.drawing.terminal_marks import Marks

WIDEST = 160  # columns of a chart
# While blocks are written to a text: its columns, 0 for those of a pipe. None on a terminal.
_TEXT: ContextVar[int | None] = ContextVar("columns of a text", default=None)
BETWEEN = 2  # blanks between columns
LEAST_LAST = 12  # letters that the last line of a sentence should have
WIDTH_TO_SPARE = 16  # letters by which other lines may be shorter for that
# Tones of parts of a text, with their style on terminals with colour.
TONES = {
    "": "",
    "name": "bold",
    "good": "green",
    "bad": "red",
    "fault": "bold red",
    "try": "cyan",
    "quiet": "",
    "bar": "blue",
}


def print_table(table: Table) -> None:
    """Print a table whose first column has names.

    If it is wider than the terminal, columns are left out: first the ``spare`` ones in their order,
    then from the right. If not even one column fits next to the names, each row becomes a block of
    lines.
    """
    from rich.table import Table as Drawing

    headings, *rows = ([*map(printable, row)] for row in (table.headings, *align_rows(table.rows)))
    screen = console(at_least=table.at_least)
    kept = _fit_columns(headings, rows, screen.width, table.spare)
    if len(kept) < 2:
        for name, *cells in rows:
            click.echo(name)
            for heading, cell in zip(headings[1:], cells, strict=True):
                click.echo(f"  {cell}  {_one_line_heading(heading)}")
        return
    drawing = Drawing(box=None, pad_edge=False, header_style="bold", padding=(0, BETWEEN, 0, 0))
    for column in kept:
        left = not column or table.headings[column] in table.left
        drawing.add_column(headings[column], justify="left" if left else "right", no_wrap=True)
    for number, row in enumerate(rows):
        drawing.add_row(
            *(_toned_text([(row[column], table.tone(number, column))], screen) for column in kept)
        )
    screen.print(drawing)
    if gone := [
        _one_line_heading(heading) for column, heading in enumerate(headings) if column not in kept
    ]:
        them = "them" if len(gone) > 1 else "it"
        echo_wrapped([(f"no room for {', '.join(gone)}: a wider terminal shows {them}", "quiet")])


def find_style(tone: str, screen: Console) -> str:
    """Return the rich style of a tone on a console."""
    # none of the sixteen basic colours is a grey that is legible on every theme
    if tone == "quiet" and screen.color_system not in (None, "standard"):
        from ppsim.show.drawing.palette import TERMINAL_MUTED

        return TERMINAL_MUTED
    return TONES[tone]


def echo_wrapped(text: str | Sequence[Part], indent: int = 0, *, err: bool = False) -> None:
    """Print a line; a terminal wraps it between words, with ``indent`` blanks before further lines.

    Parts with a tone have its colour if the terminal has colours. With ``err``, the line goes to
    standard error. A word that is longer than the terminal is not cut.
    """
    screen = console(err=err)
    parts = [text] if isinstance(text, str) else text
    plain = printable("".join(part if isinstance(part, str) else part[0] for part in parts))
    if not screen.is_terminal:
        click.echo(plain, err=err)
        return
    whole = _toned_text(parts, screen)
    lines = [whole]
    if len(plain) > screen.width:
        lines = _wrap(whole, screen.width, min(indent, 3 * screen.width // 5))
    for line in lines:
        screen.print(line, soft_wrap=True)


def _toned_text(parts: Sequence[Part], screen: Console) -> Text:
    from rich.text import Text

    pairs = ((part, "") if isinstance(part, str) else part for part in parts)
    return Text.assemble(*((printable(text), find_style(tone, screen)) for text, tone in pairs))


def _wrap(whole: Text, width: int, indent: int) -> list[Text]:
    """Return a text as lines, wrapped between words; lines after the first are indented."""
    from rich.text import Text

    found, at = [], 0
    for number, line in enumerate(_even_lines(whole.plain, width, indent)):
        blanks = " " * indent if number else ""
        content = line.removeprefix(blanks)
        at = whole.plain.index(content, at)
        found.append(Text(blanks) + whole[at : at + len(content)])
        at += len(content)
    return found


def _even_lines(text: str, width: int, indent: int) -> list[str]:
    """Return a text in as few lines as possible, without a very short last line if the others can
    be a little shorter.
    """
    filled = list[str]()
    for narrower in range(width, max(indent, width - WIDTH_TO_SPARE) - 1, -1):
        lines = textwrap.wrap(
            text,
            max(1, narrower),
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
            replace_whitespace=False,
        )
        filled = filled or lines
        if len(lines) > len(filled):
            break
        if len(lines[-1].strip()) >= LEAST_LAST:
            return lines
    return filled


def _fit_columns(
    headings: Sequence[str], rows: Sequence[Sequence[str]], width: int, spare: Sequence[str]
) -> list[int]:
    """Return the indices of the columns that fit into a width; the names are always there."""
    from rich.cells import cell_len

    texts = [
        [*heading.split("\n"), *cells]
        for heading, cells in zip(headings, zip(*rows, strict=True), strict=True)
    ]
    wide = [max(map(cell_len, column)) + BETWEEN for column in texts]
    kept = list(range(len(headings)))
    first = [headings.index(heading) for heading in spare]
    for column in [*first, *(column for column in reversed(kept) if column not in first)]:
        if sum(wide[column] for column in kept) - BETWEEN <= width:
            break
        if column:
            kept.remove(column)
    return kept if sum(wide[column] for column in kept) - BETWEEN <= width else kept[:1]


def _one_line_heading(heading: str) -> str:
    """Return a heading of two lines as one line; a name cut after an underscore is joined."""
    return heading.replace("_\n", "_").replace("\n", " ").strip()


def print_gantt(
    timeline: Timeline, metrics: Metrics, marks: Marks | None = None, lanes: bool = False
) -> None:
    """Print a Gantt chart, in colour if the terminal has colours, else in letters.

    ``marks`` are drawn in idle time.
    """
    from ppsim.show.drawing.terminal import gantt

    # a pipe has no width, and a narrow chart would leave out numbers
    screen = console() if "COLUMNS" in os.environ else console(WIDEST)
    columns, colours = min(screen.width, WIDEST), count_colours(screen)
    chart = gantt(timeline, metrics, columns, colours, screen.encoding, marks=marks, lanes=lanes)
    screen.print(chart, crop=False)


def count_colours(screen: Console) -> int:
    """Return the number of colours of a console: 0, 16, 256 or 16,777,216."""
    if not screen.is_terminal or screen.no_color or screen.color_system is None:
        return 0
    return {"256": 256, "truecolor": 1 << 24}.get(screen.color_system, 16)


def shows_colours(screen: Console) -> bool:
    """Return True if a console has enough colours for heat maps and causes."""
    return count_colours(screen) >= 256


def console(at_least: int = 20, *, err: bool = False) -> Console:
    """Return rich's console of standard output or standard error; a pipe is at least ``at_least``
    columns wide.
    """
    from rich.console import Console

    # units and file names may have brackets and colons, which are not markup
    plain: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False}
    plain["force_jupyter"] = False  # Jupyter would show tables and charts before other text
    if (columns := _TEXT.get()) is not None:
        plain |= {"force_terminal": False, "color_system": None}
        if columns:
            return Console(width=columns, stderr=err, **plain)
    screen = Console(soft_wrap=True, stderr=err, **plain)
    if screen.is_terminal or screen.width >= at_least:
        return screen
    return Console(width=at_least, stderr=err, **plain)


def text_of(blocks: Iterable[Block], columns: int = 0) -> str:
    """Return blocks as text without colours, ``columns`` wide; 0 for the width of a pipe."""
    token = _TEXT.set(columns)
    try:
        with contextlib.redirect_stdout(io.StringIO()) as text:
            show(blocks)
    finally:
        _TEXT.reset(token)
    return text.getvalue()


def show(blocks: Iterable[Block]) -> None:
    """Print the blocks of an answer on standard output."""
    for block in blocks:
        match block:
            case str():
                for line in block.split("\n"):
                    echo_wrapped(line)
            case Line():
                echo_wrapped(block.parts, block.indent)
            case Table():
                print_table(block)
            case Chart():
                print_gantt(block.timeline, block.metrics, block.marks, block.lanes)
            case DrawnBlock():
                show(block.draw(console(at_least=block.at_least)))
            case _:
                console(at_least=100).print(block)
