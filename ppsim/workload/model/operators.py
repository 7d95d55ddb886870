"""Operators of layers, embedding and output: FLOPs, bytes and kernels of a microbatch on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ppsim.errors import InputError
from ppsim.workload.model.model import COMPRESSED, STATES, Encoder, Layer, Model, attended_tokens
from ppsim.workload.model.parallel import Parallel

Floats = NDArray[np.float64]
# Units of an operator: products in the training precision; products in 16 bits; attention in one
# kernel; no matrix units.
LINEAR, WIDE, FLASH, NONE = 0, 1, 2, 3
FORWARD, INPUTS, WEIGHTS = 0, 1, 2  # rows of a column: F, I and W
ITEM = 2  # bytes of an activation
# Kernels of a clamped activation: two clamps, scale, sigmoid, two products, two biases.
CLAMPED = 8.0
# Bytes that biases after the experts move for each number, in F and I, and kernels of each.
# Megatron-LM multiplies each expert's bias by the weights of its tokens, in 32 bits, adds it, joins
# the experts and casts to 16 bits (_apply_bias in megatron/core/transformer/moe/experts.py); a
# backward also sums products with the gradient for biases and for weights.
BIASES = 28.0, 40.0, 4.0
NARROW = ("fp8", "mxfp8", "nvfp4")
# Bytes per logit that the unfused loss of Megatron-LM moves. Forward: cast to 32 bits, maximum,
# difference, exponential, sum, quotient. Backward: subtraction at the token, product with the
# gradient, cast to 16 bits.
UNFUSED = 38, 14
# tokens per chunk in kernels of states, as in flash-linear-attention and mamba_ssm
CHUNK = 128


@dataclass(frozen=True)
class Operators:
    """n operators as columns; rows of shape (3, n) are F, I (of inputs) and W (of weights).

    Attributes:
        names: names of the operators.
        unit: LINEAR, WIDE, FLASH or NONE, which select the GPU's peak.
        size: shape (3, n), m, n and k of one matrix product; for attention its queries, its keys
            and the mean width of a head.
        flops: shape (3, n), FLOPs.
        moved: shape (3, n), bytes that products read and write; a lower bound of their time.
        touched: shape (3, n), bytes of elementwise work; its time is added.
        kernels: shape (3, n), kernel launches.
    """

    names: tuple[str, ...]
    unit: NDArray[np.int64]
    size: Floats
    flops: Floats
    moved: Floats
    touched: Floats
    kernels: Floats


Triple = tuple[float, ...]


@dataclass
class _Rows:
    """A list of operators under construction."""

    rows: list[tuple[str, int, Triple, Triple, Triple, Triple, Triple]]
    summed: float = 0.0  # bytes that W moves to add the gradient of a weight to its sum

    def product(
        self,
        name: str,
        m: float,
        n: float,
        k: float,
        times: float = 1.0,
        unit: int = LINEAR,
        cast: float = 0.0,
    ) -> None:
        """Add ``times`` products of m x k by k x n with weights.

        ``cast`` is the bytes per element that casting inputs to the training precision moves.
        """
        flops, moved = 2 * m * n * k * times, ITEM * (m * k + k * n + m * n) * times
        touched = (cast * m * k * times, cast * m * n * times, self.summed * k * n * times)
        self.rows.append(
            (name, unit, (m, n, k), (flops,) * 3, (moved,) * 3, touched, (1.0, 1.0, 1.0))
        )

    def mixing(
        self,
        name: str,
        unit: int,
        size: Triple,
        flops: float,
        moved: float,
        backward: float = 2.5,
        kernels: tuple[float, float] = (1.0, 3.0),
        touched: Triple = (0.0, 0.0, 0.0),
    ) -> None:
        """Add products without weights.

        ``backward`` is the FLOPs and bytes of the backward over those of the forward.
        """
        columns = (
            (flops, backward * flops, 0.0),
            (moved, backward * moved, 0.0),
            touched,
            (*kernels, 0.0),
        )
        self.rows.append((name, unit, size, *columns))

    def elementwise(self, name: str, forward: float, backward: float, kernels: float = 1.0) -> None:
        """Add elementwise work that moves ``forward`` and ``backward`` bytes."""
        none = (0.0, 0.0, 0.0)
        self.rows.append(
            (
                name,
                NONE,
                (1.0, 1.0, 1.0),
                none,
                none,
                (forward, backward, 0.0),
                (kernels, kernels, 0.0),
            )
        )

    def finish(self) -> Operators:
        names, unit, size, *columns = zip(*self.rows, strict=True)
        flops, moved, touched, kernels = (np.array(c, np.float64).T for c in columns)
        return Operators(
            names, np.array(unit), np.array(size, np.float64).T, flops, moved, touched, kernels
        )


@lru_cache(maxsize=4096)
def layer_operators(model: Model, parallel: Parallel, layer: Layer) -> Operators:
    """Return the operators of one layer."""
    rows = _Rows([], summed_bytes(parallel))
    for part in layer if model.streams > 1 else ():
        if part != "none":
            _add_streams(rows, model, parallel)
    if layer.mixer in STATES:
        _add_state(rows, model, parallel, layer.mixer)
    elif layer.mixer != "none":
        _add_attention(rows, model, parallel, layer.mixer)
    if layer.mlp == "experts":
        _add_experts(rows, model, parallel)
    elif layer.mlp != "none":
        _add_mlp(rows, model, parallel)
    return rows.finish()


def summed_bytes(parallel: Parallel) -> float:
    """Return the bytes per weight that adding a gradient to the sum over microbatches moves.

    A product that adds to the sum waits for reading the sum, but not for writing it. Otherwise the
    product writes a gradient, which is read again with the sum. If the gradients of each microbatch
    are scattered, they are copied to a buffer instead, which takes as many bytes.
    """
    if parallel.adapters:
        return 0.0
    sums = parallel.sums_in_products
    return parallel.gradient_bytes if sums else 2.0 * parallel.gradient_bytes + ITEM


@lru_cache(maxsize=1024)
def head_operators(model: Model, parallel: Parallel) -> Operators:
    """Return the operators after the last layer: the final norm, the output matrix and the loss."""
    tokens = tokens_of(model, parallel)
    rows = _Rows([], summed_bytes(parallel))
    _add_norm(
        rows,
        "final norm",
        tokens / (parallel.tp if parallel.sequence_parallel else 1) * model.hidden,
    )
    rows.product("output matrix", tokens, model.vocab / parallel.tp, model.hidden, unit=WIDE)
    logits = tokens * model.vocab / parallel.tp
    forward, backward = UNFUSED if parallel.kernels == "eager" else (8, 4)
    rows.elementwise("loss", forward * logits, backward * logits, 3)
    return rows.finish()


@lru_cache(maxsize=1024)
def embedding_operators(model: Model, parallel: Parallel) -> Operators:
    """Return the operators before the first layer: the embedding, and the sum of its gradients."""
    rows = _Rows([])
    elements = tokens_of(model, parallel) * model.hidden
    rows.elementwise("embedding", 3 * ITEM * elements, 4 * ITEM * elements, 3)
    return rows.finish()


@lru_cache(maxsize=64)
def encoder_operators(encoder: Encoder, parallel: Parallel) -> Operators:
    """Return the operators of an encoder's layer, whose attention has no mask."""
    e, t, cast = encoder, parallel.tp, _cast(parallel)
    tokens = parallel.mbs * e.tokens / parallel.cp
    local = tokens / (t if parallel.sequence_parallel else 1)
    rows = _Rows([], summed_bytes(parallel))
    rows.elementwise("norms", 4 * ITEM * local * e.hidden, 8 * ITEM * local * e.hidden, 2)
    rows.product("query, key, value", tokens, 3 * e.hidden / t, e.hidden, cast=cast)
    flops, moved = 4 * tokens * e.tokens * e.hidden / t, 4 * ITEM * tokens * e.hidden / t
    size = (e.tokens / parallel.cp, e.tokens, e.hidden / e.heads)
    rows.mixing("attention", FLASH, size, flops, moved)
    rows.product("attention output", tokens, e.hidden, e.hidden / t, cast=cast)
    inputs = 2 if e.gated else 1
    rows.product("MLP in", tokens, inputs * e.ffn / t, e.hidden, cast=cast)
    moved = ITEM * tokens * e.ffn / t
    rows.elementwise("activation", (inputs + 1) * moved, (2 * inputs + 1) * moved)
    rows.product("MLP out", tokens, e.hidden, e.ffn / t, cast=cast)
    rows.elementwise("residuals", 6 * ITEM * local * e.hidden, 4 * ITEM * local * e.hidden, 2)
    return rows.finish()


