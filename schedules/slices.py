"""Seq1F1B and SlimPipe: sequences are cut into slices, which pass the pipeline one by one.

A microbatch is cut into K slices; slice k of microbatch m has the number m x K + k. Backwards run
the slices of a microbatch in reverse, as a slice attends to those before it (see
:mod:`ppsim.core.slices`). Activations are counted per slice.
"""

from collections.abc import Iterator

import numpy as np

from ppsim.core.builder import Queue
from ppsim.core.ops import Packed, pack
from ppsim.schedules.registry import ONE_CHUNK, Rule, Shape, schedule

SLICED = Rule("at least two slices (--slices)", lambda s: s.slices >= 2)
ENOUGH_SLICES = Rule(
    "at least P slices (--slices) where a device holds several stages",
    lambda s: s.chunks == 1 or s.slices >= s.devices,
)


@schedule(
    "seq1f1b",
    title="Seq1F1B",
    aliases=("seq-1f1b", "sequence-1f1b"),
    idea="1F1B over slices of sequences: each microbatch goes through as K pieces, one by one.\n"
    "The pipeline fills and drains in a K-th of the time, and activations are counted in pieces.\n"
    "Attention makes later slices slower: cut them shorter, or state factors by --slice-scale.",
    bubble="(P-1)(t_F + t_B)/K",
    peak="min(MK, P - device + K - 1) slice activations",
    paper="Seq1F1B, arXiv 2406.03488, and its authors' code",
    rules=(ONE_CHUNK, SLICED),
    options=("slices",),
    interchangeable=False,
)
def seq_1f1b(shape: Shape, **_: object) -> Iterator[Packed]:
    """Warm-up of P - device + K - 2 forwards, clamped to MK.

    The last device runs all forwards of a microbatch before its first backward.
    """
    for device in range(shape.devices):
        yield _queue(shape, device).take_turns(shape.devices - device + shape.slices - 2).build()


@schedule(
    "seq1f1b-zb",
    title="Seq1F1B zero bubble",
    aliases=("seq-1f1b-zb", "seq1f1b-zero-bubble"),
    split=True,
    idea="Seq1F1B with the backward split: I passes the gradient on at once, W waits.\n"
    "Device r holds its W back by r slices and spends them where it would idle.\n"
    "A third of Seq1F1B's bubble at equal costs.",
    bubble="(P-1)(t_F + t_I - t_W)/K  for MK >= P + K - 1 and t_W <= min(t_F, t_I)",
    peak="min(MK, P + K - 1) slice activations",
    paper="Seq1F1B, arXiv 2406.03488, section 3.4",
    rules=(ONE_CHUNK, SLICED),
    options=("slices",),
    interchangeable=False,
)
def seq_1f1b_zb(shape: Shape, **_: object) -> Iterator[Packed]:
    """Warm-up of P - device + K - 2 forwards, W delayed by ``device``; both clamped to MK."""
    for device in range(shape.devices):
        yield (
            _queue(shape, device)
            .hold_weights(shape.devices - device + shape.slices - 2, device)
            .build()
        )


@schedule(
    "slimpipe",
    title="SlimPipe",
    placement="loop",
    aliases=("slim-pipe",),
    idea="Interleaved 1F1B whose groups are the slices of one microbatch: all K run through the\n"
    "first stage of a device, then through its second; hardly more than one microbatch in flight.\n"
    "Slices have equal lengths, and devices exchange attention so that they cost the same.",
    bubble="(P-1)(t_F + t_B)/(V K)",
    peak="min(MVK, VK + 2(P-1-device)) slice activations",
    paper="SlimPipe, arXiv 2504.14519",
    rules=(SLICED, ENOUGH_SLICES),
    options=("slices",),
    interchangeable=False,
)
def slimpipe(shape: Shape, **_: object) -> Iterator[Packed]:
    """Warm-up of VK - 1 + 2(P - 1 - device) forwards, clamped to MVK."""
    for device in range(shape.devices):
        warm_up = shape.chunks * shape.slices - 1 + 2 * (shape.devices - 1 - device)
        yield _queue(shape, device).take_turns(warm_up).build()


def _queue(shape: Shape, device: int) -> Queue:
    """Return an empty queue with its streams; backwards reverse chunks and slices."""
    P, V, K = shape.devices, shape.chunks, shape.slices
    microbatch, place = np.divmod(np.arange(shape.microbatches * V * K), V * K)
    chunk, piece = np.divmod(place, K)
    forward = pack(chunk * P + device, microbatch * K + piece)
    backward = pack((V - 1 - chunk) * P + device, microbatch * K + K - 1 - piece)
    return Queue(forward=forward, backward=backward)
