"""The end of a training step: gradients reduced, the optimizer's step, weights gathered."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppsim.core.ops import Kind
from ppsim.core.timeline import Timeline
from ppsim.workload.cost.communication import Group, gather_seconds, group_of
from ppsim.workload.cost.overlap import added
from ppsim.workload.hardware.efficiency import Efficiency
from ppsim.workload.hardware.hardware import Machine
from ppsim.workload.model.operators import ITEM, Floats
from ppsim.workload.model.parallel import Parallel

# Bytes that Adam moves for a parameter in addition to its two moments: reads master and gradient,
# writes a master and a weight; and that it reads and writes of each byte of a moment.
OPTIMIZER_BYTES, OF_MOMENTS = 18, 4
BUCKET = 40e6  # parameters: Megatron-LM's bucket_size, or a million for each replica


def reduction_seconds(
    machine: Machine, parallel: Parallel, split: Floats, found: Efficiency, layers: Floats
) -> tuple[Floats, Floats]:
    """Compute the seconds of reducing gradients and of gathering weights, by stage: in buckets,
    ZeRO-3's by layer.
    """
    p = parallel
    stages = split.shape[1]
    reduction, gather = np.zeros(stages), np.zeros(stages)
    for row, name in () if p.adapters else ((0, "dp"), (1, "expert-dp")):
        group = joined_group(machine, p, group_of(p, name))
        for count in set(split[row].tolist()) - {0.0}:
            here = split[row] == count
            calls = (
                float(layers[here].max())
                if p.zero == 3
                else max(count / max(BUCKET, 1e6 * group.size), 1.0)
            )
            reduction[here] += gather_seconds(
                machine, found, group, count * p.gradient_bytes, calls, p.zero == 0
            )
            gather[here] += gather_seconds(
                machine, found, group, count * weight_bytes(p), calls, p.zero == 0
            )
    return reduction, gather


def weight_bytes(parallel: Parallel) -> float:
    """Return the bytes of a weight as data-parallel ranks gather it, or as much of the sum of its
    gradient.

    Narrow ones are gathered with one scale a tensor; with scales of blocks each rank narrows the
    16-bit weights that it received (Megatron-LM's --reuse-grad-buf-for-mxfp8-param-ag).
    """
    if parallel.zero == 0:
        return parallel.gradient_bytes
    return 1.0 if parallel.narrow_weights and parallel.precision == "fp8" else ITEM


def add_sharded(
    time: Floats, reduction: Floats, gather: Floats, layers: Floats, parallel: Parallel
) -> tuple[Floats, Floats, Floats]:
    """Add the communication of ZeRO-2 and ZeRO-3 for every microbatch to the times of stages.

    ZeRO-2 scatters gradients in each backward, as it keeps only its share of their sum. ZeRO-3 also
    gathers a layer's weights before its forward and again before its backward, as torch's FSDP2
    does with reshard_after_forward, Megatron FSDP with optim_grads_params, and DeepSpeed. With
    overlap it runs in parallel with compute, which it slows, but for the first layer's gather.
    Frameworks that keep gathered weights and whole gradients until a step ends (FSDP2 in torch's
    pipeline runtime) are ZeRO-1 here.

    Args:
        time: shape (5, stages), seconds of F, B, I, W and R.
        reduction: shape (stages,), seconds of scattering a stage's gradients.
        gather: shape (stages,), seconds of gathering its weights.
        layers: shape (stages,), layers of each stage.
        parallel: how the model is trained.

    Returns:
        The times, and what of reduction and gather is left for the end of a step.
    """
    if parallel.zero < 2 or parallel.adapters:
        return time, reduction, gather
    weights = gather if parallel.zero == 3 else np.zeros_like(gather)
    sharded = np.array([weights, weights + reduction, weights, reduction, np.zeros_like(gather)])
    first = np.array(
        [weights, weights, weights, np.zeros_like(gather), np.zeros_like(gather)]
    ) / np.maximum(layers, 1)
    seen = np.vectorize(added)(time, sharded) + first if parallel.overlap_dp else sharded
    return time + seen, reduction / np.maximum(layers, 1), gather - weights


def joined_group(machine: Machine, parallel: Parallel, group: Group) -> Group:
    """Join the two groups that hold a stage where a pipeline has two replicas, on devices far from
    each other.

    Where a pipeline takes more than one node the other replica's ranks are on other nodes.
    """
    if parallel.replicas == 1:
        return group
    size, stride = parallel.replicas * group.size, group.stride
    inside = parallel.pp * group_of(parallel, "pp").stride <= machine.per_node
    if group.run:
        return Group(size, stride, group.run * (parallel.replicas if inside else 1), group.jump)
    return Group(size, stride if inside else max(stride, -(-machine.per_node // group.size)))


def optimizer_seconds(
    machine: Machine, parallel: Parallel, split: Floats, found: Efficiency
) -> Floats:
    """Compute the seconds of the optimizer's step, by stage."""
    if parallel.adapters:
        return np.zeros(split.shape[1])
    sharded = split.copy()
    if parallel.zero:
        sharded[0] /= group_of(parallel, "dp").size * parallel.replicas
        sharded[1] /= group_of(parallel, "expert-dp").size * parallel.replicas
    moved = OPTIMIZER_BYTES + OF_MOMENTS * parallel.moment_bytes
    result: Floats = (
        sharded.sum(axis=0) * moved / (machine.gpu.hbm_gb_per_s * 1e9 * found.curve.hbm)
    )
    return result


class HeldStages(NamedTuple):
    """The stages that devices hold, as columns, with times in seconds from the start of a step.

    Attributes:
        device: shape (n,), of a stage.
        stage: shape (n,), its number.
        first: shape (n,), start of the stage's first F.
        last: shape (n,), start of its last B or W.
        last_end: shape (n,), end of that.
        start: shape (devices,), of the first op of a device.
        end: shape (devices,), of its last op.
    """

    device: NDArray[np.int64]
    stage: NDArray[np.int64]
    first: Floats
    last: Floats
    last_end: Floats
    start: Floats
    end: Floats


def on_one_device(forward: Floats, backward: Floats, seconds: float) -> HeldStages:
    """Return the stages of a run without a pipeline, which takes ``seconds``.

    Args:
        forward: shape (stages,), seconds of F.
        backward: shape (stages,), seconds of B.
        seconds: of the step's ops.
    """
    count, after = len(forward), np.cumsum(backward) - backward
    done = seconds - after
    none = np.zeros(count, np.int64)
    first = np.cumsum(forward) - forward
    ends = np.zeros(1), np.array([seconds])
    return HeldStages(none, np.arange(count), first, done - backward, done, *ends)


def held_stages(timeline: Timeline, unit: float) -> HeldStages:
    """Return the stages of a pipeline's devices; ``unit`` is the seconds of the timeline's."""
    schedule, start, end = timeline.schedule, timeline.start * unit, timeline.end * unit
    stages, kind = schedule.placement.n_stages, schedule.kind
    forward, weights = kind == Kind.F, np.isin(kind, (Kind.B, Kind.W))
    each = schedule.device * np.int64(stages) + schedule.stage
    keys = np.unique(each[forward])  # other ops need not be of a stage
    first, last, done = np.full(len(keys), np.inf), np.zeros(len(keys)), np.zeros(len(keys))
    np.minimum.at(first, np.searchsorted(keys, each[forward]), start[forward])
    place = np.searchsorted(keys, each[weights])
    np.maximum.at(last, place, start[weights])
    np.maximum.at(done, place, end[weights])
    devices = schedule.n_devices
    starts, ends = np.full(devices, np.inf), np.zeros(devices)
    np.minimum.at(starts, schedule.device, start)
    np.maximum.at(ends, schedule.device, end)
    return HeldStages(keys // stages, keys % stages, first, last, done, starts, ends)


def seen_seconds(
    held: HeldStages, parallel: Parallel, forward: Floats, reduction: Floats, gather: Floats
) -> float:
    """Compute the seconds by which reducing gradients and gathering weights lengthen a step.

    Both run on a stream of each device, one stage after the other. With overlap a stage's
    reduction begins with its last backward, and its gather delays its first forward where it is
    not done by that one's end; else reductions follow a device's last op, and gathers come first.

    Args:
        held: the stages of each device.
        parallel: how the model is trained.
        forward: shape (stages,), seconds of F.
        reduction: shape (stages,), seconds of reducing a stage's gradients.
        gather: shape (stages,), seconds of gathering its weights.
    """
    late = delayed = 0.0
    base = held.start if parallel.post_validation else np.zeros_like(held.start)
    longest = float((held.end - base).max())
    for device, end in enumerate(held.end.tolist()):
        mine = np.flatnonzero(held.device == device)
        busy = 0.0 if parallel.overlap_dp else end
        for index in mine[np.argsort(held.last[mine], kind="stable")].tolist():
            begin = max(busy, float(held.last[index])) if parallel.overlap_dp else busy
            busy = max(begin + float(reduction[held.stage[index]]), float(held.last_end[index]))
        late = max(late, busy - float(base[device]) - longest)
        busy = 0.0
        for index in mine[np.argsort(held.first[mine], kind="stable")].tolist():
            stage = held.stage[index]
            busy += float(gather[stage])
            hidden = float(held.first[index] + forward[stage]) * parallel.overlap_dp
            delayed = max(delayed, busy - hidden)
    return late + delayed
