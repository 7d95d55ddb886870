"""The Gantt chart for a terminal: one row per device, cells as wide as their duration.

With 256 colours or more, a cell has its kind's colour and the microbatch number. With fewer, it has
its kind's letter and the number (lower case for a device's second stage).

A column is at most as long as the shortest op, so no op disappears; if the chart is too wide, its
middle is folded away. Ops shorter than ``NEGLIGIBLE`` of the makespan are left out. The line above
the chart states what is folded, left out, or rounded.
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
LONG = 4  # a chart longer than so many widths shows a part of its middle too
# Styles in sixteen colours, by a kind's colour key; they differ in light and in dark themes.
BASIC = {
    "forward": Style(color="bright_white", bgcolor="blue"),
    "backward": Style(color="black", bgcolor="green"),
    "input": Style(color="black", bgcolor="cyan"),
    "weights": Style(color="black", bgcolor="yellow"),
    "vocabulary": Style(color="black", bgcolor="magenta"),
    "encoder": Style(color="bright_white", bgcolor="magenta"),
}
PLAIN = Style()
# Signs of copies and collectives by band of the lane, and of several in one column.
LANE_SIGNS = {
    COPY_OUT: (">", "copy out"),
    COPY_IN: ("<", "copy in"),
    COLLECTIVE: ("=", "collective"),
}
BOTH = "x"


@dataclass(frozen=True)
class Signs:
    """The signs of the chart other than letters."""

    bubble: str = "·"  # idle time
    rest: str = "─"  # the rest of an op after its letter and number
    hatch: str = "╱"  # fills cells of hatched kinds
    fold: str = "  ⋯  "  # time folded away
    more: str = "⋮"  # devices left out
    muted: str = ""  # the style of all these


COLOURED = Signs(bubble="╌", muted=TERMINAL_MUTED)
ASCII = Signs(".", "-", "/", " ... ", ":")


def signs_for(encoding: str, colour: bool) -> Signs:
    """Return the signs that a console's encoding can print."""
    signs = COLOURED if colour else Signs()
    used = signs.bubble + signs.rest + signs.hatch + signs.fold + signs.more
    return signs if can_encode(encoding, used) else replace(ASCII, muted=signs.muted)


def can_encode(encoding: str, text: str) -> bool:
    """Return whether an encoding can encode a text."""
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
        """Return the number of columns of a stretch."""
        first, last = self.stretches[stretch]
        return round((last - first) / self.column)


def grid_for(length: NDArray[np.float64], total: float, columns: int) -> Grid:
    """Return a grid with two columns for the shortest op if all fits, else one.

    If that is too wide as well, parts of the middle are folded away.
    """
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
    """Return the shortest idle time between ops of a device that is not negligible, or infinity."""
    offsets = timeline.schedule.offsets
    gaps = timeline.start[1:] - timeline.end[:-1]
    # from one device's last op to the next one's first
    gaps[offsets[(offsets > 0) & (offsets <= len(gaps))] - 1] = 0.0
    return float(gaps.min(where=gaps > NEGLIGIBLE * timeline.makespan, initial=np.inf))


def _lengths(timeline: Timeline) -> NDArray[np.float64]:
    """Return each op's time in the chart: half for an op of a pair, zero for a negligible op."""
    length = timeline.end - timeline.start
    length[timeline.schedule.pair != NONE] /= 2
    length[length < NEGLIGIBLE * timeline.makespan] = 0
    return length


