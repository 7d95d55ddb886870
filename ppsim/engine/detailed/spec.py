"""The network between devices: modes of messages, shared bandwidths, and the host time of calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.core.soundness import LONGEST
from ppsim.errors import InputError

MODES = ("latency", "overlap", "blocking", "batched")
CHANNELS = ("message", "direction", "pair", "group")
Value = float | NDArray[Any]


@dataclass(frozen=True)
class Host:
    """Host time per issued op, in the timeline's unit; sizes in bytes."""

    # of a send, one number or one for each in the order of the queues, plus ``send_per_byte`` for
    # each byte
    send: Value = 0.0
    send_per_byte: float = 0.0  # as above
    receive: float = 0.0  # of a receive, plus ``receive_per_byte`` for each byte
    receive_per_byte: float = 0.0  # as above
    # between two actions of a device, one number or shape (ops of the lowered queues,), after each;
    # a pair or a batch is one action
    gap: Value = 0.0
    preamble: float = 0.0  # before the first op of an iteration
    epilogue: float = 0.0  # after the last one

    def __post_init__(self) -> None:
        _refuse_negative(self, [f.name for f in fields(self)])


@dataclass(frozen=True)
class Shared:
    """Bandwidth that messages divide fairly: all that leave a group of devices, and apart from them
    all that enter.
    """

    capacity: float  # bytes per unit of time, in each direction
    # shape (P,), the group of each device: itself, its node, its network card
    group: NDArray[np.int64]
    # shape (P,); where given, messages within a node do not use it
    node: NDArray[np.int64] | None = None
    name: str = "card"  # what is shared, for pictures: ``card``, ``node`` or ``device``

    def __post_init__(self) -> None:
        _refuse_zero("the capacity of shared bandwidth", self.capacity)
        for groups in (self.group, *(() if self.node is None else (self.node,))):
            if groups.min(initial=0) < 0:
                raise InputError(
                    "a group of devices that share bandwidth has a number below zero",
                    "count from 0",
                )


@dataclass(frozen=True)
class Collectives:
    """Durations of a stage's FSDP ops and gradient reduction, one number or shape (stages,)."""

    unshard: Value = 0.0  # of UNSHARD; a later compute op of the stage waits for it
    reshard: Value = 0.0  # of RESHARD
    reduce_grad: Value = 0.0  # of REDUCE_GRAD; nothing but the end of the iteration waits for it
    # they occupy the device; otherwise they run one after another in parallel with its compute ops
    blocking: bool = False

    def __post_init__(self) -> None:
        _refuse_negative(self, ("unshard", "reshard", "reduce_grad"))


@dataclass(frozen=True)
class Network:
    """Model of messages; times in the timeline's unit, sizes in bytes. The defaults are the simple
    model.
    """

    # ``latency``: a message leaves when its op ends and occupies nobody. ``overlap``: it occupies
    # its channel; sends and receives are posted at their place in the queue, and an op waits for
    # its input. ``blocking``: besides, a device does nothing else during each send and receive.
    # ``batched``: as ``blocking``, but the ops of a batch go together
    mode: str = "latency"
    # what has one message at a time in ``overlap``, in the order posted on each device: ``message``
    # (nothing; messages share their link), ``direction`` (of two devices), ``pair`` (both
    # directions) or ``group`` (all messages of a device)
    channel: str = "direction"
    alpha: Value = 0.0  # latency of a link, one number or shape (P, P), from device to device
    beta: Value = np.inf  # bandwidth of a link, likewise, in bytes per unit of time
    # up to this size a send needs no receive; likewise. Larger ones wait for it (rendezvous), and
    # below zero all do
    eager_bytes: Value = -1.0
    # bytes of an activation or gradient, one number or shape (stages - 1,) by boundary
    message: Value = 0.0
    late: float = 0.0  # added to a rendezvous whose receive is posted after its send
    host: Host = field(default_factory=Host)  # costs of the host
    collectives: Collectives = field(default_factory=Collectives)  # durations of FSDP ops
    shared: tuple[Shared, ...] = ()  # bandwidth that several links divide

    def __post_init__(self) -> None:
        for name, allowed in (("mode", MODES), ("channel", CHANNELS)):
            if getattr(self, name) not in allowed:
                raise InputError(
                    f"unknown {name} '{getattr(self, name)}' of messages",
                    f"one of {', '.join(allowed)}",
                )
        _refuse_negative(self, ("alpha", "message", "late"))
        _refuse_zero("beta, the bandwidth of a link", self.beta)


def links(value: Value, source: NDArray[Any], target: NDArray[Any]) -> NDArray[np.float64]:
    """Return the value of each message's link."""
    array = np.asarray(value, np.float64)
    return np.broadcast_to(array, source.shape) if array.ndim == 0 else array[source, target]


def _refuse_negative(owner: Any, names: Sequence[str]) -> None:
    for name in names:
        value = np.asarray(getattr(owner, name), np.float64)
        if not np.isfinite(value).all() or (value < 0).any():
            raise InputError(f"{name} must be zero or more and finite, got {value}")


def _refuse_zero(what: str, value: Value) -> None:
    # or a message would take longer than any number
    if not (np.asarray(value, np.float64) > 1 / LONGEST).all():
        raise InputError(f"{what} must be more than zero, got {value}")
