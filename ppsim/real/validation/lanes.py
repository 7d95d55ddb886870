"""Predict runs with copies to the host or ops on all devices, by the exact model of several
streams.

The time of send and receive calls and of gaps is added to the op before them. A message takes the
measured latency. Ops on all devices start together: when the last device is ready, plus the time to
synchronize.
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
_ON_ALL_DEVICES = mask(kind for kind in Kind if kind.info.on_all_devices)
_NONE, _ZERO = np.empty(0, np.int32), np.empty(0)
NO_MESSAGES = Transfers(
    np.empty(0, np.int64), _NONE, _NONE, _NONE, _NONE, _ZERO, _ZERO, _ZERO, _ZERO, _ZERO, _ZERO
)
FREE = Overheads(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def overheads_of(run: Measured, site: Site) -> Overheads:
    """Measure the costs of calls and the message time in a run; of a run with several streams, only
    sends, receives and compute ops are used.
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
    """Predict a run at every level, with costs and ``overheads`` of ``others``; the replay uses the
    run's ``own`` overheads (Deadlock: ops wait for each other).
    """
    alone = site.link.alpha + site.link.ms_per_byte * site.message_bytes
    costs = observed_costs(run, others, overheads.late if site.sleeps else None)
    calls = replace(overheads, gap=0.0, preamble=0.0, latency=alone)
    levels = {
        "nominal": _execute(run, run.costs, FREE),
        "link": _execute(run, run.costs, replace(FREE, latency=alone)),
        "host": _execute(run, costs, calls),
        "held-out": _execute(run, costs, overheads, _time_to_synchronize(others)),
    }
    each, meeting = (run.end - run.start)[:, run.lowered.compute_ops], _time_to_synchronize([run])
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
    """Return the median absolute error of repetitions predicted from the run's other repetitions;
    None for a single repetition.
    """
    rows = range(len(each))
    if len(rows) < 2:
        return None
    predicted = [
        _makespan(run, np.delete(each, row, axis=0).mean(axis=0), terms, meeting) for row in rows
    ]
    return float(np.median(np.abs(predicted / run.makespans - 1)))


def _makespan(run: Measured, each: Times, terms: Overheads, meeting: float) -> float:
    """Predict the makespan in ms from the time of each op."""
    return _execute(run, Costs(run.costs.time, unit="ms", op_times=each), terms, meeting).makespan


def _time_to_synchronize(runs: Sequence[Measured]) -> float:
    """Return the median time from when the last device is ready to the start of an op on all
    devices, in ms; 0 without such ops.
    """
    found = [np.empty(0)]
    for run in runs:
        compute, entry = run.lowered.compute, run.lowered.compute_ops
        ready = run.posted[:, entry].copy()
        for op, needs in waits_in(run.lowered).items():
            at = np.searchsorted(entry, op)
            ready[:, at] = np.maximum(ready[:, at], run.end[:, list(needs)].max(axis=1))
        group, on_all = groups_of(compute), _ON_ALL_DEVICES[compute.kind]
        last = np.full((len(compute), len(ready)), -np.inf)
        np.maximum.at(last, group, ready.T)
        found.append((run.start[:, entry].T - last[group])[on_all].ravel())
    waited = np.concatenate(found)
    return max(float(np.median(waited)), 0.0) if len(waited) else 0.0


def _execute(run: Measured, costs: Costs, terms: Overheads, meeting: float = 0.0) -> Execution:
    """Execute the ops of all streams; sends and receives follow the op before them without taking
    time.
    """
    lowered, compute = run.lowered, run.lowered.compute
    after = _time_after(lowered, terms)
    latency = 0.0 if np.isnan(terms.latency) else terms.latency
    took, ahead = costs.durations(compute), np.where(_ON_ALL_DEVICES[compute.kind], meeting, 0.0)
    found = simulate(compute, replace(costs, op_times=ahead + took + after, comm=latency))
    start = found.start + ahead + terms.preamble
    end = start + took
    starts, ends = (spread_over(lowered, each, end, terms.preamble) for each in (start, end))
    total, bound = float(end.max()), np.full(len(starts), -1, np.int32)
    timeline = Timeline(lowered.schedule, starts, ends, bound, "ms", total)
    return Execution(
        lowered, timeline, Timeline(compute, start, end, found.bound, "ms", total), NO_MESSAGES
    )


def _time_after(lowered: Lowered, terms: Overheads) -> Times:
    """Return the time of sends, receives and gaps between each op and the next op on its stream,
    shape (compute ops,), in ms.
    """
    schedule, ops = lowered.schedule, lowered.compute_ops
    each = np.where((lanes_in(lowered) == Stream.COMPUTE) & schedule.leads, terms.gap, 0.0)
    each[schedule.communicates] += (terms.announce + terms.receive) / 2
    last = _last_op(lowered)
    found = np.bincount(last[last >= 0], each[last >= 0], len(schedule))[ops]
    return found.astype(np.float64)


def spread_over(lowered: Lowered, each: Times, between: Times, first: float = 0.0) -> Times:
    """Return a time per entry of the queues: ``each`` for ops; sends and receives take the time
    ``between`` of the op before them, or ``first`` before the first op.
    """
    values = np.zeros(len(lowered.schedule))
    values[lowered.compute_ops] = between
    last = _last_op(lowered)
    values = np.where(last >= 0, values[last], first)
    values[lowered.compute_ops] = each
    return values


def _last_op(lowered: Lowered) -> NDArray[np.int64]:
    """Return the last op of the compute stream at or before each entry on its device, shape
    (entries,); -1 if there is none.
    """
    schedule = lowered.schedule
    main = (lanes_in(lowered) == Stream.COMPUTE) & ~schedule.communicates
    last = np.maximum.accumulate(np.where(main, np.arange(len(schedule)), -1))
    return np.where(last >= schedule.offsets[schedule.device], last, -1)
