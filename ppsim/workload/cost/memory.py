"""Memory of every pipeline device: weights, gradients, optimizer, activations as the schedule holds
them, buffers.

What a layer keeps of a microbatch follows Megatron-LM with Transformer Engine: inputs and outputs
of norms, queries, keys and values, attention's output, and input and output of the MLP's
activation; GPT models of 2021 keep scores and dropout's masks as well (Korthikanti et al., arXiv
2205.05198). SimuMax's runs on B200 show the rest: a buffer for the weight gradients of one layer,
and at the output three copies of the logits.
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
MASTER = 4.0  # bytes of a parameter's master copy; the optimizer has two moments as well
LOGITS = 3.0 * ITEM  # bytes a logit at the loss: in 16 bits, and in 32
# whole inputs gathered from tensor-parallel ranks and being worked on, at the output
GATHERED = 3.0
AHEAD = 2.0  # layers whose weights ZeRO-3 holds whole at a time
ROUNDING = 1e-9
PARTS = ("weights", "gradients", "optimizer", "activations", "work")


@dataclass(frozen=True)
class StageMemory:
    """Memory of each stage on one GPU, in bytes; every array has shape (stages,).

    Attributes:
        weights: weights in 16 bits, a share of them with ZeRO-3, and narrow copies of the weights
            of layers.
        gradients: gradients, a share of them with ZeRO-2.
        optimizer: master copy and moments, a share of them with ZeRO-1.
        activations: what a forward leaves for a microbatch.
        kept: what W needs of it once I has run, and of the gradients that I makes; it may be more
            than ``activations``.
        work: additional bytes that the backward, or the loss, needs while it runs.
    """

    weights: Bytes
    gradients: Bytes
    optimizer: Bytes
    activations: Bytes
    kept: Bytes
    work: Bytes


@dataclass(frozen=True)
class DeviceMemory:
    """The peak of each pipeline device in bytes, shape (devices,), by part; they sum to
    ``total``.
    """

    weights: Bytes
    gradients: Bytes
    optimizer: Bytes
    activations: Bytes
    work: Bytes

    @property
    def total(self) -> Bytes:
        """All parts."""
        result: Bytes = (
            self.weights + self.gradients + self.optimizer + self.activations + self.work
        )
        return result


def stage_memory(model: Model, parallel: Parallel, layout: Layout | None = None) -> StageMemory:
    """Compute the memory of each stage on one GPU, in bytes.

    Raises:
        InputError: the layout's layers or stages differ from the model's and the run's.
    """
    contents = contents_of(model, parallel, layout)
    each = {content: content_memory(model, parallel, content) for content in set(contents)}
    return StageMemory(*np.array([each[content] for content in contents]).T)


def content_memory(model: Model, parallel: Parallel, content: StageContent) -> tuple[float, ...]:
    """Compute the memory of a stage of this content on one GPU, in bytes, in the order of
    :class:`StageMemory`.
    """
    p, shares = parallel, (group_of(parallel, "dp").size, group_of(parallel, "expert-dp").size)
    held = trained = count_stage_parameters(model, p, content)
    if model.encoder:
        trained = count_stage_parameters(model, p, content, trained=True)
    states = sum(trained), sum(count / share for count, share in zip(trained, shares, strict=True))
    weights = sum(held), sum(count / share for count, share in zip(held, shares, strict=True))
    learns = 0.0 if p.adapters else 1.0
    matrices = 0.0
    if p.optimizer == "muon":  # which keeps one moment of them
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
    """Return the bytes of layers' weights as Transformer Engine multiplies them, less those whose
    place they take.

    It keeps two copies for all microbatches of a step, as they are and transposed, or with scales
    along rows and along columns; ZeRO-3 gathers those of a layer. On Blackwell FP8 with one scale a
    tensor needs but one of them.
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
    """Compute the peak of each pipeline device, with activations as its queue holds them.

    Args:
        model: the model.
        parallel: how it is trained.
        layout: what each stage holds; as trainers divide layers without it.
        stages: the memory of stages where it is known.
        schedule: the queues where they are known, such as those ordered by the costs.

    Raises:
        InputError: the layout does not fit, or the schedule refuses the shape.
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
    """Make the memory model of a schedule's timeline, which gives the peaks of
    :func:`device_memory`.

    Args:
        model: the model.
        parallel: how it is trained.
        devices: shape (replicas, stages), the device of each stage.
        layout: what each stage holds; as trainers divide layers without it.

    Raises:
        InputError: the layout does not fit, or a stage takes more than numbers hold.
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
    """Compute the bytes of offloaded activations that wait in the host's memory at most, shape
    (devices,), a GPU's.

    Raises:
        InputError: the layout does not fit, or the schedule refuses the shape.
    """
    everything = device_memory(model, replace(parallel, offload=0.0), layout).activations
    return parallel.offload * everything


