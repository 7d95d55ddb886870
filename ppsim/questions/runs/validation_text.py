"""Texts of ``ppsim validate`` for a terminal and for pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ppsim.ask.blocks import Block, Line, Table
from ppsim.base.numbers import MINUS, format_change, format_number, format_share

if TYPE_CHECKING:
    from ppsim.real.runs.record import Record
    from ppsim.real.traces.run import RealRun
    from ppsim.real.validation.verdict import Validation, Verdict
    from ppsim.show.files.document import PageExplanation

# The costs of each level of prediction; a level adds to the one before it.
LEVELS = {
    "nominal": "op times measured alone, messages take no time",
    "link": "and message times measured alone, before the runs",
    "host": "and times of ops and calls in the other schedules' runs",
    "held-out": "and latencies and gaps of those runs; nothing of the predicted run itself",
    "replay": "the measured time of each op: the remaining error is the model's",
}
JOB_LEVELS = {
    "replay": "the measured op times",
    "stage and kind": "medians of other steps, by stage and kind",
    "+ worker": "and a factor of each device of each replica",
    "+ microbatch": "or a line over the first stage's forward of each microbatch in this step",
    "held-out": "both",
}


def verdict_of(value: dict[str, Any], held_out: bool, runs: str) -> str:
    """Return a sentence on the errors of predicted makespans against the tolerance.

    Args:
        value: the errors, as the JSON has them.
        held_out: True if the costs are from other runs than the predicted ones.
        runs: the number of measured runs, as text.
    """
    predictions = "held-out predictions" if held_out else "predictions with own costs"
    error = value["errors"]["held-out"]
    errors = f"{error['median']:.2%} (median), {error['worst']:.2%} (worst)"
    text = f"{predictions} are off by {errors} of the measured makespan of {runs}: "
    tolerance = f"the tolerance of {value['tolerance']:.0%}"
    if value.get("lost_in_noise"):
        return (
            f"{text}no more than the noise, which cannot decide whether they are within "
            f"{tolerance}; measure on a quiet machine, or more --repeats"
        )
    return f"{text}{'within' if value['passed'] else 'NOT within'} {tolerance}"


def job_lines(run: RealRun, value: dict[str, Any]) -> Iterator[Block]:
    """Yield lines on a job, and the errors of its prediction at each level of costs."""
    from ppsim.ask.words import count_text

    shape = f"{count_text(value['replicas'], 'replica')} x {count_text(value['devices'], 'device')}"
    steps = count_text(len(value["iterations"]), "step")
    yield Line(f"job        {run.source}: {value['schedule']}, {shape}, {steps}", 11)
    measured = f"{format_number(value['measured'])} {value['unit']}"
    yield Line(f"           each replica's time in each step, {measured} (median), predicted", 11)
    for note in run.notes:
        yield Line(f"           {note}", 11)
    yield ""
    for level, meaning in JOB_LEVELS.items():
        error = value["errors"][level]
        if level == "replay" and run.job and run.job.host is not None:
            meaning += ", messages and gaps"
        text = f"{level:<15} median {error['median']:7.3%}   worst {error['worst']:7.3%}"
        yield Line([(text, "name" if level == "held-out" else ""), f"   {meaning}"], len(text) + 3)
    yield ""


def detail_lines(validation: Validation, record: Record, value: dict[str, Any]) -> Iterator[Block]:
    """Yield a table of the schedules' errors, the ops of the first with the largest errors, the
    errors by level, and the source of the measurements.
    """
    yield from _table(validation, value["tolerance"])
    for v in validation.verdicts[: 1 if len(validation.verdicts) > 1 else None]:
        yield from _residuals(v)
    for level, error in value["errors"].items():
        text = f"{level:<10} median {error['median']:6.2%}   worst {error['worst']:6.2%}"
        yield Line([(text, "name" if level == "held-out" else "")])
    if validation.pairs:
        yield Line(
            f"ranking    {validation.ranked_right} of {validation.pairs} held-out pairs more than "
            f"2% apart",
            11,
        )
    yield Line(f"measured   {_source_text(record)}", 11)
    for line in _gpu_remarks(record):
        yield Line(line, 11)


def _table(validation: Validation, tolerance: float) -> Iterator[Block]:
    """Yield a table with a row for each schedule, and lines on its marks."""
    headings = ["schedule\n", "measured\nms", "p10 to p90\n", "predicted\nms"]
    headings += ["nominal\n", "+ link\n", "+ host\n", "held-out\n"]
    noise = any(v.floor is not None for v in validation.verdicts)
    headings += [*(["noise\n"] if noise else []), "replay\n"]
    rows = []
    for v in validation.verdicts:
        low, high = v.spread
        times = [f"{v.makespan:.1f}", f"{low:.1f} {high:.1f}", f"{v.predicted:.1f}"]
        errors = [format_change(v.errors[level]) for level in ("nominal", "link", "host")]
        held = format_change(v.errors["held-out"]) + ("" if v.held_out else "*")
        floor = [] if not noise else ["" if v.floor is None else format_share(v.floor)]
        rows.append([v.run.name, *times, *errors, held, *floor, format_change(v.errors["replay"])])
    held_out = headings.index("held-out\n")

    def tone(row: int, column: int) -> str:
        if column != held_out:
            return "" if column else "name"
        v = validation.verdicts[row]
        if not v.held_out:
            return "quiet"
        return "good" if abs(v.errors["held-out"]) <= tolerance else "" if v.within_noise else "bad"

    spare = ["p10 to p90\n", "+ link\n", "+ host\n", "replay\n", "nominal\n"]
    yield Table(headings, rows, 110, spare, tone=tone)
    if noise:
        within = sum(v.within_noise for v in validation.verdicts)
        yield Line(
            "noise: the error with costs from other rounds of the same schedule. Held-out errors "
            f"within it may be noise alone: {within} of {len(validation.verdicts)} are."
        )
    if any(not v.held_out for v in validation.verdicts):
        counted = ", and not counted below" if any(v.held_out for v in validation.verdicts) else ""
        yield Line(f"* costs are from the same run, so it is not held out{counted}", 2)
    yield ""


def _residuals(v: Verdict) -> Iterator[Block]:
    """Yield the errors of a prediction in ms by device, and its ops with the largest errors."""
    from ppsim.real.validation.verdict import CLASSES, find_worst_ops

    yield Line([(v.run.name, "name"), ": predicted - measured, ms per device"])
    rows = [
        [f"device {device}", *(_signed_ms(ms) for ms in row)]
        for device, row in enumerate(v.residual)
    ]
    yield Table(["", *CLASSES], rows, 110)
    ops = ", ".join(
        f"{op} on device {device} {_signed_ms(error)} ms"
        for op, device, _, error in find_worst_ops(v, 3)
    )
    yield Line(f"largest errors: {ops}")
    yield ""


def _signed_ms(ms: float) -> str:
    """Return a difference of times with its sign, to a hundredth of a millisecond."""
    return f"{ms:+.2f}".replace("-", MINUS)


def _source_text(record: Record) -> str:
    """Return the date, the machine and the source of the costs of a record, as text."""
    if record.settings["ops"] == "trace":
        costs = f"nominal costs from {record.settings['costs']}"
        if "clocks" in record.settings:
            costs += f"; {record.settings['clocks']}"
        if "gap_ms" in record.settings:
            gap, latency = record.settings["gap_ms"], record.settings["latency_ms"]
            costs += (
                f"; between ops a device needs {gap:.2f} ms and a message {latency:.2f} ms "
                f"(medians)"
            )
        if record.provenance["date"] == "unknown":
            return "elsewhere; " + costs
        return "{date} elsewhere, on {device} of {machine}; ".format_map(record.provenance) + costs
    if record.settings.get("device") == "cuda":
        return "{date} on {device}, {cpu}, torch {torch}".format_map(record.provenance)
    return "{date} on {cpu}, {cores} cores, load {load}, torch {torch}".format_map(
        record.provenance
    )


def _gpu_remarks(record: Record) -> Iterator[str]:
    """Yield remarks on a run on GPUs: partitions, repetitions left out, and the host's lead."""
    settings = record.settings
    if "emulation" in settings:
        yield f"           {settings['emulation']}"
        parts, factor = settings["partition_sms"], settings["interference"]
        yield (
            f"           a device is {parts} multiprocessors; ops take {factor:.2f} x as long "
            f"with all devices busy"
        )
    for name, count in settings.get("launch_bound", {}).items():
        yield (
            f"           {name}: {count} repetitions left out, because the GPU waited for the host "
            f"(launch-bound)"
        )
    if shares := settings.get("issued_share"):
        yield (
            f"           the host had issued all ops after {max(shares.values()):.0%} of the "
            f"makespan at most"
        )


