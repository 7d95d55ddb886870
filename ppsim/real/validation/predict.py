"""Execute lowered queues as real processes would, given the costs of ops, calls and messages on
them.

A run is predicted by five models, from the simplest to the full one; each adds one cause of error.

==========  =======================================================================================
nominal     the ops' own costs, messages free
link        + latency and bandwidth of a message, measured alone before the run
host        + what ops and the send and receive calls really cost, taken from other schedules' runs
held-out    + latency of a message and gap between actions from those runs
replay      the run's own op times in each repetition: the error left is the model's, not the costs'
==========  =======================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.core.costs import Costs
from ppsim.core.execution import Execution
from ppsim.core.lowered import Lowered
from ppsim.core.ops import SENDS, Stream
from ppsim.engine.detailed.execute import execute
from ppsim.engine.detailed.spec import Host, Network, Shared
from ppsim.engine.lowering.matching import match_messages
from ppsim.real.runs.lanes import lanes_in
from ppsim.real.runs.record import Measured
from ppsim.real.runs.record_file import Link

# Iterations of the fixed point that messages which share a link ask for.
ROUNDS = 3
# Most iterations of the order of posts, which settles exactly: of 599 executions of the recorded
# sessions 515 have after three and all after nine.
MOST_ROUNDS = 30
LEVELS = ("nominal", "link", "host", "held-out", "replay")


@dataclass(frozen=True)
class Site:
    """The machine that messages travel on."""

    link: Link = field(default_factory=Link)  # time of one message without contention
    message_bytes: int = 0  # size of every message
    # processors whose bandwidth all messages share; 0 where each device sends without them
    cores: int = 0
    sleeps: bool = False  # whether ops sleep for their time


@dataclass(frozen=True)
class Overheads:
    """Measured costs of everything but the ops, in ms.

    A send whose receive is already posted copies its message at once, in the call; any other only
    announces it.
    """

    announce: float  # a send call before its receive
    copy: float  # a send call after its receive
    receive: float  # a receive call
    gap: float  # between two actions of a device
    preamble: float  # from the common start to the first action
    # of a message without contention, from the post of its send to the start of an op that waited
    # for it; NaN where none waited
    latency: float
    late: float = 0.0  # overshoot of an op that sleeps; 0 for ops that compute


@dataclass(frozen=True)
class Prediction:
    """The predictions of one run at all levels."""

    # for each of :data:`LEVELS`, shape (1,); of a replay shape (repetitions,)
    makespans: Mapping[str, NDArray[np.float64]]
    best: Execution  # the held-out execution
    # before each entry of that execution, one number or shape (entries,)
    gap: float | NDArray[np.float64]
    preamble: float  # before the first entry of each device
    # the run predicted from its own other repetitions: the median of the absolute errors; None
    # where it has no other ones
    floor: float | None = None


def replay(run: Measured, terms: Overheads, site: Site) -> NDArray[np.float64]:
    """Predict the makespan of each repetition from its own op times; shape (repetitions,), ms."""
    each = (run.end - run.start)[:, run.lowered.compute_ops]
    costs = [Costs(run.costs.time, unit="ms", each=row) for row in each]
    return np.array(
        [execute_with_calls(run, c, scale_link(site, terms), terms).makespan for c in costs]
    )


def execute_with_calls(run: Measured, costs: Costs, site: Site, terms: Overheads) -> Execution:
    """Execute with send costs that depend on which side was posted first.

    The order of posts depends on the costs in turn, so iterate until it stays, from the mean of
    both costs.
    """
    after = np.full(int(np.isin(run.lowered.schedule.kind, SENDS).sum()), 0.5)
    for _ in range(MOST_ROUNDS):
        execution = _execute_once(run, costs, site, terms, after)
        found = _posted_after_receive(execution, terms)
        if (found == after).all():
            break
        after = found
    return execution


def _execute_once(
    run: Measured, costs: Costs, site: Site, terms: Overheads, after: NDArray[np.float64]
) -> Execution:
    calls = terms.announce + (terms.copy - terms.announce) * after
    host = Host(send=calls, receive=terms.receive, gap=terms.gap, preamble=terms.preamble)
    return execute(run.lowered, costs, build_network(run, site, host))


def _posted_after_receive(execution: Execution, terms: Overheads) -> NDArray[np.float64]:
    """Mark the messages whose receive is posted before their send: 1, else 0; shape (messages,)."""
    messages = execution.messages
    return (messages.awaited + terms.receive <= messages.posted).astype(np.float64)


def build_network(run: Measured, site: Site, host: Host | None = None) -> Network:
    """Build the network between processes of one host.

    Messages share the bandwidth of a process, one link's in each direction, and that of all cores,
    one link's each.
    """
    host, devices, link = host or Host(), run.lowered.schedule.n_devices, site.link
    if link.ms_per_byte <= 0:
        return Network(
            mode="overlap", channel="message", alpha=link.alpha, late=link.late, host=host
        )
    beta, each, together = 1.0 / link.ms_per_byte, np.arange(devices), np.zeros(devices, np.int64)
    shared = (Shared(beta, each), *([Shared(site.cores * beta, together)] if site.cores else []))
    size = float(site.message_bytes)
    return Network(
        "overlap",
        "message",
        link.alpha,
        beta,
        message=size,
        late=link.late,
        host=host,
        shared=shared,
    )


def scale_link(site: Site, terms: Overheads) -> Site:
    """Scale the link so that one message takes the latency seen in the runs."""
    link = site.link
    alone = link.alpha + link.ms_per_byte * site.message_bytes
    if np.isnan(terms.latency):
        return site
    if alone <= 0:
        return replace(site, link=Link(terms.latency))
    slower = terms.latency / alone
    return replace(site, link=Link(link.alpha * slower, link.ms_per_byte * slower))


def posted_times(
    execution: Execution, gap: float | NDArray[np.float64] = 0.0, preamble: float = 0.0
) -> NDArray[np.float64]:
    """Compute when each device reached each entry, shape (entries,); both ops of a pair alike.

    As in a record, a device has reached an entry once the ``gap`` after the one before, or the
    ``preamble``, is over. ``gap`` is one number, or shape (entries,): before each.
    """
    schedule, timeline = execution.lowered.schedule, execution.timeline
    before = np.where(lanes_in(execution.lowered) == Stream.COMPUTE, np.arange(len(schedule)), 0)
    reached = np.concatenate([[0.0], timeline.end[np.maximum.accumulate(before)][:-1]]) + gap
    reached[schedule.offsets[:-1]] = preamble
    reached[schedule.second_of_pairs] = reached[schedule.first_of_pairs]
    return np.minimum(reached, timeline.start)


def match_sides(lowered: Lowered) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Match the messages of lowered queues: per message its send, its receive and the op that needs
    it.
    """
    matching = match_messages(lowered)
    return matching.send, matching.receive, matching.consumer


def site_of(settings: Mapping[str, Any]) -> Site:
    """Read the machine from a record's settings."""
    link = Link(
        **{
            each.name: settings["link"][each.name]
            for each in fields(Link)
            if each.name in settings["link"]
        }
    )
    asleep = settings.get("ops") == "timed"
    return Site(link, int(settings["message_bytes"]), int(settings.get("cores", 0)), asleep)
