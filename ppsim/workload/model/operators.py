"""The operators of a layer, of embedding and of output: FLOPs, bytes and kernels of a microbatch on one GPU."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ppsim.errors import InputError
from ppsim.workload.model.model import Model, attended_tokens
from ppsim.workload.model.parallel import Parallel

Floats = NDArray[np.float64]
LINEAR, WIDE, FLASH, NONE = 0, 1, 2, 3  # at the precision of training; in 16 bits; one kernel; none
FORWARD, INPUTS, WEIGHTS = 0, 1, 2  # rows
ITEM = 2  # bytes of an activation
CLAMPED = 8.0  # two clamps, scale, sigmoid, two products, and biases before and after
NARROW = ("fp8", "mxfp8", "nvfp4")


@dataclass(frozen=True)
class Operators:
    """Operators, as columns; rows of two-dimensional columns are F, I (gradient of inputs) and W (of weights).

    Attributes:
        names: what each computes.
        unit: LINEAR, WIDE, FLASH or NONE: which of the GPU's peaks counts.
        size: shape (3, n): m, n and k of one matrix product.
        flops: shape (3, n).
        moved: shape (3, n), bytes that the products read and write, which their time cannot be below.
        touched: shape (3, n), bytes of elementwise work beside them, whose time is added.
        kernels: shape (3, n), launches.
    """

    names: tuple[str, ...]
    unit: NDArray[np.int64]
    size: Floats
    flops: Floats
    moved: Floats
    touched: Floats
    kernels: Floats


@dataclass
class _Rows:
    """Operators as they are collected."""

    rows: list[
        tuple[
            str,
            int,
            tuple[float, float, float],
            tuple[float, ...],
            tuple[float, ...],
            tuple[float, ...],
            tuple[float, ...],
        ]
    ]

    def product(
        self, name: str, m: float, n: float, k: float, times: float = 1.0, unit: int = LINEAR, cast: float = 0.0
    ) -> None:
        """Add ``times`` products of m x k by k x n with weights; ``cast``: bytes an element to narrow its inputs."""
        flops, moved = 2 * m * n * k * times, ITEM * (m * k + k * n + m * n) * times
        narrow = (cast * m * k * times, cast * m * n * times, 0.0)
        self.rows.append((name, unit, (m, n, k), (flops,) * 3, (moved,) * 3, narrow, (1.0, 1.0, 1.0)))

    def elementwise(self, name: str, forward: float, backward: float, kernels: float = 1.0) -> None:
        """Add elementwise work on that many bytes."""
        none = (0.0, 0.0, 0.0)
        self.rows.append((name, NONE, (1.0, 1.0, 1.0), none, none, (forward, backward, 0.0), (kernels, kernels, 0.0)))

    def finish(self) -> Operators:
        names, unit, size, *columns = zip(*self.rows, strict=True)
        flops, moved, touched, kernels = (np.array(c, np.float64).T for c in columns)
        return Operators(names, np.array(unit), np.array(size, np.float64).T, flops, moved, touched, kernels)


@lru_cache(maxsize=4096)
def layer_operators(model: Model, parallel: Parallel, experts: bool, layer: int = -1) -> Operators:
    """List the operators of one transformer layer; ``layer`` matters where only some have a sliding window."""
    rows = _Rows([])
    _attention(rows, model, parallel, layer)
    (_experts if experts else _mlp)(rows, model, parallel)
    return rows.finish()


@lru_cache(maxsize=1024)
def head_operators(model: Model, parallel: Parallel) -> Operators:
    """List the operators after the last layer: the final norm, the output matrix and the loss."""
    tokens = tokens_of(model, parallel)
    rows = _Rows([])
    _norm(rows, "final norm", tokens / (parallel.tp if parallel.sequence_parallel else 1) * model.hidden)
    rows.product("output matrix", tokens, model.vocab / parallel.tp, model.hidden, unit=WIDE)
    logits = tokens * model.vocab / parallel.tp
    rows.elementwise("loss", 8 * logits, 4 * logits, 3)
    return rows.finish()


@lru_cache(maxsize=1024)
def embedding_operators(model: Model, parallel: Parallel) -> Operators:
    """List the operators before the first layer: looking up embeddings, and adding up their gradients."""
    rows = _Rows([])
    elements = tokens_of(model, parallel) * model.hidden
    rows.elementwise("embedding", 3 * ITEM * elements, 4 * ITEM * elements, 3)
    return rows.finish()


def check_division(model: Model, parallel: Parallel) -> None:
    """Prove that heads divide over tensor-parallel ranks, and experts over expert-parallel ones.

    Raises:
        InputError: they do not.
    """
    heads, experts = (model.heads, parallel.tp, "heads over", "tp"), (model.experts, parallel.ep, "experts over", "ep")
    for amount, ranks, what, option in (heads, experts):
        if amount % ranks:
            raise InputError(
                f"{model.name or 'the model'}: {amount} {what} {option} = {ranks} do not divide",
                f"--{option} {next(n for n in range(min(ranks, amount), 0, -1) if amount % n == 0)}",
            )
    if parallel.cp > 1 and model.seq % (2 * parallel.cp):
        raise InputError(
            f"{model.name or 'the model'}: {model.seq} tokens do not divide into 2 x cp = {2 * parallel.cp} parts",
            "another --cp or --seq: each rank takes a part from the front and one from the back",
        )


def tokens_of(model: Model, parallel: Parallel) -> float:
    """Return the tokens of a microbatch on one context-parallel rank."""
    return parallel.mbs * model.seq / parallel.cp


def _attention(rows: _Rows, model: Model, parallel: Parallel, layer: int) -> None:
    t, a = parallel.tp, model.heads / parallel.tp
    tokens, h = tokens_of(model, parallel), model.hidden
    local = tokens / (t if parallel.sequence_parallel else 1)
    cast = _cast(parallel)
    _norm(rows, "attention norm", local * h)
    width = model.head_dim + model.rope_dim
    if model.kv_lora:
        rank = model.q_lora
        if rank:
            rows.product("query down", local, rank, h, cast=cast)
        rows.product("query up" if rank else "query", tokens, a * width, rank or h, cast=cast)
        rows.product("key and value down", local, model.kv_lora + model.rope_dim, h, cast=cast)
        rows.product("key and value up", tokens, a * (model.head_dim + model.v_dim), model.kv_lora, cast=cast)
        keys = a
    else:
        keys = max(model.kv_heads / t, 1.0)
        rows.product("query, key, value", tokens, (a + 2 * keys) * model.head_dim, h, cast=cast)
    if not model.learned_positions:
        turned = ITEM * tokens * (a + keys) * width
        rows.elementwise("positions", 2 * turned, 2 * turned)
    _scores(rows, model, parallel, layer, a, keys)
    rows.product("attention output", tokens, h, a * model.v_dim, cast=cast)
    _residual(rows, "attention residual", model, local * h)


def _scores(rows: _Rows, model: Model, parallel: Parallel, layer: int, a: float, keys: float) -> None:
    """Attention's two products: in one kernel over what the mask leaves, or with all scores written out."""
    tokens = tokens_of(model, parallel)
    qk, pv = model.head_dim + model.rope_dim, model.v_dim
    if parallel.flash:
        seen = attended_tokens(model, layer if layer >= 0 else model.window_every - 1)
        flops = 2 * tokens * seen * a * (qk + pv)
        moved = ITEM * tokens * (a * (qk + pv) + keys * (qk + pv))
        rows.rows.append(
            (
                "attention",
                FLASH,
                (model.seq / parallel.cp, model.seq, qk),
                (flops, 2.5 * flops, 0.0),
                (moved, 2.5 * moved, 0.0),
                (0.0, 0.0, 0.0),
                (1.0, 3.0, 0.0),
            )
        )
        return
    seq, scores = model.seq, tokens * model.seq * a
    count = tokens / seq * a
    for name, k, n in (("scores", qk, seq), ("context", seq, pv)):
        flops, moved = 2 * seq * k * n * count, ITEM * (seq * k + k * n + seq * n) * count
        rows.rows.append(
            (name, WIDE, (seq, n, k), (flops, 2 * flops, 0.0), (moved, 2 * moved, 0.0), (0.0,) * 3, (1.0, 2.0, 0.0))
        )
    rows.elementwise("softmax", 2 * ITEM * scores, 3 * ITEM * scores)
    rows.elementwise("attention dropout", (2 * ITEM + 1) * scores, (2 * ITEM + 1) * scores)


