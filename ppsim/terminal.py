"""The Gantt chart for a terminal: one row per device, cells by duration.

With colour a cell is its kind's colour with the microbatch number; without, its kind's letter and number
(lower case for a device's second stage). One column is never more time than the shortest op, so nothing is
down-sampled: what does not fit is folded out of the middle, and said so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from rich.console import Group
from rich.style import Style
from rich.text import Text

from ppsim.looks import FILL, MUTED, SHADE, text_colour
from ppsim.metrics import Metrics
from ppsim.ops import COMPUTE, NAMES, Kind
from ppsim.schedule import NONE
from ppsim.timeline import Timeline

FOLD = "  ⋯  "
MOST_ROWS = 32
MARGIN = len("dev 0 ") + len(" 100.0% idle  peak 999")


@dataclass(frozen=True)
class Grid:
    """How time maps to columns: ``column`` time units each, over one or two stretches of time."""

    column: float
    stretches: tuple[tuple[float, float], ...]

    def cells(self, stretch: int) -> int:
        """Columns of a stretch."""
        first, last = self.stretches[stretch]
        return round((last - first) / self.column)


def grid_for(timeline: Timeline, columns: int) -> Grid:
    """Two columns for the shortest op if everything fits, else one, else the middle folded away."""
    length = timeline.end - timeline.start
    length[timeline.schedule.pair != NONE] /= 2
    shortest = float(length[length > 0].min(initial=timeline.makespan))
    total = timeline.makespan
    if shortest <= 0:
        return Grid(1.0, ((0.0, 0.0),))
    for column in (shortest / 2, shortest):
        if total / column <= columns:
            return Grid(column, ((0.0, np.ceil(total / column - 1e-9) * column),))
    head = int(columns * 0.56)
    tail = columns - head - len(FOLD)
    cells = np.ceil(total / shortest - 1e-9)
    return Grid(shortest, ((0.0, head * shortest), ((cells - tail) * shortest, cells * shortest)))


def gantt(timeline: Timeline, metrics: Metrics, columns: int, colour: bool) -> Group:
    """The chart as rich renderables, ``columns`` wide at most."""
    schedule = timeline.schedule
    grid = grid_for(timeline, max(20, columns - MARGIN - len(str(schedule.n_devices))))
    labelled = _labelled_kinds(timeline, grid, colour)
    name_width = len(f"dev {schedule.n_devices - 1} ")
    devices = list(range(schedule.n_devices))
    if len(devices) > MOST_ROWS:
        devices[MOST_ROWS // 2 : -MOST_ROWS // 2] = [NONE]
    lines = [_scale(timeline, grid)]
    for device in devices:
        if device == NONE:
            lines.append(Text(f"⋮ {schedule.n_devices - MOST_ROWS} more devices", MUTED))
            continue
        line = Text(f"dev {device}".ljust(name_width), MUTED)
        for stretch in range(len(grid.stretches)):
            if stretch:
                line.append(FOLD, MUTED)
            line.append_text(_row(timeline, grid, stretch, device, labelled, colour))
        idle = metrics.idle[device] / metrics.makespan if metrics.makespan else 0.0
        line.append(f" {idle:6.1%} idle  peak {metrics.peak_activations[device]}", MUTED)
        lines.append(line)
    lines.append(_axis(grid, name_width))
    for line in lines:
        line.no_wrap, line.overflow = True, "crop"
    return Group(*lines, *_legend(timeline, name_width, columns, colour))


def _labelled_kinds(timeline: Timeline, grid: Grid, colour: bool) -> set[int]:
    """Kinds whose every cell has room for its number: all cells of a kind get one, or none does."""
    schedule = timeline.schedule
    need = len(str(schedule.n_microbatches - 1)) + (0 if colour else 1)
    length = timeline.end - timeline.start
    length[schedule.pair != NONE] /= 2
    kinds = set()
    for kind in COMPUTE:
        cells = length[(schedule.kind == kind) & (length > 0)]
        if len(cells) and np.floor(cells.min() / grid.column + 1e-9) >= need:
            kinds.add(int(kind))
    return kinds


def _row(timeline: Timeline, grid: Grid, stretch: int, device: int, labelled: set[int], colour: bool) -> Text:
    schedule, (begin, finish) = timeline.schedule, grid.stretches[stretch]
    queue = schedule.queue(device)
    start, end = timeline.start[queue].copy(), timeline.end[queue].copy()
    pair = schedule.pair[queue]
    middle = (start + end) / 2
    first = (pair != NONE) & (pair > np.arange(queue.start, queue.stop))
    end = np.where(first, middle, end)
    start = np.where((pair != NONE) & ~first, middle, start)
    left = np.floor((start - begin) / grid.column + 0.5).astype(int)
    right = np.floor((end - begin) / grid.column + 0.5).astype(int)
    width = grid.cells(stretch)
    row, at = Text(), 0
    for i in np.flatnonzero((right > 0) & (left < width) & (right > left) & (end > begin) & (start < finish)):
        a, b = max(int(left[i]), at), min(int(right[i]), width)
        if b <= a:
            continue
        row.append(("╌" if colour else "·") * (a - at), MUTED)
        row.append(*_cell(timeline, queue.start + int(i), b - a, labelled, colour))
        at = b
    row.append(("╌" if colour else "·") * (width - at), MUTED)
    return row


def _cell(timeline: Timeline, op: int, width: int, labelled: set[int], colour: bool) -> tuple[str, Style | str]:
    schedule = timeline.schedule
    kind, microbatch, chunk = Kind(schedule.kind[op]), int(schedule.microbatch[op]), int(schedule.chunk[op])
    number = str(microbatch) if int(kind) in labelled else ""
    if not colour:
        letter = kind.name.lower() if chunk % 2 else kind.name
        return (letter + number)[:width].ljust(width, "─"), ""
    fill = FILL[kind][chunk % 2]
    if microbatch % 2:
        fill = _darker(fill) if chunk % 2 else SHADE[kind]
    text = number if len(number) <= width else ""
    return text.center(width), Style(color=text_colour(fill), bgcolor=fill)


def _darker(colour: str) -> str:
    return "#" + "".join(f"{int(int(colour[i : i + 2], 16) * 0.86):02x}" for i in (1, 3, 5))


def _scale(timeline: Timeline, grid: Grid) -> Text:
    text = f"1 column = {grid.column:g} {timeline.unit}"
    if len(grid.stretches) > 1:
        text += f"; {grid.stretches[0][1]:g} to {grid.stretches[1][0]:g} folded"
    return Text(text, MUTED)


def _axis(grid: Grid, indent: int) -> Text:
    """Time under the columns, at round numbers at least eight columns apart."""
    step = 10 ** np.ceil(np.log10(8 * grid.column))
    step = next(s for s in (step / 5, step / 2, step) if s >= 8 * grid.column * 0.999)
    axis = ""
    offset = 0
    for number, (begin, finish) in enumerate(grid.stretches):
        for tick in np.arange(np.ceil(begin / step - 1e-9) * step + 0.0, finish + step / 1e6, step):
            column = offset + round((tick - begin) / grid.column)
            if column >= len(axis) + bool(axis):
                axis = axis.ljust(column) + f"{tick + 0.0:g}"
        offset += grid.cells(number) + len(FOLD)
    return Text(" " * indent + axis, MUTED)


def _legend(timeline: Timeline, indent: int, columns: int, colour: bool) -> list[Text]:
    """What the cells mean, only what occurs, on as many lines as it takes."""
    schedule = timeline.schedule
    entries = []
    for kind in (kind for kind in COMPUTE if (schedule.kind == kind).any()):
        style = Style(color=text_colour(FILL[kind][0]), bgcolor=FILL[kind][0]) if colour else Style()
        entries.append(Text.assemble((f" {kind.name} " if colour else kind.name, style), (f" {NAMES[kind]}", MUTED)))
    entries.append(Text("╌╌ bubble" if colour else "·· bubble", MUTED))
    if schedule.n_chunks > 1 or schedule.placement.n_replicas > 1:
        other = "2nd replica" if schedule.placement.n_replicas > 1 else "2nd chunk"
        entries.append(Text(f"{'lighter' if colour else 'lower case'}: {other}", MUTED))
    lines = [Text(" " * indent)]
    for entry in entries:
        if len(lines[-1]) + len(entry) > columns and len(lines[-1]) > indent:
            lines.append(Text(" " * indent))
        lines[-1].append_text(entry).append("  ")
    for line in lines:
        line.rstrip()
    return lines
