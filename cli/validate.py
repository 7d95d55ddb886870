"""Run schedules for real, compare with predictions."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import click

from ppsim.cli._build import build_schedule
from ppsim.cli._options import (
    OutputOptions,
    ShapeOptions,
    group_options,
    json_option,
    make_command,
    output_options,
    quiet_option,
    several_schedules,
    shape_options,
)
from ppsim.cli._types import COUNT, Share
from ppsim.cli._workload import module_option, workload_options
from ppsim.cli._write import command_line, find_targets, write_files
from ppsim.errors import InputError

if TYPE_CHECKING:
    from ppsim.core.schedule import Schedule
    from ppsim.runs.record import Record
    from ppsim.runs.session import Request
    from ppsim.validation.analyse import Validation

TIMES = click.FloatRange(min=0)


@dataclass(frozen=True)
class RunOptions:
    """What a run for real computes, and how often; see :class:`ppsim.runs.session.Request`."""

    ops: str
    runner: str
    device: str
    tf: float
    ti: float
    tw: float
    message: int
    hidden: int
    heads: int
    sequence: int
    microbatch_size: int
    layers: int
    vocab: int
    repeats: int
    warm_up: int
    real_time: bool


@dataclass(frozen=True)
class SourceOptions:
    """Where measurements come from where nothing is run, and where they are kept."""

    record: str | None
    from_record: str | None
    trace: str | None
    iteration: str
    profile: str | None


run_options = group_options(
    "run",
    RunOptions,
    click.option(
        "--ops",
        type=click.Choice(["compute", "timed"]),
        default="compute",
        show_default=True,
        help="Real transformer stages, or ops that only take their time (more devices than cores).",
    ),
    click.option(
        "--runner",
        type=click.Choice(["own", "torch", "partitioned"]),
        default="own",
        show_default=True,
        help="Our runner; torch.distributed.pipelining fed with our CSV; or all devices on parts of one GPU.",
    ),
    click.option(
        "--device",
        type=click.Choice(["auto", "cpu", "cuda"]),
        default="auto",
        show_default=True,
        help="What computes; auto: GPUs where there is one for each device.",
    ),
    click.option("--tf", type=TIMES, default=5.0, show_default=True, help="Timed ops: ms of a forward per device."),
    click.option("--ti", type=TIMES, default=5.0, show_default=True, help="Timed ops: ms of a backward for the input."),
    click.option(
        "--tw", type=TIMES, default=5.0, show_default=True, help="Timed ops: ms of a backward for the weights."
    ),
    click.option("--message", type=COUNT, default=65536, show_default=True, help="Timed ops: bytes of a message."),
    *workload_options(hidden=256, heads=4, sequence=64, microbatch_size=4, layers=2, vocab=1000),
    click.option("--repeats", type=COUNT, default=7, show_default=True, help="Measured repetitions."),
    click.option(
        "--warm-up", type=click.IntRange(min=0), default=2, show_default=True, help="Repetitions thrown away."
    ),
    click.option("--real-time", is_flag=True, help="Ask the system for real-time priority while a schedule runs."),
)

source_options = group_options(
    "source",
    SourceOptions,
    click.option("--record", metavar="FILE", help="Keep the raw measurements, as JSON; .gz makes it small."),
    click.option("--from-record", type=click.Path(), metavar="FILE", help="Analyse a record instead of running."),
    click.option(
        "--trace", type=click.Path(), metavar="DIR", help="Compare with a run made elsewhere: see ppsim read."
    ),
    click.option(
        "--iteration", default="median", show_default=True, help="Traces: which step; a number, a range, median or all."
    ),
    click.option("--profile", type=click.Path(), help="What ops and messages cost alone (ppsim calibrate)."),
)


@make_command("validate")
@several_schedules(required=False)
@shape_options
@run_options
@module_option
@click.option(
    "--calibrate-on",
    multiple=True,
    metavar="NAME",
    help="Take costs from these runs only (timed ops: the first; else all others).",
)
@click.option("--only", multiple=True, metavar="NAME", help="Draw these schedules in -o files; repeatable (all).")
@click.option("--tolerance", type=Share(), default="10%", show_default=True, help="Largest error that passes.")
@source_options
@output_options
@json_option
@quiet_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    specs: tuple[str, ...],
    shape: ShapeOptions,
    run: RunOptions,
    module: str | None,
    calibrate_on: tuple[str, ...],
    only: tuple[str, ...],
    tolerance: float,
    source: SourceOptions,
    output: OutputOptions,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run schedules for real, one process per device, and compare with the prediction.

    {module}

    \b
      ppsim validate gpipe 1f1b zb-1p --devices 2 --mb 8
      ppsim validate gpipe 1f1b --devices 4 --mb 8 --ops timed --real-time -o overlay.png
      ppsim validate zb-1p --devices 4 --mb 8 --runner partitioned --hidden 4096 --heads 32 --seq 2048
      ppsim validate gpipe 1f1b --devices 2 --mb 8 --module model.py:stage
      ppsim validate --trace run/ --iteration 4-20
    """
    from ppsim.cli import _print
    from ppsim.cli._validation import show
    from ppsim.validation.analyse import select_step, validate, validation_object

    wanted = _find_overlays(output)
    if only and not wanted:
        raise InputError("--only chooses what figures and pages show, and none is written", "add -o FILE.svg")
    if source.from_record:
        from ppsim.runs.record import load

        record, failure = load(source.from_record), ""
    elif source.trace:
        record, failure = _read_traces(ctx, specs, shape, source), ""
    else:
        record, failure = _measure(ctx, specs, shape, run, module, source, show_progress=not (quiet or as_json))
    validation = validate(record, _known(calibrate_on, record))
    if record.settings["ops"] == "trace":
        validation = select_step(validation, source.iteration)
    value = validation_object(validation, record, tolerance)
    if as_json:
        _print.echo_json(value)
    elif "-" not in output.output:
        show(validation, record, value, quiet)
    if wanted:
        from ppsim.files.document import style_of
        from ppsim.validation.overlay import save_overlay

        drawn = choose_runs(validation, only)
        titles = [_print.title_of(verdict.run.lowered.compute) for verdict in drawn.verdicts]

        def write(target: str, suffix: str) -> None:
            save_overlay(drawn, record, target, suffix, style_of(suffix, output.style), output.width, titles)

        write_files([(target, partial(write, target, suffix)) for target, suffix in wanted])
    if failure:
        click.echo(f"Error: {failure}", err=True)
    ctx.exit(0 if value["passed"] and not failure else 1)


