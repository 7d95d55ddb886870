"""Ops: the table of their kinds, their text form and their packed form.

Kinds have PyTorch's letters: F forward, B full backward, I backward for the input, W backward for
the weights. R, a recompute (the forward again, before a backward), has no letter in PyTorch. The
text form is also PyTorch's: ``2F0`` is the forward of microbatch 0 on stage 2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppsim.errors import PpsimError

Packed = NDArray[np.int64]


class Kind(IntEnum):
    """The kind of an op; the value is its code in a schedule's ``kind`` column.

    Kinds that compute come first: their code is also their row in
    :attr:`ppsim.core.costs.Costs.time`. Then come the other kinds that a schedule can have before
    it is lowered; they have a stream. The rest only exists in lowered queues.
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
    L = 25
    MAX_S = 26
    SUM_S = 27
    GRAD_S = 28
    SHARE_T = 29
    WAIT_E = 30
    WAIT_T = 31
    POST_F = 32
    POST_B = 33
    WAIT_F = 34
    WAIT_B = 35
    OPT = 36
    NORM = 37
    SYNC = 38
    GATHER = 39
    REDUCE = 40
    WAIT_GATHER = 41
    WAIT_REDUCE = 42
    SEND_F = 43
    RECV_F = 44
    SEND_B = 45
    RECV_B = 46
    UNSHARD = 47
    RESHARD = 48
    REDUCE_GRAD = 49
    WAIT_SEND_F = 50
    WAIT_SEND_B = 51
    WAIT_REDUCE_GRAD = 52

    @property
    def info(self) -> KindInfo:
        """The row of :data:`KINDS` for this kind."""
        return KINDS[self]


FORWARD, BACKWARD = 1, -1
ALL, PART, REST = "all", "part", "rest"


class Stream(IntEnum):
    """Streams of a device, which run in parallel; ops of one stream run in queue order."""

    COMPUTE = 0
    COPY_OUT = 1
    COPY_IN = 2
    COLLECTIVE = 3

    @property
    def label(self) -> str:
        """The name of the stream in words."""
        return self.name.lower().replace("_", " ")


class Scope(StrEnum):
    """The extent of an op: a stage, a device without a stage, or all devices at once.

    An op that runs on all devices between two stages has the number of the later stage.
    """

    STAGE = "stage"
    DEVICE = "device"
    EVERYWHERE = "all"
    BETWEEN = "between"


class Result(StrEnum):
    """A result of an op that other ops need, per microbatch and stage (or device without stage)."""

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
    LOSS_VALUE = "loss"
    HEAD_PART = "a device's part of the gradient of the output layer's input"
    HEAD_GRADIENT = "gradient of the output layer's input"
    INPUT_GRADIENT = "gradient of the first stage's input"
    ENCODED = "encoded microbatch"
    T_SHARED = "broadcast ahead of the last backward of the output layer"
    SPREAD = "activation of a part on all devices"
    SPREAD_GRADIENT = "gradient of a part on all devices"
    GATHERED = "gathered weights"
    REDUCED = "reduced gradients"


class Need(NamedTuple):
    """A result that an op waits for, in addition to its neighbouring stage's result."""

    result: Result  # the kind of result
    # the place of the result: ``own``, the op's stage; ``previous`` or ``next``, its neighbour, if
    # it has one; ``first`` or ``last``, that stage; ``device``, the op's device; ``any`` device
    at: str
    only: str = ""  # ``first`` or ``last`` if only ops of that stage need it; empty for all
    required: bool = False  # whether some op must produce it; if not, it may be missing
    sent: bool = False  # whether it is a message if another device produces it
    # the microbatch of the result minus that of the op; there is no need if it does not exist
    ahead: int = 0
    # there is no need if the op's device produces this result for its microbatch
    unless: Result | None = None


