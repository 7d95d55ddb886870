"""Seconds of reducing gradients, of the optimizer's step and of gathering weights."""

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

# Bytes that Adam moves for a parameter without its moments: it reads a master copy and a gradient,
# and writes a master copy and a weight.
OPTIMIZER_BYTES = 18
OF_MOMENTS = 4  # bytes that Adam moves per byte of a moment: it reads and writes both moments
BUCKET = 40e6  # least parameters of a bucket in Megatron-LM, which has 1e6 for each replica


def reduction_seconds(
    machine: Machine, parallel: Parallel, split: Floats, found: Efficiency, layers: Floats
) -> tuple[Floats, Floats]:
    """Compute the seconds of reducing gradients and of gathering weights, each of shape (stages,).

    Both are divided into buckets, with ZeRO-3 into layers.

    Args:
        machine: the cluster.
        parallel: how the model is trained.
        split: shape (2, stages), parameters on a GPU outside experts, and of experts.
        found: the efficiency of GPU and software.
        layers: shape (stages,), layers of each stage.
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
    if p.zero == 3 and p.gather_gb_per_s and group_of(p, "dp").size > 1:
        least = split.sum(axis=0) * weight_bytes(p) / (p.gather_gb_per_s * 1e9)
        gather = np.maximum(gather, least)
    return reduction, gather


def weight_bytes(parallel: Parallel) -> float:
    """Return the bytes that data-parallel ranks gather for a weight.

    Without ZeRO it is the second half of the gradient's all-reduce. FP8 weights with one scale per
    tensor are gathered in FP8. Formats with a scale for each block are gathered in 16 bits, and
    each rank casts the weights it received (Megatron-LM's --reuse-grad-buf-for-mxfp8-param-ag).
    """
    if parallel.zero == 0:
        return parallel.gradient_bytes
    return 1.0 if parallel.narrow_weights and parallel.precision == "fp8" else ITEM


def add_sharded(
    time: Floats, reduction: Floats, gather: Floats, layers: Floats, parallel: Parallel
) -> tuple[Floats, Floats, Floats]:
    """Add the communication of ZeRO-2 and ZeRO-3 in every microbatch to the times of stages.

    In ZeRO-2 a rank keeps only its share of summed gradients, so each backward scatters them.
    ZeRO-3 also gathers a layer's weights before its forward and again before its backward, as do
    torch's FSDP2 with reshard_after_forward, Megatron FSDP with optim_grads_params, and DeepSpeed.
    With ``overlap_dp`` all but the first layer's gather runs in parallel with compute and slows it.
    Frameworks that keep gathered weights and whole gradients until a step ends (FSDP2 in torch's
    pipeline runtime) count as ZeRO-1.

    Args:
        time: shape (5, stages), seconds of F, B, I, W and R.
        reduction: shape (stages,), seconds of scattering a stage's gradients.
        gather: shape (stages,), seconds of gathering its weights.
        layers: shape (stages,), layers of each stage.
        parallel: how the model is trained.

    Returns:
        The times; the seconds of reduction and of gather that remain for the end of a step.
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
    """Return the data-parallel group of a stage that a bidirectional pipeline holds twice.

    Its ranks are those of both copies of the stage. They are on different nodes if the pipeline
    spans several nodes.
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
    """Compute the seconds of the optimizer's step, shape (stages,).

    ``split`` has shape (2, stages): parameters on a GPU outside experts, and of experts.
    """
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
    """Each stage on each device, as columns, with times in seconds from the start of a step.

    Attributes:
        device: shape (n,), the device.
        stage: shape (n,), the stage's number.
        first: shape (n,), start of the stage's first F.
        last: shape (n,), start of the stage's last B or W.
        last_end: shape (n,), end of the stage's last B or W.
        start: shape (devices,), start of a device's first op.
        end: shape (devices,), end of a device's last op.
    """

    device: NDArray[np.int64]
    stage: NDArray[np.int64]
    first: Floats
    last: Floats
    last_end: Floats
    start: Floats
    end: Floats


def on_one_device(forward: Floats, backward: Floats, seconds: float) -> HeldStages:
    """Return the stages of a run without a pipeline.

    Args:
        forward: shape (stages,), seconds of F.
        backward: shape (stages,), seconds of B.
        seconds: seconds of all ops of a step.
    """
    count, after = len(forward), np.cumsum(backward) - backward
    done = seconds - after
    none = np.zeros(count, np.int64)
    first = np.cumsum(forward) - forward
    ends = np.zeros(1), np.array([seconds])
    return HeldStages(none, np.arange(count), first, done - backward, done, *ends)


def held_stages(timeline: Timeline, unit: float) -> HeldStages:
    """Return the stages of a timeline's devices; ``unit`` is the seconds of a unit of its times."""
    schedule, start, end = timeline.schedule, timeline.start * unit, timeline.end * unit
    stages, kind = schedule.placement.n_stages, schedule.kind
    forward, weights = kind == Kind.F, np.isin(kind, (Kind.B, Kind.W))
    each = schedule.device * np.int64(stages) + schedule.stage
    keys = np.unique(each[forward])  # ops of other kinds may belong to no stage
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

    Both run on one stream per device, stage after stage. With ``overlap_dp`` a stage's reduction
    starts with its last backward, and its gather must end before its first forward ends. Without
    it reductions follow the device's last op, and gathers precede its first.

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
