"""Memory of pipeline devices in bytes: weights, gradients, optimizer, activations and buffers.

The activations that a layer keeps of a microbatch follow Megatron-LM with Transformer Engine:
inputs and outputs of norms; queries, keys and values; attention's output; input and output of the
MLP's activation. GPT models of 2021 keep scores and dropout masks as well (Korthikanti et al.,
arXiv 2205.05198). Buffers follow SimuMax's runs on B200: the weight gradients of one layer, and
three copies of the logits at the output.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ppsim.base.units import format_size
from ppsim.core.ops import Kind
from ppsim.core.schedule import Schedule
from ppsim.engine.memory.usage import MOST_BYTES, MemoryModel
from ppsim.errors import InputError
from ppsim.workload.cost.communication import group_of
from ppsim.workload.cost.costs import schedule_of
from ppsim.workload.cost.muon import matrix_parameters
from ppsim.workload.layout.layout import Layout
from ppsim.workload.model.activations import KEPT_AS, layer_activations
from ppsim.workload.model.contents import (
    StageContent,
    contents_of,
    count_layer_parameters,
    count_stage_parameters,
    kept_bytes,
    message_bytes,
    rank_parameters,
    weight_kept_bytes,
)
from ppsim.workload.model.model import Layer, Model, expert_parameters
from ppsim.workload.model.operators import ITEM, tokens_of
from ppsim.workload.model.parallel import Parallel

Bytes = NDArray[np.float64]
MASTER = 4.0  # bytes of a parameter's master copy
LOGITS = 3.0 * ITEM  # bytes of a logit at the loss: a copy in 16 bits and one in 32 bits
# copies of a microbatch's hidden states, gathered over tensor-parallel ranks, in a backward
GATHERED = 3.0
AHEAD = 2.0  # layers whose weights ZeRO-3 has gathered at a time
ROUNDING = 1e-9
PARTS = ("weights", "gradients", "optimizer", "activations", "work")


@dataclass(frozen=True)
class StageMemory:
    """Memory of each stage on one GPU, in bytes; every array has shape (stages,).

    Attributes:
        weights: weights in 16 bits (a rank's share with ZeRO-3), and copies of layers' weights in
            narrow formats.
        gradients: gradients (a rank's share with ZeRO-2).
        optimizer: master copy and moments (a rank's share with ZeRO-1).
        activations: activations that a forward of one microbatch keeps.
        kept: activations and gradients that W needs after I has run; may exceed ``activations``.
        work: additional bytes while the backward, or the loss, runs.
    """

    weights: Bytes
    gradients: Bytes
    optimizer: Bytes
    activations: Bytes
    kept: Bytes
    work: Bytes


@dataclass(frozen=True)
class DeviceMemory:
    """The memory of each pipeline device at its peak, in bytes; each part has shape (devices,)."""

    weights: Bytes
    gradients: Bytes
    optimizer: Bytes
    activations: Bytes
    work: Bytes

    @property
    def total(self) -> Bytes:
        """Sum of all parts in bytes, shape (devices,)."""
        result: Bytes = (
            self.weights + self.gradients + self.optimizer + self.activations + self.work
        )
        return result


def stage_memory(model: Model, parallel: Parallel, layout: Layout | None = None) -> StageMemory:
    """Compute the memory of each stage on one GPU, in bytes.

    Raises:
        InputError: the layout has not the model's layers or the run's stages.
    """
    contents = contents_of(model, parallel, layout)
    each = {content: content_memory(model, parallel, content) for content in set(contents)}
    return StageMemory(*np.array([each[content] for content in contents]).T)


def content_memory(model: Model, parallel: Parallel, content: StageContent) -> tuple[float, ...]:
    """Compute the fields of :class:`StageMemory` for one stage, in bytes."""
    p, shares = parallel, (group_of(parallel, "dp").size, group_of(parallel, "expert-dp").size)
    held = trained = count_stage_parameters(model, p, content)
    if model.encoder:
        trained = count_stage_parameters(model, p, content, trained=True)
    states = sum(trained), sum(count / share for count, share in zip(trained, shares, strict=True))
    weights = sum(held), sum(count / share for count, share in zip(held, shares, strict=True))
    learns = 0.0 if p.adapters else 1.0
    matrices = 0.0
    if p.optimizer == "muon":  # it keeps one moment of a matrix, not two
        of_layers = zip(matrix_parameters(model, p, content), shares, strict=True)
        matrices = sum(count / (share if p.zero else 1) for count, share in of_layers)
    return (
        ITEM * weights[p.zero >= 3] + _narrow_bytes(model, p, content),
        learns * p.gradient_bytes * states[p.zero >= 2],
        learns * ((MASTER + 2 * p.moment_bytes) * states[p.zero >= 1] - p.moment_bytes * matrices),
        kept_bytes(model, p, content) * (1 - p.offload),
        weight_kept_bytes(model, p, content),
        _stage_work(model, p, content),
    )


def _narrow_bytes(model: Model, parallel: Parallel, content: StageContent) -> float:
    """Return the bytes of layers' weights in a narrow format, less the 16-bit ones they replace.

    For all microbatches of a step, Transformer Engine keeps two copies: plain and transposed, or
    scaled along rows and scaled along columns. With ZeRO-3 only the copies of a gathered layer
    exist. (Blackwell would need one copy for FP8 with one scale per tensor.)
    """
    if parallel.precision not in KEPT_AS or parallel.kernels != "fused" or parallel.zero == 3:
        return 0.0
    each = 2 * KEPT_AS[parallel.precision] - (
        ITEM if parallel.narrow_weights and parallel.zero else 0.0
    )
    return each * sum(count_layer_parameters(model, parallel, content))


def device_memory(
    model: Model,
    parallel: Parallel,
    layout: Layout | None = None,
    stages: StageMemory | None = None,
    schedule: Schedule | None = None,
) -> DeviceMemory:
    """Compute the memory of each pipeline device at its peak, in bytes, from its queue.

    Args:
        model: the model.
        parallel: how the model is trained.
        layout: the layers of each stage; None divides them as training software does.
        stages: the memory of stages, if known (:func:`stage_memory`).
        schedule: the queues, if known, such as queues ordered by costs.

    Raises:
        InputError: the layout has not the model's layers, or the schedule refuses the shape.
    """
    stages = stages or stage_memory(model, parallel, layout)
    if parallel.pp == 1:
        parts = stages.weights, stages.gradients, stages.optimizer, stages.activations
        weights, gradients, optimizer, held = (part.sum(keepdims=True) for part in parts)
        return DeviceMemory(weights, gradients, optimizer, held, stages.work.max(keepdims=True))
    schedule = schedule or schedule_of(
        parallel.schedule_name, parallel.pp, parallel.vp, parallel.microbatches
    )
    held, work = held_at_peaks(schedule, stages)
    return DeviceMemory(
        *states_of_devices(parallel, stages, schedule.placement.devices), held, work
    )


def memory_model(
    model: Model, parallel: Parallel, devices: NDArray[np.int32], layout: Layout | None = None
) -> MemoryModel:
    """Return the memory model for a timeline; its peaks are those of :func:`device_memory`.

    Args:
        model: the model.
        parallel: how the model is trained.
        devices: shape (replicas, stages), the device of each stage.
        layout: the layers of each stage; None divides them as training software does.

    Raises:
        InputError: the layout has not the model's layers, or a stage exceeds ``MOST_BYTES``.
    """
    stages, replicas = stage_memory(model, parallel, layout), len(devices)

    def whole(amount: Bytes) -> NDArray[np.int64]:
        return np.ceil(amount).astype(np.int64)

    most = sum(getattr(stages, name) for name in PARTS).max()
    if most > MOST_BYTES:
        large = f"a stage of {model.name or 'the model'} takes more than {format_size(MOST_BYTES)}"
        raise InputError(
            large, "more --tp or --devices, or the sizes of a model that one can train"
        )
    states = (stages.weights, 3), (stages.gradients, 2), (stages.optimizer, 1)
    static = {
        name: whole(amount / (replicas if parallel.zero >= least else 1))
        for name, (amount, least) in zip(PARTS, states, strict=False)
    }
    none = np.zeros(len(stages.work), np.int64)
    return MemoryModel(
        activations=whole(stages.activations),
        kept=whole(np.minimum(stages.kept, stages.activations)),
        stash=whole(np.maximum(stages.kept - stages.activations, 0.0)),
        work_b=whole(stages.work),
        work_i=whole(stages.work),
        message=none,
        stored=np.minimum(whole(stages.activations), int(message_bytes(model, parallel))),
        static=static,
    )


def host_memory(model: Model, parallel: Parallel, layout: Layout | None = None) -> Bytes:
    """Compute the most bytes that a GPU has offloaded to the host at a time, shape (devices,).

    Raises:
        InputError: the layout has not the model's layers, or the schedule refuses the shape.
    """
    everything = device_memory(model, replace(parallel, offload=0.0), layout).activations
    return parallel.offload * everything


def states_of_devices(
    parallel: Parallel, stages: StageMemory, devices: NDArray[np.int32]
) -> tuple[Bytes, Bytes, Bytes]:
    """Sum weights, gradients and optimizer over the stages of each device, in bytes.

    ``devices`` has shape (replicas, stages). A device of a bidirectional pipeline holds a stage of
    each replica; ZeRO divides over both.
    """

    def of_devices(amount: Bytes, zero: int) -> Bytes:
        whole = np.bincount(devices.ravel(), np.tile(amount, len(devices)), parallel.pp)
        return whole / (len(devices) if parallel.zero >= zero else 1.0)

    return (
        of_devices(stages.weights, 3),
        of_devices(stages.gradients, 2),
        of_devices(stages.optimizer, 1),
    )


def in_flight(schedule: Schedule) -> NDArray[np.int64]:
    """Return the most (stage, microbatch) activations that a device holds, shape (devices,).

    Begun forwards count.
    """
    one, none = np.ones(schedule.n_stages), np.zeros(schedule.n_stages)
    held, _ = held_at_peaks(schedule, StageMemory(none, none, none, one, one, none))
    return np.ceil(held - ROUNDING).astype(np.int64)


def held_at_peaks(schedule: Schedule, stages: StageMemory) -> tuple[Bytes, Bytes]:
    """Return each device's activations at its peak, and the bytes of the op that runs then.

    Both in bytes, shape (devices,), from a walk through each device's queue.
    """
    change, backward = _changes(schedule, stages)
    during = np.where(backward, stages.work[schedule.stage], 0.0)
    during /= schedule.n_slices
    held, work = np.zeros(schedule.n_devices), np.zeros(schedule.n_devices)
    for device, ops in enumerate(_queues(schedule)):
        running, ended = _bytes_by_op(change[ops], backward[ops])
        peak = int(np.argmax(running + during[ops]))
        held[device], work[device] = running[peak], during[ops][peak]
        if ended.max() > held[device] + work[device]:
            held[device], work[device] = ended.max(), 0.0
    return held, work


def held_stages(schedule: Schedule, kept: float) -> tuple[Bytes, Bytes, NDArray[np.intp]]:
    """Count the microbatches of each stage that a device holds at its peak.

    All stages count as equally large here, and W needs the share ``kept`` of activations. For
    stages of any size, the device's memory at this moment is a lower bound of its peak.

    Returns:
        Microbatches with all activations, and microbatches with only those that W needs, each of
            shape (devices, stages); and the stage whose backward runs then, -1 if none does, shape
            (devices,).
    """
    one, none = np.ones(schedule.n_stages), np.zeros(schedule.n_stages)
    change, backward = _changes(schedule, StageMemory(none, none, none, one, kept * one, none))
    whole, _ = _changes(schedule, StageMemory(none, none, none, one, none, none))
    for_weights, _ = _changes(schedule, StageMemory(none, none, none, none, one, none))
    counts, pending = np.zeros((2, schedule.n_devices, schedule.n_stages))
    at_work = np.full(schedule.n_devices, -1)
    for device, ops in enumerate(_queues(schedule)):
        running, ended = _bytes_by_op(change[ops], backward[ops])
        # Of moments with equal activations, take one at which a backward runs.
        peak = int(np.argmax(running + backward[ops] / 4))
        grown = ended.max() > running[peak]
        peak = int(np.argmax(ended)) if grown else peak
        before = slice(ops.start, ops.start + peak + (grown or not backward[ops][peak]))
        held = schedule.stage[before]
        counts[device] = np.bincount(held, whole[before], schedule.n_stages)
        pending[device] = np.bincount(held, for_weights[before], schedule.n_stages)
        if backward[ops][peak] and not grown:
            at_work[device] = schedule.stage[ops][peak]
    return counts, pending, at_work


def _changes(schedule: Schedule, stages: StageMemory) -> tuple[Bytes, NDArray[np.bool_]]:
    """Return each op's change of its device's activations in bytes, and whether it is B or I.

    An op of a slice changes them by its share of the sequence.
    """
    kind, stage = schedule.kind, schedule.stage
    change = np.zeros(len(schedule))
    for op_kind, amount in (
        (Kind.F, stages.activations),
        (Kind.B, -stages.activations),
        (Kind.I, stages.kept - stages.activations),
        (Kind.W, -stages.kept),
    ):
        here = kind == op_kind
        change[here] = amount[stage[here]] / schedule.n_slices
    return change, (kind == Kind.B) | (kind == Kind.I)


def _queues(schedule: Schedule) -> Iterator[slice]:
    return (slice(int(first), int(end)) for first, end in pairwise(schedule.offsets))


def _bytes_by_op(change: Bytes, backward: NDArray[np.bool_]) -> tuple[Bytes, Bytes]:
    """Return a queue's activations in bytes while each op runs, and after each op.

    A forward allocates its activations when it starts; a backward frees them when it ends.
    """
    after = np.cumsum(change)
    return np.where(backward, after - change, np.maximum(after, after - change)), after


def _stage_work(model: Model, parallel: Parallel, content: StageContent) -> float:
    """Return the additional bytes while the backward of a stage runs.

    They are the larger of the loss and the largest layer, gathered hidden states, the weight
    gradients of one layer, and with ZeRO-3 gathered weights.
    """
    tokens, p = tokens_of(model, parallel), parallel
    ends = GATHERED * ITEM * tokens * model.hidden
    layer = max((_layer_work(model, p, kind, content) for kind, _ in content.kinds), default=0.0)
    loss = LOGITS * tokens * model.vocab / p.tp if content.heads else 0.0
    routed = expert_parameters(model) * model.experts
    gradients = gathered = dense = whole = 0.0
    for kind, _ in content.kinds:
        outside = rank_parameters(model, p.tp, kind)
        dense = max(dense, outside)
        whole = max(whole, outside + routed * (kind.mlp == "experts") / p.ep)
    # the layer at work and the one gathered ahead; embedding and output stay gathered
    if p.zero == 3:
        outer = content.embedding + bool(content.heads) * (not model.tied)
        gathered = ITEM * (AHEAD * whole + outer * model.vocab * model.hidden / p.tp)
    if p.kernels != "eager" and not p.adapters:
        gradients = ITEM * dense  # without those of experts, which share a buffer of one expert
    return max(loss, layer) + ends + gradients + gathered


def _layer_work(model: Model, parallel: Parallel, layer: Layer, content: StageContent) -> float:
    """Return the additional bytes while the backward of one layer runs."""
    p = parallel
    widths = {"none": 0, "dense": model.ffn, "experts": model.expert_ffn * model.top_k}
    width = widths[layer.mlp]
    result = ITEM * tokens_of(model, p) * width / p.tp * (2 if model.gated else 1)
    whole = layer_activations(model, p, layer, "none")
    if content.recomputed and p.recompute == "full":
        result += whole
    if p.offload:  # the layer that is copied from the host
        all_recomputed = content.recomputed == content.layers
        kept = layer_activations(model, p, layer, p.recompute) if all_recomputed else whole
        result += p.offload * kept
    return result
