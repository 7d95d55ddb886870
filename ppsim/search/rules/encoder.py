"""Encoders in bubbles: a vision tower runs in the idle time of a language model's pipeline.

Some devices, or all, hold the whole encoder, and each microbatch is encoded on one of them. Its
forward (EF) ends before the first stage's forward of the microbatch starts. Its backward (EB), on
the same device, starts after the first stage's backward has ended. These are the rules of Optimus
(Feng et al., ATC 25, arXiv 2408.03505, section 4.3: EF_i <= F_i, EB_i >= B_i) for an encoder on one
device. Kimi K2.5 and K3 have them as well: the encoder is replicated on all devices, with forwards
of the first microbatches up front and all others in bubbles, and backwards likewise.

The language model keeps its order and, except for one delay at its start, its times. From the last
microbatch to the first, each EF is placed as late as possible in a bubble of any device. An EF that
fits none runs before the pipeline, which starts later by that time. From the first gradient to the
last, each EB starts as early as possible in a bubble of any device, or after the pipeline.

Whichever of the two is placed first determines the device of both: EF for the first microbatches,
as the pipeline waits for them, EB for the others. Plans with different numbers of these
are simulated, and one with all encoders before and after the pipeline; the fastest is returned.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.base import toml
from ppsim.base.toml import RefusedValue
from ppsim.base.units import parse_size
from ppsim.core.costs import Costs
from ppsim.core.lanes import refuse_lanes
from ppsim.core.ops import BACKWARDS, Kind, mask, pack
from ppsim.core.schedule import Schedule
from ppsim.core.soundness import LONGEST
from ppsim.core.timeline import Timeline
from ppsim.engine.memory.usage import MemoryModel
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError

SCHEMA = "ppsim.encoder/1"
EXAMPLE = "forward = 0.5 and backward = 1.0"
Floats = NDArray[np.float64]
NEAR = 1e-9  # of the makespan
# most microbatches x bubbles; bubbles that cost as much time as the rest of a microbatch
MOST_WORK, LEAST_EACH = 50_000_000, 1_000


@dataclass(frozen=True)
class Encoder:
    """An encoder; the content of a file of schema ``ppsim.encoder/1``."""

    # time of a microbatch's forward in the unit of the other times, or one for each microbatch
    forward: float | tuple[float, ...]
    # the same of its backward, recompute included; 0 if the encoder is frozen
    backward: float | tuple[float, ...] = 0.0
    devices: tuple[int, ...] = ()  # the devices that hold the encoder; all by default
    # bytes that a microbatch's forward stores for its backward, such as ``512MiB``
    activation: str = "0B"
    states: str = "0B"  # bytes of weights, gradients and optimizer on each of these devices

    def __post_init__(self) -> None:
        for name in ("forward", "backward"):
            times = np.atleast_1d(getattr(self, name))
            if not len(times) or not ((times >= 0) & (times <= LONGEST)).all():
                raise RefusedValue(
                    name, f"must be zero or more and at most {LONGEST:g}, for each microbatch"
                )
        if min(self.devices, default=0) < 0 or len({*self.devices}) < len(self.devices):
            raise RefusedValue("devices", "must be numbers of devices from 0 on, each once")
        for name in ("activation", "states"):
            try:
                in_bytes = parse_size(getattr(self, name))[1]
            except InputError as error:
                raise RefusedValue(name, f"must be a size such as 512MiB: {error}") from None
            if not in_bytes:
                raise RefusedValue(name, "must be a size such as 512MiB")

    def bytes_of(self, name: str) -> int:
        """Return the bytes of ``activation`` or ``states``."""
        return parse_size(getattr(self, name))[0]

    @property
    def frozen(self) -> bool:
        """Whether the encoder has no backward."""
        return not np.any(self.backward)

    def devices_of(self, schedule: Schedule) -> NDArray[np.int64]:
        """Return the devices with the encoder (InputError: the schedule has fewer devices)."""
        if max(self.devices, default=0) >= schedule.n_devices:
            what = (
                f"the encoder is on device {max(self.devices)}, and {schedule.name} has "
                f"{schedule.n_devices}"
            )
            raise InputError(what, f"devices 0 to {schedule.n_devices - 1} in the file")
        return np.array(self.devices or range(schedule.n_devices), np.int64)


def read_encoder(path: str) -> Encoder:
    """Read an encoder from a TOML file.

    Raises:
        InputError: the file cannot be read, or an entry is unknown, missing or impossible; the
            message has the line.
    """
    return toml.read(path, Encoder, SCHEMA, EXAMPLE)


def encoder_times(schedule: Schedule, encoder: Encoder) -> dict[Kind, Floats]:
    """Return the times of EF and EB, each of shape (devices, microbatches).

    Raises:
        InputError: the encoder has times of another number of microbatches.
    """
    found = {}
    for kind, name in ((Kind.EF, "forward"), (Kind.EB, "backward")):
        times = np.atleast_1d(np.asarray(getattr(encoder, name), np.float64))
        if len(times) not in (1, schedule.n_microbatches):
            what = (
                f"the encoder has {len(times)} times of {name}, and {schedule.name} "
                f"{schedule.n_microbatches}"
            )
            raise InputError(f"{what} microbatches", "one time, or one for each microbatch")
        found[kind] = np.broadcast_to(times, (schedule.n_devices, schedule.n_microbatches))
    return found


def add_encoder(schedule: Schedule, costs: Costs, encoder: Encoder) -> Schedule:
    """Return the schedule with the encoder's ops in its bubbles, or before and after the pipeline.

    The schedule has F, and B or I and W, of whole sequences; costs have the times of EF and EB that
    :func:`encoder_times` returns.

    Raises:
        InputError: the schedule has ops of other kinds or slices, or too few devices.
    """
    refuse_lanes(schedule, "a rule for encoders")
    if schedule.n_slices > 1:
        raise InputError(
            f"{schedule.name} cuts sequences, and an encoder takes whole ones",
            "leave out --encoder",
        )
    holders = encoder.devices_of(schedule)
    alone, backwards = simulate(schedule, costs), not (encoder.frozen or schedule.only_forwards)
    task = _Task(schedule, alone, costs, holders, backwards, *_first_stage(schedule, alone))
    count = schedule.n_microbatches
    plans = [
        _plan(task, first)
        for first in dict.fromkeys((count, min(schedule.n_devices, count), count // 2, 0))
    ]
    made = [_insert(task, placed) for placed in (*plans, _placed_outside(task))]
    return min(
        made,
        key=lambda each: round(simulate(each, costs).makespan / max(alone.makespan, 1e-300), 9),
    )


def encoder_memory(model: MemoryModel, schedule: Schedule, encoder: Encoder) -> MemoryModel:
    """Return a memory model in bytes with the encoder's memory added."""
    states = np.zeros(schedule.n_devices, np.int64)
    states[encoder.devices_of(schedule)] = encoder.bytes_of("states")
    return replace(
        model, encoder=encoder.bytes_of("activation"), on_device={"encoder's states": states}
    )


