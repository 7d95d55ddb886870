"""Costs of a model on a machine: times of stages, bytes of messages, and the time of a step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from math import hypot
from typing import Any

import numpy as np

from ppsim.core.costs import Costs
from ppsim.core.ops import BACKWARDS, Kind
from ppsim.core.schedule import Schedule
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure, span_of
from ppsim.errors import InputError
from ppsim.schedules import find, generate, generate_once
from ppsim.workload.cost.communication import (
    exchange_seconds,
    gather_seconds,
    group_of,
    message_seconds,
)
from ppsim.workload.cost.kinds import Pieces, slowest
from ppsim.workload.cost.muon import muon_seconds
from ppsim.workload.cost.overlap import (
    EXPERTS,
    SHARED,
    context_waits,
    expert_pair,
    lost_overlap,
    tensor_waits,
)
from ppsim.workload.cost.update import (
    add_sharded,
    held_stages,
    on_one_device,
    optimizer_seconds,
    reduction_seconds,
    seen_seconds,
)
from ppsim.workload.hardware.efficiency import Efficiency, efficiency_of, pass_seconds, seconds
from ppsim.workload.hardware.hardware import AS_THE_CURVE, Machine, Measured
from ppsim.workload.layout.layout import Layout
from ppsim.workload.model import operators as ops
from ppsim.workload.model.activations import KEPT_AS
from ppsim.workload.model.contents import (
    StageContent,
    contents_of,
    kept_bytes,
    message_bytes,
    parameters_of_stages,
    weight_kept_bytes,
)
from ppsim.workload.model.model import STATES, Encoder, Layer, Model, flops_per_token, mtp_kind
from ppsim.workload.model.operators import Floats
from ppsim.workload.model.parallel import Parallel


@dataclass(frozen=True)
class StageCosts:
    """Costs of each stage for a microbatch, in seconds.

    Attributes:
        costs: the simulator's costs of one op in ms: F, B, I, W and R by stage, latencies between
            devices, and pairs of F and B where a pair hides all-to-all. One op is a slice of the
            sequence where the schedule cuts sequences.
        time: shape (5, stages), seconds of F, B, I, W and R for a whole microbatch; where pairs
            hide all-to-all, F and B are the parts of a pair.
        communication: shape (stages,), seconds of F and B that wait for collectives.
        message: bytes that an op sends to the next stage.
        parameters: shape (stages,), parameters on one GPU.
        dp: shape (stages,), seconds of reducing gradients after the last microbatch.
        gather: shape (stages,), seconds of gathering weights once a step.
        optimizer: shape (stages,), seconds of the optimizer's step.
        kept_share: share of activations that W needs, over all stages together, at most 1.
    """

    costs: Costs
    time: Floats
    communication: Floats
    message: float
    parameters: Floats
    dp: Floats
    gather: Floats
    optimizer: Floats
    kept_share: float


@dataclass(frozen=True)
class Step:
    """The time of a training step in seconds, and its parts.

    Attributes:
        seconds: the whole step.
        pipeline: from the first forward to the last backward.
        work: ops of a device within the pipeline's time, on average.
        bubble: share of the pipeline's time in which a device waits, on average.
        reduction: exposed part of reducing gradients and gathering weights.
        optimizer: the optimizer's step.
        tokens_per_s: tokens per second of all GPUs together.
        mfu: model FLOPs (the causal half of attention) over the peak in the training precision.
        tflops: model TFLOP/s of each GPU.
    """

    seconds: float
    pipeline: float
    work: float
    bubble: float
    reduction: float
    optimizer: float
    tokens_per_s: float
    mfu: float
    tflops: float


def stage_costs(
    model: Model,
    machine: Machine,
    parallel: Parallel,
    layout: Layout | None = None,
    efficiency: Efficiency | None = None,
) -> StageCosts:
    """Compute the costs of each stage for a microbatch: times, messages, parameters, reductions.

    Args:
        model: the model.
        machine: the cluster and its GPUs.
        parallel: how the model is trained.
        layout: the layers of each stage; None divides them as training software does.
        efficiency: efficiency of GPU and software; None takes the library's.

    Raises:
        InputError: the layout has not the model's layers, or the GPU lacks the precision.
    """
    contents = contents_of(model, parallel, layout)
    if machine.kinds:
        pieces = slowest(
            machine,
            parallel,
            [_pieces(model, k.machine, parallel, contents) for k in machine.kinds],
        )
    else:
        pieces = _pieces(model, machine, parallel, contents, efficiency)
    time, hops = pieces.time, pieces.hops
    if not parallel.overlap_p2p and parallel.pp > 1:
        # The device waits while its message travels, after each op that sends one: F, B and I.
        sent = hops[
            np.arange(parallel.stages) % parallel.pp, (np.arange(parallel.stages) + 1) % parallel.pp
        ]
        time[:3] += parallel.pieces * sent
        hops[:] = 0
    if parallel.pp > 1:
        time[:3] += parallel.pieces * parallel.exchange_ms / 1e3
    costs = Costs(time * (1e3 / parallel.pieces), comm=hops * 1e3, unit="ms")
    if parallel.overlap_ep:
        exposed = replace(parallel, overlap_ep=False)
        unpaired = stage_costs(model, machine, exposed, layout, efficiency).costs
        costs = replace(unpaired, pair=(costs.time[Kind.F] + costs.time[Kind.B]))
    return StageCosts(
        costs=costs,
        time=time,
        communication=pieces.communication,
        message=message_bytes(model, parallel) / parallel.pieces,
        parameters=parameters_of_stages(model, parallel, contents).sum(axis=0),
        dp=pieces.dp,
        gather=pieces.gather,
        optimizer=pieces.optimizer,
        kept_share=_kept_share(model, parallel, contents),
    )


def _kept_share(model: Model, parallel: Parallel, contents: tuple[StageContent, ...]) -> float:
    """Return the share of activations that W needs, at most 1; 0 if forwards keep nothing."""
    alone, times = on_one_stage(parallel), Counter(contents)
    everything = sum(count * kept_bytes(model, alone, content) for content, count in times.items())
    needed = sum(
        count * weight_kept_bytes(model, alone, content) for content, count in times.items()
    )
    return min(needed / everything, 1.0) if everything else 0.0


def _pieces(
    model: Model,
    machine: Machine,
    parallel: Parallel,
    contents: tuple[StageContent, ...],
    efficiency: Efficiency | None = None,
) -> Pieces:
    """Compute the costs of stages with these contents on one kind of machine."""
    found = efficiency or efficiency_of(machine.gpu, parallel)
    alone = on_one_stage(parallel)
    rows = {content: _stage(model, machine, alone, content, found) for content in set(contents)}
    time = np.array([rows[content][0] for content in contents]).T
    communication = np.array([rows[content][1] for content in contents])
    if machine.measured and (factors := machine.measured.stages):
        times_of = np.array(factors).T
        if len(factors) != parallel.stages:
            times_of = np.repeat(times_of.mean(axis=1, keepdims=True), parallel.stages, axis=1)
        plain = time[Kind.F] + time[Kind.B]
        time *= times_of[[0, 3, 1, 2, 0]]
        communication *= (time[Kind.F] + time[Kind.B]) / plain
    trained = parameters_of_stages(model, parallel, contents, trained=True)
    layers = np.array([content.layers + content.mtp for content in contents], np.float64)
    reduction, gather = reduction_seconds(machine, parallel, trained, found, layers)
    alone_time, (time, reduction, gather) = (
        time,
        add_sharded(time, reduction, gather, layers, parallel),
    )
    communication = communication + (time - alone_time)[[Kind.F, Kind.B]].sum(axis=0)
    message = message_bytes(model, parallel) / parallel.pieces
    hops = np.zeros((parallel.pp, parallel.pp))
    for device in range(parallel.pp if parallel.pp > 1 else 0):
        after = (device + 1) % parallel.pp
        hops[device, after] = hops[after, device] = message_seconds(
            machine, found, parallel, message, device
        )
    optimizer = optimizer_seconds(machine, parallel, trained, found)
    if parallel.optimizer == "muon":
        each = {
            content: sum(muon_seconds(model, machine, parallel, content, found))
            for content in set(contents)
        }
        optimizer = optimizer + np.array([each[content] for content in contents])
    return Pieces(time, communication, reduction, gather, optimizer, hops)


@lru_cache(maxsize=4096)
def on_one_stage(parallel: Parallel) -> Parallel:
    """Return the settings without those that leave the work of a stage unchanged.

    Plans with equal settings then share the cached times of a stage. Slices become ``parts``: a
    stage works on them one by one.
    """
    return replace(
        parallel,
        pp=1,
        vp=1,
        microbatches=1,
        schedule="",
        slices=0,
        parts=parallel.pieces,
        recompute_layers=None,
    )


def content_times(
    model: Model, machine: Machine, parallel: Parallel, content: StageContent
) -> Floats:
    """Compute the seconds of F, B, I, W and R of a stage of this content, shape (5,)."""
    return _stage(
        model, machine, on_one_stage(parallel), content, efficiency_of(machine.gpu, parallel)
    )[0]


@lru_cache(maxsize=16384)
def _stage(
    model: Model, machine: Machine, parallel: Parallel, content: StageContent, found: Efficiency
) -> tuple[Floats, float]:
    """Return the seconds of F, B, I, W and R of a stage, and those of waiting for collectives."""
    measured = machine.measured or Measured("")
    compute, communication, again = np.array(measured.fixed), np.zeros(4), 0.0
    moved = np.zeros(2)  # seconds added to I and taken from W where a backward is split
    share = content.recomputed / max(content.layers, 1)
    kinds = [(layer, count, share) for layer, count in content.kinds]
    kinds += [(mtp_kind(model), content.mtp, 0.0)] if content.mtp else []
    for layer, count, part in kinds:
        factors = (
            AS_THE_CURVE if layer.mlp == "experts" or layer.mixer in STATES else measured.layer
        )
        once = replace(parallel, recompute="none")
        one, waits, selected, lost = _layer(model, machine, once, layer, found)
        moved += count * lost
        compute += count * ((one - waits) * factors + waits)
        communication += count * waits
        # A recomputed forward runs alone, so its all-to-all is exposed.
        one, waits, *_ = _layer(model, machine, replace(once, overlap_ep=False), layer, found)
        forward = (one - waits)[ops.FORWARD] * factors.f + waits[ops.FORWARD]
        again += (
            count
            * part
            * {"none": 0.0, "selective": selected * factors.f, "full": forward}[parallel.recompute]
        )
    extra = []
    if content.embedding:
        extra.append((ops.embedding_operators(model, parallel), measured.embedding))
    if model.vocab:
        extra += [(ops.head_operators(model, parallel), measured.head)] * content.heads
    ends = (content.embedding + content.heads) * bool(model.vocab)
    if ends and parallel.tp > 1 and parallel.sequence_parallel:
        # A forward scatters tokens after the embedding and gathers them before the output matrix;
        # a backward does the reverse.
        whole = ops.tokens_of(model, parallel) * model.hidden * ops.ITEM
        each = ends * gather_seconds(machine, found, group_of(parallel, "tp"), whole)
        compute += [each, each, 0.0, each]
        communication += [each, each, 0.0, each]
    for operators, factors in extra:
        compute += pass_seconds(operators, machine.gpu, found, parallel.precision) * factors
    if content.embedding and model.encoder:
        compute += _encoder_seconds(model.encoder, machine, parallel, found)
    forward, inputs, weights, full = compute
    # copies to and from the host run in parallel with the stage, and delay it if they are longer
    if parallel.offload:
        copies = copy_seconds(model, machine, parallel, content)
        inputs += max(copies - inputs - weights, 0.0)
        full, forward = max(full, copies), max(forward, copies)
    if parallel.adapters:
        weights, full = 0.0, inputs
    # B counts them too, to no effect: schedules with weight_forwards split every backward
    for_weights = parallel.weight_forwards * again
    backward = full + again + for_weights
    layers = content.layers + content.mtp
    weights = hypot(max(weights - moved[1], 0.0), layers * parallel.split_ms / 1e3)
    inputs, weights = inputs + again + moved[0], weights + for_weights
    times = np.array([forward, backward, inputs, weights, again + for_weights])
    return parallel.parts * times, parallel.parts * float(communication[:3].sum())


def _encoder_seconds(
    encoder: Encoder, machine: Machine, parallel: Parallel, found: Efficiency
) -> Floats:
    """Return the seconds of F, I, W and B of an encoder; a frozen one has no backward."""
    times = encoder.layers * pass_seconds(
        ops.encoder_operators(encoder, parallel), machine.gpu, found, parallel.precision
    )
    if encoder.frozen:
        times[1:] = 0.0
    return times


def copy_seconds(
    model: Model, machine: Machine, parallel: Parallel, content: StageContent
) -> float:
    """Compute the seconds of copying a microbatch's offloaded activations of a stage one way."""
    return (
        parallel.offload * kept_bytes(model, parallel, content) / (machine.gpu.host_gb_per_s * 1e9)
    )


