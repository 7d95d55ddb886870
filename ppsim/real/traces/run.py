"""A real run from its files: the schedule of its devices, and the times of every iteration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.base.text import shorten
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
    """Several iterations of one schedule; times are from the start of each iteration.

    Attributes:
        source: the file or folder.
        format: ``primus``, ``kineto``, ``record``, ``table`` or ``timeline`` (a file of ppsim with
            times).
        schedule: the ops of each device in the order of their starts; its name is ``custom`` until
            it is recognised.
        iterations: shape (iterations,), the iterations' numbers in the files.
        start: shape (iterations, ops), time at which the op began to compute.
        end: shape (iterations, ops), time at which the op ended. Both ops of a pair share all
            times.
        posted: shape (iterations, ops), time at which the device reached the op and began to wait
            for its input; NaN if unknown.
        arrival: shape (iterations, ops), time at which the op's input arrived from another device;
            NaN if unknown.
        offset: shape (devices,), the lead subtracted from each device's clock.
        memory: shape (iterations, devices), peak bytes; None if unknown.
        unit: the unit of times.
        traces: the content of each Kineto file, by path.
        notes: sentences that a user of the numbers must know.
        column_notes: sentences on how a table's columns were understood.
        job: all replicas, if the files have several or collectives; the times above are those of
            one replica.
        replica: the number of that replica.
        stated_ends: shape (iterations,), the ends of iterations that a file states; None if not
            stated. An iteration then starts at 0.
    """

    source: str
    format: str
    schedule: Schedule
    iterations: NDArray[np.int64]
    start: Times
    end: Times
    posted: Times
    arrival: Times
    offset: Times
    memory: Times | None = None
    unit: str = "ms"
    traces: Mapping[str, Trace] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()
    column_notes: tuple[str, ...] = ()
    job: Job | None = field(default=None, repr=False)
    replica: int = 0
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
        """Return a run without times of posts and arrivals; ``more`` are further fields."""
        unknown, more = np.full_like(start, np.nan), {"offset": np.zeros(schedule.n_devices)} | more
        return cls(source, form, schedule, iterations, start, end, unknown, unknown, **more)

    @property
    def makespans(self) -> Times:
        """Times from the first start to the last end, or to the stated end, shape (iterations,)."""
        if self.stated_ends is not None:
            return self.stated_ends
        makespans: Times = self.end.max(axis=1) - self.start.min(axis=1)
        return makespans

    def timeline(self, at: int) -> Timeline:
        """Return the timeline of the iteration at an index, from the start of its first op.

        ``bound`` is -1 for all ops: it is not measured.
        """
        first = self.start[at].min()
        bound = np.full(len(self.schedule), NONE, np.int32)
        return Timeline(
            self.schedule, self.start[at] - first, self.end[at] - first, bound, self.unit
        )

    def middle(self) -> int:
        """Return the index of the iteration with the median makespan (the lower of two medians)."""
        return int(np.argsort(self.makespans, kind="stable")[(len(self.iterations) - 1) // 2])

    def select(self, iteration: str) -> RealRun:
        """Return some iterations: ``median``, ``all``, a number, or a range such as ``4-20``.

        Raises:
            InputError: there is no such iteration.
        """
        if iteration == "all":
            return self
        if iteration == "median":
            return self._iterations_at(np.array([self.middle()]))
        first, dash, last = iteration.partition("-")
        last = last if dash else first
        is_plain = iteration.isascii() and len(iteration) < 40
        if not (is_plain and first.isdecimal() and last.isdecimal()):
            raise InputError(
                f"not an iteration: '{shorten(iteration, 40)}'",
                "median, all, a number, or a range, e.g. 4-20",
            )
        found = np.flatnonzero((self.iterations >= int(first)) & (self.iterations <= int(last)))
        if not len(found):
            present = f"{self.iterations[0]} to {self.iterations[-1]}"
            raise InputError(
                f"{self.source} has no complete iteration {iteration}",
                f"one of {present}, median or all",
            )
        return self._iterations_at(found)

    def drop_first(self) -> RealRun:
        """Return the run without a first iteration numbered 0 or 1, unless it is the only one.

        The first iteration of a training run has work that later ones do not have.
        """
        has_first = len(self.iterations) > 1 and self.iterations[0] <= 1
        return self._iterations_at(np.arange(1, len(self.iterations))) if has_first else self

    def in_milliseconds(self) -> RealRun:
        """Return the run in ms and without its job (InputError: the unit is not a time)."""
        if self.unit == "ms":
            return self
        if self.unit not in PER_SECOND:
            raise InputError(f"{self.source} has times in {self.unit}, not in ms", "a measured run")
        times = ("start", "end", "posted", "arrival", "offset")
        scaled = {name: getattr(self, name) * (1e3 / PER_SECOND[self.unit]) for name in times}
        return replace(self, **scaled, unit="ms", job=None)

    def select_replica(self, at: int) -> RealRun:
        """Return the run with the times of the job's replica at an index."""
        if self.job is None:
            return self
        start, end = self.job.start[:, at], self.job.end[:, at]
        first = start.min(axis=1, keepdims=True)
        return replace(
            self, start=start - first, end=end - first, replica=int(self.job.replicas[at])
        )

    def rename(self, name: str) -> RealRun:
        """Return the run with another name of its schedule."""
        schedule = replace(self.schedule, name=name)
        return replace(
            self,
            schedule=schedule,
            job=None if self.job is None else replace(self.job, schedule=schedule),
        )

    def draft(self, at: int) -> Draft:
        """Return the draft of the iteration at an index: its queues with their times."""
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
    """Return the schedule of ops in the order of their queues, device by device.

    Raises:
        InputError: a device, stage or microbatch is missing.
        InvalidSchedule: the order is not that of a schedule.
    """
    device, kind, stage, microbatch, part = np.asarray(entries, np.int64).T
    table = np.stack(
        [device, kind, stage, microbatch, device + 1, np.arange(1, len(device) + 1), part], axis=1
    )
    return require_sound(Draft.from_table(source, table, devices=devices, name="custom")).schedule()


def early_share(schedule: Schedule, start: Times, end: Times) -> float:
    """Return the time by which ops start before their inputs end, over the time of all ops.

    It is 0 if files, order and clocks are right.
    """
    needs = schedule.dependency
    has = np.flatnonzero(needs >= 0)
    early = np.maximum(end[:, needs[has]] - start[:, has], 0.0)
    return float(early.sum()) / max(float((end - start).sum()), 1e-9)


def ready_times(schedule: Schedule, end: Times) -> Times:
    """Return when both the device and the input of each op were ready, shape (iterations, ops).

    The first op of a device is ready at 0 if it has no input. Both ops of a pair wait for both
    inputs.
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
