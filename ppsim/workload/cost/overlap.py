"""Cost of communication in parallel with compute: a layer as segments on two streams of a GPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ppsim.engine.simple.segments import PAIR, Segment, Segments, look_inside, run_streams
from ppsim.workload.model.operators import FORWARD, INPUTS, WEIGHTS, Floats
from ppsim.workload.model.parallel import Parallel

# DeepSeek-V3 gives 20 of a GPU's 132 multiprocessors to communication (arXiv 2412.19437, section
# 3.2.2). HybridEP's all-to-all takes 10.8 s of a step where it overlaps and 8.25 s where it does
# not: Qwen3-30B-A3B on 16 H100, from the concurrent times and shares that Nsight Systems gave in
# Megatron-Bridge's pull request 5129.
CONTENTION = (20 / (132 - 20), 0.31)
# pieces that go around a ring are copied without multiprocessors: Transformer Engine's use_ce
COPIED = (0.0, 0.0)
ATTENTION_OUT = "attention output"
# The products that need gathered tokens, and the one whose result is scattered, of tensor-parallel
# ranks.
BLOCKS = (
    (("query, key, value", "query up", "query", "key and value up"), ATTENTION_OUT),
    (("state in",), "state out"),
    (("MLP in",), "MLP out"),
    (("shared expert in",), "shared expert out"),
)
ATTENTION = ("attention", "scores", "context")
EXPERTS = ("experts in", "experts' activation", "clamped activation", "experts out")
SHARED = ("shared expert in", "shared expert out")
# Layers of a chunk that are simulated; they share the time that the first and last cannot hide.
LAYERS = 4


def expert_pair(names: Sequence[str], times: Floats, waits: Floats, exchange: float) -> float:
    """Return the seconds of an expert layer's F in parallel with another microbatch's B, in
    Megatron-Core's combined order.

    Args:
        names: shape (n,), of the layer's operators.
        times: shape (3, n), their seconds in F, I and W.
        waits: shape (3,), seconds that each pass waits for collectives which the pair does not
            hide.
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
    """Compute the seconds that F, I and W of a layer wait for gathers and scatters of tensor ranks,
    shape (3,).

    With ``overlap_tp`` collectives before or after a product go around a ring in pieces, one of
    which each rank has from the start. A backward gathers the inputs once more, and scatters their
    gradient: Megatron-LM's layers do that in parallel with I and W of the product (arXiv
    2205.05198, section 4.2.2); others wait. Without sequence parallelism sums take both.

    Args:
        names: shape (n,), of the layer's operators.
        times: shape (3, n), their seconds in F, I and W.
        scatter: seconds of a scatter.
        gathers: seconds of the gathers in F, I and W.
        parallel: how the layer is trained.
        into_attention: how long attention's inputs take to gather or scatter, as a share of the
            time that hidden states take.
    """
    waits = np.zeros(3)
    ring = 1 - 1 / parallel.tp if parallel.overlap_tp else 0.0
    beside_all = float(parallel.kernels == "fused")
    for needs, makes in BLOCKS if scatter else ():
        if makes not in names:
            continue
        inner, outer = (
            times[:, [name in some for name in names]].sum(axis=1) for some in (needs, (makes,))
        )
        inward = into_attention if makes == ATTENTION_OUT else 1.0
        if not parallel.sequence_parallel:
            waits += [2 * scatter, 0.0, added(inner[WEIGHTS], 2 * inward * scatter, beside_all)]
            continue
        around = (
            (inner[FORWARD], inward * gathers[FORWARD]),
            (outer[FORWARD], scatter),
            (outer[INPUTS], gathers[INPUTS]),
        )
        first, last, back = (added(*pair, ring, COPIED) for pair in around)
        waits[FORWARD] += first + last
        waits[INPUTS] += back + added(inner[INPUTS], inward * gathers[WEIGHTS], beside_all)
        waits[WEIGHTS] += added(inner[WEIGHTS], inward * scatter, beside_all)
    return waits


def lost_overlap(
    names: Sequence[str],
    times: Floats,
    scatter: float,
    gathers: Sequence[float],
    parallel: Parallel,
    into_attention: float = 1.0,
) -> Floats:
    """Return the seconds of overlap that a split backward loses in a layer: added to I, taken from
    W; shape (2,).

    A whole backward scatters (without sequence parallelism: sums) the gradient of a product's
    inputs in parallel with the product that makes its weights' gradient. Where the latter waits for
    W, I waits for the scatter alone. The inputs that a whole backward gathers in parallel with the
    gradient of inputs are gathered in W, each in parallel with the products before it: the
    pre_process of a WeightGradStore, in the zero-bubble authors' fork of Megatron-LM and in Primus.

    Args:
        names: shape (n,), of the layer's operators.
        times: shape (3, n), their seconds in F, I and W.
        scatter: seconds of a scatter.
        gathers: seconds of the gathers in F, I and W.
        parallel: how the layer is trained.
        into_attention: how long attention's inputs take to gather or scatter, as a share of the
            time that hidden states take.
    """
    moved = np.zeros(2)
    beside_all = float(parallel.kernels == "fused")
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
            share * message - added(inputs, share * gather, beside_all),
            added(weights, share * message, beside_all),
        ]
    every = float(times[WEIGHTS].sum())
    moved[1] -= added(every, sum(shares.values()) * gather, beside_all)
    return moved


def context_waits(names: Sequence[str], times: Floats, gather: float, parallel: Parallel) -> Floats:
    """Compute the seconds that F, I and W wait for keys and values of context-parallel ranks, shape
    (3,).

    They go around a ring in parallel with attention, in a backward with their gradients; without
    ``overlap_tp`` attention waits.
    """
    attention = times[:, [name in ATTENTION for name in names]].sum(axis=1)
    ring = 1 - 1 / parallel.cp if parallel.overlap_tp else 0.0
    return np.array(
        [added(attention[FORWARD], gather, ring), added(attention[INPUTS], 2 * gather, ring), 0.0]
    )


def added(
    compute: float, communication: float, share: float = 1.0, slowed: Sequence[float] = CONTENTION
) -> float:
    """Return the seconds that communication adds to compute if a share of it can run in
    parallel.
    """
    ends = run_streams([0, 1], [compute * share, communication], [[], []], slowed)[1]
    return max(ends) - compute * share
