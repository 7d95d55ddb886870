"""``ppsim validate``: run schedules for real and say how far the prediction is off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ppsim.cli._options import (
    ScheduleName,
    command_line,
    json_option,
    output_options,
    quiet_option,
    shape_options,
    targets,
)
from ppsim.errors import InputError

if TYPE_CHECKING:
    from ppsim.validation.analyse import Validation, Verdict
    from ppsim.validation.record import Record

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
    type=click.Choice(["own", "torch"]),
    default="own",
    show_default=True,
    help="Our runner, or torch.distributed.pipelining fed with our CSV.",
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
@click.option("--calibrate-on", multiple=True, metavar="NAME", help="Take costs from these runs only.")
@click.option("--tolerance", type=Share(), default="10%", show_default=True, help="Largest error that passes.")
@click.option("--record", type=click.Path(dir_okay=False), metavar="FILE", help="Keep the raw measurements.")
@click.option("--from-record", type=click.Path(), metavar="FILE", help="Analyse a record instead of running.")
@output_options
@json_option
@quiet_option
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Run schedules for real, one process per device, and compare with the prediction.

    \b
      ppsim validate -s gpipe -s 1f1b -s zb-1p --devices 2 --mb 8
      ppsim validate -s gpipe -s 1f1b --devices 4 --mb 8 --ops timed --real-time -o overlay.png
    """
    from ppsim.cli import _print as show
    from ppsim.validation.analyse import validate, validation_object
    from ppsim.validation.record import load

    targets(options)
    failure = ""
    if options["from_record"]:
        record = load(options["from_record"])
    else:
        record, failure = _measure(ctx, options)
    validation = validate(record, _known(options["calibrate_on"], record))
    value = validation_object(validation, record, options["tolerance"])
    if options["as_json"]:
        show.echo_json(value)
    elif "-" not in options["output"]:
        _print(validation, record, value, options["quiet"])
    for target, suffix in targets(options):
        from ppsim.validation.overlay import save_overlay

        save_overlay(validation, record, target, suffix, options["style"] or "screen", options["width"])
        if target != "-":
            click.echo(f"wrote {target}", err=True)
    if failure:
        click.echo(f"Error: {failure}; the repetitions before it were kept", err=True)
    ctx.exit(0 if value["passed"] and not failure else 1)


def _known(names: tuple[str, ...], record: Record) -> tuple[str, ...]:
    have = [run.name for run in record.runs]
    for name in names:
        if name not in have:
            raise InputError(f"--calibrate-on {name}: that schedule was not run", f"one of {', '.join(have)}")
    return names


def _measure(ctx: click.Context, options: dict[str, Any]) -> tuple[Record, str]:
    from pathlib import Path

    from ppsim.cli._progress import progress_bar
    from ppsim.formats import opened
    from ppsim.validation.record import dump
    from ppsim.validation.session import Request, measure_session

    names = options["names"]
    if not names:
        raise InputError("no schedule to run", "-s 1f1b, as often as you like, or --from-record FILE")
    if options["record"] and not Path(options["record"]).parent.is_dir():
        raise InputError(f"cannot write '{options['record']}': no such folder", "make the folder first")
    keys = (
        "ops",
        "runner",
        "tf",
        "ti",
        "tw",
        "message",
        "hidden",
        "heads",
        "sequence",
        "microbatch_size",
        "layers",
        "vocab",
        "repeats",
        "warm_up",
        "real_time",
    )
    request = Request(**{key: options[key] for key in keys}, command=command_line(ctx))
    with progress_bar(not options["quiet"] and not options["as_json"]) as report:
        record, failure = measure_session(_schedules(names, options), request, report)
    if options["record"]:
        with opened(options["record"]) as out:
            out.write(dump(record, options["record"]))
        click.echo(f"wrote {options['record']}", err=True)
    return record, failure


def _schedules(names: tuple[str, ...], options: dict[str, Any]) -> list[Any]:
    from ppsim.cli._options import schedule_named

    schedules = [schedule_named(name, options) for name in names]
    if len({schedule.n_devices for schedule in schedules}) > 1:
        sizes = ", ".join(f"{s.name} {s.n_devices}" for s in schedules)
        raise InputError(f"schedules that run together need the same number of devices, not {sizes}", "give --devices")
    return schedules


def _print(validation: Validation, record: Record, value: dict[str, Any], quiet: bool) -> None:
    verdict = "within" if value["passed"] else "NOT within"
    errors = value["errors"]
    if not quiet:
        _table(validation)
        for v in validation.verdicts[: 1 if len(validation.verdicts) > 1 else None]:
            _residuals(v)
        for level, error in errors.items():
            click.echo(f"{level:<10} median {error['median']:6.2%}   worst {error['worst']:6.2%}")
        if validation.pairs:
            click.echo(f"ranking    {validation.ranked_right} of {validation.pairs} pairs more than 2 % apart")
        where = "{date} on {cpu}, {cores} cores, load {load}, torch {torch}".format_map(record.provenance)
        click.echo(f"measured   {where}")
    held = errors["held-out"]
    click.echo(
        f"held-out predictions are off by {held['median']:.2%} (median), {held['worst']:.2%} (worst): "
        f"{verdict} the tolerance of {value['tolerance']:.0%}"
    )


def _table(validation: Validation) -> None:
    from rich.table import Table

    from ppsim.cli._print import console

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("schedule\n", no_wrap=True)
    for heading in (
        "measured\nms",
        "p10 to p90\n",
        "predicted\nms",
        "nominal\n",
        "+ link\n",
        "+ host\n",
        "held-out\n",
        "replay\n",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for v in validation.verdicts:
        held = f"{v.errors['held-out']:+.1%}" + ("" if v.held_out else "*")
        low, high = v.spread
        rest = [f"{v.errors[level]:+.1%}" for level in ("nominal", "link", "host")]
        table.add_row(
            v.run.name,
            f"{v.makespan:.1f}",
            f"{low:.1f} {high:.1f}",
            f"{v.best.makespan:.1f}",
            *rest,
            held,
            f"{v.errors['replay']:+.1%}",
        )
    console(at_least=110).print(table)
    if any(not v.held_out for v in validation.verdicts):
        click.echo("* its costs come from its own run: not held out, and not counted below")
    click.echo()


def _residuals(v: Verdict) -> None:
    from ppsim.validation.analyse import CLASSES, worst_ops

    click.echo(f"{v.run.name}: predicted - measured, ms per device")
    click.echo("          " + "".join(f"{name:>10}" for name in CLASSES))
    for device, row in enumerate(v.residual):
        click.echo(f"device {device:<3}" + "".join(f"{ms:>+10.2f}" for ms in row))
    off = ", ".join(f"{op} on device {device} {shift:+.2f} ms" for op, device, _, shift in worst_ops(v, 3))
    click.echo(f"furthest off: {off}\n")
