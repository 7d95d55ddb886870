"""The period of a repeating schedule: the time from one round to the next in steady state.

A round is one repetition of the queues. Its events are its ops. Each waits for ops of the same or
the previous round: for the op before it on its lane, for its inputs, and for fed-back results. The
period is the largest cycle mean of this graph (:mod:`ppsim.analysis.cycles`), so no long run is
simulated, and the cycle is the cause of the period.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppsim.analysis.critical_path import path_text
from ppsim.analysis.cycles import Edges, Rates, find_rates
from ppsim.base.numbers import format_number
from ppsim.core.costs import Costs
from ppsim.core.lanes import groups_of, lanes_of, list_waits
from ppsim.core.ops import Kind, Stream
from ppsim.core.rounds import rounds_of, take_rounds
from ppsim.core.schedule import Schedule
from ppsim.core.timeline import Timeline
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError

SAME = 1e-9  # relative difference of times that count as equal
UNROLLED = 4  # simulated rounds, of which those in the middle are typical
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Period:
    """The period of a repeating schedule, and its cause; times in the unit of the costs."""

    time: float  # from one round to the next
    bound: float  # a lower bound on the period for all orders of the same ops
    busy: Floats  # shape (devices,), time of each device's ops in a round
    # shape (microbatches,), time of each around the loop with its feedback; empty without feedback
    batches: Floats
    # the cycle that decides the period, as texts: ops on one device, or on successive devices
    cycle: tuple[str, ...]
    reason: str  # the cause of the period, as text

    @property
    def bubble(self) -> float:
        """The idle share of a round, without fill and drain."""
        return 1 - float(self.busy.sum()) / (len(self.busy) * self.time) if self.time > 0 else 0.0


class FillAndDrain(NamedTuple):
    """Fill and drain of a run of several rounds."""

    fill: float  # from the first microbatch's start to its end on the last stage
    drain: float  # from the start of the last pass through the pipeline to the end of the run


def find_period(schedule: Schedule, costs: Costs) -> Period:
    """Return the period of a schedule whose rounds repeat forever.

    Raises:
        InputError: devices share a link to their host, so that times decide which copy is next.
    """
    if costs.host_link:
        raise InputError(
            "the period cannot be computed if devices share a link to their host",
            "leave out --host-link-shared",
        )
    unrolled, prices = take_rounds(schedule, costs, UNROLLED)
    durations, latencies = prices.durations(unrolled), prices.latencies(unrolled)
    edges, members, likely = _event_graph(
        unrolled, durations, latencies, simulate(unrolled, prices)
    )
    rates = find_rates(len(members), edges, likely)
    busy = _busy(unrolled, durations)
    batches = _trips(unrolled, durations, latencies)
    bound = max(float(busy.max(initial=0.0)), float(batches.max(initial=0.0)))
    cycle = tuple(path_text(unrolled, members[edges.target[rates.cycle]]))
    ops = members[edges.target[rates.cycle]]
    why = _step_cause_text(unrolled, durations, ops, rates, busy) or _cause_text(
        rates, busy, batches, cycle
    )
    return Period(rates.period, min(bound, rates.period), busy, batches, cycle, why)


def find_around(timeline: Timeline) -> FillAndDrain:
    """Return the fill and drain of a run.

    The last pass starts on the first stage, or on the last one if there are backwards.
    """
    schedule = timeline.schedule
    last = schedule.stage == schedule.n_stages - 1
    first_end = float(timeline.end[last & (schedule.kind == Kind.F)].min(initial=np.inf))
    begins = last & schedule.computes if not schedule.only_forwards else schedule.stage == 0
    last_start = float(timeline.start[begins].max(initial=0.0))
    return FillAndDrain(first_end, timeline.makespan - last_start)


def _event_graph(
    schedule: Schedule, durations: Floats, latencies: Floats, timeline: Timeline
) -> tuple[Edges, NDArray[np.int64], NDArray[np.bool_]]:
    """Return the edges of a middle round, each event's op, and which edges bind in the timeline."""
    waits, group, at = list_waits(schedule), groups_of(schedule), rounds_of(schedule)
    home = np.where(schedule.stage < 0, schedule.n_stages + schedule.device, schedule.stage)
    cell = schedule.kind * np.int64(schedule.n_stages + schedule.n_devices) + home
    key = cell * schedule.round_microbatches + schedule.microbatch % np.int64(
        schedule.round_microbatches
    )
    leads = group == np.arange(len(group))
    event = np.empty(len(group), np.int64)
    _, event[leads] = np.unique(key[leads], return_inverse=True)
    event = event[group]
    middle = schedule.n_rounds // 2
    op, need = group[waits.op], group[waits.need]
    kept = (at[waits.op] == middle) & (op != need)
    arrives = np.where(waits.message, latencies[waits.op], 0.0)
    edges = Edges(
        source=event[need[kept]],
        target=event[op[kept]],
        time=(durations[waits.need] + arrives)[kept],
        rounds=middle - at[need[kept]],
    )
    members = np.empty(int(event.max(initial=-1)) + 1, np.int64)
    ops = np.flatnonzero(leads & (at == middle))
    members[event[ops]] = ops
    return edges, members, (need == group[timeline.bound[op]])[kept]


