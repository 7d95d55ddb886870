"""Texts that answers share: sizes, result lines, summaries."""

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


MOST_MISFITS = 4  # ops of an encoder outside the bubbles to list


def shape_line(schedule: Schedule) -> str:
    """Return the size as text: 4 devices x 2 chunks = 8 stages, 8 microbatches x 4 slices."""
    return (
        f"{count_text(schedule.n_devices, 'device')} x {count_text(schedule.n_chunks, 'chunk')} = "
        f"{count_text(schedule.n_stages, 'stage')}, {work_of(schedule)}"
        + (", 2 replicas" if schedule.placement.n_replicas > 1 else "")
    )


def result_line(name: str, metrics: Metrics, shape: Shape, unit: str) -> str:
    """Return the numbers of one run on one line."""
    columns = [column for column in columns_of("line") if column.applies(metrics)]
    numbers = (
        f"{column.heading} {column.text(column.value(metrics, shape), unit)}" for column in columns
    )
    line = "  ".join([name, *numbers])
    if is_share(shape):
        return line
    return f"{line} ({format_number(peak_share(metrics, shape))} of a 1/P share)"


def summary_lines(timeline: Timeline, metrics: Metrics) -> Iterator[Line]:
    """Yield a line for each number of one run, with its meaning."""
    shape = shape_of(timeline.schedule)
    for column in columns_of("summary"):
        if column.applies(metrics) and not isnan(value := column.value(metrics, shape)):
            text = column.text(value, timeline.unit)
            yield summary_line(column.heading, text, column.summary_note_on(metrics, shape))


def summary_line(name: str, value: str, note: str) -> Line:
    """Return a line with a number of a run, its name and its meaning."""
    return Line([f"{name:<18} ", (f"{value:>12}   ", "name"), (note, "quiet")], 34)


def run_verdict(schedule: Schedule, metrics: Metrics, unit: str) -> str:
    """Return the result of one run in one sentence: its time, its idle share, and the bound."""
    devices = count_text(schedule.n_devices, "device")
    time = f"{format_number(metrics.makespan)} {unit}"
    idle = f"idle {format_share(metrics.bubble_rate)} of it (bubble_rate)"
    if steady := metrics.round:
        time = f"{format_number(steady.period)} {unit} from one round to the next"
        idle = f"idle {format_share(steady.bubble)} of it"
    text = f"{schedule.name} takes {time} for {work_of(schedule)} on {devices}, {idle}"
    return text if metrics.round else text + _bound_text(metrics, unit)


def _bound_text(metrics: Metrics, unit: str) -> str:
    """Return a clause on the bound of other orders; empty if it is not known."""
    if isnan(metrics.bound):
        return ""
    if metrics.gap > ATTAINED:
        least = f"{format_number(metrics.bound)} {unit}"
        return f"; no order of the same ops takes less than {least}"
    return "; no order of the same ops takes less"


def recomputed(schedules: Iterable[Schedule]) -> list[str]:
    """Return a line on the meaning of an activation with recompute; nothing without recompute."""
    with_recompute = [schedule for schedule in schedules if schedule.recomputed.any()]
    if not with_recompute:
        return []
    if all(schedule.partial_recompute for schedule in with_recompute):
        return [
            "with recompute of a part of a stage, an activation counts from its F on, which keeps "
            "the other part"
        ]
    return [
        "with recompute, an activation counts from its R on; the input that F keeps for R does not "
        "count"
    ]


def counts_lines(schedules: Iterable[Schedule]) -> list[str]:
    """Return notes on the units of M and of idle shares, for schedules that are not one step with a
    flush; and the reason why a schedule that never flushes has no period.
    """
    lines = dict[str, None]()
    for schedule in schedules:
        family, M, P = _family(schedule.name), schedule.round_microbatches, schedule.n_devices
        if family and family.counts:
            lines[f"{schedule.name}: {family.counts}"] = None
        if schedule.needs_more_versions:
            lines[
                f"{schedule.name} has no period with {M} microbatches a step on {P} devices, "
                f"because it needs more than two versions of the weights: --mb {P} or more"
            ] = None
    return [*lines]


def encoder_lines(timeline: Timeline, costs: Costs) -> list[str]:
    """Return lines on the ops of an encoder in bubbles and outside; nothing without an encoder."""
    from ppsim.core.ops import Kind

    kinds = timeline.schedule.kind
    encoders = int(((kinds == Kind.EF) | (kinds == Kind.EB)).sum())
    if not encoders:
        return []
    from ppsim.search.rules.encoder import find_misfits

    alone, misfits = find_misfits(timeline, costs)
    unit = timeline.unit
    lines = [
        f"{encoders - len(misfits)} of {encoders} encoder ops are in bubbles; without the encoder, "
        f"the model takes {format_number(alone)} {unit}"
    ]
    for misfit in misfits[:MOST_MISFITS]:
        deadline = "its microbatch is needed" if misfit.kind == Kind.EF else "the pipeline is done"
        lines.append(
            f"no bubble for {misfit.kind.name}{misfit.microbatch} on device {misfit.device}: it "
            f"ends {format_number(misfit.lacks)} {unit} after {deadline}"
        )
    if more := len(misfits[MOST_MISFITS:]):
        lines.append(f"and for {more} more (--json)")
    return lines


def title_of(schedule: Schedule) -> str:
    """Return the title of a schedule in figures."""
    family = _family(schedule.name)
    return family.title if family else schedule.name


def _family(name: str) -> Family | None:
    """Return the family of a schedule's name; None for a schedule of a user's file or function."""
    from ppsim.schedules import find

    try:
        return find(name)
    except UnknownSchedule:
        return None


def title_with_chunks(schedule: Schedule) -> str:
    """Return the title of a schedule in figures, with its stages per device if several."""
    title = title_of(schedule)
    return f"{title} (V={schedule.n_chunks})" if schedule.n_chunks > 1 else title


def count_text(number: int, noun: str) -> str:
    """Return a number with a noun: 1 device, 4 devices."""
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def needs(family: Family) -> str:
    """Return the rules of a schedule on its sizes, as one line."""
    return "; ".join(rule.text for rule in family.rules) or "any P, V, M"


# Short forms of rules, for the list of schedules.
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
    """Return the rules of a schedule in short form, without those that need a sentence."""
    texts = [_SHORT.get(rule.text, rule.text) for rule in family.rules]
    return ", ".join(text for text in texts if len(text) <= len("M >= P + P / 2")) or "-"


def family_object(family: Family) -> dict[str, Any]:
    """Return the facts of a schedule for --json."""
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
