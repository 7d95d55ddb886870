"""The Gantt chart for a terminal: one row per device, cells by duration.

With colour a cell is its kind's colour with the microbatch number; without, its kind's letter and
number (lower case for a device's second stage), in the kind's colour where a terminal has sixteen.
One column is never more time than the shortest op, so nothing is down-sampled: what does not fit is
folded away, and said so. Only ops that take a ``NEGLIGIBLE`` part of the makespan, which no chart
could show next to the others, are left out, and said so too, as are gaps that a column is too
coarse for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from rich.console import Group
from rich.style import Style
from rich.text import Text

from ppsim.base.numbers import format_number
from ppsim.core.ops import ONCE_A_STEP, Kind
from ppsim.core.schedule import NONE, Schedule
from ppsim.core.timeline import Timeline
from ppsim.engine.simple.metrics import Metrics
from ppsim.show.drawing.lanes import COLLECTIVE, COPY_IN, COPY_OUT, Lane, compute_row, streams_of
from ppsim.show.drawing.legend import BY_CHUNK, Entry, legend_entries
from ppsim.show.drawing.palette import (
    DEFAULT,
    FEW_COLOURS,
    IN_ROW,
    LEVELS,
    MANY_COLOURS,
    TERMINAL_MUTED,
    XTERM,
    level_of,
    second_shade,
    text_colour,
    xterm_colour,
)

if TYPE_CHECKING:
    from ppsim.show.drawing.terminal_marks import Marks

MOST_ROWS = 32
NEGLIGIBLE = 1e-9
LEAST_CELLS = 20
NUMBERS = len(" 100.0% idle  peak 999")
LONG = 4  # times the columns at hand, from which on a part of the middle is shown too
# Of sixteen colours, by colour key of a kind, which themes of light and of dark terminals set
# apart.
BASIC = {
    "forward": Style(color="bright_white", bgcolor="blue"),
    "backward": Style(color="black", bgcolor="green"),
    "input": Style(color="black", bgcolor="cyan"),
    "weights": Style(color="black", bgcolor="yellow"),
    "vocabulary": Style(color="black", bgcolor="magenta"),
    "encoder": Style(color="bright_white", bgcolor="magenta"),
}
PLAIN = Style()
# What goes on in parallel with compute, by band of the lane; several of them in one column.
LANE_SIGNS = {
    COPY_OUT: (">", "copy out"),
    COPY_IN: ("<", "copy in"),
    COLLECTIVE: ("=", "collective"),
}
BOTH = "x"


@dataclass(frozen=True)
class Signs:
    """The signs of the chart besides letters: idle time, the rest of an op, time folded away, rows
    left out.
    """

    bubble: str = "·"
    rest: str = "─"
    hatch: str = "╱"
    fold: str = "  ⋯  "
    more: str = "⋮"
    muted: str = ""


COLOURED = Signs(bubble="╌", muted=TERMINAL_MUTED)
ASCII = Signs(".", "-", "/", " ... ", ":")


def signs_for(encoding: str, colour: bool) -> Signs:
    """Return the signs that a console's encoding has."""
    signs = COLOURED if colour else Signs()
    used = signs.bubble + signs.rest + signs.hatch + signs.fold + signs.more
    return signs if carries(encoding, used) else replace(ASCII, muted=signs.muted)


def carries(encoding: str, text: str) -> bool:
    """Return whether an encoding has all characters of a text."""
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


@dataclass(frozen=True)
class Grid:
    """The columns of a chart: ``column`` time units each, over one or two stretches of time."""

    column: float
    stretches: tuple[tuple[float, float], ...]

    def cells(self, stretch: int) -> int:
        """Columns of a stretch."""
        first, last = self.stretches[stretch]
        return round((last - first) / self.column)


def grid_for(length: NDArray[np.float64], total: float, columns: int) -> Grid:
    """Two columns for the shortest op if everything fits, else one, else the middle folded away."""
    shortest = float(length.min(where=length > 0, initial=total))
    if shortest <= 0:
        return Grid(1.0, ((0.0, 0.0),))
    for column in (shortest / 2, shortest):
        if total / column <= columns:
            return Grid(column, ((0.0, np.ceil(total / column - 1e-9) * column),))
    cells = np.ceil(total / shortest - 1e-9)
    if total / shortest > LONG * columns:
        head = middle = (columns - 2 * len(Signs.fold)) // 3
        first = int(cells) // 2 - middle // 2
        parts = [(0, head), (first, first + middle)]
    else:
        head, middle = int(columns * 0.56), -len(Signs.fold)
        parts = [(0, head)]
    tail = columns - head - middle - 2 * len(Signs.fold)
    parts.append((int(cells) - tail, int(cells)))
    return Grid(shortest, tuple((first * shortest, last * shortest) for first, last in parts))


