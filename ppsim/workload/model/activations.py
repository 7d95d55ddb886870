"""What layers and stages keep of a microbatch, in bytes on one GPU."""

from __future__ import annotations

from ppsim.workload.model.model import Model
from ppsim.workload.model.operators import ITEM, tokens_of
from ppsim.workload.model.parallel import Parallel

# Bytes of an element that Transformer Engine keeps of a linear layer's input for the gradient of its weights.
KEPT_AS = {"fp8": 1.0, "mxfp8": 33 / 32, "nvfp4": 9 / 16}


def layer_activations(model: Model, parallel: Parallel, experts: bool, recompute: str) -> float:
    """Compute the bytes that a layer keeps of a microbatch on one GPU.

    In narrow precisions the inputs of linear layers are kept as narrow as they are multiplied; all else is in 16 bits.
    """
    p, h = parallel, model.hidden
    tokens = tokens_of(model, p)
    local = tokens / (p.tp if p.sequence_parallel else 1)
    if recompute == "full":
        return ITEM * local * h
    a, narrow = model.heads / p.tp, KEPT_AS.get(p.precision, ITEM)
    kept = 2 * (ITEM + narrow) * local * h  # input and output of both norms
    if model.kv_lora:
        width = model.head_dim + model.rope_dim
        kept += (ITEM + narrow) * local * (model.q_lora + model.kv_lora) + ITEM * local * model.rope_dim
        kept += ITEM * tokens * a * (2 * width + model.v_dim) + narrow * tokens * a * model.v_dim
    else:
        keys = max(model.kv_heads / p.tp, 1.0)
        kept += ITEM * tokens * (a + 2 * keys) * model.head_dim + narrow * tokens * a * model.head_dim
    if not p.flash and recompute == "none":
        kept += (2 * ITEM + 1) * tokens * model.seq * a
    if model.biases:
        kept += 2 * local * h  # dropout's masks
    ffn = (2 if model.gated else 1) * ITEM + narrow  # bytes of the activation's inputs, and of its output
    if not experts:
        return kept + ffn * tokens * model.ffn / p.tp
    visits = tokens / p.tp * model.top_k
    kept += visits * ((ITEM + narrow) * h + ffn * model.expert_ffn) + 8 * tokens / p.tp * model.experts
    return kept + ffn * tokens * model.shared_ffn / p.tp


def stage_activations(
    model: Model, parallel: Parallel, *, dense: int, experts: int, mtp: int, recomputed: int
) -> float:
    """Compute the bytes that a stage keeps of a microbatch; of its layers, the first ones recompute."""
    total = mtp * layer_activations(model, parallel, bool(model.experts), "none")
    first = min(recomputed, dense)
    for count, again, kind in ((dense, first, False), (experts, recomputed - first, True)):
        total += again * layer_activations(model, parallel, kind, parallel.recompute)
        total += (count - again) * layer_activations(model, parallel, kind, "none")
    return total
