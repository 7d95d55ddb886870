"""Predict runs of real processes from the costs of ops, calls and messages.

A run is predicted at five levels, from the simplest model to the full model; each level adds one
cause of differences.

==========  =======================================================================================
nominal     intended costs of ops, free messages
link        + latency and bandwidth of a message, measured separately before the run
host        + measured costs of ops and of send and receive calls, from runs of other schedules
held-out    + latency of a message and gap between actions, from runs of other schedules
replay      op times of each repetition itself: the remaining error is that of the model
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

# Fixed-point iterations for messages that share a link.
ROUNDS = 3
# Maximum of iterations until the order of posts does not change: of 599 executions of the recorded
# sessions, 515 needed up to three and all needed up to nine.
MOST_ROUNDS = 30
LEVELS = ("nominal", "link", "host", "held-out", "replay")


@dataclass(frozen=True)
class Site:
    """The machine of a run."""

    link: Link = field(default_factory=Link)  # time of one message without contention
    message_bytes: int = 0  # size of every message
    # number of processors whose bandwidth all messages share; 0 if devices send without processors
    cores: int = 0
    sleeps: bool = False  # whether ops sleep instead of computing


@dataclass(frozen=True)
class Overheads:
    """Measured costs of a run except the op times, in ms.

    The call of a send whose receive is already posted copies the message; the call of any other
    send only announces it.
    """

    announce: float  # time of a send call before its receive
    copy: float  # time of a send call after its receive
    receive: float  # time of a receive call
    gap: float  # time between two actions of a device
    preamble: float  # time from the common start to the first action
    # time of a message without contention, from the post of its send to the start of an op that
    # waited for it; NaN if no op waited
    latency: float
    late: float = 0.0  # overshoot of an op that sleeps; 0 for ops that compute


@dataclass(frozen=True)
class Prediction:
    """The predictions of one run at all levels."""

    # makespans in ms at each of :data:`LEVELS`, shape (1,); for the replay shape (repetitions,)
    makespans: Mapping[str, NDArray[np.float64]]
    best: Execution  # the held-out execution
    # time in ms before each entry of the held-out execution, one number or shape (entries,)
    gap: float | NDArray[np.float64]
    preamble: float  # time in ms before the first entry of each device
    # median absolute error of repetitions predicted from the run's other repetitions; None for a
    # single repetition
    floor: float | None = None


def replay(run: Measured, terms: Overheads, site: Site) -> NDArray[np.float64]:
    """Predict the makespan of each repetition from its own op times, shape (repetitions,), in
    ms.
    """
    each = (run.end - run.start)[:, run.lowered.compute_ops]
    costs = [Costs(run.costs.time, unit="ms", op_times=row) for row in each]
    return np.array(
        [execute_with_calls(run, c, scale_link(site, terms), terms).makespan for c in costs]
    )


def execute_with_calls(run: Measured, costs: Costs, site: Site, terms: Overheads) -> Execution:
    """Execute with send costs that depend on whether the send or the receive was posted first.

    The order of posts in turn depends on the costs. Iterations start from the mean of both costs
    and continue until the order does not change.
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
    """Execute with the share ``after`` of each send's cost that assumes an earlier receive."""
    calls = terms.announce + (terms.copy - terms.announce) * after
    host = Host(send=calls, receive=terms.receive, gap=terms.gap, preamble=terms.preamble)
    return execute(run.lowered, costs, build_network(run, site, host))


def _posted_after_receive(execution: Execution, terms: Overheads) -> NDArray[np.float64]:
    """Return 1 for each message whose receive was posted before its send, otherwise 0, shape
    (messages,).
    """
    messages = execution.messages
    return (messages.awaited + terms.receive <= messages.posted).astype(np.float64)


def build_network(run: Measured, site: Site, host: Host | None = None) -> Network:
    """Build the network between processes on one host.

    Messages share the bandwidth of their process, that of one link in each direction, and the
    bandwidth of all cores, that of one link per core.
    """
    host, devices, link = host or Host(), run.lowered.schedule.n_devices, site.link
    if link.ms_per_byte <= 0:
        return Network(
            mode="overlap", channel="message", alpha=link.alpha, late=link.late, host=host
        )
    beta = 1.0 / link.ms_per_byte
    separate, together = np.arange(devices), np.zeros(devices, np.int64)
    shared = (
        Shared(beta, separate),
        *([Shared(site.cores * beta, together)] if site.cores else []),
    )
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
    """Scale the link so that one message takes the latency measured in the runs."""
    link = site.link
    time = link.alpha + link.ms_per_byte * site.message_bytes
    if np.isnan(terms.latency):
        return site
    if time <= 0:
        return replace(site, link=Link(terms.latency))
    slowdown = terms.latency / time
    return replace(site, link=Link(link.alpha * slowdown, link.ms_per_byte * slowdown))


def posted_times(
    execution: Execution, gap: float | NDArray[np.float64] = 0.0, preamble: float = 0.0
) -> NDArray[np.float64]:
    """Return the times at which devices reach their entries, shape (entries,), in ms; equal for
    both ops of a pair.

    As in a record, a device reaches an entry after the ``gap`` since the entry before it, and its
    first entry after the ``preamble``. ``gap`` is one number, or shape (entries,).
    """
    schedule, timeline = execution.lowered.schedule, execution.timeline
    before = np.where(lanes_in(execution.lowered) == Stream.COMPUTE, np.arange(len(schedule)), 0)
    reached = np.concatenate([[0.0], timeline.end[np.maximum.accumulate(before)][:-1]]) + gap
    reached[schedule.offsets[:-1]] = preamble
    reached[schedule.second_of_pairs] = reached[schedule.first_of_pairs]
    return np.minimum(reached, timeline.start)


def match_sides(lowered: Lowered) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Return the send, the receive and the consuming op of each message in lowered queues, shape
    (messages,) each.
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
    sleeps = settings.get("ops") == "timed"
    return Site(link, int(settings["message_bytes"]), int(settings.get("cores", 0)), sleeps)