@lru_cache(maxsize=4096)
def _layer(
    model: Model, machine: Machine, parallel: Parallel, layer: Layer, found: Efficiency
) -> tuple[Floats, Floats, float, Floats]:
    """Return the seconds of one layer.

    Returns:
        The seconds of F, I, W and B, shape (4,); the part of each that waits for collectives, shape
            (4,); the part of F that selective recompute repeats; and the overlap that a split
            backward loses, which is added to I and taken from W, shape (2,).
    """
    operators = ops.layer_operators(model, parallel, layer)
    times = seconds(operators, machine.gpu, found, parallel.precision)
    whole, kept = gathered_bytes(model, parallel, layer)
    group = group_of(parallel, "tp")
    scatter = gather_seconds(machine, found, group, whole, summed=not parallel.sequence_parallel)
    gathers = [
        gather_seconds(machine, found, group, whole * share) for share in gathered_shares(parallel)
    ]
    keys = gather_seconds(machine, found, group_of(parallel, "cp"), kept)
    latents = attention_input_share(model, layer) * whole
    narrow = gather_seconds(machine, found, group, latents, summed=not parallel.sequence_parallel)
    inward = narrow / scatter if scatter else 1.0
    waits = tensor_waits(operators.names, times, scatter, gathers, parallel, inward)
    waits += context_waits(operators.names, times, keys, parallel)
    if layer.mlp == "experts":
        exchange = parallel.load * exchange_seconds(
            machine, found, group_of(parallel, "ep"), *exchanged(model, parallel)
        )
        added = 4 * exchange
        if parallel.overlap_ep:
            pair = expert_pair(operators.names, times, waits, exchange)
            added = max(pair - times.sum() - waits.sum(), 0.0)
        waits[:2] += added / 2
    total = pass_seconds(operators, machine.gpu, found, parallel.precision, waits)
    selected = {name for module in parallel.modules for name in MODULES[module]}
    chosen = [i for i, name in enumerate(operators.names) if name in selected]
    lost = lost_overlap(operators.names, times, scatter, gathers, parallel, inward)
    waits = np.append(waits, waits[1:].sum())
    return total, waits, float(times[ops.FORWARD, chosen].sum()), lost


