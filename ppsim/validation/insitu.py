"""What real runs say about the costs of ops, calls and messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from ppsim.core.costs import Costs
from ppsim.core.execution import Execution
from ppsim.core.ops import COMPUTE, Kind
from ppsim.core.schedule import NONE
from ppsim.runs.record import Measured
from ppsim.validation.predict import (
    ROUNDS,
    Insitu,
    Replayed,
    Site,
    posted,
    settled,
    sides_of,
    taking_turns,
    with_calls,
)

Samples = NDArray[np.float64]


def insitu(run: Measured, site: Site) -> Insitu:
    """Host costs and message time over all repetitions of a run."""
    schedule = run.lowered.schedule
    sends, matches, _ = sides_of(run.lowered)
    calls, after = (run.ended - run.posted)[:, sends], run.ended[:, matches] <= run.posted[:, sends]
    first = np.flatnonzero(schedule.leads)
    follows = np.diff(schedule.device[first]) == 0
    gaps = run.posted[:, first[1:][follows]] - run.ended[:, first[:-1][follows]]
    latency = _median(_latencies(run), np.nan)
    terms = Insitu(
        announce=_mean(calls[~after], _mean(calls)),
        copy=_mean(calls[after], _mean(calls)),
        receive=_mean((run.ended - run.posted)[:, matches]),
        gap=max(_mean(gaps), 0.0),
        preamble=max(float(np.median(run.posted[:, schedule.offsets[:-1]])), 0.0),
        latency=float(np.maximum(latency, 0.0)),  # below zero where a trace does not show the send
        late=_mean(_overshoot(run, run.ended - run.began)) if site.asleep else 0.0,
    )
    return replace(terms, latency=_alone(run, terms, site))


def _alone(run: Measured, terms: Insitu, site: Site) -> float:
    """The time of a message by itself that, with others in its way, makes messages as late as they were."""
    if np.isnan(terms.latency) or terms.latency == 0 or not site.cores:
        return terms.latency
    mean = (run.ended - run.began)[:, run.lowered.compute_ops].mean(axis=0)
    costs, alone = Replayed(run.costs.time, unit="ms", each=mean), terms.latency
    for _ in range(ROUNDS):
        ran = with_calls(run, costs, settled(site, replace(terms, latency=alone)), terms)
        alone *= terms.latency / _median(_latencies(run, ran), terms.latency)
    return alone


def undisturbed(run: Measured, terms: Insitu, site: Site) -> Insitu:
    """How late ops and messages are by themselves, such that waiting for cores makes them as late as they were."""
    if not (site.asleep and site.cores) or terms.late <= 0 or terms.latency <= 0:
        return terms
    latency = _mean(_latencies(run), np.nan)
    found = replace(terms, latency=latency)
    for _ in range(ROUNDS):
        ran = taking_turns(run, insitu_costs(run, [run], found.late), settled(site, found), found)
        late = found.late * terms.late / _mean(_overshoot(run, ran.timeline.end - ran.timeline.start))
        found = replace(found, late=late, latency=found.latency * latency / _mean(_latencies(run, ran), latency))
    return found


def pooled(terms: Sequence[Insitu]) -> Insitu:
    """The mean of several runs' terms; of latencies over the runs that show any."""
    mean = {field.name: np.array([getattr(t, field.name) for t in terms]) for field in fields(Insitu)}
    shown = mean["latency"][~np.isnan(mean["latency"])]
    mean["latency"] = shown if len(shown) else np.array([np.nan])
    return Insitu(**{name: float(values.mean()) for name, values in mean.items()})


def insitu_costs(run: Measured, others: Sequence[Measured], late: float | None = None) -> Costs:
    """The run's costs as other runs had them.

    Ops that only take their time are ``late`` by the same amount whatever they are; ops that compute are looked up
    by kind and stage in runs with as many stages, else scaled as that kind was on average.
    """
    if late is not None:
        pair = None if run.costs.pair is None else run.costs.pair + late
        if pair is None and len(run.lowered.compute.second_of_pairs):
            pair = run.costs.time[Kind.F] + run.costs.time[Kind.B] + late
        return replace(run.costs, time=run.costs.time + late, pair=pair)
    time = run.costs.time.copy()
    for kind in COMPUTE:
        ratio = _ratio(others, kind)
        for stage in range(run.lowered.compute.n_stages):
            seen = [_times(other, kind, stage) for other in others if other.lowered.compute.n_stages == time.shape[1]]
            time[kind, stage] = _median(np.concatenate([*seen, np.empty(0)]), time[kind, stage] * ratio)
    return replace(run.costs, time=time, pair=_pair_times(run, others))


def _overshoot(run: Measured, took: Samples) -> Samples:
    """What ops took, of shape (..., entries), beyond what they were meant to cost; pairs count once."""
    ops, once = run.lowered.compute_ops, run.lowered.compute.leads
    return (took[..., ops] - run.costs.durations(run.lowered.compute))[..., once].ravel()


def _latencies(run: Measured, ran: Execution | None = None) -> Samples:
    """From the post of a send to the start of the op that needs it, of those that waited; in a run or its execution."""
    sends, _, consumers = sides_of(run.lowered)
    reached, sent, began = (
        (run.posted[:, consumers], run.posted[:, sends], run.began[:, consumers])
        if ran is None
        else (posted(ran)[consumers], ran.messages.posted, ran.timeline.start[consumers])
    )
    return (began - sent)[reached < sent]


def _times(run: Measured, kind: int, stage: int) -> NDArray[np.float64]:
    """Mean time of the ops of a kind on a stage in each repetition; pairs do not tell their halves apart."""
    schedule = run.lowered.schedule
    ops = np.flatnonzero((schedule.kind == kind) & (schedule.stage == stage) & (schedule.pair == NONE))
    return (run.ended - run.began)[:, ops].mean(axis=1) if len(ops) else np.empty(0)


def _pair_times(run: Measured, others: Sequence[Measured]) -> NDArray[np.float64] | None:
    """Per stage the mean time of the pairs it is part of, where others with as many stages show each stage's."""
    n = run.lowered.compute.n_stages
    total, count = np.zeros(n), np.zeros(n)
    for other in others:
        schedule = other.lowered.schedule
        if schedule.n_stages == n:
            paired = np.flatnonzero(schedule.pair != NONE)
            means = (other.ended - other.began)[:, paired].mean(axis=0)
            total += np.bincount(schedule.stage[paired], means, n)
            count += np.bincount(schedule.stage[paired], minlength=n)
    return total / count if count.all() else None


def _ratio(runs: Sequence[Measured], kind: int) -> float:
    """Measured over nominal time of a kind, the median over the stages of all runs; 1 where none shows it."""
    ratios = [
        float(np.median(seen)) / run.costs.time[kind, stage]
        for run in runs
        for stage in range(run.lowered.compute.n_stages)
        if run.costs.time[kind, stage] > 0 and len(seen := _times(run, kind, stage))
    ]
    return float(np.median(ratios)) if ratios else 1.0


def _mean(values: Samples, otherwise: float = 0.0) -> float:
    return float(values.mean()) if values.size else otherwise


def _median(values: Samples, otherwise: float) -> float:
    return float(np.median(values)) if values.size else otherwise
