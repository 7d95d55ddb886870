"""Work that every order of a pipeline's ops must do: least times per stage, and chains of stages.

A *row* is one stage of one replica. For each microbatch it runs a forward, the part of the backward
that makes the gradient (I, or all of B), and the rest (W). If a schedule may choose between B, or I
and W, or pairs, the shortest time counts, so that a bound is valid for every choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ppsim.core.costs import Costs
from ppsim.core.ops import Kind
from ppsim.core.schedule import Placement, Schedule
from ppsim.search.problem import latencies

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Work:
    """Times of a pipeline's ops; every array has shape (replicas, stages)."""

    placement: Placement  # the device of each stage
    count: NDArray[np.int64]  # microbatches of each row
    # shape (4, replicas, stages): the time that a device spends on F, the gradient, the rest and R,
    # all microbatches together
    runs: Floats
    forward: Floats  # least time from the start of an F until its result leaves
    gradient: Floats  # the same for I or B
    rest: Floats  # least time of W; zero for full backwards
    recompute: Floats  # least time of R; zero without recompute
    latency: Floats  # shape (2, replicas, stages): latency of the inputs of F and of backwards
    # whether all microbatches take the same time, pairs save no time, and every F allocates as much
    # as its backward frees
    is_uniform: bool
    frees: Floats  # least time of the op that frees an activation, W or B
    has_backwards: bool
    # the time of the slowest microbatch alone, from its first F to its last op
    longest: float

    @cached_property
    def begin(self) -> Floats:
        """Least time from the first stage's start to the start of each F, of one microbatch."""
        return np.cumsum(self.latency[0] + _neighbour_values(self.forward, 1), axis=1)

    @cached_property
    def turn(self) -> Floats:
        """Least time from the first stage's start to the start of each backward."""
        top = self.begin[:, -1:] + self.forward[:, -1:] + self.recompute[:, -1:]
        steps = self.latency[1] + _neighbour_values(self.gradient, -1)
        return top + np.cumsum(steps[:, ::-1], axis=1)[:, ::-1]

    @cached_property
    def after(self) -> Floats:
        """Least time from the end of each gradient to the end of its microbatch's last op."""
        # The gradient goes on to a stage t, whose W follows: the longest over all t up to this one.
        done = self.turn + self.gradient
        return np.maximum.accumulate(done + self.rest, axis=1) - done


def _neighbour_values(values: Floats, by: int) -> Floats:
    """Return the values of the stage before (1) or after (-1), zero for the first or last stage."""
    moved = np.zeros_like(values)
    if by > 0:
        moved[:, 1:] = values[:, :-1]
    else:
        moved[:, :-1] = values[:, 1:]
    return moved


def work_of(schedule: Schedule, costs: Costs, more: frozenset[Kind] = frozenset()) -> Work | None:
    """Return the work of a schedule's ops; None unless every stage runs once on every microbatch.

    ``more`` are further kinds that may replace the schedule's backwards.
    """
    placement, M = schedule.placement, schedule.n_microbatches
    if not schedule.only_computes or not len(schedule) or (kinds := _kinds(schedule)) is None:
        return None
    count = _counts(schedule)
    # a device with the same stage of two replicas counts its ops for both
    if (count.sum(axis=0) != M).any():
        return None
    paired = bool(len(schedule.second_of_pairs)) and costs.pair is not None
    if paired and not _pairs_are_plain(schedule):
        return None
    return build_work(placement, count, costs, kinds | more, paired, M)


def _kinds(schedule: Schedule) -> frozenset[Kind] | None:
    """Return the kinds of a schedule's ops.

    None unless each stage and microbatch has one F, and one backward and R or none.
    """
    S, M = schedule.n_stages, schedule.n_microbatches
    found = np.bincount(schedule.kind, minlength=5)[:5]
    f, b, i, w, r = found.tolist()
    if f != S * M or b + i not in (0, S * M) or i != w or r not in (0, S * M):
        return None
    return frozenset(kind for kind, n in zip(list(Kind)[:5], found.tolist(), strict=True) if n)


def _counts(schedule: Schedule) -> NDArray[np.int64]:
    """Return the number of microbatches of each row, shape (replicas, stages)."""
    devices = schedule.placement.devices
    if len(devices) == 1:
        return np.full(devices.shape, schedule.n_microbatches, np.int64)
    forward = schedule.kind == Kind.F
    stage, device = schedule.stage[forward], schedule.device[forward]
    return np.stack(
        [np.bincount(stage[row[stage] == device], minlength=schedule.n_stages) for row in devices]
    )


def _pairs_are_plain(schedule: Schedule) -> bool:
    """Return True if every pair with a full backward consists of F and B."""
    first, second = schedule.kind[schedule.first_of_pairs], schedule.kind[schedule.second_of_pairs]
    full = (first == Kind.B) | (second == Kind.B)
    return bool((((first == Kind.F) | (second == Kind.F)) | ~full).all())


