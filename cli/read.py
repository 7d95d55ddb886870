"""Show what a run or file is: devices, schedule, medians."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ppsim.cli._fit import echo_wrapped, print_table
from ppsim.cli._options import json_option, make_command, quiet_option
from ppsim.cli._stated import iteration_option, read_named_run
from ppsim.cli._types import ScheduleName

if TYPE_CHECKING:
    from ppsim.core.schedule import Schedule
    from ppsim.runs.observed.run import RealRun
    from ppsim.simulation.terms import Spread, Terms

FORMATS = {
    "primus": "Primus dumps",
    "kineto": "Kineto traces",
    "record": "a record",
    "timeline": "a schedule with times",
    "schedule": "a schedule without times",
}


@make_command("read")
@click.argument("files", nargs=-1, required=True, type=click.Path(), metavar="FILE...")
@click.option("--schedule", "-s", "schedule", type=ScheduleName(), default="", help="Which run of a record of several.")
@iteration_option("all")
@json_option
@quiet_option
def command(files: tuple[str, ...], schedule: str, iteration: str, as_json: bool, quiet: bool) -> None:
    """Show what a real run, or a schedule's file, is.

    FILE is a folder, or the files of all devices: Primus' pp_rank_N.json with config.json beside, Kineto traces of
    torch's pipelines, a record that ppsim validate kept, or a schedule. The schedule is read off the order of ops, and
    named where it is a known one's. Medians are over all iterations but the first.

    \b
      ppsim read run/
      ppsim read rank0.json.gz rank1.json.gz --iteration 4-20
    """
    from ppsim.cli import _print
    from ppsim.runs.observed.read import shows_run

    observed = read_named_run(files, schedule) if len(files) > 1 or shows_run(files[0]) else _stated(files[0])
    if observed is None:
        _show_schedule(files[0], as_json)
        return
    kept = observed.drop_first() if iteration == "all" else observed.select(iteration)
    value = run_object(observed, kept)
    if as_json:
        _print.echo_json(value)
        return
    for line in _headline(observed, kept):
        echo_wrapped(line, 11)
    if not quiet:
        click.echo()
        _print_stages(kept, value)
        for line in _between(value, kept.unit):
            echo_wrapped(line, 11)


def run_object(observed: RealRun, kept: RealRun) -> dict[str, Any]:
    """Build the object of --json, schema ``ppsim.read/1``; medians are over the iterations ``kept``."""
    from ppsim.simulation.terms import measure_terms

    schedule = observed.schedule
    terms = measure_terms(schedule, kept.start, kept.end)
    return {
        "schema": "ppsim.read/1",
        "source": observed.source,
        "format": observed.format,
        **shape_object(schedule),
        "unit": observed.unit,
        "iterations": [
            {"number": int(number), "makespan": float(makespan)}
            for number, makespan in zip(observed.iterations, observed.makespans, strict=True)
        ],
        "counted": kept.iterations.tolist(),
        "makespan": float(np.median(kept.makespans)),
        "stages": list(_stages(kept)),
        **_terms_object(terms),
        "memory": None if kept.memory is None else np.median(kept.memory, axis=0).tolist(),
        "clock_offsets": observed.offset.tolist(),
        "notes": list(observed.notes),
    }


def shape_object(schedule: Schedule) -> dict[str, Any]:
    """Say what the schedule is."""
    return {
        "schedule": schedule.name,
        "placement": schedule.placement.name,
        "devices": schedule.n_devices,
        "stages_per_device": schedule.n_chunks,
        "microbatches": schedule.n_microbatches,
    }


def _stages(kept: RealRun) -> Iterator[dict[str, Any]]:
    """Median, 10th and 90th percentile of every stage's ops, by kind."""
    from ppsim.core.ops import Kind

    schedule, took = kept.schedule, kept.end - kept.start
    for stage in range(schedule.n_stages):
        here = schedule.stage == stage
        kinds = {}
        for kind in np.unique(schedule.kind[here]).tolist():
            low, middle, high = np.quantile(took[:, here & (schedule.kind == kind)], [0.1, 0.5, 0.9]).tolist()
            kinds[Kind(kind).name] = {"median": middle, "p10": low, "p90": high}
        yield {"stage": stage, "device": int(schedule.device[here][0]), "times": kinds}


