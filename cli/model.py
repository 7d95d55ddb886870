"""Show a model: its sizes, parameters, FLOPs, and its operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ppsim.cli._fit import echo_wrapped
from ppsim.cli._options import json_option, make_command

if TYPE_CHECKING:
    from ppsim.planning.model import Model


@make_command("model")
@click.argument("spec", metavar="[NAME|FILE]", required=False)
@json_option
def command(spec: str | None, as_json: bool) -> None:
    """Show a model's parameters, FLOPs and operators; without a name, list the library.

    A model is a name of the library, a TOML file (schema ppsim.model/2) or a Hugging Face config.json.

    \b
      ppsim model
      ppsim model llama3-70b
      ppsim model config.json --json
    """
    from ppsim.cli import _print as show
    from ppsim.planning.model import library, read_model

    if spec is None:
        rows = [_numbers(read_model(name)) for name in library()]
        if as_json:
            show.echo_json({"schema": "ppsim.models/1", "models": rows})
            return
        for row in rows:
            active = f", {row['active'] / 1e9:.3g} B active" if row["active"] != row["parameters"] else ""
            click.echo(f"{row['name']:<18} {row['parameters'] / 1e9:>8.4g} B{active}")
        return
    model = read_model(spec)
    numbers = _numbers(model)
    if as_json:
        show.echo_json({"schema": "ppsim.model/2", **numbers, "operators": _operators(model)})
        return
    _print(model, numbers)


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


def _print(model: Model, numbers: dict[str, Any]) -> None:
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
    click.echo(f"\n{'':<10} {'operator, one sequence':<24} {'F GFLOP':>10} {'B GFLOP':>10} {'F MB':>10}")
    for row in _operators(model):
        click.echo(
            f"{row['part']:<10} {row['operator']:<24} {row['forward_flops'] / 1e9:>10.4g} "
            f"{row['backward_flops'] / 1e9:>10.4g} {row['forward_bytes'] / 1e6:>10.4g}"
        )
