"""Texts of ``explain`` for a terminal and for pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ppsim.ask.words import count_text, shape_line, title_of
from ppsim.base.numbers import (
    align_decimals,
    align_right,
    format_change,
    format_number,
    format_part,
    format_share,
)

if TYPE_CHECKING:
    from rich.console import Console

    from ppsim.analysis.explain import Explanation, MemoryRoom, WhatIf
    from ppsim.analysis.mending import Mending
    from ppsim.analysis.slowdown import Slowdown
    from ppsim.questions.runs.stated import StatedRun
    from ppsim.show.files.document import PageExplanation

MOST_STEPS = 200  # steps of the critical path on a page
SHOWN_STEPS = 12  # steps of the critical path on a terminal
MOST_ROWS = 64  # devices in a page's table of idle time
SHOWN_GAINS = 4  # gains of the critical path
SHOWN = 4  # kinds, devices, replicas and workers of a slow job
WIDEST = 120  # columns of text in a pipe


def explain_lines(
    explanation: Explanation, changes: Sequence[WhatIf], stated: StatedRun | None, screen: Console
) -> Iterator[str]:
    """Yield the whole explanation: heading, causes, critical path, and changes."""
    width = screen.width if screen.is_terminal else WIDEST
    yield from heading_lines(explanation, stated)
    yield ""
    yield from _cause_lines(explanation, width)
    yield ""
    yield from _path_lines(explanation)
    if changes:
        yield ""
        yield from _change_lines(explanation, changes, stated)


def _cause_lines(explanation: Explanation, width: int) -> Iterator[str]:
    """Yield the idle time by cause, the largest first, with the devices that have most of it."""
    from ppsim.analysis.idle import CAUSES, NAMES

    idle, makespan = explanation.idle, explanation.timeline.makespan
    causes = sorted(idle.by_cause.items(), key=lambda pair: -pair[1])
    times = align_decimals([format_part(time, makespan) for _, time in causes])
    for (name, _), time in zip(causes, times, strict=True):
        by_device = idle.by_device[:, NAMES.index(name)]
        worst = sorted(range(len(by_device)), key=lambda device: -by_device[device])[:3]
        row = f"  {time:>8}  {name:<10} {CAUSES[name]:<40}"
        for device in worst:
            cell = f" dev {device}: {format_part(float(by_device[device]), makespan)} "
            if by_device[device] > 0 and len(row) + len(cell) <= width:
                row += cell
        yield row.rstrip()


def _path_lines(explanation: Explanation) -> Iterator[str]:
    """Yield the critical path, and the time saved by making its ops 1% faster."""
    from ppsim.analysis.critical_path import path_steps

    timeline = explanation.timeline
    unit, makespan = timeline.unit, timeline.makespan
    count = ""
    if explanation.slack and explanation.slack.paths > 1 and not explanation.is_stated:
        paths = explanation.slack.paths
        count = f", one of {paths:,.0f}" if paths < 1e15 else f", one of about {paths:.0e}"
    ops = count_text(len(explanation.path), "op")
    yield f"critical path ({ops}, {format_number(makespan)} {unit}{count}):"
    steps = path_steps(timeline.schedule, explanation.path)
    shown = [text for text, _ in steps[:SHOWN_STEPS]]
    if len(steps) > SHOWN_STEPS:
        left = len(explanation.path) - steps[SHOWN_STEPS - 1][1].stop
        shown.append(f"and {count_text(left, 'more op')}")
    yield "  " + " · ".join(shown)
    gains = [gain for gain in explanation.gains if gain.gain > 1e-9 * makespan][:SHOWN_GAINS]
    if gains:
        texts = (f"{gain.what} {format_part(gain.gain, makespan)} {unit}" for gain in gains)
        of = " a round" if explanation.gains_of_round else " in all" if explanation.round else ""
        yield f"1% less gains{of}: {' · '.join(texts)}"


def _change_lines(
    explanation: Explanation, changes: Sequence[WhatIf], stated: StatedRun | None
) -> Iterator[str]:
    """Yield the time and the bubble rate after each change, in columns."""
    unit = explanation.timeline.unit
    is_retimed = explanation.base is not explanation.timeline
    against = f", against {format_number(explanation.base.makespan)} {unit}" if is_retimed else ""
    is_of_replica = stated and stated.job and len(stated.job.replicas) > 1
    of_replica = f" of replica {stated.replica} alone" if stated and is_of_replica else ""
    yield f"what if (each simulated{of_replica}{against}):"
    width = max([26, *(len(change.text) for change in changes)])
    spans, shares, rates = (
        align_right(cells)
        for cells in (
            [format_number(change.time) for change in changes],
            [format_number(change.per_microbatch) for change in changes],
            [format_share(change.bubble) for change in changes],
        )
    )
    span_of, bubble = "", "bubble_rate"
    if explanation.round:
        span_of, bubble = " a round", "bubble of a round"
    for change, span, share, rate in zip(changes, spans, shares, rates, strict=True):
        yield (
            f"  {change.text:<{width}} {span} {unit}{span_of}, {share} per microbatch, "
            f"{bubble} {rate}"
        )


def heading_lines(explanation: Explanation, stated: StatedRun | None) -> Iterator[str]:
    """Yield lines on the explained run, the source of its times, and its idle share."""
    timeline, schedule = explanation.timeline, explanation.timeline.schedule
    unit, total = timeline.unit, float(explanation.idle.by_device.sum())
    yield f"{title_of(schedule)}  {shape_line(schedule)}"
    if stated:
        yield f"{stated.text}: {format_number(timeline.makespan)} {unit}"
        retimed = explanation.base.makespan
        share = f" ({format_change(retimed / timeline.makespan - 1)})" if timeline.makespan else ""
        time = f"{format_number(retimed)} {unit}{share}"
        yield f"simulated with its median op times: {time}"
        for note in stated.notes:
            yield f"note: {note}"
    whole = timeline.makespan * schedule.n_devices
    share = format_share(explanation.metrics.bubble_rate)
    if steady := explanation.round:
        period, bound = format_number(steady.period), format_number(steady.bound)
        least = f"no order takes less than {bound}" if bound != period else "no order takes less"
        yield f"a round takes {period} {unit} in steady state: {steady.reason}; {least}"
    yield f"{format_number(total)} of {format_number(whole)} device·{unit} are idle ({share})"


def job_lines(found: Slowdown, mending: Sequence[Mending]) -> Iterator[str]:
    """Yield lines on the slowdown of a job by kind of op, device, replica and link, and on its
    remedies.
    """
    from ppsim.analysis.mending import slowest_link

    job, step, unit = found.job, float(found.steps.mean()), found.job.unit
    R, P = len(job.replicas), job.schedule.n_devices
    whole, ideal = format_number(float(job.steps.mean())), format_number(found.ideal_step)
    shape = f"{R} replica{'s' * (R > 1)} x {P} devices, {len(job.iterations)} steps"
    yield f"job        {shape}: {whole} {unit} (mean)"
    yield (
        f"           {format_number(step)} {unit} without waits of hosts, {ideal} {unit} if equal "
        f"ops took equal times"
    )
    yield (
        f"slowdown   {found.slowdown:.3f}; each line below keeps only that group's measured times"
    )
    yield f"by kind    {_largest_by_name(found.by_kind.items())}"
    yield f"by device  {_largest_by_name(enumerate(found.by_device_steps.mean(axis=0).tolist()))}"
    if R > 1:
        by_replica = found.by_replica_steps.mean(axis=0).tolist()
        yield f"by replica {_largest_by_name(zip(job.replicas.tolist(), by_replica, strict=True))}"
        workers = (
            f"replica {job.replicas[r]} device {d} {found.by_worker[r, d]:.3f}"
            for r, d in found.slowest[:SHOWN]
        )
        yield f"slowest    {', '.join(workers)}"
    if (link := slowest_link(found)) is not None:
        replica, source, target, ratio = link
        where = f"{source}>{target} of replica {job.replicas[replica]}"
        yield f"link       {where} loses most: its messages take {ratio:.2f} x the median"
    yield (
        f"mending    a normal device for the last stage removes {found.last_stage_share:.0%} of "
        f"the slowdown,"
    )
    yield f"           normal ones for the slowest 3% of workers {found.slowest_workers_share:.0%}"
    if not mending:
        return
    yield ""
    yield f"what if (each simulated, against {format_number(step)} {unit}):"
    width = max(len(change.text) for change in mending)
    steps = align_right([format_number(change.step) for change in mending])
    gains = align_right([format_change(change.step / (step or 1.0) - 1) for change in mending])
    for change, time, gain in zip(mending, steps, gains, strict=True):
        yield f"  {change.text:<{width}}  {time} {unit}  {gain}"


def _largest_by_name(values: Iterable[tuple[object, float]]) -> str:
    """Return the names with the largest slowdowns as text."""
    largest = sorted(values, key=lambda pair: -pair[1])
    more = f" and {len(largest) - SHOWN} more" if len(largest) > SHOWN else ""
    return " · ".join(f"{name} {value:.3f}" for name, value in largest[:SHOWN]) + more


def page_explanation(
    explanation: Explanation,
    changes: Sequence[WhatIf],
    room: MemoryRoom | None,
    advice: str,
    notes: Sequence[str],
) -> PageExplanation:
    """Return the explanation for a page: the numbers and sentences that a terminal shows."""
    from ppsim.analysis.critical_path import path_steps
    from ppsim.analysis.explain import best_of
    from ppsim.show.files.document import PageExplanation

    timeline, path = explanation.timeline, explanation.path
    unit = timeline.unit
    steps = [
        {
            "text": text,
            "from": float(timeline.start[path[at]][0]),
            "to": float(timeline.end[path[at]][-1]),
        }
        for text, at in path_steps(timeline.schedule, path)[:MOST_STEPS]
    ]
    now = explanation.per_microbatch
    best = best_of(explanation, changes, room)
    content = {
        "first": best.text if best else "",
        "lead": advice,
        "notes": list(notes),
        "heading": f"From work to makespan, {unit} of a device on average",
        "bars": _waterfall(explanation),
        "matrix": _matrix(explanation),
        "path": {"heading": f"The critical path, {count_text(len(path), 'op')}", "steps": steps},
        "changes": [
            {
                "text": change.text,
                "makespan": f"{format_number(change.time)} {unit}",
                "change": f"{format_change(change.per_microbatch / now - 1 if now else 0)} time "
                f"per microbatch",
            }
            for change in changes
        ],
    }
    return PageExplanation(content, tuple(change.timeline for change in changes))


def _waterfall(explanation: Explanation) -> list[dict[str, Any]]:
    """Return bars of work, of idle time by cause, and of the makespan that they sum to."""
    from ppsim.analysis.idle import CAUSES

    timeline, idle = explanation.timeline, explanation.idle
    whole, devices = timeline.makespan, timeline.schedule.n_devices
    means = {
        name: time / devices
        for name, time in sorted(idle.by_cause.items(), key=lambda pair: -pair[1])
    }
    at = whole - sum(means.values())
    bars = [bar("work", "in ops", 0.0, at, format_part(at, whole))]
    for name, time in means.items():
        bars.append(bar(name, CAUSES[name], at, at + time, f"+{format_part(time, whole)}"))
        at += time
    return [*bars, bar("makespan", "end of the last op", 0.0, whole, format_part(whole, whole))]


def bar(name: str, meaning: str, start: float, end: float, text: str) -> dict[str, Any]:
    """Return a bar of a page's explanation."""
    return {"name": name, "meaning": meaning, "from": start, "to": end, "text": text}


def _matrix(explanation: Explanation) -> dict[str, Any]:
    """Return a table of idle time by device and cause, of the devices with the most."""
    from ppsim.analysis.idle import NAMES

    idle = explanation.idle
    names = [name for name in NAMES if name in idle.by_cause]
    worst = sorted(
        range(len(idle.by_device)), key=lambda device: -float(idle.by_device[device].sum())
    )[:MOST_ROWS]
    rows = []
    for device in sorted(worst):
        values = [float(idle.by_device[device, NAMES.index(name)]) for name in names]
        texts = [
            format_part(value, explanation.timeline.makespan) if value else "" for value in values
        ]
        rows.append({"device": device, "values": values, "texts": texts})
    heading = f"Idle time by cause and device, {explanation.timeline.unit}"
    if len(rows) < len(idle.by_device):
        heading += f", the {MOST_ROWS} with most of {len(idle.by_device)}"
    return {"heading": heading, "columns": names, "rows": rows}
