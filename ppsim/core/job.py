"""A job: one pipeline in several data-parallel replicas over several steps, with the collectives
that join them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ppsim.core.schedule import Schedule

OPS_SCHEMA = "ppsim.ops/1"  # of a job as a table of ops
Times = NDArray[np.float64]
DEVICE, REPLICAS, ENDS, ALL = "device", "replicas", "ends", "all"


@dataclass(frozen=True)
class StepOp:
    """An op of each device between the pipelines of two steps: a collective, or local work."""

    name: str  # what the run calls it
    # the devices that run it together: ``device`` (alone), ``replicas`` (the same device of all
    # replicas), ``ends`` (first and last device of its replica), or ``all``. All of a group end
    # together.
    group: str = DEVICE
    communicates: bool = False  # whether it is a collective, and not work of a device
    # whether it comes before the first op of its chunk, not after the last one
    before_chunk: bool = False
    chunk: int = -1  # the chunk that it belongs to, -1 for all of its device


@dataclass(frozen=True)
class Job:
    """A recorded run of several replicas: K steps, R replicas, P devices, B ops between steps
    (``step_ops``).
    """

    schedule: Schedule  # what every replica ran
    replicas: NDArray[np.int64]  # shape (R,), their numbers in the files
    iterations: NDArray[np.int64]  # shape (K,), the numbers of the steps
    start: Times  # shape (K, R, ops): when each op began to compute, from the step's first op
    end: Times  # likewise
    # likewise: how long the input of an op took from the later of its send and receive to its
    # arrival; 0 without one from another device
    transfer: Times
    step_ops: tuple[StepOp, ...]  # in the order in which devices do them
    step_op_start: Times  # shape (K, R, P, B), NaN where a device has none
    step_op_end: Times  # likewise
    names: Mapping[str, str]  # what the run calls the kinds of ops and messages, by their letters
    unit: str  # of all times
    # shape (2, K, R, ops): from the end of the op before to when a device reached each op, and from
    # the end of the op that makes its input to when both sides had posted it; None where the run
    # does not show the former
    host: Times | None = None

    @cached_property
    def steps(self) -> Times:
        """Shape (K,): from the first start to the last end of anything."""
        first, last = self.start.min(axis=(1, 2)), self.end.max(axis=(1, 2))
        if self.step_ops:
            first = np.fmin(first, np.fmin.reduce(self.step_op_start, axis=(1, 2, 3)))
            last = np.fmax(last, np.fmax.reduce(self.step_op_end, axis=(1, 2, 3)))
        steps: Times = last - first
        return steps

    @property
    def pipelines(self) -> Times:
        """Shape (K, R): from the first start to the last end of a replica's ops."""
        pipelines: Times = self.end.max(axis=2) - self.start.min(axis=2)
        return pipelines

    def select(self, at: NDArray[np.int64]) -> Job:
        """Keep these steps, given by their places."""
        names = ("iterations", "start", "end", "transfer", "step_op_start", "step_op_end")
        host = None if self.host is None else self.host[:, at]
        return replace(self, host=host, **{name: getattr(self, name)[at] for name in names})
