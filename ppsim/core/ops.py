"""Ops: the table of their kinds, their text form and their packed form.

Kinds are PyTorch's letters: F forward, B full backward, I backward for the input, W backward for the
weights; and R, the forward run again before a backward (recompute), which torch has no letter for. The text form is
PyTorch's too: ``2F0`` is the forward of microbatch 0 on stage 2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppsim.errors import PpsimError

Packed = NDArray[np.int64]


class Kind(IntEnum):
    """The kind of an op; the value is its code in a schedule's ``kind`` column.

    Kinds that compute come first: their code is also their row in :attr:`ppsim.core.costs.Costs.time`. Then come the
    other kinds that a schedule may hold before it is lowered: they have a stream.
    """

    F = 0
    B = 1
    I = 2  # noqa: E741 - the field's letter for the backward of the input
    W = 3
    R = 4
    OFFLOAD = 5
    RELOAD = 6
    WAIT_OFFLOAD = 7
    E = 8
    S = 9
    T = 10
    D = 11
    REDUCE_E = 12
    SHARE_S = 13
    REDUCE_S = 14
    REDUCE_T = 15
    SHARE_D = 16
    EVICT = 17
    LOAD = 18
    ACCEPT = 19
    RETURN = 20
    GF = 21
    GB = 22
    EF = 23
    EB = 24
    SEND_F = 25
    RECV_F = 26
    SEND_B = 27
    RECV_B = 28
    UNSHARD = 29
    RESHARD = 30
    REDUCE_GRAD = 31
    WAIT_SEND_F = 32
    WAIT_SEND_B = 33
    WAIT_REDUCE_GRAD = 34

    @property
    def info(self) -> KindInfo:
        """The row of :data:`KINDS` of this kind."""
        return KINDS[self]


FORWARD, BACKWARD = 1, -1
ALL, PART, REST = "all", "part", "rest"


class Stream(IntEnum):
    """What a device does side by side; ops of one stream run in the order of the device's queue."""

    COMPUTE = 0
    COPY_OUT = 1
    COPY_IN = 2
    COLLECTIVE = 3

    @property
    def label(self) -> str:
        """Its name in words."""
        return self.name.lower().replace("_", " ")


class Scope(StrEnum):
    """Where an op runs: on a stage, on a device without a stage, or on all devices at the same time.

    What runs between two stages on all devices has the later one's number.
    """

    STAGE = "stage"
    DEVICE = "device"
    EVERYWHERE = "all"
    BETWEEN = "between"


class Result(StrEnum):
    """What an op leaves for others, for one microbatch: of a stage, or of a device where its op has no stage."""

    ACTIVATION = "activation"
    GRADIENT = "gradient"
    HOST_COPY = "copy on the host"
    RELOADED = "reloaded activation"
    ROOM = "room on another device"
    AWAY = "copy on another device"
    EMBEDDED = "embedding of a device's part of the vocabulary"
    INPUT = "input of the first stage"
    HEAD_INPUT = "input of the output layer"
    LOGITS = "logits of a device's part of the vocabulary"
    LOSS = "sums over the vocabulary"
    HEAD_PART = "a device's part of the gradient of the output layer's input"
    HEAD_GRADIENT = "gradient of the output layer's input"
    INPUT_GRADIENT = "gradient of the first stage's input"
    ENCODED = "encoded microbatch"
    SPREAD = "activation of a part on all devices"
    SPREAD_GRADIENT = "gradient of a part on all devices"


class Need(NamedTuple):
    """A result that an op waits for beside the neighbouring stage's.

    Attributes:
        result: what it is.
        at: ``own``: of the op's stage; ``previous`` or ``next``: of that one's neighbour, if any; ``first`` or
            ``last``: of that stage; ``device``: of the op's device; ``any``: of any device.
        only: ``first`` or ``last`` where only ops of that stage need it; empty for all.
        must: whether some op must make it; other needs are left out where none does.
        sent: whether it is a message where another device makes it.
    """

    result: Result
    at: str
    only: str = ""
    must: bool = False
    sent: bool = False


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
        stream: the stream it runs on; None where lowering puts it into queues.
        scope: where it runs.
        gives: what it leaves; what ``direction`` says is not repeated.
        needs: what it waits for beside what ``works_on`` says.
        gated: whether it starts only when the compute op before it in its device's queue has ended.
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
    stream: Stream | None = None
    scope: Scope = Scope.STAGE
    gives: Result | None = None
    needs: tuple[Need, ...] = ()
    gated: bool = False

    @property
    def has_stage(self) -> bool:
        """Whether each op of it has a stage."""
        return self.scope in (Scope.STAGE, Scope.BETWEEN)

    @property
    def everywhere(self) -> bool:
        """Whether one op of it runs on all devices at the same time."""
        return self.scope in (Scope.EVERYWHERE, Scope.BETWEEN)

    @property
    def communicates(self) -> bool:
        """Whether it is a send or a receive."""
        return self.side in ("send", "receive")