@dataclass(frozen=True)
class KindInfo:
    """The properties of one kind of op."""

    name: str  # the kind in words
    computes: bool = False  # whether it runs a stage on a microbatch
    # ``send``, ``receive``, ``wait`` (for a message or a collective) or ``post`` (sends the result
    # of another op); empty for other kinds
    side: str = ""
    # FORWARD if it produces or sends an activation, BACKWARD for a gradient; 0 for neither. The
    # next stage in that direction needs the result of an op.
    direction: int = 0
    # the direction of its main input: from the neighbouring stage if the op has a direction, else
    # from the op's stage
    works_on: int = 0
    # True: one op for each microbatch; False: one for a whole stage
    per_microbatch: bool = True
    # whether it allocates its microbatch's activation. If R does, F only keeps the input of its
    # stage.
    allocates: bool = False
    # ALL of the activation, PART of it (what W does not need), or the REST; empty for none
    frees: str = ""
    colour: str = ""  # key of its colours in :mod:`ppsim.show.drawing.palette`
    hatched: bool = False  # whether it is hatched in pictures
    legend: str = ""  # its name in the legend of a picture
    stream: Stream | None = None  # the stream it runs on; None if only lowered queues have it
    scope: Scope = Scope.STAGE  # where it runs
    result: Result | None = None  # its result, if ``direction`` does not state it
    needs: tuple[Need, ...] = ()  # its inputs in addition to ``works_on``
    # whether it starts only after the previous compute op in its device's queue has ended
    gated: bool = False

    @property
    def has_stage(self) -> bool:
        """True if ops of this kind belong to a stage."""
        return self.scope in (Scope.STAGE, Scope.BETWEEN)

    @property
    def on_all_devices(self) -> bool:
        """True if an op of this kind runs on all devices at once."""
        return self.scope in (Scope.EVERYWHERE, Scope.BETWEEN)

    @property
    def communicates(self) -> bool:
        """True for sends and receives."""
        return self.side in ("send", "receive")


_compute = partial(KindInfo, computes=True, stream=Stream.COMPUTE)
_copy_out = partial(KindInfo, colour="copy", stream=Stream.COPY_OUT)
_copy_in = partial(KindInfo, colour="copy", stream=Stream.COPY_IN)
_on_compute_stream = partial(KindInfo, colour="vocabulary", stream=Stream.COMPUTE)
_of_vocabulary = partial(_on_compute_stream, legend="Vocabulary (E, S, T, D)", scope=Scope.DEVICE)
_on_all_devices = partial(_on_compute_stream, legend="On all devices (GF, GB)", scope=Scope.BETWEEN)
_encode = partial(
    _on_compute_stream, legend="Encoder (EF, EB)", colour="encoder", scope=Scope.DEVICE
)
_collective = partial(
    KindInfo,
    legend="Collective",
    colour="collective",
    stream=Stream.COLLECTIVE,
    scope=Scope.EVERYWHERE,
    gated=True,
)
_once_a_step = partial(
    KindInfo, legend="Collective", colour="collective", stream=Stream.COLLECTIVE, gated=True
)
_wait = partial(KindInfo, side="wait", stream=Stream.COMPUTE)
_post = partial(KindInfo, side="post", stream=Stream.COMPUTE)
_of_stage = partial(KindInfo, per_microbatch=False)
# An op that waits for all sums issued by its device also waits for the gradient that is reduced
# after the sums of the previous microbatch.
_BEHIND_SUMS = (Need(Result.HEAD_GRADIENT, "device", ahead=-1),)


def _required(result: Result, at: str = "own", **more: Any) -> Need:
    """Return a need of a result that some op must produce."""
    return Need(result, at, required=True, **more)


