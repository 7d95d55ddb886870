"""The list of schedules on one screen of a terminal: in groups, several schedules a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ppsim.ask.blocks import Block, Line, heading
from ppsim.ask.terminal import BETWEEN
from ppsim.base.numbers import align_right, format_number, format_share

if TYPE_CHECKING:
    from ppsim.schedules import Family

PLACED = {
    "linear": "one stage a device",
    "loop": "several stages a device, interleaved",
    "v": "stages in a V, the first and the last one on the same device",
    "bidirectional": "from both ends at once, with two copies of the weights",
}
SPLIT = "one stage a device, and a split backward"
SLICED = "sequences in slices"
STREAMS = "ops on all devices at once, or copies to others"
OTHER = "no backward, or no flush"
GROUPS = (*[PLACED["linear"], SPLIT], *[*PLACED.values()][1:], STREAMS, SLICED, OTHER)
Cells = tuple[str, ...]  # the texts of a schedule below ``HEADINGS``
HEADINGS = "schedule", "idle", "peak", "split"
MEANINGS = (
    "",
    "idle: share of the time",
    "peak: most activations that a device holds, of its 1/P share of the model",
    "split: the backward runs as I and W",
)
# Schedules a line, columns of each, and blanks between two: first the grid for the widest screen.
GRIDS = (3, 4, 4), (2, 4, 4), (2, 3, 2), (1, 3, 2)


@dataclass(frozen=True)
class Row:
    """A schedule of the list with its numbers on the example.

    Attributes:
        family: the schedule's family.
        idle: the idle share of the iteration, or of a round if it repeats.
        peak: the peak activations of a device, of its 1/P share of the model.
    """

    family: Family
    idle: float
    peak: float


def group_of(row: Row) -> str:
    """Return the group of a schedule, one of ``GROUPS``, from the facts of its family."""
    family = row.family
    if not (row.peak and family.flushes):
        return OTHER
    if family.cuts_sequences:
        return SLICED
    if family.lanes:
        return STREAMS
    if family.placement == "linear":
        return SPLIT if family.split else PLACED["linear"]
    return PLACED[family.placement.removesuffix("-v")]


@dataclass(frozen=True)
class Grid:
    """Schedules side by side.

    Attributes:
        across: the number of schedules a line.
        columns: the number of cells of each schedule.
        between: the number of blanks between two schedules.
        widths: the letters of each cell, for each schedule of a line.
    """

    across: int
    columns: int
    between: int
    widths: list[list[int]]

    @classmethod
    def from_groups(
        cls, groups: Iterable[Sequence[Cells]], across: int, columns: int, between: int
    ) -> Grid:
        """Return a grid whose cells fit the widest text at their place in a line."""
        places = [list[Cells]([HEADINGS]) for _ in range(across)]
        for rows in groups:
            for place in range(across):
                places[place] += rows[place::across]
        widths = [
            [max(len(row[column]) for row in rows) for column in range(columns)] for rows in places
        ]
        return cls(across, columns, between, widths)

    @property
    def wide(self) -> int:
        """The letters of a line."""
        inside = sum(sum(widths) + BETWEEN * (self.columns - 1) for widths in self.widths)
        return inside + self.between * (self.across - 1)

    def line(self, rows: Sequence[Cells]) -> str:
        """Return a line of schedules: names aligned left in their cells, other texts right."""
        texts = [
            (" " * BETWEEN).join(
                cell.rjust(wide) if column else cell.ljust(wide)
                for column, (cell, wide) in enumerate(zip(cells, widths, strict=False))
            )
            for cells, widths in zip(rows, self.widths, strict=False)
        ]
        return (" " * self.between).join(texts).rstrip()


def screen_lines(rows: Sequence[Row], width: int) -> Iterator[Block]:
    """Yield each group of schedules below its heading, the least idle first."""
    ordered = sorted(rows, key=lambda row: (row.idle, row.peak))
    idle = align_right([format_share(row.idle) for row in ordered])
    peak = align_right([format_number(row.peak) for row in ordered])
    groups = dict[str, list[Cells]]({each: [] for each in GROUPS})
    for row, *numbers in zip(ordered, idle, peak, strict=True):
        split = "yes" if row.family.split else ""
        groups[group_of(row)].append((row.family.name, *numbers, split))
    grids = [Grid.from_groups(groups.values(), *sizes) for sizes in GRIDS]
    grid = next((each for each in grids if each.wide <= width), grids[-1])
    yield Line([(grid.line([HEADINGS] * grid.across), "quiet")])
    for name, found in groups.items():
        yield heading(name)
        for first in range(0, len(found), grid.across):
            yield Line(grid.line(found[first : first + grid.across]))
    yield Line("; ".join(MEANINGS[1 : grid.columns]))
