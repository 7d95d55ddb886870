"""The metrics of a timeline: makespan, ideal, three bubble rates, activations and messages."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.core.columns import reduce_rows
from ppsim.core.lanes import cached_per_schedule, lanes_of
from ppsim.core.ops import Kind, Stream
from ppsim.core.schedule import Schedule
from ppsim.core.soundness import require_type
from ppsim.core.timeline import Timeline
from ppsim.errors import InputError


@dataclass(frozen=True)
class Round:
    """The steady state of a repeating schedule, and its fill and drain; times in the run's unit."""

    period: float  # time from one round to the next
    bound: float  # a lower bound on the period for all orders of the same ops
    rate: float  # microbatches, or tokens, per unit of time
    counts: str  # the unit of the rate: microbatches or tokens
    bubble: float  # idle share of a round
    fill: float  # from the start of the first microbatch to its end on the last stage
    drain: float  # from the last start of a pass through the pipeline to the end of the run
    reason: str  # the cause of the period, as text


@dataclass(frozen=True)
class Metrics:
    """Metrics of a timeline; times in the timeline's unit.

    Attributes:
        makespan: end of the last op.
        ideal: the work of the busiest device, without waiting.
        bubble_rate: idle share of the iteration, 1 - busy / (P x makespan).
        bubble_over_ideal: (makespan - ideal) / ideal, Megatron's (p-1)/m; infinite if no op takes
            time.
        bubble_rate_span: (span - ideal) / span, as in the zero-bubble papers.
        span: the longest time of any device from its first start to its last end.
        busy: shape (devices,), time spent in ops.
        idle: shape (devices,), makespan - busy.
        peak_activations: shape (devices,), most activations of one stage and microbatch held at
            once, each from its F to its W or B.
        messages: number of P2P messages, activations and gradients between devices.
        bound: a lower bound on the makespan for all orders of the same ops in the same memory
            (:mod:`ppsim.search.bounds.bounds`); NaN if not computed.
        round: the steady state; None for a schedule that does not go round.
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
    """Return all metrics of a timeline except the bound; times are in the timeline's unit."""
    require_type("timeline", timeline, Timeline, "simulate(schedule, costs)")
    if not math.isfinite(timeline.makespan):
        raise InputError("a time of the timeline is not finite", "simulate(schedule, costs)")
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
        busy, peak = reduce_rows(np.add, duration, schedule.offsets), _queue_peaks(schedule)
    return metrics_of(timeline.makespan, span_of(timeline), busy, peak, int(schedule.crosses.sum()))


def span_of(timeline: Timeline) -> float:
    """Return the longest time of a device from its first start to its last end of compute ops."""
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
    """Return the peak of activations of each device over time, shape (devices,)."""
    schedule, change = timeline.schedule, timeline.schedule.activation_changes().astype(np.int64)
    held = np.cumsum(change[order_by_time(timeline, change)])
    return (
        reduce_rows(np.maximum, held, schedule.offsets)
        - np.concatenate(([0], held))[schedule.offsets[:-1]]
    )


def order_by_time(timeline: Timeline, change: NDArray[Any]) -> NDArray[np.int64]:
    """Return each device's ops in the order in which they change its memory, shape (ops,).

    Memory is allocated at an op's start and freed at an op's end; at the same time, frees come
    first.
    """
    time = np.where(change > 0, timeline.start, timeline.end)
    rounded = np.round(time / max(timeline.makespan, 1e-300), 12)
    return np.lexsort((change, rounded, timeline.schedule.device))


def metrics_of(
    makespan: float, span: float, busy: NDArray[np.float64], peak: NDArray[np.int64], messages: int
) -> Metrics:
    """Return all metrics that follow from these; see :class:`Metrics`."""
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
def _queue_peaks(schedule: Schedule) -> NDArray[np.int64]:
    return peak_activations(schedule)


def peak_activations(schedule: Schedule, release: Kind = Kind.W) -> NDArray[np.int64]:
    """Return the peak of activations of each device in stage-microbatches, shape (devices,).

    F allocates one, and B, or of a split backward the op named by ``release`` (W, or I), frees it.
    In a pair F allocates before the other op frees. If the backward recomputes, R allocates it
    instead: the input that F stores does not count.
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
