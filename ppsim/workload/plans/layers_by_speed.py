"""Layouts by speed: in mixed clusters faster pipeline devices get more layers, within memory."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ppsim.core.ops import Kind
from ppsim.core.schedule import place
from ppsim.schedules import find
from ppsim.workload.cost.costs import content_times
from ppsim.workload.cost.kinds import kinds_of_devices
from ppsim.workload.cost.memory import Bytes, device_memory, stage_memory, states_of_devices
from ppsim.workload.hardware.hardware import Machine
from ppsim.workload.layout.layout import Layout, build_layout
from ppsim.workload.model.contents import StageContent
from ppsim.workload.model.model import Model, kinds_of
from ppsim.workload.model.operators import Floats
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans import space
from ppsim.workload.plans.space import BY_SPEED, Candidate
from ppsim.workload.plans.task import Task

Counts = NDArray[np.int64]


def layout_of(task: Task, candidate: Candidate) -> Layout:
    """Return the layout of a candidate.

    A layout by speed is the fastest that fits, or the last one tried if none fits.
    """
    if candidate.layout in BY_SPEED and candidate.group.pp > 1:
        return _by_speed(task, candidate)
    return space.layout_of(task.model, candidate)


@lru_cache(maxsize=4096)
def _by_speed(task: Task, candidate: Candidate) -> Layout:
    parallel = candidate.parallel(task.axes.base)
    model, machine = task.model, task.machine_of(candidate.layout)
    devices = place(find(candidate.schedule).placement, parallel.pp, parallel.stages).devices
    times, ends = device_times(model, machine, parallel, devices[0])
    most, caps = np.full(parallel.pp, model.layers), task.caps(machine, parallel)
    layout = None
    while (counts := split_by_speed(times, ends, model.layers, most, parallel)) is not None:
        layout = build_layout(spread(counts, devices[0], parallel), parallel.pp, model.mtp)
        bytes_ = _memory_by_device(model, parallel, layout, candidate.is_ordered_by_costs, devices)
        over = bytes_ > caps
        if not over.any():
            break
        # removes at most as many layers as needed: bytes / counts is an upper bound of a layer's
        excess = (bytes_ - caps) / (bytes_ / counts)
        most = np.where(over, counts - np.maximum(excess, 1).astype(np.int64), most)
    return layout or space.layout_of(model, candidate)


def _memory_by_device(
    model: Model, parallel: Parallel, layout: Layout, fitted: bool, devices: NDArray[np.int32]
) -> Bytes:
    """Return the bytes of each device.

    If the order of ops is fitted to costs (and to memory), only weights, gradients and optimizer
    count.
    """
    if fitted:
        states: Bytes = np.sum(
            states_of_devices(parallel, stage_memory(model, parallel, layout), devices), axis=0
        )
        return states
    return device_memory(model, parallel, layout).total


def device_times(
    model: Model, machine: Machine, parallel: Parallel, devices: NDArray[np.int32]
) -> tuple[Floats, Floats]:
    """Return the seconds of forward and backward on each device: of a layer, and of both ends.

    Args:
        model: the model; kinds of layers count by their mean.
        machine: a mixed cluster.
        parallel: how the model is trained.
        devices: shape (stages,), the device of each stage.

    Returns:
        Seconds of a layer, and seconds of embedding and output where a device has them; both of
            shape (devices,).
    """
    kinds = tuple(Counter(kinds_of(model)).items())
    recomputed = model.layers if parallel.recompute != "none" else 0
    contents = [StageContent(kinds, 0, False, 0, recomputed), StageContent((), 0, True, 0, 0)]
    contents.append(StageContent((), model.mtp, False, 1 + model.mtp, 0))
    each = []
    for kind in machine.kinds:
        times = (content_times(model, kind.machine, parallel, content) for content in contents)
        layers, *first_and_last = (time[Kind.F] + time[Kind.B] for time in times)
        each.append([layers / model.layers, *first_and_last])
    on_kind = kinds_of_devices(machine, parallel)
    layer, first, last = (np.where(on_kind, row, 0.0).max(axis=1) for row in np.array(each).T)
    ends = np.zeros(parallel.pp)
    ends[devices[0]] += first[devices[0]]
    ends[devices[-1]] += last[devices[-1]]
    return layer, ends


def split_by_speed(
    times: Floats, ends: Floats, layers: int, most: Counts, parallel: Parallel
) -> Counts | None:
    """Return the layers of each device in the fastest split, or None if they do not all fit.

    Each stage has at least one layer. A step takes the work of the slowest device for each
    microbatch, and the work of all others once, to fill and drain the pipeline. The split is the
    best over limits on the time of a device; for each limit the fastest devices are filled first.

    Args:
        times: shape (devices,), seconds of a layer.
        ends: shape (devices,), seconds of embedding and output.
        layers: number of the model's layers.
        most: shape (devices,), the most layers that fit on a device.
        parallel: the sizes: devices, chunks and microbatches.
    """
    if (most < parallel.vp).any() or most.sum() < layers or parallel.stages > layers:
        return None
    longest = np.unique(np.round(ends + np.arange(layers + 1)[:, None] * times, 12))[:, None]
    room = np.minimum(np.floor((longest - ends) / times + 1e-6).astype(np.int64), most)
    extra = np.maximum(room - parallel.vp, 0)
    left = layers - parallel.stages
    # of equally fast devices the last are filled first: they hold fewer microbatches
    order = np.lexsort((-np.arange(len(times)), times))
    extra = extra[np.ix_(extra.sum(axis=1) >= left, order)]
    extra = np.clip(left - (np.cumsum(extra, axis=1) - extra), 0, extra)
    counts = np.empty_like(extra)
    counts[:, order] = extra + parallel.vp
    work = ends + counts * times
    worst = work.max(axis=1)
    chosen: Counts = counts[
        int((parallel.microbatches * worst + (work.sum(axis=1) - worst) / parallel.vp).argmin())
    ]
    return chosen


def spread(counts: Counts, devices: NDArray[np.int32], parallel: Parallel) -> list[int]:
    """Return the layers of each stage from the layers of each device.

    A device's stages get equal numbers; its stages nearest to the middle of the model get the
    remainder.
    """
    split = np.zeros(parallel.stages, np.int64)
    for device, count in enumerate(counts.tolist()):
        here = np.flatnonzero(devices == device)
        middle = np.abs(here - (parallel.stages - 1) / 2)
        each, more = divmod(count, len(here))
        split[here] = each
        split[here[np.argsort(middle, kind="stable")[:more]]] += 1
    result: list[int] = split.tolist()
    return result