def _terms_object(terms: Terms) -> dict[str, Any]:
    def spread(found: Spread) -> dict[str, float]:
        return {"median": found.median, "p10": found.p10, "p90": found.p90, "n": found.n}

    return {
        "gap": terms.typical_gap,
        "gaps": [{"device": d, "after": a.name, "before": b.name, **spread(s)} for (d, a, b), s in terms.gaps.items()],
        "latency": terms.typical_latency,
        "latencies": [{"source": a, "target": b, **spread(s)} for (a, b), s in terms.latencies.items()],
    }


def _headline(observed: RealRun, kept: RealRun) -> Iterator[str]:
    from ppsim.cli._print import counted, shape_line

    schedule = observed.schedule
    yield f"file       {observed.source}: {FORMATS[observed.format]}"
    named = "in no order that ppsim knows" if schedule.name == "custom" else schedule.name
    yield f"schedule   {named}: {shape_line(schedule)}, {schedule.placement.name} placement"
    numbers, makespans = observed.iterations, observed.makespans
    count = counted(len(numbers), "iteration")
    times = " to ".join(dict.fromkeys(_digits(t) for t in (kept.makespans.min(), kept.makespans.max())))
    middle = _digits(float(np.median(kept.makespans)))
    yield f"run        {count}; {len(kept.iterations)} counted: {middle} {observed.unit} (median), {times}"
    if len(kept.iterations) == len(numbers) - 1 and numbers[0] != kept.iterations[0]:
        yield f"           the first one, left out: {_digits(makespans[0])} {observed.unit}"
    for note in observed.notes:
        yield f"           {note}"


def _print_stages(kept: RealRun, value: dict[str, Any]) -> None:
    from ppsim.base.units import format_size

    kinds = [kind for kind in "FBIWR" if any(kind in row["times"] for row in value["stages"])]
    memory = value["memory"]
    headings = ["stage", "device", *(h for kind in kinds for h in (f"{kind}, {kept.unit}", f"{kind} p10 to p90"))]
    rows = []
    for row in value["stages"]:
        cells = [str(row["stage"]), str(row["device"])]
        for kind in kinds:
            time = row["times"].get(kind)
            cells.append("" if time is None else _digits(time["median"]))
            cells.append("" if time is None else f"{_digits(time['p10'])} {_digits(time['p90'])}")
        rows.append(cells + ([] if memory is None else [format_size(round(memory[row["device"]]))]))
    print_table([*headings, *([] if memory is None else ["memory"])], rows, at_least=100)
    click.echo()


def _between(value: dict[str, Any], unit: str) -> Iterator[str]:
    """Say what passes between ops."""
    for what, key, name in (
        ("gap", "gaps", "device {device} {after}-{before}"),
        ("latency", "latencies", "{source}-{target}"),
    ):
        rows = [row for row in value[key] if row["n"] > 2]
        if not rows:
            yield f"{what:<11}none shown"
            continue
        worst = sorted(rows, key=lambda row: -row["median"])[:3]
        most = ", ".join(f"{name.format_map(row)} {_digits(row['median'])}" for row in worst)
        yield f"{what:<11}{_digits(value[what])} {unit} (median); most: {most}"


def _digits(time: float) -> str:
    """Write a measured time with four digits, as many as it is worth."""
    return f"{time:.4g}" if abs(time) < 1000 else f"{time:.1f}"


def _stated(file: str) -> RealRun | None:
    """Read a schedule's file with times; None for one without."""
    from ppsim.files.read import read

    return None if read(file).start is None else read_named_run([file])


def _show_schedule(file: str, as_json: bool) -> None:
    from dataclasses import replace

    from ppsim.cli import _print
    from ppsim.files.read import read, require_sound
    from ppsim.schedules import recognise

    schedule = require_sound(read(file)).schedule()
    known = recognise(schedule)
    if as_json:
        shown = replace(schedule, name=known or "custom")
        _print.echo_json({"schema": "ppsim.read/1", "source": file, "format": "schedule", **shape_object(shown)})
        return
    echo_wrapped(f"file       {file}: {FORMATS['schedule']}", 11)
    named = known or "in no order that ppsim knows"
    echo_wrapped(f"schedule   {named}: {_print.shape_line(schedule)}, {schedule.placement.name} placement", 11)
