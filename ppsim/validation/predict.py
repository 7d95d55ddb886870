"""Predictions of a measured run, from the simplest model to a replay, so that each step's error can be told apart.

==========  =======================================================================================
nominal     the ops' own costs, messages free
link        + latency and bandwidth of a message, measured alone before the run
host        + what ops and the send and receive calls really cost, taken from other schedules' runs
held-out    + latency of a message and gap between actions, as those runs had them
replay      the run's own op times in each repetition: what is still wrong is the model, not the costs
==========  =======================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.costs import Costs
from ppsim.execute import Execution, execute
from ppsim.lowered import SENDS
from ppsim.network import Host, Network, Shared
from ppsim.ops import Kind
from ppsim.schedule import NONE, Schedule
from ppsim.validation.record import Measured
from ppsim.wiring import wire

ROUNDS = 3
Samples = NDArray[np.float64]
LEVELS = ("nominal", "link", "host", "held-out", "replay")


@dataclass(frozen=True)
class Link:
    """A message between two processes with nothing else going on, in ms and bytes.

    Attributes:
        alpha: latency.
        ms_per_byte: inverse bandwidth.
        late: what is added when the receive is posted after the send.
    """

    alpha: float = 0.0
    ms_per_byte: float = 0.0
    late: float = 0.0


@dataclass(frozen=True)
class Site:
    """Where messages travel.

    Attributes:
        link: one message alone.
        message_bytes: size of every message.
        cores: processors that all devices share; 0 where the devices compute and send by themselves.
    """

    link: Link = Link()
    message_bytes: int = 0
    cores: int = 0


@dataclass(frozen=True)
class Replayed(Costs):
    """Costs with a duration of its own for every op.

    Attributes:
        each: shape (ops,), of the compute schedule.
    """

    each: NDArray[np.float64] | None = None

    def durations(self, schedule: Schedule) -> NDArray[np.float64]:
        """Shape (ops,): the measured durations."""
        assert self.each is not None
        return self.each


@dataclass(frozen=True)
class Insitu:
    """What runs say about everything but the ops, in ms.

    A send whose receive is already posted copies its message at once, in the call; any other only announces it.

    Attributes:
        announce: a send call before its receive.
        copy: a send call after its receive.
        receive: a receive call.
        gap: between two actions of a device.
        preamble: from the common start to the first action.
        latency: of a message by itself, from the post of its send to the start of an op that was waiting for it;
            NaN where none waited.
    """

    announce: float
    copy: float
    receive: float
    gap: float
    preamble: float
    latency: float


def compute_ops(run: Measured) -> NDArray[np.int64]:
    """Where the compute ops stand in the lowered queues, in the order of ``run.lowered.compute``."""
    return np.flatnonzero(run.lowered.schedule.kind <= Kind.W)


def predict(
    run: Measured, others: Sequence[Measured], terms: Sequence[Insitu], site: Site, timed: bool
) -> dict[str, Execution]:
    """One execution per level but the replay, with costs from ``others`` and ``terms``, those of the same runs."""
    costs, found = insitu_costs(run, others, timed), pooled(terms)
    calls = replace(found, gap=0.0, preamble=0.0)
    return {
        "nominal": execute(run.lowered, run.costs, Network()),
        "link": execute(run.lowered, run.costs, network(run, site)),
        "host": with_calls(run, costs, site, calls),
        "held-out": with_calls(run, costs, settled(site, found), found),
    }


def replay(run: Measured, terms: Insitu, site: Site) -> NDArray[np.float64]:
    """Shape (repetitions,): makespans predicted from each repetition's own op times, ms."""
    each = (run.ended - run.began)[:, compute_ops(run)]
    costs = [Replayed(run.costs.time, unit="ms", each=row) for row in each]
    return np.array([with_calls(run, c, settled(site, terms), terms).makespan for c in costs])


def with_calls(run: Measured, costs: Costs, site: Site, terms: Insitu) -> Execution:
    """An execution in which every send costs what it costs before or after its receive, whichever it turns out to be.

    Which of the two comes first depends on the costs in turn: begun half and half, it settles within a few rounds.
    """
    after = np.full(int(np.isin(run.lowered.schedule.kind, SENDS).sum()), 0.5)
    for _ in range(ROUNDS):
        calls = terms.announce + (terms.copy - terms.announce) * after
        host = Host(send=calls, receive=terms.receive, gap=terms.gap, preamble=terms.preamble)
        execution = execute(run.lowered, costs, network(run, site, host))
        messages = execution.messages
        found = (messages.awaited + terms.receive <= messages.posted).astype(np.float64)
        if (found == after).all():
            break
        after = found
    return execution


def network(run: Measured, site: Site, host: Host | None = None) -> Network:
    """Messages between processes of one host.

    They share what a process can send and receive, and what all cores together can copy: one link's worth each.
    """
    host, devices, link = host or Host(), run.lowered.schedule.n_devices, site.link
    if link.ms_per_byte <= 0:
        return Network(mode="overlap", channel="message", alpha=link.alpha, late=link.late, host=host)
    beta, each, together = 1.0 / link.ms_per_byte, np.arange(devices), np.zeros(devices, np.int64)
    shared = (Shared(beta, each), *([Shared(site.cores * beta, together)] if site.cores else []))
    size = float(site.message_bytes)
    return Network("overlap", "message", link.alpha, beta, message=size, late=link.late, host=host, shared=shared)


def settled(site: Site, terms: Insitu) -> Site:
    """The site with the message time that runs had: latency and copying slower than alone by one factor."""
    link = site.link
    alone = link.alpha + link.ms_per_byte * site.message_bytes
    if np.isnan(terms.latency):
        return site
    if alone <= 0:
        return replace(site, link=Link(terms.latency))
    slower = terms.latency / alone
    return replace(site, link=Link(link.alpha * slower, link.ms_per_byte * slower))


