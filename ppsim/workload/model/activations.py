"""Bytes of activations that a layer keeps of a microbatch on one GPU."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ppsim.workload.model.model import COMPRESSED, STATES, Encoder, Layer, Model
from ppsim.workload.model.operators import ITEM, LINEAR, WEIGHTS, layer_operators, tokens_of
from ppsim.workload.model.parallel import Parallel

COMPILED = ("layernorm", "mlp_act", "moe_act")
# Bytes of an element of a product's input, as it is multiplied and kept for W. MXFP8 has a scale
# for each 32 elements, NVFP4 for each 16.
KEPT_AS = {"fp8": 1.0, "mxfp8": 33 / 32, "nvfp4": 9 / 16}
# products whose inputs are gathered, so that a tensor-parallel rank keeps only its part
GATHERED = (
    "query, key, value",
    "query up",
    "query",
    "key and value up",
    "state in",
    "MLP in",
    "shared expert in",
)
# products whose input another product keeps
AS_ANOTHER = (
    "key and value down",
    "key and value",
    "router",
    "shared expert in",
    "gates down",
    "stream weights",
)


def layer_activations(model: Model, parallel: Parallel, layer: Layer, recompute: str) -> float:
    """Compute the bytes that a layer keeps of a microbatch on one GPU.

    Inputs of linear layers are kept in the training precision; all else is in 16 bits.
    """
    local = tokens_of(model, parallel) / (parallel.tp if parallel.sequence_parallel else 1)
    if recompute == "full":
        return ITEM * local * model.hidden * model.streams
    norms = (layer.mixer != "none") + (layer.mlp != "none")
    recomputed = _recomputed_modules(parallel, recompute)
    # compiled and torch kernels are of trainers without dropout
    has_dropout = model.biases and parallel.kernels in ("fused", "eager")
    output = 0.0 if "layernorm" in recomputed else KEPT_AS.get(parallel.precision, ITEM)
    kept = norms * (ITEM + output) * local * model.hidden  # inputs and outputs of norms
    if model.streams > 1:
        kept += norms * ITEM * local * model.hidden * model.streams
    if has_dropout:
        kept += norms * local * model.hidden  # dropout masks
    if layer.mixer in STATES:
        kept += _state_bytes(model, parallel, layer.mixer)
    elif layer.mixer != "none":
        kept += _attention_bytes(model, parallel, layer.mixer, recomputed)
    if layer.mlp != "none":
        kept += _mlp_bytes(model, parallel, layer.mlp, recomputed)
    return kept


@lru_cache(maxsize=4096)
def weight_inputs(model: Model, parallel: Parallel, layer: Layer) -> tuple[float, float]:
    """Compute the bytes that W of a layer reads of a microbatch on one GPU.

    A GPT layer's W reads 14 + 18 bytes for each number of the hidden states (arXiv 2401.10241,
    table 1: 32); F keeps 34, if attention keeps no scores.

    Returns:
        Bytes of the inputs of products, and of the gradients of their outputs.
    """
    if parallel.adapters:
        return 0.0, 0.0
    found = layer_operators(model, parallel, layer)
    here = found.flops[WEIGHTS] > 0
    m, n, k = found.size[:, here]
    together = found.flops[WEIGHTS, here] / (2 * m * n * k)
    names = [name for name, counts in zip(found.names, here, strict=True) if counts]
    item = np.where(found.unit[here] == LINEAR, KEPT_AS.get(parallel.precision, ITEM), ITEM)
    share = np.array([name not in AS_ANOTHER for name in names], np.float64)
    if parallel.sequence_parallel:
        share /= np.array([parallel.tp if name in GATHERED else 1 for name in names])
    return float((item * together * share * m * k).sum()), float((item * together * m * n).sum())


def _recomputed_modules(parallel: Parallel, recompute: str) -> tuple[str, ...]:
    """Return the modules whose outputs are recomputed, by Megatron-LM's --recompute-modules names.

    torch.compile always recomputes tensors of elementwise kernels, such as outputs of norms and
    activation functions (torch._functorch.partitioners, min_cut_rematerialization_partition).
    """
    chosen = parallel.modules if recompute == "selective" else ()
    return (*chosen, *COMPILED) if parallel.kernels == "compiled" else chosen


def _attention_bytes(
    model: Model, parallel: Parallel, mixer: str, recomputed: tuple[str, ...]
) -> float:
    """Return the bytes that a layer's attention keeps of a microbatch."""
    p, tokens = parallel, tokens_of(model, parallel)
    local = tokens / (p.tp if p.sequence_parallel else 1)
    a, narrow = model.heads / p.tp, KEPT_AS.get(p.precision, ITEM)
    if model.kv_lora:
        width = model.head_dim + model.rope_dim
        kept = (ITEM + narrow) * local * (
            model.q_lora + model.kv_lora
        ) + ITEM * local * model.rope_dim
        kept += narrow * tokens * a * model.v_dim
        kept += (
            0.0 if "mla_up_proj" in recomputed else ITEM * tokens * a * (2 * width + model.v_dim)
        )
    elif model.o_lora:
        kept = (ITEM + narrow) * local * (model.q_lora + model.head_dim)
        kept += (
            ITEM + narrow
        ) * tokens * a * model.head_dim + narrow * tokens * model.o_groups * model.o_lora / p.tp
    else:
        keys = max(model.kv_heads / p.tp, 1.0)
        kept = (
            ITEM * tokens * (a + 2 * keys) * model.head_dim + narrow * tokens * a * model.head_dim
        )
    if model.attention_gate:
        kept += 2 * ITEM * tokens * a * model.head_dim
    if mixer in COMPRESSED:  # two products in 32 bits
        kept += (
            4
            * local
            * (4 * (model.head_dim + model.index_dim) if mixer == "csa" else 2 * model.head_dim)
        )
    if mixer in ("sparse", "csa"):  # the indexer's queries and the tokens that it selects
        kept += (
            ITEM * local * (model.index_heads + 1) * model.index_dim + 4 * local * model.index_top_k
        )
    if not p.flash and "core_attn" not in recomputed:
        kept += (2 * ITEM + 1) * tokens * model.seq * a
    return kept