def states_of_devices(
    parallel: Parallel, stages: StageMemory, devices: NDArray[np.int32]
) -> tuple[Bytes, Bytes, Bytes]:
    """Sum weights, gradients and optimizer of each device's stages; ``devices`` has shape
    (replicas, stages).

    Of two replicas a device holds a stage each; ZeRO divides over both.
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
    """Count the stage-microbatches that each device holds at most, begun ones too, shape
    (devices,).
    """
    one, none = np.ones(schedule.n_stages), np.zeros(schedule.n_stages)
    held, _ = held_at_peaks(schedule, StageMemory(none, none, none, one, one, none))
    return np.ceil(held - ROUNDING).astype(np.int64)


def held_at_peaks(schedule: Schedule, stages: StageMemory) -> tuple[Bytes, Bytes]:
    """Walk each device's queue and return its activations at the peak, and for the op that runs
    then.
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
    """Return the microbatches of each stage that a device holds at its peak, if W needs the share
    ``kept`` of activations.

    Whatever the stages' bytes are, a device's peak is at least its memory at this moment.

    Returns:
        Shape (devices, stages) twice: how many microbatches' activations, and of how many others
            what W needs; shape
        (devices,): the stage at work then, -1 where no backward runs.
    """
    one, none = np.ones(schedule.n_stages), np.zeros(schedule.n_stages)
    change, backward = _changes(schedule, StageMemory(none, none, none, one, kept * one, none))
    whole, _ = _changes(schedule, StageMemory(none, none, none, one, none, none))
    for_weights, _ = _changes(schedule, StageMemory(none, none, none, none, one, none))
    counts, pending = np.zeros((2, schedule.n_devices, schedule.n_stages))
    at_work = np.full(schedule.n_devices, -1)
    for device, ops in enumerate(_queues(schedule)):
        running, ended = _bytes_by_op(change[ops], backward[ops])
        # An op that needs more wins where it holds as much.
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
    """Return each op's change of its device's activations, and whether it is a backward with extra
    memory.

    An op of a slice adds as much less as the slice is shorter than its sequence.
    """
    kind, stage = schedule.kind, schedule.stage
    change = np.zeros(len(schedule))
    for what, amount in (
        (Kind.F, stages.activations),
        (Kind.B, -stages.activations),
        (Kind.I, stages.kept - stages.activations),
        (Kind.W, -stages.kept),
    ):
        here = kind == what
        change[here] = amount[stage[here]] / schedule.n_slices
    return change, (kind == Kind.B) | (kind == Kind.I)


def _queues(schedule: Schedule) -> Iterator[slice]:
    return (slice(int(first), int(end)) for first, end in pairwise(schedule.offsets))


def _bytes_by_op(change: Bytes, backward: NDArray[np.bool_]) -> tuple[Bytes, Bytes]:
    """Return the bytes held while each op of a queue runs, and once it has ended. A forward takes
    its activations as it begins; I leaves W's part as it ends.
    """
    after = np.cumsum(change)
    return np.where(backward, after - change, np.maximum(after, after - change)), after


def _stage_work(model: Model, parallel: Parallel, content: StageContent) -> float:
    """Bytes that the backward of a stage needs while it runs: the loss, or the layer at work; and
    weight gradients.
    """
    tokens, p = tokens_of(model, parallel), parallel
    ends = GATHERED * ITEM * tokens * model.hidden
    layer = max((_layer_work(model, p, kind, content) for kind, _ in content.kinds), default=0.0)
    loss = LOGITS * tokens * model.vocab / p.tp if content.heads else 0.0
    routed = expert_parameters(model) * model.experts
    gradients = gathered = dense = whole = 0.0
    for kind, _ in content.kinds:
        outside = rank_parameters(model, p.tp, kind)
        dense, whole = (
            max(dense, outside),
            max(whole, outside + routed * (kind.mlp == "experts") / p.ep),
        )
    # the layer at work and the one fetched ahead; embedding and output stay gathered
    if p.zero == 3:
        outer = content.embedding + bool(content.heads) * (not model.tied)
        gathered = ITEM * (AHEAD * whole + outer * model.vocab * model.hidden / p.tp)
    if p.kernels != "eager" and not p.adapters:
        gradients = ITEM * dense  # experts share one expert's
    return max(loss, layer) + ends + gradients + gathered


def _layer_work(model: Model, parallel: Parallel, layer: Layer, content: StageContent) -> float:
    """Bytes that the backward of one layer needs while it runs."""
    p, width = (
        parallel,
        {"none": 0, "dense": model.ffn, "experts": model.expert_ffn * model.top_k}[layer.mlp],
    )
    result = ITEM * tokens_of(model, p) * width / p.tp * (2 if model.gated else 1)
    whole = layer_activations(model, p, layer, "none")
    if content.recomputed and p.recompute == "full":
        result += whole
    if p.offload:  # the layer that is copied
        alone = content.recomputed == content.layers
        result += p.offload * (layer_activations(model, p, layer, p.recompute) if alone else whole)
    return result