def _finest_gap(timeline: Timeline) -> float:
    """Return the shortest idle time between two ops of a device that is not negligible; infinite if
    there is none.
    """
    offsets = timeline.schedule.offsets
    gaps = timeline.start[1:] - timeline.end[:-1]
    # from one device's last op to the next one's first
    gaps[offsets[(offsets > 0) & (offsets <= len(gaps))] - 1] = 0.0
    return float(gaps.min(where=gaps > NEGLIGIBLE * timeline.makespan, initial=np.inf))


def _lengths(timeline: Timeline) -> NDArray[np.float64]:
    """Return each op's time in the chart: half for a member of a pair, zero for a negligible
    one.
    """
    length = timeline.end - timeline.start
    length[timeline.schedule.pair != NONE] /= 2
    length[length < NEGLIGIBLE * timeline.makespan] = 0
    return length


def gantt(
    timeline: Timeline,
    metrics: Metrics,  # its numbers
    columns: int,  # of the terminal
    # that it has: from 256 on cells have no letters, with 16 letters are on a colour, with 0 on
    # none
    colours: int,
    encoding: str = "utf-8",  # of the terminal
    *,
    marks: Marks | None = None,  # the reasons why devices wait, drawn in their idle time
    # whether streams of a device other than compute have a line below it
    lanes: bool = False,
) -> Group:
    """Return the chart as rich renderables, at most ``columns`` wide; each device's numbers if they
    fit.
    """
    beside = streams_of(timeline) if lanes else None
    timeline = compute_row(timeline)
    schedule, signs = timeline.schedule, signs_for(encoding, colours > 0)
    if 0 < colours < FEW_COLOURS:  # the grey of light and dark terminals is none of sixteen colours
        signs = replace(signs, muted="")
    name_width = len(f"dev {schedule.n_devices - 1} ")
    numbers = columns - name_width - NUMBERS >= LEAST_CELLS
    # once: ops may be millions
    length, gap, total = _lengths(timeline), _finest_gap(timeline), timeline.makespan
    grid = grid_for(length, total, max(LEAST_CELLS, columns - name_width - NUMBERS * numbers))
    if numbers and gap < grid.column * (1 - 1e-9):
        wide = grid_for(length, total, columns - name_width)
        # gaps matter more than the numbers, which the summary has too
        if wide.column < grid.column:
            numbers, grid = False, wide
    labelled = _labelled_kinds(timeline.schedule, length, grid, colours >= FEW_COLOURS)
    devices = list(range(schedule.n_devices))
    if len(devices) > MOST_ROWS:
        devices = np.unique(
            np.linspace(0, schedule.n_devices - 1, MOST_ROWS).round().astype(int)
        ).tolist()
    lines = [_scale(timeline, length, gap, grid, signs)]
    for device in devices:
        line = Text(f"dev {device}".ljust(name_width), signs.muted)
        for stretch in range(len(grid.stretches)):
            if stretch:
                line.append(signs.fold, signs.muted)
            idle = IdleSigns(signs, marks.select_device(device) if marks else None, grid, stretch)
            line.append_text(_row(timeline, idle, device, labelled, colours))
        if numbers:
            share = metrics.idle[device] / metrics.makespan if metrics.makespan else 0.0
            line.append(f" {share:6.1%} idle  peak {metrics.peak_activations[device]}", signs.muted)
        lines.append(line)
        if beside is not None:
            lines.append(_stream_signs(beside, device, grid, name_width, signs))
    if len(devices) < schedule.n_devices:
        lines.append(
            Text(
                f"{signs.more} {len(devices)} of {schedule.n_devices} devices, evenly chosen",
                signs.muted,
            )
        )
    if beside is not None:
        used = [LANE_SIGNS[band] for band in np.unique(beside.band).tolist()]
        names = ", ".join(
            f"{sign} {name}" for sign, name in (*used, *[(BOTH, "several")] * (len(used) > 1))
        )
        lines.append(Text(f"{'':{name_width}}below each device: {names}", signs.muted))
    lines.append(_axis(grid, name_width, signs))
    for line in lines:
        line.no_wrap, line.overflow = True, "crop"
    return Group(*lines, *_legend(timeline, name_width, columns, colours, signs, marks))


