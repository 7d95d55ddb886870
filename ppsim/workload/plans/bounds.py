"""Bounds on what a candidate takes and holds at least, from whole layers, before its stages are looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ppsim.core.ops import Kind
from ppsim.schedules import find
from ppsim.workload.cost.costs import StageCosts, stage_costs
from ppsim.workload.cost.memory import stage_memory, states_of_devices
from ppsim.workload.hardware.hardware import Machine
from ppsim.workload.model.model import Model
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans.space import (
    PAIRS,
    TWO_REPLICAS,
    Candidate,
    Group,
    groups,
    habits,
    least_held,
    members,
    short_run,
)
from ppsim.workload.plans.task import HELD, REFUSED, ROUNDING, STATES, Found, Task


class Bound(NamedTuple):
    """A candidate, the time it takes at least, and the bytes it holds at least."""

    seconds: float
    candidate: Candidate
    bytes_: float


def list_candidates(task: Task) -> Iterator[Candidate]:
    """List the candidates of a search, group by group; groups that cannot beat the time that is known are left out."""
    for group in groups(task.model, task.machine.per_node, task.gpus, task.gbs, task.axes):
        if task.known < float("inf"):
            work = Whole(task, group).work(True, "none")
            if group.microbatches * sum(work) / group.pp >= task.known:
                continue
        yield from members(task.model, group, task.axes)


def bound_candidates(task: Task, candidates: Iterable[Candidate], found: Found) -> list[Bound]:
    """Bound candidates and list those that may fit, by the time they take at least; count the others."""
    bounds, group, whole = [], None, None
    split = {name: find(name).split for name in (*task.axes.schedules, *task.axes.fitted)} | {"": False}
    for candidate in candidates:
        found.total += 1
        if whole is None or candidate.group != group:
            group, whole = candidate.group, Whole(task, candidate.group)
        made = bound_candidate(task.model, candidate, whole, split[candidate.schedule])
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


class Whole:
    """The whole model on one pipeline device, with the sizes of a group: its work and bytes, once computed."""

    def __init__(self, task: Task, group: Group) -> None:
        self.task, self.group = task, group
        self.works: dict[tuple[bool, str], tuple[float, float]] = {}
        self.bytes: dict[tuple[str, int, int], tuple[tuple[float, float], float]] = {}

    def work(self, paired: bool, recompute: str) -> tuple[float, float]:
        """Return the seconds of forward and backward for a microbatch; ``paired``: in pairs that hide all-to-all.

        What ZeRO-2, ZeRO-3 and offload add is no straight line over the layers that recompute, so no bound has it.
        """
        key = paired, recompute
        if key not in self.works:
            g = self.group
            base = habits(self.task.axes.base, paired and g.ep > 1, 1, 0)
            sizes = (g.tp, g.cp, g.ep, g.mbs)
            self.works[key] = _work(self.task.model, self.task.machine, base, sizes, recompute)
        return self.works[key]

    def held(self, recompute: str, zero: int, offload: int) -> tuple[tuple[float, float], float]:
        """Return the bytes of states, of one replica and of two, and those of activations for a microbatch."""
        key = recompute, zero, offload
        if key not in self.bytes:
            g = self.group
            base = habits(self.task.axes.base, False, zero, offload)
            self.bytes[key] = _bytes(self.task.model, base, (g.tp, g.cp, g.ep, g.mbs), g.dp, recompute)
        return self.bytes[key]


def bound_candidate(model: Model, candidate: Candidate, whole: Whole, split: bool) -> tuple[Bound, float] | None:
    """Bound a candidate by whole layers, without its stages; with the bytes of states alone. None: it is refused."""
    g, name = candidate.group, candidate.schedule
    held = least_held(name, g.pp, candidate.vp, short_run(g.pp, g.microbatches))
    if held is None:
        return None
    share, paired, two = _share(model, candidate), name in PAIRS, name in TWO_REPLICAS
    zero, offload = candidate.zero, candidate.offload
    forward, backward = whole.work(paired, "none")
    both, activation = whole.held("none", zero, offload)
    if share:
        backward += share * (whole.work(paired, candidate.recompute)[1] - backward)
        activation += share * (whole.held(candidate.recompute, zero, offload)[1] - activation)
    work, ends = forward + backward, forward + (0.0 if split else backward)
    seconds = work * least_share(g.pp, g.microbatches, 0.0 if two else ends / work / candidate.vp)
    states = both[two] / g.pp
    return Bound(seconds * (1 - ROUNDING), candidate, states + held * activation), states


def least_share(devices: int, microbatches: int, ends: float) -> float:
    """The makespan in works of a microbatch, at least, however the work is split over the devices.

    A device is busy with its share for each microbatch, after and before the ``ends`` of the shares ahead of it. The
    largest of these sums is least where all are equal, for shares that fall by a factor of 1 - ends/microbatches.
    """
    fraction = ends / microbatches
    return ends / (1 - (1 - fraction) ** devices) if fraction else microbatches / devices


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
    time = stage_costs(model, machine, _alone(base, sizes, sizes[2], recompute)).time
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
