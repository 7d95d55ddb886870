"""Inference pipelines: only forwards, once for each microbatch, or repeatedly as in decoding."""

from collections.abc import Iterator

import numpy as np

from ppsim.core.ops import Packed, pack
from ppsim.core.schedule import place
from ppsim.schedules.registry import Shape, schedule


@schedule(
    "forward-only",
    title="Forward only",
    aliases=("inference", "forward-only-pipeline", "prefill"),
    idea="Every device runs the forwards of all microbatches and nothing else: inference, the\n"
    "prefill of a prompt in chunks, or the evaluation between training steps.\n"
    "Nothing is kept for a backward, so no activations are counted.",
    bubble="(P-1) t_F/V  for M >= P",
    peak="0",
    paper="torch's _ScheduleForwardOnly; nnscaler's sched_infer_pipe",
    options=("placement",),
    interchangeable=False,
)
def forward_only(shape: Shape, placement: str = "loop") -> Iterator[Packed]:
    """Makespan (M + P - 1) t_F + (P - 1) comm for equal stages, one per device.

    With several stages (in a loop or a V), a device runs all microbatches through one stage before
    the next.
    """
    devices = place(placement, shape.devices, shape.stages).devices[0]
    for device in range(shape.devices):
        stage = np.flatnonzero(devices == device)[:, None]
        yield pack(stage, np.arange(shape.microbatches)).ravel()


@schedule(
    "decode",
    title="Decode",
    aliases=("decoding", "generate", "decode-loop"),
    idea="M batches in flight go round: each step makes one token of every batch, and the last\n"
    "stage sends it back to the first (--feedback), which needs it for the batch's next step.\n"
    "Too few batches in flight leave devices idle; --steps sets how many steps are shown.",
    bubble="(P-1) t_F/V  for M >= P",
    peak="0",
    paper="vLLM PR 42187 and RFC 50853: P + 1 batches in flight hide the messages",
    options=("placement",),
    interchangeable=False,
    feeds_back=True,
    counts="M counts the batches in flight, each of which makes one token of its sequences in a "
    "step; period and rate are for steady state, makespan and idle shares for the steps shown, "
    "with fill and drain",
)
def decode(shape: Shape, placement: str = "loop") -> Iterator[Packed]:
    """One step with the forwards of all batches.

    A step takes max(M t_F, P (t_F + comm)) for equal stages, one per device. With batches of
    different sizes and without messages, it takes the sum of their times, or P times the longest if
    that is more.
    """
    yield from forward_only(shape, placement)
