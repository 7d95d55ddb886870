"""A draft: a schedule read from a file, which may have faults.

Readers return drafts, :mod:`ppsim.inputs.check` finds their faults, and a draft without faults can
be converted to a schedule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.base.text import one_line
from ppsim.core.lowered import Lowered
from ppsim.core.ops import COMPUTE, TIMED, Columns, Kind
from ppsim.core.schedule import NONE, Placement, Schedule, place
from ppsim.core.timeline import Timeline
from ppsim.errors import InputError

# The columns of a table of ops. ``row`` is the line of the file and ``cell`` the place in the line,
# both counted from 1. ``part`` is 1 for the first op of a pair, 2 for the second, else 0.
COLUMNS = ("device", "kind", "stage", "microbatch", "row", "cell", "part")
_NAMES = np.array([kind.name for kind in Kind], object)


@dataclass(frozen=True)
class Draft(Columns):
    """Queues as in the file, device-major like :class:`ppsim.core.schedule.Schedule`."""

    source: str  # the file's name, for messages
    # shape (P + 1,); kind, stage, microbatch and pair as in a schedule, shape (ops,)
    offsets: NDArray[np.int64]
    kind: NDArray[np.uint8]
    stage: NDArray[np.int32]
    microbatch: NDArray[np.int32]  # -1 for ops without one, such as UNSHARD
    pair: NDArray[np.int32]
    row: NDArray[np.int32]  # shape (ops,), line of the op in the file
    cell: NDArray[np.int32]  # shape (ops,), cell of the op in its line
    # start and end: shape (ops,), or None if the input has no times
    start: NDArray[np.float64] | None = None
    end: NDArray[np.float64] | None = None
    lines: tuple[str, ...] = field(default=(), repr=False)  # the text, for excerpts
    name: str = ""  # the schedule's name, if the file has it
    unit: str = "t_F"  # the unit of the times
    older: bool = False  # whether it has torch's older letters
    # shape (cells, 2): row and cell of each empty cell
    idle: NDArray[np.int32] = field(default_factory=lambda: np.empty((0, 2), np.int32))
    finish: float | None = None  # the end of the iteration, if the input states it
    # shape (messages, 2): start and end of each message or collective in the input, or None if it
    # has none
    messages: NDArray[np.float64] | None = None
    n_slices: int = 1  # slices of a microbatch's sequence, as in a schedule
    # stages whose R repeats only a part of the forward, as in a schedule
    partial_recompute: tuple[int, ...] = ()
    n_rounds: int = 1  # the number of repetitions of the queues, as in a schedule
    # whether each round needs the results of the previous round, as in a schedule
    feeds_back: bool = False
    flushes: bool = True  # whether each round ends before the next begins, as in a schedule

    @classmethod
    def from_table(
        cls,
        source: str,
        table: NDArray[np.int64],
        times: NDArray[np.float64] | None = None,
        devices: int = 0,
        n_slices: int = 1,
        **details: Any,
    ) -> Draft:
        """Return the draft of a table with one row per op and the columns :data:`COLUMNS`.

        Args:
            source: the file's name.
            table: shape (ops, 7), in queue order per device, or in any order if there are times and
                only one stream.
            times: shape (ops, 2), start and end.
            devices: the minimum number of devices.
            n_slices: slices of a microbatch's sequence.
            details: further attributes of a draft.

        Raises:
            InputError: there are no ops, a number is larger than the number of ops allows, or some
                slices of a microbatch are missing.
        """
        _check_table(source, table, n_slices)
        device = table[:, 0]
        order = _queue_order(table, times)
        columns = table[order].astype(np.int32).T
        _, _, stage, microbatch, row, cell, _ = columns
        first = np.flatnonzero(columns[6] == 1)
        pair = np.full(len(table), NONE, np.int32)
        if not np.array_equal(first + 1, np.flatnonzero(columns[6] == 2)):
            raise InputError(
                f"{source}: the two ops of a pair are apart", "give both the same device and times"
            )
        pair[first], pair[first + 1] = first + 1, first
        offsets = np.searchsorted(
            columns[0], np.arange(max(devices, int(device.max()) + 1) + 1)
        ).astype(np.int64)
        start, end = (None, None) if times is None else times[order].T
        kind = columns[1].astype(np.uint8)
        return cls(
            source,
            offsets,
            kind,
            stage,
            microbatch,
            pair,
            row,
            cell,
            start,
            end,
            n_slices=n_slices,
            **details,
        )

    @classmethod
    def from_schedule(cls, schedule: Schedule, source: str = "") -> Draft:
        """Return the draft of a schedule, lowered or not, with a row per device and a cell per op
        or pair.
        """
        cells = np.cumsum(schedule.leads) - 1
        first = np.append(cells, len(schedule))[schedule.offsets[:-1]]
        same = (
            "name",
            "offsets",
            "kind",
            "stage",
            "microbatch",
            "pair",
            "n_slices",
            "partial_recompute",
            "n_rounds",
            "feeds_back",
            "flushes",
        )
        alike: dict[str, Any] = {name: getattr(schedule, name) for name in same}
        cell = (cells - first[schedule.device] + 1).astype(np.int32)
        return cls(source or schedule.name, row=schedule.device + 1, cell=cell, **alike)

    @property
    def n_devices(self) -> int:
        """P."""
        return len(self.offsets) - 1

    @cached_property
    def n_stages(self) -> int:
        """S, one more than the largest stage of a compute op."""
        return int(self.stage[self.computes].max(initial=-1)) + 1

    @cached_property
    def n_microbatches(self) -> int:
        """M, one more than the largest microbatch."""
        return int(self.microbatch[self.computes].max(initial=-1)) + 1

    @cached_property
    def timed(self) -> NDArray[np.bool_]:
        """Shape (ops,): whether an op may be in a schedule that is not lowered."""
        return self.kind < len(TIMED)

    @cached_property
    def has_comms(self) -> bool:
        """True if the draft has sends or receives."""
        return bool(self.communicates.any())

    @cached_property
    def placement(self) -> Placement:
        """The device of each stage, which is the one that runs most of its ops, or two of them.

        Two replicas are recognised if each stage is on devices d and P - 1 - d, with one stage per
        device or in a V.
        """
        P, S = self.n_devices, self.n_stages
        runs_on, count = np.unique(
            self.stage[self.computes].astype(np.int64) * P + self.device[self.computes],
            return_counts=True,
        )
        stage, device = np.divmod(runs_on, P)
        both = place("bidirectional" if S == P else "bidirectional-v", P, S)
        if (
            S in (P, 2 * P)
            and len(runs_on) > S
            and (both.devices[:, stage] == device).any(axis=0).all()
        ):
            return both
        devices = np.zeros(S, np.int32)
        order = np.lexsort((-device, count))  # the most ops, and of equals the first device, last
        devices[stage[order]] = device[order]
        names = ("linear",) if S == P else ("loop", "v")
        for name in names:
            if np.array_equal(place(name, P, S).devices[0], devices):
                return place(name, P, S)
        return Placement("custom", P, devices[None, :])

    def place(self, op: int) -> str:
        """Return an op's place in its file, or in its queue without a file."""
        if not self.lines:
            return f"op {self.cell[op]}"
        return f"line {self.row[op]}" + (f", cell {self.cell[op]}" if self.start is None else "")

    def where(self, op: int) -> str:
        """Return the device and place of an op."""
        return f"device {self.device[op]}, {self.place(op)}"

    def move(self, op: int, before: int) -> Draft:
        """Return the draft with one op, which must not be in a pair, moved in its queue."""
        order = np.delete(np.arange(len(self)), op)
        order = np.insert(order, before - (op < before), op)
        place = np.argsort(order).astype(np.int32)
        pair = np.where(self.pair == NONE, np.int32(NONE), place[self.pair])[order]
        columns = {
            name: getattr(self, name)[order]
            for name in ("kind", "stage", "microbatch", "row", "cell")
        }
        return replace(self, pair=pair, **columns)

    def excerpt(self, row: int, cell: int, around: int = 30) -> tuple[str, str]:
        """Return the line around a cell and a line of carets under the cell; empty without text."""
        if not 0 < row <= len(self.lines):
            return "", ""
        line = self.lines[row - 1]
        first, last = self.span(row, cell)
        last = min(last, first + 4 * around)
        begin, stop = max(0, first - around), min(len(line), last + around)
        dots = "..." if begin else ""
        text = dots + one_line(line[begin:stop]) + ("..." if stop < len(line) else "")
        return text, " " * (len(dots) + first - begin) + "^" * max(1, last - first)

    def span(self, row: int, cell: int) -> tuple[int, int]:
        """Return the first and last position (exclusive) of a cell in its line, from 0.

        A line without cells is returned whole.
        """
        line = self.lines[row - 1] if 0 < row <= len(self.lines) else ""
        begin, stop = 0, len(line)
        if self.start is None and line:
            commas = self._commas(row)
            begin = int(commas[cell - 2]) + 1 if cell > 1 else 0
            stop = int(commas[cell - 1]) if cell <= len(commas) else len(line)
        text = line[begin:stop]
        return begin + len(text) - len(text.lstrip()), begin + len(text.rstrip())

    def _commas(self, row: int) -> NDArray[np.int64]:
        """Return the positions of a line's commas, cached for lines with hundreds of faults."""
        cache: dict[int, NDArray[np.int64]] = self.__dict__.setdefault("_cached_commas", {})
        if row not in cache:
            cache[row] = np.flatnonzero(
                np.frombuffer(self.lines[row - 1].encode("utf-32-le"), np.uint32) == ord(",")
            )
        return cache[row]

    def schedule(self) -> Schedule:
        """Return the compute ops as a schedule, with the sends and receives of the file.

        The draft must not have faults.
        """
        made = self._schedule_of(self.timed)
        return replace(made, stated_messages=self.whole_schedule()) if self.has_comms else made

    def whole_schedule(self) -> Schedule:
        """Return all ops as a schedule, comm ops included."""
        return self._schedule_of(np.ones(len(self), bool))

    def lowered(self) -> Lowered | None:
        """Return the schedule with the draft's comm ops, each posted alone; None if it has none."""
        if self.timed.all():
            return None
        return Lowered(self.whole_schedule(), self.schedule(), np.full(len(self), NONE, np.int32))

    def timeline(self) -> Timeline | None:
        """Return the compute ops with the draft's times, or None without times."""
        if self.start is None or self.end is None:
            return None
        keep = self.timed
        bound = np.full(int(keep.sum()), NONE, np.int32)
        return Timeline(
            self.schedule(), self.start[keep], self.end[keep], bound, self.unit, self.finish or 0.0
        )

    def _schedule_of(self, keep: NDArray[np.bool_]) -> Schedule:
        """Return some of the ops as a schedule."""
        place = np.cumsum(keep, dtype=np.int32) - 1
        columns: dict[str, Any] = {
            name: getattr(self, name)[keep] for name in ("kind", "stage", "microbatch")
        }
        columns["offsets"] = np.concatenate([[0], np.cumsum(keep)])[self.offsets]
        columns["pair"] = np.where(self.pair == NONE, np.int32(NONE), place[self.pair])[keep]
        columns |= {"n_slices": self.n_slices, "partial_recompute": self.partial_recompute}
        columns |= {
            "n_rounds": self.n_rounds,
            "feeds_back": self.feeds_back,
            "flushes": self.flushes,
        }
        return Schedule(self.name or "custom", self.placement, self.n_microbatches, **columns)

    def cells(self) -> Iterator[list[str]]:
        """Yield each device's queue in torch's text form."""
        names, leads = _NAMES[self.kind].tolist(), self.leads.tolist()
        stages = (
            self.stage
            if self.stage.min(initial=0) >= 0
            else np.where(self.stage < 0, "", self.stage.astype(str))
        ).tolist()
        numbers = np.where(self.microbatch < 0, "", self.microbatch.astype(str)).tolist()
        labels = [f"{s}{n}{m}" for s, n, m in zip(stages, names, numbers, strict=True)]
        for op in self.first_of_pairs.tolist():
            labels[op] = f"({labels[op]};{labels[op + 1]})OVERLAP_F_B"
        for begin, stop in pairwise(self.offsets.tolist()):
            yield [labels[op] for op in range(begin, stop) if leads[op]]