MODULES = {  # the operators that selective recompute of a module repeats
    "core_attn": ("attention", "scores", "context", "softmax", "attention dropout"),
    "layernorm": ("attention norm", "MLP norm"),
    "moe_act": ("experts' activation", "clamped activation"),
    "mla_up_proj": ("query up", "key and value up", "positions"),
    "mlp": ("MLP in", "activation", "MLP out"),
    "shared_experts": SHARED,
    "moe": ("router", "routing", "permute", *EXPERTS, "unpermute"),
}


def gathered_bytes(model: Model, parallel: Parallel, layer: Layer) -> tuple[float, float]:
    """Return the bytes that a gather of tensor-parallel ranks makes, and one of context ranks.

    Tensor-parallel ranks gather hidden states; context-parallel ranks gather keys and values, or
    exchange the sequences of a layer with a state. Context ranks of DeepSeek-V4 send the hidden
    states of a window to their neighbour, and gather compressed keys alone, as Megatron-LM does
    (csa_utils/cp_utils.py).
    """
    p = parallel
    tokens = ops.tokens_of(model, p)
    keys = 2 * max(model.kv_heads / p.tp, 1.0) * model.head_dim * ops.ITEM * tokens * p.cp
    if model.kv_lora:
        keys = (
            (model.head_dim + model.rope_dim + model.v_dim)
            * model.heads
            / p.tp
            * ops.ITEM
            * tokens
            * p.cp
        )
    elif model.o_lora:
        # the hidden states of a window from the neighbour, and the compressed keys
        before = p.mbs * min(model.window, tokens / p.mbs) * model.hidden
        keys = ops.ITEM * (before + tokens * p.cp * compressed_width(model, layer.mixer))
    # an all-to-all from sequences to heads and back, as in Megatron-LM's Mamba layers
    if layer.mixer in STATES:
        width = 3 * model.state_heads * model.state_dim + 2 * model.state_groups * model.state_size
        keys = width / p.tp * ops.ITEM * tokens
    return tokens * model.hidden * ops.ITEM, keys * (layer.mixer != "none")