def gantt(
    timeline: Timeline,
    metrics: Metrics,  # of the timeline
    columns: int,  # of the terminal
    # of the terminal: with 256 or more cells have no letters, with 16 letters have a background,
    # with 0 they have none
    colours: int,
    encoding: str = "utf-8",  # of the terminal
    *,
    marks: Marks | None = None,  # causes of idle time, drawn in it
    # whether a line below each device shows its copies and collectives
    lanes: bool = False,
) -> Group:
    """Return the chart as rich renderables, at most ``columns`` wide.

    Each row ends with the device's idle share and peak if there is room.
    """
    streams = streams_of(timeline) if lanes else None
    timeline = compute_row(timeline)
    schedule, signs = timeline.schedule, signs_for(encoding, colours > 0)
    if 0 < colours < FEW_COLOURS:  # none of sixteen colours is grey in light and dark themes
        signs = replace(signs, muted="")
    name_width = len(f"dev {schedule.n_devices - 1} ")
    # computed once, as there may be millions of ops
    length, gap = _lengths(timeline), _finest_gap(timeline)
    grid, numbers = _choose_grid(length, gap, timeline.makespan, columns, name_width)
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
        if streams is not None:
            lines.append(_stream_signs(streams, device, grid, name_width, signs))
    if len(devices) < schedule.n_devices:
        shown = f"{len(devices)} of {schedule.n_devices} devices, evenly chosen"
        lines.append(Text(f"{signs.more} {shown}", signs.muted))
    if streams is not None:
        lines.append(Text(f"{'':{name_width}}{_stream_legend(streams)}", signs.muted))
    lines.append(_axis(grid, name_width, signs))
    for line in lines:
        line.no_wrap, line.overflow = True, "crop"
    return Group(*lines, *_legend(timeline, name_width, columns, colours, signs, marks))


def _choose_grid(
    length: NDArray[np.float64], gap: float, total: float, columns: int, name_width: int
) -> tuple[Grid, bool]:
    """Return the columns of a chart, and whether each row ends with the device's numbers.

    Numbers are left out if a finer grid without them shows more gaps: the summary has them too.
    """
    room = columns - name_width
    if room - NUMBERS < LEAST_CELLS:
        return grid_for(length, total, max(LEAST_CELLS, room)), False
    grid = grid_for(length, total, room - NUMBERS)
    if gap < grid.column * (1 - 1e-9):
        wide = grid_for(length, total, room)
        if wide.column < grid.column:
            return wide, False
    return grid, True


def _stream_legend(streams: Lane) -> str:
    """Return the meaning of the signs below each device."""
    used = [LANE_SIGNS[band] for band in np.unique(streams.band).tolist()]
    if len(used) > 1:
        used.append((BOTH, "several"))
    return "below each device: " + ", ".join(f"{sign} {name}" for sign, name in used)


def _stream_signs(streams: Lane, device: int, grid: Grid, indent: int, signs: Signs) -> Text:
    """Return the line below a device, with signs while it copies or takes part in a collective."""
    own = streams.device == device
    bands, left, right = streams.band[own].tolist(), streams.left[own], streams.right[own]
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
    """Return the kinds of which all cells have room for their number."""
    digits = len(str(schedule.round_microbatches - 1))
    counts, kinds = np.bincount(schedule.kind, minlength=len(Kind)), set()
    for kind in (kind for kind in IN_ROW if counts[kind] and kind not in ONCE_A_STEP):
        least = length.min(where=(schedule.kind == kind) & (length > 0), initial=np.inf)
        need = digits + (kind.info.hatched or not colour)  # one more for the kind's letter
        if need <= np.floor(least / grid.column + 1e-9) < np.inf:
            kinds.add(int(kind))
    return kinds


@dataclass(frozen=True)
class IdleSigns:
    """Writes a device's idle time in one stretch of the chart, with its causes if known."""

    signs: Signs
    marks: Marks | None
    grid: Grid
    stretch: int

    def append(self, row: Text, first: int, last: int) -> None:
        """Append the columns from ``first`` to before ``last`` to a row."""
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
    """Return the line of times under the columns: round numbers at least eight columns apart."""
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
    """Return a legend's entry as text: boxes in the terminal's colours, and the name."""
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
    """Return the letter case that stands for each chunk, to precede the entry's name."""
    return "capital and small by turns:" if entry.name == BY_CHUNK else "capital, small:"


def _legend_box(
    kind: Kind, chunk: int, fill: str, wide: int, colours: int, signs: Signs
) -> tuple[str, Style]:
    """Return a box with a kind's letter in its cells' style, lower case for odd chunks."""
    if colours < FEW_COLOURS:
        letter = kind.name.lower() if chunk % 2 else kind.name
        return letter, BASIC[kind.info.colour] if colours else PLAIN
    text = kind.name.center(wide, signs.hatch if kind.info.hatched else " ")
    if colours == FEW_COLOURS:
        return text, xterm_style(XTERM[kind.info.colour][min(chunk, 1)][0])
    return text, Style(color=text_colour(fill), bgcolor=fill)
