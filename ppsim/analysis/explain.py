"""Explanation of an iteration's time: idle time by cause, critical path, and gains of changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ppsim.analysis.critical_path import (
    Gain,
    Slack,
    critical_path,
    path_text,
    sensitivity,
    slack_of,
)
from ppsim.analysis.idle import CAUSES, NAMES, Idle, explain_idle, explain_run
from ppsim.base.numbers import format_change, format_number, format_share
from ppsim.core.costs import Costs
from ppsim.core.timeline import Timeline
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import Metrics, Round, measure

if TYPE_CHECKING:
    from ppsim.analysis.observed import Observed
    from ppsim.core.execution import Execution

SCHEMA = "ppsim.explain/1"


@dataclass(frozen=True)
class WhatIf:
    """One change, simulated."""

    text: str  # a description of the change
    metrics: Metrics  # of the run with the change
    # time per microbatch; in steady state if the schedule goes round
    per_microbatch: float
    advice: str  # the change as an instruction
    timeline: Timeline  # of the run with the change
    name: str = ""  # the change, without its assumptions
    held: float = float("nan")  # the largest peak, in the unit of a :class:`MemoryRoom`
    fits: bool = True  # whether the peak is within the memory allowed
    is_bound: bool = False  # whether it shows a loss, rather than a change that a user can make
    limits: str = ""  # the range of times in which it is faster, as the end of a sentence

    @property
    def rank(self) -> tuple[float, float, int, int, int, str]:
        """The sort key of changes: time, memory, messages, then the shorter name."""
        time = float(f"{self.per_microbatch:.9g}")
        messages, words = self.metrics.messages, self.advice
        return time, self.held, self.copies_of_weights, messages, len(words), words

    @property
    def copies_of_weights(self) -> int:
        """The number of copies of the model on all devices; 2 for a bidirectional schedule."""
        return self.timeline.schedule.placement.n_replicas

    @property
    def time(self) -> float:
        """The makespan, or the period if the schedule goes round."""
        return self.metrics.round.period if self.metrics.round else self.metrics.makespan

    @property
    def bubble(self) -> float:
        """The idle share of the makespan, or of a round if the schedule goes round."""
        return self.metrics.round.bubble if self.metrics.round else self.metrics.bubble_rate

    def ties_with(self, other: WhatIf) -> bool:
        """Return True if a change has the same time and memory as another."""
        return self.rank[:2] == other.rank[:2]


@dataclass(frozen=True)
class MemoryRoom:
    """The memory that a change may use on any device."""

    held: float  # the largest peak of the explained run
    cap: float  # the memory cap
    unit: str  # ``B``, ``layer activations``, or ``activations`` of a 1/P share of the model
    is_given: bool = False  # whether the user gave the cap

    @property
    def is_over(self) -> bool:
        """Whether the explained run exceeds the memory cap."""
        return not self.fits(self.held)

    def fits(self, held: float) -> bool:
        """Return True if a run with this peak fits."""
        return held <= self.cap * (1 + 1e-9)

    def activations(self, chunks: int) -> int:
        """Return a user's cap in activations of one stage, rounded down; 0 in another unit."""
        return int(self.cap * chunks + 1e-9) if self.is_given and self.unit == "activations" else 0

    def number(self, held: float) -> str:
        """Return an amount as text: bytes with their unit, a count without."""
        if self.unit != "B":
            return format_number(held)
        from ppsim.base.units import format_size

        return format_size(held)

    def text(self, held: float) -> str:
        """Return an amount with its unit."""
        from ppsim.base.numbers import with_unit

        share = " of a 1/P share" if self.unit == "activations" else ""
        return with_unit(self.number(held), self.unit) + share