@dataclass(frozen=True)
class Misfit:
    """An op of the encoder outside the bubbles."""

    kind: Kind  # EF or EB
    microbatch: int
    device: int
    # time by which it ends after its microbatch would start, or after the language model's last op
    lacks: float


def find_misfits(timeline: Timeline, costs: Costs) -> tuple[float, list[Misfit]]:
    """Return the language model's makespan alone, and the encoder's ops outside its bubbles."""
    schedule = timeline.schedule
    alone = simulate(schedule.compute_only, costs)
    _, begin, _ = _first_stage(schedule.compute_only, alone)
    limit = {
        Kind.EF: begin,
        Kind.EB: np.full(schedule.n_microbatches, timeline.end[schedule.computes].max(initial=0)),
    }
    found = []
    for kind, until in limit.items():
        ops = np.flatnonzero(schedule.kind == kind)
        late = timeline.end[ops] - until[schedule.microbatch[ops]]
        outside = late > NEAR * timeline.makespan
        for op, lacks in zip(ops[outside].tolist(), late[outside].tolist(), strict=True):
            found.append(
                Misfit(kind, int(schedule.microbatch[op]), int(schedule.device[op]), lacks)
            )
    return alone.makespan, sorted(found, key=lambda each: (each.kind, each.microbatch))