def attention_input_share(model: Model, layer: Layer) -> float:
    """Return the bytes that tensor-parallel ranks gather before attention, over hidden states.

    With latent attention each rank computes the latents of its own tokens. It gathers the latents
    of queries (hidden states if queries have none), the latents of keys and values, and the part
    of keys with the position, as in Megatron-LM's multi_latent_attention.py. DeepSeek-V4's keys
    and values are one head, which is gathered together with the compressed keys.
    """
    if not (model.kv_lora or model.o_lora) or layer.mixer in (*STATES, "none"):
        return 1.0
    keys = model.kv_lora or model.head_dim + compressed_width(model, layer.mixer)
    return ((model.q_lora or model.hidden) + keys + model.rope_dim) / model.hidden


def compressed_width(model: Model, mixer: str) -> float:
    """Return the numbers that a layer's compressed keys take per token.

    A key stands for several tokens. CSA's indexer has keys too.
    """
    widths = {
        "csa": (model.head_dim + model.index_dim, model.csa),
        "hca": (model.head_dim, model.hca),
    }
    width, ratio = widths.get(mixer, (0, 1))
    return width / ratio


def gathered_shares(parallel: Parallel) -> tuple[float, float, float]:
    """Return the bytes that F, I and W gather over tensor-parallel ranks, over those in 16 bits.

    Transformer Engine casts inputs and gradients of outputs to the narrow format before it gathers
    them. Formats with a scale for each block gather a gradient twice, along rows and along columns
    (gather_along_first_dim in Transformer Engine's distributed.py).
    """
    item = KEPT_AS.get(parallel.precision, ops.ITEM) / ops.ITEM
    return item, item * (2 if parallel.precision in ("mxfp8", "nvfp4") else 1), item


