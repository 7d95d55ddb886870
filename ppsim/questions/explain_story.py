"""What a page tells of an explained run: bars from work to makespan, causes by device, steps of the path, changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ppsim.base.numbers import format_change, format_number, format_part
from ppsim.questions.words import counted

if TYPE_CHECKING:
    from ppsim.analysis.explain import Explanation, WhatIf
    from ppsim.show.files.document import Story

MOST_STEPS = 200
MOST_ROWS = 64


def story_of(explanation: Explanation, changes: Sequence[WhatIf]) -> Story:
    """Everything that ``explain`` prints, for a page."""
    from ppsim.analysis.critical_path import path_steps
    from ppsim.analysis.explain import advise, best_of
    from ppsim.show.files.document import Story

    timeline, path = explanation.timeline, explanation.path
    unit, base = timeline.unit, explanation.base
    steps = [
        {"text": text, "from": float(timeline.start[path[at]][0]), "to": float(timeline.end[path[at]][-1])}
        for text, at in path_steps(timeline.schedule, path)[:MOST_STEPS]
    ]
    now, best = base.makespan / base.schedule.whole_microbatches, best_of(explanation, changes)
    told = {
        "first": best.text if best else "",
        "lead": advise(explanation, changes),
        "heading": f"From work to makespan, {unit} of a device on average",
        "bars": _waterfall(explanation),
        "matrix": _matrix(explanation),
        "path": {"heading": f"The critical path, {counted(len(path), 'op')}", "steps": steps},
        "changes": [
            {
                "text": change.text,
                "makespan": f"{format_number(change.metrics.makespan)} {unit}",
                "change": f"{format_change(change.per_microbatch / now - 1 if now else 0)} time per microbatch",
            }
            for change in changes
        ],
    }
    return Story(told, tuple(change.timeline for change in changes))


def _waterfall(explanation: Explanation) -> list[dict[str, Any]]:
    """Work, then idle time by cause, the largest first, then the makespan that they sum to."""
    from ppsim.analysis.idle import CAUSES

    timeline, idle = explanation.timeline, explanation.idle
    whole, devices = timeline.makespan, timeline.schedule.n_devices
    means = {name: time / devices for name, time in sorted(idle.by_cause.items(), key=lambda pair: -pair[1])}
    at = whole - sum(means.values())
    bars = [_bar("work", "in ops", 0.0, at, format_part(at, whole))]
    for name, time in means.items():
        bars.append(_bar(name, CAUSES[name], at, at + time, f"+{format_part(time, whole)}"))
        at += time
    return [*bars, _bar("makespan", "end of the last op", 0.0, whole, format_part(whole, whole))]


def _bar(name: str, meaning: str, start: float, end: float, text: str) -> dict[str, Any]:
    return {"name": name, "meaning": meaning, "from": start, "to": end, "text": text}


def _matrix(explanation: Explanation) -> dict[str, Any]:
    from ppsim.analysis.idle import NAMES

    idle = explanation.idle
    names = [name for name in NAMES if name in idle.by_cause]
    worst = sorted(range(len(idle.by_device)), key=lambda device: -float(idle.by_device[device].sum()))[:MOST_ROWS]
    rows = []
    for device in sorted(worst):
        values = [float(idle.by_device[device, NAMES.index(name)]) for name in names]
        texts = [format_part(value, explanation.timeline.makespan) if value else "" for value in values]
        rows.append({"device": device, "values": values, "texts": texts})
    left = f", the {MOST_ROWS} with most of {len(idle.by_device)}" if len(rows) < len(idle.by_device) else ""
    heading = f"Idle time by cause and device, {explanation.timeline.unit}{left}"
    return {"heading": heading, "columns": names, "rows": rows}
