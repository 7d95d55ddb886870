"""Lowered queues: a schedule with explicit sends and receives, in the order of issue.

A message has one SEND on the device that produces it and one RECV on the device that needs it. As
in torch, ``2SEND_F0`` has the sender's stage and ``3RECV_F0`` the receiver's; gradients are sent
from stage s to s - 1. Messages carry no tags: from one device to another, the k-th send matches the
k-th receive.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ppsim.core.ops import TIMED, Kind, mask
from ppsim.core.schedule import NONE, Schedule
from ppsim.core.soundness import prove_lowered

_TIMED = mask(TIMED)


@dataclass(frozen=True)
class Lowered:
    """Queues of compute and communication ops."""

    # queues with comm ops; UNSHARD, RESHARD and REDUCE_GRAD have microbatch -1
    schedule: Schedule
    compute: Schedule  # the schedule that was lowered
    # shape (ops,), the batch of each comm op: those posted together (batch_isend_irecv) have the
    # same number and are neighbours in their queue; -1 for an op posted alone
    batch: NDArray[np.int32]

    def __post_init__(self) -> None:
        prove_lowered(self.schedule, self.compute, self.compute_ops, self.batch)

    @cached_property
    def compute_ops(self) -> NDArray[np.int64]:
        """Shape (ops of ``compute``,): their indices among the lowered ops."""
        return np.flatnonzero(_TIMED[self.schedule.kind])

    def peer(self) -> NDArray[np.int32]:
        """Return the other device of each send or receive, shape (ops,); -1 for other ops.

        In a bidirectional placement, the replica is the one whose stage is on the op's device. A
        device with the stage in both replicas exchanges each microbatch with the device that
        computes the other side of the message.
        """
        schedule, devices = self.schedule, self.schedule.placement.devices
        away = {"send": 1, "receive": -1}
        step = np.array(
            [kind.info.direction * away.get(kind.info.side, 0) for kind in Kind], np.int32
        )
        peer = np.full(len(schedule), NONE, np.int32)
        comm = np.flatnonzero(step[schedule.kind])
        stage = schedule.stage[comm]
        other = np.clip(stage + step[schedule.kind[comm]], 0, schedule.n_stages - 1)
        has_stage = devices[:, stage] == schedule.device[comm]
        if has_stage.all(axis=0).any() and len(devices) > 1:
            M, compute = schedule.n_microbatches, self.compute
            computed_by = np.full(schedule.n_stages * M, NONE, np.int32)
            computed_by[compute.stage.astype(np.int64) * M + compute.microbatch] = compute.device
            fits = has_stage & (
                devices[:, other]
                == computed_by[other.astype(np.int64) * M + schedule.microbatch[comm]]
            )
            has_stage = np.where(fits.any(axis=0), fits, has_stage)
        replica = np.argmax(has_stage, axis=0)
        peer[comm] = devices[replica, other]
        return peer
