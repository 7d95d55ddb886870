"""The bytes that a GPU holds for each of its stages: states of parameters, activations, and the peak of a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ppsim.core.ops import Kind
from ppsim.core.schedule import Schedule
from ppsim.planning import operators as ops
from ppsim.planning.communication import group_of
from ppsim.planning.costs import StageContent, count_stage_parameters
from ppsim.planning.model import Model
from ppsim.planning.operators import Floats
from ppsim.planning.parallel import Parallel

WEIGHT_BYTES = 2
OPTIMIZER_BYTES = 12  # Adam: master weights and two moments in 32 bits
RESERVE = 0.06  # share of a GPU's memory for the driver, communicators, workspaces and fragments


@dataclass(frozen=True)
class StageBytes:
    """Bytes of each stage on one GPU.

    Attributes:
        states: shape (stages,), weights, gradients and optimizer.
        activation: shape (stages,), from the forward of a microbatch until its backward.
        work: shape (stages,), held while a backward runs: what recompute makes again, and logits.
    """

    states: Floats
    activation: Floats
    work: Floats


def stage_bytes(model: Model, parallel: Parallel, contents: Sequence[StageContent]) -> StageBytes:
    """Compute what every stage holds."""
    rows = {content: _stage(model, parallel, content) for content in set(contents)}
    states, activation, work = np.array([rows[content] for content in contents]).T
    return StageBytes(states, activation, work)


def peak_bytes(schedule: Schedule, found: StageBytes) -> Floats:
    """Compute the most bytes that each device holds, shape (devices,), from the order of its queue."""
    stage, kind = schedule.stage, schedule.kind
    delta = np.where(kind == Kind.F, found.activation[stage], 0.0)
    delta -= np.where((kind == Kind.B) | (kind == Kind.W), found.activation[stage], 0.0)
    second = schedule.second_of_pairs
    second = second[kind[second] == Kind.F]  # in a pair, F takes before the other gives
    delta[second - 1], delta[second] = delta[second], delta[second - 1]
    held = np.cumsum(delta)
    first = schedule.offsets[:-1]
    before = np.where(first > 0, held.take(first - 1, mode="clip"), 0.0)
    states, work = np.zeros(schedule.n_devices), np.zeros(schedule.n_devices)
    owner = schedule.placement.devices[0]
    np.add.at(states, owner, found.states)
    np.maximum.at(work, owner, found.work)
    peaks: Floats = states + work + np.maximum.reduceat(held, first) - before
    return peaks


def _stage(model: Model, parallel: Parallel, content: StageContent) -> tuple[float, float, float]:
    p = parallel
    dense, expert = count_stage_parameters(model, p, content)
    states = sum(
        count * _state_bytes(p, group_of(p, name).size) for count, name in ((dense, "dp"), (expert, "expert-dp"))
    )
    activation, work = 0.0, 0.0
    recomputed = content.layers if p.recompute_layers is None else min(p.recompute_layers, content.layers)
    share = recomputed / max(content.layers, 1) if p.recompute == "full" else 0.0
    for count, experts in ((content.dense, False), (content.experts + content.mtp * bool(model.experts), True)):
        if not count:
            continue
        kept = layer_activation(model, p, experts)
        inputs = ops.tokens_of(model, p) * model.hidden * ops.ITEM / (p.tp if p.sequence_parallel else 1)
        activation += count * (share * inputs + (1 - share) * kept)
        work = max(work, kept if share else 0.0)
    tokens = ops.tokens_of(model, p)
    if content.head:
        work = max(work, tokens * model.vocab / p.tp * (ops.ITEM + 4))  # logits, and their softmax in 32 bits
    return states, activation * (1 - p.offload), work


def _state_bytes(parallel: Parallel, ranks: int) -> float:
    zero = parallel.zero
    return (
        WEIGHT_BYTES / (ranks if zero >= 3 else 1)
        + parallel.gradient_bytes / (ranks if zero >= 2 else 1)
        + OPTIMIZER_BYTES / (ranks if zero >= 1 else 1)
    )


def layer_activation(model: Model, parallel: Parallel, experts: bool) -> float:
    """Count the bytes that a layer's forward keeps for its backward, without recompute in full."""
    p, h = parallel, model.hidden
    tokens = ops.tokens_of(model, p)
    local = tokens / (p.tp if p.sequence_parallel else 1)
    width = model.head_dim + model.rope_dim
    keys = model.heads if model.kv_lora else model.kv_heads
    item = ops.ITEM
    kept = local * h * item * 4  # inputs of both norms, and of both blocks
    kept += tokens / p.tp * item * (model.heads * width + keys * (width + model.v_dim) + model.heads * model.v_dim)
    if model.kv_lora:
        kept += local * item * (model.q_lora + model.kv_lora + model.rope_dim)
    if model.biases:
        kept += 2 * local * h  # masks of dropout
    scores = p.mbs * model.seq / p.cp * model.seq * model.heads / p.tp
    if not p.flash and p.recompute != "selective":
        kept += scores * (2 * item + 1)
    inner = 3 if model.gated else 2
    if not experts:
        return kept + tokens / p.tp * model.ffn * item * inner
    visits = tokens / p.tp * model.top_k
    kept += visits * item * (2 * h + inner * model.expert_ffn) + local * 4 * model.experts
    return kept + tokens / p.tp * model.shared_ffn * item * inner
