"""Lower bounds on the time of all orders of the same ops, under a memory cap or without one.

A bound is valid for every schedule with the same placement, costs, kinds of ops (backwards full, or
split into I and W, or either) and, if given, memory cap. It is the largest of three bounds:

* heads and tails: before an op its microbatch passes earlier stages (the head), after it the
  gradient returns to stage 0 (the tail). A device that runs a set of ops takes at least the least
  head, all the work, and the least tail;
* the same for another device, whose first start is before those ops and last end after them;
* memory (:mod:`ppsim.search.bounds.memory_bounds`): until its first gradient a device can run only
  as many forwards as its cap allows, after its last forward only the backwards of held activations,
  and in between each held activation makes a round trip.

In 160 small problems with random times and caps on two to four devices, all but one of them solved,
the bound is the optimum in 36 of 40 with one equal stage per device, 30 of 40 with uneven stages,
20 of 40 with two equal stages per device (v and loop), and 4 of 40 with two uneven ones. CP-SAT's
proofs close the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.core.costs import Costs
from ppsim.core.ops import ONCE_A_STEP, TIMED, Kind, Stream, mask
from ppsim.core.schedule import Schedule
from ppsim.search.bounds.memory_bounds import find_windows
from ppsim.search.bounds.work import Floats, Work, build_work, work_of
from ppsim.search.problem import ROUNDING, Objective, Problem

SPLIT = frozenset({Kind.F, Kind.I, Kind.W})
# With more comparisons, each device is compared with itself only; bounds are then slightly weaker.
MOST_COMPARED = 1_000_000


@dataclass(frozen=True)
class Bounds:
    """Lower bounds on the times of all orders of the same ops."""

    makespan: float  # the end of the last op
    span: float  # the longest time from a device's first start to its last end

    def bound_of(self, objective: Objective) -> float:
        """Return the bound of an objective."""
        return self.span if objective == "span" else self.makespan


def limit_bound(bound: float, reached: float, within: float = ROUNDING) -> float:
    """Return a proved bound, limited to a time that is reached.

    Rounding may raise the bound above that time, at most by the share ``within`` of it.

    Raises:
        RuntimeError: the bound is further above the time, so its proof must be wrong.
    """
    if bound > reached * (1 + within):
        raise RuntimeError(f"a bound of {bound:.15g} is proved, and {reached:.15g} is reached")
    return min(bound, reached)


def bound_problem(problem: Problem) -> Bounds:
    """Return bounds for all schedules of a problem.

    Each backward may be B, or I and W; F and B may be a pair if pairs have a time.
    """
    count = np.full((1, problem.n_stages), problem.microbatches, np.int64)
    kinds = SPLIT | {Kind.B} if problem.joins.any() or problem.pairs else SPLIT
    work = build_work(
        problem.placement, count, problem.costs, kinds, problem.pairs, problem.microbatches
    )
    return bound_work(work, problem.caps, problem.after_i, problem.amounts)


def bound_schedule(
    schedule: Schedule, costs: Costs, caps: float | Sequence[float] | NDArray[Any] | None = None
) -> Bounds:
    """Return lower bounds for every order of a schedule's ops on the same devices.

    Backwards are full or split as in the schedule, or either if it has both; F and B may be pairs
    if it has pairs. ``caps`` is the memory cap in activations of one stage, one number or one per
    device.
    """
    # the steps of a batch follow each other, with other ops in between
    if schedule.feeds_back:
        free = bound_schedule(replace(schedule, feeds_back=False), costs, caps)
        took = costs.durations(schedule) + costs.latencies(schedule)
        around = np.bincount(schedule.microbatch % schedule.round_microbatches, took).max(
            initial=0.0
        )
        return Bounds(max(free.makespan, float(around)), free.span)
    if (schedule.kind == Kind.NORM).any() and costs.op_times is None:
        return _bound_steps(schedule, costs, caps)
    # copies to the host free memory, so the cap does not limit the order of compute ops
    if schedule.has_lanes:
        computing = (
            np.array([kind.info.stream == Stream.COMPUTE for kind in TIMED])[schedule.kind]
            & schedule.leads
        )
        took = costs.durations(schedule)
        busy = np.bincount(schedule.device, np.where(computing, took, 0.0))
        alone = (
            bound_schedule(schedule.compute_only, costs) if costs.op_times is None else Bounds(0, 0)
        )
        most = float(busy.max(initial=0.0))
        encoded = alone.makespan + _encoder_time(schedule, took)
        return Bounds(max(most, encoded), max(most, alone.span))
    work = None if costs.op_times is not None else work_of(schedule, costs)
    # ops are missing, repeated or have individual times: only the devices' busy time is a bound
    if work is None:
        busy = np.bincount(
            schedule.device, np.where(schedule.leads, costs.durations(schedule), 0.0)
        )
        return Bounds(float(busy.max(initial=0.0)), float(busy.max(initial=0.0)))
    return bound_work(work, np.inf if caps is None else np.asarray(caps, np.float64), 1.0)


def _bound_steps(
    schedule: Schedule, costs: Costs, caps: float | Sequence[float] | NDArray[Any] | None
) -> Bounds:
    """Return bounds for steps that all devices end together, with a norm before the optimizer.

    Each step takes its ops, then the longest optimizer step of any device.
    """
    from ppsim.core.rounds import take_rounds

    one, prices = take_rounds(schedule, costs, 1)
    others = ~one.computes & ~mask(ONCE_A_STEP)[one.kind]
    step = bound_schedule(one.compute_only, prices, None if others.any() else caps)
    optimizer = prices.durations(one)[one.kind == Kind.OPT].max(initial=0.0)
    whole = schedule.n_rounds * (step.makespan + float(optimizer))
    return Bounds(whole, min(whole, max(step.span, whole - step.makespan)))


def bound_either(schedule: Schedule, costs: Costs) -> float:
    """Return a lower bound on the makespan of all orders with full or split backwards.

    It is for any memory. NaN if ops run in parallel with compute, go round, or have individual
    times.
    """
    if schedule.has_lanes or schedule.feeds_back or costs.op_times is not None:
        return float("nan")
    work = work_of(schedule, costs, SPLIT | {Kind.B})
    return float("nan") if work is None else bound_work(work, np.inf, 1.0).makespan


def _encoder_time(schedule: Schedule, durations: NDArray[np.float64]) -> float:
    """Return the least time of an encoder's forward and, after B, of its backward.

    0 for either unless all microbatches have one.
    """
    kinds = [Kind.EF] if (schedule.kind == Kind.W).any() else [Kind.EF, Kind.EB]
    times = [durations[schedule.kind == kind] for kind in kinds]
    return float(sum(each.min() for each in times if len(each) == schedule.n_microbatches > 0))


def bound_work(
    work: Work,
    caps: float | NDArray[np.float64],
    after_i: float,
    amounts: NDArray[np.int64] | None = None,
) -> Bounds:
    """Return lower bounds for all orders of this work on devices with memory caps in activations.

    ``amounts`` are the activations that an F of each stage allocates, 1 by default.
    """
    classes, lowest = _classes(work), _lowest(work)
    spans = _spans(work, classes)
    makespan = max(
        work.longest, float(_best_sets(classes.head, classes.tail, classes.runs).max(initial=0.0))
    )
    amounts = np.ones(work.placement.n_stages, np.int64) if amounts is None else amounts
    windows = find_windows(work, np.broadcast_to(caps, work.placement.n_devices), after_i, amounts)
    if windows is not None:
        whole, gradients = windows
        low, used = np.maximum(lowest[0], 0), lowest[0] >= 0
        began, end = work.begin[0, low], (work.turn + work.gradient)[0, low]
        # The gradient of the last microbatch continues to each lower stage, where W follows.
        onward = began + gradients - end
        order = np.argsort(-low)
        reach = np.maximum.accumulate(np.where(used, onward, -np.inf)[order])[np.argsort(order)]
        spans = np.where(
            used, np.maximum.reduce([spans, whole, reach + end + work.rest[0, low] - began]), spans
        )
    # A device starts when a microbatch has passed the stages before its lowest one.
    heads = np.where(
        lowest >= 0, np.take_along_axis(work.begin, np.maximum(lowest, 0), axis=1), np.inf
    ).min(axis=0)
    busy = np.isfinite(heads)
    makespan = max(makespan, float((heads + spans)[busy].max(initial=0.0)))
    return Bounds(makespan, float(spans.max(initial=0.0)))


@dataclass(frozen=True)
class Classes:
    """The ops of each device in classes with the same head and tail: F, gradient, W or R of a row.

    Every array has shape (devices, classes).
    """

    head: Floats  # least time before an op, from the start of the iteration; NaN for no class
    tail: Floats  # least time after an op
    runs: Floats  # time of all microbatches
    row: NDArray[np.int64]  # the row (replica x stages + stage) of the class, -1 for none
    kind: NDArray[np.int64]  # 0 to 3 in the order above


def _classes(work: Work) -> Classes:
    """Return the classes of ops by device."""
    device, seat = work.placement.devices.ravel(), work.placement.chunk.ravel()
    kinds = np.flatnonzero(work.runs.any(axis=(1, 2)) | (np.arange(4) == 0))
    end = work.turn + work.gradient
    done = (end + work.rest).max(axis=1, keepdims=True)
    head = np.stack([work.begin, work.turn, end, work.begin + work.forward])
    tail = np.stack(
        [done - work.begin - work.forward, work.after, 0 * end, work.gradient + work.after]
    )
    head = np.where((work.count > 0) & (work.runs > 0), head, np.nan)
    shape = (work.placement.n_devices, int(seat.max()) + 1, len(kinds))

    def arrange(values: NDArray[Any], none: float) -> NDArray[Any]:
        table = np.full(shape, none, values.dtype)
        table[device, seat] = values[kinds].reshape(len(kinds), -1).T
        return table.reshape(shape[0], -1)

    row = np.broadcast_to(np.arange(len(device)), (4, len(device)))
    kind = np.broadcast_to(np.arange(4)[:, None], (4, len(device)))
    return Classes(
        arrange(head, np.nan),
        arrange(tail, np.nan),
        arrange(work.runs, 0),
        arrange(row, -1),
        arrange(kind, 0),
    )


def _best_sets(head: Floats, tail: Floats, runs: Floats) -> Floats:
    """Return the largest bound of all sets of classes: least head, plus work, plus least tail.

    Classes are the last axis. Those whose head or tail is NaN belong to no set.
    """
    known = ~(np.isnan(head) | np.isnan(tail))
    runs = np.where(known, runs, 0.0)
    head, tail = np.where(known, head, -np.inf), np.where(known, tail, -np.inf)
    # by a set's least tail, then by op
    belongs = tail[..., None, :] >= tail[..., :, None]
    best = np.zeros(head.shape[:-1])
    for one in range(head.shape[-1]):
        least = head[..., one, None]
        late = np.where(head >= least, runs, 0.0)
        total = np.where(belongs, late[..., None, :], 0.0).sum(axis=-1)
        found = np.where(total > 0, least + total + tail, 0.0)
        np.maximum(best, found.max(axis=-1, initial=0.0), out=best)
    return best


def _lowest(work: Work) -> NDArray[np.int64]:
    """Return the lowest stage of each replica on a device, -1 for none; (replicas, devices)."""
    lowest = np.full((len(work.count), work.placement.n_devices), work.count.shape[1], np.int64)
    for row, devices in enumerate(work.placement.devices):
        used = np.flatnonzero(work.count[row] > 0)
        np.minimum.at(lowest[row], devices[used], used)
    return np.where(lowest < work.count.shape[1], lowest, -1)


def _spans(work: Work, classes: Classes) -> Floats:
    """Return bounds on the time from each device's first start to its last end, shape (devices,).

    Memory is ignored.
    """
    P, width = classes.head.shape
    if not work.has_backwards:
        return classes.runs.sum(axis=1)
    mine = np.arange(P)[:, None]
    if P * P * width**3 > MOST_COMPARED:
        return _span_bounds(work, classes, mine, mine)[:, 0]
    return _span_bounds(work, classes, mine, np.broadcast_to(mine.T, (P, P))).max(axis=1)


def _span_bounds(
    work: Work, classes: Classes, device: NDArray[np.int64], other: NDArray[np.int64]
) -> Floats:
    """Return bounds on the spans of devices from ops of ``other`` devices; the indices broadcast.

    An op that follows a microbatch's F on the lowest stage of ``device`` runs after the device's
    first start. An op that precedes that stage's gradient runs before the device's last end, by at
    least W.
    """
    stages = work.count.shape[1]
    row, kind = classes.row[other], classes.kind[other]
    replica, stage = np.divmod(row, stages)
    low = _lowest(work)[replica, device[..., None]]
    known = (low >= 0) & (row >= 0)
    end = work.turn + work.gradient
    first, last = work.begin[replica, low], (end + work.rest)[replica, low]
    same_device = np.broadcast_to((device == other)[..., None], row.shape)
    above = stage >= low
    # An F of a lower stage may run before the device starts; it then bounds another device's span.
    head = np.where(
        known & (above | (kind == 1) | (kind == 2)), classes.head[other] - first, np.nan
    )
    leave = [work.begin + work.forward, end, end, work.turn]
    tail = last - np.choose(kind, [table[replica, stage] for table in leave])
    tail = np.where(kind == 2, 0.0, tail)
    tail = np.where(np.choose(kind, [True, above, same_device, above]), tail, np.nan)
    return _best_sets(head, tail, classes.runs[other])
