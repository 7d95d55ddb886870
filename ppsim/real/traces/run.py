"""A real run as its files show it: the schedule that its devices followed, and the times of every
iteration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.core.draft import Draft
from ppsim.core.job import Job
from ppsim.core.ops import Kind
from ppsim.core.schedule import NONE, Schedule
from ppsim.core.timeline import Timeline
from ppsim.errors import InputError
from ppsim.inputs.drafts.read import require_sound
from ppsim.real.traces.tables.words import PER_SECOND
from ppsim.real.traces.torch_trace import Trace

Times = NDArray[np.float64]
# Device, kind, stage, microbatch and part of a pair (0 none, 1 first, 2 second) of one op.
Entry = tuple[int, int, int, int, int]


@dataclass(frozen=True)
class RealRun:
    """One schedule, run for several iterations; times from the start of each iteration."""

    source: str  # the file or folder
    # ``primus``, ``kineto``, ``record``, ``table`` or ``timeline`` (a file of ours that holds
    # times)
    format: str
    # the ops of each device in the order they started; its name is ``custom`` until it is
    # recognised
    schedule: Schedule
    iterations: NDArray[np.int64]  # shape (iterations,), their numbers as the files count them
    start: Times  # shape (iterations, ops): when the op began to compute
    end: Times  # likewise. Both ops of a pair share all times
    # likewise: when the device reached the op, and began to wait for its input; NaN where not shown
    posted: Times
    # likewise: when the op's input from another device was received; NaN where not shown
    arrival: Times
    offset: Times  # shape (devices,): subtracted from each device's clock
    # shape (iterations, devices), bytes at the peak, or None where not shown
    memory: Times | None = None
    unit: str = "ms"  # the unit of the times
    # of Kineto, the content of each file, by its path
    traces: Mapping[str, Trace] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()  # sentences that a reader of the numbers must know
    column_notes: tuple[str, ...] = ()  # how a table's columns were read, a sentence each
    # all replicas, where the files show several or collectives; the times above are of one replica
    job: Job | None = field(default=None, repr=False)
    replica: int = 0  # the number of that one
    # shape (iterations,): the end of each iteration, which starts at 0, where a file states both
    stated_ends: Times | None = None

    @classmethod
    def from_ops(
        cls,
        source: str,
        form: str,
        schedule: Schedule,
        iterations: Any,
        start: Times,
        end: Times,
        **more: Any,
    ) -> RealRun:
        """A run of which nothing shows when ops were reached, or inputs received; clocks agree
        unless more is said.
        """
        unknown, more = np.full_like(start, np.nan), {"offset": np.zeros(schedule.n_devices)} | more
        return cls(source, form, schedule, iterations, start, end, unknown, unknown, **more)

    @property
    def makespans(self) -> Times:
        """Shape (iterations,): from the start of the first op to the end of the last, or from 0 to
        the end that a file states.
        """
        if self.stated_ends is not None:
            return self.stated_ends
        makespans: Times = self.end.max(axis=1) - self.start.min(axis=1)
        return makespans

    def timeline(self, at: int) -> Timeline:
        """Return the times of one iteration, given its place in ``iterations``, from the start of
        its first op.

        What bound each start is not measured: ``bound`` is -1 throughout.
        """
        first = self.start[at].min()
        bound = np.full(len(self.schedule), NONE, np.int32)
        return Timeline(
            self.schedule, self.start[at] - first, self.end[at] - first, bound, self.unit
        )

    def middle(self) -> int:
        """Return the place of the iteration whose makespan is the median, the smaller of two in the
        middle.
        """
        return int(np.argsort(self.makespans, kind="stable")[(len(self.iterations) - 1) // 2])

    def select(self, iteration: str) -> RealRun:
        """Select iterations: ``median``, ``all``, a number, or a range such as ``4-20``
        (InputError: there is none).
        """
        if iteration == "all":
            return self
        if iteration == "median":
            return self._iterations_at(np.array([self.middle()]))
        first, dash, last = iteration.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and len(iteration) < 40):
            raise InputError(
                f"'{iteration}' is no iteration", "median, all, a number, or a range such as 4-20"
            )
        found = np.flatnonzero((self.iterations >= int(first)) & (self.iterations <= int(last)))
        if not len(found):
            held = f"{self.iterations[0]} to {self.iterations[-1]}"
            raise InputError(
                f"{self.source} has no whole iteration {iteration}", f"one of {held}, median or all"
            )
        return self._iterations_at(found)

    def drop_first(self) -> RealRun:
        """Leave out iteration 0 or 1, where there are more: the first one holds work that is done
        only once.
        """
        warm = len(self.iterations) > 1 and self.iterations[0] <= 1
        return self._iterations_at(np.arange(1, len(self.iterations))) if warm else self

    def in_milliseconds(self) -> RealRun:
        """Tell the times of the replica shown in ms, without the job (InputError: their unit is no
        real time).
        """
        if self.unit == "ms":
            return self
        if self.unit not in PER_SECOND:
            raise InputError(f"{self.source} has times in {self.unit}, not in ms", "a measured run")
        times = ("start", "end", "posted", "arrival", "offset")
        scaled = {name: getattr(self, name) * (1e3 / PER_SECOND[self.unit]) for name in times}
        return replace(self, **scaled, unit="ms", job=None)

    def select_replica(self, at: int) -> RealRun:
        """Show another replica of the job, given its place."""
        if self.job is None:
            return self
        start, end = self.job.start[:, at], self.job.end[:, at]
        first = start.min(axis=1, keepdims=True)
        return replace(
            self, start=start - first, end=end - first, replica=int(self.job.replicas[at])
        )

    def rename(self, name: str) -> RealRun:
        """Give the schedule a name."""
        schedule = replace(self.schedule, name=name)
        return replace(
            self,
            schedule=schedule,
            job=None if self.job is None else replace(self.job, schedule=schedule),
        )

    def draft(self, at: int) -> Draft:
        """Return one iteration as a file would state it: its queues with their times."""
        timeline, draft = self.timeline(at), Draft.from_schedule(self.schedule, self.source)
        return replace(draft, start=timeline.start, end=timeline.end, unit=self.unit)

    def _iterations_at(self, at: NDArray[np.int64]) -> RealRun:
        names = ("iterations", "start", "end", "posted", "arrival")
        memory = None if self.memory is None else self.memory[at]
        job = None if self.job is None else self.job.select(at)
        ends = None if self.stated_ends is None else self.stated_ends[at]
        columns = {name: getattr(self, name)[at] for name in names}
        return replace(self, memory=memory, job=job, stated_ends=ends, **columns)


def schedule_of(
    source: str, entries: Sequence[Entry] | NDArray[np.int64], devices: int
) -> Schedule:
    """Make the schedule of ops given in the order of their queues, device by device.

    Raises:
        InputError: a device, stage or microbatch is missing.
        InvalidSchedule: no schedule runs in this order.
    """
    device, kind, stage, microbatch, part = np.asarray(entries, np.int64).T
    table = np.stack(
        [device, kind, stage, microbatch, device + 1, np.arange(1, len(device) + 1), part], axis=1
    )
    return require_sound(Draft.from_table(source, table, devices=devices, name="custom")).schedule()


def early_share(schedule: Schedule, start: Times, end: Times) -> float:
    """Compute by how much ops start before the end of their input, as a share of the time of all
    ops.

    0 where files, order and clocks are right.
    """
    needs = schedule.dependency
    has = np.flatnonzero(needs >= 0)
    early = np.maximum(end[:, needs[has]] - start[:, has], 0.0)
    return float(early.sum()) / max(float((end - start).sum()), 1e-9)


def ready_times(schedule: Schedule, end: Times) -> Times:
    """Compute when both the device and the input of each op were ready, shape (iterations, ops).

    The first op of a device without an input from elsewhere is ready at 0. Both ops of a pair wait
    for both inputs.
    """
    ready = np.zeros_like(end)
    ready[:, 1:] = end[:, :-1]
    ready[:, schedule.offsets[:-1][np.diff(schedule.offsets) > 0]] = 0.0
    needs = schedule.dependency
    has = np.flatnonzero(needs >= 0)
    first, second = schedule.first_of_pairs, schedule.second_of_pairs
    ready[:, second] = ready[:, first]
    ready[:, has] = np.maximum(ready[:, has], end[:, needs[has]])
    ready[:, first] = ready[:, second] = np.maximum(ready[:, first], ready[:, second])
    return ready


KINDS = {kind.name: int(kind) for kind in (Kind.F, Kind.B, Kind.I, Kind.W)}
