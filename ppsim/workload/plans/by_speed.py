"""Layers by speed: on several kinds of nodes faster pipeline devices take more layers, as far as
their memory goes.
"""

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
    """Build the layout of a candidate; by speed, the fastest that fits, or the last one tried where
    none does.
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
        held = _memory_by_device(model, parallel, layout, candidate.is_ordered_by_costs, devices)
        over = held > caps
        if not over.any():
            break
        # no layer takes more than its share of all that the device holds
        more = (held - caps) / (held / counts)
        most = np.where(over, counts - np.maximum(more, 1).astype(np.int64), most)
    return layout or space.layout_of(model, candidate)


def _memory_by_device(
    model: Model, parallel: Parallel, layout: Layout, fitted: bool, devices: NDArray[np.int32]
) -> Bytes:
    """Return each device's memory; only weights, gradients and optimizer if the order follows the
    costs.
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
    """Return the seconds that a layer's forward and backward take on each device, and the seconds
    of embedding and output.

    Args:
        model: the model; of several kinds of layers the mean counts.
        machine: of several kinds of nodes.
        parallel: how it is trained.
        devices: shape (stages,), the device of each stage.
    """
    kinds, again = (
        tuple(Counter(kinds_of(model)).items()),
        model.layers if parallel.recompute != "none" else 0,
    )
    contents = [StageContent(kinds, 0, False, 0, again), StageContent((), 0, True, 0, 0)]
    contents.append(StageContent((), model.mtp, False, 1 + model.mtp, 0))
    each = []
    for kind in machine.kinds:
        times = (content_times(model, kind.machine, parallel, content) for content in contents)
        layers, *beside = (time[Kind.F] + time[Kind.B] for time in times)
        each.append([layers / model.layers, *beside])
    on = kinds_of_devices(machine, parallel)
    layer, first, last = (np.where(on, row, 0.0).max(axis=1) for row in np.array(each).T)
    ends = np.zeros(parallel.pp)
    ends[devices[0]] += first[devices[0]]
    ends[devices[-1]] += last[devices[-1]]
    return layer, ends


def split_by_speed(
    times: Floats, ends: Floats, layers: int, most: Counts, parallel: Parallel
) -> Counts | None:
    """Divide layers over devices, one to a stage at least; None where they cannot hold all.

    The longest device's work counts for each microbatch, and that of all others once, to fill and
    drain the pipeline. For each time that a device may take, the fastest devices are filled first.

    Args:
        times: shape (devices,), seconds of a layer.
        ends: shape (devices,), seconds of all that a device holds except layers.
        layers: of the model.
        most: shape (devices,), layers that a device can hold.
        parallel: of devices, chunks and microbatches.
    """
    if (most < parallel.vp).any() or most.sum() < layers or parallel.stages > layers:
        return None
    longest = np.unique(np.round(ends + np.arange(layers + 1)[:, None] * times, 12))[:, None]
    room = np.minimum(np.floor((longest - ends) / times + 1e-6).astype(np.int64), most)
    extra = np.maximum(room - parallel.vp, 0)
    left = layers - parallel.stages
    # of equals the last, which hold fewer microbatches
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
    """Divide each device's layers evenly over its stages; stages in the middle of the model take
    the remainder.
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
