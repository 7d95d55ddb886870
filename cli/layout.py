"""Read a layout or Megatron's flags, and write the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ppsim.cli._fit import echo_wrapped
from ppsim.cli._options import json_option, make_command, quiet_option
from ppsim.cli._types import CountList

if TYPE_CHECKING:
    from ppsim.layout.layout import Layout

MOST_ROWS = 64


@make_command("layout")
@click.argument("string", required=False, metavar="[STRING]")
@click.option("--devices", "--pp", "--pipeline-model-parallel-size", "devices", type=int, help="Pipeline devices, P.")
@click.option(
    "--chunks", "--vpp", "--num-virtual-stages-per-pipeline-rank", "chunks", type=int, help="Stages per device, V."
)
@click.option("--num-layers", type=int, help="Transformer layers of the model; a string must hold as many.")
@click.option("--mtp-num-layers", "mtp", type=int, help="MTP layers of the model (0); a string must hold as many.")
@click.option("--decoder-first-pipeline-num-layers", "first", type=int, help="Layers of the first device.")
@click.option("--decoder-last-pipeline-num-layers", "last", type=int, help="Layers of the last device.")
@click.option(
    "--account-for-embedding-in-pipeline-split", "account_embedding", is_flag=True, help="Embedding counts as a layer."
)
@click.option("--account-for-loss-in-pipeline-split", "account_loss", is_flag=True, help="Loss counts as a layer.")
@click.option("--layers-per-stage", type=CountList(), help="Layers of each stage in model order: 3,4,4,3.")
@click.option(
    "--placement", type=click.Choice(["loop", "v"]), help="Which device holds stage i: i mod P (loop), or V-shaped."
)
@json_option
@quiet_option
def command(
    string: str | None,
    devices: int | None,
    chunks: int | None,
    num_layers: int | None,
    mtp: int | None,
    first: int | None,
    last: int | None,
    account_embedding: bool,
    account_loss: bool,
    layers_per_stage: list[int] | None,
    placement: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Read a layout string or Megatron's flags, and write the other; refused where Megatron refuses.

    Letters of a stage: E embedding, t transformer layer, m MTP layer, L loss; | between stages in model order. Lists of
    words, as Megatron-Bridge takes them, are read too.

    \b
      ppsim layout 'Et*3|(tt|)*29,m|L' --devices 16
      ppsim layout '[["embedding"] + ["decoder"] * 3, ["decoder", "loss"]]'
      ppsim layout --num-layers 30 --devices 4 --decoder-last-pipeline-num-layers 6
    """
    from ppsim.cli import _print as show
    from ppsim.errors import InputError
    from ppsim.layout.flags import Flags, layout_from
    from ppsim.layout.layout import build_layout, read_layout
    from ppsim.layout.text import parse_content

    if string is not None:
        stages = len(parse_content(string))
        found = read_layout(string, _devices(stages, devices, chunks), num_layers, mtp)
    elif layers_per_stage is not None:
        parts = _devices(len(layers_per_stage), devices, chunks)
        found = read_layout(str(build_layout(layers_per_stage, parts, mtp or 0)), parts, num_layers)
    elif num_layers is None or devices is None:
        raise InputError("the layout is missing", "a STRING, or --num-layers and --devices, or --layers-per-stage")
    else:
        flags = Flags(num_layers, devices, chunks or 1, first, last, account_embedding, account_loss, mtp or 0)
        found = layout_from(flags)
    if as_json:
        show.echo_json(_object(found, placement or "loop"))
    elif quiet:
        click.echo(str(found))
    else:
        _print(found, placement or "loop")


def _devices(stages: int, devices: int | None, chunks: int | None) -> int:
    """The devices of so many stages, from either number or from both."""
    from ppsim.errors import InputError

    for name, value in (("devices", devices), ("chunks", chunks)):
        if value is not None and value < 1:
            raise InputError(f"--{name} must be 1 or more, got {value}")
    if chunks is None:
        return stages if devices is None else devices
    if stages % chunks or devices not in (None, stages // chunks):
        of = f"{chunks} chunks" if devices is None else f"{devices} devices x {chunks} chunks"
        raise InputError(
            f"the layout has {stages} stages, which are not {of} (rule stage-count)",
            "leave out --chunks" if devices else f"--devices {stages}, or a --chunks that divides {stages}",
        )
    return stages // chunks


def _object(found: Layout, placement: str) -> dict[str, object]:
    from ppsim.core.schedule import place
    from ppsim.layout.flags import flags_of

    return {
        "schema": "ppsim.layout/1",
        "layout": str(found),
        "devices": found.n_devices,
        "chunks": found.n_chunks,
        "stages": found.n_stages,
        "layers": found.n_layers,
        "mtp_layers": found.n_mtp,
        "content": found.content,
        "layers_per_stage": found.layers,
        "device": place(placement, found.n_devices, found.n_stages).devices[0].tolist(),
        "flags": flags_of(found),
    }


def _print(found: Layout, placement: str) -> None:
    from ppsim.cli._print import counted
    from ppsim.core.schedule import place
    from ppsim.layout.flags import flags_of
    from ppsim.layout.text import format_content

    devices = place(placement, found.n_devices, found.n_stages).devices[0]
    mtp = f", {counted(found.n_mtp, 'MTP layer')}" if found.n_mtp else ""
    click.echo(str(found))
    click.echo(
        f"{counted(found.n_devices, 'device')} x {counted(found.n_chunks, 'chunk')} = "
        f"{counted(found.n_stages, 'stage')}, {counted(found.n_layers, 'layer')}{mtp}\n"
    )
    click.echo("stage  device  layers  content")
    rows = list(range(found.n_stages))
    if len(rows) > MOST_ROWS:
        rows = [*rows[: MOST_ROWS // 2], -1, *rows[-MOST_ROWS // 2 :]]
    for stage in rows:
        if stage < 0:
            click.echo(f"... {found.n_stages - MOST_ROWS} more stages")
            continue
        held = format_content(found.content[stage : stage + 1]) or "(empty)"
        click.echo(f"{stage:>5}  {devices[stage]:>6}  {found.layers[stage]:>6}  {held}")
    click.echo()
    echo_wrapped(f"flags  {flags_of(found)}", 7)
    if found.empty:
        named = ", ".join(map(str, found.empty[:8])) + (", ..." if len(found.empty) > 8 else "")
        what = f"stage {named} holds" if len(found.empty) == 1 else f"stages {named} hold"
        echo_wrapped(f"note   {what} no layer; a bracket such as (tt|)*2 ends with |, so a second | after it is one", 7)
