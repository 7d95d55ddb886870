"""What communication costs where it runs beside compute: a layer as segments on two streams of a GPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ppsim.engine.simple.segments import PAIR, Segment, Segments, look_inside, run_streams
from ppsim.workload.model.operators import FORWARD, INPUTS, WEIGHTS, Floats

# DeepSeek-V3 gives 20 of a GPU's 132 multiprocessors to communication (arXiv 2412.19437, section 3.2.2).
# HybridEP's all-to-all took 10.8 s beside compute and 8.25 s alone: Qwen3-30B-A3B on 16 H100, Nsight Systems' totals in
# Megatron-Bridge's pull request 5129.
CONTENTION = (20 / (132 - 20), 0.31)
EXPERTS = ("experts in", "experts' activation", "clamped activation", "experts out")
SHARED = ("shared expert in", "shared expert out")
LAYERS = 4  # of a chunk that are simulated: what is seen of the first and last one is shared by so many


def expert_pair(names: Sequence[str], times: Floats, waits: Floats, exchange: float) -> float:
    """Compute the seconds of an expert layer's F beside another microbatch's B, in Megatron-Core's combined order.

    Args:
        names: shape (n,), of the layer's operators.
        times: shape (3, n), their seconds in F, I and W.
        waits: shape (3,), seconds that each pass waits for collectives which the pair does not hide.
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


def beside(compute: float, communication: float) -> float:
    """Compute the seconds of compute and communication that start together and need nothing of each other."""
    return max(run_streams([0, 1], [compute, communication], [[], []], CONTENTION)[1])


def _exchange(name: str, seconds: float) -> Segment:
    return Segment(name, seconds, "communication")
