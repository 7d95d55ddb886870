"""Lower bounds on a candidate: on its time from whole layers, on its bytes from its stages."""

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
    groups,
    layout_layers,
    least_memory,
    members,
    short_run,
    stage_contents,
    with_techniques,
)
from ppsim.workload.plans.task import HELD, REFUSED, ROUNDING, STATES, Findings, Task


class Bound(NamedTuple):
    """A candidate, the time it takes at least, and the bytes it holds at least."""

    seconds: float
    candidate: Candidate
    bytes_: float


def list_candidates(task: Task) -> Iterator[Candidate]:
    """List the candidates of a search, group by group; groups that cannot beat the time that is
    known are left out.
    """
    for group in groups(task.model, task.machine.per_node, task.gpus, task.gbs, task.axes):
        if task.known < float("inf") and not task.machine.kinds:
            work = GroupBounds(task, group).work(True, "none")
            if group.microbatches * sum(work) / group.pp >= task.known:
                continue
        yield from members(task.model, group, task.axes)


def bound_candidates(task: Task, candidates: Iterable[Candidate], found: Findings) -> list[Bound]:
    """Bound candidates and list the ones that may fit, by their least time; count the others."""
    bounds, whole = [], None
    split = {name: find(name).split for name in (*task.axes.schedules, *task.axes.fitted)} | {
        "": False
    }
    for (group, _, schedule), alike in groupby(candidates, key=lambda candidate: candidate[:3]):
        run = list(alike)
        found.total += len(run)
        if whole is None or whole.group != group:
            whole = GroupBounds(task, group)
        held = whole.held(run)
        if held is None:
            found.counts[REFUSED] += len(run)
            continue
        for candidate, lacks, bytes_ in zip(run, *held, strict=True):
            if found.least_memory is None or bytes_ < found.least_memory[0]:
                found.least_memory = bytes_, candidate
            if lacks:
                found.counts[lacks] += 1
            else:
                bounds.append(Bound(whole.seconds(candidate, split[schedule]), candidate, bytes_))
    bounds.sort()
    return bounds


