"""Splits of a model's layers over the stages of a schedule: makespans, and bounds by cuts.

In given queues an op's time is a constant plus a rate times the weight of its stage's layers. The
makespan is the length of the longest path through the ops. So the length of any path, a linear
function of the weights, is a lower bound on it: a *cut*. The critical path of one split bounds all
other splits too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppsim.core.costs import Costs
from ppsim.core.lanes import refuse_lanes
from ppsim.core.ops import Kind
from ppsim.core.schedule import NONE, Schedule
from ppsim.engine.simple.batch import Order, find_ends, find_order, run_in_chunks
from ppsim.engine.simple.longest_path import simulate

Floats = NDArray[np.float64]
Ends = NDArray[np.int16]
MOST_LAYERS, MOST_COMPARED = 10_000, 2_000
# ops above which splits are timed one by one; a batch takes a step of Python per level of ops
LARGE = 150_000


class Cut(NamedTuple):
    """A bound on every split: makespan >= sum of ``rate`` x weight of stages + ``constant``.

    ``rate`` has shape (stages,).
    """

    rate: Floats
    constant: float


class Sizes(NamedTuple):
    """Memory of stages by their number of layers, integers of shape (stages, layers + 1) each."""

    weights: NDArray[np.int64]  # static memory, such as weights
    until_i: NDArray[np.int64]  # memory of a microbatch from its F, or R, to its B or I
    until_w: NDArray[np.int64]  # memory of a microbatch from its I to its W


@dataclass(frozen=True)
class SplitProblem:
    """A model to split over a schedule, and its constraints."""

    schedule: Schedule  # the queues of every split
    base: Costs  # costs of stages without layers: embedding, head, MTP layers, fixed costs of ops
    # the costs that a layer of weight 1 adds to its stage; factors and speeds as in ``base``
    rate: Costs
    weights: Floats  # shape (layers,), the weight of each layer in model order
    least_layers: int = 0  # fewest layers of a stage
    cap: float = math.inf  # memory cap of a device
    # the least memory of stages, in the unit of ``cap``; None to count activations of layers
    sizes: Sizes | None = None

    def __post_init__(self) -> None:
        refuse_lanes(self.schedule, "a search for the split of layers")

    @property
    def n_layers(self) -> int:
        """The number of layers to split, N."""
        return len(self.weights)

    @property
    def n_splits(self) -> int:
        """The number of splits of the layers, ignoring the cap."""
        S, free = self.schedule.n_stages, self.n_layers - self.least_layers * self.schedule.n_stages
        return math.comb(free + S - 1, S - 1) if free >= 0 else 0

    @cached_property
    def first_weights(self) -> Floats:
        """Shape (layers + 1,): the weight of the first n layers."""
        return np.concatenate([[0.0], np.cumsum(self.weights)])

    @cached_property
    def order(self) -> Order:
        """An order in which the ops can be timed."""
        return find_order(self.schedule)

    @cached_property
    def linear(self) -> tuple[Floats, Floats]:
        """Constant and rate of each op's time, shape (ops,) each; a pair's time is a sum."""
        return _own_times(self.schedule, self.base), _own_times(self.schedule, self.rate)

    @cached_property
    def work_cuts(self) -> list[Cut]:
        """Each device's work, as cuts that are valid for any order of the ops."""
        (constant, rate), cuts = self.linear, list[Cut]()
        for device in range(self.schedule.n_devices):
            queue = self.schedule.queue(device)
            work = np.bincount(self.schedule.stage[queue], rate[queue], self.schedule.n_stages)
            cuts.append(Cut(work.astype(np.float64), float(constant[queue].sum())))
        return cuts

    @cached_property
    def held(self) -> NDArray[np.int64]:
        """Possible contents of a device at one time, shape (states, 3, stages).

        They are counts for each part of :class:`Sizes`. States that a larger one includes are left
        out. Microbatches that wait for W count as in flight if they hold as much.
        """
        held = _held_states(
            self.schedule,
            self.sizes is None or np.array_equal(self.sizes.until_i, self.sizes.until_w),
        )
        if self.sizes is None:
            held[:, 0] = 0
        return held

    def costs_at(self, weights: Floats) -> Costs:
        """Return the costs of stages with these weights, shape (stages,)."""
        time = self.base.time + self.rate.time * weights
        pair = (
            None
            if self.base.pair is None or self.rate.pair is None
            else self.base.pair + self.rate.pair * weights
        )
        return replace(self.base, time=time, pair=pair)

    def weigh(self, ends: Ends) -> Floats:
        """Return the weight of each stage, shape (stages, splits).

        ``ends``, shape (stages - 1, splits), are the layers at which stages end.
        """
        until = self.first_weights
        return np.diff(until[ends], axis=0, prepend=0.0, append=until[-1])

    def peaks(self, ends: Ends) -> NDArray[np.int64]:
        """Return a lower bound on the largest peak of any device, in the cap's unit; (splits,)."""
        layers = np.diff(ends.astype(np.int64), axis=0, prepend=0, append=self.n_layers)
        peak = np.zeros(layers.shape[1], np.int64)
        for state in self.held:
            total = np.zeros_like(peak)
            for part, stage in np.argwhere(state):
                held = (
                    layers[stage]
                    if self.sizes is None
                    else self.sizes[part][stage].take(layers[stage])
                )
                total += state[part, stage] * held
            np.maximum(peak, total, out=peak)
        return peak

    def makespans(self, ends: Ends) -> Floats:
        """Return the makespan of every split, shape (splits,), by the faster simulator."""
        if len(self.schedule) > LARGE:
            every = (
                simulate(self.schedule, self.costs_at(weight)) for weight in self.weigh(ends).T
            )
            return np.array([timeline.makespan for timeline in every])
        schedule, (constant, rate) = self.schedule, self.linear
        latency = self.base.latencies(schedule)[:, None]
        second = schedule.second_of_pairs

        def sample(first: int, stop: int) -> Floats:
            weight = self.weigh(ends[:, first:stop])
            time = constant[:, None] + rate[:, None] * weight.take(schedule.stage, axis=0)
            time[second - 1] += time[second]
            return find_ends(self.order, time, latency).max(axis=0)

        return run_in_chunks(sample, ends.shape[1], len(schedule))

    def cut_at(self, ends: Ends) -> Cut:
        """Return the cut of one split's critical path; ``ends`` has shape (stages - 1,)."""
        weight = self.weigh(ends[:, None])[:, 0]
        schedule, timeline = self.schedule, simulate(self.schedule, self.costs_at(weight))
        path = np.zeros(len(schedule), np.bool_)
        op, bound, leads = int(timeline.end.argmax()), timeline.bound, schedule.leads
        while op != NONE:
            op -= not leads[op]
            path[op] = True
            op = int(bound[op])
        path[1:] |= path[:-1] & ~leads[1:]
        rate = np.bincount(schedule.stage[path], self.linear[1][path], schedule.n_stages).astype(
            np.float64
        )
        return Cut(rate, timeline.makespan - float(rate @ weight))

    def bound_by(self, cut: Cut, ends: Ends) -> Floats:
        """Return the bound of every split by a cut, shape (splits,)."""
        found = np.full(ends.shape[1], cut.constant + cut.rate[-1] * self.first_weights[-1])
        for stage, end in enumerate(ends):
            found += ((cut.rate[stage] - cut.rate[stage + 1]) * self.first_weights).take(end)
        return found

    def best_of(self, cut: Cut) -> tuple[float, Ends]:
        """Return the least bound of a cut over all splits, and the ends of that split."""
        S, N = self.schedule.n_stages, self.n_layers
        found, choice = np.zeros(N + 1), np.zeros((S, N + 1), np.int64)
        found[1:] = np.inf
        for stage in range(S):
            lowest = np.minimum.accumulate(found)
            at = np.maximum.accumulate(np.where(found == lowest, np.arange(N + 1), 0))
            shifted = np.concatenate([np.full(self.least_layers, np.inf), lowest])[: N + 1]
            choice[stage] = np.concatenate([np.zeros(self.least_layers, np.int64), at])[: N + 1]
            following = cut.rate[stage + 1] if stage + 1 < S else 0.0
            found = shifted + (cut.rate[stage] - following) * self.first_weights
        ends, at_end = np.zeros(S - 1, np.int16), N
        for stage in range(S - 1, 0, -1):
            at_end = int(choice[stage][at_end])
            ends[stage - 1] = at_end
        return float(found[N]) + cut.constant, ends


