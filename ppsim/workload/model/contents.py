"""Contents of pipeline stages: layers, embedding, output; their parameters, activations and
messages.
"""

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
        kinds: its kinds of layers and how many of each, in the order of their first ones.
        mtp: layers of multi-token prediction.
        embedding: whether it holds the embedding, and the encoder if there is one.
        heads: how many losses it computes, each with the output matrix.
        recomputed: layers whose forward, or attention, the backward runs again; the first ones.
    """

    kinds: tuple[tuple[Layer, int], ...]
    mtp: int
    embedding: bool
    heads: int
    recomputed: int

    @property
    def layers(self) -> int:
        """Layers in all."""
        return sum(count for _, count in self.kinds)


def split_layers(model: Model, stages: int) -> tuple[int, ...]:
    """Divide layers over stages as trainers do: evenly; else with embedding and output counted as a
    layer each.

    With multi-token prediction, the last stage, which holds it, has the layers left when all others
    are full, as in the layouts of Megatron-Bridge's recipes.

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
    # to the stages in the middle, which hold neither embedding nor output
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
    """Return the content of each stage, in model order: by the layout, or as trainers divide
    layers.

    Raises:
        InputError: the layout's stages or layers differ from the run's and the model's, or the
            model's heads or experts do not divide over the ranks.
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
            else "a layout with all layers, as many stages as pp x vp",
        )
    again = parallel.recompute_layers
    if isinstance(again, tuple) and len(again) != parallel.stages:
        raise InputError(
            f"{len(again)} numbers of recomputed layers for {parallel.stages} stages",
            "one for each stage",
        )
    return contents_of_layout(model, layout, 0 if parallel.recompute == "none" else again)


def contents_of_layout(
    model: Model, layout: Layout, recomputed: int | tuple[int, ...] | None = 0
) -> tuple[StageContent, ...]:
    """Return the content of each stage; ``recomputed`` is the number of recomputed layers, one or
    one per stage, None for all.
    """
    kinds, result, first = kinds_of(model), [], 0
    losses = sum(letters.count(LOSS) for letters in layout.content)
    for stage, (letters, count) in enumerate(zip(layout.content, layout.layers, strict=True)):
        again = recomputed[stage] if isinstance(recomputed, tuple) else recomputed
        held = tuple(Counter(kinds[first : first + count]).items())
        mtp, heads = letters.count(MTP), letters.count(LOSS)
        # layers of multi-token prediction compute their own losses, as in Megatron-LM
        if losses == 1:
            heads += mtp
        here = count if again is None else min(again, count)
        result.append(StageContent(held, mtp, EMBEDDING in letters, heads, here))
        first += count
    return tuple(result)


def message_bytes(model: Model, parallel: Parallel) -> float:
    """Return the bytes of an activation between stages; tensor-parallel ranks send a part each."""
    return ops.tokens_of(model, parallel) * model.hidden * model.streams * ops.ITEM / parallel.tp


def kept_bytes(model: Model, parallel: Parallel, content: StageContent) -> float:
    """Compute the bytes that a stage keeps of a microbatch; of its layers, the first ones
    recompute.
    """
    total = (
        content.mtp * layer_activations(model, parallel, mtp_kind(model), "none")
        if content.mtp
        else 0.0
    )
    left = content.recomputed
    for layer, count in content.kinds:
        again = min(left, count)
        left -= again
        total += (
            again * layer_activations(model, parallel, layer, parallel.recompute) if again else 0.0
        )
        total += (
            (count - again) * layer_activations(model, parallel, layer, "none")
            if count > again
            else 0.0
        )
    if content.embedding and model.encoder and not model.encoder.frozen:
        total += encoder_activations(model.encoder, parallel)
    return total


def weight_kept_bytes(model: Model, parallel: Parallel, content: StageContent) -> float:
    """Compute the bytes that a stage's W needs of a microbatch once I has run, on one GPU. Layers
    that recompute keep the recomputed activations, unless W computes them once more.
    """
    p, total, left = parallel, 0.0, content.recomputed
    for layer, count in [
        *content.kinds,
        *([(mtp_kind(model), content.mtp)] if content.mtp else []),
    ]:
        again = min(left, count) if p.recompute == "full" and p.weight_forwards else 0
        left -= again
        inputs, gradients = weight_inputs(model, p, layer)
        total += count * (inputs + gradients)
        if again and inputs:
            total += again * (min(inputs, layer_activations(model, p, layer, "full")) - inputs)
    if content.embedding and model.encoder and not model.encoder.frozen:
        total += encoder_activations(model.encoder, p)
    return total


def parameters_of_stages(
    model: Model, parallel: Parallel, contents: tuple[StageContent, ...], trained: bool = False
) -> Floats:
    """Count the parameters of stages on one GPU, shape (2, stages): those outside experts, and
    experts.
    """
    found = {
        content: count_stage_parameters(model, parallel, content, trained)
        for content in set(contents)
    }
    return np.array([found[content] for content in contents]).T


def count_stage_parameters(
    model: Model, parallel: Parallel, content: StageContent, trained: bool = False
) -> tuple[float, float]:
    """Count the parameters of a stage on one GPU: outside experts, and experts; all, or those that
    are trained.
    """
    dense, experts = count_layer_parameters(model, parallel, content)
    copied, divided = 0.0, 0.0  # over tensor-parallel ranks
    if content.embedding:
        copied += model.seq * model.hidden * model.learned_positions
        divided += model.vocab * model.hidden
    if content.heads:
        copied += model.hidden * (2 if model.biases else 1)
        divided += 0 if model.tied else model.vocab * model.hidden
    # of the embedding's, which others keep copies of
    matrices = bool(content.heads) * model.tied + bool(content.mtp)
    if not content.embedding:
        divided += min(matrices, 1) * model.vocab * model.hidden
    divided += content.mtp * 2 * model.hidden**2
    if content.embedding and model.encoder and not (trained and model.encoder.frozen):
        divided += encoder_parameters(model.encoder)
    return dense + copied + divided / parallel.tp, experts


def count_layer_parameters(
    model: Model, parallel: Parallel, content: StageContent
) -> tuple[float, float]:
    """Count the parameters of a stage's layers on one GPU: outside experts, and experts."""
    routed = expert_parameters(model) * model.experts
    mixed = [*content.kinds, *([(mtp_kind(model), content.mtp)] if content.mtp else [])]
    experts = sum(count for layer, count in mixed if layer.mlp == "experts")
    dense = sum(count * rank_parameters(model, parallel.tp, layer) for layer, count in mixed)
    return dense, experts * routed / parallel.ep


def rank_parameters(model: Model, tp: int, layer: Layer) -> float:
    """Count the parameters of a layer outside experts on one of ``tp`` tensor-parallel ranks."""
    copied = copied_parameters(model, layer)
    routed = expert_parameters(model) * model.experts * (layer.mlp == "experts")
    held = copied + (layer_parameters(model, layer) - routed - copied) / tp
    has_heads_of_keys = layer.mixer not in (*STATES, "none") and not (model.kv_lora or model.o_lora)
    if has_heads_of_keys and model.kv_heads < tp:  # a rank has one head at least
        each = 2 * model.head_dim * (model.hidden + bool(model.biases))
        held += each * (1 - model.kv_heads / tp)
    return held
