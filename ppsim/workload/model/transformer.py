"""A transformer's memory per stage, from its description.

Activations follow Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", arXiv
2205.05198: sbh(34 + 5as/h) bytes per layer in 16 bits, with attention's scores kept. Of these, Qi et al. (arXiv
2401.10241, table 1) keep 32 sbh for W: 14 are inputs of linear layers, 18 gradients of their outputs, which I leaves.
Parameters follow Narayanan et al., arXiv 2104.04473: 12 h^2 (1 + 13/(12h)) per layer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.base import toml
from ppsim.base.toml import Refused, one_of
from ppsim.base.units import format_size
from ppsim.core.costs import Costs
from ppsim.core.ops import BACKWARDS, Kind
from ppsim.core.schedule import Schedule
from ppsim.engine.memory.usage import Amounts, MemoryModel
from ppsim.errors import InputError

SCHEMA = "ppsim.model/1"
EXAMPLE = "hidden = 4096, heads = 32, layers = 32, seq = 4096 and vocab = 32000"
BYTES_OF = {"bf16": 2, "bfloat16": 2, "fp16": 2, "float16": 2, "fp32": 4, "float32": 4, "fp64": 8, "float64": 8}
ATTENTION = ("standard", "flash")
LARGEST = (1 << 31) - 1  # of each number of a model
MOST_BYTES = 1 << 50  # that one device may hold of a model, so that sums stay within 64 bits
RECOMPUTE = ("none", "selective", "full")


@dataclass(frozen=True)
class Transformer:
    """A transformer language model, and how the part on one pipeline device is trained.

    Attributes:
        hidden: hidden size, h.
        heads: attention heads, a.
        layers: transformer layers in all, or a tuple with the layers of each stage.
        seq: sequence length, s.
        vocab: size of the vocabulary, v. The first stage holds the embeddings, the last the
            output matrix; 0 leaves both out.
        mbs: sequences in a microbatch, b.
        dtype: bf16, fp16, fp32 or fp64 (or torch's names), of weights and activations.
        attention: standard keeps all scores, flash one fp32 number per query and head.
        tp: tensor-parallel ranks, t.
        sequence_parallel: whether the tensor-parallel ranks divide what lies between the linear layers too.
        dp: data-parallel ranks that ZeRO divides over.
        zero: 0 nothing is divided; 1 optimizer states; 2 gradients too; 3 weights too, gathered while an op runs.
        recompute: none; selective drops attention's scores; full keeps each layer's input only.
        keep_outputs: keep a stage's output until its backward, instead of freeing it once it is sent.
        gradient_bytes: per parameter; 4, as pipelines add up gradients in fp32.
        optimizer_bytes: per parameter, for Adam; without it 12 in 16 bits (fp32 weights and two moments), else two
            moments.
    """

    hidden: int
    heads: int
    layers: int | tuple[int, ...]
    seq: int
    vocab: int
    mbs: int = 1
    dtype: str = "bf16"
    attention: str = "standard"
    tp: int = 1
    sequence_parallel: bool = False
    dp: int = 1
    zero: int = 0
    recompute: str = "none"
    keep_outputs: bool = False
    gradient_bytes: int = 4
    optimizer_bytes: int | None = None

    def __post_init__(self) -> None:
        for name, words in (("dtype", tuple(BYTES_OF)), ("attention", ATTENTION), ("recompute", RECOMPUTE)):
            one_of(name, getattr(self, name), words)
        for name in ("hidden", "heads", "layers", "seq", "mbs", "tp", "dp"):
            value = getattr(self, name)
            if isinstance(value, tuple):
                if not value or min(value) < 0:
                    raise Refused(name, f"must be 0 or more on each stage, got {list(value)}")
            elif value < 1:
                raise Refused(name, f"must be 1 or more, got {value}")
            if (max(value) if isinstance(value, tuple) else value) > LARGEST:
                raise Refused(name, f"must be {LARGEST} at most, got {value}")
        for name in ("vocab", "zero", "gradient_bytes", "optimizer_bytes"):
            if (getattr(self, name) or 0) < 0:
                raise Refused(name, f"must be 0 or more, got {getattr(self, name)}")
            if (getattr(self, name) or 0) > LARGEST:
                raise Refused(name, f"must be {LARGEST} at most, got {getattr(self, name)}")
        if self.hidden % self.heads:
            small = [n for n in range(1, math.isqrt(self.hidden) + 1) if self.hidden % n == 0]
            nearest = min((d for n in small for d in (n, self.hidden // n)), key=lambda d: abs(d - self.heads))
            raise Refused("heads", f"must divide hidden = {self.hidden}, got {self.heads}; the nearest is {nearest}")
        if self.zero > 3:
            raise Refused("zero", f"must be 0, 1, 2 or 3, got {self.zero}")
        if _most_bytes(self) > MOST_BYTES:
            raise Refused("hidden", f"makes, with the other sizes, a model of more than {format_size(MOST_BYTES)}")

    @property
    def item(self) -> int:
        """Bytes of one weight or activation."""
        return BYTES_OF[self.dtype]

    @property
    def tokens(self) -> int:
        """Tokens in a microbatch, sb."""
        return self.seq * self.mbs


def read_model(path: str) -> Transformer:
    """Read a model from a TOML file: ``schema = "ppsim.model/1"`` and a key for each field.

    Raises:
        InputError: the file cannot be read, or an entry is unknown, missing or impossible; the message has the line.
    """
    return toml.read(path, Transformer, SCHEMA, EXAMPLE)


@dataclass(frozen=True)
class LayerBytes:
    """Bytes per microbatch of one layer on one tensor-parallel rank.

    Attributes:
        activations: all that F produces and the backward reads.
        scores: the part of it that selective recomputation drops, attention's scores: 5 a s^2 b in 16 bits.
        inputs: the part of it that W reads, the inputs of linear layers.
        gradients: gradients of the linear layers' outputs, which W reads too.
        boundary: the layer's input.
    """

    activations: int
    scores: int
    inputs: int
    gradients: int
    boundary: int


def layer_bytes(model: Transformer) -> LayerBytes:
    """Compute the bytes that one transformer layer keeps for a microbatch.

    In elements of e bytes, times sbh: two inputs of layer norms, inputs of QKV and of the first MLP matrix (not
    divided by tensor parallelism alone); Q, K, V, context, GELU's input and output (divided); two dropout masks of
    one byte; per score softmax, its dropout and that one's mask.
    """
    e, t = model.item, model.tp
    whole = t if model.sequence_parallel else 1
    sbh = model.tokens * model.hidden
    per_query = 4 if model.attention == "flash" else (2 * e + 1) * model.seq
    scores = _divide(per_query * model.heads * model.tokens, t)
    return LayerBytes(
        activations=_divide((4 * e + 2) * sbh, whole) + _divide(12 * e * sbh, t) + scores,
        scores=scores,
        inputs=_divide(2 * e * sbh, whole) + _divide(5 * e * sbh, t),
        gradients=_divide(2 * e * sbh, whole) + _divide(7 * e * sbh, t),
        boundary=_divide(e * sbh, whole),
    )


def layer_parameters(model: Transformer) -> int:
    """Count the parameters of one layer on one tensor-parallel rank: 12 h^2 + 13 h, of which 6 h are not divided."""
    h = model.hidden
    return _divide(12 * h * h + 7 * h, model.tp) + 6 * h


def layers_of(model: Transformer, stages: int, content: Sequence[str] | None = None) -> NDArray[np.int64]:
    """Return the layers of each stage, shape (stages,), where a layout puts them by its ``content``; MTP layers count.

    Raises:
        InputError: the layers do not divide evenly, the description lists another number of stages, or the layout has
            another number of transformer layers.
    """
    if content is not None:
        held, wanted = sum(stage.count("t") for stage in content), int(np.sum(model.layers))
        if held != wanted:
            raise InputError(f"the layout has {held} layers, and the model {wanted}", f"layers = {held} in the model")
        return np.array([stage.count("t") + stage.count("m") for stage in content], np.int64)
    if isinstance(model.layers, tuple):
        if len(model.layers) != stages:
            raise InputError(
                f"the model lists layers for {len(model.layers)} stages, the schedule has {stages}",
                f"--stages {len(model.layers)}, or give layers as one number",
            )
        return np.array(model.layers, np.int64)
    if model.layers % stages:
        more = model.layers % stages
        some = ", ".join(str(model.layers // stages + (s < more)) for s in range(min(stages, 4)))
        raise InputError(
            f"{model.layers} layers do not divide over {stages} stages",
            f"list them per stage in the model file: layers = [{some}{', ...' if stages > 4 else ''}]",
        )
    return np.full(stages, model.layers // stages)


def parameters(model: Transformer, stages: int, content: Sequence[str] | None = None) -> Amounts:
    """Count the parameters of each stage, shape (stages,).

    The first stage has the token and position embeddings, the last the final norm and the output matrix, or those that
    a layout gives them to.
    """
    count = layers_of(model, stages, content) * layer_parameters(model)
    add_ends(count, model, content)
    return count


def add_ends(count: Amounts, model: Transformer, content: Sequence[str] | None = None) -> None:
    """Add the embeddings, and the final norm and the output matrix, to the stages that hold them."""
    if model.vocab:
        matrix = _divide(model.vocab * model.hidden, model.tp)
        first, last = find_ends(len(count), content)
        count[first] += matrix + model.seq * model.hidden
        count[last] += matrix + 2 * model.hidden


def find_ends(stages: int, content: Sequence[str] | None) -> tuple[list[int], list[int]]:
    """Find the stages with the embedding and with the head: the first and the last, or where a layout has E and L."""
    if content is None:
        return [0], [stages - 1]
    first, last = ([s for s, held in enumerate(content) if letter in held] for letter in "EL")
    return first, last


def memory_model(model: Transformer, schedule: Schedule, content: Sequence[str] | None = None) -> MemoryModel:
    """Make the memory model of a schedule that trains this transformer, its layers where a layout's ``content`` says.

    A layer's work while it is recomputed is counted, temporary tensors inside kernels are not.

    Where the schedule recomputes by ops of its own, R, a forward keeps the input of its stage's first layer.

    Raises:
        InputError: the layers do not fit the schedule's stages, or both the model and the schedule recompute in full.
    """
    if model.recompute == "full" and schedule.recomputed.any():
        raise InputError(
            f'{schedule.name} has ops that recompute (R), and the model says recompute = "full" for its backwards too',
            'recompute = "none" in the model file, or a schedule without R',
        )
    n, layer = schedule.n_stages, layer_bytes(model)
    layers = layers_of(model, n, content)
    has = (layers > 0).astype(np.int64)
    held = {"none": layer.activations, "selective": layer.activations - layer.scores, "full": layer.boundary}
    activations = layers * held[model.recompute]
    inputs, gradients = layers * layer.inputs, layers * layer.gradients
    work_b = has * (layer.activations - held[model.recompute])
    work_i = work_b.copy()
    if model.recompute == "full":
        # I runs the layers again from the last to the first and keeps the share that W needs of each.
        gradients, inputs = gradients + inputs, np.zeros_like(inputs)
        left = (layers - has) * (layer.inputs + layer.gradients)
        work_i = left + has * layer.activations - activations
    end_activations, end_kept, end_stash = _ends(model, n, content)
    activations = activations + end_activations
    message = np.full(n, layer.boundary)
    message[-1] = 0
    return MemoryModel(
        activations=activations,
        kept=inputs + end_kept,
        stash=gradients + end_stash,
        work_b=work_b,
        work_i=work_i,
        message=message,
        output=message,
        stored=np.minimum(activations, layer.boundary),
        keep_outputs=model.keep_outputs,
        **states(model, parameters(model, n, content)),
    )


def states(model: Transformer, count: Amounts) -> dict[str, Any]:
    """Compute weights, gradients and optimizer states for these counts of parameters, as ZeRO divides them."""
    weights = count * model.item
    held = _share(weights, model, 3)
    static = {
        "weights": held,
        "gradients": _share(count * model.gradient_bytes, model, 2),
        "optimizer": _share(count * _optimizer_bytes(model), model, 1),
    }
    return {"static": static, "gathered": weights - held}


def recompute_share(model: Transformer) -> float:
    """Return the share of a forward that the backward runs again: attention's products are 4s of a layer's 24h + 4s."""
    selective = model.seq / (6 * model.hidden + model.seq)
    return {"none": 0.0, "selective": selective, "full": 1.0}[model.recompute]


def with_recompute(costs: Costs, share: float) -> Costs:
    """Return costs where B and I, and a pair, run ``share`` of the stage's forward again."""
    again = share * costs.time[Kind.F]
    time = costs.time.copy()
    time[list(BACKWARDS)] += again
    return replace(costs, time=time, pair=None if costs.pair is None else costs.pair + again)


def _most_bytes(model: Transformer) -> int:
    """More than any device holds for the whole model and one microbatch."""
    layers = sum(model.layers) if isinstance(model.layers, tuple) else model.layers
    layer, width = layer_bytes(model), model.vocab + model.seq + 2
    parameters = layers * layer_parameters(model) + 2 * width * model.hidden
    states = parameters * (model.item + model.gradient_bytes + _optimizer_bytes(model))
    kept = layers * (layer.activations + layer.gradients) + 4 * model.tokens * (model.hidden + model.vocab) * model.item
    return max(states, kept)


def _ends(model: Transformer, stages: int, content: Sequence[str] | None) -> Amounts:
    """Bytes of embedding and output: sbh for the dropout's mask, and 4 sbh (1 + v/h) for norm, matrix and logits.

    Shape (3, stages): activations, the part of them that W reads, what I leaves for W.
    """
    ends = np.zeros((3, stages), np.int64)
    if model.vocab:
        e, whole = model.item, model.tp if model.sequence_parallel else 1
        sbh, logits = model.tokens * model.hidden, model.tokens * model.vocab
        first, last = find_ends(stages, content)
        ends[0, first] += _divide(sbh, whole)
        ends[2, first] += _divide(e * sbh, whole)
        ends[0, last] += _divide(2 * e * sbh, whole) + _divide(4 * logits, model.tp)
        ends[1, last] += _divide(e * sbh, whole)
        ends[2, last] += _divide(e * logits, model.tp)
    return ends


def _share(amount: Amounts, model: Transformer, stage: int) -> Amounts:
    """One data-parallel rank's share of what ZeRO divides from that stage on."""
    return -(-amount // model.dp) if model.zero >= stage else amount


def _optimizer_bytes(model: Transformer) -> int:
    adam = 12 if model.item == 2 else 2 * model.item
    return adam if model.optimizer_bytes is None else model.optimizer_bytes


def _divide(amount: int, ranks: int) -> int:
    return -(-amount // ranks)