def _state_bytes(model: Model, parallel: Parallel, mixer: str) -> float:
    """Return the bytes that a layer with a state keeps of a microbatch.

    It keeps the input and output of its convolution, gates, and its output before and after the
    gate. Its kernels do not keep states: they recompute them from the start of each chunk.
    """
    p, values = parallel, model.state_heads * model.state_dim
    mixed = values + 2 * model.state_groups * model.state_size
    narrow = KEPT_AS.get(p.precision, ITEM)
    kept = ITEM * (mixed * (2 if model.conv else 1) + 2 * values) + narrow * values
    gates = 4 * 2 * model.state_heads + (
        ITEM * model.state_heads * model.state_size if mixer == "kda" else 0
    )
    return tokens_of(model, p) / p.tp * (kept + gates)


def _mlp_bytes(model: Model, parallel: Parallel, mlp: str, recomputed: tuple[str, ...]) -> float:
    """Return the bytes that a layer's MLP or experts keep of a microbatch."""
    p, tokens, narrow = parallel, tokens_of(model, parallel), KEPT_AS.get(parallel.precision, ITEM)
    # bytes per number of the activation function's width: its inputs, then with its output
    inputs = (2 if model.gated else 1) * (narrow if p.narrow_activation else ITEM)
    dense = inputs if "mlp_act" in recomputed else inputs + narrow
    if mlp == "dense":
        return 0.0 if "mlp" in recomputed else dense * tokens * model.ffn / p.tp
    if "moe" in recomputed:
        return 0.0
    visits = tokens / p.tp * model.top_k * p.load
    routed = inputs if "moe_act" in recomputed else inputs + narrow
    # the gradients of a token's routing weights need experts' outputs, unless weights are early
    output = 0.0 if p.early_weights else ITEM
    kept = visits * ((output + narrow) * model.expert_hidden + routed * model.expert_ffn)
    kept += 8 * tokens / p.tp * model.experts
    return kept + (
        0.0 if "shared_experts" in recomputed else dense * tokens * model.shared_ffn / p.tp
    )


def encoder_activations(encoder: Encoder, parallel: Parallel) -> float:
    """Compute the bytes that a trained encoder keeps of a microbatch on one GPU."""
    e, p = encoder, parallel
    tokens = p.mbs * e.tokens / p.cp
    local = tokens / (p.tp if p.sequence_parallel else 1)
    width = 4 * e.hidden + (3 if e.gated else 2) * e.ffn
    return e.layers * ITEM * (4 * local * e.hidden + tokens * width / p.tp)