def _check_table(source: str, table: NDArray[np.int64], n_slices: int) -> None:
    """Raise InputError for a table without ops, with too large numbers or with missing slices."""
    if not len(table):
        raise InputError(f"'{source}' has no ops", "one line per device, such as 0F0,0F1,0B0,0B1")
    for column in (0, 2, 3):
        worst = table[table[:, column].argmax()]
        if worst[column] >= len(table):
            raise InputError(
                f"{source}, line {worst[4]}, cell {worst[5]}: {COLUMNS[column]} "
                f"{worst[column]} in a file of {len(table)} ops",
                f"count every {COLUMNS[column]} from 0, without gaps",
            )
    if (slices := int(table[:, 3].max()) + 1) % n_slices:
        raise InputError(
            f"{source}: {slices} microbatches are not a multiple of {n_slices} slices",
            "slices is the number of pieces that each sequence is cut into",
        )


def _queue_order(table: NDArray[np.int64], times: NDArray[np.float64] | None) -> NDArray[np.int64]:
    """Return the order of the ops in the queues, device by device.

    With times and only one stream, a queue is in the order of time; with several streams, times do
    not give the order of issue, which is that of the table.
    """
    device, part = table[:, 0], table[:, 6]
    has_streams = ((table[:, 1] >= len(COMPUTE)) & (table[:, 1] < len(TIMED))).any()
    if times is None or has_streams:
        return np.lexsort((device,))
    return np.lexsort((part, table[:, 5], table[:, 4], times[:, 0], device))