def build_work(
    placement: Placement,
    count: NDArray[np.int64],
    costs: Costs,
    kinds: frozenset[Kind],
    paired: bool,
    microbatches: int,
) -> Work:
    """Return the work of schedules with these kinds of ops; ``paired`` if F and B may be pairs."""
    scale = costs.scale if costs.scale is not None else np.ones((5, microbatches))
    speed = costs.speed if costs.speed is not None else np.ones(placement.n_devices)
    time = costs.time[:, None, :] / speed[placement.devices]
    least, whole = scale.min(axis=1)[:, None, None], scale.sum(axis=1)[:, None, None]
    # If a microbatch may choose between B, or I and W, or a pair, the least time counts for each.
    alone = (count == microbatches) & (not paired) & (not kinds >= {Kind.B, Kind.I})
    total = time * np.where(alone, whole, count * least)
    shortest = time * least
    halves = _halve(total, kinds), _halve(shortest, kinds)
    runs = np.stack([total[Kind.F], *halves[0], total[Kind.R] * (Kind.R in kinds)])
    forward, (gradient, rest) = shortest[Kind.F], halves[1]
    uniform = costs.scale is None and Kind.R not in kinds
    if paired:
        assert costs.pair is not None
        pair = costs.pair / speed[placement.devices] * min(least[Kind.F, 0, 0], least[Kind.B, 0, 0])
        saved = _join(placement, pair, runs, forward, gradient, rest, count)
        uniform = uniform and np.array_equal(saved[0], runs)
        runs, forward, gradient, rest = saved
    backward = bool(kinds & {Kind.B, Kind.I})
    recompute = shortest[Kind.R] * (Kind.R in kinds and backward)
    latency = latencies(placement, costs.comm, backward)
    # if there are both, B takes longer than W adds to I
    frees = rest if Kind.I in kinds else gradient
    longest = 0.0 if paired else _longest(time, scale, kinds, latency)
    return Work(
        placement,
        count,
        runs,
        forward,
        gradient,
        rest,
        recompute,
        latency,
        uniform,
        frees,
        backward,
        longest,
    )


def _halve(time: Floats, kinds: frozenset[Kind]) -> tuple[Floats, Floats]:
    """Return the time of a backward until its gradient, and that of the rest.

    If both B and I occur, each is the smaller of the two.
    """
    full, split = (time[Kind.B], time[Kind.B]), (time[Kind.I], time[Kind.I] + time[Kind.W])
    chosen = [pair for kind, pair in ((Kind.B, full), (Kind.I, split)) if kind in kinds] or [
        (0 * full[0], 0 * full[0])
    ]
    first = np.minimum.reduce([pair[0] for pair in chosen])
    whole = np.minimum.reduce([pair[1] for pair in chosen])
    return first, whole - first


def _longest(time: Floats, scale: Floats, kinds: frozenset[Kind], latency: Floats) -> float:
    """Return the time of the slowest microbatch alone, on the replica that is fastest for it."""
    if Kind.B in kinds and Kind.I in kinds:
        return 0.0
    back, last = (Kind.B, None) if Kind.B in kinds else (Kind.I, Kind.W)
    chain = scale[Kind.F][:, None] * time[Kind.F].sum(axis=-1) + latency.sum(axis=(0, 2))
    if kinds & {Kind.B, Kind.I}:
        chain = chain + scale[back][:, None] * time[back].sum(axis=-1)
        if last is not None:
            chain = chain + scale[last][:, None] * time[last][:, 0]
    return float(chain.min(axis=1).max())


def _join(
    placement: Placement,
    pair: Floats,
    runs: Floats,
    forward: Floats,
    gradient: Floats,
    rest: Floats,
    count: NDArray[np.int64],
) -> tuple[Floats, Floats, Floats, Floats]:
    """Lower op times to what pairing F with B could reach.

    A pair of stages s and t takes (pair[s] + pair[t]) / 2. So a device spends at least x[s] on each
    F and y[t] on each B, if x <= t_F, y <= t_B and x[s] + y[t] is never more than a pair's time.
    Such are x = pair[s] / 2 - shift and y = pair[t] / 2 + shift.
    """
    runs, forward, gradient, rest = runs.copy(), forward.copy(), gradient.copy(), rest.copy()
    divisor = np.maximum(count, 1)
    for device in range(placement.n_devices):
        here = placement.devices == device
        half, f, b, w = pair[here] / 2, *(runs[row][here] / divisor[here] for row in range(3))
        if not len(half) or (np.add.outer(half, half) >= np.add.outer(f, b + w)).all():
            continue
        low = half.min()
        shifts = np.clip(np.concatenate([half - f, b - half, [0.0]]), -low, low)[:, None]
        x, y = np.minimum(f, half - shifts), np.minimum(b, half + shifts)
        best = int(((x + y) * count[here]).sum(axis=1).argmax())
        runs[0][here], runs[1][here] = x[best] * count[here], y[best] * count[here]
        runs[2][here] = rest[here] = 0.0
        forward[here], gradient[here] = (
            np.minimum(forward[here], half + low),
            np.minimum(gradient[here], half + low),
        )
    return runs, forward, gradient, rest
