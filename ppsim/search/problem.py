"""The problem that a search for orders solves, and its solution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ppsim.core.costs import Costs
from ppsim.core.ops import Kind
from ppsim.core.schedule import Placement, Schedule
from ppsim.core.timeline import Timeline
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import span_of
from ppsim.errors import InputError

Objective = Literal["span", "makespan"]
# Sums of shares of activations have rounding errors; different sums of a real problem differ more.
ROUNDING = 1e-9
# Ops from which on a solution keeps its timeline, as simulating again would take too long.
LARGE = 1_000_000


@dataclass(frozen=True)
class Problem:
    """A pipeline to schedule: its placement, the times of its ops, and the memory of its devices.

    Every stage runs F and, as B or as I and W, a backward for every microbatch.
    """

    placement: Placement  # the device of each stage, with one replica
    microbatches: int  # M
    # times per stage and latencies of messages, without factors per microbatch; times of pairs
    # lower the bounds, but a search writes no pairs
    costs: Costs
    # memory cap in activations, one number or one per device; None for no cap
    cap: float | Sequence[float] | None = None
    after_i: float = 1.0  # share of an activation that is still held between I and W
    # the number to minimize: the span (longest time from a device's first start to its last end) or
    # the makespan; the other one breaks ties
    objective: Objective = "span"
    # layers of each stage, to count activations per layer; None to count them per stage
    layers: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.placement.n_replicas != 1:
            raise InputError(
                "a search needs a placement with one replica of the model", "linear, loop or v"
            )
        if self.microbatches < 1:
            raise InputError(f"a search needs at least one microbatch, got {self.microbatches}")
        if not 0 <= self.after_i <= 1:
            raise InputError(
                f"the share of an activation held after I must lie between 0 and 1, got "
                f"{self.after_i:g}"
            )
        if not self.costs.is_per_stage:
            raise InputError("a search takes the same costs for every microbatch and device")
        if self.costs.time.shape[1] != self.placement.n_stages:
            raise InputError(
                f"the costs are for {self.costs.time.shape[1]} stages, the placement has "
                f"{self.placement.n_stages}"
            )
        if self.cap is not None and (many := np.size(np.asarray(self.cap))) not in (
            1,
            self.n_devices,
        ):
            raise InputError(
                f"{many} caps for {self.n_devices} devices", "give one cap, or one per device"
            )
        if self.layers is not None and (len(self.layers) != self.n_stages or min(self.layers) < 0):
            raise InputError(
                f"layers of {len(self.layers)} stages for {self.n_stages}, each at least 0"
            )

    @property
    def n_devices(self) -> int:
        """The number of devices, P."""
        return self.placement.n_devices

    @property
    def n_stages(self) -> int:
        """The number of stages, S."""
        return self.placement.n_stages

    @cached_property
    def device(self) -> NDArray[np.int32]:
        """Shape (stages,): the device of each stage."""
        return self.placement.devices[0]

    @cached_property
    def caps(self) -> NDArray[np.float64]:
        """Shape (devices,): the memory cap of each device in activations, infinite without one."""
        return np.broadcast_to(
            np.inf if self.cap is None else np.asarray(self.cap, np.float64), self.n_devices
        ).copy()

    @property
    def holder(self) -> str:
        """The unit in which activations count: ``stage`` or ``layer``."""
        return "stage" if self.layers is None else "layer"

    @cached_property
    def amounts(self) -> NDArray[np.int64]:
        """Shape (stages,): the activations that an F of each stage leaves."""
        return (
            np.ones(self.n_stages, np.int64)
            if self.layers is None
            else np.array(self.layers, np.int64)
        )

    @cached_property
    def least_caps(self) -> NDArray[np.int64]:
        """Shape (devices,): the least feasible cap of each device: one F of each of its stages.

        No schedule needs less, as a microbatch's F run on all stages before its first I. A schedule
        that finishes each microbatch before the next needs no more.
        """
        least = np.zeros(self.n_devices, np.int64)
        np.add.at(least, self.device, self.amounts)
        return least

    @cached_property
    def changes(self) -> NDArray[np.float64]:
        """Shape (kinds, stages): the activations that each op adds, negative if it frees some."""
        return _changes(self.after_i)[:, None] * self.amounts

    @cached_property
    def latency(self) -> NDArray[np.float64]:
        """Shape (stages, 2): latency of the inputs of F and I, zero from the same device."""
        return np.ascontiguousarray(latencies(self.placement, self.costs.comm)[:, 0].T)

    @cached_property
    def joins(self) -> NDArray[np.bool_]:
        """Shape (stages,): whether B takes less time than I and W.

        On other stages I and W in a row are never worse than B.
        """
        time = self.costs.time
        return time[Kind.B] < (time[Kind.I] + time[Kind.W]) * (1 - ROUNDING)

    @cached_property
    def pairs(self) -> bool:
        """Whether some pair of F and B takes less time than its ops one after the other."""
        time, pair = self.costs.time, self.costs.pair
        if pair is None:
            return False
        backward = np.minimum(time[Kind.B], time[Kind.I] + time[Kind.W])
        # The time of a pair is the mean of two stages; find what F and B can save at most.
        saved = np.full((2, self.n_devices), -np.inf)
        for row, alone in enumerate((time[Kind.F], backward)):
            np.maximum.at(saved[row], self.device, alone - pair / 2)
        return bool((saved.sum(axis=0) > ROUNDING * pair.max()).any())

    @cached_property
    def is_feasible(self) -> bool:
        """Whether any schedule fits the caps."""
        return bool((self.caps + ROUNDING >= self.least_caps).all())


@dataclass(frozen=True)
class Solution:
    """A schedule that solves a problem, with its metrics."""

    schedule: Schedule
    makespan: float  # end of the last op
    span: float  # longest time from a device's first start to its last end
    # shape (devices,), peak of activations, including shares of them
    peak_activations: NDArray[np.float64]
    origin: str  # the method or schedule that it came from, as text
    # of a large schedule only, so that it need not be simulated again
    timeline: Timeline | None = field(default=None, repr=False, compare=False)

    @property
    def most_held(self) -> float:
        """The largest memory of a device, in activations."""
        return float(self.peak_activations.max(initial=0.0))

    def score(self, objective: Objective) -> tuple[float, float]:
        """Return the sort key of a search: the objective, then the other time; less is better."""
        return (self.span, self.makespan) if objective == "span" else (self.makespan, self.span)


def latencies(
    placement: Placement, comm: float | NDArray[np.float64], backward: bool = True
) -> NDArray[np.float64]:
    """Return the latency of the inputs of F and of backwards, shape (2, replicas, stages)."""
    device, P = placement.devices, placement.n_devices
    found = np.zeros((2, *device.shape))
    link = np.ndim(comm) > 0
    for row, other in ((0, np.roll(device, 1, axis=1)), (1, np.roll(device, -1, axis=1))):
        latency = (
            np.asarray(comm).reshape(P, P)[other, device]
            if link
            else np.full(device.shape, float(comm))
        )
        found[row] = np.where(other == device, 0.0, latency)
    found[0, :, 0] = found[1, :, -1] = 0.0
    if not backward:
        found[1] = 0.0
    return found


def _changes(after_i: float) -> NDArray[np.float64]:
    """Return the share of an activation that an op of each kind adds, shape (kinds,)."""
    change = np.zeros(len(Kind))
    change[[Kind.F, Kind.B]] = 1.0, -1.0
    change[[Kind.I, Kind.W]] = after_i - 1.0, -after_i
    return change


def held_at_most(
    schedule: Schedule, after_i: float = 1.0, amounts: NDArray[np.int64] | None = None
) -> NDArray[np.float64]:
    """Return the peak of activations of each device, shape (devices,).

    F allocates the amount of its stage, 1 without ``amounts``. I frees all but the share
    ``after_i`` of it, and W the rest; B frees all.
    """
    each = np.outer(_changes(after_i), np.ones(schedule.n_stages) if amounts is None else amounts)
    queues = map(schedule.queue, range(schedule.n_devices))
    # Queue by queue, as columns of millions of ops are slow.
    changes = (each[schedule.kind[queue], schedule.stage[queue]] for queue in queues)
    return np.array([np.cumsum(change).max(initial=0.0) for change in changes])


def measure_held(problem: Problem, schedule: Schedule) -> NDArray[np.float64]:
    """Return the peak of activations of each device in the problem's unit, shape (devices,)."""
    return held_at_most(schedule, problem.after_i, problem.amounts)


