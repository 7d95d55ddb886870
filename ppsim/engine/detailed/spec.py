"""The network between devices: modes of messages, shared bandwidth, and host time of calls."""

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

    # of a send, one number or one for each in the order of the queues
    send: Value = 0.0
    send_per_byte: float = 0.0  # further time of a send for each byte
    receive: float = 0.0  # of a receive
    receive_per_byte: float = 0.0  # further time of a receive for each byte
    # between two actions of a device, one number or shape (ops of the lowered queues,), the gap
    # after each op; a pair or a batch is one action
    gap: Value = 0.0
    preamble: float = 0.0  # before the first op of an iteration
    epilogue: float = 0.0  # after the last one

    def __post_init__(self) -> None:
        _refuse_negative(self, [f.name for f in fields(self)])


@dataclass(frozen=True)
class Shared:
    """Bandwidth that messages share fairly.

    All messages that leave a group of devices share it, and separately all that enter.
    """

    capacity: float  # bytes per unit of time, in each direction
    # shape (P,), the group of each device: itself, its node, its network card
    group: NDArray[np.int64]
    # shape (P,), the node of each device, within which messages do not use it; None for none
    node: NDArray[np.int64] | None = None
    name: str = "card"  # its name in pictures: ``card``, ``node`` or ``device``

    def __post_init__(self) -> None:
        _refuse_zero("the capacity of shared bandwidth", self.capacity)
        for groups in (self.group, *(() if self.node is None else (self.node,))):
            if groups.min(initial=0) < 0:
                raise InputError(
                    "a group of devices that share bandwidth has a negative number",
                    "count from 0",
                )


@dataclass(frozen=True)
class Collectives:
    """Durations of a stage's FSDP ops and gradient reduction, one number or shape (stages,)."""

    unshard: Value = 0.0  # of UNSHARD; a later compute op of the stage waits for it
    reshard: Value = 0.0  # of RESHARD
    reduce_grad: Value = 0.0  # of REDUCE_GRAD; nothing but the end of the iteration waits for it
    # whether they occupy the device; otherwise they run on a stream in parallel with compute ops
    blocking: bool = False

    def __post_init__(self) -> None:
        _refuse_negative(self, ("unshard", "reshard", "reduce_grad"))


@dataclass(frozen=True)
class Network:
    """The model of messages; times in the timeline's unit, sizes in bytes.

    The defaults are the simple model.
    """

    # ``latency``: a message leaves when its op ends, and occupies nothing. ``overlap``: it occupies
    # its channel; sends and receives are posted at their place in the queue, and an op waits for
    # its input. ``blocking``: in addition, a device is occupied by each send and receive.
    # ``batched``: as ``blocking``, but the ops of a batch run together
    mode: str = "latency"
    # what carries one message at a time in ``overlap``, in the order posted on each device:
    # ``message`` (each message separately; messages share their link), ``direction`` (of two
    # devices), ``pair`` (both directions) or ``group`` (all messages of a device)
    channel: str = "direction"
    alpha: Value = 0.0  # latency of a link, one number or shape (P, P), from device to device
    beta: Value = np.inf  # bandwidth of a link in bytes per unit of time, one number or (P, P)
    # size up to which a send needs no receive, one number or (P, P). Larger messages wait for the
    # receive (rendezvous); with a negative size all do
    eager_bytes: Value = -1.0
    # bytes of an activation or gradient, one number or shape (stages - 1,) by boundary
    message: Value = 0.0
    late: float = 0.0  # extra time of a rendezvous whose receive is posted after its send
    host: Host = field(default_factory=Host)  # costs of the host
    collectives: Collectives = field(default_factory=Collectives)  # durations of FSDP ops
    shared: tuple[Shared, ...] = ()  # bandwidth that several links share

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
