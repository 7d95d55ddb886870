"""Layout of a Gantt figure: cells, rows, labels, borders, messages and the raster of many cells.

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
# Free points left and right of a number, together: usually, and if it does not fit otherwise.
MARGINS = 1.2, 0.4
# Width of a digit, and the blank part outside the first and last one, over the font's size, of
# DejaVu Sans.
DIGIT_WIDTH, DIGIT_MARGINS = 0.637, 0.097
BORDER = 0.4  # points
LEAST_BORDERED = 1.2  # width of a cell in points, below which a border would hide its colour
# distances between numbered microbatches
STEPS = 1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128, 200, 256, 500, 512
THIN_BORDER = 2.5  # width of a cell in points, below which its border is a hairline
FULL_BORDER = 4  # width of a cell in points, from which on its border is not thinned
# largest height of a row in inches: usually, in a figure for one column of text, with arrows
ROW, NARROW_ROW, ROW_OF_ARROWS = 0.17, 0.145, 0.24
LABELLED_ROW, LEAST_ROW = 0.105, 0.06  # least height of a row in inches, with numbers and without
PANEL = 1.8  # height of a panel's rows in inches, above which they shrink
TALLEST = 8.0  # height of all rows of a figure in inches
BAND = 0.2  # height of a band of the lane below a device's row, in rows
LEAST_BAND = 3  # height of a band in dots, below which there is no lane
COLOUR_COUNT = LEVELS * len(TIMED)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Cells:
    """The cells of a timeline: half of a pair's time for each of its ops, none for zero time."""

    device: NDArray[np.int32]  # shape (cells,), the row
    left: Floats  # shape (cells,), where the colour begins
    right: Floats  # shape (cells,), where it ends
    # shape (cells,), where the border ends: beyond ``right`` in the first half of a pair
    end: Floats
    # shape (cells,), whether the cell has a border; that of a pair belongs to its first half
    bordered: NDArray[np.bool_]
    kind: NDArray[np.uint8]  # shape (cells,)
    stage: NDArray[np.int32]  # shape (cells,)
    # shape (cells,), index into :attr:`Palette.colours`; causes of idle time follow
    colour: NDArray[np.uint16]
    number: NDArray[np.int32]  # shape (cells,), the microbatch
    chunk: NDArray[np.int32]  # shape (cells,)
    op: NDArray[np.int64]  # shape (cells,), index into the queues; -1 for none
    lit: NDArray[np.bool_]  # shape (cells,), whether the cell is in full colour rather than dimmed

    @property
    def width(self) -> Floats:
        """Shape (cells,): time from ``left`` to ``right``."""
        return self.right - self.left

    def __len__(self) -> int:
        return len(self.left)


def colours_of(schedule: Schedule) -> NDArray[np.uint16]:
    """Return each op's index into :attr:`Palette.colours`, by kind and chunk, shape (ops,)."""
    last = int(schedule.placement.chunk.max())
    return np.asarray(
        LEVELS * schedule.kind.astype(np.uint16) + level_of(schedule.chunk, last), np.uint16
    )


def cells_of(timeline: Timeline, picked: NDArray[np.bool_] | None = None) -> Cells:
    """Return the cells of all ops that take time; ops that are not ``picked`` are dimmed.

    ``picked`` has shape (ops,).
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
    """Return the cells of both, in this order."""
    names = [each.name for each in fields(Cells)]
    return Cells(
        **{name: np.concatenate([getattr(cells, name), getattr(more, name)]) for name in names}
    )


def take_cells(cells: Cells, which: NDArray[np.bool_]) -> Cells:
    """Return the cells at which ``which``, of shape (cells,), is true."""
    return Cells(**{each.name: getattr(cells, each.name)[which] for each in fields(Cells)})


def inside_cells(timeline: Timeline, inside: OpsInside, stream: int) -> Cells:
    """Return a cell for each segment of ops on a stream, in the colour of the segment's kind."""
    parts = []
    for number, shape in enumerate(inside.shapes):
        op = np.flatnonzero((inside.shape_of_op == number) & (timeline.end > timeline.start))
        segments = [i for i, each in enumerate(shape.stream) if each == stream]
        start = timeline.start[op][:, None]
        scale = (timeline.end - timeline.start)[op][:, None] / shape.makespan
        left = start + scale * np.array(shape.start)[segments]
        right = start + scale * np.array(shape.end)[segments]
        kind = np.tile(np.array(shape.kind)[segments], len(op))
        parts.append((np.repeat(op, len(segments)), left.ravel(), right.ravel(), kind))
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
    """Return a cell for each segment of idle time, in the colour of its cause."""
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
    """Return the text of each cell, shape (cells,), with numbers counted from ``base``.

    ``labels`` is as in :class:`ppsim.show.drawing.look.Look`. An op that runs once a step, such as
    the optimizer, has no microbatch to number.
    """
    texts = _texts_of_all(cells, labels, base)
    for cell in np.flatnonzero(np.isin(cells.kind, ONCE_A_STEP)).tolist():
        texts[cell] = Kind(cells.kind[cell]).name if labels == "op" else ""
    return texts