def _busy(schedule: Schedule, durations: Floats) -> Floats:
    """Return each device's compute time in one round, shape (devices,)."""
    counted = (
        (lanes_of(schedule) % len(Stream) == Stream.COMPUTE)
        & schedule.leads
        & (rounds_of(schedule) == 0)
    )
    ends = np.searchsorted(schedule.device[counted], np.arange(1, schedule.n_devices))
    of_devices = np.split(durations[counted], ends)
    return np.array([math.fsum(each.tolist()) for each in of_devices])


def _trips(schedule: Schedule, durations: Floats, latencies: Floats) -> Floats:
    """Return the time of each microbatch around the loop; empty without feedback.

    Shape (microbatches of a round,).
    """
    if not schedule.feeds_back:
        return np.empty(0)
    second = np.flatnonzero(rounds_of(schedule) == 1)
    microbatch = schedule.microbatch[second] - schedule.round_microbatches
    took = (durations + latencies)[second][np.argsort(microbatch, kind="stable")]
    return np.array(
        [math.fsum(each) for each in took.reshape(schedule.round_microbatches, -1).tolist()]
    )


def _step_cause_text(
    schedule: Schedule, durations: Floats, ops: NDArray[np.int64], rates: Rates, busy: Floats
) -> str:
    """Return the cause of the period as text if it is a cycle with an optimizer step, else empty.

    ``ops`` are the ops of the cycle.
    """
    kind = schedule.kind[ops]
    steps = ops[kind == Kind.OPT]
    if len(steps) != 1:
        return ""
    device, took = int(schedule.device[steps[0]]), float(durations[steps[0]])
    before, together = format_number(rates.period - took), bool((kind == Kind.NORM).any())
    if busy[device] >= rates.period * (1 - SAME):
        return ""
    who = "all devices end" if together else f"device {device} spans"
    then = f"then {'the' if together else 'its'} optimizer takes {format_number(took)}"
    return f"{who} a step in {before}, {then if took else 'then the next begins'}"


def _cause_text(rates: Rates, busy: Floats, batches: Floats, cycle: tuple[str, ...]) -> str:
    """Return the cause of the period as text."""
    period = rates.period
    device = int(busy.argmax()) if len(busy) else 0
    if len(busy) and busy[device] >= period * (1 - SAME):
        every = (busy >= period * (1 - SAME)).all()
        return (
            "every device is always busy"
            if every and len(busy) > 1
            else f"device {device} is always busy"
        )
    if len(batches) and batches.max() >= period * (1 - SAME):
        longest = int(batches.argmax())
        alike = np.ptp(batches) <= SAME * period
        return (
            f"a batch travels around in {format_number(period)}"
            if alike
            else f"batch {longest} travels around"
        )
    return "a cycle through several devices: " + " > ".join(cycle)
