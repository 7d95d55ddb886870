"""Measure the costs of ops, calls and messages in real runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from ppsim.core.costs import Costs
from ppsim.core.execution import Execution
from ppsim.core.ops import COMPUTE, Kind
from ppsim.core.schedule import NONE
from ppsim.real.runs.record import Measured
from ppsim.real.validation.predict import (
    ROUNDS,
    Overheads,
    Site,
    execute_with_calls,
    match_sides,
    posted_times,
    scale_link,
)

Samples = NDArray[np.float64]


def measure_overheads(run: Measured, site: Site) -> Overheads:
    """Average the costs of calls and the message time over all repetitions of a run."""
    schedule = run.lowered.schedule
    sends, matches, _ = match_sides(run.lowered)
    calls, after = (run.end - run.posted)[:, sends], run.end[:, matches] <= run.posted[:, sends]
    first = np.flatnonzero(schedule.leads)
    follows = np.diff(schedule.device[first]) == 0
    gaps = run.posted[:, first[1:][follows]] - run.end[:, first[:-1][follows]]
    latency = _median(_latencies(run), np.nan)
    terms = Overheads(
        announce=_mean(calls[~after], _mean(calls)),
        copy=_mean(calls[after], _mean(calls)),
        receive=_mean((run.end - run.posted)[:, matches]),
        gap=max(_mean(gaps), 0.0),
        preamble=max(float(np.median(run.posted[:, schedule.offsets[:-1]])), 0.0),
        latency=float(np.maximum(latency, 0.0)),  # below zero where a trace does not show the send
        late=_mean(_overshoot(run)) if site.sleeps else 0.0,
    )
    return replace(terms, latency=_uncontended_latency(run, terms, site))


def _uncontended_latency(run: Measured, terms: Overheads, site: Site) -> float:
    """Solve for the message time without contention that reproduces the measured latency under
    contention, in ms.
    """
    if np.isnan(terms.latency) or terms.latency == 0 or not site.cores:
        return terms.latency
    mean = (run.end - run.start)[:, run.lowered.compute_ops].mean(axis=0)
    costs, latency = Costs(run.costs.time, unit="ms", op_times=mean), terms.latency
    for _ in range(ROUNDS):
        scaled = scale_link(site, replace(terms, latency=latency))
        execution = execute_with_calls(run, costs, scaled, terms)
        latency *= terms.latency / _median(_latencies(run, execution), terms.latency)
    return latency


def average_overheads(terms: Sequence[Overheads], *, of_steps: bool = False) -> Overheads:
    """Average the overheads of several runs; latencies over the runs in which ops waited for
    messages.

    For steps of one run, medians are used, which are robust against slow steps.
    """
    average = np.median if of_steps else np.mean
    mean = {
        field.name: np.array([getattr(t, field.name) for t in terms]) for field in fields(Overheads)
    }
    shown = mean["latency"][~np.isnan(mean["latency"])]
    mean["latency"] = shown if len(shown) else np.array([np.nan])
    return Overheads(**{name: float(average(values)) for name, values in mean.items()})


def observed_costs(run: Measured, others: Sequence[Measured], late: float | None = None) -> Costs:
    """Derive a run's costs from the op times of other runs.

    Ops that sleep overshoot by the same amount, ``late``, for all kinds. Times of ops that compute
    come from the same kind and stage in runs with the same number of stages, otherwise from the
    nominal times, scaled by the typical ratio of the kind.
    """
    if late is not None:  # once per op or pair
        return Costs(
            run.costs.time, unit="ms", op_times=run.costs.durations(run.lowered.compute) + late
        )
    time = run.costs.time.copy()
    for kind in COMPUTE:
        ratio = _ratio(others, kind)
        for stage in range(run.lowered.compute.n_stages):
            samples = [
                _times(other, kind, stage)
                for other in others
                if other.lowered.compute.n_stages == time.shape[1]
            ]
            time[kind, stage] = _median(
                np.concatenate([*samples, np.empty(0)]), time[kind, stage] * ratio
            )
    other_kinds = {
        kind: _time_of_other_kind(others, kind, nominal)
        for kind, nominal in run.costs.others.items()
    }
    return replace(run.costs, time=time, pair=_pair_times(run, others), others=other_kinds)


def _time_of_other_kind(others: Sequence[Measured], kind: Kind, nominal: Samples) -> Samples:
    """Return the median time of a kind other than F, B, I and W in other runs; the nominal time if
    no run has this kind.
    """
    samples = [
        (run.end - run.start)[:, run.lowered.schedule.kind == kind].ravel() for run in others
    ]
    return (
        np.full(nominal.shape, _median(np.concatenate(samples), np.nan))
        if any(map(len, samples))
        else nominal
    )


def _overshoot(run: Measured) -> Samples:
    """Return by how much each op in each repetition exceeds its intended time, in ms; pairs count
    once.
    """
    ops, once = run.lowered.compute_ops, run.lowered.compute.leads
    return ((run.end - run.start)[:, ops] - run.costs.durations(run.lowered.compute))[
        :, once
    ].ravel()


def _latencies(run: Measured, execution: Execution | None = None) -> Samples:
    """Return the times from the post of a send to the start of an op that waited for it, measured,
    or predicted by an execution, in ms.
    """
    sends, _, consumers = match_sides(run.lowered)
    if execution is None:
        reached, sent = run.posted[:, consumers], run.posted[:, sends]
        started = run.start[:, consumers]
    else:
        reached, sent = posted_times(execution)[consumers], execution.messages.posted
        started = execution.timeline.start[consumers]
    return (started - sent)[reached < sent]


def _times(run: Measured, kind: int, stage: int) -> NDArray[np.float64]:
    """Average the ops of a kind on a stage in each repetition, in ms.

    Pairs are excluded, since the times of their two ops are not measured separately.
    """
    schedule = run.lowered.schedule
    ops = np.flatnonzero(
        (schedule.kind == kind) & (schedule.stage == stage) & (schedule.pair == NONE)
    )
    return (run.end - run.start)[:, ops].mean(axis=1) if len(ops) else np.empty(0)


def _pair_times(run: Measured, others: Sequence[Measured]) -> NDArray[np.float64] | None:
    """Average the pairs of each stage over runs with the same number of stages; None if a stage has
    no pairs.
    """
    n = run.lowered.compute.n_stages
    total, count = np.zeros(n), np.zeros(n)
    for other in others:
        schedule = other.lowered.schedule
        if schedule.n_stages == n:
            paired = np.flatnonzero(schedule.pair != NONE)
            means = (other.end - other.start)[:, paired].mean(axis=0)
            total += np.bincount(schedule.stage[paired], means, n)
            count += np.bincount(schedule.stage[paired], minlength=n)
    return total / count if count.all() else None


def _ratio(runs: Sequence[Measured], kind: int) -> float:
    """Return measured over nominal time of a kind: the median over the stages of all runs; 1 if no
    run has the kind.
    """
    ratios = [
        float(np.median(samples)) / run.costs.time[kind, stage]
        for run in runs
        for stage in range(run.lowered.compute.n_stages)
        if run.costs.time[kind, stage] > 0 and len(samples := _times(run, kind, stage))
    ]
    return float(np.median(ratios)) if ratios else 1.0


def _mean(values: Samples, otherwise: float = 0.0) -> float:
    return float(values.mean()) if values.size else otherwise


def _median(values: Samples, otherwise: float) -> float:
    return float(np.median(values)) if values.size else otherwise