def _texts_of_all(cells: Cells, labels: str, base: int) -> list[str]:
    """Return the texts of all cells, as if each op had a microbatch."""
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
    """Return an upper bound on the width of a number, over the font's size."""
    return DIGIT_WIDTH * digits - DIGIT_MARGINS


def label_size(cell: float, row: float, digits: int, largest: float) -> float:
    """Return the font size in points for a number of ``digits`` in a cell; 0 if it is illegible.

    ``cell`` and ``row`` are the cell's width and height in points. A number that does not fit with
    the usual margin has a smaller one.
    """
    sizes = (
        min(largest, LABEL_HEIGHT * row, (cell - margin) / label_width(digits))
        for margin in MARGINS
    )
    return next((size for size in sizes if size >= SMALLEST_LABEL), 0.0)


def choose_labels(
    cells: Cells, scale: float, row: float, largest: float, digits: int = 0
) -> tuple[float, NDArray[np.bool_]]:
    """Return the font size of a panel's numbers, and the cells that show theirs.

    Of each kind and stage either all cells show their number, or none. ``scale`` is points per unit
    of time, ``row`` a row's height in points, ``largest`` the figure's font size, and ``digits``
    the length of the longest label (by default the largest microbatch's).
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
    """Return the font size of sparse texts, and the cells that show theirs.

    From the left, a text is shown if it does not overlap the text before. It may extend over
    neighbouring cells by half its cell on either side. Arguments are as in :func:`choose_labels`.
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
    """Return the smallest font size, and the cells that show texts in it: of a colour every n-th.

    A text may extend over neighbouring cells of the same colour. For each colour, n is the first of
    ``STEPS`` at which no two texts overlap. Arguments are as in :func:`choose_labels`.
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
    """Return the width in points of the border of cells ``width`` points wide."""
    if width < LEAST_BORDERED:
        return 0.0
    return BORDER if width >= FULL_BORDER else BORDER / 2 if width >= THIN_BORDER else BORDER / 4


def row_height(devices: int, rows: int, *, labels: bool, arrows: bool, narrow: bool) -> int:
    """Return the height of a device's row in dots, at least 1.

    ``devices`` is the number in the largest panel, ``rows`` that of all panels, which share at most
    ``TALLEST`` inches. ``labels`` in cells and ``arrows`` between rows require a least height;
    ``narrow`` is a figure for one column of text.
    """
    tallest = ROW_OF_ARROWS if arrows else NARROW_ROW if narrow else ROW
    least = ROW_OF_ARROWS if arrows else LABELLED_ROW if labels else LEAST_ROW
    inches = min(tallest, max(least, PANEL / devices), TALLEST / rows)
    return max(1, int(inches * DOTS))


@dataclass(frozen=True)
class Messages:
    """P2P messages as columns of shape (messages,)."""

    sender: NDArray[np.int32]
    receiver: NDArray[np.int32]
    sent: Floats
    arrived: Floats


def messages_of(timeline: Timeline) -> Messages | None:
    """Return the departure and arrival of each message; None if too many, or if none takes time.

    A timeline gives the arrival of a message that an op waited for. Other messages on the same link
    are assumed to take as long, but to arrive before the op that needs them starts. A link for
    whose messages no op waited is assumed as slow as the slowest link known.
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
    """Return an image of the mean colour in each pixel, shape (rows, columns, 3).

    Each cell adds its colour at its start and subtracts it at its end, divided between two pixels.
    The running sum along a row is then the exact mean in every pixel, at a cost that does not
    depend on the cells' width. If there are more ``devices`` than ``rows``, a row is the mean of
    several. Bubbles end at ``makespan``, the image at ``span``.
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
