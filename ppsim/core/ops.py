"""What an op is: its kind, its text form and its packed form.

Kinds are PyTorch's letters: F forward, B full backward, I backward for the input, W backward for the
weights. The text form is PyTorch's too: ``2F0`` is the forward of microbatch 0 on stage 2.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Packed = NDArray[np.int64]


class Kind(IntEnum):
    """The kind of an op; the value is its code in a schedule's ``kind`` column."""

    F = 0
    B = 1
    I = 2  # noqa: E741 - the field's letter for the backward of the input
    W = 3
    SEND_F = 4
    RECV_F = 5
    SEND_B = 6
    RECV_B = 7
    UNSHARD = 8
    RESHARD = 9
    REDUCE_GRAD = 10
    WAIT_SEND_F = 11
    WAIT_SEND_B = 12
    WAIT_REDUCE_GRAD = 13


COMPUTE = (Kind.F, Kind.B, Kind.I, Kind.W)
NAMES = {
    Kind.F: "forward",
    Kind.B: "backward",
    Kind.I: "backward for input",
    Kind.W: "backward for weights",
    Kind.SEND_F: "send activation",
    Kind.RECV_F: "receive activation",
    Kind.SEND_B: "send gradient",
    Kind.RECV_B: "receive gradient",
    Kind.UNSHARD: "gather parameters",
    Kind.RESHARD: "free parameters",
    Kind.REDUCE_GRAD: "reduce gradients",
    Kind.WAIT_SEND_F: "wait for sent activation",
    Kind.WAIT_SEND_B: "wait for sent gradient",
    Kind.WAIT_REDUCE_GRAD: "wait for reduced gradients",
}

# A packed op is one integer: kind in the low bits, then the pair mark, the stage and the microbatch.
KIND_MASK, PAIRED, STAGE_SHIFT, MICROBATCH_SHIFT = 0x7F, 0x80, 8, 32
STAGE_MASK = (1 << (MICROBATCH_SHIFT - STAGE_SHIFT)) - 1


def pack(stage: NDArray[np.integer] | int, microbatch: NDArray[np.integer] | int) -> Packed:
    """Stage and microbatch in one integer each, kind still F; inputs broadcast."""
    stage, microbatch = np.asarray(stage, np.int64), np.asarray(microbatch, np.int64)
    return (stage << STAGE_SHIFT) | (microbatch << MICROBATCH_SHIFT)


def label(kind: int, stage: int, microbatch: int) -> str:
    """The op's text form, such as ``2F0``."""
    return f"{stage}{Kind(kind).name}{microbatch}"
