"""The dealing problem: sequences, microbatches, and the pipeline that times them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ppsim.core.costs import Costs
from ppsim.core.lanes import refuse_lanes
from ppsim.core.schedule import Schedule
from ppsim.core.sequences import Floats, Ints, LinearTimes, join_times, linear_times
from ppsim.engine.simple.batch import Order, find_ends, find_order


@dataclass(frozen=True)
class Pipeline:
    """The schedule that every replica runs; op times follow from Q factors of each microbatch.

    Attributes:
        schedule: of each replica.
        order: the order in which its ops are timed.
        times: op durations as linear functions of the microbatches' factors.
        latency: shape (R, ops) or (1, ops), of each op's input.
        slow: shape (R, P), factor on the op times of each device of a replica.
    """

    schedule: Schedule
    order: Order
    times: LinearTimes
    latency: Floats
    slow: Floats

    def durations(self, factors: Floats, replica: Ints) -> Floats:
        """Return the durations of ops, shape (ops, samples).

        ``factors`` has shape (samples, M, Q), ``replica`` (samples,).
        """
        flat = np.ascontiguousarray(factors.transpose(2, 1, 0)).reshape(-1, len(factors))
        durations = self.times.durations(flat)
        if (self.slow != 1).any():
            durations *= self.slow[replica][:, self.schedule.device].T
        return durations

    def makespans(self, factors: Floats, replica: Ints) -> Floats:
        """Return the makespan of each sample, shape (samples,)."""
        return self._ends(self.durations(factors, replica), replica).max(axis=0)

    def _ends(self, durations: Floats, replica: Ints) -> Floats:
        latency = self.latency.T if len(self.latency) == 1 else self.latency[replica].T
        return find_ends(self.order, durations, np.ascontiguousarray(latency))


def make_pipeline(
    schedule: Schedule,
    costs: Costs,
    replicas: int,
    slow: Floats | None = None,
    *,
    by_stage: bool = False,
) -> Pipeline:
    """Return the pipeline of replicas that run a schedule at these costs.

    Raises:
        InputError: devices copy or reduce in parallel with compute, or durations are not linear in
            the factors.
    """
    refuse_lanes(schedule, "dealing", hint="a schedule that only computes")
    times = linear_times(schedule, costs, by_stage=by_stage)
    slow = np.ones((replicas, schedule.n_devices)) if slow is None else slow
    return Pipeline(schedule, find_order(schedule), times, costs.latencies(schedule)[None], slow)


@dataclass(frozen=True)
class Problem:
    """N sequences over the microbatches of R replicas.

    Attributes:
        pipeline: the schedule and costs of a replica.
        time: shape (N, Q), the time of each sequence.
        replica: shape (N,), the given replica of each sequence.
        microbatch: shape (N,), its given microbatch there.
        counts: shape (R,), the number of microbatches of each replica that may have sequences.
        microbatches: M, of the schedule.
        padded: whether a sequence takes as long as the longest of its microbatch.
        across: whether a sequence may go to another replica.
        tokens: shape (N,), the tokens of each sequence.
        most: the largest number of tokens of a microbatch, padding included.
    """

    pipeline: Pipeline
    time: Floats
    replica: Ints
    microbatch: Ints
    counts: Ints
    microbatches: int
    padded: bool = False
    across: bool = False
    tokens: Floats | None = None
    most: float = np.inf

    @property
    def n_replicas(self) -> int:
        """The number of data-parallel replicas, R."""
        return len(self.counts)

    @property
    def may_be_empty(self) -> NDArray[np.bool_]:
        """Shape (R,): whether a replica may leave microbatches empty.

        It may if it does so in the given dealing, or has too few sequences.
        """
        used = np.zeros((self.n_replicas, self.microbatches), np.bool_)
        used[self.replica, self.microbatch] = True
        leaves_empty = used.sum(axis=1) < self.counts
        if self.across:
            return np.full(
                self.n_replicas, bool(leaves_empty.any()) or len(self.time) < int(self.counts.sum())
            )
        sequences = np.bincount(self.replica, minlength=self.n_replicas)
        return leaves_empty | (sequences < self.counts)

    def factors(self, slot: Ints) -> Floats:
        """Return the factors of microbatches, shape (R, M, Q), of sequences in these slots."""
        slots = self.n_replicas * self.microbatches
        times = join_times(self.time, slot, slots, padded=self.padded)
        return times.reshape(self.n_replicas, self.microbatches, -1)

    @property
    def slot(self) -> Ints:
        """Shape (N,): the slot of each sequence, replica x M + microbatch."""
        return self.replica * self.microbatches + self.microbatch

    def held_tokens(self, members: list[int]) -> float:
        """Return the tokens of a microbatch, padding included; 0 without a limit."""
        if self.tokens is None or not members:
            return 0.0
        tokens = self.tokens[members]
        return float(tokens.max()) * len(tokens) if self.padded else float(tokens.sum())

    def fits(self, members: list[int]) -> bool:
        """Return True if a microbatch is within its limit of tokens."""
        return self.tokens is None or self.held_tokens(members) <= self.most * (1 + 1e-12)


def microbatch_time(problem: Problem, members: list[int]) -> Floats:
    """Return the time of a microbatch of these sequences, shape (Q,)."""
    if not members:
        return np.zeros(problem.time.shape[1])
    times = problem.time[members]
    total: Floats = times.max(axis=0) * len(times) if problem.padded else times.sum(axis=0)
    return total
