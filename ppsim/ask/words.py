"""The words of answers: sizes, result lines, summaries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isnan
from typing import TYPE_CHECKING, Any

from ppsim.ask.blocks import Line
from ppsim.base.numbers import format_number, format_share
from ppsim.engine.simple.columns import (
    ATTAINED,
    Shape,
    columns_of,
    is_share,
    peak_share,
    shape_of,
    work_of,
)
from ppsim.errors import UnknownSchedule

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule
    from ppsim.core.timeline import Timeline
    from ppsim.engine.simple.metrics import Metrics
    from ppsim.schedules import Family


MOST_MISFITS = 4  # lines on ops of an encoder outside the bubbles


def shape_line(schedule: Schedule) -> str:
    """Return the size in words: 4 devices x 2 chunks = 8 stages, 8 microbatches x 4 slices."""
    return (
        f"{count_text(schedule.n_devices, 'device')} x {count_text(schedule.n_chunks, 'chunk')} = "
        f"{count_text(schedule.n_stages, 'stage')}, {work_of(schedule)}"
        + (", 2 replicas" if schedule.placement.n_replicas > 1 else "")
    )


def result_line(name: str, metrics: Metrics, shape: Shape, unit: str) -> str:
    """Return the numbers of one run on one line."""
    shown = [c for c in columns_of("line") if c.applies(metrics)]
    numbers = (f"{c.heading} {c.text(c.value(metrics, shape), unit)}" for c in shown)
    share = (
        "" if is_share(shape) else f" ({format_number(peak_share(metrics, shape))} of a 1/P share)"
    )
    return "  ".join([name, *numbers]) + share


def summary_lines(timeline: Timeline, metrics: Metrics) -> Iterator[Line]:
    """Yield the numbers of one run, one line each, with what they mean."""
    shape = shape_of(timeline.schedule)
    for column in columns_of("summary"):
        if column.applies(metrics) and not isnan(value := column.value(metrics, shape)):
            text = column.text(value, timeline.unit)
            yield summary_line(column.heading, text, column.summary_note_on(metrics, shape))


def summary_line(name: str, value: str, note: str) -> Line:
    """Return a number of a run with its name and what it means."""
    return Line([f"{name:<18} ", (f"{value:>12}   ", "name"), (note, "quiet")], 34)


def run_verdict(schedule: Schedule, metrics: Metrics, unit: str) -> str:
    """Return the result of one run in one sentence: its time, its idle share, and its distance from
    the bound.
    """
    devices = count_text(schedule.n_devices, "device")
    time = f"{format_number(metrics.makespan)} {unit}"
    idle = f"idle {format_share(metrics.bubble_rate)} of it (bubble_rate)"
    if around := metrics.round:
        time = f"{format_number(around.period)} {unit} from one round to the next"
        idle = f"idle {format_share(around.bubble)} of it"
    text = f"{schedule.name} takes {time} for {work_of(schedule)} on {devices}, {idle}"
    return text + ("" if metrics.round else _bound_of(metrics, unit))


def _bound_of(metrics: Metrics, unit: str) -> str:
    """Return the bound on other orders as text; empty if it was not asked for."""
    if isnan(metrics.bound):
        return ""
    if metrics.gap > ATTAINED:
        least = f"{format_number(metrics.bound)} {unit}"
        return f"; no order of the same ops takes less than {least}"
    return "; no order of the same ops takes less"


def recomputed(schedules: Iterable[Schedule]) -> list[str]:
    """Return lines on the meaning of an activation under recompute; empty without recompute."""
    again = [schedule for schedule in schedules if schedule.recomputed.any()]
    if not again:
        return []
    if all(schedule.partial_recompute for schedule in again):
        return [
            "where a part of a stage runs again, an activation counts from its F on, which keeps "
            "the rest"
        ]
    return [
        "with recompute an activation counts from its R on; the input that F keeps for it does not "
        "count"
    ]


def counts_lines(schedules: Iterable[Schedule]) -> list[str]:
    """Return lines on the units of M and of idle shares, for schedules that are not one step with a
    flush, and on why one that never flushes has no period.
    """
    lines = dict[str, None]()
    for schedule in schedules:
        family, M, P = _family(schedule.name), schedule.round_microbatches, schedule.n_devices
        if family and family.counts:
            lines[f"{schedule.name}: {family.counts}"] = None
        if schedule.needs_more_versions:
            lines[
                f"{schedule.name} has no period with {M} microbatches a step on {P} devices, as it "
                f"needs more than two versions of the weights: --mb {P} or more"
            ] = None
    return [*lines]


def encoder_lines(timeline: Timeline, costs: Costs) -> list[str]:
    """Say how many ops of an encoder are in bubbles, and which are not; empty where there is
    none.
    """
    from ppsim.core.ops import Kind

    kinds = timeline.schedule.kind
    encoders = int(((kinds == Kind.EF) | (kinds == Kind.EB)).sum())
    if not encoders:
        return []
    from ppsim.search.rules.encoder import find_misfits

    alone, misfits = find_misfits(timeline, costs)
    unit = timeline.unit
    lines = [
        f"{encoders - len(misfits)} of {encoders} encoder ops are in bubbles; the model behind it "
        f"alone takes {format_number(alone)} {unit}"
    ]
    for each in misfits[:MOST_MISFITS]:
        until = "its microbatch is needed" if each.kind == Kind.EF else "the pipeline is done"
        late = f"{format_number(each.lacks)} {unit} after {until}"
        lines.append(
            f"no bubble for {each.kind.name}{each.microbatch} on device {each.device}: it ends "
            f"{late}"
        )
    if more := len(misfits[MOST_MISFITS:]):
        lines.append(f"and for {more} more (--json)")
    return lines


def title_of(schedule: Schedule) -> str:
    """Return the schedule's name as figures write it."""
    family = _family(schedule.name)
    return family.title if family else schedule.name


