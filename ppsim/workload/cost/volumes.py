"""Bytes that a GPU sends in a training step, by kind of parallelism, within and between nodes."""

from __future__ import annotations

import numpy as np

from ppsim.core.schedule import Schedule
from ppsim.workload.cost.communication import Group, exchange_bytes, group_of
from ppsim.workload.cost.costs import (
    attention_input_share,
    exchanged,
    gathered_bytes,
    gathered_shares,
)
from ppsim.workload.cost.overlap import ATTENTION_OUT, BLOCKS
from ppsim.workload.cost.update import joined_group, weight_bytes
from ppsim.workload.hardware.hardware import Machine
from ppsim.workload.layout.layout import Layout
from ppsim.workload.model.contents import contents_of, message_bytes, parameters_of_stages
from ppsim.workload.model.model import Layer, Model, mtp_kind
from ppsim.workload.model.operators import Floats, layer_operators
from ppsim.workload.model.parallel import Parallel

VOLUMES = ("tp", "cp", "ep", "pp", "dp")


def sent_bytes(
    model: Model,
    machine: Machine,
    parallel: Parallel,
    schedule: Schedule,
    layout: Layout | None = None,
) -> dict[str, Floats]:
    """Return the bytes that a GPU sends in a step, the mean of all GPUs, by kind of parallelism.

    The times of a plan are computed from the same bytes. In a ring every rank sends (n - 1)/n of a
    gather's result, and one rank of each node sends to the next node. Tokens of experts take the
    dispatcher's path. dp includes expert-data-parallel ranks. Gradients of a table that embedding
    and output share, and scattered embeddings, are left out: they are small.

    Args:
        model: the model.
        machine: a cluster of one kind of nodes.
        parallel: how the model is trained.
        schedule: the pipeline's queues.
        layout: the layers of each stage.

    Returns:
        For each kind the bytes sent within the GPU's node, and to other nodes, shape (2,).
    """
    p, found = parallel, {kind: np.zeros(2) for kind in VOLUMES}
    contents = contents_of(model, p, layout)
    each = p.microbatches / p.pp
    for content in contents:
        again = content.recomputed / max(content.layers, 1) * (p.recompute == "full")
        mtp = [(mtp_kind(model), content.mtp, 0.0)] if content.mtp else []
        for layer, count, part in [*((layer, n, again) for layer, n in content.kinds), *mtp]:
            for kind, amount in _layer_bytes(model, machine, p, layer, part).items():
                found[kind] += each * count * amount
    trained = parameters_of_stages(model, p, contents, trained=True) * p.replicas / p.pp
    scatters = p.microbatches if p.zero >= 2 else 1
    gathers = 2 * p.microbatches if p.zero == 3 else 1
    bytes_per_weight = scatters * p.gradient_bytes + gathers * weight_bytes(p)
    for row, name in () if p.adapters else ((0, "dp"), (1, "expert-dp")):
        group = joined_group(machine, p, group_of(p, name))
        bytes_ = float(trained[row].sum()) * bytes_per_weight
        found["dp"] += _ring(machine, group, bytes_, p.zero == 0)
    found["pp"] += _messages(machine, p, schedule) * message_bytes(model, p)
    return found


def _layer_bytes(
    model: Model, machine: Machine, parallel: Parallel, layer: Layer, recomputed_share: float
) -> dict[str, Floats]:
    """Return the bytes that a GPU sends for one layer and microbatch, as :func:`sent_bytes` does.

    ``recomputed_share`` is the share of such layers whose forward is recomputed.
    """
    p, (whole, keys) = parallel, gathered_bytes(model, parallel, layer)
    names = layer_operators(model, p, layer).names
    blocks = sum(makes in names for _, makes in BLOCKS)
    f, i, w = gathered_shares(p)
    # With sequence parallelism F gathers and scatters, and a backward gathers twice and scatters.
    # Without it both sum; a sum sends as many bytes as a gather and a scatter.
    # Latent attention gathers and scatters fewer bytes at its input.
    has_attention = ATTENTION_OUT in names
    inward = blocks - has_attention * (1 - attention_input_share(model, layer))
    if p.sequence_parallel:
        gathers = blocks * (1 + i + recomputed_share) + inward * (1 + f + w + recomputed_share * f)
    else:
        gathers = blocks * 2 * (1 + recomputed_share) + inward * 2
    found = {"tp": _ring(machine, group_of(p, "tp"), gathers * whole, not p.sequence_parallel)}
    # once in F; twice in I, with their gradients
    found["cp"] = _ring(machine, group_of(p, "cp"), (3 + recomputed_share) * keys)
    if layer.mlp == "experts":
        found["ep"] = (4 + 2 * recomputed_share) * np.array(
            exchange_bytes(machine, group_of(p, "ep"), *exchanged(model, p))
        )
    return found


def _ring(machine: Machine, group: Group, bytes_: float, summed: bool = False) -> Floats:
    """Return the mean bytes that a rank of a ring sends within its node, and to other nodes.

    One rank of each node sends to the next node.
    """
    n, inside = group.size, group.per_node(machine)
    far = 1 / inside if inside < n else 0.0
    return bytes_ * (n - 1) / n * np.array([1 - far, far / group.saved(machine, summed)])


def _messages(machine: Machine, parallel: Parallel, schedule: Schedule) -> Floats:
    """Return the mean number of messages of a device in a step: within its node, and between."""
    p, stride = parallel, group_of(parallel, "pp").stride
    source = schedule.dependency
    sent = source >= 0
    pair = schedule.device[source[sent]], schedule.device[sent]
    starts = np.arange(p.dp if p.pipeline_first else 1)[:, None] * p.pp * stride
    here, there = ((starts + device * stride) // machine.per_node for device in pair)
    far = float((here != there).mean(axis=0).sum())
    return np.array([float((pair[0] != pair[1]).sum()) - far, far]) / p.pp