def _mlp(rows: _Rows, model: Model, parallel: Parallel) -> None:
    tokens, h, cast = tokens_of(model, parallel), model.hidden, _cast(parallel)
    local = tokens / (parallel.tp if parallel.sequence_parallel else 1)
    wide = model.ffn / parallel.tp
    _norm(rows, "MLP norm", local * h)
    rows.product("MLP in", tokens, wide * (2 if model.gated else 1), h, cast=cast)
    _activation(rows, model, tokens * wide)
    rows.product("MLP out", tokens, h, wide, cast=cast)
    _residual(rows, "MLP residual", model, local * h)


def _experts(rows: _Rows, model: Model, parallel: Parallel) -> None:
    """An MoE layer with balanced experts; an expert is whole, and tensor-parallel ranks have tokens of their own."""
    h, cast = model.hidden, _cast(parallel)
    local = tokens_of(model, parallel) / parallel.tp
    visits = local * model.top_k
    groups = max(model.experts / parallel.ep, 1.0)
    each, gate = visits / groups, 2 if model.gated else 1
    _norm(rows, "MLP norm", local * h)
    rows.product("router", local, model.experts, h, unit=WIDE)
    rows.elementwise("routing", 16 * local * model.experts, 8 * local * model.experts, 8)
    rows.elementwise("permute", 4 * ITEM * visits * h, 4 * ITEM * visits * h, 4)
    rows.product("experts in", each, model.expert_ffn * gate, h, groups, cast=cast)
    _expert_activation(rows, model, visits * model.expert_ffn)
    rows.product("experts out", each, h, model.expert_ffn, groups, cast=cast)
    rows.elementwise("unpermute", 4 * ITEM * visits * h, 4 * ITEM * visits * h, 4)
    if model.shared_ffn:
        tokens, wide = tokens_of(model, parallel), model.shared_ffn / parallel.tp
        rows.product("shared expert in", tokens, wide * gate, h, cast=cast)
        _activation(rows, model, tokens * wide)
        rows.product("shared expert out", tokens, h, wide, cast=cast)
    _residual(rows, "MLP residual", model, local * h)


