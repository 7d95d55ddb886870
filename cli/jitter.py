"""Time schedules under noise and slow hardware."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ppsim.cli._options import ScheduleName, build, cost_options, inputs_of, json_option, quiet_option
from ppsim.errors import InputError, PpsimError, UnknownSchedule

if TYPE_CHECKING:
    from ppsim.costs import Costs
    from ppsim.jitter import Sampled
    from ppsim.schedule import Schedule


@click.command("jitter")
@click.argument("names", metavar="SCHEDULE...", nargs=-1, required=True, type=ScheduleName())
@click.option("--devices", "--pp", "--stages", type=int, required=True, help="Pipeline devices, P, the same for all.")
@click.option("--mb", "-m", "--microbatches", "microbatches", type=int, required=True, help="Microbatches, M.")
@click.option("--group-size", type=int, help="Microbatches per group of interleaved schedules, N.")
@click.option("--rule", type=click.Choice(["torch", "megatron"]), help="Rule for M and N of interleaved schedules.")
@cost_options
@click.option(
    "--cv", type=float, default=0.05, show_default=True, help="Noise of each op and message: deviation over mean."
)
@click.option(
    "--slow-devices", type=int, default=0, show_default=True, help="Devices, picked at random, that are slow."
)
@click.option("--slowdown", type=float, default=1.5, show_default=True, help="How many times slower they compute.")
@click.option("--slow-links", type=int, default=0, show_default=True, help="Links, picked at random, that are slow.")
@click.option("--link-slowdown", type=float, default=4.0, show_default=True, help="How many times longer they take.")
@click.option("--samples", type=int, default=10_000, show_default=True, help="Iterations to draw.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the random numbers.")
@json_option
@quiet_option
@click.pass_context
def command(ctx: click.Context, /, names: tuple[str, ...], samples: int, seed: int, **options: Any) -> None:
    """Time schedules many times on uneven hardware; NAME:V sets the stages per device.

    All schedules meet the same slow devices and links. The last line says how far the ranking can be trusted.

    \b
      ppsim jitter 1f1b zb-1p interleaved:2 --devices 8 --mb 32
      ppsim jitter 1f1b eager-1f1b --devices 8 --mb 32 --comm 0.2 --cv 0.1 --slow-links 1
    """
    from ppsim.cli import _print as show
    from ppsim.cli._progress import progress_bar
    from ppsim.jitter import Noise, jitter, jitter_object

    runs, refused = _runs(names, options)
    if not runs:
        reasons = "\n".join(f"  {name}: {reason}" for name, reason in refused.items())
        raise InputError(f"none of these schedules takes this shape:\n{reasons}", "another --mb or --devices")
    noise = Noise(**{k: options[k] for k in ("cv", "slow_devices", "slowdown", "slow_links", "link_slowdown")})
    with progress_bar() as report:
        sampled = jitter(runs, noise, samples, seed, report)
    if options["as_json"]:
        inputs = inputs_of(ctx, next(iter(runs.values()))[1])
        rows = jitter_object(sampled, noise, seed, inputs)
        rows["refused"] = [{"name": name, "reason": reason} for name, reason in refused.items()]
        show.echo_json(rows)
        return
    if not options["quiet"]:
        _table(sampled)
        for name, reason in refused.items():
            click.echo(f"{name} does not apply: {reason}")
        click.echo()
    click.echo(_closing(sampled))


def _runs(names: Sequence[str], options: dict[str, Any]) -> tuple[dict[str, tuple[Schedule, Costs]], dict[str, str]]:
    """What can run, by name, and why the rest cannot."""
    from ppsim.schedules import find

    runs, refused = dict[str, tuple[Any, Any]](), dict[str, str]()
    for name in names:
        base, _, chunks = name.partition(":")
        try:
            if chunks and not chunks.isdecimal():
                raise InputError(f"'{chunks}' in '{name}' is not a number of chunks")
            takes = find(base).options
            kept = {key: v for key, v in options.items() if key not in ("group_size", "rule") or key in takes}
            runs[name] = build(base, {**kept, "chunks": int(chunks) if chunks else None})
        except UnknownSchedule:
            raise
        except PpsimError as error:
            refused[name] = f"{error} (try {error.hint})" if error.hint else str(error)
    return runs, refused


def _table(sampled: Sequence[Sampled]) -> None:
    from rich.table import Table

    from ppsim.cli._print import console
    from ppsim.jitter import PERCENTILES, wins

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("schedule\n", no_wrap=True)
    for heading in ("no noise", *(f"p{p}" for p in PERCENTILES)):
        table.add_column(f"{heading}\n{sampled[0].unit}", justify="right", no_wrap=True)
    table.add_column("p99 over\nno noise", justify="right", no_wrap=True)
    table.add_column("fastest\nin", justify="right", no_wrap=True)
    for s, share in zip(sampled, wins(sampled).tolist(), strict=True):
        late = f"{s.percentile(99) / s.steady - 1:+.1%}" if s.steady else "-"
        times = (f"{s.percentile(p):.5g}" for p in PERCENTILES)
        table.add_row(s.name, f"{s.steady:.5g}", *times, late, f"{share:.1%}")
    console(at_least=100).print(table)


def _closing(sampled: Sequence[Sampled]) -> str:
    """The one sentence: who to trust, and how far."""
    from ppsim.jitter import ranking_kept, wins

    count = f"{len(sampled[0].makespans):,} samples"
    best = min(sampled, key=lambda s: s.percentile(50))
    if len(sampled) == 1:
        return f"{best.name}: half of {count} stay within {best.percentile(50):.5g} {best.unit}, 99% within " + (
            f"{best.percentile(99):.5g}"
        )
    share = wins(sampled)[list(sampled).index(best)]
    return (
        f"{best.name} is fastest in {share:.1%} of {count}; "
        f"the order of all {len(sampled)} without noise holds in {ranking_kept(sampled):.1%}"
    )
