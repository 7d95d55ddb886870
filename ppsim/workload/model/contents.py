"""Contents of pipeline stages: layers, embedding and output, and the bytes that they take."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ppsim.errors import InputError
from ppsim.workload.layout.layout import EMBEDDING, LOSS, MTP, Layout, build_layout
from ppsim.workload.model import operators as ops
from ppsim.workload.model.activations import encoder_activations, layer_activations, weight_inputs
from ppsim.workload.model.model import (
    STATES,
    Layer,
    Model,
    copied_parameters,
    encoder_parameters,
    expert_parameters,
    kinds_of,
    layer_parameters,
    mtp_kind,
)
from ppsim.workload.model.operators import Floats
from ppsim.workload.model.parallel import Parallel


class StageContent(NamedTuple):
    """The content of a stage.

    Attributes:
        kinds: kinds of layers and the number of each, in the order of their first layers.
        mtp: number of layers of multi-token prediction.
        embedding: whether it has the embedding, and the encoder if there is one.
        heads: number of losses, each with the output matrix.
        recomputed: number of layers that recompute in the backward, the first ones of the stage.
    """

    kinds: tuple[tuple[Layer, int], ...]
    mtp: int
    embedding: bool
    heads: int
    recomputed: int

    @property
    def layers(self) -> int:
        """Number of layers, without those of multi-token prediction."""
        return sum(count for _, count in self.kinds)


def split_layers(model: Model, stages: int) -> tuple[int, ...]:
    """Return the layers of each stage as training software divides them.

    The split is even if possible; otherwise embedding and output count as a layer each. With
    multi-token prediction all other stages are filled first, and the last one has the layers left
    over, as in the layouts of Megatron-Bridge's recipes.

    Raises:
        InputError: there are more stages than layers.
    """
    n = model.layers
    if n % stages == 0:
        return (n // stages,) * stages
    if stages > n + 2:
        raise InputError(
            f"{model.name or 'the model'} has {n} layers for {stages} stages",
            f"{n + 2} stages at most",
        )
    full = -(-n // stages)
    if model.mtp and n - full * (stages - 1) >= 0:
        return (*(full,) * (stages - 1), n - full * (stages - 1))
    least, more = divmod(n + 2, stages)
    split = [least] * stages
    # remainders go to the middle, whose stages have neither embedding nor output
    for extra in range(more):
        split[(stages - more) // 2 + extra] += 1
    split[0] -= 1
    split[-1] -= 1
    if min(split) < 0:
        raise InputError(
            f"{model.name or 'the model'} has {n} layers for {stages} stages",
            f"{n + 2} stages at most",
        )
    return tuple(split)


@lru_cache(maxsize=64)
def contents_of(
    model: Model, parallel: Parallel, layout: Layout | None = None
) -> tuple[StageContent, ...]:
    """Return the content of each stage in model order.

    Without a layout the layers are divided by :func:`split_layers`.

    Raises:
        InputError: the layout has not the run's stages or the model's layers, or the model's heads
            or experts do not divide over the ranks.
    """
    ops.check_division(model, parallel)
    if layout is None:
        layout = build_layout(list(split_layers(model, parallel.stages)), parallel.pp, model.mtp)
    if layout.n_stages != parallel.stages or layout.n_layers != model.layers:
        fits = layout.n_layers == model.layers and layout.n_stages % parallel.vp == 0
        raise InputError(
            f"a layout of {layout.n_layers} layers on {layout.n_stages} stages does not fit "
            f"{model.layers} layers on {parallel.pp} x {parallel.vp} stages",
            f"--pp {layout.n_stages // parallel.vp}"
            if fits
            else "a layout with all layers and pp x vp stages",
        )
    recomputed = parallel.recompute_layers
    if isinstance(recomputed, tuple) and len(recomputed) != parallel.stages:
        raise InputError(
            f"{len(recomputed)} numbers of recomputed layers for {parallel.stages} stages",
            "one for each stage",
        )
    return contents_of_layout(model, layout, 0 if parallel.recompute == "none" else recomputed)


def contents_of_layout(
    model: Model, layout: Layout, recomputed: int | tuple[int, ...] | None = 0
) -> tuple[StageContent, ...]:
    """Return the content of each stage of a layout.

    ``recomputed`` is the number of recomputed layers: of every stage, or one number for each stage;
    None is all layers.
    """
    kinds, result, first = kinds_of(model), [], 0
    losses = sum(letters.count(LOSS) for letters in layout.content)
    for stage, (letters, count) in enumerate(zip(layout.content, layout.layers, strict=True)):
        wanted = recomputed[stage] if isinstance(recomputed, tuple) else recomputed
        stage_kinds = tuple(Counter(kinds[first : first + count]).items())
        mtp, heads = letters.count(MTP), letters.count(LOSS)
        # with one loss in the layout, each MTP layer computes a loss in its stage (Megatron-LM)
        if losses == 1:
            heads += mtp
        recomputed_here = count if wanted is None else min(wanted, count)
        has_embedding = EMBEDDING in letters
        result.append(StageContent(stage_kinds, mtp, has_embedding, heads, recomputed_here))
        first += count
    return tuple(result)


def message_bytes(model: Model, parallel: Parallel) -> float:
    """Return the bytes that one tensor-parallel rank sends to the next stage for a microbatch."""
    return ops.tokens_of(model, parallel) * model.hidden * model.streams * ops.ITEM / parallel.tp


def kept_bytes(model: Model, parallel: Parallel, content: StageContent) -> float:
    """Compute the bytes that a stage keeps of a microbatch on one GPU.

    Layers that recompute are counted first among the stage's layers.
    """
    total = 0.0
    if content.mtp:
        total = content.mtp * layer_activations(model, parallel, mtp_kind(model), "none")
    left = content.recomputed
    for layer, count in content.kinds:
        recomputed = min(left, count)
        left -= recomputed
        if recomputed:
            total += recomputed * layer_activations(model, parallel, layer, parallel.recompute)
        if count > recomputed:
            total += (count - recomputed) * layer_activations(model, parallel, layer, "none")
    if content.embedding and model.encoder and not model.encoder.frozen:
        total += encoder_activations(model.encoder, parallel)
    return total


def weight_kept_bytes(model: Model, parallel: Parallel, content: StageContent) -> float:
    """Compute the bytes that a stage keeps of a microbatch between I and W, on one GPU.

    Layers that recompute keep the activations recomputed in I, unless W recomputes them again
    (``weight_forwards``).
    """
    p, total, left = parallel, 0.0, content.recomputed
    for layer, count in [
        *content.kinds,
        *([(mtp_kind(model), content.mtp)] if content.mtp else []),
    ]:
        repeated = min(left, count) if p.recompute == "full" and p.weight_forwards else 0
        left -= repeated
        inputs, gradients = weight_inputs(model, p, layer)
        total += count * (inputs + gradients)
        if repeated and inputs:
            total += repeated * (min(inputs, layer_activations(model, p, layer, "full")) - inputs)
    if content.embedding and model.encoder and not model.encoder.frozen:
        total += encoder_activations(model.encoder, p)
    return total


def parameters_of_stages(
    model: Model, parallel: Parallel, contents: tuple[StageContent, ...], trained: bool = False
) -> Floats:
    """Return the parameters of stages on one GPU, shape (2, stages): outside experts, and experts.

    ``trained`` leaves out a frozen encoder.
    """
    found = {
        content: count_stage_parameters(model, parallel, content, trained)
        for content in set(contents)
    }
    return np.array([found[content] for content in contents]).T


def count_stage_parameters(
    model: Model, parallel: Parallel, content: StageContent, trained: bool = False
) -> tuple[float, float]:
    """Return the parameters of a stage on one GPU: outside experts, and of experts.

    ``trained`` leaves out a frozen encoder.
    """
    dense, experts = count_layer_parameters(model, parallel, content)
    copied, divided = 0.0, 0.0  # parameters copied to, or divided over, tensor-parallel ranks
    if content.embedding:
        copied += model.seq * model.hidden * model.learned_positions
        divided += model.vocab * model.hidden
    if content.heads:
        copied += model.hidden * (2 if model.biases else 1)
        divided += 0 if model.tied else model.vocab * model.hidden
    # a tied output and multi-token prediction need a copy of the embedding
    needs_copy = bool(content.heads) * model.tied + bool(content.mtp) > 0
    if not content.embedding:
        divided += needs_copy * model.vocab * model.hidden
    divided += content.mtp * 2 * model.hidden**2
    if content.embedding and model.encoder and not (trained and model.encoder.frozen):
        divided += encoder_parameters(model.encoder)
    return dense + copied + divided / parallel.tp, experts


def count_layer_parameters(
    model: Model, parallel: Parallel, content: StageContent
) -> tuple[float, float]:
    """Return the parameters of a stage's layers on one GPU: outside experts, and of experts."""
    routed = expert_parameters(model) * model.experts
    layers = [*content.kinds, *([(mtp_kind(model), content.mtp)] if content.mtp else [])]
    experts = sum(count for layer, count in layers if layer.mlp == "experts")
    dense = sum(count * rank_parameters(model, parallel.tp, layer) for layer, count in layers)
    return dense, experts * routed / parallel.ep


def rank_parameters(model: Model, tp: int, layer: Layer) -> float:
    """Return the parameters of a layer outside experts on one of ``tp`` tensor-parallel ranks."""
    copied = copied_parameters(model, layer)
    routed = expert_parameters(model) * model.experts * (layer.mlp == "experts")
    total = copied + (layer_parameters(model, layer) - routed - copied) / tp
    has_heads_of_keys = layer.mixer not in (*STATES, "none") and not (model.kv_lora or model.o_lora)
    if has_heads_of_keys and model.kv_heads < tp:  # a rank has at least one head of keys
        each = 2 * model.head_dim * (model.hidden + bool(model.biases))
        total += each * (1 - model.kv_heads / tp)
    return total
