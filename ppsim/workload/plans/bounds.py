"""Lower bounds on a candidate plan: its seconds from whole layers, its bytes from its stages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppsim.core.ops import Kind
from ppsim.core.schedule import place
from ppsim.schedules import find
from ppsim.workload.cost.costs import StageCosts, content_times, stage_costs
from ppsim.workload.cost.kinds import kinds_of_devices
from ppsim.workload.cost.memory import Bytes, StageMemory, content_memory
from ppsim.workload.hardware.hardware import Machine
from ppsim.workload.model.contents import StageContent
from ppsim.workload.model.model import Layer, Model, kinds_of
from ppsim.workload.model.operators import Floats
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans.space import (
    BY_SPEED,
    LAYOUTS,
    PAIRS,
    TWO_REPLICAS,
    Candidate,
    Group,
    HeldAtLeast,
    cuts_sequences,
    groups,
    layout_layers,
    least_memory,
    members,
    short_run,
    stage_contents,
    with_techniques,
)
from ppsim.workload.plans.task import HELD, MISS, REFUSED, ROUNDING, STATES, Findings, Task


class Bound(NamedTuple):
    """A candidate with lower bounds on its step in seconds and on its memory in bytes."""

    seconds: float
    candidate: Candidate
    bytes_: float


def list_candidates(task: Task) -> Iterator[Candidate]:
    """Yield the candidates of a search, without groups that cannot beat the known time."""
    for group in groups(task.model, task.machine.per_node, task.gpus, task.gbs, task.axes):
        if task.known < float("inf") and not task.machine.kinds:
            work = GroupBounds(task, group).work(True, "none")
            if group.microbatches * sum(work) / group.pp >= task.known:
                continue
        yield from members(task.model, group, task.axes)


def bound_candidates(task: Task, candidates: Iterable[Candidate], found: Findings) -> list[Bound]:
    """Return the candidates that may fit, with their bounds, the fastest first.

    The others are counted in ``found`` by the reason why they do not fit.
    """
    bounds, group_bounds = [], None
    split = {name: find(name).split for name in (*task.axes.schedules, *task.axes.fitted)}
    split[""] = False
    for (group, _, schedule), alike in groupby(candidates, key=lambda candidate: candidate[:3]):
        run = list(alike)
        found.total += len(run)
        if group_bounds is None or group_bounds.group != group:
            group_bounds = GroupBounds(task, group)
        memory = group_bounds.memory(run)
        if memory is None:
            found.counts[REFUSED] += len(run)
            continue
        for candidate, reason, bytes_ in zip(run, *memory, strict=True):
            if found.least_memory is None or bytes_ < found.least_memory[0]:
                found.least_memory = bytes_, candidate
            misses_barely = bool(reason) and bytes_ <= task.cap * (1 + MISS)
            if reason:
                found.counts[reason] += 1
            if not reason or misses_barely:
                seconds = group_bounds.seconds(candidate, split[schedule])
                if misses_barely:
                    found.barely.append((seconds, candidate))
                else:
                    bounds.append(Bound(seconds, candidate, bytes_))
    bounds.sort()
    return bounds


class GroupBounds:
    """Lower bounds for the candidates of one group, with caches of what they share.

    Bounds on time follow from the whole model's work on one pipeline device, bounds on memory from
    the bytes of stages.
    """

    def __init__(self, task: Task, group: Group) -> None:
        self.task, self.group = task, group
        self.exceptional = frozenset(name for name, _ in task.axes.base.by_schedule)
        self.works: dict[tuple[bool, str, str], tuple[float, float]] = {}
        self.contents: dict[
            tuple[str, int, int, str], tuple[Parallel, dict[StageContent, tuple[float, ...]]]
        ] = {}
        self.stages: dict[tuple[Any, ...], Stages] = {}
        self.layers: dict[tuple[str, bool, str, int, str], Floats] = {}
        self.times: dict[tuple[Any, ...], tuple[float, Floats]] = {}
        self.parts: dict[tuple[str, int, int, str], tuple[Bytes, float]] = {}
        self.room: dict[Candidate, NDArray[np.int64]] = {}
        self.caps: dict[str, Bytes] = {}

    def exceptional_schedule(self, schedule: str) -> str:
        """Return the schedule if the software has exceptions for it (``by_schedule``), else ''."""
        return schedule if schedule in self.exceptional else ""

    def work(self, paired: bool, recompute: str, schedule: str = "") -> tuple[float, float]:
        """Return the seconds of a microbatch's forward and backward in the whole model.

        ``paired`` means pairs of F and B that hide all-to-all. Communication of ZeRO-2, ZeRO-3 and
        offload is excluded, since its time is not linear in the number of recomputed layers.
        """
        key = paired, recompute, self.exceptional_schedule(schedule)
        if key not in self.works:
            g = self.group
            base = with_techniques(
                self.task.axes.base, paired, 1, 0, self.exceptional_schedule(schedule)
            )
            sizes = (g.tp, g.cp, g.ep, g.mbs)
            self.works[key] = _work(self.task.model, self.task.machine, base, sizes, recompute)
        return self.works[key]

    def seconds(self, candidate: Candidate, split: bool) -> float:
        """Return a lower bound on a candidate's step in seconds.

        ``split`` means backwards that are split into I and W.
        """
        g, name = self.group, candidate.schedule
        share, paired, two = (
            _recomputed_share(self.task.model, candidate),
            name in PAIRS,
            name in TWO_REPLICAS,
        )
        if self.task.machine.kinds:
            return self._time_on_kinds(candidate, paired, 0.0 if split else 1.0)
        forward, backward = self.work(paired, "none", name)
        if share:
            backward += share * (self.work(paired, candidate.recompute, name)[1] - backward)
        work, ends = forward + backward, forward + (0.0 if split else backward)
        ends /= find(name).slices if name else 1
        filled = two or self.task.axes.base.post_validation
        least = least_share(g.pp, g.microbatches, 0.0 if filled else ends / work / candidate.vp)
        return work * least * (1 - ROUNDING)

    def _time_on_kinds(self, candidate: Candidate, paired: bool, backwards: float) -> float:
        """Return a lower bound on a candidate's step in seconds on a mixed cluster.

        It counts layers only, not embedding and output. ``backwards`` is the share of a backward
        that follows a device's last one.
        """
        g, model, layout = self.group, self.task.model, candidate.layout
        key = (
            layout,
            paired,
            candidate.recompute,
            candidate.layers,
            self.exceptional_schedule(candidate.schedule),
        )
        split = layout_layers(model, g.pp * candidate.vp, layout)
        assert split is not None
        if key not in self.layers:
            machine = self.task.machine_of(layout)
            recomputing = replace(
                candidate.parallel(self.task.axes.base), zero=1, offload=0.0, recompute_layers=None
            )
            # least share of a stage's layers that recompute
            share = 1.0 if candidate.layers < 0 else candidate.layers / max(split)
            plain = layer_times(model, machine, replace(recomputing, recompute="none"))
            self.layers[key] = plain + share * (layer_times(model, machine, recomputing) - plain)
        in_order = (
            candidate.vp == 1
            and candidate.schedule not in TWO_REPLICAS
            and not cuts_sequences(candidate.schedule)
            and not self.task.axes.base.post_validation
        )
        layers = self.layers[key]
        if (*key, in_order, backwards) not in self.times:
            counts = np.array([count for _, count in _kinds(model)])
            self.times[*key, in_order, backwards] = (
                least_on_kinds(layers, g.microbatches, in_order, backwards),
                (layers.sum(axis=0) / counts[:, None]).min(axis=0),
            )
        least, each = self.times[*key, in_order, backwards]
        if candidate in self.room:
            count = np.arange(1, model.layers + 1)[:, None]
            longest = least_longest(
                np.where(count <= self.room[candidate], count * each, np.inf), candidate.vp
            )
            least = max(least, longest * g.microbatches)
        elif g.pp > 1:
            devices = place(find(candidate.schedule).placement, g.pp, g.pp * candidate.vp).devices
            work = (
                each
                * np.bincount(devices.ravel(), np.tile(split, len(devices)), g.pp)
                / len(devices)
            )
            least = max(least, float(work.max()) * g.microbatches)
        return least * (1 - ROUNDING)

    def memory(self, run: Sequence[Candidate]) -> tuple[list[str], list[float]] | None:
        """Return lower bounds on the memory of candidates.

        Args:
            run: candidates of one schedule and number of chunks.

        Returns:
            For each candidate the reason why it cannot fit, or '', and the least bytes of its
                fullest device; None if the schedule refuses the shape.
        """
        g, vp, schedule = run[0][:3]
        least = least_memory(schedule, g.pp, vp, short_run(g.pp, g.microbatches))
        if least is None:
            return None
        alike = tuple(candidate[3:] for candidate in run)
        key = (vp, self.exceptional_schedule(schedule), *alike)
        if key not in self.stages:
            needs = StageMemory(
                *np.moveaxis(np.array([self._rows(candidate) for candidate in run]), 2, 0)
            )
            self.stages[key] = Stages(needs, np.array([candidate.zero for candidate in run]))
        states, total = self.stages[key].device_bytes(least)
        if self.task.machine.kinds:
            reasons, total = self._memory_on_kinds(run, states, total, least)
            return reasons, total.tolist()
        states, total = states.max(axis=1) * (1 - ROUNDING), total.max(axis=1) * (1 - ROUNDING)
        cap = self.task.cap
        reasons = np.where(total > cap, np.where(states > cap, STATES, HELD), "").tolist()
        return reasons, total.tolist()

    def _memory_on_kinds(
        self, run: Sequence[Candidate], states: Bytes, total: Bytes, least: HeldAtLeast
    ) -> tuple[list[str], Bytes]:
        """Return :meth:`memory` on a mixed cluster, where the cap differs by device.

        Args:
            run: candidates of one schedule and number of chunks. Layers divided by speed may be in
                any split that fits.
            states: shape (candidates, devices), least bytes of weights, gradients and optimizer.
            total: shape (candidates, devices), least bytes in all.
            least: the microbatches that each device holds at its peak.
        """
        g = self.group
        if not self.caps:
            sizes = replace(self.task.axes.base, tp=g.tp, cp=g.cp, ep=g.ep, pp=g.pp, dp=g.dp)
            for layout in (*LAYOUTS, *BY_SPEED):
                caps = np.asarray(self.task.caps(self.task.machine_of(layout), sizes))
                self.caps[layout] = caps * (1 + ROUNDING)
        caps = np.array([self.caps[candidate.layout] for candidate in run])
        over_states, over = np.any(states > caps, axis=1), np.any(total > caps, axis=1)
        largest = total.max(axis=1)
        for index, candidate in enumerate(run if g.pp > 1 else ()):
            if candidate.layout in BY_SPEED:
                each = self._bytes_by_layers(candidate, least)
                self.room[candidate] = room = (each <= caps[index]).sum(axis=0)
                over_states[index] = states[index].sum() > caps[index].sum()
                over[index] = room.sum() < self.task.model.layers or room.min() < candidate.vp
                largest[index] = least_longest(each, candidate.vp)
        reasons = np.where(over_states, STATES, np.where(over, HELD, "")).tolist()
        return reasons, largest * (1 - ROUNDING)

    def _bytes_by_layers(self, candidate: Candidate, least: HeldAtLeast) -> Bytes:
        """Return the least bytes of a device with 1, 2, ... layers, shape (layers, devices)."""
        vp, model = candidate.vp, self.task.model
        alike = (
            candidate.recompute,
            candidate.zero,
            candidate.offload,
            self.exceptional_schedule(candidate.schedule),
        )
        if alike not in self.parts:
            recomputed = int(candidate.recompute != "none")
            contents = [
                StageContent(((kind, 1),), 0, False, 0, recomputed) for kind, _ in _kinds(model)
            ]
            contents += [
                StageContent((), 0, True, 0, 0),
                StageContent((), model.mtp, False, 1 + model.mtp, 0),
            ]
            needs = np.array(
                [content_memory(model, self.contents[alike][0], content) for content in contents]
            )
            self.parts[alike] = needs[:, :3].sum(axis=1), needs[:-2, 3].min()
        states, kept = self.parts[alike]
        layers, owned = np.arange(1, model.layers + 1)[:, None], least.owners.T > 0
        counts = np.where(owned, least.counts[0], 0.0).sum(axis=1)
        fewest = np.where(owned, least.counts[0], np.inf).min(axis=1)
        ends: Bytes = states[-2] * least.owners[0] + states[-1] * least.owners[-1]
        activations = kept * (layers // vp * counts + layers % vp * fewest)
        return ends + layers * states[:-2].min() + activations

    def _rows(self, candidate: Candidate) -> Floats:
        """Return the fields of :class:`StageMemory` for a candidate, shape (stages, 6)."""
        _, vp, schedule, recompute, layers, layout, zero, offload = candidate
        model, g = self.task.model, self.group
        key = recompute, zero, offload, self.exceptional_schedule(schedule)
        if key not in self.contents:
            base = with_techniques(
                self.task.axes.base, False, zero, offload, self.exceptional_schedule(schedule)
            )
            self.contents[key] = (
                _unpipelined(base, (g.tp, g.cp, g.ep, g.mbs), g.dp, recompute),
                {},
            )
        unpipelined, known = self.contents[key]
        contents, content_of_stage = stage_contents(model, g.pp, vp, layout, recompute, layers)
        for content in contents:
            if content not in known:
                known[content] = content_memory(model, unpipelined, content)
        result: Floats = np.array([known[content] for content in contents])[content_of_stage]
        return result


@dataclass(frozen=True)
class Stages:
    """Memory of the stages of several candidates.

    Attributes:
        needs: bytes, in arrays of shape (candidates, stages).
        zero: shape (candidates,), the ZeRO stage of each candidate.
    """

    needs: StageMemory
    zero: NDArray[np.int64]

    def device_bytes(self, least: HeldAtLeast) -> tuple[Bytes, Bytes]:
        """Return the least bytes of each device for states, and in all.

        Both have shape (candidates, devices).
        """
        replicas, zero = least.owners.sum(axis=1)[0], self.zero[:, None]
        parts = zip(
            (self.needs.weights, self.needs.gradients, self.needs.optimizer), (3, 2, 1), strict=True
        )
        stage_states = np.sum(
            [np.where(zero >= divided, part / replicas, part) for part, divided in parts], axis=0
        )
        states = stage_states @ least.owners
        work = np.where(least.at_work >= 0, self.needs.work[:, least.at_work], 0.0) / least.slices
        activations = self.needs.activations @ least.counts.swapaxes(1, 2)
        pending = self.needs.kept @ least.pending.swapaxes(1, 2)
        held = activations + pending
        return states, states + (held + work.swapaxes(0, 1)).max(axis=0)


def least_share(devices: int, microbatches: int, ends: float) -> float:
    """Return a lower bound on the makespan, over the work of one microbatch, for any split.

    A device works on its share of all microbatches. Before and after, it waits for ``ends`` times
    the shares of the devices ahead of it. The largest of these sums over devices is least if all
    sums are equal, which they are for shares that fall by a factor of 1 - ends/microbatches.
    """
    fraction = ends / microbatches
    return ends / (1 - (1 - fraction) ** devices) if fraction else microbatches / devices


def layer_times(model: Model, machine: Machine, parallel: Parallel) -> Floats:
    """Return the seconds of forward and backward of all layers of a kind on one device.

    Returns:
        Shape (2, kinds of layers, devices).
    """
    kinds = _kinds(model)
    recomputed = model.layers if parallel.recompute != "none" else 0
    contents = [StageContent((kind,), 0, False, 0, min(recomputed, kind[1])) for kind in kinds]
    times = [
        [
            content_times(model, kind.machine, parallel, content)[[Kind.F, Kind.B]]
            for content in contents
        ]
        for kind in machine.kinds
    ]
    device_on_kind = kinds_of_devices(machine, parallel)
    result: Floats = (
        np.where(device_on_kind, np.moveaxis(np.array(times), 0, -1)[:, :, None], 0.0)
        .max(axis=-1)
        .swapaxes(0, 1)
    )
    return result


def least_on_kinds(layers: Floats, microbatches: int, in_order: bool, backwards: float) -> float:
    """Return a lower bound in seconds on a pipeline of different devices, for any split of layers.

    A device works on its share of all microbatches; before and after, it waits for the shares of
    the devices ahead of it. By duality of linear programs any weights of the devices give a bound;
    the weights here are the best for equal devices.

    Args:
        layers: the result of :func:`layer_times`.
        microbatches: microbatches of a step.
        in_order: whether each device has one stage, so that its work waits for all devices ahead.
        backwards: share of a backward that follows the last one of a device; 0 if it is split.
    """
    work = layers.sum(axis=(0, 1))
    ends = 0.0
    if in_order:
        ends = float(((layers[0] + backwards * layers[1]) / layers.sum(axis=0)).min())
    after, weights = 0.0, np.zeros(len(work))
    for device in reversed(range(len(work))):
        weights[device] = max(1 / work[device] - ends * after, 0.0) / microbatches
        after += weights[device]
    # the weighted share of each kind of layer on the device where it is least
    shares = np.min(layers.sum(axis=0) / work, axis=1).sum()
    return float(shares / after)


def least_longest(each: Floats, least: int) -> float:
    """Return a lower bound on the largest amount of a device, for any split of layers.

    It is the largest amount if each layer in turn goes to the device that then has least.

    Args:
        each: shape (layers, devices), the amount of a device with 1, 2, ... layers, ascending.
        least: fewest layers of a device.
    """
    return float(
        max(np.partition(each, len(each) - 1, axis=None)[len(each) - 1], each[least - 1].max())
    )


@lru_cache(maxsize=64)
def _kinds(model: Model) -> tuple[tuple[Layer, int], ...]:
    """Return the kinds of layers, with the number of each."""
    return tuple(Counter(kinds_of(model)).items())


def _recomputed_share(model: Model, candidate: Candidate) -> float:
    """Return the largest possible share of layers that recompute."""
    if candidate.recompute == "none":
        return 0.0
    if candidate.layers < 0:
        return 1.0
    return candidate.layers * candidate.group.pp * candidate.vp / model.layers


@lru_cache(maxsize=65536)
def _work(
    model: Model, machine: Machine, base: Parallel, sizes: tuple[int, int, int, int], recompute: str
) -> tuple[float, float]:
    """Return the seconds of a microbatch's forward and backward in the whole model."""
    time = stage_costs(model, machine, _unpipelined(base, sizes, sizes[2], recompute)).time
    return float(time[Kind.F].sum()), float(time[Kind.B].sum())


