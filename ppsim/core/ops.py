"""Ops: the table of their kinds, their text form and their packed form.

Kinds are PyTorch's letters: F forward, B full backward, I backward for the input, W backward for the
weights; and R, the forward run again before a backward (recompute), which torch has no letter for. The text form is
PyTorch's too: ``2F0`` is the forward of microbatch 0 on stage 2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Packed = NDArray[np.int64]


class Kind(IntEnum):
    """The kind of an op; the value is its code in a schedule's ``kind`` column.

    Kinds that compute come first: their code is also their row in :attr:`ppsim.core.costs.Costs.time`.
    """

    F = 0
    B = 1
    I = 2  # noqa: E741 - the field's letter for the backward of the input
    W = 3
    R = 4
    SEND_F = 5
    RECV_F = 6
    SEND_B = 7
    RECV_B = 8
    UNSHARD = 9
    RESHARD = 10
    REDUCE_GRAD = 11
    WAIT_SEND_F = 12
    WAIT_SEND_B = 13
    WAIT_REDUCE_GRAD = 14

    @property
    def info(self) -> KindInfo:
        """The row of :data:`KINDS` of this kind."""
        return KINDS[self]


FORWARD, BACKWARD = 1, -1
ALL, PART, REST = "all", "part", "rest"


@dataclass(frozen=True)
class KindInfo:
    """The properties of one kind of op.

    Attributes:
        name: the kind in words.
        computes: whether it runs a stage on a microbatch.
        side: ``send``, ``receive`` or ``wait`` (for a send or a collective); empty for other kinds.
        direction: FORWARD where it makes or moves an activation, BACKWARD a gradient; 0 for neither. What an op
            makes goes to the next stage in that direction.
        works_on: the direction of the result that it works on: its neighbour's where it makes one itself, else its
            own stage's.
        per_microbatch: whether there is one for each microbatch, or one for a whole stage.
        allocates: whether it allocates its microbatch's activation. Where R does, F keeps its stage's input only.
        frees: ALL of the activation, PART of it (what W does not need), or the REST; empty for none.
        colour: key of its colours in :mod:`ppsim.show.drawing.palette`.
        hatched: whether it is drawn in that colour with hatching.
        legend: its name in the legend of a picture.
    """

    name: str
    computes: bool = False
    side: str = ""
    direction: int = 0
    works_on: int = 0
    per_microbatch: bool = True
    allocates: bool = False
    frees: str = ""
    colour: str = ""
    hatched: bool = False
    legend: str = ""

    @property
    def communicates(self) -> bool:
        """Whether it is a send or a receive."""
        return self.side in ("send", "receive")


def _compute(name: str, legend: str, colour: str, **details: Any) -> KindInfo:
    return KindInfo(name, computes=True, legend=legend, colour=colour, **details)


def _message(name: str, side: str, direction: int) -> KindInfo:
    return KindInfo(name, side=side, direction=direction)


def _of_stage(name: str, side: str = "") -> KindInfo:
    return KindInfo(name, side=side, per_microbatch=False)


KINDS: dict[Kind, KindInfo] = {
    Kind.F: _compute("forward", "Forward", "forward", direction=FORWARD, works_on=FORWARD, allocates=True),
    Kind.B: _compute("backward", "Backward (full)", "backward", direction=BACKWARD, works_on=BACKWARD, frees=ALL),
    Kind.I: _compute(
        "backward for input", "Backward for input", "input", direction=BACKWARD, works_on=BACKWARD, frees=PART
    ),
    Kind.W: _compute("backward for weights", "Backward for weights", "weights", works_on=BACKWARD, frees=REST),
    Kind.R: _compute("recompute", "Recompute", "forward", works_on=FORWARD, allocates=True, hatched=True),
    Kind.SEND_F: _message("send activation", "send", FORWARD),
    Kind.RECV_F: _message("receive activation", "receive", FORWARD),
    Kind.SEND_B: _message("send gradient", "send", BACKWARD),
    Kind.RECV_B: _message("receive gradient", "receive", BACKWARD),
    Kind.UNSHARD: _of_stage("gather parameters"),
    Kind.RESHARD: _of_stage("free parameters"),
    Kind.REDUCE_GRAD: _of_stage("reduce gradients"),
    Kind.WAIT_SEND_F: _message("wait for sent activation", "wait", FORWARD),
    Kind.WAIT_SEND_B: _message("wait for sent gradient", "wait", BACKWARD),
    Kind.WAIT_REDUCE_GRAD: _of_stage("wait for reduced gradients", "wait"),
}

COMPUTE = tuple(kind for kind in Kind if kind.info.computes)
LETTERS = "".join(kind.name for kind in COMPUTE)
SENDS = tuple(kind for kind in Kind if kind.info.side == "send")
RECEIVES = tuple(kind for kind in Kind if kind.info.side == "receive")
OF_STAGE = tuple(kind for kind in Kind if not kind.info.per_microbatch)
FORWARDS = tuple(kind for kind in COMPUTE if kind.info.direction == FORWARD)
BACKWARDS = tuple(kind for kind in COMPUTE if kind.info.direction == BACKWARD)
# By code, for compiled code as well.
COMPUTES = tuple(kind.info.computes for kind in Kind)
COMMUNICATES = tuple(kind.info.communicates for kind in Kind)


def mask(kinds: Iterable[Kind]) -> NDArray[np.bool_]:
    """Return a table that is True at the codes of these kinds, shape (kinds,)."""
    table = np.zeros(len(Kind), np.bool_)
    table[list(kinds)] = True
    return table


class Columns:
    """Masks and indices that follow from the columns ``kind`` and ``pair`` of queues.

    The two ops of a pair are neighbours in their queue.
    """

    kind: NDArray[np.uint8]
    pair: NDArray[np.int32]

    @cached_property
    def computes(self) -> NDArray[np.bool_]:
        """Shape (ops,): whether an op runs a stage on a microbatch."""
        return np.array(COMPUTES)[self.kind]

    @cached_property
    def communicates(self) -> NDArray[np.bool_]:
        """Shape (ops,): whether an op is a send or a receive."""
        return np.array(COMMUNICATES)[self.kind]

    @cached_property
    def second_of_pairs(self) -> NDArray[np.int64]:
        """Shape (pairs,): the second op of every pair; the first is the op before it."""
        return np.flatnonzero(self.pair >= 0)[1::2]

    @cached_property
    def first_of_pairs(self) -> NDArray[np.int64]:
        """Shape (pairs,): the first op of every pair."""
        return self.second_of_pairs - 1

    @cached_property
    def leads(self) -> NDArray[np.bool_]:
        """Shape (ops,): True for an op that runs alone and for the first of a pair, so that a pair counts once."""
        leads = np.ones(len(self.pair), np.bool_)
        leads[self.second_of_pairs] = False
        return leads

    def members(self, op: int) -> tuple[int, ...]:
        """Return the op and, of a pair, its partner."""
        return (op,) if self.pair[op] < 0 else (op, int(self.pair[op]))


# A packed op is one integer: kind in the low bits, then the pair mark, the stage and the microbatch.
KIND_MASK, PAIRED, STAGE_SHIFT, MICROBATCH_SHIFT = 0x7F, 0x80, 8, 32
STAGE_MASK = (1 << (MICROBATCH_SHIFT - STAGE_SHIFT)) - 1


def pack(stage: NDArray[np.integer] | int, microbatch: NDArray[np.integer] | int) -> Packed:
    """Pack stage and microbatch into one integer each, of kind F; inputs broadcast."""
    stage, microbatch = np.asarray(stage, np.int64), np.asarray(microbatch, np.int64)
    return (stage << STAGE_SHIFT) | (microbatch << MICROBATCH_SHIFT)


def label(kind: int, stage: int, microbatch: int) -> str:
    """Return the op's text form, such as ``2F0``."""
    return f"{stage}{Kind(kind).name}{microbatch}"