_backward = partial(
    _compute,
    direction=BACKWARD,
    works_on=BACKWARD,
    needs=(
        Need(Result.RELOADED, "own"),
        Need(Result.SPREAD_GRADIENT, "next"),
        Need(Result.HEAD_GRADIENT, "device", only="last"),
        Need(Result.LOSS, "device", only="last"),
    ),
)
KINDS: dict[Kind, KindInfo] = {
    Kind.F: _compute(
        "forward",
        legend="Forward",
        colour="forward",
        direction=FORWARD,
        works_on=FORWARD,
        allocates=True,
        needs=(
            Need(Result.INPUT, "device", only="first"),
            Need(Result.SPREAD, "own"),
            Need(Result.ENCODED, "any", only="first", sent=True),
        ),
    ),
    Kind.B: _backward("backward", legend="Backward (full)", colour="backward", frees=ALL),
    Kind.I: _backward(
        "backward for input", legend="Backward for input", colour="input", frees=PART
    ),
    Kind.W: _compute(
        "backward for weights",
        legend="Backward for weights",
        colour="weights",
        works_on=BACKWARD,
        frees=REST,
    ),
    Kind.R: _compute(
        "recompute",
        legend="Recompute",
        colour="forward",
        works_on=FORWARD,
        allocates=True,
        hatched=True,
    ),
    Kind.OFFLOAD: _copy_out(
        "copy to the host",
        legend="Offload",
        frees=ALL,
        result=Result.HOST_COPY,
        needs=(_required(Result.ACTIVATION),),
    ),
    Kind.RELOAD: _copy_in(
        "copy from the host",
        legend="Reload",
        allocates=True,
        result=Result.RELOADED,
        needs=(_required(Result.HOST_COPY),),
        gated=True,
    ),
    Kind.WAIT_OFFLOAD: _wait("wait for the copy to the host", needs=(_required(Result.HOST_COPY),)),
    Kind.EVICT: _copy_out(
        "copy to another device",
        legend="Evict",
        frees=ALL,
        result=Result.AWAY,
        needs=(_required(Result.ACTIVATION), _required(Result.ROOM)),
    ),
    Kind.LOAD: _copy_in(
        "copy from another device",
        legend="Load",
        allocates=True,
        result=Result.RELOADED,
        needs=(_required(Result.AWAY),),
        gated=True,
    ),
    Kind.ACCEPT: _copy_in(
        "make room for another device's activation",
        legend="Accept",
        allocates=True,
        result=Result.ROOM,
        needs=(_required(Result.ACTIVATION),),
    ),
    Kind.RETURN: _copy_in(
        "free another device's activation",
        legend="Return",
        frees=ALL,
        needs=(_required(Result.RELOADED),),
    ),
    Kind.E: _of_vocabulary("input embedding", result=Result.EMBEDDED),
    # the device that computes the loss broadcasts the output layer's input, and does not wait for
    # this broadcast
    Kind.S: _of_vocabulary(
        "output layer",
        result=Result.LOGITS,
        needs=(Need(Result.HEAD_INPUT, "device", unless=Result.LOSS_VALUE),),
    ),
    Kind.T: _of_vocabulary(
        "backward of the output layer",
        result=Result.HEAD_PART,
        needs=(Need(Result.LOSS, "device"),),
    ),
    Kind.D: _of_vocabulary(
        "backward of the input embedding", needs=(Need(Result.INPUT_GRADIENT, "device"),)
    ),
    Kind.REDUCE_E: _collective(
        "reduce embeddings", result=Result.INPUT, needs=(_required(Result.EMBEDDED, "device"),)
    ),
    Kind.SHARE_S: _collective(
        "broadcast the output layer's input",
        result=Result.HEAD_INPUT,
        needs=(_required(Result.ACTIVATION, "last"),),
    ),
    Kind.REDUCE_S: _collective(
        "reduce over the vocabulary",
        result=Result.LOSS,
        needs=(_required(Result.LOGITS, "device"),),
    ),
    Kind.REDUCE_T: _collective(
        "reduce the gradient of the output layer's input",
        result=Result.HEAD_GRADIENT,
        needs=(_required(Result.HEAD_PART, "device"),),
    ),
    Kind.SHARE_D: _collective(
        "broadcast the gradient of the embedding",
        result=Result.INPUT_GRADIENT,
        needs=(_required(Result.GRADIENT, "first"),),
    ),
    Kind.GF: _on_all_devices(
        "forward on all devices",
        result=Result.SPREAD,
        needs=(_required(Result.ACTIVATION, "previous", sent=True),),
    ),
    Kind.GB: _on_all_devices(
        "backward on all devices",
        result=Result.SPREAD_GRADIENT,
        needs=(_required(Result.GRADIENT, sent=True),),
    ),
    Kind.EF: _encode("forward of the encoder", result=Result.ENCODED),
    Kind.EB: _encode(
        "backward of the encoder",
        needs=(_required(Result.ENCODED, "device"), _required(Result.GRADIENT, "first", sent=True)),
    ),
    Kind.L: _of_vocabulary(
        "loss", result=Result.LOSS_VALUE, needs=(_required(Result.LOSS, "device"), *_BEHIND_SUMS)
    ),
    Kind.MAX_S: _collective(
        "maximum over the vocabulary", needs=(_required(Result.LOGITS, "device"),)
    ),
    Kind.SUM_S: _collective("sum over the vocabulary", needs=(_required(Result.LOGITS, "device"),)),
    Kind.GRAD_S: _collective(
        "sum of the gradient of the output layer's input",
        result=Result.HEAD_GRADIENT,
        needs=(_required(Result.LOGITS, "device"),),
    ),
    Kind.SHARE_T: _collective(
        "broadcast ahead of the last backward of the output layer", result=Result.T_SHARED
    ),
    Kind.WAIT_E: _wait(
        "wait for the embeddings", scope=Scope.DEVICE, needs=(_required(Result.INPUT, "device"),)
    ),
    Kind.WAIT_T: _wait(
        "wait for the broadcast and the sums ahead of the output layer's pass",
        scope=Scope.DEVICE,
        needs=(
            _required(Result.LOSS, "device"),
            Need(Result.HEAD_INPUT, "device", ahead=1),
            Need(Result.T_SHARED, "device"),
            *_BEHIND_SUMS,
        ),
    ),
    Kind.POST_F: _post("hand an activation to the network", needs=(_required(Result.ACTIVATION),)),
    Kind.POST_B: _post("hand a gradient to the network", needs=(_required(Result.GRADIENT),)),
    Kind.WAIT_F: _wait(
        "wait for an activation", needs=(_required(Result.ACTIVATION, "previous", sent=True),)
    ),
    Kind.WAIT_B: _wait(
        "wait for a gradient", needs=(_required(Result.GRADIENT, "next", sent=True),)
    ),
    # once a step, with the number of a microbatch of that step
    Kind.OPT: _on_compute_stream("optimizer step", legend="Optimizer (OPT)", scope=Scope.DEVICE),
    Kind.NORM: _wait("wait for the norm of all gradients", scope=Scope.EVERYWHERE),
    Kind.SYNC: _wait("wait for all optimizer steps", scope=Scope.EVERYWHERE),
    Kind.GATHER: _once_a_step("gather weights", result=Result.GATHERED),
    Kind.REDUCE: _once_a_step("reduce gradients", result=Result.REDUCED),
    Kind.WAIT_GATHER: _wait("wait for gathered weights", needs=(_required(Result.GATHERED),)),
    Kind.WAIT_REDUCE: _wait("wait for reduced gradients", needs=(_required(Result.REDUCED),)),
    Kind.SEND_F: KindInfo("send activation", side="send", direction=FORWARD),
    Kind.RECV_F: KindInfo("receive activation", side="receive", direction=FORWARD),
    Kind.SEND_B: KindInfo("send gradient", side="send", direction=BACKWARD),
    Kind.RECV_B: KindInfo("receive gradient", side="receive", direction=BACKWARD),
    Kind.UNSHARD: _of_stage("gather parameters"),
    Kind.RESHARD: _of_stage("free parameters"),
    Kind.REDUCE_GRAD: _of_stage("reduce gradients"),
    Kind.WAIT_SEND_F: KindInfo("wait for sent activation", side="wait", direction=FORWARD),
    Kind.WAIT_SEND_B: KindInfo("wait for sent gradient", side="wait", direction=BACKWARD),
    Kind.WAIT_REDUCE_GRAD: _of_stage("wait for reduced gradients", side="wait"),
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
ONCE_A_STEP = tuple(kind for kind in TIMED if Kind.OPT <= kind <= Kind.WAIT_REDUCE)
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
    """Masks and indices computed from the columns of queues, device-major.

    The two ops of a pair are neighbours in their queue.
    """

    offsets: NDArray[np.int64]
    kind: NDArray[np.uint8]
    stage: NDArray[np.int32]
    microbatch: NDArray[np.int32]
    pair: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.kind)

    @cached_property
    def device(self) -> NDArray[np.int32]:
        """Shape (ops,): the device of each op."""
        return np.repeat(np.arange(len(self.offsets) - 1, dtype=np.int32), np.diff(self.offsets))

    @cached_property
    def computes(self) -> NDArray[np.bool_]:
        """Shape (ops,): whether an op runs a stage on a microbatch."""
        return np.array(COMPUTES)[self.kind]

    @cached_property
    def communicates(self) -> NDArray[np.bool_]:
        """Shape (ops,): whether an op is a send or a receive."""
        return np.array(COMMUNICATES)[self.kind]

    @cached_property
    def follows_message(self) -> NDArray[np.bool_]:
        """Shape (ops,): whether a send or receive directly follows another in its queue."""
        after = (
            self.communicates[1:] & self.communicates[:-1] & (self.device[1:] == self.device[:-1])
        )
        return np.append(np.zeros(min(1, len(self)), np.bool_), after)

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
        """Shape (ops,): the op's kind, or -1 for both ops of a pair, which run as one."""
        return np.where(self.pair >= 0, -1, self.kind.astype(np.int64))

    @cached_property
    def leads(self) -> NDArray[np.bool_]:
        """Shape (ops,): True except for the second op of a pair, so that a pair counts once."""
        leads = np.ones(len(self.pair), np.bool_)
        leads[self.second_of_pairs] = False
        return leads

    def label(self, op: int) -> str:
        """Return the op's text form (:func:`label`)."""
        return label(self.kind[op], self.stage[op], self.microbatch[op])

    def members(self, op: int) -> tuple[int, ...]:
        """Return the op and, if it is in a pair, its partner."""
        return (op,) if self.pair[op] < 0 else (op, int(self.pair[op]))


# A packed op is one integer: kind in the low bits, then the pair mark, the stage and the
# microbatch.
KIND_MASK, PAIRED, STAGE_SHIFT, MICROBATCH_SHIFT = 0x7F, 0x80, 8, 32
STAGE_MASK = (1 << (MICROBATCH_SHIFT - STAGE_SHIFT)) - 1


def pack(stage: NDArray[np.integer] | int, microbatch: NDArray[np.integer] | int) -> Packed:
    """Return packed ops of kind F from stages (-1 for none) and microbatches, which broadcast."""
    stage, microbatch = np.asarray(stage, np.int64) & STAGE_MASK, np.asarray(microbatch, np.int64)
    return (stage << STAGE_SHIFT) | (microbatch << MICROBATCH_SHIFT)


def label(kind: int, stage: int, microbatch: int) -> str:
    """Return the op's text form: ``2F0``, ``S0`` without a stage, ``1UNSHARD`` (no microbatch)."""
    return f"{stage if stage >= 0 else ''}{Kind(kind).name}{microbatch if microbatch >= 0 else ''}"
