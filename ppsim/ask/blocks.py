"""Blocks of an answer on a terminal: lines, tables, charts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from ppsim.core.timeline import Timeline
    from ppsim.engine.simple.metrics import Metrics
    from ppsim.show.drawing.terminal_marks import Marks

Part = str | tuple[str, str]  # a text, or a text and its tone, of ppsim.ask.terminal.TONES


@dataclass(frozen=True)
class Line:
    """A line of text; a narrow terminal wraps it, with ``indent`` blanks before further lines."""

    parts: str | Sequence[Part]
    indent: int = 0


def heading(text: str) -> Line:
    """Return a line in the tone of names, such as a heading."""
    return Line([(text, "name")])


def name_line(name: str, *parts: Part) -> Line:
    """Return a line with a muted name before a text; wrapped text starts below the first word."""
    return Line([(name, "quiet"), *parts], len(name.lstrip("\n")))


@dataclass(frozen=True)
class Table:
    """Names and numbers; see :func:`ppsim.ask.terminal.print_table`."""

    headings: Sequence[str]  # one per column, of up to two lines
    rows: Sequence[Sequence[str]]  # the cells
    at_least: int = 100  # width of the table in a pipe
    spare: Sequence[str] = ()  # headings of columns that a narrow terminal leaves out first
    left: Sequence[str] = ()  # headings of columns that are aligned left
    # the tone of the cell in a row and column, of ``TONES``
    tone: Callable[[int, int], str] = lambda row, column: ""


@dataclass(frozen=True)
class Chart:
    """A Gantt chart of letters or colours; see :func:`ppsim.ask.terminal.print_gantt`."""

    timeline: Timeline
    metrics: Metrics
    marks: Marks | None = None
    lanes: bool = False


@dataclass(frozen=True)
class DrawnBlock:
    """A block that depends on the terminal's width, signs or colours."""

    draw: Callable[[Console], Iterable[Block]]
    at_least: int = 20


# A plain text is printed as it is, and an object of rich as rich prints it.
Block = str | Line | Table | Chart | DrawnBlock | Any