@dataclass(frozen=True)
class Explanation:
    """All results of ``ppsim explain`` for one run."""

    timeline: Timeline  # of the compute ops
    metrics: Metrics
    idle: Idle  # idle time by cause
    path: np.ndarray[Any, np.dtype[np.int64]]  # the ops of a critical path
    # None for the detailed model, in which an op's delay also moves messages in their channels, and
    # for devices that share a link to their host
    slack: Slack | None
    gains: list[Gain]  # the gain when each time falls by 1 %, the largest first
    # the timeline that changes are compared with: the same one; of several replicas the slowest
    # one's; for measured or stated times a simulation with costs derived from them
    base: Timeline
    is_stated: bool = False  # whether the times are measured or stated, not simulated
    # the steady state, by which changes are compared; None if the schedule does not go round
    round: Round | None = None
    gains_of_round: bool = False  # whether gains are of the period rather than of the makespan

    @property
    def per_microbatch(self) -> float:
        """The time per microbatch of ``base``, in steady state if the schedule goes round."""
        schedule = self.base.schedule
        if self.round:
            return self.round.period / schedule.whole_microbatches
        return self.base.makespan / schedule.run_microbatches

    @property
    def bubble(self) -> float:
        """The idle share of ``base``, or of its steady state."""
        return self.round.bubble if self.round else measure(self.base).bubble_rate


def explain(
    timeline: Timeline,
    costs: Costs,
    execution: Execution | None = None,
    time: Callable[[Costs], float] | None = None,
) -> Explanation:
    """Return the explanation of one run, from the timeline of its compute ops and their costs.

    If the timeline was read off an execution, ``time`` returns that model's makespan under other
    costs.
    """
    latencies = costs.latencies(timeline.schedule)
    return Explanation(
        timeline,
        measure(timeline),
        explain_run(timeline, latencies, execution),
        critical_path(timeline),
        None if execution or costs.host_link else slack_of(timeline, latencies),
        sensitivity(timeline.schedule, costs, time),
        timeline,
    )


def explain_times(found: Observed) -> Explanation:
    """Return the explanation of a run whose times were measured or stated.

    Gains are for costs derived from its times.
    """
    timeline = found.timeline
    slack = slack_of(timeline, found.latencies)
    return Explanation(
        timeline,
        measure(timeline),
        explain_idle(timeline, found.arrival),
        critical_path(timeline),
        # clocks of devices may differ by less than a message takes
        replace(slack, slack=np.maximum(slack.slack, 0.0)),
        sensitivity(timeline.schedule, found.costs),
        simulate(timeline.schedule, found.costs),
        is_stated=True,
    )


def timed_change(
    text: str, advice: str, timeline: Timeline, steady_state: Round | None = None
) -> WhatIf:
    """Return a change with this timeline and, if changes are compared by it, steady state."""
    metrics, schedule = replace(measure(timeline), round=steady_state), timeline.schedule
    if steady_state:
        each = steady_state.period / schedule.whole_microbatches
    else:
        each = timeline.makespan / schedule.run_microbatches
    return WhatIf(text, metrics, each, advice, timeline)


def best_of(
    explanation: Explanation,
    changes: Sequence[WhatIf],
    room: MemoryRoom | None = None,
) -> WhatIf | None:
    """Return the change that fits in memory with the least time per microbatch.

    Changes that users can make are preferred to those that only show a loss. None if no change is
    faster than the run. If the run exceeds the cap, any change that fits is acceptable.
    """
    now = explanation.per_microbatch
    fit = [change for change in changes if change.fits]
    for is_bound in (False, True):
        kind = [change for change in fit if change.is_bound == is_bound]
        best = min(kind, key=lambda change: change.rank, default=None)
        if best is None:
            continue
        is_needed = room is not None and room.is_over and not is_bound
        if is_needed or (explanation.idle.by_cause and best.per_microbatch < now * (1 - 1e-3)):
            return best
    return None


def advise(
    explanation: Explanation, changes: Sequence[WhatIf], room: MemoryRoom | None = None
) -> str:
    """Return one sentence: the first change to make, and the range in which it helps."""
    before, now = explanation.bubble, explanation.per_microbatch
    best = best_of(explanation, changes, room)
    if best is None and room is not None and room.is_over:
        held = f"this run holds {room.number(room.held)}"
        return f"none of these changes fits {room.text(room.cap)}; {held}"
    if best is None and not explanation.idle.by_cause:
        return "no device is ever idle: only faster ops make it faster"
    if best is None and explanation.round:
        return f"none of these changes helps; {explanation.round.reason}"
    if best is None:
        cause = max(explanation.idle.by_cause, key=explanation.idle.by_cause.__getitem__)
        most = f"most of the idle time is {cause}: {CAUSES[cause]}"
        return f"none of these changes helps; {most}"
    change = best.per_microbatch / now - 1 if now else 0.0
    share = "bubble of a round" if explanation.round else "bubble_rate"
    rates = f"({share} {format_share(before)} to {format_share(best.bubble)})"
    if room is not None and room.is_over:
        held = f"which holds {room.number(best.held)}, not {room.text(room.held)}"
        time = f"{format_change(change)} time per microbatch"
        return f"first: {best.advice}, {held}: {time} {rates}{best.limits}"
    less = f"{format_share(-change)} less time per microbatch"
    return f"first: {best.advice}, {less} {rates}{best.limits}"


