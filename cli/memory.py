"""Memory of every device over time, and whether it fits."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from ppsim.cli._build import build, build_memory, layout_for, parse_cap
from ppsim.cli._fit import Part, echo_wrapped, print_table
from ppsim.cli._options import (
    CostOptions,
    FigureOptions,
    ShapeOptions,
    cost_options,
    figure_options,
    json_option,
    make_command,
    one_schedule,
    quiet_option,
    shape_options,
)
from ppsim.cli._write import find_targets, inputs_of, make_documents, write_around

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.timeline import Timeline
    from ppsim.errors import PpsimError
    from ppsim.memory.report import MemoryReport
    from ppsim.memory.usage import MemoryModel
    from ppsim.schedules import Alternative

MARGIN, MOST_ROWS = 40, 32


@make_command("memory")
@one_schedule
@shape_options
@cost_options
@click.option("--model", type=click.Path(), help="Bytes from a model description (TOML): hidden, heads, layers, seq...")
@click.option("--cap", metavar="SIZE", help="The most a device may hold: 80GiB, or a number of activations.")
@click.option("--measured", metavar="FILE", help="Measured peaks of the devices, beside these.")
@click.option("--breakdown", is_flag=True, help="What holds each device's peak.")
@figure_options
@json_option
@quiet_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    spec: str,
    shape: ShapeOptions,
    costs: CostOptions,
    model: str | None,
    cap: str | None,
    measured: str | None,
    breakdown: bool,
    output: FigureOptions,
    as_json: bool,
    quiet: bool,
) -> None:
    """Memory of every device over time: its peak, when, and what holds it.

    Counts activations of one stage and microbatch, or bytes with --model or a --profile that has them. Exits with 1
    where a device passes --cap, and says what would fit. Figures show the curves below the schedule.

    \b
      ppsim memory --schedule zb-1p --stages 4 --mb 8
      ppsim memory -s 1f1b --devices 8 --mb 32 --model model.toml --cap 80GiB -o memory.svg
    """
    from dataclasses import replace

    from ppsim.cli import _print as show
    from ppsim.cli._measured import compare_measured, print_measured
    from ppsim.memory.report import memory_object, report

    find_targets(output)
    timeline, held, prices = _simulate(spec, shape, costs, model)
    most = None if cap is None else parse_cap(cap, held.unit)
    found = report(timeline, held, most)
    inputs = inputs_of(ctx, prices)
    near = _alternatives(found, spec, shape, costs, model, cap) if found.over else []
    beside = None if measured is None else compare_measured(found, measured)
    written = make_documents([timeline], [show.title_of(timeline.schedule)], inputs, output)
    written = [(replace(document, memory=(found.curve,), cap=most), name, form) for document, name, form in written]
    with write_around(written):
        if as_json:
            rows = [{"options": a.options, "peak": a.peak, "makespan": a.makespan} for a in near]
            show.echo_json(memory_object(found, inputs, rows) | ({} if beside is None else {"measured": beside}))
        elif "-" not in output.output:
            _print_report(found, quiet, breakdown)
            if beside is not None:
                print_measured(beside)
    if found.over:
        unsearched = bool(costs.layout) and not _searches_splits(found, spec, costs)
        raise _does_not_fit(found, near, unsearched)


def _simulate(
    spec: str, shape: ShapeOptions, costs: CostOptions, model: str | None
) -> tuple[Timeline, MemoryModel, Costs]:
    """Time the schedule, with what its stages hold and the costs that recomputation leads to."""
    from ppsim.simulation.longest_path import simulate

    schedule, prices = build(spec, shape, costs)
    held, prices = build_memory(schedule, prices, costs, model)
    return simulate(schedule, prices), held, prices


def _alternatives(
    found: MemoryReport, spec: str, shape: ShapeOptions, costs: CostOptions, model: str | None, cap: str | None
) -> list[Alternative]:
    """What fits instead, each found by running this command with the options it names."""
    from ppsim.memory.usage import ACTIVATIONS, curves
    from ppsim.schedules import Request, Trial, find_fitting

    def attempt(request: Request) -> Trial:
        timeline, held, _ = _simulate(request.spec, ShapeOptions(**request.numbers), costs, model)
        return Trial(
            timeline.schedule.n_stages * timeline.schedule.n_slices,
            int(curves(timeline, held).peak.max()),
            timeline.makespan,
        )

    per_stage = found.curve.unit == ACTIVATIONS
    request = Request(spec, asdict(shape))
    near = find_fitting(request, found.timeline.schedule, found.cap or 0, attempt, per_stage=per_stage)
    again = None if per_stage or costs.recompute else _recomputed(found, spec, shape, costs, model)
    soon = bool(costs.layout) and _searches_splits(found, spec, costs)
    split = _split_otherwise(found, spec, shape, costs, model, cap) if soon else None
    return [each for each in (again, split, *near) if each]


def _recomputed(
    found: MemoryReport, spec: str, shape: ShapeOptions, costs: CostOptions, model: str | None
) -> Alternative | None:
    """The same schedule with --recompute, if that fits; counts of activations leave out what a forward then keeps."""
    from ppsim.errors import PpsimError
    from ppsim.memory.usage import curves
    from ppsim.schedules import Alternative

    try:
        timeline, held, _ = _simulate(spec, shape, replace(costs, recompute=True), model)
    except PpsimError:
        return None
    peak = int(curves(timeline, held).peak.max())
    return Alternative("--recompute", peak, timeline.makespan) if peak <= (found.cap or 0) else None


def _searches_splits(found: MemoryReport, spec: str, costs: CostOptions) -> bool:
    from ppsim.cli._partition_problem import searches_soon

    schedule = found.timeline.schedule
    return searches_soon(spec, schedule, layout_for(schedule, costs.layout or "").n_layers)


def _split_otherwise(
    found: MemoryReport, spec: str, shape: ShapeOptions, costs: CostOptions, model: str | None, cap: str | None
) -> Alternative | None:
    """The same layers on other stages, in the fastest split that fits, where it is found soon."""
    import shlex

    from ppsim.cli._partition_problem import Asked, find_fitting_layout
    from ppsim.errors import PpsimError
    from ppsim.memory.transformer import read_model, recompute_share
    from ppsim.memory.usage import curves
    from ppsim.schedules import Alternative

    schedule, layout = found.timeline.schedule, layout_for(found.timeline.schedule, costs.layout or "")
    if "".join(layout.content).count("L") > 1:  # ppsim partition has one loss
        return None
    share = recompute_share(read_model(model)) if model else 0.0
    unsplit = replace(costs, layout=None)
    asked = Asked(spec, shape, unsplit, layout.n_layers, layout.n_mtp, 0, model, cap, share, {})
    try:
        text = find_fitting_layout(asked, schedule)
        if text is None:
            return None
        timeline, held, _ = _simulate(spec, shape, replace(costs, layout=text), model)
    except PpsimError:
        return None
    peak = int(curves(timeline, held).peak.max())
    return Alternative(f"--layout {shlex.quote(text)}", peak, timeline.makespan) if peak <= (found.cap or 0) else None


def _print_report(found: MemoryReport, quiet: bool, breakdown: bool) -> None:
    from ppsim.base.units import format_size
    from ppsim.cli import _print as show
    from ppsim.memory.usage import BYTES

    timeline, unit = found.timeline, found.curve.unit
    schedule, fullest = timeline.schedule, found.fullest
    size = _amount(fullest.value, unit)
    where = f"on device {fullest.device} from {fullest.time:g} {timeline.unit}, {found.label(fullest.op)}"
    if quiet:
        click.echo(f"{schedule.name} {schedule.n_devices}x{schedule.whole_microbatches}  peak {size} {where}")
        return
    echo_wrapped([(show.title_of(schedule), "name"), f"  {show.shape_line(schedule)}"])
    _print_bars(found)
    held = sorted(((amount, name) for name, amount in fullest.parts.items() if amount), reverse=True)
    click.echo()
    echo_wrapped(["peak ", (size, "bad" if found.over else "name"), f" {where}"], 5)
    parts = (f"{name} {format_size(amount, unit)} ({amount / fullest.value:.0%})" for amount, name in held)
    echo_wrapped(f"held by {', '.join(parts) or 'nothing'}", 8)
    if unit != BYTES:
        show.print_recomputed([schedule])
    if breakdown:
        _print_breakdown(found)


def _print_bars(found: MemoryReport) -> None:
    from ppsim.base.units import format_size
    from ppsim.cli._print import console
    from ppsim.drawing.terminal import carries
    from ppsim.memory.report import ASCII_LEVELS, LEVELS, bars

    screen = console()
    columns = max(20, min(screen.width, 160) - MARGIN)
    levels = LEVELS if carries(screen.encoding, LEVELS) else ASCII_LEVELS
    timeline, curve = found.timeline, found.curve
    full = _amount(found.fullest.value, curve.unit)
    capped = f", cap {_amount(found.cap, curve.unit)}" if found.cap is not None else ""
    echo_wrapped(
        [(f"1 column = {timeline.makespan / columns:.3g} {timeline.unit}, full height = {full}{capped}", "quiet")]
    )
    name_width = len(f"dev {len(found.peaks) - 1}")
    for peak in _shown(found.peaks):
        if peak is None:
            click.echo(_left_out(found))
            continue
        line = bars(curve, peak.device, timeline.makespan, columns, levels)
        over = found.cap is not None and peak.value > found.cap
        size = format_size(peak.value, curve.unit)
        row: list[Part] = [f"{f'dev {peak.device}':<{name_width}} ", *_bar_parts(found, peak.device, line), "  "]
        row += [(f"{size:>9}", "bad" if over else "name"), (f" at {peak.time:g}, {found.label(peak.op)}", "quiet")]
        echo_wrapped([*row, ("  over", "fault")] if over else row, name_width + 1)


def _bar_parts(found: MemoryReport, device: int, line: str) -> list[Part]:
    """The bars of a device, those above the cap as bad."""
    from itertools import groupby

    from ppsim.memory.report import columns

    cap = float("inf") if found.cap is None else found.cap
    over = columns(found.curve, device, found.timeline.makespan, len(line)) > cap
    runs = groupby(zip(line, over.tolist(), strict=True), key=lambda pair: pair[1])
    return [("".join(sign for sign, _ in run), "bad" if above else "bar") for above, run in runs]


def _print_breakdown(found: MemoryReport) -> None:
    from ppsim.base.units import format_size

    names = [name for name in found.peaks[0].parts if any(peak.parts[name] for peak in found.peaks)]
    click.echo("\nat each device's peak")
    rows = [
        [_left_out(found), *[""] * len(names)]
        if peak is None
        else [f"dev {peak.device}", *(format_size(peak.parts[name], found.curve.unit) for name in names)]
        for peak in _shown(found.peaks)
    ]
    least = sorted(names, key=lambda name: max(peak.parts[name] for peak in found.peaks))
    headings = {name: _on_two_lines(name) for name in names}
    spare = [headings[name] for name in least]
    print_table(
        ["\n", *headings.values()], rows, at_least=100, spare=spare, tone=lambda _, column: "" if column else "name"
    )


def _on_two_lines(name: str) -> str:
    """A heading whose last word is below the others."""
    first, _, last = name.rpartition(" ")
    return f"{first}\n{last}"


def _left_out(found: MemoryReport) -> str:
    from ppsim.cli._print import console
    from ppsim.drawing.terminal import signs_for

    return f"{signs_for(console().encoding, colour=False).more} {len(found.peaks) - MOST_ROWS} more devices"


def _shown(rows: list[Any]) -> list[Any]:
    """All rows, or the first and the last with None between."""
    return rows if len(rows) <= MOST_ROWS else [*rows[: MOST_ROWS // 2], None, *rows[-MOST_ROWS // 2 :]]


def _does_not_fit(found: MemoryReport, near: list[Alternative], unsearched: bool) -> PpsimError:
    """Make the error that names what fits; ``unsearched``: splits of the layout that ppsim partition searches."""
    from ppsim.base.units import format_size
    from ppsim.errors import PpsimError
    from ppsim.memory.report import find_excess

    unit, cap, peak = found.curve.unit, found.cap or 0, found.over[0]
    always = sum(peak.parts[name] for name in found.model.static)
    if always > cap:
        when = f"holds {format_size(always, unit)} before its first activation"
    else:
        first = find_excess(found, peak)
        when = f"passes it at {first.time:g} {found.timeline.unit} ({found.label(first.op)})"
    more = len(found.over) - 1
    message = (
        f"{found.timeline.schedule.name} does not fit {_amount(cap, unit)}: device {peak.device} {when} "
        f"and needs {format_size(peak.value - cap, unit)} more at its peak"
        + (f"; {more} other device{'s' if more > 1 else ''} over too" if more else "")
    )
    fits = [f"{a.options} ({format_size(a.peak, unit)}, makespan {a.makespan:g}{_changed(a)})" for a in near]
    if unsearched:
        before = sum(not a.options.startswith("--mb") for a in near)
        fits.insert(before, "ppsim partition with this --cap (searches other splits)")
    other = (
        "more devices, a higher tp or zero, recompute, or a smaller mbs"
        if unit == "B"
        else (f"a larger --cap; this run needs {found.fullest.value}")
    )
    return PpsimError(message, " or ".join(fits) or other)


def _changed(fix: Alternative) -> str:
    """What makes a fix's makespan no match for the one asked for."""
    return ", another number of microbatches" if fix.options.startswith("--mb") else ""


def _amount(value: int, unit: str) -> str:
    from ppsim.base.units import format_size

    return format_size(value, unit) + ("" if unit == "B" else f" {unit}")