def choose_runs(validation: Validation, only: tuple[str, ...]) -> Validation:
    """The schedules to draw, in the order of the record; all where none is named."""
    names = [verdict.run.name for verdict in validation.verdicts]
    if unknown := [name for name in only if name not in names]:
        raise InputError(f"--only: no run of '{unknown[0]}' was compared", f"one of {' '.join(names)}")
    if not only:
        return validation
    return replace(validation, verdicts=tuple(v for v in validation.verdicts if v.run.name in only))


def _find_overlays(output: OutputOptions) -> list[tuple[str, str]]:
    """Find every -o with its format, which is refused now rather than after the run."""
    wanted = find_targets(output)
    if wanted:
        from ppsim.validation.overlay import check_suffix

        for _, suffix in wanted:
            check_suffix(suffix)
    return wanted


def _read_traces(ctx: click.Context, specs: tuple[str, ...], shape: ShapeOptions, source: SourceOptions) -> Record:
    from ppsim.cli._stated import read_named_run
    from ppsim.profiles.profile import read
    from ppsim.validation.traced import record_of

    if len(specs) > 1:
        raise InputError(f"a run shows one schedule, and {len(specs)} are named", "-s 1f1b, or none")
    observed = read_named_run([source.trace or ""])
    if observed.format == "record":
        raise InputError(f"{observed.source} is a record of ours", f"--from-record {source.trace}")
    schedule = build_schedule(specs[0], shape) if specs else observed.schedule
    profile = read(source.profile) if source.profile else None
    return record_of(observed, schedule, profile, command_line(ctx))


def _known(names: tuple[str, ...], record: Record) -> tuple[str, ...]:
    have = [run.name for run in record.runs]
    for name in names:
        if name not in have:
            raise InputError(f"--calibrate-on {name}: that schedule was not run", f"one of {', '.join(have)}")
    return names


def _measure(
    ctx: click.Context,
    specs: tuple[str, ...],
    shape: ShapeOptions,
    run: RunOptions,
    module: str | None,
    source: SourceOptions,
    show_progress: bool,
) -> tuple[Record, str]:
    """Run the schedules; returns the measurements, and what went wrong if they are usable all the same."""
    from ppsim.base.atomic_file import rehearse
    from ppsim.cli._progress import progress_bar
    from ppsim.runs.session import measure_session

    if not specs:
        raise InputError("no schedule to run", "-s 1f1b, as often as you like; --from-record or --trace runs none")
    schedules, request = _build_schedules(specs, shape), _make_request(ctx, run, module, source.profile)
    if source.record == "-":
        raise InputError("--record wants a file, not standard output", "--record run.json.gz")
    if source.record:
        rehearse(source.record, plain=True)
    with progress_bar(show_progress) as report:
        record, failure = measure_session(schedules, request, report)
    failure += "; the repetitions before it were kept" if failure else ""
    lost = _keep(record, source.record) if source.record else ""
    return record, "; ".join(filter(None, (failure, lost)))


def _make_request(ctx: click.Context, run: RunOptions, module: str | None, profile: str | None) -> Request:
    from ppsim.calibration.user_module import find_module
    from ppsim.profiles.profile import read
    from ppsim.runs.session import Request

    return Request(
        **asdict(run),
        command=command_line(ctx),
        profile=read(profile) if profile else None,
        module=find_module(module) if module else None,
    )


def _keep(record: Record, target: str) -> str:
    """Write the record; returns why it could not be written, as its numbers can still be printed."""
    from ppsim.base.atomic_file import open_atomically
    from ppsim.runs.record import dump

    try:
        with open_atomically(target) as out:
            out.write(dump(record, target))
    except InputError as error:
        return str(error)
    click.echo(f"wrote {target}", err=True)
    return ""


def _build_schedules(specs: tuple[str, ...], shape: ShapeOptions) -> list[Schedule]:
    schedules = [build_schedule(spec, shape) for spec in specs]
    if len({schedule.n_devices for schedule in schedules}) > 1:
        sizes = ", ".join(f"{s.name} {s.n_devices}" for s in schedules)
        raise InputError(f"schedules that run together need the same number of devices, not {sizes}", "give --devices")
    return schedules