def misfits_object(timeline: Timeline, costs: Costs) -> dict[str, Any]:
    """Return ``encoder`` for JSON: the makespan without it, and its ops outside bubbles."""
    alone, misfits = find_misfits(timeline, costs)
    return {"alone": alone, "outside": [vars(each) | {"kind": each.kind.name} for each in misfits]}


@dataclass(frozen=True)
class _PlacedOp:
    """An op of the encoder with its planned start."""

    kind: Kind
    microbatch: int
    device: int
    start: float


@dataclass(frozen=True)
class _Task:
    """The language model alone, and the encoder ops to insert."""

    schedule: Schedule  # of the language model
    timeline: Timeline  # of the language model
    costs: Costs  # with the times of the encoder
    holders: NDArray[np.int64]  # the devices that hold the encoder
    backwards: bool  # whether the encoder has backwards
    first: NDArray[np.int64]  # shape (microbatches,), the device of the first stage
    begin: Floats  # shape (microbatches,), the start of the first stage's forward
    end: Floats  # shape (microbatches,), the end of its backward

    def time(self, kind: Kind, microbatch: int) -> Floats:
        """Return the time of an op on each device, shape (devices,)."""
        times = self.costs.others[kind][:, microbatch]
        return times if self.costs.speed is None else times / self.costs.speed

    def ready(self, microbatch: int) -> Floats:
        """Return the time at which a microbatch's gradient arrives at each device."""
        return self.end[microbatch] + self._comm[self.first[microbatch]]

    def needed(self, microbatch: int) -> Floats:
        """Return the latest end of EF on each device so that its result arrives in time."""
        return self.begin[microbatch] - self._comm[:, self.first[microbatch]]

    @cached_property
    def _comm(self) -> Floats:
        comm = np.broadcast_to(self.costs.comm, (self.schedule.n_devices,) * 2)
        return np.where(np.eye(len(comm), dtype=bool), 0.0, comm)


class _Bubbles:
    """Idle times of the encoder's devices before, between and after the ops of the pipeline."""

    def __init__(self, task: _Task) -> None:
        begin, end, device = list[Floats](), list[Floats](), list[NDArray[np.int64]]()
        for number in task.holders.tolist():
            queue = task.schedule.queue(number)
            begin.append(np.append(-np.inf, np.maximum.accumulate(task.timeline.end[queue])))
            end.append(np.append(task.timeline.start[queue], np.inf))
            device.append(np.full(len(end[-1]), number))
        ends = np.concatenate(end)
        some = ends > np.concatenate(begin)
        self.begin, self.end, self.device = (
            np.concatenate(begin)[some],
            ends[some],
            np.concatenate(device)[some],
        )
        self.near, self.taken = (
            NEAR * task.timeline.makespan,
            np.zeros(task.schedule.n_devices, np.int64),
        )
        if (len(self.begin) + LEAST_EACH) * task.schedule.n_microbatches > MOST_WORK:
            what = (
                f"{task.schedule.n_microbatches:,} microbatches are too many to place in "
                f"{len(self.begin):,} bubbles"
            )
            raise InputError(what, "fewer --mb")

    def take(self, kind: Kind, limit: Floats, time: Floats, only: int | None) -> tuple[int, float]:
        """Take the best place for an op out of the bubbles, and return its device and start.

        EF gets the latest place that ends by the limit, EB the earliest that starts after it, on
        any device or on device ``only``. Of equal places, the device with the fewest of the
        encoder's ops is chosen.
        """
        if kind == Kind.EF:
            start = np.minimum(self.end, limit[self.device]) - time[self.device]
            fits, price = start >= self.begin, -start
        else:
            start = np.maximum(self.begin, limit[self.device])
            fits, price = start + time[self.device] <= self.end, start
        price = np.where(fits & ((self.device == only) | (only is None)), price, np.inf)
        cheapest = np.flatnonzero(price <= price.min() + self.near)
        gap = cheapest[np.argmin(self.taken[self.device[cheapest]])]
        device, at, until = int(self.device[gap]), float(start[gap]), self.end[gap]
        self.taken[device] += 1
        if at <= self.begin[gap] + self.near:
            self.begin[gap] = at + time[device]
            return device, at
        self.end[gap] = at
        if at + time[device] < until - self.near:  # a bubble is left on both sides
            self.begin = np.append(self.begin, at + time[device])
            self.end, self.device = np.append(self.end, until), np.append(self.device, device)
        return device, at