def advise_more_memory(
    explanation: Explanation,
    changes: Sequence[WhatIf],
    room: MemoryRoom | None,
) -> str:
    """Return a sentence on the fastest change, if it exceeds the memory; else empty."""
    now = explanation.per_microbatch
    best = best_of(explanation, changes, room)
    least = min(now, best.per_microbatch if best else now) * (1 - 1e-3)
    larger = [change for change in changes if not change.fits and change.per_microbatch < least]
    change = min(larger, key=lambda change: change.rank, default=None)
    if change is None or room is None:
        return ""
    whose = "--cap" if room.is_given else "this run"
    held = f"holding {room.text(change.held)} where {whose} has {room.number(room.cap)}"
    less = format_share(1 - change.per_microbatch / now)
    return f"with more memory: {change.advice}, {less} less time per microbatch, {held}"


def explain_object(
    explanation: Explanation,
    changes: Sequence[WhatIf],
    inputs: dict[str, Any],
    room: MemoryRoom | None = None,
) -> dict[str, Any]:
    """Return the object of ``--json``, schema ``ppsim.explain/1``.

    Times are in the timeline's unit, ``slack`` is in queue order.
    """
    timeline, schedule, slack = (
        explanation.timeline,
        explanation.timeline.schedule,
        explanation.slack,
    )
    steady_state = explanation.round
    return {
        "schema": SCHEMA,
        "inputs": inputs,
        "schedule": schedule.name,
        "devices": schedule.n_devices,
        "stages": schedule.n_stages,
        "microbatches": schedule.whole_microbatches,
        "unit": timeline.unit,
        "makespan": timeline.makespan,
        **(_round_object(steady_state) if steady_state else {}),
        "idle": float(explanation.idle.by_device.sum()),
        "idle_by_cause": explanation.idle.by_cause,
        "causes_by_device": {
            name: explanation.idle.by_device[:, cause].tolist() for cause, name in enumerate(NAMES)
        },
        "critical_path": [
            {
                "op": schedule.label(op),
                "device": int(schedule.device[op]),
                "start": float(timeline.start[op]),
            }
            for op in explanation.path.tolist()
        ],
        "critical_path_text": path_text(schedule, explanation.path),
        "critical_path_length": float(timeline.end[explanation.path].max(initial=0.0)),
        "critical_paths": slack.paths if slack and not explanation.is_stated else None,
        "slack": slack.slack if slack else None,
        "sensitivity": [{"what": gain.what, "gain": gain.gain} for gain in explanation.gains],
        "simulated_makespan": explanation.base.makespan,
        "what_if": [
            {
                "change": change.text,
                "makespan": change.metrics.makespan,
                "makespan_per_mb": _makespan_per_mb(change),
                "bubble_rate": change.metrics.bubble_rate,
            }
            | (
                {"period": change.time, "period_per_mb": change.per_microbatch}
                if steady_state
                else {}
            )
            | ({"held": change.held, "fits": change.fits} if room else {})
            for change in changes
        ],
        **({"memory": {"held": room.held, "cap": room.cap, "unit": room.unit}} if room else {}),
        "advice": advise(explanation, changes, room),
        "advice_with_more_memory": advise_more_memory(explanation, changes, room) or None,
    }


def _makespan_per_mb(change: WhatIf) -> float:
    """Return the makespan per microbatch, also if changes are compared by their period."""
    if change.metrics.round is None:
        return change.per_microbatch
    return change.metrics.makespan / change.timeline.schedule.run_microbatches


def _round_object(steady_state: Round) -> dict[str, Any]:
    """Return the steady state with the keys of ``ppsim run --json``."""
    return {
        "period": steady_state.period,
        "period_bound": steady_state.bound,
        "period_cause": steady_state.reason,
        "rate": steady_state.rate,
        "rate_counts": steady_state.counts,
        "round_bubble": steady_state.bubble,
    }
