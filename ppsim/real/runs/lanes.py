"""Queues for real runs of schedules with several streams per device."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ppsim.core.lanes import list_waits, refuse_lanes
from ppsim.core.lowered import Lowered
from ppsim.core.ops import COMPUTE, TIMED, Kind, Scope, Stream, mask
from ppsim.core.schedule import NONE, Schedule
from ppsim.engine.lowering.lower import lower

COPIES = (*COMPUTE, Kind.OFFLOAD, Kind.RELOAD, Kind.WAIT_OFFLOAD)
ENCODER = (Kind.EF, Kind.EB)
# Kinds that mark where a queue posts a message or waits. A real run ignores them: it posts when the
# op ends, and waits directly before the op that needs the message.
MARKS = tuple(k for k in TIMED if k.info.side in ("post", "wait") and k != Kind.WAIT_OFFLOAD)
ON_ALL = tuple(
    k for k in TIMED if k.info.on_all_devices or (k.info.scope == Scope.DEVICE and k not in ENCODER)
)


def refuse_streams(schedule: Schedule, *, timed: bool, streams: bool) -> None:
    """Refuse ops that a run cannot execute (InputError).

    Args:
        schedule: the schedule.
        timed: whether ops sleep instead of computing.
        streams: whether the runner has streams other than compute.
    """
    if not streams:
        refuse_lanes(schedule, "a run by torch, of --module or with a GPU for each device")
    elif timed:
        refuse_lanes(schedule, "a run for real", (*COPIES, *ON_ALL, *MARKS))
    else:
        refuse_lanes(schedule, "a run that computes (--ops timed runs more)", COPIES)


def lower_lanes(schedule: Schedule) -> Lowered:
    """Return the queues with the sends and receives of compute ops.

    Other ops stay directly before the compute op that follows them. Marks of posts and waits are
    left out.
    """
    marks = mask(MARKS)[schedule.kind]
    schedule = schedule.take(~marks) if marks.any() else schedule
    if not schedule.has_lanes:
        return lower(schedule)
    plain, others = lower(schedule.compute_only), np.flatnonzero(~schedule.computes)
    queues = plain.schedule
    following = np.searchsorted(np.flatnonzero(schedule.computes), others)
    place = np.append(plain.compute_ops, len(queues))[following]
    place = np.minimum(place, queues.offsets[1:][schedule.device[others]])
    all_queues = queues.insert(place, schedule.device[others], schedule.packed()[others])
    return Lowered(all_queues, schedule, np.insert(plain.batch, place, NONE))


def lanes_in(lowered: Lowered) -> NDArray[np.int64]:
    """Return the stream of each entry, shape (entries,); for messages that of compute."""
    stream = np.array([kind.info.stream or Stream.COMPUTE for kind in Kind], np.int64)
    return stream[lowered.schedule.kind]


def waits_in(lowered: Lowered) -> dict[int, tuple[int, ...]]:
    """Return the entries on other streams of the same device that an entry waits for, by entry.

    All entries also wait for the previous one on their stream, for receives, and for all devices
    where an op runs on all.
    """
    waits, entry, device = list_waits(lowered.compute), lowered.compute_ops, lowered.compute.device
    lane = lanes_in(lowered)[entry]
    across_streams = (
        ~waits.on_lane
        & (device[waits.op] == device[waits.need])
        & (lane[waits.op] != lane[waits.need])
    )
    ops, needs = (entry[rows[across_streams]].tolist() for rows in (waits.op, waits.need))
    found: dict[int, tuple[int, ...]] = {}
    for op, need in zip(ops, needs, strict=True):
        found[op] = (*found.get(op, ()), need)
    return found