def _plan(task: _Task, forwards_first: int) -> list[_PlacedOp]:
    """Return the encoder's ops in bubbles, placed in this order.

    First EF of the first ``forwards_first`` microbatches and EB of the others are placed, then the
    other op of each on the same device.
    """
    bubbles, placed, device = _Bubbles(task), list[_PlacedOp](), dict[int, int]()
    first, ends = np.argsort(task.begin, kind="stable"), np.argsort(task.end, kind="stable")
    early = np.isin(np.arange(len(first)), first[:forwards_first])
    for kind, part in ((Kind.EF, early), (Kind.EB, ~early), (Kind.EB, early), (Kind.EF, ~early)):
        order = first[::-1] if kind == Kind.EF else ends[: len(ends) * task.backwards]
        for m in order[part[order]].tolist():
            limit = task.needed(m) if kind == Kind.EF else task.ready(m)
            device[m], start = bubbles.take(kind, limit, task.time(kind, m), device.get(m))
            placed.append(_PlacedOp(kind, m, device[m], start))
    return placed


def _placed_outside(task: _Task) -> list[_PlacedOp]:
    """Return all forwards before and all backwards after the pipeline, with balanced loads."""
    load, placed = np.zeros(task.schedule.n_devices), list[_PlacedOp]()
    for turn, m in enumerate(np.argsort(task.begin, kind="stable").tolist()):
        device = int(task.holders[np.argmin(load[task.holders])])
        load[device] += task.time(Kind.EF, m)[device] + (
            task.backwards and task.time(Kind.EB, m)[device]
        )
        placed.append(_PlacedOp(Kind.EF, m, device, turn - LONGEST))
        if task.backwards:
            placed.append(_PlacedOp(Kind.EB, m, device, LONGEST + turn))
    return placed


def _insert(task: _Task, placed: list[_PlacedOp]) -> Schedule:
    """Return the schedule with ops inserted at their planned times.

    Of ops that start at the same time, EF comes before the language model's, EB after it.
    """
    schedule, near = task.schedule, NEAR * task.timeline.makespan
    ops, queues = schedule.packed(), []
    for device, queue in enumerate(map(schedule.queue, range(schedule.n_devices))):
        here = sorted(
            (each for each in placed if each.device == device),
            key=lambda each: (each.start, each.kind),
        )
        starts = np.array([each.start + (near if each.kind == Kind.EB else -near) for each in here])
        at = np.searchsorted(task.timeline.start[queue], starts)
        new = np.array([int(pack(-1, each.microbatch)) | each.kind for each in here], np.int64)
        queues.append(np.insert(ops[queue], np.maximum.accumulate(at), new))
    return schedule.with_queues(queues)


def _first_stage(schedule: Schedule, alone: Timeline) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Return the first stage's device, starts of forwards and ends of backwards by microbatch."""
    first, begin, end = (
        np.zeros(schedule.n_microbatches, np.int64),
        *np.zeros((2, schedule.n_microbatches)),
    )
    for op in np.flatnonzero(schedule.stage == 0).tolist():
        m, kind = schedule.microbatch[op], schedule.kind[op]
        if kind == Kind.F:
            first[m], begin[m] = schedule.device[op], alone.start[op]
        elif mask(BACKWARDS)[kind]:
            end[m] = alone.end[op]
    return first, begin, end