def _stream_signs(beside: Lane, device: int, grid: Grid, indent: int, signs: Signs) -> Text:
    """Return the line below a device: a sign in every column in which it copies or takes part in a
    collective.
    """
    own = beside.device == device
    bands, left, right = beside.band[own].tolist(), beside.left[own], beside.right[own]
    parts = []
    for number, (begin, _) in enumerate(grid.stretches):
        cells = [" "] * grid.cells(number)
        first = np.floor((left - begin) / grid.column + NEGLIGIBLE).astype(int)
        last = np.maximum(
            np.ceil((right - begin) / grid.column - NEGLIGIBLE).astype(int), first + 1
        )
        for band, start, stop in zip(bands, first.tolist(), last.tolist(), strict=True):
            for column in range(max(start, 0), min(stop, len(cells))):
                cells[column] = (
                    LANE_SIGNS[band][0] if cells[column] in (" ", LANE_SIGNS[band][0]) else BOTH
                )
        parts.append("".join(cells))
    return Text(" " * indent + signs.fold.join(parts).rstrip(), signs.muted)


def _labelled_kinds(
    schedule: Schedule, length: NDArray[np.float64], grid: Grid, colour: bool
) -> set[int]:
    """Return the kinds whose every cell has room for its number."""
    digits = len(str(schedule.round_microbatches - 1))
    counts, kinds = np.bincount(schedule.kind, minlength=len(Kind)), set()
    for kind in (kind for kind in IN_ROW if counts[kind] and kind not in ONCE_A_STEP):
        least = length.min(where=(schedule.kind == kind) & (length > 0), initial=np.inf)
        need = digits + (kind.info.hatched or not colour)  # these show the kind's letter too
        if need <= np.floor(least / grid.column + 1e-9) < np.inf:
            kinds.add(int(kind))
    return kinds


@dataclass(frozen=True)
class IdleSigns:
    """The signs of a device's idle time in one stretch of the chart: the cause of waiting, if
    known.
    """

    signs: Signs
    marks: Marks | None
    grid: Grid
    stretch: int

    def append(self, row: Text, first: int, last: int) -> None:
        """Add the columns from one to before another to a row."""
        if self.marks is None or first >= last:
            row.append(self.signs.bubble * (last - first), self.signs.muted)
            return
        begin = self.grid.stretches[self.stretch][0]
        for column in range(first, last):
            found = self.marks.mark_at(begin + (column + 0.5) * self.grid.column)
            row.append(
                *((found.sign, found.style) if found else (self.signs.bubble, self.signs.muted))
            )


def _row(
    timeline: Timeline, idle: IdleSigns, device: int, labelled: set[int], colours: int
) -> Text:
    grid, stretch, signs = idle.grid, idle.stretch, idle.signs
    schedule, (begin, finish) = timeline.schedule, grid.stretches[stretch]
    queue = schedule.queue(device)
    start, end = timeline.start[queue].copy(), timeline.end[queue].copy()
    middle = (start + end) / 2
    paired, leads = schedule.pair[queue] != NONE, schedule.leads[queue]
    end = np.where(paired & leads, middle, end)
    start = np.where(leads, start, middle)
    shown = (end - start >= NEGLIGIBLE * timeline.makespan) & (end > begin) & (start < finish)
    width = grid.cells(stretch)
    left, right = (
        np.clip(np.floor((t - begin) / grid.column + 0.5), -1, width + 1).astype(int)
        for t in (start, end)
    )
    row, at = Text(), 0
    for i in np.flatnonzero(shown & (right > 0) & (left < width) & (right > left)):
        a, b = max(int(left[i]), at), min(int(right[i]), width)
        if b <= a:
            continue
        idle.append(row, at, a)
        row.append(*_cell(timeline, queue.start + int(i), b - a, labelled, colours, signs))
        at = b
    idle.append(row, at, width)
    return row