class GroupBounds:
    """Lower bounds of a group's sizes: the whole model's work on one pipeline device, and the bytes
    of its stages.
    """

    def __init__(self, task: Task, group: Group) -> None:
        self.task, self.group = task, group
        self.otherwise = frozenset(name for name, _ in task.axes.base.by_schedule)
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

    def apart(self, schedule: str) -> str:
        """Return a schedule with which the software does something otherwise; empty for all
        others.
        """
        return schedule if schedule in self.otherwise else ""

    def work(self, paired: bool, recompute: str, schedule: str = "") -> tuple[float, float]:
        """Return the seconds of forward and backward for a microbatch; ``paired``: in pairs that
        hide all-to-all.

        The memory of ZeRO-2, ZeRO-3 and offload is not linear in the layers that recompute, so no
        bound has it.
        """
        key = paired, recompute, self.apart(schedule)
        if key not in self.works:
            g = self.group
            base = with_techniques(self.task.axes.base, paired, 1, 0, self.apart(schedule))
            sizes = (g.tp, g.cp, g.ep, g.mbs)
            self.works[key] = _work(self.task.model, self.task.machine, base, sizes, recompute)
        return self.works[key]

    def seconds(self, candidate: Candidate, split: bool) -> float:
        """Return the time that a candidate takes at least, by whole layers; ``split``: its
        backwards have halves.
        """
        g, name = self.group, candidate.schedule
        share, paired, two = _share(self.task.model, candidate), name in PAIRS, name in TWO_REPLICAS
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
        """Return the time that a candidate takes at least on several kinds of nodes, by its layers
        alone.
        """
        g, model, layout = self.group, self.task.model, candidate.layout
        key = (
            layout,
            paired,
            candidate.recompute,
            candidate.layers,
            self.apart(candidate.schedule),
        )
        split = layout_layers(model, g.pp * candidate.vp, layout)
        assert split is not None
        if key not in self.layers:
            machine = self.task.machine_of(layout)
            alone = replace(
                candidate.parallel(self.task.axes.base), zero=1, offload=0.0, recompute_layers=None
            )
            # of a stage's layers, at least
            share = 1.0 if candidate.layers < 0 else candidate.layers / max(split)
            plain = layer_times(model, machine, replace(alone, recompute="none"))
            self.layers[key] = plain + share * (layer_times(model, machine, alone) - plain)
        one = candidate.vp == 1 and candidate.schedule not in TWO_REPLICAS
        one = one and not (candidate.schedule and find(candidate.schedule).slices > 1)
        one = one and not self.task.axes.base.post_validation
        layers = self.layers[key]
        if (*key, one, backwards) not in self.times:
            held = np.array([count for _, count in _kinds(model)])
            each = (layers.sum(axis=0) / held[:, None]).min(axis=0)
            self.times[*key, one, backwards] = (
                least_on_kinds(layers, g.microbatches, one, backwards),
                each,
            )
        least, each = self.times[*key, one, backwards]
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

    def held(self, run: Sequence[Candidate]) -> tuple[list[str], list[float]] | None:
        """Return which candidates certainly do not fit, and the least bytes of their fullest
        device; None: refused.

        Args:
            run: candidates of one schedule and number of chunks.
        """
        g, vp, schedule = run[0][:3]
        lives = least_memory(schedule, g.pp, vp, short_run(g.pp, g.microbatches))
        if lives is None:
            return None
        alike = tuple(candidate[3:] for candidate in run)
        key = (vp, self.apart(schedule), *alike)
        if key not in self.stages:
            needs = StageMemory(
                *np.moveaxis(np.array([self._rows(candidate) for candidate in run]), 2, 0)
            )
            self.stages[key] = Stages(needs, np.array([candidate.zero for candidate in run]))
        states, held = self.stages[key].device_bytes(lives)
        if self.task.machine.kinds:
            lacks, held = self._excess_by_device(run, states, held, lives)
            return lacks, held.tolist()
        states, held = states.max(axis=1) * (1 - ROUNDING), held.max(axis=1) * (1 - ROUNDING)
        cap = self.task.cap
        return np.where(
            held > cap, np.where(states > cap, STATES, HELD), ""
        ).tolist(), held.tolist()

    def _excess_by_device(
        self, run: Sequence[Candidate], states: Bytes, held: Bytes, lives: HeldAtLeast
    ) -> tuple[list[str], Bytes]:
        """Do the same for several kinds of nodes by device; layers by speed may be divided in any
        way that fits.
        """
        g = self.group
        if not self.caps:
            alone = replace(self.task.axes.base, tp=g.tp, cp=g.cp, ep=g.ep, pp=g.pp, dp=g.dp)
            for layout in (*LAYOUTS, *BY_SPEED):
                self.caps[layout] = np.asarray(
                    self.task.caps(self.task.machine_of(layout), alone)
                ) * (1 + ROUNDING)
        caps = np.array([self.caps[candidate.layout] for candidate in run])
        over_states, over = np.any(states > caps, axis=1), np.any(held > caps, axis=1)
        least = held.max(axis=1)
        for index, candidate in enumerate(run if g.pp > 1 else ()):
            if candidate.layout in BY_SPEED:
                each = self._least_held_bytes(candidate, lives)
                self.room[candidate] = room = (each <= caps[index]).sum(axis=0)
                over_states[index] = states[index].sum() > caps[index].sum()
                over[index] = room.sum() < self.task.model.layers or room.min() < candidate.vp
                least[index] = least_longest(each, candidate.vp)
        return np.where(over_states, STATES, np.where(over, HELD, "")).tolist(), least * (
            1 - ROUNDING
        )

    def _least_held_bytes(self, candidate: Candidate, lives: HeldAtLeast) -> Bytes:
        """Return the least bytes of each device with 1, 2, ... layers spread over its stages:
        (layers, devices).
        """
        vp, model = candidate.vp, self.task.model
        alike = (
            candidate.recompute,
            candidate.zero,
            candidate.offload,
            self.apart(candidate.schedule),
        )
        if alike not in self.parts:
            again = int(candidate.recompute != "none")
            contents = [StageContent(((kind, 1),), 0, False, 0, again) for kind, _ in _kinds(model)]
            contents += [
                StageContent((), 0, True, 0, 0),
                StageContent((), model.mtp, False, 1 + model.mtp, 0),
            ]
            needs = np.array(
                [content_memory(model, self.contents[alike][0], content) for content in contents]
            )
            self.parts[alike] = needs[:, :3].sum(axis=1), needs[:-2, 3].min()
        states, kept = self.parts[alike]
        layers, owned = np.arange(1, model.layers + 1)[:, None], lives.owners.T > 0
        counts = np.where(owned, lives.counts[0], 0.0).sum(axis=1)
        fewest = np.where(owned, lives.counts[0], np.inf).min(axis=1)
        held: Bytes = (
            states[-2] * lives.owners[0]
            + states[-1] * lives.owners[-1]
            + layers * states[:-2].min()
        )
        return held + kept * (layers // vp * counts + layers % vp * fewest)

    def _rows(self, candidate: Candidate) -> Floats:
        """Return the memory of each stage of a candidate, in the order of :class:`StageMemory`,
        shape (stages, 6).
        """
        _, vp, schedule, recompute, layers, layout, zero, offload = candidate
        model, g = self.task.model, self.group
        key = recompute, zero, offload, self.apart(schedule)
        if key not in self.contents:
            base = with_techniques(self.task.axes.base, False, zero, offload, self.apart(schedule))
            self.contents[key] = (
                _unpipelined(base, (g.tp, g.cp, g.ep, g.mbs), g.dp, recompute),
                {},
            )
        alone, known = self.contents[key]
        contents, which = stage_contents(model, g.pp, vp, layout, recompute, layers)
        for content in contents:
            if content not in known:
                known[content] = content_memory(model, alone, content)
        result: Floats = np.array([known[content] for content in contents])[which]
        return result


@dataclass(frozen=True)
class Stages:
    """Memory of the stages of several candidates, in arrays of shape (candidates, stages), and
    their stages of ZeRO.
    """

    needs: StageMemory
    zero: NDArray[np.int64]

    def device_bytes(self, lives: HeldAtLeast) -> tuple[Bytes, Bytes]:
        """Return the bytes that each device needs at least for states, and for all, shape
        (candidates, devices).
        """
        replicas, zero = lives.owners.sum(axis=1)[0], self.zero[:, None]
        parts = zip(
            (self.needs.weights, self.needs.gradients, self.needs.optimizer), (3, 2, 1), strict=True
        )
        whole = np.sum(
            [np.where(zero >= least, part / replicas, part) for part, least in parts], axis=0
        )
        states = whole @ lives.owners
        beside = np.where(lives.at_work >= 0, self.needs.work[:, lives.at_work], 0.0) / lives.slices
        held = self.needs.activations @ lives.counts.swapaxes(
            1, 2
        ) + self.needs.kept @ lives.pending.swapaxes(1, 2)
        return states, states + (held + beside.swapaxes(0, 1)).max(axis=0)


def least_share(devices: int, microbatches: int, ends: float) -> float:
    """The makespan in works of a microbatch, at least, however the work is split over the devices.

    A device is busy with its share for each microbatch, after and before the ``ends`` of the shares
    ahead of it. The largest of these sums is least where all are equal, for shares that fall by a
    factor of 1 - ends/microbatches.
    """
    fraction = ends / microbatches
    return ends / (1 - (1 - fraction) ** devices) if fraction else microbatches / devices


def layer_times(model: Model, machine: Machine, parallel: Parallel) -> Floats:
    """Return the seconds of a microbatch's forward and backward in all layers of each kind, were
    they on one device.

    Returns:
        Shape (2, kinds of layers, devices).
    """
    kinds = _kinds(model)
    again = model.layers if parallel.recompute != "none" else 0
    contents = [StageContent((kind,), 0, False, 0, min(again, kind[1])) for kind in kinds]
    times = [
        [
            content_times(model, kind.machine, parallel, content)[[Kind.F, Kind.B]]
            for content in contents
        ]
        for kind in machine.kinds
    ]
    on = kinds_of_devices(machine, parallel)
    result: Floats = (
        np.where(on, np.moveaxis(np.array(times), 0, -1)[:, :, None], 0.0)
        .max(axis=-1)
        .swapaxes(0, 1)
    )
    return result


def least_on_kinds(layers: Floats, microbatches: int, one: bool, backwards: float) -> float:
    """Bound the time of a pipeline whose devices differ, however its layers are divided over them.

    A device is busy with its share for each microbatch, after and before the shares ahead of it. By
    duality of linear programs any weights of the devices give a bound; these are the best ones
    where devices are alike.

    Args:
        layers: as of :func:`layer_times`.
        microbatches: of a step.
        one: whether each device has one stage, so that its work waits for all ahead of it.
        backwards: how much of a backward comes after the last one of a device: 0 where it has
            halves.
    """
    work = layers.sum(axis=(0, 1))
    ends = float(((layers[0] + backwards * layers[1]) / layers.sum(axis=0)).min()) if one else 0.0
    after, weights = 0.0, np.zeros(len(work))
    for device in reversed(range(len(work))):
        weights[device] = max(1 / work[device] - ends * after, 0.0) / microbatches
        after += weights[device]
    # of each kind of layer, where it counts least
    shares = np.min(layers.sum(axis=0) / work, axis=1).sum()
    return float(shares / after)


def least_longest(each: Floats, least: int) -> float:
    """Return the most that a device has, at least, however as many layers as there are rows are
    divided over devices.

    It is the amount after the last layer, where every layer goes to the device that then has least.

    Args:
        each: shape (layers, devices), the amount of a device with 1, 2, ... layers, ascending.
        least: layers of each device.
    """
    return float(
        max(np.partition(each, len(each) - 1, axis=None)[len(each) - 1], each[least - 1].max())
    )


@lru_cache(maxsize=64)
def _kinds(model: Model) -> tuple[tuple[Layer, int], ...]:
    """The kinds of layers, and how many there are of each."""
    return tuple(Counter(kinds_of(model)).items())


def _share(model: Model, candidate: Candidate) -> float:
    """The share of layers that recompute, at most."""
    if candidate.recompute == "none":
        return 0.0
    return (
        1.0
        if candidate.layers < 0
        else candidate.layers * candidate.group.pp * candidate.vp / model.layers
    )


@lru_cache(maxsize=65536)
def _work(
    model: Model, machine: Machine, base: Parallel, sizes: tuple[int, int, int, int], recompute: str
) -> tuple[float, float]:
    """Seconds of the forward and the backward of the whole model for a microbatch."""
    time = stage_costs(model, machine, _unpipelined(base, sizes, sizes[2], recompute)).time
    return float(time[Kind.F].sum()), float(time[Kind.B].sum())


def _unpipelined(
    base: Parallel, sizes: tuple[int, int, int, int], dp: int, recompute: str
) -> Parallel:
    """The whole model on one pipeline device."""
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
    """Bound the time of a pipeline: a device's work after the forwards that must come before its
    first one.

    Args:
        costs: of the stages.
        devices: shape (replicas, stages), the device of each; replicas share the microbatches
            evenly.
        microbatches: of a step.
        post: whether devices wait for no other to end a step, and a device's work alone counts.
        pieces: slices of each sequence, of which a device waits for the first alone.
    """
    each = np.tile(costs.time[Kind.F] + costs.time[Kind.B], len(devices)) / len(devices)
    work = np.bincount(devices.ravel(), each) * microbatches
    if post:
        return float(work.max())
    forward = costs.time[Kind.F] / pieces
    before, first = np.cumsum(forward) - forward, np.empty((len(devices), len(work)))
    for row, replica in zip(first, devices, strict=True):
        row[replica[::-1]] = before[::-1]  # of a device's stages the first one is written last
    return float((work + first.min(axis=0)).max())