def _compute(name: str, legend: str, colour: str, **details: Any) -> KindInfo:
    return KindInfo(name, computes=True, legend=legend, colour=colour, stream=Stream.COMPUTE, **details)


def _copy(name: str, legend: str, stream: Stream, **details: Any) -> KindInfo:
    return KindInfo(name, legend=legend, colour="copy", stream=stream, **details)


def _of_vocabulary(name: str, gives: Result | None, *needs: Need) -> KindInfo:
    return KindInfo(
        name,
        legend="Vocabulary (E, S, T, D)",
        colour="vocabulary",
        stream=Stream.COMPUTE,
        scope=Scope.DEVICE,
        gives=gives,
        needs=needs,
    )


def _collective(name: str, gives: Result, *needs: Need) -> KindInfo:
    return KindInfo(
        name,
        legend="Collective",
        colour="collective",
        stream=Stream.COLLECTIVE,
        scope=Scope.EVERYWHERE,
        gives=gives,
        needs=needs,
        gated=True,
    )


def _spread(name: str, gives: Result, need: Need) -> KindInfo:
    return KindInfo(
        name,
        legend="On all devices (GF, GB)",
        colour="vocabulary",
        stream=Stream.COMPUTE,
        scope=Scope.BETWEEN,
        gives=gives,
        needs=(need,),
    )


def _encode(name: str, gives: Result | None = None, *needs: Need) -> KindInfo:
    return KindInfo(
        name,
        legend="Encoder (EF, EB)",
        colour="encoder",
        stream=Stream.COMPUTE,
        scope=Scope.DEVICE,
        gives=gives,
        needs=needs,
    )


def _message(name: str, side: str, direction: int) -> KindInfo:
    return KindInfo(name, side=side, direction=direction)


def _of_stage(name: str, side: str = "") -> KindInfo:
    return KindInfo(name, side=side, per_microbatch=False)