def picker_of(validation: Validation, titles: Sequence[str]) -> PageExplanation:
    """Return the data with which ``report_picker.js`` compares predicted and measured timelines."""
    import numpy as np

    from ppsim.analysis.diff import MEANINGS, TERMS, terms_of
    from ppsim.analysis.idle import explain_idle
    from ppsim.analysis.observed import observe
    from ppsim.real.validation.overlay import timelines_of
    from ppsim.show.files.document import PageExplanation

    found = map(observe, timelines_of(validation))
    rows = np.array([terms_of(explain_idle(each.timeline, each.arrival)) for each in found])
    used = np.flatnonzero(rows.any(axis=(0, 1)))
    names, levels = [TERMS[term] for term in used], list(validation.verdicts[0].errors)
    picker = {
        "terms": names,
        "meanings": {name: MEANINGS[name] for name in names},
        "rows": [
            [[float(f"{value:.5g}") for value in device] for device in run]
            for run in rows[:, :, used]
        ],
        "levels": levels,
        "said": {level: LEVELS[level] for level in levels},
        "errors": [
            {"name": title, "texts": [format_change(verdict.errors[level]) for level in levels]}
            for title, verdict in zip(titles, validation.verdicts, strict=True)
        ],
    }
    return PageExplanation({"picker": picker})
