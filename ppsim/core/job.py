"""A job: several steps of data-parallel replicas of a pipeline, with their collectives."""

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

    name: str  # its name in the run
    # the devices that run it together: ``device`` (alone), ``replicas`` (the same device of all
    # replicas), ``ends`` (first and last device of its replica), or ``all``. All of a group end
    # together.
    group: str = DEVICE
    communicates: bool = False  # whether it is a collective; otherwise it is work of a device
    # whether it runs before the first op of its chunk; otherwise it runs after the last one
    before_chunk: bool = False
    chunk: int = -1  # the chunk that it belongs to, -1 for all of its device


@dataclass(frozen=True)
class Job:
    """A recorded run of several replicas: K steps, R replicas, P devices, B ops between steps
    (``step_ops``).
    """

    schedule: Schedule  # of every replica
    replicas: NDArray[np.int64]  # shape (R,), their numbers in the files
    iterations: NDArray[np.int64]  # shape (K,), the numbers of the steps
    start: Times  # shape (K, R, ops): start of each op's compute, from the step's first op
    end: Times  # shape (K, R, ops)
    # shape (K, R, ops): time from the later of an input's send and receive to its arrival; 0
    # without an input from another device
    transfer: Times
    step_ops: tuple[StepOp, ...]  # in the order in which devices run them
    step_op_start: Times  # shape (K, R, P, B), NaN if the device does not run it
    step_op_end: Times  # likewise
    names: Mapping[str, str]  # the run's names of kinds of ops and messages, by their letters
    unit: str  # of all times
    # shape (2, K, R, ops): time from the end of the previous op until the device reached the op,
    # and from the end of the op that produces its input until both sides had posted the message;
    # None if the run does not record the former
    host: Times | None = None

    @cached_property
    def steps(self) -> Times:
        """Shape (K,): time from the first start to the last end of all ops of a step."""
        first, last = self.start.min(axis=(1, 2)), self.end.max(axis=(1, 2))
        if self.step_ops:
            first = np.fmin(first, np.fmin.reduce(self.step_op_start, axis=(1, 2, 3)))
            last = np.fmax(last, np.fmax.reduce(self.step_op_end, axis=(1, 2, 3)))
        steps: Times = last - first
        return steps

    @property
    def pipelines(self) -> Times:
        """Shape (K, R): time from the first start to the last end of a replica's pipeline ops."""
        pipelines: Times = self.end.max(axis=2) - self.start.min(axis=2)
        return pipelines

    def select(self, at: NDArray[np.int64]) -> Job:
        """Return the job with only these steps, given by their indices."""
        names = ("iterations", "start", "end", "transfer", "step_op_start", "step_op_end")
        host = None if self.host is None else self.host[:, at]
        return replace(self, host=host, **{name: getattr(self, name)[at] for name in names})
