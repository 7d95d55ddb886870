"""Run schedules for real, compare with predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ppsim.cli._options import (
    SHAPE,
    ScheduleName,
    command_line,
    given,
    json_option,
    output_options,
    quiet_option,
    shape_options,
    targets,
)
from ppsim.errors import InputError

if TYPE_CHECKING:
    from ppsim.runs.record import Record
    from ppsim.runs.session import Request

MODEL = ("hidden", "heads", "sequence", "microbatch_size", "layers", "vocab")
RUN = ("ops", "runner", "device", "tf", "ti", "tw", "message", "repeats", "warm_up", "real_time")
REQUEST = (*RUN, *MODEL)
COUNT = click.IntRange(min=1)
TIMES = click.FloatRange(min=0)


class Share(click.ParamType[Any]):
    """A share, as 0.05 or 5%."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The share as a fraction."""
        text = str(value)
        try:
            share = float(text.rstrip("% ")) / (100 if text.endswith("%") else 1)
        except ValueError:
            self.fail(f"'{value}' is not a share such as 5% or 0.05.", param, ctx)
        if not 0 <= share < float("inf"):
            self.fail(f"'{value}' is not a share such as 5% or 0.05.", param, ctx)
        return share


@click.command("validate")
@click.option("--schedule", "-s", "names", type=ScheduleName(), multiple=True, help="Schedule to run; repeatable.")
@shape_options
@click.option(
    "--ops",
    type=click.Choice(["compute", "timed"]),
    default="compute",
    show_default=True,
    help="Real transformer stages, or ops that only take their time (more devices than cores).",
)
@click.option(
    "--runner",
    type=click.Choice(["own", "torch", "partitioned"]),
    default="own",
    show_default=True,
    help="Our runner; torch.distributed.pipelining fed with our CSV; or all devices on parts of one GPU.",
)
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="What computes; auto: GPUs where there is one for each device.",
)
@click.option("--tf", type=TIMES, default=5.0, show_default=True, help="Timed ops: ms of a forward per device.")
@click.option("--ti", type=TIMES, default=5.0, show_default=True, help="Timed ops: ms of a backward for the input.")
@click.option("--tw", type=TIMES, default=5.0, show_default=True, help="Timed ops: ms of a backward for the weights.")
@click.option("--message", type=COUNT, default=65536, show_default=True, help="Timed ops: bytes of a message.")
@click.option("--hidden", type=COUNT, default=256, show_default=True, help="Width of the model.")
@click.option("--heads", type=COUNT, default=4, show_default=True, help="Attention heads.")
@click.option("--seq", "sequence", type=COUNT, default=64, show_default=True, help="Tokens of one sample.")
@click.option("--mbs", "microbatch_size", type=COUNT, default=4, show_default=True, help="Samples of a microbatch.")
@click.option("--layers", type=COUNT, default=2, show_default=True, help="Layers that one device holds.")
@click.option("--vocab", type=click.IntRange(min=0), default=1000, show_default=True, help="Vocabulary.")
@click.option("--repeats", type=COUNT, default=7, show_default=True, help="Measured repetitions.")
@click.option("--warm-up", type=click.IntRange(min=0), default=2, show_default=True, help="Repetitions thrown away.")
@click.option("--real-time", is_flag=True, help="Ask the system for real-time priority while a schedule runs.")
@click.option(
    "--calibrate-on",
    multiple=True,
    metavar="NAME",
    help="Take costs from these runs only (timed ops: the first; else all others).",
)
@click.option("--tolerance", type=Share(), default="10%", show_default=True, help="Largest error that passes.")
@click.option("--record", metavar="FILE", help="Keep the raw measurements, as JSON; .gz makes it small.")
@click.option("--from-record", type=click.Path(), metavar="FILE", help="Analyse a record instead of running.")
@click.option("--trace", type=click.Path(), metavar="DIR", help="Compare with Kineto traces of a run, one per rank.")
@click.option("--iteration", default="median", show_default=True, help="Traces: which step; a number, median or all.")
@click.option("--profile", type=click.Path(), help="What ops and messages cost alone (ppsim calibrate).")
@output_options
@json_option
@quiet_option
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Run schedules for real, one process per device, and compare with the prediction.

    \b
      ppsim validate -s gpipe -s 1f1b -s zb-1p --devices 2 --mb 8
      ppsim validate -s gpipe -s 1f1b --devices 4 --mb 8 --ops timed --real-time -o overlay.png
      ppsim validate -s zb-1p --devices 4 --mb 8 --runner partitioned --hidden 4096 --heads 32 --seq 2048
      ppsim validate -s 1f1b --devices 4 --mb 8 --trace traces/
    """
    from ppsim.cli import _print
    from ppsim.cli._validation import show
    from ppsim.validation.analyse import only, validate, validation_object

    wanted = _overlays(options)
    record, failure = _record(ctx, options)
    validation = validate(record, _known(options["calibrate_on"], record))
    if record.settings["ops"] == "trace":
        validation = only(validation, options["iteration"])
    value = validation_object(validation, record, options["tolerance"])
    if options["as_json"]:
        _print.echo_json(value)
    elif "-" not in options["output"]:
        show(validation, record, value, options["quiet"])
    for target, suffix in wanted:
        from ppsim.validation.overlay import save_overlay

        titles = [_print.title_of(verdict.run.lowered.compute) for verdict in validation.verdicts]
        save_overlay(validation, record, target, suffix, options["style"] or "screen", options["width"], titles)
        if target != "-":
            click.echo(f"wrote {target}", err=True)
    if failure:
        click.echo(f"Error: {failure}", err=True)
    ctx.exit(0 if value["passed"] and not failure else 1)


def _overlays(options: dict[str, Any]) -> list[tuple[str, str]]:
    """Every -o with its format, which is refused now rather than after the run."""
    wanted = targets(options)
    if wanted:
        from ppsim.validation.overlay import check_suffix

        for _, suffix in wanted:
            check_suffix(suffix)
    return wanted


def _record(ctx: click.Context, options: dict[str, Any]) -> tuple[Record, str]:
    """The measurements, and what went wrong on the way, if they are usable all the same."""
    ways = [way for way in ("from_record", "trace") if options[way]]
    if len(ways) == 2 or (ways and options["record"]):
        named = " and ".join(f"--{way.replace('_', '-')}" for way in [*ways, "record"] if options[way])
        raise InputError(f"{named} cannot be given together", "leave one of them out")
    if not options["trace"] and given(ctx, ["iteration"]):
        raise InputError("--iteration chooses a step of --trace, and there is none", "leave it out")
    if options["from_record"]:
        from ppsim.runs.record import load

        if ignored := given(ctx, ("names", *SHAPE, *REQUEST, "profile")):
            raise InputError(f"--from-record runs nothing, so {', '.join(ignored)} cannot be given too", "leave it out")
        return load(options["from_record"]), ""
    return (_traced(ctx, options), "") if options["trace"] else _measured(ctx, options)


def _traced(ctx: click.Context, options: dict[str, Any]) -> Record:
    from ppsim.cli._options import schedule_named
    from ppsim.profiles.profile import read
    from ppsim.validation.traced import record_of

    if len(options["names"]) != 1:
        raise InputError(f"traces show one schedule, and {len(options['names'])} are named", "-s 1f1b")
    schedule = schedule_named(options["names"][0], options)
    profile = read(options["profile"]) if options["profile"] else None
    return record_of(options["trace"], schedule, profile, command_line(ctx))


def _known(names: tuple[str, ...], record: Record) -> tuple[str, ...]:
    have = [run.name for run in record.runs]
    for name in names:
        if name not in have:
            raise InputError(f"--calibrate-on {name}: that schedule was not run", f"one of {', '.join(have)}")
    return names


def _measured(ctx: click.Context, options: dict[str, Any]) -> tuple[Record, str]:
    from ppsim.base.atomic_file import rehearse
    from ppsim.cli._progress import progress_bar
    from ppsim.runs.session import measure_session

    if not options["names"]:
        raise InputError("no schedule to run", "-s 1f1b, as often as you like; --from-record or --trace runs none")
    schedules, request = _schedules(options["names"], options), _request(ctx, options)
    if options["record"] == "-":
        raise InputError("--record wants a file, not standard output", "--record run.json.gz")
    if options["record"]:
        rehearse(options["record"])
    with progress_bar(not options["quiet"] and not options["as_json"]) as report:
        record, failure = measure_session(schedules, request, report)
    failure += "; the repetitions before it were kept" if failure else ""
    lost = _keep(record, options["record"]) if options["record"] else ""
    return record, "; ".join(filter(None, (failure, lost)))


def _request(ctx: click.Context, options: dict[str, Any]) -> Request:
    from ppsim.profiles.profile import read
    from ppsim.runs.session import Request

    if options["profile"] and (model := given(ctx, MODEL)):
        raise InputError(f"--profile brings the model, so {', '.join(model)} cannot be given too", "leave one out")
    profile = read(options["profile"]) if options["profile"] else None
    return Request(**{key: options[key] for key in REQUEST}, command=command_line(ctx), profile=profile)


def _keep(record: Record, target: str) -> str:
    """Write the record; why it could not be written, as what it says can still be printed."""
    from ppsim.base.atomic_file import opened
    from ppsim.runs.record import dump

    try:
        with opened(target) as out:
            out.write(dump(record, target))
    except InputError as error:
        return str(error)
    click.echo(f"wrote {target}", err=True)
    return ""


def _schedules(names: tuple[str, ...], options: dict[str, Any]) -> list[Any]:
    from ppsim.cli._options import schedule_named

    schedules = [schedule_named(name, options) for name in names]
    if len({schedule.n_devices for schedule in schedules}) > 1:
        sizes = ", ".join(f"{s.name} {s.n_devices}" for s in schedules)
        raise InputError(f"schedules that run together need the same number of devices, not {sizes}", "give --devices")
    return schedules
