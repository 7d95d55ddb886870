"""Sequences of one training step: their microbatches, their times, and the microbatches' times."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ppsim.core.costs import Costs
from ppsim.core.ops import COMPUTE, Kind
from ppsim.core.schedule import Schedule
from ppsim.errors import InputError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sequences:
    """N sequences of R replicas; Q is 1, or the number of stages if lengths differ by stage.

    Attributes:
        replica: shape (N,), the data-parallel replica of each sequence.
        microbatch: shape (N,), its microbatch on that replica.
        length: shape (N, Q), tokens or factors.
        time: shape (N, Q), time relative to a mean microbatch.
        names: shape (N,), the ids of the sequences in their file.
        counts: shape (R,), the number of microbatches of each replica.
        in_tokens: whether lengths are tokens; otherwise they are factors.
        padded: whether every sequence takes as long as the longest of its microbatch.
    """

    replica: Ints
    microbatch: Ints
    length: Floats
    time: Floats
    names: Ints
    counts: Ints
    in_tokens: bool = True
    padded: bool = False

    def __len__(self) -> int:
        return len(self.replica)

    @property
    def n_replicas(self) -> int:
        """Data-parallel replicas, R."""
        return len(self.counts)

    def factors(self, microbatches: int) -> Floats:
        """Return each microbatch's time relative to the mean, shape (R, Q, M); 0 if empty."""
        slot = self.replica * microbatches + self.microbatch
        found = join_times(self.time, slot, self.n_replicas * microbatches, padded=self.padded)
        shape = (self.n_replicas, microbatches, found.shape[1])
        return np.ascontiguousarray(found.reshape(shape).transpose(0, 2, 1))

    def lengths(self, microbatches: int) -> Floats:
        """Return the length of each microbatch with padding, shape (R, Q, M), in tokens or
        factors.
        """
        slot = self.replica * microbatches + self.microbatch
        slots = self.n_replicas * microbatches
        found = join_times(self.length, slot, slots, padded=self.padded)
        return found.reshape(self.n_replicas, microbatches, -1).transpose(0, 2, 1)

    def moved(self, replica: Ints, microbatch: Ints, counts: Ints) -> Sequences:
        """Return the same sequences in other microbatches."""
        return replace(self, replica=replica, microbatch=microbatch, counts=counts)


def join_times(time: Floats, slot: Ints, slots: int, *, padded: bool) -> Floats:
    """Return the time of each microbatch, shape (slots, Q).

    It is the sum of its sequences' times, or if they are padded, the longest time times the number
    of sequences.

    Args:
        time: shape (N, Q), of each sequence.
        slot: shape (N,), the microbatch of each sequence.
        slots: the number of microbatches.
        padded: whether sequences are padded to the longest of their microbatch.
    """
    found = np.zeros((slots, time.shape[1]))
    if padded:
        np.maximum.at(found, slot, time)
        return found * np.bincount(slot, minlength=slots)[:, None]
    np.add.at(found, slot, time)
    return found


@dataclass(frozen=True)
class LinearTimes:
    """Durations of ops as linear functions of the factors of microbatches.

    An op of a pair depends on two microbatches, other ops on one. Every array has shape (ops,).
    """

    constant: Floats  # duration that does not depend on factors
    own: Floats  # duration at factor 1
    other: Floats  # the same for the other op of the pair; 0 without a pair
    row: Ints  # index of the op's factor: stage x M + microbatch, or the microbatch if Q is 1
    other_row: Ints  # the same for the other op of the pair

    def durations(self, factors: Floats) -> Floats:
        """Return durations, shape (ops, samples), for factors of shape (Q x M, samples)."""
        found: Floats = self.own[:, None] * factors.take(self.row, axis=0)
        if self.other.any():
            found += self.other[:, None] * factors.take(self.other_row, axis=0)
        found += self.constant[:, None]
        return found


def linear_times(schedule: Schedule, costs: Costs, *, by_stage: bool = False) -> LinearTimes:
    """Return the durations of a schedule's ops as functions of the microbatches' factors.

    Raises:
        InputError: the durations come from a function.
    """
    if costs.op_times is not None:
        raise InputError(
            "lengths have no effect on times from a function", "let the function use the lengths"
        )
    costs.check_fit(schedule)
    ops = np.flatnonzero(schedule.kind < len(COMPUTE))
    constant, own, other = np.zeros(len(schedule)), np.zeros(len(schedule)), np.zeros(len(schedule))
    if len(ops) < len(schedule):
        constant = costs.durations(schedule).copy()
        constant[ops] = 0.0
    factor = np.ones(len(schedule))
    if costs.scale is not None:
        factor[ops] *= costs.scale[schedule.kind[ops], schedule.microbatch[ops]]
    if costs.speed is not None:
        factor[ops] /= costs.speed[schedule.device[ops]]
    own[ops] = costs.time[schedule.kind[ops], schedule.stage[ops]] * factor[ops]
    row = np.zeros(len(schedule), np.int64)
    row[ops] = schedule.microbatch[ops] // schedule.n_slices
    if by_stage:
        row[ops] += schedule.stage[ops].astype(np.int64) * schedule.whole_microbatches
    other_row = row.copy()
    first, second = schedule.first_of_pairs, schedule.second_of_pairs
    if len(first):
        if costs.pair is not None:
            full = (schedule.kind[first] == Kind.B) | (schedule.kind[second] == Kind.B)
            together = (costs.pair[schedule.stage[first]] + costs.pair[schedule.stage[second]]) / 4
            for each in (first, second):
                own[each] = np.where(full, together * factor[each], own[each])
        other[first], other[second] = own[second], own[first]
        other_row[first], other_row[second] = row[second], row[first]
    return LinearTimes(constant, own, other, row, other_row)