def check_division(model: Model, parallel: Parallel) -> None:
    """Refuse ranks over which heads, experts or tokens do not divide.

    Raises:
        InputError: heads do not divide over tensor-parallel ranks, experts over expert-parallel
            ranks, or a sequence over two parts for each context-parallel rank.
    """
    for amount, ranks, noun, option in (
        (model.heads, parallel.tp, "heads", "tp"),
        (model.experts, parallel.ep, "experts", "ep"),
    ):
        if amount % ranks:
            fits = next(n for n in range(min(ranks, amount), 0, -1) if amount % n == 0)
            raise InputError(
                f"{model.name or 'the model'}: {amount} {noun} do not divide over "
                f"{option} = {ranks}",
                f"--{option} {fits}",
            )
    if parallel.cp > 1 and model.seq % (2 * parallel.cp):
        raise InputError(
            f"{model.name or 'the model'}: {model.seq} tokens do not divide into 2 x cp = "
            f"{2 * parallel.cp} parts",
            "another --cp or --seq: each rank has a part from the front and one from the back",
        )


def tokens_of(model: Model, parallel: Parallel) -> float:
    """Return the tokens of a microbatch, or of a slice of it, on one context-parallel rank."""
    return parallel.mbs * model.seq / parallel.cp / parallel.parts


