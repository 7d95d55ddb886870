"""Show a model: its sizes, parameters, FLOPs, and its operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ppsim.cli._fit import echo_wrapped
from ppsim.cli._options import json_option, make_command
from ppsim.cli._plan_options import DISPATCH_HELP, dispatch_of

if TYPE_CHECKING:
    from ppsim.planning.model import Model


# Spelled out here: reading them from the planning room would load numpy for every command's help.
RECOMPUTE = ("none", "selective", "full")
PRECISIONS = ("bf16", "fp16", "fp8", "mxfp8", "nvfp4", "fp32")
NAMES = {"devices": "pp", "chunks": "vp", "schedule_name": "schedule", "again": "recompute"}


@make_command("model")
@click.argument("file", metavar="[NAME|FILE]", required=False)
@click.option(
    "--cluster",
    "machine",
    metavar="NAME|FILE",
    help="Times on a cluster: a name such as dgx-h100, or a file that names its GPU.",
)
@click.option("--tp", type=int, help="Tensor-parallel ranks.")
@click.option("--cp", type=int, help="Context-parallel ranks.")
@click.option("--ep", type=int, help="Expert-parallel ranks, inside dp x cp x tp.")
@click.option("--devices", "--pp", "devices", type=int, help="Pipeline devices, P.")
@click.option("--dp", type=int, help="Data-parallel replicas.")
@click.option("--chunks", "--vp", "chunks", type=int, help="Stages per device, V.")
@click.option("--mbs", type=int, help="Sequences in a microbatch.")
@click.option("--mb", "-m", "--microbatches", "microbatches", type=int, help="Microbatches in a step.")
@click.option("--seq", "sequence", type=int, help="Sequence length instead of the model's.")
@click.option(
    "--schedule",
    "-s",
    "schedule_name",
    metavar="NAME",
    help="The schedule: 1f1b, or interleaved with chunks, by default.",
)
@click.option("--layout", metavar="STRING", help="Which layers each stage holds: Et*3|(tt|)*14,tL.")
@click.option("--recompute", "again", type=click.Choice(RECOMPUTE), help="What the backward runs again.")
@click.option("--zero", type=int, help="What data-parallel ranks divide: 1 optimizer, 2 gradients, 3 weights too.")
@click.option("--offload", type=float, help="Share of activations that wait in the host's memory for their backward.")
@click.option("--precision", type=click.Choice(PRECISIONS), help="Precision of the linear layers' products.")
@click.option("--dispatch", type=click.Choice(["alltoall", "flex"]), help=DISPATCH_HELP)
@click.option("--profile", type=click.Path(), help="Measured op times instead of the curve's (ppsim calibrate).")
@click.option("--measured", metavar="FILE", help="Measured memory of the devices, beside the predicted one.")
@click.option(
    "--even",
    is_flag=True,
    help="Which recompute list, or which layout, evens out the devices.",
)
@json_option
def command(
    file: str | None,
    as_json: bool,
    machine: str | None,
    profile: str | None,
    measured: str | None,
    even: bool,
    **given: Any,
) -> None:
    """Show a model's parameters, FLOPs and operators, and what training it costs on each stage and device.

    A model is a name of the library, a TOML file (schema ppsim.model/2) or a Hugging Face config.json; without one, the
    library is listed. With sizes of parallel groups, memory by device; with --cluster, times too.

    \b
      ppsim model
      ppsim model llama3-70b
      ppsim model llama3-70b --tp 4 --pp 8 --dp 4 --mb 32 --cluster dgx-h100
      ppsim model llama3-70b --tp 4 --pp 8 --mb 32 --cluster dgx-h100 --profile profile.toml
      ppsim model config.json --pp 8 --mb 16 --measured peaks.json --even
    """
    from dataclasses import replace

    from ppsim.cli import _model
    from ppsim.cli import _print as show
    from ppsim.errors import InputError
    from ppsim.planning.model import library, read_model

    if profile is not None and machine is None:
        raise InputError("--profile has times, and a step needs the links of a cluster too", "--cluster dgx-h100")
    trains = machine is not None or measured is not None or even or any(v is not None for v in given.values())
    if file is None and trains:
        raise InputError("which model is missing", "ppsim model llama3-70b ...; ppsim model lists the library")
    if file is None:
        rows = [_numbers(read_model(name)) for name in library()]
        if as_json:
            show.echo_json({"schema": "ppsim.models/1", "models": rows})
            return
        for row in rows:
            active = f", {row['active'] / 1e9:.3g} B active" if row["active"] != row["parameters"] else ""
            click.echo(f"{row['name']:<18} {row['parameters'] / 1e9:>8.4g} B{active}")
        return
    model = read_model(file)
    if (sequence := given.pop("sequence")) is not None:
        if sequence < 1:
            raise InputError(f"--seq must be 1 or more, got {sequence}")
        model = replace(model, seq=sequence)
    numbers = _numbers(model)
    found: dict[str, Any] = {}
    if trains:
        layout, given["dispatch"] = given.pop("layout"), dispatch_of(given["dispatch"], model)
        parallel = _model.parallel_from({NAMES.get(name, name): value for name, value in given.items()})
        arranged = _model.layout_from(layout, model, parallel)
        found = _model.training(model, parallel, arranged, machine, profile, measured, even)
    if as_json:
        show.echo_json({"schema": "ppsim.model/2", **numbers, "operators": _operators(model), **found})
        return
    _print(model, numbers, operators=not trains)
    if trains:
        _model.print_training(found)


def _numbers(model: Model) -> dict[str, Any]:
    from dataclasses import asdict

    from ppsim.planning.model import count_parameters, flops_per_token, mtp_parameters

    return {
        **asdict(model),
        "parameters": count_parameters(model),
        "active": count_parameters(model, active=True),
        "mtp_parameters": mtp_parameters(model),
        "flops_per_token": flops_per_token(model),
    }


def _operators(model: Model) -> list[dict[str, Any]]:
    """List the operators of a layer of each kind, and of the ends, for one sequence on one GPU."""
    from ppsim.planning import operators as ops
    from ppsim.planning.parallel import Parallel

    alone = Parallel()
    groups = [("embedding", ops.embedding_operators(model, alone))]
    if model.moe_layers < model.layers:
        groups.append(("layer", ops.layer_operators(model, alone, False)))
    if model.moe_layers:
        groups.append(("MoE layer", ops.layer_operators(model, alone, True)))
    groups.append(("output", ops.head_operators(model, alone)))
    return [
        {
            "part": part,
            "operator": name,
            "forward_flops": float(found.flops[ops.FORWARD, i]),
            "backward_flops": float(found.flops[ops.INPUTS, i] + found.flops[ops.WEIGHTS, i]),
            "forward_bytes": float(found.moved[ops.FORWARD, i] + found.touched[ops.FORWARD, i]),
        }
        for part, found in groups
        for i, name in enumerate(found.names)
    ]


def _print(model: Model, numbers: dict[str, Any], *, operators: bool) -> None:
    click.echo(f"{model.name}: {numbers['parameters'] / 1e9:.4g} B parameters")
    if model.experts:
        click.echo(f"a token visits {numbers['active'] / 1e9:.4g} B of them: {model.top_k} of {model.experts} experts")
    if model.mtp:
        click.echo(f"multi-token prediction adds {numbers['mtp_parameters'] / 1e9:.4g} B")
    click.echo(f"{numbers['flops_per_token'] / 1e9:.4g} GFLOP to train a token, sequences of {model.seq}\n")
    sizes = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "seq")
    click.echo("  ".join(f"{name} {numbers[name]}" for name in sizes))
    if model.source:
        echo_wrapped(f"from {model.source}", 5)
    if not operators:
        return
    click.echo(f"\n{'':<10} {'operator, one sequence':<24} {'F GFLOP':>10} {'B GFLOP':>10} {'F MB':>10}")
    for row in _operators(model):
        click.echo(
            f"{row['part']:<10} {row['operator']:<24} {row['forward_flops'] / 1e9:>10.4g} "
            f"{row['backward_flops'] / 1e9:>10.4g} {row['forward_bytes'] / 1e6:>10.4g}"
        )
