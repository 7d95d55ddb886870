"""Measure op times and messages on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ppsim.cli._options import Counts, command_line, given, json_option, quiet_option
from ppsim.errors import InputError

if TYPE_CHECKING:
    from ppsim.profiles.profile import Profile

COUNT = click.IntRange(min=1)
MEASURING = (
    "hidden",
    "heads",
    "sequence",
    "microbatch_size",
    "layers",
    "vocab",
    "dtype",
    "device",
    "repeats",
    "warm_up",
    "max_bytes",
    "sizes",
    "note",
    "real_time",
)
LARGEST = {"cpu": 16 << 20, "cuda": 256 << 20}
TRACE_HELP = "Make the profile from Kineto traces of a real run instead, one file per rank."


@click.command("calibrate")
@click.option("--output", "-o", required=True, metavar="FILE", help="The profile to write, TOML; - is stdout.")
@click.option("--force", "-F", is_flag=True, help="Overwrite a file that exists.")
@click.option("--hidden", type=COUNT, default=512, show_default=True, help="Width of the model.")
@click.option("--heads", type=COUNT, default=8, show_default=True, help="Attention heads; they divide the width.")
@click.option("--seq", "sequence", type=COUNT, default=256, show_default=True, help="Tokens of one sample.")
@click.option(
    "--mbs",
    "--microbatch-size",
    "microbatch_size",
    type=COUNT,
    default=1,
    show_default=True,
    help="Samples of a microbatch.",
)
@click.option("--layers", type=COUNT, default=2, show_default=True, help="Layers that one device holds.")
@click.option(
    "--vocab",
    type=click.IntRange(min=0),
    default=4096,
    show_default=True,
    help="Vocabulary; 0 leaves embedding and head out.",
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16", "float16", "float64"]),
    help="Of parameters and activations (float32 on a CPU, bfloat16 on a GPU).",
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--repeats", type=COUNT, default=10, show_default=True, help="Measured repetitions of every op.")
@click.option(
    "--warm-up", type=click.IntRange(min=0), default=2, show_default=True, help="Repetitions thrown away first."
)
@click.option(
    "--max-bytes",
    type=click.IntRange(min=1024, max=1 << 30),
    help="Largest message; sizes go up from 1 KiB (to 16 MiB on a CPU, 256 MiB on a GPU).",
)
@click.option("--sizes", type=Counts(), metavar="BYTES", help="Sizes of messages instead: 1024,65536 or 1024:65536:x4.")
@click.option("--real-time", is_flag=True, help="Ask the system for real-time priority while messages travel.")
@click.option("--note", default="", help="A remark for the record, such as other load on the machine.")
@click.option("--from-trace", multiple=True, type=click.Path(), metavar="FILE...", help=TRACE_HELP)
@click.argument("more_traces", nargs=-1, type=click.Path(), metavar="")
@json_option
@quiet_option
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Measure what a transformer stage and its messages cost on this machine.

    \b
      ppsim calibrate -o profile.toml
      ppsim run --schedule 1f1b --stages 4 --mb 8 --profile profile.toml
      torchrun --nproc-per-node 8 -m ppsim calibrate -o profile.toml
      ppsim calibrate --from-trace rank0.json rank1.json -o profile.toml
    """
    target = options["output"]
    traces = (*options["from_trace"], *options["more_traces"])
    if traces and not options["from_trace"]:
        raise click.UsageError(f"Got unexpected argument '{traces[0]}'. Traces come after --from-trace.")
    if target == "-" and options["as_json"]:
        raise click.UsageError("--json and -o - both want standard output.")
    if options["sizes"] and options["max_bytes"]:
        raise click.UsageError("--sizes and --max-bytes both say how large messages get.")
    _check_target(target, options["force"])
    profile = _from_traces(ctx, traces) if traces else _measured(ctx, options)
    if profile is None:  # another rank of torchrun writes
        return
    from ppsim.profiles.profile import write

    write(profile, target)
    if target != "-":
        from ppsim.cli.profile import show

        show(profile, target, options["as_json"], options["quiet"])
        click.echo(f"wrote {target}", err=True)


def _measured(ctx: click.Context, options: Mapping[str, Any]) -> Profile | None:
    from ppsim.base.signals import orderly_end
    from ppsim.calibration import device_for
    from ppsim.calibration.calibrate import Plan, calibrate
    from ppsim.calibration.links import launched
    from ppsim.calibration.p2p import sizes_up_to
    from ppsim.cli._progress import progress_bar
    from ppsim.profiles.profile import Workload

    device = device_for(options["device"])
    dtype = options["dtype"] or ("bfloat16" if device == "cuda" else "float32")
    shape = {k: options[k] for k in ("hidden", "heads", "sequence", "microbatch_size", "layers", "vocab")}
    plan = Plan(
        Workload(dtype=dtype, **shape),
        device,
        options["repeats"],
        options["warm_up"],
        tuple(options["sizes"] or sizes_up_to(options["max_bytes"] or LARGEST[device])),
        command_line(ctx),
        options["note"],
        options["real_time"],
    )
    with orderly_end(), progress_bar(show=launched()[0] == 0) as report:
        return calibrate(plan, report)


def _from_traces(ctx: click.Context, traces: Sequence[str]) -> Profile:
    from ppsim.calibration.traces import profile_from

    if ignored := given(ctx, MEASURING):
        raise InputError(f"--from-trace measures nothing, so {', '.join(ignored)} cannot be given too", "leave it out")
    return profile_from(traces, command_line(ctx))


def _check_target(target: str, force: bool) -> None:
    """Refuse now what could not be written after a minute of measuring."""
    from pathlib import Path

    from ppsim.base.atomic_file import rehearse

    if target != "-" and Path(target).is_file() and not force:
        raise InputError(f"'{target}' exists and is not overwritten", "another name, or --force")
    rehearse(target)
