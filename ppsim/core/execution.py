"""The times of every op and message of one run of lowered queues."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ppsim.core.lowered import Lowered
from ppsim.core.timeline import Timeline


@dataclass(frozen=True)
class Transfers:
    """The messages between devices; one entry per message, in the order of the sends in the lowered queues.

    Attributes:
        send: shape (messages,), index of the send in the lowered queues.
        receive: shape (messages,), index of the receive.
        source: device it leaves.
        target: device it reaches.
        producer: index, in the lowered queues, of the op whose result it carries.
        posted: time at which the send was posted.
        awaited: time at which the receive was posted; in ``latency`` mode the same as ``posted``.
        leave: time at which it left: both sides were posted and the channel was free.
        arrive: end of the receive.
        size: its bytes; 0 where a message has latency only.
        bandwidth: of its link, in bytes per unit of time; infinite where there is no limit.
    """

    send: NDArray[np.int64]
    receive: NDArray[np.int32]
    source: NDArray[np.int32]
    target: NDArray[np.int32]
    producer: NDArray[np.int32]
    posted: NDArray[np.float64]
    awaited: NDArray[np.float64]
    leave: NDArray[np.float64]
    arrive: NDArray[np.float64]
    size: NDArray[np.float64]
    bandwidth: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.send)


@dataclass(frozen=True)
class SharedBandwidth:
    """Bandwidth that the messages of several links divide, in each direction.

    Attributes:
        name: what is shared: ``card`` of a network, ``node``, ``device``.
        capacity: bytes per unit of time.
        group: shape (P,), whose share each device uses.
        used: shape (messages,), whether each message uses that of its source, outwards, and of its target, inwards.
    """

    name: str
    capacity: float
    group: NDArray[np.int64]
    used: NDArray[np.bool_]


@dataclass(frozen=True)
class Execution:
    """One iteration of lowered queues.

    Attributes:
        lowered: the queues that were run.
        timeline: of ``lowered.schedule``: when each op, sends and receives included, occupied its device;
            collectives beside the compute ops have the times of their stream. ``bound`` of a compute op that
            waited is the receive, or UNSHARD, it waited for.
        compute: of ``lowered.compute``: the same times of the compute ops alone; ``bound`` of one that waited is
            the op that sent its input. Metrics and figures use it.
        messages: the messages.
        shared: the bandwidths that the messages of several links divided.
    """

    lowered: Lowered
    timeline: Timeline
    compute: Timeline
    messages: Transfers
    shared: tuple[SharedBandwidth, ...] = ()

    @property
    def makespan(self) -> float:
        """End of the iteration: of the last op, message, collective or the host's epilogue."""
        return self.timeline.makespan