def _add_attention(rows: _Rows, model: Model, parallel: Parallel, mixer: str) -> None:
    """Add a layer's attention: norm, projections, positions, attention itself, output, residual."""
    t, a = parallel.tp, model.heads / parallel.tp
    tokens, h = tokens_of(model, parallel), model.hidden
    local = tokens / (t if parallel.sequence_parallel else 1)
    cast = _cast(parallel)
    _add_norm(rows, "attention norm", local * h)
    width = model.head_dim + model.rope_dim
    if model.kv_lora:
        rank = model.q_lora
        if rank:
            rows.product("query down", local, rank, h, cast=cast)
        rows.product("query up" if rank else "query", tokens, a * width, rank or h, cast=cast)
        rows.product("key and value down", local, model.kv_lora + model.rope_dim, h, cast=cast)
        rows.product(
            "key and value up", tokens, a * (model.head_dim + model.v_dim), model.kv_lora, cast=cast
        )
        keys = a
    elif model.o_lora:
        rows.product("query down", local, model.q_lora, h, cast=cast)
        rows.product("query up", tokens, a * width, model.q_lora, cast=cast)
        rows.product("key and value", local, width, h, cast=cast)
        keys = 1
    else:
        keys = max(model.kv_heads / t, 1.0)
        queries = (2 if model.attention_gate else 1) * a
        rows.product(
            "query, key, value", tokens, (queries + 2 * keys) * model.head_dim, h, cast=cast
        )
    if not model.learned_positions:
        rotated = ITEM * tokens * (a + keys) * width
        rows.elementwise("positions", 2 * rotated, 2 * rotated)
    if mixer == "sparse":
        _add_indexer(rows, model, parallel)
    elif mixer in COMPRESSED:
        _add_compressed_keys(rows, model, parallel, mixer)
    _add_scores(rows, model, parallel, mixer, a, keys)
    if model.attention_gate:
        _add_activation(rows, model, tokens * a * model.v_dim)
    if model.o_lora:
        rows.product("attention output down", tokens, model.o_lora, a * model.v_dim, cast=cast)
        rows.product("attention output", tokens, h, model.o_groups * model.o_lora / t, cast=cast)
    else:
        rows.product("attention output", tokens, h, a * model.v_dim, cast=cast)
    _add_residual(rows, "attention residual", model, local * h)


def _add_scores(
    rows: _Rows, model: Model, parallel: Parallel, mixer: str, a: float, keys: float
) -> None:
    """Add attention's two products.

    With ``flash`` they are one kernel that skips masked tokens; otherwise all scores are written
    to memory. ``a`` and ``keys`` are the heads of queries and of keys on a rank.
    """
    tokens = tokens_of(model, parallel)
    qk, pv = model.head_dim + model.rope_dim, model.v_dim
    if parallel.flash:
        flops = 2 * tokens * attended_tokens(model, mixer) * a * (qk + pv)
        moved = ITEM * tokens * (a * (qk + pv) + keys * (qk + pv))
        rows.mixing(
            "attention", FLASH, (model.seq / parallel.cp, model.seq, (qk + pv) / 2), flops, moved
        )
        return
    seq, scores = model.seq, tokens * model.seq * a
    count = tokens / seq * a
    for name, k, n in (("scores", qk, seq), ("context", seq, pv)):
        flops, moved = 2 * seq * k * n * count, ITEM * (seq * k + k * n + seq * n) * count
        rows.mixing(name, WIDE, (seq, n, k), flops, moved, 2, (1.0, 2.0))
    rows.elementwise("softmax", 2 * ITEM * scores, 3 * ITEM * scores)
    rows.elementwise("attention dropout", (2 * ITEM + 1) * scores, (2 * ITEM + 1) * scores)


