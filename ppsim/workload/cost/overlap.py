"""Seconds that communication adds to compute in parallel, on two streams of a GPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ppsim.engine.simple.segments import PAIR, Segment, Segments, look_inside, run_streams
from ppsim.workload.model.operators import FORWARD, INPUTS, WEIGHTS, Floats
from ppsim.workload.model.parallel import Parallel

# Relative slowdowns of compute and of communication while they overlap. DeepSeek-V3 gives 20 of a
# GPU's 132 multiprocessors to communication (arXiv 2412.19437, section 3.2.2). HybridEP's
# all-to-all takes 10.8 s of a step with overlap and 8.25 s without, for Qwen3-30B-A3B on 16 H100:
# from the concurrent times and shares of Nsight Systems in Megatron-Bridge's pull request 5129.
CONTENTION = (20 / (132 - 20), 0.31)
# Transformer Engine copies the pieces of a ring without multiprocessors (use_ce)
COPIED = (0.0, 0.0)
ATTENTION_OUT = "attention output"
# Blocks of a layer on tensor-parallel ranks: the products that need gathered tokens, and the
# product whose result is scattered.
BLOCKS = (
    (("query, key, value", "query up", "query", "key and value up"), ATTENTION_OUT),
    (("state in",), "state out"),
    (("MLP in",), "MLP out"),
    (("shared expert in",), "shared expert out"),
)
ATTENTION = ("attention", "scores", "context")
# what experts compute between the exchanges of tokens
EXPERTS = (
    "experts in",
    "experts' activation",
    "clamped activation",
    "experts out",
    "experts' biases",
)
SHARED = ("shared expert in", "shared expert out")
# Layers simulated for one pair; each gets an equal share of the communication that the first and
# the last layer expose.
LAYERS = 4


def expert_pair(names: Sequence[str], times: Floats, waits: Floats, exchange: float) -> float:
    """Return the seconds of an expert layer's F in parallel with another microbatch's B.

    The order of their parts is Megatron-Core's combined schedule.

    Args:
        names: shape (n,), names of the layer's operators.
        times: shape (3, n), seconds of the operators in F, I and W.
        waits: shape (3,), seconds that F, I and W wait for collectives that a pair does not hide.
        exchange: seconds of an all-to-all; each pass has two, a dispatch and a combine.
    """
    inside = np.array([name in EXPERTS or name in SHARED for name in names])
    passes = times[[FORWARD, INPUTS]]
    passes[1] += times[WEIGHTS]
    mlp = passes[:, inside].sum(axis=1)
    rest = passes.sum(axis=1) - mlp + [waits[FORWARD], waits[INPUTS] + waits[WEIGHTS]]
    (attn, attn_b), (experts, experts_b) = rest.tolist(), mlp.tolist()
    layer = Segments(
        F=(
            Segment("attn", attn),
            _exchange("dispatch", exchange),
            Segment("mlp", experts),
            _exchange("combine", exchange),
        ),
        B=(
            _exchange("combine", exchange),
            Segment("mlp", experts_b),
            _exchange("dispatch", exchange),
            Segment("attn", attn_b),
        ),
        order="megatron-core",
        contention=CONTENTION,
    )
    return look_inside(layer, PAIR, LAYERS).makespan / LAYERS


def _exchange(name: str, seconds: float) -> Segment:
    return Segment(name, seconds, "communication")


def tensor_waits(
    names: Sequence[str],
    times: Floats,
    scatter: float,
    gathers: Sequence[float],
    parallel: Parallel,
    into_attention: float = 1.0,
) -> Floats:
    """Compute the seconds that F, I and W of a layer wait for tensor-parallel ranks, shape (3,).

    With ``overlap_tp`` a collective before or after a product passes its pieces around a ring; each
    rank has one piece from the start. A backward gathers the inputs again, and scatters their
    gradient. Megatron-LM's layers do both in parallel with I and W of the product (arXiv
    2205.05198, section 4.2.2); other software waits. Without sequence parallelism a sum replaces
    gather and scatter.

    Args:
        names: shape (n,), names of the layer's operators.
        times: shape (3, n), seconds of the operators in F, I and W.
        scatter: seconds of a scatter.
        gathers: seconds of the gathers in F, I and W.
        parallel: how the layer is trained.
        into_attention: time to gather or scatter attention's inputs, over the time for hidden
            states.
    """
    waits = np.zeros(3)
    ring = 1 - 1 / parallel.tp if parallel.overlap_tp else 0.0
    hidden_share = float(parallel.kernels == "fused")  # of the product, in a backward
    for needs, makes in BLOCKS if scatter else ():
        if makes not in names:
            continue
        inner, outer = (
            times[:, [name in some for name in names]].sum(axis=1) for some in (needs, (makes,))
        )
        inward = into_attention if makes == ATTENTION_OUT else 1.0
        if not parallel.sequence_parallel:
            waits += [2 * scatter, 0.0, added(inner[WEIGHTS], 2 * inward * scatter, hidden_share)]
            continue
        around = (
            (inner[FORWARD], inward * gathers[FORWARD]),
            (outer[FORWARD], scatter),
            (outer[INPUTS], gathers[INPUTS]),
        )
        first, last, back = (added(*pair, ring, COPIED) for pair in around)
        waits[FORWARD] += first + last
        waits[INPUTS] += back + added(inner[INPUTS], inward * gathers[WEIGHTS], hidden_share)
        waits[WEIGHTS] += added(inner[WEIGHTS], inward * scatter, hidden_share)
    return waits


def lost_overlap(
    names: Sequence[str],
    times: Floats,
    scatter: float,
    gathers: Sequence[float],
    parallel: Parallel,
    into_attention: float = 1.0,
) -> Floats:
    """Return the seconds of overlap that a split backward loses in a layer, shape (2,).

    The first number is added to I, the second is taken from W. A whole backward scatters (without
    sequence parallelism: sums) the gradient of a product's inputs in parallel with the product for
    the weights' gradient. A split backward runs that product in W, so the scatter in I is exposed.
    A whole backward gathers inputs in parallel with the gradient of inputs; a split one gathers
    them in W, in parallel with the products before. That is the pre_process of a WeightGradStore
    in the zero-bubble authors' fork of Megatron-LM and in Primus.

    Args:
        names: shape (n,), names of the layer's operators.
        times: shape (3, n), seconds of the operators in F, I and W.
        scatter: seconds of a scatter.
        gathers: seconds of the gathers in F, I and W.
        parallel: how the layer is trained.
        into_attention: time to gather or scatter attention's inputs, over the time for hidden
            states.
    """
    moved = np.zeros(2)
    hidden_share = float(parallel.kernels == "fused")
    message = scatter if parallel.sequence_parallel else 2 * scatter
    shares = {
        needs: into_attention if makes == ATTENTION_OUT else 1.0
        for needs, makes in BLOCKS
        if scatter and makes in names
    }
    gather = gathers[WEIGHTS] if parallel.sequence_parallel else 0.0
    for needs, share in shares.items():
        inputs, weights = times[INPUTS:, [name in needs for name in names]].sum(axis=1)
        moved += [
            share * message - added(inputs, share * gather, hidden_share),
            added(weights, share * message, hidden_share),
        ]
    all_weights = float(times[WEIGHTS].sum())
    moved[1] -= added(all_weights, sum(shares.values()) * gather, hidden_share)
    return moved


def context_waits(names: Sequence[str], times: Floats, gather: float, parallel: Parallel) -> Floats:
    """Compute the seconds that F, I and W wait for context-parallel ranks, shape (3,).

    With ``overlap_tp`` keys and values (in a backward with their gradients) pass around a ring in
    parallel with attention; without it attention waits for them.
    """
    attention = times[:, [name in ATTENTION for name in names]].sum(axis=1)
    ring = 1 - 1 / parallel.cp if parallel.overlap_tp else 0.0
    return np.array(
        [added(attention[FORWARD], gather, ring), added(attention[INPUTS], 2 * gather, ring), 0.0]
    )


def added(
    compute: float, communication: float, share: float = 1.0, slowed: Sequence[float] = CONTENTION
) -> float:
    """Return the seconds that communication adds to ``compute`` seconds.

    Args:
        compute: seconds of compute.
        communication: seconds of communication.
        share: share of compute that communication can run in parallel with.
        slowed: relative slowdown of compute and of communication while both run.
    """
    ends = run_streams([0, 1], [compute * share, communication], [[], []], slowed)[1]
    return max(ends) - compute * share
