"""An execution as a run on real processes would have it, given what ops, calls and messages cost there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.core.costs import Costs
from ppsim.core.execution import Execution
from ppsim.core.lowered import Lowered
from ppsim.core.ops import SENDS
from ppsim.core.schedule import Schedule
from ppsim.lowering.matching import match_messages
from ppsim.network.execute import execute
from ppsim.network.spec import Host, Network, Shared
from ppsim.runs.record import Link, Measured
from ppsim.validation import cores

ROUNDS = 3


@dataclass(frozen=True)
class Site:
    """Where messages travel.

    Attributes:
        link: one message alone.
        message_bytes: size of every message.
        cores: processors that all devices share; 0 where the devices compute and send by themselves.
        asleep: ops only let their time pass, and need no core meanwhile.
    """

    link: Link = field(default_factory=Link)
    message_bytes: int = 0
    cores: int = 0
    asleep: bool = False


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
        late: end of an op whose time has passed; 0 for ops that compute.
    """

    announce: float
    copy: float
    receive: float
    gap: float
    preamble: float
    latency: float
    late: float = 0.0


def replay(run: Measured, terms: Insitu, site: Site) -> NDArray[np.float64]:
    """Shape (repetitions,): makespans predicted from each repetition's own op times, ms."""
    each = (run.ended - run.began)[:, run.lowered.compute_ops]
    costs = [Replayed(run.costs.time, unit="ms", each=row) for row in each]
    return np.array([with_calls(run, c, settled(site, terms), terms).makespan for c in costs])


def with_calls(run: Measured, costs: Costs, site: Site, terms: Insitu) -> Execution:
    """An execution in which every send costs what it costs before or after its receive, whichever it turns out to be.

    Which of the two comes first depends on the costs in turn: begun half and half, it settles within a few rounds.
    """
    after = np.full(int(np.isin(run.lowered.schedule.kind, SENDS).sum()), 0.5)
    for _ in range(ROUNDS):
        execution = _with_calls(run, costs, site, terms, after)
        found = _after(execution, terms)
        if (found == after).all():
            break
        after = found
    return execution


def taking_turns(run: Measured, costs: Costs, site: Site, terms: Insitu) -> Execution:
    """As :func:`with_calls`, with devices that wait for a core while all are taken, where their ops need none."""
    execution = with_calls(run, costs, site, terms)
    if not (site.asleep and site.cores):
        return execution
    ops, own = run.lowered.compute_ops, costs.durations(run.lowered.compute)
    waited = np.zeros(len(own))
    for _ in range(ROUNDS):
        after = _after(execution, terms)
        alone = _with_calls(run, Replayed(costs.time, unit="ms", each=own + waited), site, terms, after)
        took = alone.timeline.end - alone.timeline.start
        took[ops] = own
        way = alone.messages.arrive - alone.messages.leave
        arriving = np.clip(site.link.alpha - np.where(after > 0, terms.copy, terms.receive), 0.0, way)
        work = cores.Work(took, terms.late, terms.gap, terms.preamble, way - arriving, arriving)
        played = cores.play(run.lowered.schedule, sides_of(run.lowered), work, site.cores)
        execution, waited = _as_played(alone, played, ops), played.waited[ops]
    return execution


def _as_played(execution: Execution, played: cores.Played, ops: NDArray[np.int64]) -> Execution:
    """An execution with the times that sharing cores gives it."""
    start, end, messages = played.start, played.end, execution.messages
    total = max(float(end.max()), float(played.arrive.max(initial=0.0)))
    posted, awaited = start[messages.send], start[messages.receive]
    return replace(
        execution,
        timeline=replace(execution.timeline, start=start, end=end, finish=total),
        compute=replace(execution.compute, start=start[ops], end=end[ops], finish=total),
        messages=replace(
            messages, posted=posted, awaited=awaited, leave=np.maximum(posted, awaited), arrive=played.arrive
        ),
    )


def _with_calls(run: Measured, costs: Costs, site: Site, terms: Insitu, after: NDArray[np.float64]) -> Execution:
    calls = terms.announce + (terms.copy - terms.announce) * after
    host = Host(send=calls, receive=terms.receive, gap=terms.gap, preamble=terms.preamble)
    return execute(run.lowered, costs, network(run, site, host))


def _after(execution: Execution, terms: Insitu) -> NDArray[np.float64]:
    """Shape (messages,): 1 where the receive is posted when the send is, else 0."""
    messages = execution.messages
    return (messages.awaited + terms.receive <= messages.posted).astype(np.float64)


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


def posted(execution: Execution) -> NDArray[np.float64]:
    """Shape (entries,): when each device reached each entry, the end of the one before; both ops of a pair alike."""
    schedule, timeline = execution.lowered.schedule, execution.timeline
    before = np.concatenate([[0.0], timeline.end[:-1]])
    before[schedule.second_of_pairs] = before[schedule.first_of_pairs]
    before[schedule.offsets[:-1]] = 0.0
    return np.minimum(before, timeline.start)


def sides_of(lowered: Lowered) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Per message: its send, its receive and the op that needs it."""
    matching = match_messages(lowered)
    return matching.send, matching.receive, matching.consumer


def site_of(settings: Mapping[str, Any]) -> Site:
    """Where a record's messages travelled."""
    link, asleep = Link(**settings["link"]), settings.get("ops") == "timed"
    return Site(link, int(settings["message_bytes"]), int(settings.get("cores", 0)), asleep)