def _cell(
    timeline: Timeline, op: int, width: int, labelled: set[int], colours: int, signs: Signs
) -> tuple[str, Style | str]:
    schedule = timeline.schedule
    kind, microbatch, chunk = (
        Kind(schedule.kind[op]),
        int(schedule.microbatch[op]),
        int(schedule.chunk[op]),
    )
    number = str(microbatch % schedule.round_microbatches) if int(kind) in labelled else ""
    if colours < FEW_COLOURS:
        letter = kind.name.lower() if chunk % 2 else kind.name
        return (letter + number)[:width].ljust(width, signs.rest), BASIC[
            kind.info.colour
        ] if colours else ""
    level = level_of(chunk, int(schedule.placement.chunk.max()))
    text = kind.name + number if number and kind.info.hatched else number
    text = (text if len(text) <= width else "").center(
        width, signs.hatch if kind.info.hatched else " "
    )
    if colours == FEW_COLOURS:
        return text, xterm_style(XTERM[kind.info.colour][2 * level // LEVELS][microbatch % 2])
    fill = DEFAULT.colours[LEVELS * kind + level]
    if microbatch % 2:
        fill = second_shade(fill)
    return text, Style(color=text_colour(fill), bgcolor=fill)


def xterm_style(number: int) -> Style:
    """Return the style of a cell in one of xterm's colours, with a readable text colour."""
    ink = 231 if text_colour(xterm_colour(number)) == "#ffffff" else 16
    return Style(color=f"color({ink})", bgcolor=f"color({number})")


def _scale(
    timeline: Timeline, length: NDArray[np.float64], gap: float, grid: Grid, signs: Signs
) -> Text:
    text = f"1 column = {format_number(grid.column)} {timeline.unit}"
    folded = [
        f"{format_number(before[1])} to {format_number(after[0])}"
        for before, after in pairwise(grid.stretches)
    ]
    if folded:
        text += f"; {' and '.join(folded)} folded"
    if gap < grid.column * (1 - 1e-9):
        text += f"; gaps from {format_number(gap)} {timeline.unit} rounded"
    if ((timeline.end > timeline.start) & (length == 0)).any():
        text += f"; ops under {NEGLIGIBLE * timeline.makespan:.2g} {timeline.unit} not shown"
    return Text(text, signs.muted)


def _axis(grid: Grid, indent: int, signs: Signs) -> Text:
    """Time under the columns, at round numbers at least eight columns apart."""
    step = 10 ** np.ceil(np.log10(8 * grid.column))
    step = next(s for s in (step / 5, step / 2, step) if s >= 8 * grid.column * 0.999)
    axis = ""
    offset = 0
    for number, (begin, finish) in enumerate(grid.stretches):
        for tick in np.arange(np.ceil(begin / step - 1e-9) * step + 0.0, finish + step / 1e6, step):
            column = offset + round((tick - begin) / grid.column)
            if column >= len(axis) + bool(axis):
                axis = axis.ljust(column) + format_number(tick + 0.0)
        offset += grid.cells(number) + len(Signs.fold)
    return Text(" " * indent + axis, signs.muted)


def _legend(
    timeline: Timeline, indent: int, columns: int, colours: int, signs: Signs, marks: Marks | None
) -> list[Text]:
    """Return the meaning of the cells that occur, on as many lines as needed."""
    named = (mark.name.partition("idle: ") for mark in marks or ())
    causes = {cause for _, idle, cause in named if idle}
    entries = [
        _legend_entry(entry, colours, signs)
        for entry in legend_entries([timeline], causes=causes)
        if not entry.cause
    ]
    entries += [
        Text.assemble((2 * mark.sign, mark.style), (f" {mark.name}", signs.muted))
        for mark in marks or ()
    ]
    lines = [Text(" " * indent)]
    for entry in entries:
        if len(lines[-1]) + len(entry) > columns and len(lines[-1]) > indent:
            lines.append(Text(" " * indent))
        lines[-1].append_text(entry).append("  ")
    for line in lines:
        line.rstrip()
    return lines


def _legend_entry(entry: Entry, colours: int, signs: Signs) -> Text:
    """Return the legend of cells: a box for each kind and chunk with its name; the order of the
    chunks' boxes; idle time.
    """
    name = (f" {entry.name[0].lower()}{entry.name[1:]}", signs.muted)
    if colours < FEW_COLOURS and entry.of_chunks:
        return Text.assemble((_letter_case(entry), signs.muted), name)
    if not (entry.kinds or entry.of_chunks):
        return Text.assemble((signs.bubble * 2, signs.muted), name)
    if len(entry.kinds) > 1:  # a pair
        shown = zip(entry.kinds, entry.colours, strict=True)
        return Text.assemble(
            *(_legend_box(kind, 0, fill, 2, colours, signs) for kind, fill in shown), name
        )
    if colours < MANY_COLOURS:  # two tints
        fills = entry.colours[:: max(1, len(entry.colours) - 1)]
    else:
        fills = entry.colours
    boxes = [
        _legend_box(entry.kinds[0] if entry.kinds else Kind.F, chunk, fill, 3, colours, signs)
        for chunk, fill in enumerate(fills)
    ]
    if entry.of_chunks:
        boxes = [(" " * len(text), style) for text, style in boxes]
    return Text.assemble(*boxes, name)


def _letter_case(entry: Entry) -> str:
    """Return which letters stand for which chunks, for what follows in an entry of chunks."""
    return "capital and small by turns:" if entry.name == BY_CHUNK else "capital, small:"


def _legend_box(
    kind: Kind, chunk: int, fill: str, wide: int, colours: int, signs: Signs
) -> tuple[str, Style]:
    """Return a kind's letter as in its cells: small for a second chunk without colours."""
    if colours < FEW_COLOURS:
        letter = kind.name.lower() if chunk % 2 else kind.name
        return letter, BASIC[kind.info.colour] if colours else PLAIN
    text = kind.name.center(wide, signs.hatch if kind.info.hatched else " ")
    if colours == FEW_COLOURS:
        return text, xterm_style(XTERM[kind.info.colour][min(chunk, 1)][0])
    return text, Style(color=text_colour(fill), bgcolor=fill)