def _cast(parallel: Parallel) -> float:
    """Bytes an element that narrowing an input costs: it is read in 16 bits and written twice, as is and transposed."""
    return 4.0 if parallel.precision in NARROW else 0.0


def _norm(rows: _Rows, name: str, elements: float) -> None:
    rows.elementwise(name, 2 * ITEM * elements, 4 * ITEM * elements)


def _residual(rows: _Rows, name: str, model: Model, elements: float) -> None:
    """Bias, dropout and residual: GPT models of the time have all of them."""
    mask = elements if model.biases else 0
    rows.elementwise(name, 3 * ITEM * elements + mask, 2 * ITEM * elements + mask)


def _activation(rows: _Rows, model: Model, elements: float) -> None:
    inputs = 2 if model.gated else 1
    rows.elementwise("activation", (inputs + 1) * ITEM * elements, (2 * inputs + 1) * ITEM * elements)


def _expert_activation(rows: _Rows, model: Model, elements: float) -> None:
    """The activation of experts; with clamps, biases and a scale it is a kernel for each, of two operands mostly."""
    if model.clamped:
        rows.elementwise(
            "clamped activation", CLAMPED * 3 * ITEM * elements, 2 * CLAMPED * 3 * ITEM * elements, CLAMPED
        )
        return
    inputs = 2 if model.gated else 1
    rows.elementwise("experts' activation", (inputs + 1) * ITEM * elements, (2 * inputs + 1) * ITEM * elements)
