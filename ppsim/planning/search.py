"""The best ways to train a model on so many GPUs: bounds first, then simulation of what they leave, best bound first.

Candidates are simulated in rounds whose sizes depend on nothing. After each round the slowest plan that is still wanted
gives the time that later candidates must be able to beat. So results and counts are the same on any number of workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ppsim.analysis.pareto import front
from ppsim.core.ops import Kind
from ppsim.core.schedule import place
from ppsim.errors import PpsimError
from ppsim.planning.costs import StageCosts, stage_costs, step_time
from ppsim.planning.hardware import Machine
from ppsim.planning.memory import PARTS, DeviceMemory, device_memory, stage_memory, states_of_devices
from ppsim.planning.model import Model
from ppsim.planning.parallel import Parallel
from ppsim.planning.space import (
    PAIRS,
    TWO_REPLICAS,
    Axes,
    Candidate,
    Group,
    groups,
    layout_of,
    least_held,
    members,
    overlapping,
    short_run,
)
from ppsim.schedules import find

RESERVE = 0.06  # share of a GPU's memory for its driver, communicators, workspaces and what lies between tensors
FIRST_ROUND, ROUND = 32, 512  # candidates; rounds double, as the first ones set a limit to the others
TRIED = 32  # candidates, the smallest first, to find out whether any fits
REFUSED = "the schedule refuses the shape"
STATES = "weights, gradients and optimizer do not fit"
HELD = "activations do not fit"
WORK = "cannot win: work, fill and drain of even stages"
STAGES = "cannot win: work and fill of its slowest device"
SIMULATED = "simulated"
OUTCOMES = (REFUSED, STATES, HELD, WORK, STAGES, SIMULATED)
ROUNDING = 1e-9

Row = dict[str, Any]
Map = Callable[[Callable[[Any], Row], Sequence[Any]], Iterator[tuple[int, Row]]]


@dataclass(frozen=True)
class Task:
    """What a plan is for.

    Attributes:
        model: the model.
        machine: the cluster and its GPUs.
        gpus: how many of them.
        gbs: sequences in a step.
        axes: what may be chosen.
        cap: bytes that a GPU has for training.
        keep: how many plans are wanted.
        front: whether slower plans that hold less memory are wanted too.
        known: seconds of a step that is known to be possible; slower groups are not even counted.
    """

    model: Model
    machine: Machine
    gpus: int
    gbs: int
    axes: Axes
    cap: float
    keep: int = 10
    front: bool = False
    known: float = float("inf")


def usable_bytes(machine: Machine) -> float:
    """Return the bytes of a GPU that training can use, after what drivers and communicators take."""
    return machine.gpu.memory_gib * 2**30 * (1 - RESERVE)


class Bound(NamedTuple):
    """A candidate, the time it takes at least, and the bytes it holds at least."""

    seconds: float
    candidate: Candidate
    bytes_: float


@dataclass
class Found:
    """What a search has found so far.

    Attributes:
        rows: plans that fit, best first; with the front, those on it too.
        counts: candidates by outcome.
        total: candidates in all.
        least: the fewest bytes that a candidate holds, by its bound where it was not evaluated, and that candidate.
        complete: whether the search has come to its end.
    """

    rows: list[Row] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    total: int = 0
    least: tuple[float, Candidate] | None = None
    complete: bool = False


def search(task: Task, run: Map, found: Found, report: Callable[[float, str], None]) -> None:
    """Search for the best plans; ``found`` holds what is known at any time, so that an interruption loses nothing.

    Args:
        task: what the plan is for.
        run: gives the rows of tasks by a function of them, as :func:`ppsim.base.workers.map_tasks`.
        found: filled in.
        report: called with the share done and a line.
    """
    report(0.0, "bounds")
    left = _bound_all(task, found)
    tried, exact, size = 0, None, FIRST_ROUND
    while left:
        limit = _limit(task, found.rows)
        able = _leave_out(left, limit, found)
        chosen, left = able[:size], able[size:]
        size = min(2 * size, ROUND)
        # Neighbours share a schedule, which a worker keeps.
        chosen.sort(key=lambda bound: (*bound.candidate[1:], bound.candidate.group))
        evaluate = Evaluate(task, limit)
        candidates = [bound.candidate for bound in chosen]
        rows: list[Row | None] = [None] * len(chosen)
        for index, row in run(evaluate, candidates):
            rows[index] = row
            tried += 1
            report(tried / max(1, tried + len(left)), f"{tried:,} tried, {len(left):,} left")
            if row["outcome"] == HELD and not found.rows:
                exact = min(exact or (row["memory_bytes"], candidates[index]), (row["memory_bytes"], candidates[index]))
            if "step_s" in row:
                found.rows = _best(task, [*found.rows, row])
        found.counts.update(row["outcome"] for row in rows if row)
    found.least = exact or found.least
    found.complete = True


def gpus_that_fit(task: Task) -> int | None:
    """Find the fewest GPUs, doubling them, on which a candidate fits; None up to 64 times as many."""
    for factor in (2, 4, 8, 16, 32, 64):
        axes = replace(task.axes, recompute=task.axes.recompute[-1:], layouts=task.axes.layouts[:1])
        more = replace(task, gpus=task.gpus * factor, axes=axes)
        bounds = sorted(_bound_all(more, Found()), key=lambda bound: bound.bytes_)
        if any("step_s" in Evaluate(more)(bound.candidate) for bound in bounds[:TRIED]):
            return more.gpus
    return None


def _bound_all(task: Task, found: Found) -> list[Bound]:
    """List candidates that may fit, by the time they take at least; count the others."""
    bounds = []
    split = {name: find(name).split for name in task.axes.schedules} | {"": False}
    for group in groups(task.model, task.machine.per_node, task.gpus, task.gbs, task.axes):
        whole = _Whole(task, group)
        if task.known < float("inf") and group.microbatches * sum(whole.work(True, "none")) / group.pp >= task.known:
            continue
        for candidate in members(task.model, group, task.axes):
            found.total += 1
            made = _bound(task.model, candidate, whole, split[candidate.schedule])
            if made is None:
                found.counts[REFUSED] += 1
                continue
            bound, states = made
            if found.least is None or bound.bytes_ < found.least[0]:
                found.least = bound.bytes_, candidate
            if bound.bytes_ > task.cap:
                found.counts[STATES if states > task.cap else HELD] += 1
            else:
                bounds.append(bound)
    bounds.sort()
    return bounds


class _Whole:
    """The whole model on one pipeline device, with the sizes of a group: its work and bytes, once computed."""

    def __init__(self, task: Task, group: Group) -> None:
        self.task, self.group = task, group
        self.works: dict[tuple[bool, str], tuple[float, float]] = {}
        self.bytes: dict[str, tuple[tuple[float, float], float]] = {}

    def work(self, paired: bool, recompute: str) -> tuple[float, float]:
        """Return the seconds of forward and backward for a microbatch; ``paired``: in pairs that hide all-to-all."""
        if (paired, recompute) not in self.works:
            g, base = self.group, self.task.axes.base
            base = overlapping(base) if paired and g.ep > 1 else base
            sizes = (g.tp, g.cp, g.ep, g.mbs)
            self.works[paired, recompute] = _work(self.task.model, self.task.machine, base, sizes, recompute)
        return self.works[paired, recompute]

    def held(self, recompute: str) -> tuple[tuple[float, float], float]:
        """Return the bytes of states, of one replica and of two, and those of activations for a microbatch."""
        if recompute not in self.bytes:
            g = self.group
            sizes = (g.tp, g.cp, g.ep, g.mbs)
            self.bytes[recompute] = _bytes(self.task.model, self.task.axes.base, sizes, g.dp, recompute)
        return self.bytes[recompute]


def _bound(model: Model, candidate: Candidate, whole: _Whole, split: bool) -> tuple[Bound, float] | None:
    """Bound a candidate by whole layers, without its stages; with the bytes of states alone. None: it is refused."""
    g, name = candidate.group, candidate.schedule
    held = least_held(name, g.pp, candidate.vp, short_run(g.pp, g.microbatches))
    if held is None:
        return None
    share, paired, two = _share(model, candidate), name in PAIRS, name in TWO_REPLICAS
    forward, backward = whole.work(paired, "none")
    both, activation = whole.held("none")
    if share:
        backward += share * (whole.work(paired, candidate.recompute)[1] - backward)
        activation += share * (whole.held(candidate.recompute)[1] - activation)
    ends = forward + (0.0 if split else backward)
    away = g.pp // 2 - 1 if two else g.pp - 1  # stages from an end to the device that is farthest from all ends
    seconds = g.microbatches * (forward + backward) / g.pp + ends * away / (g.pp * candidate.vp)
    states = both[two] / g.pp
    return Bound(seconds * (1 - ROUNDING), candidate, states + held * activation), states


def _share(model: Model, candidate: Candidate) -> float:
    """The share of layers that recompute, at most."""
    if candidate.recompute == "none":
        return 0.0
    return 1.0 if candidate.layers < 0 else candidate.layers * candidate.group.pp * candidate.vp / model.layers


@lru_cache(maxsize=65536)
def _work(
    model: Model, machine: Machine, base: Parallel, sizes: tuple[int, int, int, int], recompute: str
) -> tuple[float, float]:
    """Seconds of the forward and the backward of the whole model for a microbatch."""
    # What ZeRO and offload add is no straight line over the layers that recompute, so no bound has it.
    alone = replace(_alone(base, sizes, sizes[2], recompute), zero=min(base.zero, 1), offload=0.0)
    time = stage_costs(model, machine, alone).time
    return float(time[Kind.F].sum()), float(time[Kind.B].sum())


@lru_cache(maxsize=65536)
def _bytes(
    model: Model, base: Parallel, sizes: tuple[int, int, int, int], dp: int, recompute: str
) -> tuple[tuple[float, float], float]:
    """Bytes of the states of the whole model, once and of two replicas, and of its activations for a microbatch."""
    alone = _alone(base, sizes, dp, recompute)
    found = stage_memory(model, alone)
    states = [
        float(sum(part.sum() for part in states_of_devices(alone, found, np.zeros((replicas, 1), np.int32))))
        for replicas in (1, 2)
    ]
    return (states[0], states[1]), float(found.activations.sum())


def _alone(base: Parallel, sizes: tuple[int, int, int, int], dp: int, recompute: str) -> Parallel:
    """The whole model on one pipeline device."""
    tp, cp, ep, mbs = sizes
    return replace(
        base, tp=tp, cp=cp, ep=ep, dp=dp, pp=1, vp=1, mbs=mbs, recompute=recompute, recompute_layers=None, schedule=""
    )


def _limit(task: Task, rows: Sequence[Row]) -> tuple[tuple[float, float], ...]:
    """What a further candidate must beat in time, among plans of as few bytes: pairs of seconds and bytes."""
    if task.front:
        return tuple((row["step_s"], row["memory_bytes"]) for row in rows if row["pareto"])
    best = rows[task.keep - 1]["step_s"] if len(rows) >= task.keep else task.known
    return ((best, 0.0),) if best < float("inf") else ()


def _beaten(limit: tuple[tuple[float, float], ...], seconds: float, bytes_: float) -> bool:
    return any(best <= seconds and held <= bytes_ for best, held in limit)


def _leave_out(bounds: list[Bound], limit: tuple[tuple[float, float], ...], found: Found) -> list[Bound]:
    """Leave out the candidates that cannot win any more, and count them."""
    if not limit:
        return bounds
    seconds = np.array([bound.seconds for bound in bounds])
    held = np.array([bound.bytes_ for bound in bounds])
    out = np.zeros(len(bounds), np.bool_)
    for best, least in limit:
        out |= (seconds >= best) & (held >= least)
    found.counts[WORK] += int(out.sum())
    return [bound for bound, gone in zip(bounds, out.tolist(), strict=True) if not gone]


def _best(task: Task, rows: list[Row]) -> list[Row]:
    """The rows that are wanted, best first."""
    rows.sort(key=lambda row: (row["step_s"], row["memory_bytes"], row["key"]))
    wanted = rows[: task.keep]
    if not task.front:
        return wanted
    best = front(np.array([(row["step_s"], row["memory_bytes"]) for row in rows]))
    for row, on_front in zip(rows, best.tolist(), strict=True):
        row["pareto"] = on_front
    return [row for place_, row in enumerate(rows) if row["pareto"] or place_ < task.keep]


@dataclass(frozen=True)
class Evaluate:
    """A function of a candidate that gives its row: how it came out and, where it fits and may win, its numbers.

    Attributes:
        task: what the plan is for.
        limit: pairs of seconds and bytes that it must beat.
    """

    task: Task
    limit: tuple[tuple[float, float], ...] = ()

    def __call__(self, candidate: Candidate) -> Row:
        """Evaluate one candidate."""
        try:
            return self._evaluate(candidate)
        except PpsimError:
            return {"outcome": REFUSED}

    def _evaluate(self, candidate: Candidate) -> Row:
        task, g = self.task, candidate.group
        parallel = candidate.parallel(task.axes.base)
        layout = layout_of(task.model, candidate)
        devices = np.zeros((1, 1), np.int32)
        if g.pp > 1:
            devices = place(find(candidate.schedule).placement, g.pp, g.pp * candidate.vp).devices
        held = stage_memory(task.model, parallel, layout)
        states = float(np.sum(states_of_devices(parallel, held, devices), axis=0).max())
        if states > task.cap:
            return {"outcome": HELD, "memory_bytes": states}
        peaks = device_memory(task.model, parallel, layout, held)
        memory = float(peaks.total.max())
        if memory > task.cap:
            return {"outcome": HELD, "memory_bytes": memory}
        costs = stage_costs(task.model, task.machine, parallel, layout)
        if _beaten(self.limit, least_seconds(costs, devices, g.microbatches) * (1 - ROUNDING), memory):
            return {"outcome": STAGES}
        return make_row(task.model, task.machine, parallel, candidate, costs, peaks)


def make_row(
    model: Model,
    machine: Machine,
    parallel: Parallel,
    candidate: Candidate,
    costs: StageCosts,
    peaks: DeviceMemory,
) -> Row:
    """Simulate a candidate's step and write its row, as ``plan --json`` prints it."""
    step = step_time(model, machine, parallel, costs=costs)
    scale = parallel.microbatches / parallel.pp
    total = peaks.total
    again = scale * float(costs.time[Kind.R].sum())
    waits = scale * float(costs.communication.sum())
    work = scale * float(costs.time[Kind.F].sum() + costs.time[Kind.B].sum())
    return {
        "outcome": SIMULATED,
        "key": candidate.key,
        "tp": parallel.tp,
        "cp": parallel.cp,
        "ep": parallel.ep,
        "pp": parallel.pp,
        "dp": parallel.dp,
        "vp": parallel.vp,
        "mbs": parallel.mbs,
        "microbatches": parallel.microbatches,
        "schedule": candidate.schedule,
        "recompute": parallel.recompute,
        "recompute_layers": parallel.recompute_layers,
        "layout": candidate.layout,
        "step_s": float(step.seconds),
        "tokens_per_s": float(step.tokens_per_s),
        "mfu": float(step.mfu),
        "tflops_per_gpu": float(step.tflops),
        "bubble": float(step.bubble),
        "memory_bytes": float(total.max()),
        "memory_of_devices": total.tolist(),
        "memory_parts": {part: float(getattr(peaks, part)[total.argmax()]) for part in PARTS},
        "terms": {
            "compute": work - waits - again,
            "recompute": again,
            "communication": waits,
            "bubble": float(step.pipeline) - work,
            "gradients": float(step.reduction),
            "optimizer": float(step.optimizer),
        },
        "pareto": False,
    }


def least_seconds(costs: StageCosts, devices: np.ndarray[Any, Any], microbatches: int) -> float:
    """Bound the time of a pipeline: a device's work after the forwards that must come before its first one.

    Args:
        costs: of the stages.
        devices: shape (replicas, stages), the device of each; replicas share the microbatches evenly.
        microbatches: of a step.
    """
    each = np.tile(costs.time[Kind.F] + costs.time[Kind.B], len(devices)) / len(devices)
    work = np.bincount(devices.ravel(), each) * microbatches
    before, first = np.cumsum(costs.time[Kind.F]) - costs.time[Kind.F], np.empty((len(devices), len(work)))
    for row, replica in zip(first, devices, strict=True):
        row[replica[::-1]] = before[::-1]  # of a device's stages the first one is written last
    return float((work + first.min(axis=0)).max())