def insitu_costs(run: Measured, others: Sequence[Measured], timed: bool) -> Costs:
    """The run's costs as other runs had them.

    Ops that only take their time are late by the same amount whatever they are; ops that compute are looked up
    by kind and stage in runs with as many stages, else scaled as that kind was on average.
    """
    if timed:
        late = float(np.mean(np.concatenate([_overshoot(other) for other in others])))
        pair = None if run.costs.pair is None else run.costs.pair + late
        if pair is None and (run.lowered.compute.pair != NONE).any():
            pair = run.costs.time[Kind.F] + run.costs.time[Kind.B] + late
        return replace(run.costs, time=run.costs.time + late, pair=pair)
    time = run.costs.time.copy()
    for kind in (Kind.F, Kind.B, Kind.I, Kind.W):
        ratio = _ratio(others, kind)
        for stage in range(run.lowered.compute.n_stages):
            seen = [_times(other, kind, stage) for other in others if other.lowered.compute.n_stages == time.shape[1]]
            time[kind, stage] = _median(np.concatenate([*seen, np.empty(0)]), time[kind, stage] * ratio)
    return replace(run.costs, time=time, pair=_pair_times(run, others))


def insitu(run: Measured, site: Site) -> Insitu:
    """Host costs and message time over all repetitions of a run."""
    schedule = run.lowered.schedule
    sends, matches, consumers = _messages(run)
    calls, after = (run.ended - run.posted)[:, sends], run.ended[:, matches] <= run.posted[:, sends]
    waiting = run.posted[:, consumers] < run.posted[:, sends]
    first = np.flatnonzero(_first_of_pairs(schedule))
    follows = np.diff(schedule.device[first]) == 0
    gaps = run.posted[:, first[1:][follows]] - run.ended[:, first[:-1][follows]]
    late = _median((run.began[:, consumers] - run.posted[:, sends])[waiting], np.nan)
    terms = Insitu(
        announce=_mean(calls[~after], _mean(calls)),
        copy=_mean(calls[after], _mean(calls)),
        receive=_mean((run.ended - run.posted)[:, matches]),
        gap=max(_mean(gaps), 0.0),
        preamble=max(float(np.median(run.posted[:, schedule.offsets[:-1]])), 0.0),
        latency=float(np.maximum(late, 0.0)),  # below zero where a trace does not show the send
    )
    return replace(terms, latency=_alone(run, terms, site))


def _alone(run: Measured, terms: Insitu, site: Site) -> float:
    """The time of a message by itself that, with others in its way, makes messages as late as they were."""
    if np.isnan(terms.latency) or terms.latency == 0 or not site.cores:
        return terms.latency
    mean = (run.ended - run.began)[:, compute_ops(run)].mean(axis=0)
    costs, consumers = Replayed(run.costs.time, unit="ms", each=mean), _messages(run)[2]
    alone = terms.latency
    for _ in range(ROUNDS):
        ran = with_calls(run, costs, settled(site, replace(terms, latency=alone)), terms)
        waiting = posted(ran)[consumers] < ran.messages.posted
        late = _median((ran.timeline.start[consumers] - ran.messages.posted)[waiting], terms.latency)
        alone *= terms.latency / late
    return alone


def pooled(terms: Sequence[Insitu]) -> Insitu:
    """The mean of several runs' terms; of latencies over the runs that show any."""
    each = np.array([astuple(t) for t in terms])
    shown = each[~np.isnan(each[:, -1]), -1]
    announce, copy, receive, gap, preamble, _ = each.mean(axis=0).tolist()
    return Insitu(announce, copy, receive, gap, preamble, float(shown.mean()) if len(shown) else np.nan)


def posted(execution: Execution) -> NDArray[np.float64]:
    """Shape (entries,): when each device reached each entry, the end of the one before; both ops of a pair alike."""
    schedule, timeline = execution.lowered.schedule, execution.timeline
    before = np.concatenate([[0.0], timeline.end[:-1]])
    second = np.flatnonzero(~_first_of_pairs(schedule))
    before[second] = before[second - 1]
    before[schedule.offsets[:-1]] = 0.0
    return np.minimum(before, timeline.start)


def _messages(run: Measured) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Per message: its send, its receive and the op that needs it."""
    wiring, schedule = wire(run.lowered), run.lowered.schedule
    sends = np.flatnonzero(np.isin(schedule.kind, SENDS))
    needed_by = np.full(len(schedule), NONE, np.int64)
    consumers = np.flatnonzero(wiring.needs != NONE)
    needed_by[wiring.needs[consumers]] = consumers
    return sends, wiring.match[sends], needed_by[wiring.match[sends]]


def _overshoot(run: Measured) -> NDArray[np.float64]:
    ops = compute_ops(run)
    once = _first_of_pairs(run.lowered.compute)
    nominal = run.costs.durations(run.lowered.compute)
    return ((run.ended - run.began)[:, ops] - nominal)[:, once].ravel()


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


def _first_of_pairs(schedule: Schedule) -> NDArray[np.bool_]:
    """True but for the second op of each pair, so that a pair counts once."""
    return (schedule.pair == NONE) | (schedule.pair > np.arange(len(schedule)))


def _mean(values: Samples, otherwise: float = 0.0) -> float:
    return float(values.mean()) if values.size else otherwise


def _median(values: Samples, otherwise: float) -> float:
    return float(np.median(values)) if values.size else otherwise


def site_of(settings: Mapping[str, Any]) -> Site:
    """Where a record's messages travelled."""
    return Site(Link(**settings["link"]), int(settings["message_bytes"]), int(settings.get("cores", 0)))
