"""``ppsim calibrate``: measure op times and messages on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ppsim.cli._options import command_line, json_option, quiet_option
from ppsim.errors import InputError

COUNT = click.IntRange(min=1)


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
@click.option("--repeats", type=COUNT, default=15, show_default=True, help="Measured repetitions of every op.")
@click.option(
    "--warm-up", type=click.IntRange(min=0), default=3, show_default=True, help="Repetitions thrown away first."
)
@click.option(
    "--max-bytes",
    type=click.IntRange(min=1024, max=1 << 30),
    default=16 << 20,
    show_default=True,
    help="Largest message; sizes go up from 1 KiB.",
)
@click.option("--note", default="", help="A remark for the record, such as other load on the machine.")
@json_option
@quiet_option
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    r"""Measure what a transformer stage and its messages cost on this machine.

    \b
      ppsim calibrate -o profile.toml
      ppsim run --schedule 1f1b --stages 4 --mb 8 --profile profile.toml
    """
    target = options["output"]
    _check_target(target, options["force"])
    from ppsim.cli._progress import progress_bar
    from ppsim.measure import device_for
    from ppsim.measure.calibrate import Plan, calibrate
    from ppsim.profile import Model, write

    device = device_for(options["device"])
    dtype = options["dtype"] or ("bfloat16" if device == "cuda" else "float32")
    shape = {k: options[k] for k in ("hidden", "heads", "sequence", "microbatch_size", "layers", "vocab")}
    plan = Plan(
        Model(dtype=dtype, **shape),
        device,
        options["repeats"],
        options["warm_up"],
        options["max_bytes"],
        command_line(ctx),
        options["note"],
    )
    with progress_bar() as report:
        profile = calibrate(plan, report)
    write(profile, target)
    if target != "-":
        from ppsim.cli.profile import show

        show(profile, target, options["as_json"], options["quiet"])
        click.echo(f"wrote {target}", err=True)


def _check_target(target: str, force: bool) -> None:
    """Refuse now what could not be written after a minute of measuring."""
    path = Path(target)
    if target == "-":
        return
    if path.is_file() and not force:
        raise InputError(f"'{target}' exists and is not overwritten", "another name, or --force")
    from ppsim.formats import opened

    if path.exists() and not path.is_file():
        raise InputError(f"cannot write '{target}': not a plain file", "give a file's name")
    try:
        with opened(target):
            raise _Rehearsed
    except _Rehearsed:
        return


class _Rehearsed(Exception):
    """Ends the trial of a path before anything takes its place."""
