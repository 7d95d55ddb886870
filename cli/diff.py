"""Say where the time of two runs differs: by cause, device and op."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ppsim.cli._fit import echo_wrapped, print_table
from ppsim.cli._given import COSTS, DETAILED, LAYER_TIMES, SHAPE, UNEVEN, Given
from ppsim.cli._options import (
    CostOptions,
    FigureOptions,
    NetworkOptions,
    ShapeOptions,
    cost_options,
    figure_options,
    json_option,
    make_command,
    network_options,
    quiet_option,
    shape_options,
)
from ppsim.cli._runs import MEASURED, STATED, time_runs
from ppsim.cli._stated import iteration_option
from ppsim.cli._types import ScheduleName
from ppsim.cli._write import command_line, find_targets, inputs_of, make_documents, write_around
from ppsim.errors import InputError
from ppsim.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ppsim.analysis.diff import Difference
    from ppsim.cli._runs import TimedRun

MOST_DEVICES = 16  # rows of the table of devices
MOST_OPS = 3  # ops named for a change
COLUMNS = 80  # of a pipe


@make_command("diff")
@click.argument("specs", metavar="A B", nargs=-1, type=ScheduleName())
@iteration_option("median")
@shape_options
@cost_options
@network_options
@figure_options
@json_option
@quiet_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    specs: tuple[str, ...],
    iteration: str,
    shape: ShapeOptions,
    costs: CostOptions,
    network: NetworkOptions,
    output: FigureOptions,
    as_json: bool,
    quiet: bool,
) -> None:
    """Say where the time of two runs differs: by cause, by device, by op.

    A and B are schedules (1f1b, interleaved:2), which are simulated with the options given, or files with times, such
    as a run's JSON or trace, or folders of real runs (Primus, Kineto) and records (FILE:NAME for one of several), which
    are taken as they are. A schedule beside a file takes the shape of that run and, without options of costs, its
    median times: so it predicts the run, or says what another schedule would give.

    All differences are B - A. The time of a device is in ops of some kind or idle for some cause, so the differences
    sum to that of the makespans.

    \b
      ppsim diff 1f1b zb-1p --devices 4 --mb 8
      ppsim diff before.json after.json -o diff.svg
      ppsim diff 1f1b traces/
      ppsim diff traces/ zb-1p -o diff.html
    """
    from ppsim.analysis.diff import closing, diff_object, difference
    from ppsim.schedules import reads_ops

    if len(specs) != 2:
        hint = "a name such as 1f1b (ppsim list), or a file, for each" if len(specs) < 2 else "ppsim compare"
        raise InputError(f"diff takes two runs, got {len(specs)}", hint)
    find_targets(output)
    given = Given(ctx)
    typed = given.spellings((*COSTS, *LAYER_TIMES, "layout", *UNEVEN, *DETAILED, "profile", "recompute", "message"))
    runs = time_runs(specs, shape, costs, network, typed, iteration)
    if given.has("iteration") and all(run.source != MEASURED for run in runs):
        raise InputError("--iteration chooses a step of a real run, and there is none", "leave it out")
    if (shaped := given.spellings(SHAPE)) and all(
        run.source in (STATED, MEASURED) or reads_ops(run.spec) for run in runs
    ):
        verb = "has" if len(shaped) == 1 else "have"
        raise InputError(f"{', '.join(shaped)} {verb} no effect: files state their own shape", "leave it out")
    found = difference(runs[0].idle, runs[1].idle)
    names = ("A", "B") if specs[0] == specs[1] else specs
    simulated = [run.costs for run in runs if run.source not in (STATED, MEASURED)]
    inputs = inputs_of(ctx, simulated[0]) if simulated else {"ppsim": VERSION, "command": command_line(ctx)}
    titles = [f"{letter}: {_title(run)}" for letter, run in zip("AB", runs, strict=True)]
    timelines = [idle.timeline for idle in found.runs]
    with write_around(make_documents(timelines, titles, inputs, output, idles=found.runs)):
        if as_json:
            from ppsim.cli._print import echo_json

            echo_json(diff_object(found, names, inputs) | {"sources": [run.source for run in runs]})
        elif "-" not in output.output:
            if not quiet:
                _print_tables(found, runs)
            echo_wrapped(closing(found, names))


def _title(run: TimedRun) -> str:
    from ppsim.cli._print import title_of

    name = title_of(run.timeline.schedule)
    chunks = run.timeline.schedule.n_chunks
    full = f"{name} (V={chunks})" if chunks > 1 else name
    return full if run.source not in (STATED, MEASURED) or name == run.spec else f"{full} ({run.spec})"


def _print_tables(found: Difference, runs: Sequence[TimedRun]) -> None:
    from ppsim.base.numbers import format_number
    from ppsim.cli._print import shape_line

    unit = found.runs[0].timeline.unit
    for letter, run, makespan in zip("AB", runs, found.makespans, strict=True):
        said = f"{letter}  {_title(run)}: {shape_line(run.timeline.schedule)}, {run.source}, "
        echo_wrapped(f"{said}{format_number(makespan)} {unit}", indent=3)
    click.echo()
    echo_wrapped(f"where the time goes, in {unit} per device on average:")
    print_table(["", "A", "B", "B - A", "what it is"], [*_causes(found)], at_least=COLUMNS, left=("what it is",))
    if found.by_device is not None:
        click.echo()
        echo_wrapped("device by device, B - A:")
        _print_devices(found)
    click.echo()
    for line in _op_lines(found):
        echo_wrapped(line, indent=2)
    click.echo()


def _causes(found: Difference) -> Iterator[list[str]]:
    """A row per term, then the makespans that they sum to."""
    from ppsim.analysis.diff import MEANINGS, TERMS, signed_part
    from ppsim.base.numbers import format_number, format_part

    first, second = found.means
    for name, change in found.by_cause.items():
        term = TERMS.index(name)
        numbers = (format_part(float(mean[term]), max(found.makespans)) for mean in (first, second))
        yield [name, *numbers, signed_part(change, found), MEANINGS[name]]
    ends = found.makespans
    yield ["makespan", *map(format_number, ends), signed_part(ends[1] - ends[0], found), ""]


def _print_devices(found: Difference) -> None:
    """Print a row per device, and a column per term that differs on any."""
    from ppsim.analysis.diff import TERMS, signed_part

    by_device = found.by_device
    assert by_device is not None
    texts = [[signed_part(float(change), found) for change in row] for row in by_device]
    shown = [term for term in range(len(TERMS)) if any(row[term] != "0" for row in texts)]
    if not shown:
        click.echo("  no device differs")
        return
    order = sorted(range(len(by_device)), key=lambda device: -float(abs(by_device[device]).sum()))
    devices = sorted(order[:MOST_DEVICES])
    rows = [[f"dev {d}", *(texts[d][term] for term in shown)] for d in devices]
    size = [float(abs(by_device[:, term]).sum()) for term in shown]
    spare = [TERMS[term] for _, term in sorted(zip(size, shown, strict=True))]
    print_table(["", *(TERMS[term] for term in shown)], rows, at_least=COLUMNS, spare=spare)
    if len(devices) < len(order):
        echo_wrapped(f"the {len(devices)} devices that differ most of {len(order)}: --json has all")


def _op_lines(found: Difference) -> Iterator[str]:
    """The ops that both runs have, the largest changes of their times and starts, and of means per stage."""
    from ppsim.analysis.diff import NEGLIGIBLE, largest, signed_part, stage_changes
    from ppsim.base.numbers import format_part

    schedules = [idle.timeline.schedule for idle in found.runs]
    stages = [schedule.n_stages for schedule in schedules]
    if stages[0] != stages[1]:
        yield f"no op is in both runs: they cut the model into {stages[0]} and {stages[1]} stages"
        return
    counts = " and ".join(str(len(schedule)) for schedule in schedules)
    yield f"{len(found.ops)} ops are in both runs (of {counts})"
    whole, schedule = max(found.makespans), schedules[0]
    least = NEGLIGIBLE * whole
    if rows := stage_changes(found)[:MOST_OPS]:
        parts = (f"{name} {format_part(a, whole)} to {format_part(b, whole)}" for name, a, b in rows)
        yield f"mean time of an op: {' · '.join(parts)}"
    for what, change in (("time", found.duration_change), ("start", found.start_change)):
        ops = largest(change, MOST_OPS, least)
        parts = (
            f"{schedule.label(int(found.ops[i, 0]))} {signed_part(float(change[i]), found)} "
            f"(dev {schedule.device[found.ops[i, 0]]})"
            for i in ops
        )
        yield f"largest change of {what}: {' · '.join(parts) if ops else 'none'}"