def fits(problem: Problem, schedule: Schedule) -> bool:
    """Return True if a schedule solves the problem within the caps and without pairs."""
    return (
        solves(problem, schedule)
        and not len(schedule.second_of_pairs)
        and is_held(problem, schedule)
    )


def is_held(problem: Problem, schedule: Schedule) -> bool:
    """Return True if every device stays within its cap."""
    return bool((measure_held(problem, schedule) <= problem.caps + ROUNDING).all())


def solves(problem: Problem, schedule: Schedule) -> bool:
    """Return True if a schedule runs all of a problem's ops on its placement, in any memory.

    It may run ops as pairs.
    """
    cells, count = (
        problem.n_stages * problem.microbatches,
        np.bincount(schedule.kind, minlength=len(Kind)),
    )
    f, b, i, w = count[[Kind.F, Kind.B, Kind.I, Kind.W]].tolist()
    return (
        np.array_equal(schedule.placement.devices, problem.placement.devices)
        and schedule.n_microbatches == problem.microbatches
        and f == b + i == b + w == cells
        and f + b + i + w == len(schedule)
    )


def evaluate(problem: Problem, schedule: Schedule, origin: str) -> Solution:
    """Return a schedule with its metrics at the problem's costs (Deadlock: it cannot finish)."""
    timeline = simulate(schedule, problem.costs)
    held = measure_held(problem, schedule)
    kept = timeline if len(schedule) >= LARGE else None
    return Solution(schedule, timeline.makespan, span_of(timeline), held, origin, kept)
