"""Latencies, costs and awaited inputs of a run, derived from its times.

It is for runs without a model: measured ones, and files with times. Latencies are measured by
:mod:`ppsim.engine.simple.terms`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ppsim.analysis.idle import arrivals
from ppsim.core.costs import Costs
from ppsim.core.lanes import find_senders, groups_of, list_waits
from ppsim.core.ops import COMPUTE, Kind
from ppsim.core.schedule import NONE, Schedule
from ppsim.core.timeline import Timeline
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.terms import measure_terms

# Share of the makespan below which a time is due to rounding.
NEGLIGIBLE = 1e-9
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Observed:
    """A timeline with its latencies, costs and causes."""

    timeline: Timeline  # with the awaited ops in ``bound``
    arrival: Floats  # shape (ops,), arrival time of each op's input
    # shape (ops,), from the end of the op that made the input to ``arrival``, 0 on one device
    latencies: Floats
    # the median time of each kind and stage, including host time before it, and of each link
    costs: Costs


def observe(timeline: Timeline, received: Floats | None = None) -> Observed:
    """Return latencies, costs and awaited inputs, derived from the times of a run's compute ops.

    ``received``, shape (ops,), is the time at which each op's input was received, NaN if unknown.
    """
    schedule = timeline.schedule
    if schedule.has_lanes:
        return _observe_streams(timeline)
    known = None if received is None else received[None]
    links = measure_terms(schedule, timeline.start[None], timeline.end[None], known).latency
    latencies = _latencies(timeline, links)
    if received is not None:
        known_ops = np.flatnonzero(schedule.crosses & ~np.isnan(received))
        ready = timeline.end[schedule.dependency[known_ops]]
        most = np.maximum(timeline.start[known_ops] - ready, 0.0)
        latencies[known_ops] = np.clip(received[known_ops] - ready, 0.0, most)
    arrival = arrivals(timeline, latencies)
    rounded = np.abs(arrival - timeline.start) <= NEGLIGIBLE * timeline.makespan
    arrival[rounded] = timeline.start[rounded]
    bound = _bound(timeline, arrival)
    observed = replace(timeline, bound=bound)
    return Observed(observed, arrival, latencies, observed_costs(observed, arrival, links))


def _observe_streams(timeline: Timeline) -> Observed:
    """Return the same for a run with several streams per device and no host time.

    A link's latency is the least of its messages that an op waited for; 0 if no op did.
    """
    schedule, kept, duration = (
        timeline.schedule,
        timeline.schedule.computes,
        timeline.end - timeline.start,
    )
    waits, group = list_waits(schedule), groups_of(schedule)
    free, sender = np.zeros(len(schedule)), find_senders(schedule)
    other = ~waits.message & (group[waits.op] != group[waits.need])
    np.maximum.at(free, group[waits.op[other]], timeline.end[waits.need[other]])
    shown = np.flatnonzero(
        (sender != NONE) & (timeline.start - free[group] > NEGLIGIBLE * timeline.makespan)
    )
    links = np.full((schedule.n_devices,) * 2, np.inf)
    waited = np.maximum(timeline.start[shown] - timeline.end[sender[shown]], 0.0)
    np.minimum.at(links, (schedule.device[sender[shown]], schedule.device[shown]), waited)
    links[np.isinf(links)] = 0.0
    latencies = _latencies(timeline, links)
    others = dict[Kind, Floats]()
    for kind in (Kind(code) for code in np.unique(schedule.kind[~kept])):
        ops = np.flatnonzero(schedule.kind == kind)
        of_stage = kind.info.has_stage
        place = (schedule.stage if of_stage else schedule.device)[ops]
        others[kind] = np.zeros(schedule.n_stages if of_stage else schedule.n_devices)
        for each in np.unique(place):
            others[kind][each] = np.median(duration[ops[place == each]])
    computing = replace(
        timeline, schedule=schedule.compute_only, start=timeline.start[kept], end=timeline.end[kept]
    )
    costs = replace(
        observed_costs(computing, np.full(int(kept.sum()), np.inf), links), others=others
    )
    bound = simulate(schedule, replace(costs, op_times=duration)).bound
    return Observed(replace(timeline, bound=bound), arrivals(timeline, latencies), latencies, costs)


def _latencies(timeline: Timeline, links: Floats) -> Floats:
    """Return the latency of each op's message, shape (ops,).

    It is the link's, or less if the op started earlier.
    """
    schedule, sender = timeline.schedule, find_senders(timeline.schedule)
    sent = np.flatnonzero(sender != NONE)
    most = np.maximum(timeline.start[sent] - timeline.end[sender[sent]], 0.0)
    latencies = np.zeros(len(schedule))
    latencies[sent] = np.minimum(links[schedule.device[sender[sent]], schedule.device[sent]], most)
    return latencies


def observed_costs(timeline: Timeline, arrival: Floats, links: Floats) -> Costs:
    """Return costs with the median time of each kind and stage, including the host's gap before.

    The gap is measured before ops whose input had arrived early. ``arrival``, shape (ops,), is the
    arrival time of each op's input; ``links``, shape (devices, devices), are latencies.
    """
    schedule = timeline.schedule
    kind, stage = schedule.kind.astype(np.int64), schedule.stage
    duration = timeline.end - timeline.start
    free = previous_op_ends(timeline)
    first = np.zeros(len(schedule), bool)
    first[schedule.offsets[:-1][np.diff(schedule.offsets) > 0]] = True
    both = _pair_arrival(schedule, arrival)
    early = ~first & (both <= free)
    gap = np.where(early, np.maximum(timeline.start - free, 0.0), 0.0)
    paired = schedule.pair != NONE
    time = np.zeros((len(COMPUTE), schedule.n_stages))
    for k, s in np.unique(np.stack([kind, stage], 1), axis=0).tolist():
        alike = (kind == k) & (stage == s)
        alone = alike & ~paired
        time[k, s] = (
            _typical_time(duration, gap, alone, early)
            if alone.any()
            else np.median(duration[alike]) / 2
        )
    if not (schedule.kind == Kind.R).any():
        time[Kind.R] = time[Kind.F]
    pair = None
    full = paired & np.isin(kind, (Kind.F, Kind.B))
    if full.any():
        pair = time[Kind.F] + time[Kind.B]
        for s in np.unique(stage[full]).tolist():
            pair[s] = _typical_time(duration, gap, full & (stage == s), early)
    return Costs(time, links, pair, timeline.unit)


def previous_op_ends(timeline: Timeline) -> Floats:
    """Return the end of the op before each op on its device, shape (ops,), 0 for the first."""
    schedule = timeline.schedule
    free = np.zeros(len(schedule))
    for device in range(schedule.n_devices):
        queue = schedule.queue(device)
        free[queue][1:] = np.maximum.accumulate(timeline.end[queue])[:-1]
    second = schedule.second_of_pairs
    free[second] = free[second - 1]
    return free


def _typical_time(
    duration: Floats, gap: Floats, ops: NDArray[np.bool_], early: NDArray[np.bool_]
) -> float:
    """Return the median duration of some ops, plus the median gap before those with early inputs.

    The gap is averaged over all ops: before others the host's time is hidden by the wait for the
    input.
    """
    host = gap[ops & early]
    extra = np.median(host) * len(host) / ops.sum() if len(host) else 0.0
    return float(np.median(duration[ops]) + extra)


def _pair_arrival(schedule: Schedule, arrival: Floats) -> Floats:
    """Return the arrival time of all inputs of each op or its pair, shape (ops,)."""
    both = arrival.copy()
    second = schedule.second_of_pairs
    both[second] = both[second - 1] = np.maximum(arrival[second], arrival[second - 1])
    return both


def _bound(timeline: Timeline, arrival: Floats) -> NDArray[np.int32]:
    """Return the op that each op waited for, shape (ops,).

    It is the op before on its device, or the one that made the later input.
    """
    schedule = timeline.schedule
    second = schedule.second_of_pairs
    need, free = schedule.dependency.copy(), previous_op_ends(timeline)
    later = np.where(arrival[second] > arrival[second - 1], need[second], need[second - 1])
    need[second] = need[second - 1] = later
    before = np.arange(-1, len(schedule) - 1, dtype=np.int32)
    before[schedule.offsets[:-1][np.diff(schedule.offsets) > 0]] = NONE
    before[second] = before[second - 1]
    waits = (need != NONE) & ((_pair_arrival(schedule, arrival) > free) | (before == NONE))
    return np.where(waits, need, before).astype(np.int32)
