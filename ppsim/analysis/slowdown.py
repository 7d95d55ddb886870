"""The slowdown of a job over a healthy one, by kind of op, device, replica and link.

The definitions follow "Understanding Stragglers in Large Model Training Using What-if Analysis"
(OSDI 2025, arXiv 2505.05713). A step is simulated with its measured times, with ideal times (equal
for all ops of a kind), and with some ops measured and the rest ideal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.core.job import Job
from ppsim.core.ops import FORWARDS, Kind, mask
from ppsim.core.schedule import NONE
from ppsim.engine.simple.steps import StepTimes, time_steps

Times = NDArray[np.float64]
Bools = NDArray[np.bool_]
SLOWEST = 0.03  # share of workers that count as the slowest
NAMED = 10  # number of workers in the list
PAIR = "F with B"


@dataclass(frozen=True)
class Part:
    """A selection from a job: ops, transfers (by the op that waits), and ops between pipelines."""

    ops: Bools
    transfer: Bools
    step_ops: Bools

    def __invert__(self) -> Part:
        return Part(~self.ops, ~self.transfer, ~self.step_ops)


@dataclass(frozen=True)
class Slowdown:
    """A job and its healthy steps; K steps, R replicas, P devices."""

    job: Job
    measured: StepTimes
    # ops of a kind have their mean time, transfers and collectives their median
    ideal: StepTimes

    def step(self, times: StepTimes) -> Times:
        """Return simulated steps with these times, shape (N,)."""
        return time_steps(self.job.schedule, self.job.step_ops, times)

    def keep(self, part: Part) -> StepTimes:
        """Return step times with this part as measured and everything else ideal."""
        pairs = (
            (getattr(part, n), getattr(self.measured, n), getattr(self.ideal, n)) for n in PARTS
        )
        return StepTimes(*(np.where(chosen, real, ideal) for chosen, real, ideal in pairs))

    @cached_property
    def steps(self) -> Times:
        """Shape (K,): each step, simulated with its measured times, without the hosts' delays."""
        return self.step(self.measured)

    @cached_property
    def ideal_step(self) -> float:
        """The time of a step with ideal times."""
        return float(self.step(self.ideal)[0])

    @property
    def _unit(self) -> float:
        """The unit of slowdowns: the ideal step, or 1 if nothing takes time."""
        return self.ideal_step or 1.0

    @property
    def slowdown(self) -> float:
        """S: the mean step over the ideal one."""
        return float(self.steps.mean()) / self._unit

    def share(self, part: Part) -> float:
        """Return the share of the slowdown that disappears if a part is ideal."""
        whole = float(self.steps.mean())
        lost = whole - self.ideal_step
        return (whole - float(self.step(self.keep(~part)).mean())) / lost if lost else 0.0

    @cached_property
    def by_kind(self) -> Mapping[str, float]:
        """S_t: the step over the ideal one if only a kind's ops are as measured, by its name."""
        return {
            name: float(self.step(self.keep(part)).mean()) / self._unit
            for name, part in _kinds(self.job)
        }

    @cached_property
    def by_device_steps(self) -> Times:
        """Shape (K, P): each step over the ideal one if only a device's ops are as measured.

        They are those of the device in all replicas.
        """
        found = [
            self.step(self.keep(_device_part(self.job, device)))
            for device in range(self.job.schedule.n_devices)
        ]
        return np.stack(found, axis=1) / self._unit

    @cached_property
    def by_replica_steps(self) -> Times:
        """Shape (K, R): each step over the ideal one if only a replica's ops are as measured."""
        if len(self.job.replicas) == 1:
            return self.steps[:, None] / self._unit
        parts = [(getattr(self.measured, n), getattr(self.ideal, n)) for n in PARTS]
        found = []
        # one ideal replica stands for all others
        for r in range(len(self.job.replicas)):
            two = (
                np.stack([real[:, r], np.broadcast_to(ideal[:, 0], real[:, r].shape)], 1)
                for real, ideal in parts
            )
            found.append(self.step(StepTimes(*two)))
        return np.stack(found, axis=1) / self._unit

    @cached_property
    def by_worker(self) -> Times:
        """Shape (R, P): the slowdown of a worker, the lesser of its replica's and its device's."""
        replica, device = self.by_replica_steps.mean(axis=0), self.by_device_steps.mean(axis=0)
        return np.minimum(replica[:, None], device[None, :])

    @cached_property
    def by_worker_steps(self) -> Times:
        """Shape (K, R, P): the slowdown of a worker in each step."""
        return np.minimum(self.by_replica_steps[:, :, None], self.by_device_steps[:, None, :])

    @cached_property
    def slowest(self) -> list[tuple[int, int]]:
        """Index of replica and device of all workers, the slowest first."""
        order = np.argsort(-self.by_worker, axis=None, kind="stable")
        return [
            (int(r), int(d))
            for r, d in zip(*np.unravel_index(order, self.by_worker.shape), strict=True)
        ]

    @cached_property
    def last_stage_share(self) -> float:
        """M_S: the share of the slowdown that disappears if the last stage's device is ideal."""
        return self.share(_device_part(self.job, int(self.job.schedule.placement.devices[0, -1])))

    @cached_property
    def slowest_workers_share(self) -> float:
        """M_W: the share that disappears if the slowest 3 % of workers are ideal."""
        return self.share(
            _workers_part(self.job, self.slowest[: ceil(SLOWEST * self.by_worker.size)])
        )

    def step_with_healthy(self, workers: list[tuple[int, int]]) -> float:
        """Return the mean step if these workers are ideal."""
        return float(self.step(self.keep(~_workers_part(self.job, workers))).mean())


