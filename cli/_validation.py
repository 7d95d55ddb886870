"""How ``ppsim validate`` prints what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ppsim.cli._fit import echo_wrapped, print_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ppsim.runs.record import Record
    from ppsim.validation.analyse import Validation, Verdict


def show(validation: Validation, record: Record, value: dict[str, Any], quiet: bool) -> None:
    verdict = "within" if value["passed"] else "NOT within"
    errors = value["errors"]
    if not quiet:
        _table(validation, value["tolerance"])
        for v in validation.verdicts[: 1 if len(validation.verdicts) > 1 else None]:
            _residuals(v)
        for level, error in errors.items():
            text = f"{level:<10} median {error['median']:6.2%}   worst {error['worst']:6.2%}"
            echo_wrapped([(text, "name" if level == "held-out" else "")])
        if validation.pairs:
            echo_wrapped(
                f"ranking    {validation.ranked_right} of {validation.pairs} held-out pairs more than 2 % apart", 11
            )
        echo_wrapped(f"measured   {_where(record)}", 11)
        for line in _on_a_gpu(record):
            echo_wrapped(line, 11)
    held = errors["held-out"]
    what = "held-out predictions" if any(v.held_out for v in validation.verdicts) else "predictions with own costs"
    text = f"{what} are off by {held['median']:.2%} (median), {held['worst']:.2%} (worst): "
    passed = (f"{verdict} the tolerance of {value['tolerance']:.0%}", "good" if value["passed"] else "fault")
    echo_wrapped([text, passed])


def _table(validation: Validation, tolerance: float) -> None:
    headings = ["schedule\n", "measured\nms", "p10 to p90\n", "predicted\nms"]
    headings += ["nominal\n", "+ link\n", "+ host\n", "held-out\n"]
    noise = any(v.floor is not None for v in validation.verdicts)
    headings += [*(["noise\n"] if noise else []), "replay\n"]
    rows = []
    for v in validation.verdicts:
        low, high = v.spread
        times = [f"{v.makespan:.1f}", f"{low:.1f} {high:.1f}", f"{v.predicted:.1f}"]
        errors = [f"{v.errors[level]:+.1%}" for level in ("nominal", "link", "host")]
        held = f"{v.errors['held-out']:+.1%}" + ("" if v.held_out else "*")
        floor = [] if not noise else ["" if v.floor is None else f"{v.floor:.1%}"]
        rows.append([v.run.name, *times, *errors, held, *floor, f"{v.errors['replay']:+.1%}"])
    held_out = headings.index("held-out\n")

    def tone(row: int, column: int) -> str:
        if column != held_out:
            return "" if column else "name"
        v = validation.verdicts[row]
        return "quiet" if not v.held_out else "good" if abs(v.errors["held-out"]) <= tolerance else "bad"

    spare = ["p10 to p90\n", "+ link\n", "+ host\n", "replay\n", "nominal\n"]
    print_table(headings, rows, at_least=110, spare=spare, tone=tone)
    if noise:
        within = sum(v.within_noise for v in validation.verdicts)
        echo_wrapped(
            "noise: the error with costs from the schedule's own other rounds. A held-out error within it cannot be "
            f"told from none: {within} of {len(validation.verdicts)} are."
        )
    if any(not v.held_out for v in validation.verdicts):
        counted = ", and not counted below" if any(v.held_out for v in validation.verdicts) else ""
        echo_wrapped(f"* its costs come from its own run: not held out{counted}", 2)
    click.echo()


def _residuals(v: Verdict) -> None:
    from ppsim.validation.analyse import CLASSES, find_worst_ops

    echo_wrapped([(v.run.name, "name"), ": predicted - measured, ms per device"])
    rows = [[f"device {device}", *(f"{ms:+.2f}" for ms in row)] for device, row in enumerate(v.residual)]
    print_table(["", *CLASSES], rows, at_least=110)
    off = ", ".join(f"{op} on device {device} {shift:+.2f} ms" for op, device, _, shift in find_worst_ops(v, 3))
    echo_wrapped(f"furthest off: {off}")
    click.echo()


def _where(record: Record) -> str:
    if record.settings["ops"] == "trace":
        costs = f"nominal costs from {record.settings['costs']}"
        if "clocks" in record.settings:
            costs += f"; {record.settings['clocks']}"
        if "gap_ms" in record.settings:
            gap, latency = record.settings["gap_ms"], record.settings["latency_ms"]
            costs += f"; between ops a device needs {gap:.2f} ms and a message {latency:.2f} ms (medians)"
        if record.provenance["date"] == "unknown":
            return "elsewhere; " + costs
        return "{date} elsewhere, on {device} of {machine}; ".format_map(record.provenance) + costs
    if record.settings.get("device") == "cuda":
        return "{date} on {device}, {cpu}, torch {torch}".format_map(record.provenance)
    return "{date} on {cpu}, {cores} cores, load {load}, torch {torch}".format_map(record.provenance)


def _on_a_gpu(record: Record) -> Iterator[str]:
    """What a reader must know of a run on GPUs: what it was, and whether the host kept ahead."""
    settings = record.settings
    if "emulation" in settings:
        yield f"           {settings['emulation']}"
        parts, factor = settings["partition_sms"], settings["interference"]
        yield f"           a device is {parts} multiprocessors; ops take {factor:.2f} x as long with all devices busy"
    for name, count in settings.get("launch_bound", {}).items():
        yield f"           {name}: {count} repetitions left out, in which the GPU waited for the host (launch-bound)"
    if shares := settings.get("issued_share"):
        yield f"           the host had issued all ops after {max(shares.values()):.0%} of the makespan at most"