def _add_compressed_keys(rows: _Rows, model: Model, parallel: Parallel, mixer: str) -> None:
    """Add DeepSeek-V4's compressed keys: two products, weighted sums over tokens, CSA's indexer.

    The products are in 16 bits in any training precision, as in Megatron-LM (pull request 5308).
    """
    local = tokens_of(model, parallel) / (parallel.tp if parallel.sequence_parallel else 1)
    wide = (4 if mixer == "csa" else 2) * model.head_dim
    rows.product("keys of several tokens", local, wide, model.hidden, unit=WIDE)
    rows.elementwise("weighted keys", 2 * 4 * local * wide, 4 * 4 * local * wide, 4)
    if mixer == "csa":
        _add_indexer(rows, model, parallel, model.csa)


def _add_indexer(rows: _Rows, model: Model, parallel: Parallel, ratio: int = 1) -> None:
    """Add DeepSeek-V3.2's indexer: heads score all earlier keys, and attention uses the best.

    ``ratio`` is the tokens per key; compressed keys are scored in 16 bits.
    """
    tokens, unit = tokens_of(model, parallel), WIDE if ratio > 1 else LINEAR
    cast = 0.0 if ratio > 1 else _cast(parallel)
    local, keys = tokens / (parallel.tp if parallel.sequence_parallel else 1), model.seq / ratio
    wide = model.index_heads * model.index_dim
    rows.product("indexer queries", local, wide, model.q_lora, unit=unit, cast=cast)
    width = (4 if ratio > 1 else 1) * model.index_dim + model.index_heads
    rows.product("indexer key and weights", local, width, model.hidden, unit=unit, cast=cast)
    flops = local * keys * model.index_heads * (model.index_dim + 1)
    moved = 2 * ITEM * local * wide
    size = (model.seq / parallel.cp, keys, model.index_dim)
    rows.mixing("indexer scores", FLASH, size, flops, moved, 2, (1.0, 2.0))
    rows.elementwise("top tokens", 4 * local * keys / 2, 0.0, 2)


def _add_state(rows: _Rows, model: Model, parallel: Parallel, mixer: str) -> None:
    """Add a layer's state: norm, projections, convolution, state, gate and norm, output, residual.

    With chunks of c tokens, a head of p values and n keys multiplies c/2 (n + p) numbers per token
    within a chunk, and 2 n p with the state before it (Mamba-2, arXiv 2405.21060, section 6; the
    same for gated delta net, arXiv 2412.06464).
    """
    p, h, cast = parallel, model.hidden, _cast(parallel)
    tokens = tokens_of(model, p)
    local = tokens / (p.tp if p.sequence_parallel else 1)
    values, keys = (
        model.state_heads * model.state_dim / p.tp,
        2 * model.state_groups * model.state_size / p.tp,
    )
    gates = model.state_heads / p.tp * {"mamba": 1, "delta": 2, "kda": 1}.get(mixer, 0)
    _add_norm(rows, "state norm", local * h)
    gate = 0.0 if mixer == "kda" else values
    rows.product("state in", tokens, gate + values + keys + gates, h, cast=cast)
    if mixer == "kda":
        rows.product("gates down", tokens, 2 * model.state_dim, h, cast=cast)
        rows.product("gates up", tokens, keys / 2 + values, model.state_dim, cast=cast)
    if model.conv:
        rows.elementwise(
            "convolution", 2 * ITEM * tokens * (values + keys), 4 * ITEM * tokens * (values + keys)
        )
    heads, chunk = model.state_heads / p.tp, min(CHUNK, model.seq)
    wide = model.state_size + model.state_dim
    flops = 2 * tokens * heads * (chunk / 2 * wide + 2 * model.state_size * model.state_dim)
    moved = ITEM * tokens * (2 * values + keys)
    size = (model.seq / p.cp, model.seq, wide / 2)
    # The state at the end of each chunk, in 32 bits, is written, read and written by the pass over
    # chunks, and read; the backward moves twice as much.
    passed = 4 * 4 * tokens / chunk * heads * model.state_size * model.state_dim
    touched = (passed, 2 * passed, 0.0)
    rows.mixing("state", FLASH, size, flops, moved, kernels=(4.0, 8.0), touched=touched)
    rows.elementwise("gate and norm", 3 * ITEM * tokens * values, 5 * ITEM * tokens * values, 2)
    rows.product("state out", tokens, h, values, cast=cast)
    _add_residual(rows, "state residual", model, local * h)


