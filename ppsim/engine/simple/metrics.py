"""The numbers of a timeline: makespan, ideal, the three bubbles, activations and messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.core.columns import reduce_rows
from ppsim.core.lanes import cached_per_schedule, lanes_of
from ppsim.core.ops import Kind, Stream
from ppsim.core.schedule import Schedule
from ppsim.core.timeline import Timeline


@dataclass(frozen=True)
class Round:
    """The steady state of a repeating schedule, and the start and end of its run; times in the
    run's unit.
    """

    period: float  # from one round to the next
    bound: float  # a period that no order of the same ops beats
    rate: float  # microbatches, or tokens, per unit of time
    counts: str  # what the rate counts: microbatches or tokens
    bubble: float  # idle share of a round
    fill: float  # from the start of the first microbatch to its end on the last stage
    drain: float  # from the last start of a pass through the pipeline to the end of the run
    reason: str  # what decides the period, in words


@dataclass(frozen=True)
class Metrics:
    """Numbers of a timeline; times in the timeline's unit.

    Attributes:
        makespan: end of the last op.
        ideal: the work of the busiest device, with no waiting.
        bubble_rate: idle share of the iteration, 1 - busy / (P x makespan).
        bubble_over_ideal: (makespan - ideal) / ideal, Megatron's (p-1)/m; infinite where no op
            takes time.
        bubble_rate_span: (span - ideal) / span with span the longest of the devices' own first
            start to own last end: the number of the zero-bubble papers.
        span: that longest span.
        busy: shape (devices,), time spent in ops.
        idle: shape (devices,), makespan - busy.
        peak_activations: shape (devices,), most (stage, microbatch) activations held at once, each
            from its F to its W or B.
        messages: P2P messages, activations and gradients that cross devices.
        bound: a time that no order of the same ops in the same memory beats
            (:mod:`ppsim.search.bounds.bounds`); not a number where nobody asked for it.
        round: what one round takes without end; None for a run that does not go round.
    """

    makespan: float
    ideal: float
    bubble_rate: float
    bubble_over_ideal: float
    bubble_rate_span: float
    span: float
    busy: NDArray[np.float64]
    idle: NDArray[np.float64]
    peak_activations: NDArray[np.int64]
    messages: int
    bound: float = float("nan")
    round: Round | None = field(default=None, kw_only=True)

    @property
    def gap(self) -> float:
        """The share of the makespan above the bound."""
        return _ratio(self.makespan - self.bound, self.makespan)


def measure(timeline: Timeline) -> Metrics:
    """Return all numbers of a timeline except the bound."""
    schedule = timeline.schedule
    duration = timeline.end - timeline.start
    duration[schedule.second_of_pairs] = 0.0
    if schedule.has_lanes:  # a device is busy while it computes
        computes = lanes_of(schedule) % len(Stream) == Stream.COMPUTE
        busy = np.bincount(
            schedule.device, np.where(computes, duration, 0.0), schedule.n_devices
        ).astype(np.float64)
        peak = _peaks_by_time(timeline)
    else:
        busy, peak = reduce_rows(np.add, duration, schedule.offsets), _own_peaks(schedule)
    return metrics_of(timeline.makespan, span_of(timeline), busy, peak, int(schedule.crosses.sum()))


def span_of(timeline: Timeline) -> float:
    """Return the longest time from a device's first start to its last end, over ops that
    compute.
    """
    schedule, start, end = timeline.schedule, timeline.start, timeline.end
    if schedule.has_lanes:
        computes = lanes_of(schedule) % len(Stream) == Stream.COMPUTE
        start, end = np.where(computes, start, np.inf), np.where(computes, end, -np.inf)
    first, last = (
        reduce_rows(np.minimum, start, schedule.offsets),
        reduce_rows(np.maximum, end, schedule.offsets),
    )
    return float((last - first).max(initial=0.0))


def _peaks_by_time(timeline: Timeline) -> NDArray[np.int64]:
    """Most activations on each device at one time."""
    schedule, change = timeline.schedule, timeline.schedule.activation_changes().astype(np.int64)
    held = np.cumsum(change[order_by_time(timeline, change)])
    return (
        reduce_rows(np.maximum, held, schedule.offsets)
        - np.concatenate(([0], held))[schedule.offsets[:-1]]
    )


def order_by_time(timeline: Timeline, change: NDArray[Any]) -> NDArray[np.int64]:
    """Return each device's ops in the order in which they change its memory, shape (ops,).

    An activation is taken as its op starts and freed as one ends; freed ones come first, so that
    both count once.
    """
    time = np.where(change > 0, timeline.start, timeline.end)
    rounded = np.round(time / max(timeline.makespan, 1e-300), 12)
    return np.lexsort((change, rounded, timeline.schedule.device))


def metrics_of(
    makespan: float, span: float, busy: NDArray[np.float64], peak: NDArray[np.int64], messages: int
) -> Metrics:
    """Return all numbers that follow from these; see :class:`Metrics`."""
    ideal = float(busy.max(initial=0.0))
    return Metrics(
        makespan=makespan,
        ideal=ideal,
        bubble_rate=_ratio(makespan * len(busy) - float(busy.sum()), makespan * len(busy)),
        bubble_over_ideal=_ratio(makespan - ideal, ideal),
        bubble_rate_span=_ratio(span - ideal, span),
        span=span,
        busy=busy,
        idle=makespan - busy,
        peak_activations=peak,
        messages=messages,
    )


@cached_per_schedule
def _own_peaks(schedule: Schedule) -> NDArray[np.int64]:
    return peak_activations(schedule)


def peak_activations(schedule: Schedule, release: Kind = Kind.W) -> NDArray[np.int64]:
    """Shape (devices,): most activations a device holds, counted in stage-microbatches.

    F takes one, B gives it back, and of a split backward the op named by ``release`` (W, or I)
    does. In a pair the F takes before the other gives. Where the backward recomputes, R takes it:
    the input that F keeps does not count.
    """
    delta = schedule.activation_changes(release)
    second = schedule.second_of_pairs
    second = second[schedule.kind[second] == Kind.F]
    delta[second - 1], delta[second] = delta[second], delta[second - 1]
    held = np.cumsum(delta, dtype=np.int32)
    first = schedule.offsets[:-1]
    before = np.where(first > 0, held.take(first - 1, mode="clip"), 0) if len(held) else np.int32(0)
    return (reduce_rows(np.maximum, held, schedule.offsets) - before).astype(np.int64)


def _ratio(part: float, whole: float) -> float:
    if whole <= 0:
        return float("inf") if part > 0 else 0.0
    return max(part, 0.0) / whole
