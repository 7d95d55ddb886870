"""What belongs together in lowered queues: sends and receives, ops and the messages they work on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppsim.base import compiled
from ppsim.core.lowered import Lowered
from ppsim.core.ops import RECEIVES, SENDS, Kind
from ppsim.core.schedule import NONE, Placement
from ppsim.lowering import matching_kernel
from ppsim.lowering.matching_faults import refuse, refuse_disorder

Ops = NDArray[np.int32]


class Legs(NamedTuple):
    """What messages cross: a boundary between two stages, in one direction, in one replica of the model.

    Leg ``(2 x replica + direction) x boundaries + boundary`` joins stages ``boundary`` and ``boundary + 1``; forward
    is direction 0.

    Attributes:
        source: shape (legs,), the device that messages leave.
        target: shape (legs,), the device they reach.
        link: shape (legs,), a number for each pair of source and target.
        boundaries: stages - 1.
    """

    source: Ops
    target: Ops
    link: NDArray[np.int64]
    boundaries: int


class Wiring(NamedTuple):
    """Who meets whom: indices into the lowered queues; messages count in the order of their sends.

    Attributes:
        message: shape (ops,), the message that an op sends, receives or works on, -1 for none.
        gathered: shape (ops,), the UNSHARD that a compute op works after, -1 for none; empty without UNSHARDs.
        leg: shape (messages,), the leg of each.
        send: shape (messages,).
        receive: shape (messages,).
        producer: shape (messages,), the op whose result it carries.
        consumer: shape (messages,), the op that works on it, -1 for none.
    """

    message: Ops
    gathered: Ops
    leg: Ops
    send: NDArray[np.int64]
    receive: Ops
    producer: Ops
    consumer: Ops


class Queues(NamedTuple):
    """What the kernel reads of a schedule: its columns, and M."""

    offsets: NDArray[np.int64]
    kind: NDArray[np.uint8]
    stage: Ops
    microbatch: Ops
    pair: Ops
    microbatches: int


def wire(lowered: Lowered) -> Wiring:
    """Match the k-th send of each directed pair of devices with its k-th receive, and messages with ops.

    Raises:
        Deadlock: a compute op waits for one behind it on its own device, or for one that no device runs.
        InvalidSchedule: a message without its other side, without its op or ahead of it, or messages of one link
            received in another order than sent.
    """
    schedule = lowered.schedule
    sends, receives = (sum(np.count_nonzero(schedule.kind == kind) for kind in kinds) for kinds in (SENDS, RECEIVES))
    gathers = (schedule.kind == Kind.UNSHARD).any()
    n, cells = len(schedule), schedule.n_stages * schedule.n_microbatches
    wiring = Wiring(
        np.full(n, NONE, np.int32),
        np.full(n if gathers else 0, NONE, np.int32),
        np.empty(sends, np.int32),
        np.empty(sends, np.int64),
        *(np.empty(sends, np.int32) for _ in range(3)),
    )
    queues = Queues(
        schedule.offsets,
        schedule.kind,
        schedule.stage,
        schedule.microbatch,
        schedule.pair,
        schedule.n_microbatches,
    )
    legs = legs_of(schedule.placement)
    where, latest, last = (np.full(k, NONE, np.int32) for k in (4 * cells, schedule.n_stages, len(legs.link)))
    disorder = compiled.run_in_place(matching_kernel.connect, n, queues, legs, where, latest, last, wiring)
    fault = disorder == matching_kernel.FAULT or sends != receives
    if disorder or fault:
        refuse_disorder(lowered.compute)
    if fault:
        refuse(lowered)
    return wiring


def legs_of(placement: Placement) -> Legs:
    """The legs of a placement."""
    below, above = placement.devices[:, :-1], placement.devices[:, 1:]
    source, target = (np.stack(both, axis=1).ravel() for both in ((below, above), (above, below)))
    _, link = np.unique(source.astype(np.int64) * placement.n_devices + target, return_inverse=True)
    return Legs(source, target, link, placement.n_stages - 1)
