"""What follows a pipeline's last backward: gradients reduced, the optimizer's step, weights
gathered.
"""

from __future__ import annotations

import numpy as np

from ppsim.workload.cost.communication import Group, gather_seconds, group_of
from ppsim.workload.cost.overlap import added
from ppsim.workload.hardware.efficiency import Efficiency
from ppsim.workload.hardware.hardware import Machine
from ppsim.workload.model.operators import ITEM, Floats
from ppsim.workload.model.parallel import Parallel

# That Adam moves for a parameter beside its two moments: reads master and gradient, writes a master
# and a weight; and that it reads and writes of each byte of a moment.
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
        group = joined(machine, p, group_of(p, name))
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

    Narrow ones are gathered with one scale a tensor; with scales of blocks each rank narrows what
    came in 16 bits (Megatron-LM's --reuse-grad-buf-for-mxfp8-param-ag).
    """
    if parallel.zero == 0:
        return parallel.gradient_bytes
    return 1.0 if parallel.narrow_weights and parallel.precision == "fp8" else ITEM


def add_sharded(
    time: Floats, reduction: Floats, gather: Floats, layers: Floats, parallel: Parallel
) -> tuple[Floats, Floats, Floats]:
    """Add to the times of stages what ZeRO-2 and ZeRO-3 communicate for every microbatch.

    ZeRO-2 scatters gradients in each backward, as it keeps only its share of their sum. ZeRO-3 also
    gathers a layer's weights before its forward and again before its backward, as torch's FSDP2
    does with reshard_after_forward, Megatron FSDP with optim_grads_params, and DeepSpeed. With
    overlap it runs beside compute, which it slows, but for the first layer's gather. Frameworks
    that keep gathered weights and whole gradients until a step ends (FSDP2 in torch's pipeline
    runtime) are ZeRO-1 here.

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


def joined(machine: Machine, parallel: Parallel, group: Group) -> Group:
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
