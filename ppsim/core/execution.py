"""The times of every op and message of one run of lowered queues."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ppsim.core.lowered import Lowered
from ppsim.core.timeline import Timeline


@dataclass(frozen=True)
class Transfers:
    """The messages between devices; one entry per message, in the order of the sends in the lowered
    queues.
    """

    send: NDArray[np.int64]  # shape (messages,), index of the send in the lowered queues
    receive: NDArray[np.int32]  # shape (messages,), index of the receive
    source: NDArray[np.int32]  # device it leaves
    target: NDArray[np.int32]  # device it reaches
    producer: NDArray[np.int32]  # index, in the lowered queues, of the op whose result it carries
    posted: NDArray[np.float64]  # time at which the send was posted
    # time at which the receive was posted; in ``latency`` mode the same as ``posted``
    awaited: NDArray[np.float64]
    # time at which it left: both sides were posted and the channel was free
    leave: NDArray[np.float64]
    arrive: NDArray[np.float64]  # end of the receive
    size: NDArray[np.float64]  # its bytes; 0 where a message has latency only
    # of its link, in bytes per unit of time; infinite where there is no limit
    bandwidth: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.send)


@dataclass(frozen=True)
class SharedBandwidth:
    """Bandwidth that the messages of several links divide, in each direction."""

    name: str  # what is shared: ``card`` of a network, ``node``, ``device``
    capacity: float  # bytes per unit of time
    group: NDArray[np.int64]  # shape (P,), whose share each device uses
    # shape (messages,), whether each message uses that of its source, outwards, and of its target,
    # inwards
    used: NDArray[np.bool_]


@dataclass(frozen=True)
class Execution:
    """One iteration of lowered queues."""

    lowered: Lowered  # the queues that were run
    # of ``lowered.schedule``: when each op, sends and receives included, occupied its device;
    # collectives in parallel with compute ops have the times of their stream. ``bound`` of a
    # compute op that waited is the receive, or UNSHARD, it waited for.
    timeline: Timeline
    # of ``lowered.compute``: the same times of the compute ops alone; ``bound`` of one that waited
    # is the op that sent its input. Metrics and figures use it.
    compute: Timeline
    messages: Transfers  # the messages
    # the bandwidths that the messages of several links divided
    shared: tuple[SharedBandwidth, ...] = ()

    @property
    def makespan(self) -> float:
        """End of the iteration: of the last op, message, collective or the host's epilogue."""
        return self.timeline.makespan
