"""The times of all ops and messages in a run of lowered queues."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ppsim.core.lowered import Lowered
from ppsim.core.timeline import Timeline


@dataclass(frozen=True)
class Transfers:
    """The messages between devices, in the order of their sends in the lowered queues."""

    send: NDArray[np.int64]  # shape (messages,), index of the send in the lowered queues
    receive: NDArray[np.int32]  # shape (messages,), index of the receive
    source: NDArray[np.int32]  # device that sends
    target: NDArray[np.int32]  # device that receives
    producer: NDArray[np.int32]  # index, in the lowered queues, of the op whose result is sent
    posted: NDArray[np.float64]  # time at which the send was posted
    # time at which the receive was posted; in ``latency`` mode the same as ``posted``
    awaited: NDArray[np.float64]
    # time at which the message left, when both sides were posted and the channel was free
    leave: NDArray[np.float64]
    arrive: NDArray[np.float64]  # end of the receive
    size: NDArray[np.float64]  # bytes; 0 if a message only has a latency
    # of the link, in bytes per unit of time; infinite without a limit
    bandwidth: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.send)


@dataclass(frozen=True)
class SharedBandwidth:
    """Bandwidth that the messages of several links share, separately in each direction."""

    name: str  # the shared hardware: ``card`` of a network, ``node``, ``device``
    capacity: float  # bytes per unit of time
    group: NDArray[np.int64]  # shape (P,), the group of each device; a group has one capacity
    # shape (messages,), whether each message uses the outgoing capacity of its source and the
    # incoming capacity of its target
    used: NDArray[np.bool_]


@dataclass(frozen=True)
class Execution:
    """One iteration of lowered queues."""

    lowered: Lowered  # the queues that were run
    # of ``lowered.schedule``: the times at which each op, including sends and receives, occupied
    # its device; collectives in parallel with compute ops have the times of their stream. ``bound``
    # of a compute op that waited is the receive, or UNSHARD, it waited for.
    timeline: Timeline
    # of ``lowered.compute``: the same times of the compute ops; ``bound`` of an op that waited is
    # the op that produced its input. Metrics and figures use it.
    compute: Timeline
    messages: Transfers
    # the bandwidths that the messages of several links shared
    shared: tuple[SharedBandwidth, ...] = ()

    @property
    def makespan(self) -> float:
        """End of the iteration: of the last op, message, collective or the host's epilogue."""
        return self.timeline.makespan
