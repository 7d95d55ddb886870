"""Contents and places of a Gantt figure: cells, rows, labels, borders, messages and the raster of
many cells.

Pure arithmetic over arrays, without a drawing library. Lengths on paper are in dots, ``DOTS`` to
the inch, or in points, 72 to the inch; times are in the timeline's unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from ppsim.analysis.idle import Idle
from ppsim.core.ops import ONCE_A_STEP, TIMED, Kind
from ppsim.core.schedule import NONE, Schedule
from ppsim.core.timeline import Timeline
from ppsim.engine.simple.segments import OpsInside
from ppsim.show.drawing.canvas import DOTS
from ppsim.show.drawing.palette import (
    CAUSE_FILL,
    DEFAULT,
    DIMMED,
    HATCHED_SHARE,
    LEVELS,
    Palette,
    blend,
    channels,
    level_of,
)

MOST_VECTOR_CELLS = 5_000
MOST_MESSAGES = 200
SMALLEST_LABEL = 4.5  # points
LABEL_HEIGHT = 0.62  # largest font of a number over the row's height
# Points free beside a number, both sides together: as a rule, and where it would not fit else, off
# the borders.
MARGINS = 1.2, 0.4
# From a digit to the next, and what is free outside the first and the last, over the font's size:
# of DejaVu Sans.
DIGIT_WIDTH, DIGIT_MARGINS = 0.637, 0.097
BORDER = 0.4  # points
LEAST_BORDERED = 1.2  # points of a cell below which a border would swallow its colour
# every so many cells are numbered
STEPS = 1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128, 200, 256, 500, 512
THIN_BORDER = 2.5  # points of a cell below which its border is a hairline
FULL_BORDER = 4  # points of a cell from which its border is not thinned
# inches of a row at most: elsewhere, in one column, with arrows
ROW, NARROW_ROW, ROW_OF_ARROWS = 0.17, 0.145, 0.24
LABELLED_ROW, LEAST_ROW = 0.105, 0.06  # inches at least, with numbers and without
PANEL = 1.8  # inches that the rows of a panel may take before they shrink
TALLEST = 8.0  # inches of all rows of a figure
BAND = 0.2  # height of a band of the lane below a device's row, in rows
LEAST_BAND = 3  # dots, below which there is no lane
COLOUR_COUNT = LEVELS * len(TIMED)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Cells:
    """The cells of a timeline; the two ops of a pair take half of theirs each, zero-length ops
    none.
    """

    device: NDArray[np.int32]  # shape (cells,), the row
    left: Floats  # shape (cells,), where the colour begins
    right: Floats  # shape (cells,), where it ends
    # shape (cells,), where the border ends: beyond ``right`` in the first half of a pair
    end: Floats
    # shape (cells,), whether a border begins here: not in the second half of a pair
    bordered: NDArray[np.bool_]
    kind: NDArray[np.uint8]  # shape (cells,)
    stage: NDArray[np.int32]  # shape (cells,)
    # shape (cells,), index into :attr:`Palette.colours`; causes of idle time follow
    colour: NDArray[np.uint16]
    number: NDArray[np.int32]  # shape (cells,), the microbatch
    chunk: NDArray[np.int32]  # shape (cells,)
    op: NDArray[np.int64]  # shape (cells,), index into the queues; -1 for none
    lit: NDArray[np.bool_]  # shape (cells,), whether it is in its full colour; else it is dimmed

    @property
    def width(self) -> Floats:
        """Shape (cells,): time from ``left`` to ``right``."""
        return self.right - self.left

    def __len__(self) -> int:
        return len(self.left)


def colours_of(schedule: Schedule) -> NDArray[np.uint16]:
    """Return each op's index into :attr:`Palette.colours`, shape (ops,): its kind's colour, tinted
    by chunk.
    """
    last = int(schedule.placement.chunk.max())
    return np.asarray(
        LEVELS * schedule.kind.astype(np.uint16) + level_of(schedule.chunk, last), np.uint16
    )


def cells_of(timeline: Timeline, picked: NDArray[np.bool_] | None = None) -> Cells:
    """Make the cells of all ops that take time; those not ``picked``, of shape (ops,), are
    dimmed.
    """
    schedule = timeline.schedule
    shown = np.flatnonzero(timeline.end > timeline.start)
    start, end = timeline.start[shown], timeline.end[shown]
    second = ~schedule.leads[shown]
    first = ~second & (schedule.pair[shown] != NONE)
    middle = (start + end) / 2
    kind = schedule.kind[shown]
    return Cells(
        device=schedule.device[shown],
        left=np.where(second, middle, start),
        right=np.where(first, middle, end),
        end=end,
        bordered=~second,
        kind=kind,
        stage=schedule.stage[shown],
        colour=colours_of(schedule)[shown],
        number=schedule.microbatch[shown] % np.int32(schedule.round_microbatches),
        chunk=schedule.chunk[shown],
        op=shown,
        lit=np.ones(len(shown), np.bool_) if picked is None else picked[shown],
    )


def join_cells(cells: Cells, more: Cells) -> Cells:
    """Return both, one after the other."""
    names = [each.name for each in fields(Cells)]
    return Cells(
        **{name: np.concatenate([getattr(cells, name), getattr(more, name)]) for name in names}
    )


def take_cells(cells: Cells, which: NDArray[np.bool_]) -> Cells:
    """Return some of the cells."""
    return Cells(**{each.name: getattr(cells, each.name)[which] for each in fields(Cells)})


def inside_cells(timeline: Timeline, inside: OpsInside, stream: int) -> Cells:
    """Make a cell of each segment that ops run on a stream, in the colour of the kind of op that it
    is of.
    """
    parts = []
    for number, shape in enumerate(inside.shapes):
        op = np.flatnonzero((inside.shape_of_op == number) & (timeline.end > timeline.start))
        own = [i for i, on in enumerate(shape.stream) if on == stream]
        start, length = (
            timeline.start[op][:, None],
            (timeline.end - timeline.start)[op][:, None] / shape.makespan,
        )
        left, right = (start + length * np.array(times)[own] for times in (shape.start, shape.end))
        parts.append(
            (
                np.repeat(op, len(own)),
                left.ravel(),
                right.ravel(),
                np.tile(np.array(shape.kind)[own], len(op)),
            )
        )
    op, left, right, kind = (np.concatenate(column) for column in zip(*parts, strict=True))
    schedule, ones = timeline.schedule, np.ones(len(op), np.bool_)
    return Cells(
        device=schedule.device[op],
        left=left,
        right=right,
        end=right,
        bordered=ones,
        kind=kind,
        stage=schedule.stage[op],
        colour=LEVELS * kind.astype(np.uint16),
        number=schedule.microbatch[op],
        chunk=np.zeros(len(op), np.int32),
        op=op,
        lit=ones,
    )


def idle_cells(idle: Idle) -> Cells:
    """Make a cell of each segment of idle time, in the colour of its cause."""
    none = np.zeros(len(idle.device), np.int32)
    return Cells(
        device=idle.device.astype(np.int32),
        left=idle.start,
        right=idle.end,
        end=idle.end,
        bordered=none.astype(np.bool_),
        kind=none.astype(np.uint8),
        stage=none,
        colour=(COLOUR_COUNT + idle.cause).astype(np.uint16),
        number=none,
        chunk=none,
        op=none.astype(np.int64) - 1,
        lit=none == 0,
    )


def label_texts(cells: Cells, labels: str, base: int) -> list[str]:
    """Return the text of each cell, shape (cells,), counted from ``base``: see
    :class:`ppsim.show.drawing.look.Look`.

    An op that runs once a step, as the optimizer does, has no microbatch to number.
    """
    texts = _texts_of_all(cells, labels, base)
    for cell in np.flatnonzero(np.isin(cells.kind, ONCE_A_STEP)).tolist():
        texts[cell] = Kind(cells.kind[cell]).name if labels == "op" else ""
    return texts


def _texts_of_all(cells: Cells, labels: str, base: int) -> list[str]:
    """Return the texts of all cells, as if each were of a microbatch."""
    numbers = (cells.number + base).tolist()
    if labels == "op":
        letters = [Kind(kind).name for kind in cells.kind]
        stages = (cells.stage + base).tolist()
        stages = [
            stage if has else ""
            for stage, has in zip(stages, (cells.stage >= 0).tolist(), strict=True)
        ]
        return [
            f"{stage}{letter}{number}"
            for stage, letter, number in zip(stages, letters, numbers, strict=True)
        ]
    if labels == "auto" and cells.chunk.max(initial=0) > 1:
        chunks = (cells.chunk + base).tolist()
        return [f"{chunk}.{number}" for chunk, number in zip(chunks, numbers, strict=True)]
    if labels.startswith("every:"):
        every = int(labels.removeprefix("every:"))
        return ["" if number % every else str(number) for number in numbers]
    return [""] * len(numbers) if labels == "none" else list(map(str, numbers))


def label_width(digits: int) -> float:
    """Return an upper bound on the width of a number's ink, over the font's size."""
    return DIGIT_WIDTH * digits - DIGIT_MARGINS


def label_size(cell: float, row: float, digits: int, largest: float) -> float:
    """Return the font size in points of a number in a cell, by its digits and the cell's points; 0
    if too small to read.

    What has no room for its number with a margin has it with next to none.
    """
    sizes = (
        min(largest, LABEL_HEIGHT * row, (cell - margin) / label_width(digits))
        for margin in MARGINS
    )
    return next((size for size in sizes if size >= SMALLEST_LABEL), 0.0)


def choose_labels(
    cells: Cells, scale: float, row: float, largest: float, digits: int = 0
) -> tuple[float, NDArray[np.bool_]]:
    """Choose the font size of a panel's numbers and the cells that show theirs: of a kind and
    stage, all or none.

    ``scale`` is points per unit of time, ``row`` a row's height in points; ``largest`` is the
    figure's font size, ``digits`` the longest label's characters (the largest microbatch's).
    """
    if not len(cells):
        return 0.0, np.zeros(0, np.bool_)
    group = len(TIMED) * (cells.stage + 1) + cells.kind
    narrowest = np.full(group.max() + 1, np.inf)
    np.minimum.at(narrowest, group, cells.width * scale)
    digits = digits or len(str(cells.number.max()))
    sizes = np.array([label_size(width, row, digits, largest) for width in narrowest])
    return float(sizes[np.isfinite(narrowest) & (sizes > 0)].min(initial=largest)), sizes[group] > 0


def place_labels(
    cells: Cells, texts: Sequence[str], scale: float, row: float, largest: float
) -> tuple[float, NDArray[np.bool_]]:
    """Choose the font size of sparse texts and the cells that show theirs: from the left, those
    that meet no other.

    A text may reach over its neighbours by half its cell on either side. Arguments as
    :func:`choose_labels`.
    """
    size = max(SMALLEST_LABEL, min(largest, LABEL_HEIGHT * row))
    wide = np.array([label_width(len(text)) if text else 0.0 for text in texts])
    room = 2 * cells.width * scale
    if (wide > 0).any():
        size = max(SMALLEST_LABEL, min(size, 0.65 * float((room[wide > 0] / wide[wide > 0]).min())))
    middle, half = (cells.left + cells.right) / 2 * scale, size * wide / 2
    fits = np.flatnonzero((wide > 0) & (size * wide <= room))
    shown, reached = np.zeros(len(cells), np.bool_), dict[int, float]()
    for cell in fits[np.lexsort((cells.left[fits], cells.device[fits]))].tolist():
        device = int(cells.device[cell])
        if middle[cell] - half[cell] >= reached.get(device, -np.inf):
            shown[cell], reached[device] = True, middle[cell] + half[cell] + MARGINS[0] / 2
    return size, shown


def thin_labels(
    cells: Cells, texts: Sequence[str], scale: float
) -> tuple[float, NDArray[np.bool_]]:
    """Choose sparse texts in the smallest font: of each colour every n-th number that has room.

    A text has room on its own cell and on neighbours of the same colour, so that it crosses no edge
    of colours. Of ``STEPS`` the first n counts for which no two texts of a colour meet. Arguments
    as :func:`choose_labels`.
    """
    size, order = SMALLEST_LABEL, np.lexsort((cells.left, cells.device))
    half = np.array([size * label_width(len(text)) / 2 + MARGINS[1] / 2 for text in texts])[order]
    left, right = cells.left[order] * scale, cells.right[order] * scale
    device, colour, number = cells.device[order], cells.colour[order], cells.number[order]
    apart = np.ones(len(order), np.bool_)
    apart[1:] = (
        (device[1:] != device[:-1]) | (colour[1:] != colour[:-1]) | (left[1:] > right[:-1] + 1e-6)
    )
    run = np.cumsum(apart) - 1
    begin, end = left[apart][run], np.maximum.reduceat(right, np.flatnonzero(apart))[run]
    middle = (left + right) / 2
    fits = (middle - half >= begin) & (middle + half <= end)
    shown = np.zeros(len(order), np.bool_)
    for each in np.unique(colour):
        for step in STEPS:
            at = np.flatnonzero(fits & (colour == each) & (number % step == 0))
            first, last = (middle - half)[at], (middle + half)[at]
            if not ((run[at][1:] == run[at][:-1]) & (first[1:] < last[:-1])).any():
                shown[order[at]] = True
                break
    return size, shown


def border_width(width: float) -> float:
    """Line width in points around cells ``width`` points wide."""
    if width < LEAST_BORDERED:
        return 0.0
    return BORDER if width >= FULL_BORDER else BORDER / 2 if width >= THIN_BORDER else BORDER / 4


def row_height(devices: int, rows: int, *, labels: bool, arrows: bool, narrow: bool) -> int:
    """Return the height in dots of a device's row, or of several devices' if they outnumber the
    dots.

    ``devices`` are the largest panel's, ``rows`` those of all together, which share ``TALLEST``
    inches at most. ``labels`` in cells and ``arrows`` between rows need a height too; ``narrow`` is
    a figure for one column of text.
    """
    tallest = ROW_OF_ARROWS if arrows else NARROW_ROW if narrow else ROW
    least = ROW_OF_ARROWS if arrows else LABELLED_ROW if labels else LEAST_ROW
    inches = min(tallest, max(least, PANEL / devices), TALLEST / rows)
    return max(1, int(inches * DOTS))


@dataclass(frozen=True)
class Messages:
    """P2P messages: shape (messages,) each, by device and time."""

    sender: NDArray[np.int32]
    receiver: NDArray[np.int32]
    sent: Floats
    arrived: Floats


def messages_of(timeline: Timeline) -> Messages | None:
    """Return the departure and arrival of each message; None if there are too many to draw, or none
    takes time.

    A timeline knows an arrival where it set the start of an op. Other messages on the same link
    take as long, but arrive no later than the op that needs them starts; a link that never set a
    start counts as the slowest known.
    """
    schedule = timeline.schedule
    op = np.flatnonzero(schedule.crosses)
    if not 0 < len(op) <= MOST_MESSAGES:
        return None
    source = schedule.dependency[op]
    wait = timeline.start[op] - timeline.end[source]
    known = timeline.bound[op] == source
    slowest = wait[known].max(initial=0.0)
    if slowest <= 1e-9 * timeline.makespan:
        return None
    sender, receiver = schedule.device[source], schedule.device[op]
    travel = np.full((schedule.n_devices, schedule.n_devices), np.inf)
    np.minimum.at(travel, (sender[known], receiver[known]), wait[known])
    travel[np.isinf(travel)] = slowest
    sent = timeline.end[source]
    return Messages(sender, receiver, sent, sent + np.minimum(wait, travel[sender, receiver]))


def raster(
    cells: Cells,
    devices: int,
    makespan: float,
    span: float,
    rows: int,
    columns: int,
    palette: Palette = DEFAULT,
) -> NDArray[np.uint8]:
    """Return an image with the mean colour under each pixel, shape (rows, columns, 3), for cells
    too many to draw.

    Each cell adds its colour where it begins and takes it away where it ends, shared between two
    pixels; the running sum along a row is the exact mean over every pixel, at a cost that does not
    depend on the width of the cells. Where ``devices`` exceed ``rows``, a row is the mean of
    several. The grey of bubbles ends at ``makespan``, the columns at ``span``.
    """
    fills = zip(palette.colours, palette.lines, strict=True)
    flat = [blend(line, fill, HATCHED_SHARE) if line else fill for fill, line in fills]
    grey = _rgb(palette.bubble)
    colours = (np.array([_rgb(fill) for fill in [*flat, *CAUSE_FILL.values()]]) - grey)[
        cells.colour
    ]
    colours *= np.where(cells.lit, 1.0, DIMMED)[:, None]
    track = np.arange(devices)
    device = np.concatenate([track, cells.device])
    row = device.astype(np.int64) * rows // devices
    share = 1.0 / np.bincount(track * rows // devices, minlength=rows)[row]
    width = columns + 2
    image = np.empty((rows, width, 3))
    edges = [
        (np.concatenate([np.full(devices, begin), times]) * (columns / span), sign * share)
        for begin, times, sign in ((0.0, cells.left, 1.0), (makespan, cells.right, -1.0))
    ]
    for channel in range(3):
        paint = np.concatenate([np.full(devices, grey[channel] - 255.0), colours[:, channel]])
        change = np.zeros(rows * width)
        for x, amount in edges:
            pixel = np.minimum(x.astype(np.int64), columns)
            late = (x - pixel) * paint * amount
            at = row * width + pixel
            change += np.bincount(at, paint * amount - late, rows * width)
            change += np.bincount(at + 1, late, rows * width)
        np.cumsum(change.reshape(rows, width), axis=1, out=image[:, :, channel])
    return np.clip(np.rint(image[:, :columns] + 255.0), 0, 255).astype(np.uint8)


def _rgb(colour: str) -> Floats:
    return np.array(channels(colour), np.float64)