def bound_busiest(problem: SplitProblem) -> float:
    """Return a bound on every split by its busiest device.

    It is the time before the device's first op, its work, and the time after its last op. 0 if
    devices have several stages, for which other cuts are as large.
    """
    schedule, N = problem.schedule, problem.n_layers
    if schedule.n_chunks > 1 or schedule.placement.n_replicas > 1 or N > MOST_COMPARED:
        return 0.0
    before, rates = _least_times(problem)
    until, least = problem.first_weights, np.where(np.arange(N + 1) == 0, 0.0, np.inf)
    layers = np.arange(N + 1) - np.arange(N + 1)[:, None]  # [first, end]
    weight = np.where(layers >= 0, until - until[:, None], 0.0)
    for stage, cut in enumerate(problem.work_cuts[int(d)] for d in schedule.placement.devices[0]):
        work = np.where(layers >= problem.least_layers, cut.rate[stage] * weight, np.inf)
        whole = work + cut.constant + before[stage] + (rates * until)[:, None]
        least = np.maximum(least[:, None], whole).min(axis=0)
    return float(least[N])


def _least_times(problem: SplitProblem) -> tuple[Floats, float]:
    """Return the least time of a microbatch to each stage and back: constants, and one rate.

    The way back does not count if W may run last, as the last gradient has then left before.
    """
    constant, rate = shortest_ops(problem, Kind.F)
    if not (problem.schedule.kind == Kind.W).any():
        back = shortest_ops(problem, Kind.B)
        constant, rate = constant + back[0], rate + back[1]
    return np.concatenate([[0.0], np.cumsum(constant)[:-1]]), float(rate.min())


