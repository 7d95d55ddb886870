"""Time schedules under noise and slow hardware."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import click

from ppsim.cli._build import build_costs
from ppsim.cli._fit import echo_wrapped, print_table
from ppsim.cli._options import (
    CostOptions,
    ShapeOptions,
    cost_options,
    group_options,
    json_option,
    make_command,
    quiet_option,
    several_schedules,
    shape_options,
)
from ppsim.cli._several import time_schedules
from ppsim.cli._tasks import TaskOptions, finish_tasks, task_options
from ppsim.cli._write import inputs_of
from ppsim.errors import InputError

if TYPE_CHECKING:
    from ppsim.analysis.jitter import Chunk, Sampled
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule
    from ppsim.simulation.batch import Floats

MOST_COUNT = 10**9  # more devices or links than any run has


@dataclass(frozen=True)
class NoiseOptions:
    """How uneven the hardware is."""

    cv: float
    slow_devices: int
    slowdown: float
    slow_links: int
    link_slowdown: float


noise_options = group_options(
    "uneven",
    NoiseOptions,
    click.option(
        "--cv", type=float, default=0.05, show_default=True, help="Noise of each op and message: deviation over mean."
    ),
    click.option(
        "--slow-devices",
        type=click.IntRange(0, MOST_COUNT),
        default=0,
        show_default=True,
        help="Devices, picked at random, that are slow.",
    ),
    click.option("--slowdown", type=float, default=1.5, show_default=True, help="How many times slower they compute."),
    click.option(
        "--slow-links",
        type=click.IntRange(0, MOST_COUNT),
        default=0,
        show_default=True,
        help="Links, picked at random, that are slow.",
    ),
    click.option(
        "--link-slowdown", type=float, default=4.0, show_default=True, help="How many times longer they take."
    ),
)


@make_command("jitter")
@several_schedules()
@shape_options
@cost_options
@noise_options
@click.option("--samples", type=int, default=10_000, show_default=True, help="Iterations to draw.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random numbers.")
@task_options
@json_option
@quiet_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    specs: tuple[str, ...],
    shape: ShapeOptions,
    costs: CostOptions,
    uneven: NoiseOptions,
    samples: int,
    seed: int,
    tasks: TaskOptions,
    as_json: bool,
    quiet: bool,
) -> None:
    """Time schedules many times on uneven hardware; NAME:V sets the stages per device.

    All schedules get the same slow devices and links. The last line says how far the ranking can be trusted.

    \b
      ppsim jitter 1f1b zb-1p interleaved:2 --devices 8 --mb 32
      ppsim jitter 1f1b eager-1f1b --devices 8 --mb 32 --comm 0.2 --cv 0.1 --slow-links 1
    """
    import numpy as np

    from ppsim.analysis.jitter import Noise, jitter, jitter_object
    from ppsim.cli import _print as show
    from ppsim.cli._progress import progress_bar

    rows = time_schedules(specs, shape, costs)
    runs = {r.name: (r.timeline.schedule, build_costs(r.timeline.schedule, costs)) for r in rows if r.timeline}
    refused = [r for r in rows if not r.timeline]
    if uneven.slow_links and not any(np.any(prices.comm) for _, prices in runs.values()):
        raise InputError("--slow-links needs messages that take time", "add --comm 0.1, or --profile FILE")
    noise = Noise(**asdict(uneven))
    with progress_bar() as report:
        if tasks.dask or tasks.results:
            kept_for = [asdict(noise), samples, seed, {name: digest(*run) for name, run in runs.items()}]
            sampled = jitter(runs, noise, samples, seed, run=partial(_draw, tasks, kept_for, report))
        else:
            sampled = jitter(runs, noise, samples, seed, report)
    if as_json:
        inputs = inputs_of(ctx, next(iter(runs.values()))[1])
        answer = jitter_object(sampled, noise, seed, inputs)
        answer["refused"] = [{"name": r.name, "reason": r.reason} for r in refused]
        show.echo_json(answer)
        return
    if not quiet:
        _table(sampled)
        for r in refused:
            echo_wrapped(f"{r.name} does not apply: {r.reason}")
        click.echo()
    echo_wrapped(_closing(sampled))


def _draw(
    tasks: TaskOptions,
    inputs: object,
    report: Callable[[float, str], None],
    draw: Callable[[Chunk], Floats],
    chunks: Mapping[str, Chunk],
) -> dict[str, Floats]:
    """Draw the chunks where the options say."""
    import numpy as np

    rows = finish_tasks(DrawRow(draw), chunks, tasks, inputs, report)
    return {key: np.array(rows[key]["makespans"]) for key in chunks}


@dataclass(frozen=True)
class DrawRow:
    """A function of a chunk of samples that gives its row."""

    draw: Callable[[Chunk], Floats]

    def __call__(self, chunk: Chunk) -> dict[str, Any]:
        """Draw the chunk's samples."""
        return {"first": chunk.first, "makespans": self.draw(chunk).tolist()}


def digest(schedule: Schedule, costs: Costs) -> str:
    """Compute a short text that differs for another schedule or other costs."""
    import numpy as np

    queues = (schedule.offsets, schedule.kind, schedule.stage, schedule.microbatch, schedule.pair)
    times = (costs.durations(schedule), costs.latencies(schedule))
    return sha256(b"".join(np.ascontiguousarray(column).tobytes() for column in (*queues, *times))).hexdigest()


def _table(sampled: Sequence[Sampled]) -> None:
    from ppsim.analysis.jitter import PERCENTILES, count_wins

    unit = sampled[0].unit
    headings = ["schedule\n", *(f"{name}\n{unit}" for name in ("no noise", *(f"p{p}" for p in PERCENTILES)))]
    headings += ["p99 over\nno noise", "fastest\nin"]
    rows = []
    for s, share in zip(sampled, count_wins(sampled).tolist(), strict=True):
        late = f"{s.percentile(99) / s.without_noise - 1:+.1%}" if s.without_noise else "-"
        rows.append(
            [s.name, f"{s.without_noise:.5g}", *(f"{s.percentile(p):.5g}" for p in PERCENTILES), late, f"{share:.1%}"]
        )
    print_table(headings, rows, at_least=100, spare=["p99 over\nno noise", f"p95\n{unit}"])


def _closing(sampled: Sequence[Sampled]) -> str:
    """The one sentence: who to trust, and how far."""
    from ppsim.analysis.jitter import count_wins, rate_ranking

    count = f"{len(sampled[0].makespans):,} samples"
    best = min(sampled, key=lambda s: s.percentile(50))
    if len(sampled) == 1:
        return f"{best.name}: half of {count} stay within {best.percentile(50):.5g} {best.unit}, 99% within " + (
            f"{best.percentile(99):.5g}"
        )
    share = count_wins(sampled)[list(sampled).index(best)]
    return (
        f"{best.name} is fastest in {share:.1%} of {count}; "
        f"the order of all {len(sampled)} without noise holds in {rate_ranking(sampled):.1%}"
    )
