"""Measure op times and messages on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from ppsim.cli._options import group_options, json_option, make_command, quiet_option
from ppsim.cli._stated import iteration_option
from ppsim.cli._types import COUNT, Counts
from ppsim.cli._workload import module_option, workload_options
from ppsim.cli._write import command_line
from ppsim.errors import InputError

if TYPE_CHECKING:
    from ppsim.profiles.profile import Profile

LARGEST = {"cpu": 16 << 20, "cuda": 256 << 20}
TRACE_HELP = "Make the profile from a real run instead: its folder, or files such as Kineto traces, one per rank."


@dataclass(frozen=True)
class MeasureOptions:
    """What to measure: the model, its messages and how often."""

    hidden: int
    heads: int
    sequence: int
    microbatch_size: int
    layers: int
    vocab: int
    dtype: str | None
    device: str
    repeats: int
    warm_up: int
    max_bytes: int | None
    sizes: list[int] | None
    real_time: bool
    note: str


measure_options = group_options(
    "measuring",
    MeasureOptions,
    *workload_options(hidden=512, heads=8, sequence=256, microbatch_size=1, layers=2, vocab=4096),
    click.option(
        "--dtype",
        type=click.Choice(["float32", "bfloat16", "float16", "float64"]),
        help="Type of parameters and activations (float32 on a CPU, bfloat16 on a GPU).",
    ),
    click.option(
        "--device",
        type=click.Choice(["auto", "cpu", "cuda"]),
        default="auto",
        show_default=True,
        help="What computes; auto: a GPU where there is one.",
    ),
    click.option("--repeats", type=COUNT, default=10, show_default=True, help="Measured repetitions of every op."),
    click.option(
        "--warm-up", type=click.IntRange(min=0), default=2, show_default=True, help="Repetitions thrown away first."
    ),
    click.option(
        "--max-bytes",
        type=click.IntRange(min=1024, max=1 << 30),
        help="Largest message; sizes go up from 1 KiB (to 16 MiB on a CPU, 256 MiB on a GPU).",
    ),
    click.option(
        "--sizes", type=Counts(), metavar="BYTES", help="Sizes of messages instead: 1024,65536 or 1024:65536:x4."
    ),
    click.option("--real-time", is_flag=True, help="Ask the system for real-time priority while messages travel."),
    click.option("--note", default="", help="A remark for the record, such as other load on the machine."),
)


@make_command("calibrate")
@click.option("--output", "-o", required=True, metavar="FILE", help="The profile to write, TOML; - is stdout.")
@click.option("--force", "-F", is_flag=True, help="Overwrite a file that exists.")
@measure_options
@module_option
@click.option("--stages", type=COUNT, help="Stages of --module.")
@click.option("--from-trace", multiple=True, type=click.Path(), metavar="FILE...", help=TRACE_HELP)
@click.argument("more_traces", nargs=-1, type=click.Path(), metavar="")
@iteration_option("all")
@json_option
@quiet_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    output: str,
    force: bool,
    measuring: MeasureOptions,
    module: str | None,
    stages: int | None,
    from_trace: tuple[str, ...],
    more_traces: tuple[str, ...],
    iteration: str,
    as_json: bool,
    quiet: bool,
) -> None:
    """Measure what a transformer stage and its messages cost on this machine.

    {module}

    \b
      ppsim calibrate -o profile.toml
      ppsim run --schedule 1f1b --stages 4 --mb 8 --profile profile.toml
      torchrun --nproc-per-node 8 -m ppsim calibrate -o profile.toml
      ppsim calibrate -o profile.toml --module model.py:stage --stages 4
      ppsim calibrate --from-trace rank0.json rank1.json -o profile.toml
    """
    traces = (*from_trace, *more_traces)
    if traces and not from_trace:
        raise click.UsageError(f"Got unexpected argument '{traces[0]}'. Traces come after --from-trace.")
    _check_target(output, force)
    profile = _read_traces(ctx, traces, iteration) if traces else _measure(ctx, measuring, module, stages or 0)
    if profile is None:  # another process of torchrun writes
        return
    from ppsim.profiles.profile import write

    write(profile, output)
    if output != "-":
        from ppsim.cli.profile import show

        show(profile, output, as_json, quiet)
        click.echo(f"wrote {output}", err=True)


def _measure(ctx: click.Context, measuring: MeasureOptions, module: str | None, stages: int) -> Profile | None:
    from ppsim.base.signals import orderly_end
    from ppsim.calibration import device_for
    from ppsim.calibration.calibrate import CalibrationPlan, calibrate
    from ppsim.calibration.links import launched
    from ppsim.calibration.p2p import sizes_up_to
    from ppsim.calibration.processes import temporary_folder
    from ppsim.calibration.user_module import find_module
    from ppsim.cli._progress import progress_bar
    from ppsim.profiles.profile import Workload

    device = device_for(measuring.device)
    workload = Workload(
        measuring.hidden,
        measuring.heads,
        measuring.sequence,
        measuring.microbatch_size,
        measuring.layers,
        measuring.dtype or ("bfloat16" if device == "cuda" else "float32"),
        measuring.vocab,
    )
    plan = CalibrationPlan(
        find_module(module) if module else workload,
        device,
        measuring.repeats,
        measuring.warm_up,
        tuple(measuring.sizes or sizes_up_to(measuring.max_bytes or LARGEST[device])),
        command_line(ctx),
        measuring.note,
        measuring.real_time,
        stages,
    )
    with orderly_end(), temporary_folder(), progress_bar(show=launched()[0] == 0) as report:
        return calibrate(plan, report)


def _read_traces(ctx: click.Context, traces: Sequence[str], iteration: str) -> Profile:
    from ppsim.runs.observed.profile import profile_from

    return profile_from(traces, command_line(ctx), iteration)


def _check_target(target: str, force: bool) -> None:
    """Refuse now what could not be written after a minute of measuring."""
    from pathlib import Path

    from ppsim.base.atomic_file import rehearse

    if target != "-" and Path(target).is_file() and not force:
        raise InputError(f"'{target}' exists and is not overwritten", "another name, or --force")
    rehearse(target, plain=True)