def shortest_ops(problem: SplitProblem, kind: Kind) -> tuple[Floats, Floats]:
    """Return constant and rate of the shortest op of a kind on each stage, shape (stages,) each."""
    schedule = problem.schedule
    least = np.full((2, schedule.n_stages), np.inf)
    ops = np.flatnonzero(schedule.kind == kind)
    for found, times in zip(least, problem.linear, strict=True):
        np.minimum.at(found, schedule.stage[ops], times[ops])
    constant, rate = np.where(np.isfinite(least), least, 0.0)
    return constant, rate


def list_ends(n_layers: int, n_stages: int, least: int) -> Ends:
    """Return all splits as the layers at which stages end, shape (stages - 1, splits)."""
    columns: list[Ends] = []
    last = np.zeros(1, np.int16)
    for stage in range(n_stages - 1):
        most = n_layers - least * (n_stages - 1 - stage)
        count = most - (last.astype(np.int64) + least) + 1
        row = np.repeat(np.arange(len(last)), count)
        step = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        columns = [column[row] for column in columns]
        last = (last[row] + least + step).astype(np.int16)
        columns.append(last)
    return np.stack(columns) if columns else np.zeros((0, 1), np.int16)


def layers_in(ends: Ends, n_layers: int) -> tuple[int, ...]:
    """Return the number of layers of each stage of one split."""
    return tuple(np.diff(ends.astype(np.int64), prepend=0, append=n_layers).tolist())


def _own_times(schedule: Schedule, costs: Costs) -> Floats:
    """Return the duration of each op; those of a pair's ops sum to the pair's time."""
    own = costs.time.ravel()[schedule.kind * np.int64(schedule.n_stages) + schedule.stage]
    factor = costs.factors(schedule)
    factor = np.ones(len(schedule)) if factor is None else factor
    own = own * factor
    second = schedule.second_of_pairs
    if costs.pair is None or not len(second):
        return own
    full = (schedule.kind[second - 1] == Kind.B) | (schedule.kind[second] == Kind.B)
    for op in (second - 1, second):
        measured = costs.pair[schedule.stage[op]] / 2 * (factor[second - 1] + factor[second]) / 2
        own[op] = np.where(full, measured, own[op])
    return own


def _first_of_equals(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the indices of distinct rows of non-negative numbers."""
    radix = rows.max(axis=0, initial=0) + 1
    if np.prod(radix, dtype=np.float64) < 2**62:  # rows as single numbers sort much faster
        rows = rows @ np.cumprod(np.append(1, radix[:-1]))
    return np.unique(rows, axis=0, return_index=True)[1]


def _largest(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the indices of the rows that no other row dominates in all numbers."""
    left, kept = np.arange(len(rows)), list[int]()
    while left.size:
        kept.append(int(left[rows[left].sum(axis=1).argmax()]))
        left = left[(rows[left] > rows[kept[-1]]).any(axis=1)]
    return np.sort(kept)


def _held_states(schedule: Schedule, merged: bool) -> NDArray[np.int64]:
    """Return the contents of devices while an op runs (:attr:`SplitProblem.held`), without
    dominated states.
    """
    flight, whole = (
        schedule.activation_changes(Kind.I).astype(np.int64),
        schedule.activation_changes().astype(np.int64),
    )
    change = np.stack([whole, 0 * whole] if merged else [flight, whole - flight], axis=1)
    second, states = np.append(~schedule.leads[1:], False), []
    for device in range(schedule.n_devices):
        ops = schedule.queue(device)
        stages, column = np.unique(schedule.stage[ops], return_inverse=True)
        table = np.zeros((len(column), 2, len(stages)), np.int64)
        table[np.arange(len(column)), :, column] = change[ops]
        gains = np.maximum(table, 0)
        gains[:, 1] = 0  # memory until W counts from the end of I
        gains[:-1] += np.where(second[ops][:-1, None, None], gains[1:], 0)
        held = (np.cumsum(table, axis=0) - table + gains).reshape(len(column), -1)
        held = held[_first_of_equals(held)]
        held = held[_largest(held)]
        state = np.zeros((len(held), 3, schedule.n_stages), np.int64)
        state[:, 0] = (schedule.placement.devices == device).sum(axis=0)
        state[:, 1:, stages] = held.reshape(len(held), 2, -1)
        states.append(state)
    return np.concatenate(states)
