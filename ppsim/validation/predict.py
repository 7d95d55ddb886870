"""Predictions of a measured run, from the simplest model to a replay, so that each step's error can be told apart.

==========  =======================================================================================
nominal     the ops' own costs, messages free
link        + latency and bandwidth of a message, measured alone before the run
host        + what ops and the send and receive calls really cost, taken from other schedules' runs
held-out    + latency of a message and gap between actions as those runs had them
replay      the run's own op times in each repetition: what is still wrong is the model, not the costs
==========  =======================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.costs import Costs
from ppsim.execute import Execution, execute
from ppsim.lowered import RECEIVES, SENDS
from ppsim.network import Host, Network, Shared
from ppsim.ops import Kind
from ppsim.schedule import NONE, Schedule
from ppsim.validation.record import Measured

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

    Attributes:
        host: send and receive calls, gap between actions, preamble and epilogue.
        latency: from the post of a send to the start of an op that was waiting for it; NaN where none waited.
    """

    host: Host
    latency: float


def compute_ops(run: Measured) -> NDArray[np.int64]:
    """Where the compute ops stand in the lowered queues, in the order of ``run.lowered.compute``."""
    return np.flatnonzero(run.lowered.schedule.kind <= Kind.W)


def predict(
    run: Measured, others: Sequence[Measured], link: Link, message_bytes: int, timed: bool
) -> dict[str, Execution]:
    """One execution per level but the replay; ``others`` are the runs that costs may be taken from."""
    costs = insitu_costs(run, others, timed)
    terms = insitu(others)
    host = Host(send=terms.host.send, receive=terms.host.receive)
    levels = {
        "nominal": (run.costs, Network()),
        "link": (run.costs, network(run, link, message_bytes)),
        "host": (costs, network(run, link, message_bytes, host)),
        "held-out": (costs, network(run, settled(link, terms, message_bytes), message_bytes, terms.host)),
    }
    return {name: execute(run.lowered, level_costs, net) for name, (level_costs, net) in levels.items()}


def replay(run: Measured, link: Link, message_bytes: int) -> NDArray[np.float64]:
    """Shape (repetitions,): makespans predicted from each repetition's own op times, ms."""
    terms = insitu([run])
    net = network(run, settled(link, terms, message_bytes), message_bytes, terms.host)
    ops = compute_ops(run)
    each = (run.ended - run.began)[:, ops]
    return np.array([execute(run.lowered, Replayed(run.costs.time, unit="ms", each=row), net).makespan for row in each])


def network(run: Measured, link: Link, message_bytes: int, host: Host | None = None) -> Network:
    """Messages over links of one host, which share what a process can send and receive."""
    if link.ms_per_byte <= 0:
        return Network(mode="overlap", channel="message", alpha=link.alpha, late=link.late, host=host or Host())
    beta = 1.0 / link.ms_per_byte
    each = np.arange(run.lowered.schedule.n_devices)
    return Network(
        mode="overlap",
        channel="message",
        alpha=link.alpha,
        beta=beta,
        message=float(message_bytes),
        late=link.late,
        host=host or Host(),
        shared=(Shared(beta, each),),
    )


def settled(link: Link, terms: Insitu, message_bytes: int) -> Link:
    """The link with the latency that messages had in the runs, where any op waited for one."""
    if np.isnan(terms.latency):
        return link
    transfer = link.ms_per_byte * message_bytes
    return Link(max(terms.latency - transfer, 0.0), min(link.ms_per_byte, terms.latency / max(message_bytes, 1)), 0.0)


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
            samples = np.concatenate([s for s in seen if len(s)] or [np.empty(0)])
            time[kind, stage] = np.median(samples) if len(samples) else time[kind, stage] * ratio
    return replace(run.costs, time=time, pair=None)


def insitu(runs: Sequence[Measured]) -> Insitu:
    """Host costs and latency over all repetitions of some runs."""
    sends, receives, gaps, waits, begins, tails = ([] for _ in range(6))
    for run in runs:
        kind, first = run.lowered.schedule.kind, _first_of_pairs(run.lowered.schedule)
        busy = run.ended - run.posted
        sends.append(busy[:, np.isin(kind, SENDS)].ravel())
        receives.append(busy[:, np.isin(kind, RECEIVES)].ravel())
        waits.append(_latencies(run))
        for device in range(run.lowered.schedule.n_devices):
            queue = np.arange(len(kind))[run.lowered.schedule.queue(device)]
            queue = queue[first[queue]]
            gaps.append((run.posted[:, queue[1:]] - run.ended[:, queue[:-1]]).ravel())
            begins.append(run.posted[:, queue[0]])
            tails.append(np.maximum(run.finished[:, device] - run.ended[:, queue[-1]], 0.0))
    host = Host(send=_mean(sends), receive=_mean(receives), gap=_median(gaps), preamble=max(_median(begins), 0.0))
    latency = np.concatenate(waits)
    return Insitu(host, float(np.median(latency)) if len(latency) else float("nan"))


def _latencies(run: Measured) -> NDArray[np.float64]:
    """From the post of each send to the start of its op, where that op was waiting already."""
    from ppsim.wiring import wire

    wiring, schedule = wire(run.lowered), run.lowered.schedule
    send = np.flatnonzero(np.isin(schedule.kind, SENDS))
    needed_by = np.full(len(schedule), NONE, np.int64)
    consumers = np.flatnonzero(wiring.needs != NONE)
    needed_by[wiring.needs[consumers]] = consumers
    op = needed_by[wiring.match[send]]
    waiting = (run.posted[:, op] < run.posted[:, send]) & (op != NONE)
    return (run.began[:, op] - run.posted[:, send])[waiting]


def _overshoot(run: Measured) -> NDArray[np.float64]:
    ops = compute_ops(run)
    once = _first_of_pairs(run.lowered.compute)
    nominal = run.costs.durations(run.lowered.compute)
    return ((run.ended - run.began)[:, ops] - nominal)[:, once].ravel()


def _times(run: Measured, kind: int, stage: int) -> NDArray[np.float64]:
    """Measured times of unpaired ops of a kind on a stage; those of pairs do not tell their halves apart."""
    schedule = run.lowered.schedule
    ops = np.flatnonzero((schedule.kind == kind) & (schedule.stage == stage) & (schedule.pair == NONE))
    return (run.ended - run.began)[:, ops].ravel()


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


def _mean(parts: Sequence[NDArray[np.float64]]) -> float:
    values = np.concatenate(parts) if parts else np.empty(0)
    return float(values.mean()) if len(values) else 0.0


def _median(parts: Sequence[NDArray[np.float64]]) -> float:
    values = np.concatenate(parts) if parts else np.empty(0)
    return max(float(np.median(values)), 0.0) if len(values) else 0.0


def settings_link(settings: Mapping[str, Any]) -> Link:
    """The link that a record's settings hold."""
    return Link(**settings.get("link", {}))