# bytes of scales for each number that is dispatched in 8 bits: one of 32 bits for 128 numbers
# (DeepSeek-V3, arXiv 2412.19437, section 3.3.2; DeepEP's dispatch sends them along)
SCALES = 4 / 128


def exchanged(model: Model, parallel: Parallel) -> tuple[float, int, int]:
    """Return the size of a layer's all-to-all.

    Returns:
        Its bytes: the mean of the dispatch to experts and of the combine, which is in 16 bits; the
            experts of a token, 0 for a plain all-to-all; and the most nodes that they lie on.
    """
    p = parallel
    dispatched = p.dispatch_bytes + (SCALES if p.dispatch_bytes == 1 else 0.0)
    sent = (
        ops.tokens_of(model, p)
        / p.tp
        * model.top_k
        * model.expert_hidden
        * (dispatched + ops.ITEM)
        / 2
    )
    return sent, model.top_k if p.dispatch != "alltoall" else 0, model.top_groups


@lru_cache(maxsize=128)
def schedule_of(name: str, devices: int, chunks: int, microbatches: int) -> Schedule:
    """Generate a schedule, cached for other plans of the same shape.

    Raises:
        InputError: the schedule's rules refuse the shape.
    """
    return generate(name, devices=devices, chunks=chunks, microbatches=microbatches)


