"""Causes read off the times of a run: latencies, costs, and the input that each op waited for.

For runs whose model is not known: measured ones, and files that state times. Latencies are those
that :mod:`ppsim.engine.simple.terms` measures.
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

# Shares of the makespan below this are rounding.
NEGLIGIBLE = 1e-9
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Observed:
    """A timeline with its latencies, costs and causes."""

    timeline: Timeline  # with the op that each one waited for in ``bound``
    arrival: Floats  # shape (ops,), when each op's input was on its device
    # shape (ops,), from the end of the op that computed the input to ``arrival``, 0 on one device
    latencies: Floats
    # the median time of each kind and stage, with the host's before it, and of each link
    costs: Costs


def observe(timeline: Timeline, received: Floats | None = None) -> Observed:
    """Read latencies, costs and awaited inputs off the times of a run's compute ops.

    ``received`` has shape (ops,): when each op's input was received, NaN where that is not known.
    """
    schedule = timeline.schedule
    if schedule.has_lanes:
        return _observe_streams(timeline)
    known = None if received is None else received[None]
    links = measure_terms(schedule, timeline.start[None], timeline.end[None], known).latency
    latencies = _latencies(timeline, links)
    if received is not None:
        shown = np.flatnonzero(schedule.crosses & ~np.isnan(received))
        ready = timeline.end[schedule.dependency[shown]]
        most = np.maximum(timeline.start[shown] - ready, 0.0)
        latencies[shown] = np.clip(received[shown] - ready, 0.0, most)
    arrival = arrivals(timeline, latencies)
    rounded = np.abs(arrival - timeline.start) <= NEGLIGIBLE * timeline.makespan
    arrival[rounded] = timeline.start[rounded]
    bound = _bound(timeline, arrival)
    observed = replace(timeline, bound=bound)
    return Observed(observed, arrival, latencies, observed_costs(observed, arrival, links))


def _observe_streams(timeline: Timeline) -> Observed:
    """Read the same off a run with several streams per device and no host time.

    A link has the least latency that a message shows, none where other things are always waited for
    as long.
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
        own = np.flatnonzero(schedule.kind == kind)
        of_stage = kind.info.has_stage
        place = (schedule.stage if of_stage else schedule.device)[own]
        others[kind] = np.zeros(schedule.n_stages if of_stage else schedule.n_devices)
        for each in np.unique(place):
            others[kind][each] = np.median(duration[own[place == each]])
    computing = replace(
        timeline, schedule=schedule.compute_only, start=timeline.start[kept], end=timeline.end[kept]
    )
    costs = replace(
        observed_costs(computing, np.full(int(kept.sum()), np.inf), links), others=others
    )
    bound = simulate(schedule, replace(costs, each=duration)).bound
    return Observed(replace(timeline, bound=bound), arrivals(timeline, latencies), latencies, costs)


def _latencies(timeline: Timeline, links: Floats) -> Floats:
    """Shape (ops,): the latency of each op's message, its link's or less where the op started
    earlier.
    """
    schedule, sender = timeline.schedule, find_senders(timeline.schedule)
    sent = np.flatnonzero(sender != NONE)
    most = np.maximum(timeline.start[sent] - timeline.end[sender[sent]], 0.0)
    latencies = np.zeros(len(schedule))
    latencies[sent] = np.minimum(links[schedule.device[sender[sent]], schedule.device[sent]], most)
    return latencies


def observed_costs(timeline: Timeline, arrival: Floats, links: Floats) -> Costs:
    """Return the median time of each kind and stage, plus the host's time before it where its input
    was there early.

    ``arrival``, shape (ops,), is when each op's input was on its device; ``links``, (devices,
    devices), are latencies.
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
        own = (kind == k) & (stage == s)
        alone = own & ~paired
        time[k, s] = (
            _typical_time(duration, gap, alone, early)
            if alone.any()
            else np.median(duration[own]) / 2
        )
    if not (schedule.kind == Kind.R).any():
        time[Kind.R] = time[Kind.F]
    pair = None
    full = paired & np.isin(kind, (Kind.F, Kind.B))
    if full.any():
        pair = time[Kind.F] + time[Kind.B]
        for s in np.unique(stage[full]).tolist():
            own = full & (stage == s)
            pair[s] = _typical_time(duration, gap, own, early)
    return Costs(time, links, pair, timeline.unit)


def previous_op_ends(timeline: Timeline) -> Floats:
    """Shape (ops,): when the op before each one on its device had ended, 0 for a device's first."""
    schedule = timeline.schedule
    free = np.zeros(len(schedule))
    for device in range(schedule.n_devices):
        queue = schedule.queue(device)
        free[queue][1:] = np.maximum.accumulate(timeline.end[queue])[:-1]
    second = schedule.second_of_pairs
    free[second] = free[second - 1]
    return free


def _typical_time(
    duration: Floats, gap: Floats, own: NDArray[np.bool_], early: NDArray[np.bool_]
) -> float:
    """Return the median duration of some ops, plus the median gap before ops with early inputs,
    spread over all.

    Elsewhere the host's time is hidden in the wait for the input.
    """
    host = gap[own & early]
    return float(
        np.median(duration[own]) + (np.median(host) * len(host) / own.sum() if len(host) else 0.0)
    )


def _pair_arrival(schedule: Schedule, arrival: Floats) -> Floats:
    """Return the time at which all inputs of an op had arrived, for a pair of both ops, shape
    (ops,).
    """
    both = arrival.copy()
    second = schedule.second_of_pairs
    both[second] = both[second - 1] = np.maximum(arrival[second], arrival[second - 1])
    return both


def _bound(timeline: Timeline, arrival: Floats) -> NDArray[np.int32]:
    """Shape (ops,): the op that each one waited for: the one before it on its device, or that of
    its later input.
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