def _unpipelined(
    base: Parallel, sizes: tuple[int, int, int, int], dp: int, recompute: str
) -> Parallel:
    """Return the settings of the whole model on one pipeline device."""
    tp, cp, ep, mbs = sizes
    return replace(
        base,
        tp=tp,
        cp=cp,
        ep=ep,
        dp=dp,
        pp=1,
        vp=1,
        mbs=mbs,
        recompute=recompute,
        recompute_layers=None,
        schedule="",
    )


def least_seconds(
    costs: StageCosts,
    devices: np.ndarray[Any, Any],
    microbatches: int,
    post: bool = False,
    pieces: int = 1,
) -> float:
    """Return a lower bound on a pipeline's time in seconds.

    A device does all its work after the forwards that must precede its first one.

    Args:
        costs: the costs of the stages.
        devices: shape (replicas, stages), the device of each stage; replicas share the microbatches
            evenly.
        microbatches: microbatches of a step.
        post: whether a step is as long as a device's span (post-validation), so that only a
            device's work counts.
        pieces: slices of each sequence; a device waits for the first slice only.
    """
    each = np.tile(costs.time[Kind.F] + costs.time[Kind.B], len(devices)) / len(devices)
    work = np.bincount(devices.ravel(), each) * microbatches
    if post:
        return float(work.max())
    forward = costs.time[Kind.F] / pieces
    before, first = np.cumsum(forward) - forward, np.empty((len(devices), len(work)))
    for row, replica in zip(first, devices, strict=True):
        row[replica[::-1]] = before[::-1]  # backwards, so that a device keeps its first stage's
    return float((work + first.min(axis=0)).max())
