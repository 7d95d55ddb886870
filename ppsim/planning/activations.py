"""What layers and stages keep of a microbatch, in bytes on one GPU."""

from __future__ import annotations

from ppsim.planning.model import Model
from ppsim.planning.operators import ITEM, tokens_of
from ppsim.planning.parallel import Parallel


def layer_activations(model: Model, parallel: Parallel, experts: bool, recompute: str) -> float:
    """Compute the bytes that a layer keeps of a microbatch on one GPU."""
    p, h = parallel, model.hidden
    tokens = tokens_of(model, p)
    local = tokens / (p.tp if p.sequence_parallel else 1)
    if recompute == "full":
        return ITEM * local * h
    a = model.heads / p.tp
    kept = 4 * ITEM * local * h  # input and output of both norms
    if model.kv_lora:
        width = model.head_dim + model.rope_dim
        kept += ITEM * local * (2 * model.q_lora + 2 * model.kv_lora + model.rope_dim)
        kept += ITEM * tokens * a * (2 * width + 2 * model.v_dim)
    else:
        keys = max(model.kv_heads / p.tp, 1.0)
        kept += ITEM * tokens * (2 * a + 2 * keys) * model.head_dim
    if not p.flash and recompute == "none":
        kept += (2 * ITEM + 1) * tokens * model.seq * a
    if model.biases:
        kept += 2 * local * h  # dropout's masks
    gate = 2 if model.gated else 1
    if not experts:
        return kept + ITEM * tokens * (gate + 1) * model.ffn / p.tp
    visits = tokens / p.tp * model.top_k
    kept += ITEM * visits * (2 * h + (gate + 1) * model.expert_ffn) + 8 * tokens / p.tp * model.experts
    return kept + ITEM * tokens * (gate + 1) * model.shared_ffn / p.tp


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