def queues_of(parallel: Parallel, costs: StageCosts) -> Schedule:
    """Return the queues of a pipeline, ordered by ``costs`` where the schedule uses costs.

    Raises:
        InputError: the schedule's rules refuse the shape, or the schedule has no backwards.
    """
    name, sizes = parallel.schedule_name, (parallel.pp, parallel.vp, parallel.microbatches)
    if not find(name).uses_costs:
        schedule = schedule_of(name, *sizes)
        if not np.isin(schedule.kind, BACKWARDS).any():
            raise InputError(
                f"{name} has no backward, and a training step needs one",
                "1f1b, or another schedule of ppsim list",
            )
        return schedule
    given: dict[str, Any] = dict(zip(("devices", "chunks", "microbatches"), sizes, strict=True))
    given |= {"after_i": costs.kept_share} if "after_i" in find(name).options else {}
    return generate_once(name, costs=lambda _: costs.costs, **given)


def step_time(
    model: Model,
    machine: Machine,
    parallel: Parallel,
    layout: Layout | None = None,
    efficiency: Efficiency | None = None,
    costs: StageCosts | None = None,
    schedule: Schedule | None = None,
) -> Step:
    """Simulate a training step: the pipeline, the exposed part of reductions, and the optimizer.

    Args:
        model: the model.
        machine: the cluster and its GPUs.
        parallel: how the model is trained.
        layout: the layers of each stage; None divides them as training software does.
        efficiency: efficiency of GPU and software; None takes the library's.
        costs: the costs of the stages, if known (:func:`stage_costs`).
        schedule: the queues, if known (:func:`queues_of`).

    Raises:
        InputError: the layout has not the model's layers, or the schedule refuses the shape.
    """
    costs = costs or stage_costs(model, machine, parallel, layout, efficiency)
    work = float(costs.time[Kind.F].sum() + costs.time[Kind.B].sum())
    if parallel.pp == 1:
        # The first forward and the last backward run alone.
        ends = costs.costs.time[[Kind.F, Kind.B]].sum() / 1e3
        pipeline = (parallel.microbatches - 1) * work + ends
        busy, bubble = pipeline, 0.0
        held = on_one_device(costs.time[Kind.F], costs.time[Kind.B], pipeline)
    else:
        schedule = schedule or queues_of(parallel, costs)
        timeline = simulate(schedule, costs.costs)
        held = held_stages(timeline, 1e-3)
        pipeline = (span_of(timeline) if parallel.post_validation else timeline.makespan) / 1e3
        work += _split_share(schedule) * float(
            costs.time[[Kind.I, Kind.W]].sum() - costs.time[Kind.B].sum()
        )
        busy = parallel.microbatches * work / parallel.pp
        if schedule.second_of_pairs.any():  # only pairs hide all-to-all: other ops take longer
            busy = float(measure(timeline).busy.mean()) / 1e3
        bubble = 1 - busy / pipeline
    reduction = seen_seconds(held, parallel, costs.time[Kind.F], costs.dp, costs.gather)
    optimizer = float(np.bincount(held.device, costs.optimizer[held.stage]).max())
    total = pipeline + reduction + optimizer
    tokens = parallel.gbs * model.seq
    flops = flops_per_token(model) * tokens / total / parallel.gpus
    return Step(
        seconds=total,
        pipeline=pipeline,
        work=busy,
        bubble=bubble,
        reduction=reduction,
        optimizer=optimizer,
        tokens_per_s=tokens / total,
        mfu=flops / machine.peak(parallel.precision),
        tflops=flops / 1e12,
    )


def _split_share(schedule: Schedule) -> float:
    """Return the share of backwards that run as I and W."""
    split, whole = (np.count_nonzero(schedule.kind == kind) for kind in (Kind.W, Kind.B))
    return float(split / (split + whole))
