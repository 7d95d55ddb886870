"""Time the steps of a job: pipelines of all replicas by the simple model, joined by collectives.

Between two pipelines, an op of a device starts after the device's op before. All ops of a group end
together, a transfer time after the latest start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ppsim.core.job import ALL, DEVICE, ENDS, REPLICAS, Job, StepOp
from ppsim.core.lanes import lanes_of
from ppsim.core.ops import Stream
from ppsim.core.schedule import Schedule
from ppsim.engine.simple.batch import NO_TIMES, find_ends, find_order, run_in_chunks

Times = NDArray[np.float64]


@dataclass(frozen=True)
class StepTimes:
    """Durations of all parts of a job's steps, without waiting; N steps, R replicas."""

    ops: Times  # shape (N, R, ops), of each op
    transfer: Times  # shape (N, R, ops), of each op's input
    # shape (N, R, P, B), of ops between pipelines, from the latest start in the op's group; NaN if
    # a device does not run the op
    step_ops: Times

    @classmethod
    def from_job(cls, job: Job) -> Self:
        """Return the durations of a recorded run."""
        begun = (
            np.stack(
                [
                    _join(job.step_op_start[..., n], each.group)
                    for n, each in enumerate(job.step_ops)
                ],
                axis=-1,
            )
            if job.step_ops
            else job.step_op_start
        )
        return cls(job.end - job.start, job.transfer, np.maximum(job.step_op_end - begun, 0.0))


def time_steps(schedule: Schedule, between: tuple[StepOp, ...], times: StepTimes) -> Times:
    """Return the duration of each step, shape (N,) (Deadlock: the schedule cannot finish)."""
    ends = time_pipelines(schedule, between, times)
    return ends.max(axis=(1, 2))


def time_pipelines(schedule: Schedule, between: tuple[StepOp, ...], times: StepTimes) -> Times:
    """Return the end of each step on each device, shape (N, R, P)."""
    n, replicas = times.ops.shape[:2]
    ready = np.zeros((n, replicas, schedule.n_devices, int(schedule.chunk.max()) + 1))
    clock = np.zeros((n, replicas, schedule.n_devices))
    for at, each in enumerate(between):
        if each.before_chunk:
            clock = _run_step_op(clock, each, times.step_ops[..., at])
            gated = slice(None) if each.chunk < 0 else slice(each.chunk, each.chunk + 1)
            ready[..., gated] = np.maximum(ready[..., gated], clock[..., None])
    chunk_ends = _chunk_ends(schedule, times, ready)
    last = chunk_ends.max(axis=3)
    clock = np.zeros_like(last)
    for at, each in enumerate(between):
        if not each.before_chunk:
            free = last if each.chunk < 0 else chunk_ends[..., each.chunk]
            clock = _run_step_op(np.maximum(clock, free), each, times.step_ops[..., at])
    return np.maximum(clock, last)


def _run_step_op(clock: Times, step_op: StepOp, duration: Times) -> Times:
    """Return the devices' clocks after they have run an op with its group.

    A device whose duration is NaN does not run it.
    """
    has = ~np.isnan(duration)
    return np.where(has, _join(np.where(has, clock, np.nan), step_op.group) + duration, clock)


def _join(start: Times, group: str) -> Times:
    """Return the latest start in each group, shape (N, R, P); NaN if a device has none."""
    if group == DEVICE:
        return start
    filled = np.where(np.isnan(start), -np.inf, start)
    axes = {REPLICAS: (1,), ENDS: (2,), ALL: (1, 2)}[group]
    return np.where(np.isnan(start), np.nan, filled.max(axis=axes, keepdims=True))


def _chunk_ends(schedule: Schedule, times: StepTimes, ready: Times) -> Times:
    """Return the end of each device's last op of each chunk, shape (N, R, P, V)."""
    order, ops = find_order(schedule), len(schedule)
    device, chunk, stream = schedule.device, schedule.chunk, lanes_of(schedule) % len(Stream)
    last = np.zeros((*ready.shape[2:], len(Stream)), np.int64)
    last[device, chunk, stream] = order.row  # the last op of a lane is assigned last
    n, replicas = times.ops.shape[:2]
    took, travel = (part.reshape(n * replicas, ops) for part in (times.ops, times.transfer))
    gate = ready.reshape(n * replicas, *ready.shape[2:])

    def sample(first: int, stop: int) -> Times:
        gated = gate[first:stop].any()
        earliest = gate[first:stop, device, chunk].T if gated else NO_TIMES
        end = find_ends(order, took[first:stop].T, travel[first:stop].T, earliest)
        latest: Times = end[last].max(axis=2)
        return latest.transpose(2, 0, 1)

    return run_in_chunks(sample, n * replicas, ops).reshape(ready.shape)