def _family(name: str) -> Family | None:
    """Find a schedule's family by its name; None where a file or a function of the user's has made
    it.
    """
    from ppsim.schedules import find

    try:
        return find(name)
    except UnknownSchedule:
        return None


def title_with_chunks(schedule: Schedule) -> str:
    """Return the same, with the stages of a device where there are several."""
    return title_of(schedule) + (f" (V={schedule.n_chunks})" if schedule.n_chunks > 1 else "")


def count_text(number: int, noun: str) -> str:
    """Return a number and its noun: 1 device, 4 devices."""
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def needs(family: Family) -> str:
    """Return the rules of a schedule as one line."""
    return "; ".join(rule.text for rule in family.rules) or "any P, V, M"


# Rules in the letters of the list, where they are short.
_SHORT = {
    "one stage per device": "V = 1",
    "two stages per device": "V = 2",
    "at least two stages per device": "V >= 2",
    "an even number of stages per device, two for each wave": "V even",
    "an even number of devices": "P even",
    "an even number of microbatches, half from each end": "M even",
    "at least two slices (--slices)": "K >= 2",
    "at least 2P microbatches": "M >= 2P",
    "at least P microbatches": "M >= P",
}


def short_needs(family: Family) -> str:
    """Return the rules of a schedule in letters, without rules that need a sentence."""
    texts = [_SHORT.get(rule.text, rule.text) for rule in family.rules]
    return ", ".join(text for text in texts if len(text) <= len("M >= P + P / 2")) or "-"


def family_object(family: Family) -> dict[str, Any]:
    """Return a schedule's facts for --json."""
    return {
        "name": family.name,
        "title": family.title,
        "aliases": family.aliases,
        "torch": family.torch,
        "placement": family.placement,
        "chunks": family.chunks,
        "split_backward": family.split,
        "needs": [rule.text for rule in family.rules],
        "bubble": family.bubble,
        "peak_activations": family.peak,
        "idea": family.idea,
        "paper": family.paper,
        "options": family.options,
        "counts": family.counts,
    }