_AGAIN = Need(Result.RELOADED, "own")
_GRADIENT = Need(Result.SPREAD_GRADIENT, "next")
_HEAD = Need(Result.HEAD_GRADIENT, "device", only="last"), Need(Result.LOSS, "device", only="last")
KINDS: dict[Kind, KindInfo] = {
    Kind.F: _compute(
        "forward",
        "Forward",
        "forward",
        direction=FORWARD,
        works_on=FORWARD,
        allocates=True,
        needs=(
            Need(Result.INPUT, "device", only="first"),
            Need(Result.SPREAD, "own"),
            Need(Result.ENCODED, "any", only="first", sent=True),
        ),
    ),
    Kind.B: _compute(
        "backward",
        "Backward (full)",
        "backward",
        direction=BACKWARD,
        works_on=BACKWARD,
        frees=ALL,
        needs=(_AGAIN, _GRADIENT, *_HEAD),
    ),
    Kind.I: _compute(
        "backward for input",
        "Backward for input",
        "input",
        direction=BACKWARD,
        works_on=BACKWARD,
        frees=PART,
        needs=(_AGAIN, _GRADIENT, *_HEAD),
    ),
    Kind.W: _compute("backward for weights", "Backward for weights", "weights", works_on=BACKWARD, frees=REST),
    Kind.R: _compute("recompute", "Recompute", "forward", works_on=FORWARD, allocates=True, hatched=True),
    Kind.OFFLOAD: _copy(
        "copy to the host",
        "Offload",
        Stream.COPY_OUT,
        frees=ALL,
        gives=Result.HOST_COPY,
        needs=(Need(Result.ACTIVATION, "own", must=True),),
    ),
    Kind.RELOAD: _copy(
        "copy from the host",
        "Reload",
        Stream.COPY_IN,
        allocates=True,
        gives=Result.RELOADED,
        needs=(Need(Result.HOST_COPY, "own", must=True),),
        gated=True,
    ),
    Kind.WAIT_OFFLOAD: KindInfo(
        "wait for the copy to the host",
        side="wait",
        stream=Stream.COMPUTE,
        needs=(Need(Result.HOST_COPY, "own", must=True),),
    ),
    Kind.EVICT: _copy(
        "copy to another device",
        "Evict",
        Stream.COPY_OUT,
        frees=ALL,
        gives=Result.AWAY,
        needs=(Need(Result.ACTIVATION, "own", must=True), Need(Result.ROOM, "own", must=True)),
    ),
    Kind.LOAD: _copy(
        "copy from another device",
        "Load",
        Stream.COPY_IN,
        allocates=True,
        gives=Result.RELOADED,
        needs=(Need(Result.AWAY, "own", must=True),),
        gated=True,
    ),
    Kind.ACCEPT: _copy(
        "make room for another device's activation",
        "Accept",
        Stream.COPY_IN,
        allocates=True,
        gives=Result.ROOM,
        needs=(Need(Result.ACTIVATION, "own", must=True),),
    ),
    Kind.RETURN: _copy(
        "free another device's activation",
        "Return",
        Stream.COPY_IN,
        frees=ALL,
        needs=(Need(Result.RELOADED, "own", must=True),),
    ),
    Kind.E: _of_vocabulary("input embedding", Result.EMBEDDED),
    Kind.S: _of_vocabulary("output layer", Result.LOGITS, Need(Result.HEAD_INPUT, "device")),
    Kind.T: _of_vocabulary(
        "backward of the output layer",
        Result.HEAD_PART,
        Need(Result.LOSS, "device"),
    ),
    Kind.D: _of_vocabulary(
        "backward of the input embedding",
        None,
        Need(Result.INPUT_GRADIENT, "device"),
    ),
    Kind.REDUCE_E: _collective("reduce embeddings", Result.INPUT, Need(Result.EMBEDDED, "device", must=True)),
    Kind.SHARE_S: _collective(
        "broadcast the output layer's input", Result.HEAD_INPUT, Need(Result.ACTIVATION, "last", must=True)
    ),
    Kind.REDUCE_S: _collective("reduce over the vocabulary", Result.LOSS, Need(Result.LOGITS, "device", must=True)),
    Kind.REDUCE_T: _collective(
        "reduce the gradient of the output layer's input",
        Result.HEAD_GRADIENT,
        Need(Result.HEAD_PART, "device", must=True),
    ),
    Kind.SHARE_D: _collective(
        "broadcast the gradient of the embedding", Result.INPUT_GRADIENT, Need(Result.GRADIENT, "first", must=True)
    ),
    Kind.GF: _spread("forward on all devices", Result.SPREAD, Need(Result.ACTIVATION, "previous", "", True, True)),
    Kind.GB: _spread("backward on all devices", Result.SPREAD_GRADIENT, Need(Result.GRADIENT, "own", "", True, True)),
    Kind.EF: _encode("forward of the encoder", Result.ENCODED),
    Kind.EB: _encode(
        "backward of the encoder",
        None,
        Need(Result.ENCODED, "device", must=True),
        Need(Result.GRADIENT, "first", must=True, sent=True),
    ),
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

if rowless := [kind.name for kind in Kind if kind not in KINDS]:
    raise PpsimError(f"no row of KINDS for {', '.join(rowless)}", "add it in ppsim/core/ops.py")

COMPUTE = tuple(kind for kind in Kind if kind.info.computes)
TIMED = tuple(kind for kind in Kind if kind.info.stream is not None)
STAGELESS = tuple(kind for kind in TIMED if not kind.info.has_stage)
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
    def work(self) -> NDArray[np.int64]:
        """Shape (ops,): code of what runs: the op's kind, or -1 for both ops of a pair, which run as one."""
        return np.where(self.pair >= 0, -1, self.kind.astype(np.int64))

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
    """Pack stage (-1 for none) and microbatch into one integer each, of kind F; inputs broadcast."""
    stage, microbatch = np.asarray(stage, np.int64) & STAGE_MASK, np.asarray(microbatch, np.int64)
    return (stage << STAGE_SHIFT) | (microbatch << MICROBATCH_SHIFT)


def label(kind: int, stage: int, microbatch: int) -> str:
    """Return the op's text form, such as ``2F0``; ``S0`` for an op without a stage."""
    return f"{stage if stage >= 0 else ''}{Kind(kind).name}{microbatch}"
