"""Why an iteration takes as long as it does: idle time by cause, what decides it, and what a change would give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ppsim.analysis.critical_path import Gain, Slack, critical_path, path_text, sensitivity, slack_of
from ppsim.analysis.idle import CAUSES, NAMES, Idle, explain_idle, explain_run
from ppsim.analysis.observed import Observed
from ppsim.base.numbers import format_share
from ppsim.core.costs import Costs
from ppsim.core.execution import Execution
from ppsim.core.timeline import Timeline
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import Metrics, measure

SCHEMA = "ppsim.explain/1"


@dataclass(frozen=True)
class WhatIf:
    """One change, simulated."""

    text: str  # what is changed, in words
    metrics: Metrics  # of the run with the change
    per_microbatch: float  # its time per microbatch
    advice: str  # the change as an instruction
    timeline: Timeline  # of the run with the change


@dataclass(frozen=True)
class Explanation:
    """Everything ``ppsim explain`` says of one run."""

    timeline: Timeline  # of the compute ops
    metrics: Metrics  # its numbers
    idle: Idle  # its idle time by cause
    path: np.ndarray[Any, np.dtype[np.int64]]  # the ops of a critical path
    # None for the detailed model, where an op's delay also moves messages in their channels, and where devices share a
    # link to their host
    slack: Slack | None
    gains: list[Gain]  # what a hundredth less of each time gives, the largest first
    # what changes are compared with: the timeline itself, or where its times were measured or stated, the schedule
    # timed anew with the costs that they show
    base: Timeline

    @property
    def stated(self) -> bool:
        """Whether the times are not simulated."""
        return self.base is not self.timeline


def explain(
    timeline: Timeline, costs: Costs, execution: Execution | None = None, time: Callable[[Costs], float] | None = None
) -> Explanation:
    """Explain one run: the timeline of its compute ops, and what they cost.

    Where the timeline is of an execution with sends and receives as ops, ``time`` gives the makespan of that model
    under other costs.
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
    """Explain a run whose times were measured or stated; gains are of the costs that its times show."""
    timeline = found.timeline
    slack = slack_of(timeline, found.latencies)
    return Explanation(
        timeline,
        measure(timeline),
        explain_idle(timeline, found.arrival),
        critical_path(timeline),
        replace(slack, slack=np.maximum(slack.slack, 0.0)),  # clocks may differ by less than a message takes
        sensitivity(timeline.schedule, found.costs),
        simulate(timeline.schedule, found.costs),
    )


def what_if(text: str, advice: str, timeline: Timeline) -> WhatIf:
    """A change whose run has this timeline."""
    return WhatIf(text, measure(timeline), timeline.makespan / timeline.schedule.whole_microbatches, advice, timeline)


def best_of(explanation: Explanation, changes: Sequence[WhatIf]) -> WhatIf | None:
    """The change with the least time per microbatch; None where none is better than the run."""
    now = explanation.base.makespan / explanation.base.schedule.whole_microbatches
    best = min(changes, key=lambda change: change.per_microbatch, default=None)
    idle = explanation.idle.by_cause
    return best if idle and best and best.per_microbatch < now * (1 - 1e-3) else None


def advise(explanation: Explanation, changes: Sequence[WhatIf]) -> str:
    """One sentence: what to do first."""
    timeline, before = explanation.base, measure(explanation.base).bubble_rate
    if not explanation.idle.by_cause:
        return "no device is ever idle: only faster ops make it faster"
    now = timeline.makespan / timeline.schedule.whole_microbatches
    best = best_of(explanation, changes)
    if best is None:
        cause = max(explanation.idle.by_cause, key=explanation.idle.by_cause.__getitem__)
        return f"none of these changes helps; most of the idle time is {cause}: {CAUSES[cause]}"
    return (
        f"first: {best.advice}, {format_share(1 - best.per_microbatch / now)} less time per microbatch "
        f"(bubble_rate {format_share(before)} to {format_share(best.metrics.bubble_rate)})"
    )


def explain_object(explanation: Explanation, changes: Sequence[WhatIf], inputs: dict[str, Any]) -> dict[str, Any]:
    """The object of ``--json``, schema ``ppsim.explain/1``; times in the timeline's unit, ``slack`` in queue order."""
    timeline, schedule, slack = explanation.timeline, explanation.timeline.schedule, explanation.slack
    return {
        "schema": SCHEMA,
        "inputs": inputs,
        "schedule": schedule.name,
        "devices": schedule.n_devices,
        "stages": schedule.n_stages,
        "microbatches": schedule.whole_microbatches,
        "unit": timeline.unit,
        "makespan": timeline.makespan,
        "idle": float(explanation.idle.by_device.sum()),
        "idle_by_cause": explanation.idle.by_cause,
        "causes_by_device": {name: explanation.idle.by_device[:, cause].tolist() for cause, name in enumerate(NAMES)},
        "critical_path": [
            {"op": schedule.label(op), "device": int(schedule.device[op]), "start": float(timeline.start[op])}
            for op in explanation.path.tolist()
        ],
        "critical_path_text": path_text(schedule, explanation.path),
        "critical_path_length": float(timeline.end[explanation.path].max(initial=0.0)),
        "critical_paths": slack.paths if slack and not explanation.stated else None,
        "slack": slack.slack if slack else None,
        "sensitivity": [{"what": gain.what, "gain": gain.gain} for gain in explanation.gains],
        "simulated_makespan": explanation.base.makespan,
        "what_if": [
            {
                "change": change.text,
                "makespan": change.metrics.makespan,
                "makespan_per_mb": change.per_microbatch,
                "bubble_rate": change.metrics.bubble_rate,
            }
            for change in changes
        ],
        "advice": advise(explanation, changes),
    }
