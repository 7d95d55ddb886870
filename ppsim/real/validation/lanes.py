"""Predict runs with copies to the host and ops on all devices, by the exact model of several
streams.

Calls of sends and receives and gaps count at the end of the op before them; a message takes the
time that an op waited for it. Ops on all devices start together, once the last is ready and all
have been told so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ppsim.core.costs import Costs
from ppsim.core.execution import Execution, Transfers
from ppsim.core.lanes import groups_of
from ppsim.core.lowered import Lowered
from ppsim.core.ops import Kind, Stream, mask
from ppsim.core.timeline import Timeline
from ppsim.engine.simple.longest_path import simulate
from ppsim.real.runs.lanes import lanes_in, waits_in
from ppsim.real.runs.record import Measured
from ppsim.real.validation.insitu import measure_overheads, observed_costs
from ppsim.real.validation.predict import Overheads, Prediction, Site

Times = NDArray[np.float64]
_EVERYWHERE = mask(kind for kind in Kind if kind.info.on_all_devices)
_NONE, _ZERO = np.empty(0, np.int32), np.empty(0)
NO_MESSAGES = Transfers(
    np.empty(0, np.int64), _NONE, _NONE, _NONE, _NONE, _ZERO, _ZERO, _ZERO, _ZERO, _ZERO, _ZERO
)
FREE = Overheads(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def overheads_of(run: Measured, site: Site) -> Overheads:
    """Measure host costs and message time of a run; with several streams by its sends, receives and
    compute ops.
    """
    lowered = run.lowered
    if not lowered.compute.has_lanes:
        return measure_overheads(run, site)
    schedule, main = lowered.schedule, lanes_in(lowered) == Stream.COMPUTE
    kept = schedule.computes | schedule.communicates
    plain = Lowered(schedule.take(kept), lowered.compute.compute_only, lowered.batch[kept])
    columns = {key: getattr(run, key)[:, kept] for key in ("posted", "start", "end")}
    part = replace(run, lowered=plain, costs=replace(run.costs, others={}), **columns)
    terms = measure_overheads(part, replace(site, cores=0))
    entries = np.flatnonzero(main & schedule.leads)
    follows = np.diff(schedule.device[entries]) == 0
    gaps = run.posted[:, entries[1:][follows]] - run.end[:, entries[:-1][follows]]
    return replace(terms, gap=max(float(gaps.mean()), 0.0))


def predict_lanes(
    run: Measured, others: Sequence[Measured], overheads: Overheads, own: Overheads, site: Site
) -> Prediction:
    """Predict a run at every level, with costs and overheads from ``others``; the replay has the
    run's ``own`` overheads.

    Ops that wait for each other raise Deadlock.
    """
    alone = site.link.alpha + site.link.ms_per_byte * site.message_bytes
    costs = observed_costs(run, others, overheads.late if site.sleeps else None)
    calls = replace(overheads, gap=0.0, preamble=0.0, latency=alone)
    levels = {
        "nominal": _execute(run, run.costs, FREE),
        "link": _execute(run, run.costs, replace(FREE, latency=alone)),
        "host": _execute(run, costs, calls),
        "held-out": _execute(run, costs, overheads, _meeting(others)),
    }
    each, meeting = (run.end - run.start)[:, run.lowered.compute_ops], _meeting([run])
    makespans = {level: np.array([execution.makespan]) for level, execution in levels.items()}
    makespans["replay"] = np.array([_makespan(run, row, own, meeting) for row in each])
    return Prediction(
        makespans,
        levels["held-out"],
        overheads.gap,
        overheads.preamble,
        _floor(run, each, own, meeting),
    )


def _floor(run: Measured, each: Times, terms: Overheads, meeting: float) -> float | None:
    """Predict each repetition from the run's own other ones; returns the median of the absolute
    errors.
    """
    rows = range(len(each))
    if len(rows) < 2:
        return None
    made = [
        _makespan(run, np.delete(each, row, axis=0).mean(axis=0), terms, meeting) for row in rows
    ]
    return float(np.median(np.abs(made / run.makespans - 1)))


def _makespan(run: Measured, each: Times, terms: Overheads, meeting: float) -> float:
    return _execute(run, Costs(run.costs.time, unit="ms", each=each), terms, meeting).makespan


def _meeting(runs: Sequence[Measured]) -> float:
    """Return the median time in which ops on all devices meet after the last is ready; 0 without
    such ops.
    """
    found = [np.empty(0)]
    for run in runs:
        compute, entry = run.lowered.compute, run.lowered.compute_ops
        ready = run.posted[:, entry].copy()
        for op, needs in waits_in(run.lowered).items():
            at = np.searchsorted(entry, op)
            ready[:, at] = np.maximum(ready[:, at], run.end[:, list(needs)].max(axis=1))
        group, met = groups_of(compute), _EVERYWHERE[compute.kind]
        last = np.full((len(compute), len(ready)), -np.inf)
        np.maximum.at(last, group, ready.T)
        found.append((run.start[:, entry].T - last[group])[met].ravel())
    waited = np.concatenate(found)
    return max(float(np.median(waited)), 0.0) if len(waited) else 0.0


def _execute(run: Measured, costs: Costs, terms: Overheads, meeting: float = 0.0) -> Execution:
    """Time all streams; sends and receives take their place behind the op before them."""
    lowered, compute = run.lowered, run.lowered.compute
    after = _time_after(lowered, terms)
    latency = 0.0 if np.isnan(terms.latency) else terms.latency
    took, ahead = costs.durations(compute), np.where(_EVERYWHERE[compute.kind], meeting, 0.0)
    found = simulate(compute, replace(costs, each=ahead + took + after, comm=latency))
    start = found.start + ahead + terms.preamble
    end = start + took
    begun, ended = (spread_over(lowered, each, end, terms.preamble) for each in (start, end))
    total, bound = float(end.max()), np.full(len(begun), -1, np.int32)
    timeline = Timeline(lowered.schedule, begun, ended, bound, "ms", total)
    return Execution(
        lowered, timeline, Timeline(compute, start, end, found.bound, "ms", total), NO_MESSAGES
    )


def _time_after(lowered: Lowered, terms: Overheads) -> Times:
    """Time that sends, receives and gaps take behind each op on its stream until the next, shape
    (compute ops,).
    """
    schedule, ops = lowered.schedule, lowered.compute_ops
    each = np.where((lanes_in(lowered) == Stream.COMPUTE) & schedule.leads, terms.gap, 0.0)
    each[schedule.communicates] += (terms.announce + terms.receive) / 2
    last = _last_op(lowered)
    found = np.bincount(last[last >= 0], each[last >= 0], len(schedule))[ops]
    return found.astype(np.float64)


def spread_over(lowered: Lowered, each: Times, between: Times, first: float = 0.0) -> Times:
    """Put times of ops at their places in the queues; a send or receive has that ``between`` of the
    op before it.
    """
    values = np.zeros(len(lowered.schedule))
    values[lowered.compute_ops] = between
    last = _last_op(lowered)
    values = np.where(last >= 0, values[last], first)
    values[lowered.compute_ops] = each
    return values


def _last_op(lowered: Lowered) -> NDArray[np.int64]:
    """The op of the compute stream at each entry or before it on its device, shape (entries,); -1
    for none.
    """
    schedule = lowered.schedule
    main = (lanes_in(lowered) == Stream.COMPUTE) & ~schedule.communicates
    last = np.maximum.accumulate(np.where(main, np.arange(len(schedule)), -1))
    return np.where(last >= schedule.offsets[schedule.device], last, -1)