def _add_streams(rows: _Rows, model: Model, parallel: Parallel) -> None:
    """Add hyper-connections around one part of a layer, in 32 bits.

    They compute weights of the parallel hidden states, the states' sum, and new states.
    """
    n = model.streams
    local = tokens_of(model, parallel) / (parallel.tp if parallel.sequence_parallel else 1)
    rows.product("stream weights", local, (2 + n) * n, n * model.hidden, unit=WIDE)
    moved = (4 * n + 2) * 4 * local * model.hidden
    rows.elementwise("streams", moved, 2 * moved, 4)


def _add_mlp(rows: _Rows, model: Model, parallel: Parallel) -> None:
    """Add a dense MLP with its norm and residual."""
    tokens, h, cast = tokens_of(model, parallel), model.hidden, _cast(parallel)
    local = tokens / (parallel.tp if parallel.sequence_parallel else 1)
    wide = model.ffn / parallel.tp
    _add_norm(rows, "MLP norm", local * h)
    rows.product("MLP in", tokens, wide * (2 if model.gated else 1), h, cast=cast)
    _add_activation(rows, model, tokens * wide)
    rows.product("MLP out", tokens, h, wide, cast=cast)
    _add_residual(rows, "MLP residual", model, local * h)


def _add_experts(rows: _Rows, model: Model, parallel: Parallel) -> None:
    """Add an MoE layer on the busiest rank.

    An expert is not divided; each tensor-parallel rank has different tokens.
    """
    h, cast = model.hidden, _cast(parallel)
    local = tokens_of(model, parallel) / parallel.tp
    visits = local * model.top_k
    groups = max(model.experts / parallel.ep, 1.0)
    received, gate = visits * parallel.load, 2 if model.gated else 1
    each = received / groups
    _add_norm(rows, "MLP norm", local * h)
    rows.product("router", local, model.experts, h, unit=WIDE)
    rows.elementwise("routing", 16 * local * model.experts, 8 * local * model.experts, 8)
    wide = model.expert_hidden
    if wide != h:
        rows.product("latent down", local, wide, h, cast=cast)
    rows.elementwise("permute", 4 * ITEM * visits * wide, 4 * ITEM * visits * wide, 4)
    rows.product("experts in", each, model.expert_ffn * gate, wide, groups, cast=cast)
    _add_expert_activation(rows, model, received * model.expert_ffn)
    rows.product("experts out", each, wide, model.expert_ffn, groups, cast=cast)
    if model.clamped:
        forward, backward, kernels = BIASES
        rows.elementwise(
            "experts' biases", forward * received * wide, backward * received * wide, kernels
        )
    rows.elementwise("unpermute", 4 * ITEM * visits * wide, 4 * ITEM * visits * wide, 4)
    if wide != h:
        rows.product("latent up", local, h, wide, cast=cast)
    if model.shared_ffn:
        tokens, shared = tokens_of(model, parallel), model.shared_ffn / parallel.tp
        rows.product("shared expert in", tokens, shared * gate, h, cast=cast)
        _add_activation(rows, model, tokens * shared)
        rows.product("shared expert out", tokens, h, shared, cast=cast)
    _add_residual(rows, "MLP residual", model, local * h)


def _cast(parallel: Parallel) -> float:
    """Return the bytes per element that casting an input to a narrow precision moves.

    It is read in 16 bits and written twice in 8 bits: plain and transposed.
    """
    return 4.0 if parallel.precision in NARROW else 0.0


def _add_norm(rows: _Rows, name: str, elements: float) -> None:
    rows.elementwise(name, 2 * ITEM * elements, 4 * ITEM * elements)


def _add_residual(rows: _Rows, name: str, model: Model, elements: float) -> None:
    """Add a residual; models with biases have bias and dropout in the same kernel."""
    mask = elements if model.biases else 0
    rows.elementwise(name, 3 * ITEM * elements + mask, 2 * ITEM * elements + mask)


def _add_activation(rows: _Rows, model: Model, elements: float) -> None:
    inputs = 2 if model.gated else 1
    rows.elementwise(
        "activation", (inputs + 1) * ITEM * elements, (2 * inputs + 1) * ITEM * elements
    )


def _add_expert_activation(rows: _Rows, model: Model, elements: float) -> None:
    """Add the activation of experts; a clamped one has a kernel for each of its steps."""
    if model.clamped:
        rows.elementwise(
            "clamped activation",
            CLAMPED * 3 * ITEM * elements,
            2 * CLAMPED * 3 * ITEM * elements,
            CLAMPED,
        )
        return
    inputs = 2 if model.gated else 1
    rows.elementwise(
        "experts' activation", (inputs + 1) * ITEM * elements, (2 * inputs + 1) * ITEM * elements
    )
