"""A figure of layers divided over GPUs: a row for each matrix product and each collective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ppsim.show.drawing.letters import text_width, wrap_text
from ppsim.show.drawing.palette import BUBBLE, FAMILY_COLOURS, INK, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FONT, LINE, POINTS = 6.5, 0.125, 72  # font size in points, line height in inches, points per inch
EDGE, GAP, HEAD = 0.08, 0.07, 0.09  # inches at the edges, between rows, and between layers
TALL, WIDE, LEAST = 0.3, 0.62, 0.05  # inches: height and width of the largest matrix, least side
BAR, STRIP = 0.14, 0.11  # height in inches of a collective, and of heads
BETWEEN, DROP = 9, 0.012  # points between texts of a line; inches that lower a text
HINTED = 0.97  # usable share of the room for text, as low resolution makes letters wider
MOST_CUTS = 8  # parts of a matrix that are drawn
OWN, OTHERS = FAMILY_COLOURS[0][0], BUBBLE  # the parts on one GPU, and on the others
ROWS, BY_EXPERTS = "row-parallel", "by experts"
NAMES = {"tp": "tensor ranks", "ep": "expert ranks", "cp": "context ranks"}
LINKS = {"tp": FAMILY_COLOURS[1][0], "ep": FAMILY_COLOURS[2][0], "cp": FAMILY_COLOURS[3][0]}


@dataclass(frozen=True)
class LayerRow:
    """A part of a layer.

    Attributes:
        cut: division of the weights: column-parallel, row-parallel, by groups of heads, by experts,
            whole; heads for work without weights; tp, ep or cp for a collective.
        ranks: number of GPUs that divide the work, or take part in the collective.
        sides: rows and columns of the whole matrix; zeros without a matrix.
        title: its name.
        details: texts next to the name.
    """

    cut: str
    ranks: int
    sides: tuple[int, int]
    title: str
    details: tuple[str, ...]


@dataclass(frozen=True)
class LayerPanel:
    """A kind of layer: its title, facts and parts."""

    title: str
    facts: tuple[str, ...]
    rows: tuple[LayerRow, ...]


@dataclass(frozen=True)
class _Text:
    """A line of text in a row, with its start or end in inches from the left."""

    text: str
    across: float
    line: int
    end: bool = False


@dataclass(frozen=True)
class _Placed:
    """A row with the positions of its texts, and its height in inches."""

    row: LayerRow
    texts: tuple[_Text, ...]
    height: float


def figure_of(panels: Sequence[LayerPanel], width: float) -> Figure:
    """Draw the layers one below the other, ``width`` inches wide."""
    from matplotlib.figure import Figure

    heads = [_head(panel, (width - 2 * EDGE) * POINTS * HINTED) for panel in panels]
    ends = _columns([row for panel in panels for row in panel.rows], width)
    placed = [[_place(row, ends, width) for row in panel.rows] for panel in panels]
    height = EDGE + LINE + GAP
    for (titles, facts), rows in zip(heads, placed, strict=True):
        height += HEAD + LINE * (len(titles) + len(facts)) + sum(row.height + GAP for row in rows)
    height += EDGE
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    _draw_legend(axes, panels)
    down = EDGE + LINE + GAP
    for (titles, facts), rows in zip(heads, placed, strict=True):
        down += HEAD
        for line in titles:
            _write(axes, EDGE, down, line, fontweight="bold", fontsize=FONT + 0.5)
            down += LINE
        for line in facts:
            _write(axes, EDGE, down, line, color=MUTED)
            down += LINE
        for row in rows:
            down += GAP
            _draw_row(axes, row, down)
            down += row.height
    return figure


def _head(panel: LayerPanel, room: float) -> tuple[list[str], list[str]]:
    facts = [line for fact in panel.facts for line in wrap_text(fact, room, FONT, "normal")]
    return wrap_text(panel.title, room, FONT + 0.5), facts


def _columns(rows: Sequence[LayerRow], width: float) -> list[float]:
    """Return the right edges of the details' columns in inches.

    Empty if titles and details do not fit on one line.
    """
    titles = max(text_width(row.title, FONT, "bold") for row in rows)
    count = max(len(row.details) for row in rows)
    columns = [[row.details[n] for row in rows if len(row.details) == count] for n in range(count)]
    wide = [max(text_width(text, FONT) for text in column) for column in columns]
    needed = titles + sum(wide) + BETWEEN * count
    left, room = 2 * EDGE + WIDE, (width - 3 * EDGE - WIDE) * POINTS * HINTED
    if needed > room:
        return []
    ends, across = list[float](), titles
    for each in wide:
        across += BETWEEN + each + (room - needed) / count
        ends.append(left + across / POINTS)
    return ends


def _place(row: LayerRow, ends: Sequence[float], width: float) -> _Placed:
    """Return a row with its texts placed: in columns, or the details on lines below the title."""
    left, least = 2 * EDGE + WIDE, BAR if row.cut in LINKS else TALL if sum(row.sides) else STRIP
    if ends:
        # The last detail is a time if there is a cluster; a row without bytes leaves that column
        # empty.
        places = [0, *range(len(ends) - len(row.details) + 1, len(ends))]
        details = [
            _Text(text, ends[n], 0, end=True) for text, n in zip(row.details, places, strict=True)
        ]
        return _Placed(row, (_Text(row.title, left, 0), *details), max(LINE, least))
    room = (width - 3 * EDGE - WIDE) * POINTS * HINTED
    texts = [_Text(line, left, n) for n, line in enumerate(wrap_text(row.title, room, FONT))]
    line, across = len(texts), 0.0
    for detail in row.details:
        wide = text_width(detail, FONT)
        if across and across + wide > room:
            line, across = line + 1, 0.0
        texts.append(_Text(detail, left + across / POINTS, line))
        across += wide + BETWEEN
    return _Placed(row, tuple(texts), max(LINE * (line + 1), least))


def _write(axes: Axes, across: float, down: float, text: str, **look: Any) -> None:
    usual: dict[str, Any] = {"fontsize": FONT, "va": "top", "ha": "left", "parse_math": False}
    axes.text(across, down, text, **usual | look)


def _draw_row(axes: Axes, placed: _Placed, down: float) -> None:
    row, lines = placed.row, 1 + max(text.line for text in placed.texts)
    middle, top = down + placed.height / 2, down + (placed.height - LINE * lines) / 2 + DROP
    if row.cut in LINKS:
        _draw_link(axes, LINKS[row.cut], middle)
    elif sum(row.sides):
        _draw_matrix(axes, row, middle)
    else:
        _draw_cells(axes, row, (WIDE, STRIP), middle, across=True)
    for text in placed.texts:
        weight, side = (
            "bold" if text.text == row.title else "normal",
            "right" if text.end else "left",
        )
        _write(axes, text.across, top + LINE * text.line, text.text, fontweight=weight, ha=side)


def _draw_link(axes: Axes, colour: str, middle: float) -> None:
    """Draw an arrow that joins the GPUs of a collective."""
    ends = (EDGE, middle), (EDGE + WIDE, middle)
    arrow: dict[str, Any] = {
        "arrowstyle": "<|-|>,head_length=3,head_width=1.6",
        "color": colour,
        "linewidth": 1.6,
    }
    arrow |= {"shrinkA": 0, "shrinkB": 0, "mutation_scale": 1}
    axes.annotate("", *ends, arrowprops=arrow)


def _draw_matrix(axes: Axes, row: LayerRow, middle: float) -> None:
    """Draw the matrix in its proportions, divided by GPU, or a cell per GPU for experts."""
    rows, columns = row.sides
    scale = min(TALL / rows, WIDE / columns)
    sides = max(columns * scale, LEAST), max(rows * scale, LEAST)
    if row.cut == BY_EXPERTS:
        sides = (WIDE, TALL)
    _draw_cells(axes, row, sides, middle, across=row.cut != ROWS)


def _draw_cells(
    axes: Axes, row: LayerRow, sides: tuple[float, float], middle: float, across: bool
) -> None:
    """Draw a box with a cell per GPU, ``MOST_CUTS`` at most, the first one filled.

    ``sides`` are width and height in inches.
    """
    from matplotlib.patches import Rectangle

    cuts, (wide, tall) = min(row.ranks, MOST_CUTS), sides
    left, top = EDGE + (WIDE - wide) / 2, middle - tall / 2
    size = (wide / cuts, tall) if across else (wide, tall / cuts)
    for cut in range(cuts):
        place = (left + size[0] * cut, top) if across else (left, top + size[1] * cut)
        fill = OTHERS if cut else OWN
        axes.add_patch(Rectangle(place, *size, facecolor=fill, edgecolor=MUTED, linewidth=0.4))


def _draw_legend(axes: Axes, panels: Sequence[LayerPanel]) -> None:
    from matplotlib.patches import Rectangle

    across, used = EDGE, {row.cut for panel in panels for row in panel.rows}
    entries = [(OWN, "one GPU"), (OTHERS, "other GPUs")]
    entries += [(colour, NAMES[name]) for name, colour in LINKS.items() if name in used]
    for fill, text in entries:
        axes.add_patch(
            Rectangle((across, EDGE), 0.11, 0.09, facecolor=fill, edgecolor=MUTED, linewidth=0.4)
        )
        _write(axes, across + 0.15, EDGE - 0.01, text, color=INK)
        across += 0.15 + text_width(text, FONT) / POINTS + 0.14