PARTS = ("ops", "transfer", "step_ops")


def find_slowdown(job: Job) -> Slowdown:
    """Return the slowdown of a job (Deadlock: its schedule cannot finish)."""
    measured = StepTimes.from_job(job)
    return Slowdown(job, measured, _ideal(job, measured))


def _ideal(job: Job, measured: StepTimes) -> StepTimes:
    """Return ideal times, shape (1, R, ...): mean times of ops, medians of transfers and others."""
    schedule = job.schedule
    ops, transfer = np.zeros(len(schedule)), np.zeros(len(schedule))
    for label in np.unique(schedule.work).tolist():
        alike = schedule.work == label
        ops[alike] = measured.ops[..., alike].mean()
    for forward in (True, False):
        alike = schedule.crosses & (mask(FORWARDS)[schedule.kind] == forward)
        if alike.any():
            transfer[alike] = np.median(measured.transfer[..., alike])
    between = np.full(measured.step_ops.shape[1:], np.nan)
    for at, each in enumerate(job.step_ops):
        took = measured.step_ops[..., at]
        typical = np.nanmedian(took) if each.communicates else np.nanmean(took)
        between[..., at] = np.where(np.isnan(took).all(axis=0), np.nan, typical)
    shape = (1, len(job.replicas), len(schedule))
    return StepTimes(np.broadcast_to(ops, shape), np.broadcast_to(transfer, shape), between[None])


def _part(
    job: Job,
    *,
    ops: Bools | bool = False,
    transfer: Bools | bool = False,
    between: Bools | bool = False,
) -> Part:
    """Return a part of a job; arguments broadcast to (R, ops), (R, ops) and (R, P, B)."""
    each, P = (len(job.replicas), len(job.schedule)), job.schedule.n_devices
    return Part(
        np.broadcast_to(ops, each),
        np.broadcast_to(transfer, each),
        np.broadcast_to(between, (len(job.replicas), P, len(job.step_ops))),
    )


def _kinds(job: Job) -> Iterator[tuple[str, Part]]:
    """Yield each kind of a job's ops and transfers with its name.

    Both sides of a message are one transfer.
    """
    schedule, labels = job.schedule, job.schedule.work
    for label in np.unique(labels).tolist():
        name = PAIR if label == NONE else Kind(label).name
        yield job.names.get(name, name), _part(job, ops=labels == label)
    for letter in "FB":
        received = schedule.crosses & (mask(FORWARDS)[schedule.kind] == (letter == "F"))
        for side in (f"SEND_{letter}", f"RECV_{letter}"):
            if received.any() and side in job.names:
                yield job.names[side], _part(job, transfer=received)
    for name in dict.fromkeys(each.name for each in job.step_ops):
        yield name, _part(job, between=np.array([each.name == name for each in job.step_ops]))


def _device_part(job: Job, device: int) -> Part:
    """Return the part of a device, in all replicas."""
    return _workers_part(job, [(replica, device) for replica in range(len(job.replicas))])


def _workers_part(job: Job, workers: list[tuple[int, int]]) -> Part:
    """Return the part of some workers; a transfer belongs to both its sides."""
    schedule = job.schedule
    chosen = np.zeros((len(job.replicas), schedule.n_devices), bool)
    chosen[tuple(np.array(workers).reshape(-1, 2).T)] = True
    sides = chosen[:, schedule.device] | chosen[:, schedule.device[schedule.dependency]]
    return _part(job, ops=chosen[:, schedule.device], transfer=sides, between=chosen[..., None])


def slowdown_object(found: Slowdown) -> dict[str, Any]:
    """Return the JSON keys on the ideal step and the slowdown."""
    job = found.job
    workers = [
        {"replica": int(job.replicas[r]), "device": d, "slowdown": float(found.by_worker[r, d])}
        for r, d in found.slowest[:NAMED]
    ]
    return {
        "step": float(found.steps.mean()),
        "ideal_step": found.ideal_step,
        "slowdown": found.slowdown,
        "slowdown_by_kind": dict(found.by_kind),
        "slowdown_by_device": found.by_device_steps.mean(axis=0).tolist(),
        "slowdown_by_replica": found.by_replica_steps.mean(axis=0).tolist(),
        "last_stage_share": found.last_stage_share,
        "slowest_workers_share": found.slowest_workers_share,
        "slowest": workers,
    }
