"""Time schedules under noise and slow hardware."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar

import click

from ppsim.ask.answer import Answer
from ppsim.ask.blocks import Block, Line, Table
from ppsim.ask.given import Need, TypedOptions
from ppsim.ask.groups import (
    FaceOptions,
    NetworkOptions,
    OutputOptions,
    SeveralSchedules,
    ShapeOptions,
    cluster_option,
)
from ppsim.ask.options import Request, common, group, option
from ppsim.ask.request import ask
from ppsim.ask.tasks import TaskOptions, finish_tasks
from ppsim.ask.write import Writers, find_targets, inputs_of
from ppsim.base.notes import Report, progress
from ppsim.base.numbers import format_change, format_number, format_share
from ppsim.base.patterns import matches
from ppsim.errors import InputError
from ppsim.prices.build import build_costs
from ppsim.prices.data_parallel.lengths import (
    OF_ONE_STEP,
    LengthOptions,
    Load,
    find_load,
    law_of,
    shares_of,
)
from ppsim.prices.data_parallel.replicas import AFTER_ONE_STEP, ReplicaOptions, Replicas
from ppsim.prices.options import CostOptions
from ppsim.prices.parts.modelled import ModelledOptions, price_by_model
from ppsim.prices.several import time_schedules
from ppsim.prices.timing import refuse_rounds

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ppsim.analysis.compare import Row
    from ppsim.analysis.jitter import Chunk, Noise, Sampled
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule
    from ppsim.engine.simple.batch import Floats
    from ppsim.show.drawing.card_bars import Bars

    Runs = dict[str, tuple[Schedule, Costs]]
    Alone = Mapping[str, Sequence[Sampled]]

SEED_STEP = 1_000_003  # difference of the seeds of two replicas
MOST_COUNT = 10**9  # more devices or links than any run has


@dataclass(frozen=True)
class NoiseOptions:
    """Options for noise of the hardware."""

    cv: float = common(
        "--cv",
        default=0.05,
        help="Noise of each op, copy, collective and message: standard deviation over mean. An op "
        "on all devices takes the longest of one draw for each.",
    )
    slow_devices: int = common(
        "--slow-devices",
        type=click.IntRange(0, MOST_COUNT),
        default=0,
        help="Number of slow devices, picked at random.",
    )
    slowdown: float = common(
        "--slowdown",
        default=1.5,
        help="Factor of the compute times of slow devices; their copies are not slower.",
    )
    slow_links: int = common(
        "--slow-links",
        type=click.IntRange(0, MOST_COUNT),
        default=0,
        help="Number of slow links, picked at random.",
    )
    link_slowdown: float = common(
        "--link-slowdown", default=4.0, help="Factor of the message times on slow links."
    )


@dataclass(frozen=True, kw_only=True)
class JitterRequest(Request):
    """Time schedules many times on uneven hardware; NAME:V sets the stages per device.

    All schedules get the same slow devices and links. The first line shows how often the ranking
    holds. -o draws the distributions of makespans (svg, png, pdf, html). With --lengths each sample
    is a step of all replicas; lengths of a distribution are drawn again for each. A second table
    has the spread by lengths alone and by noise alone.

    \b
      ppsim jitter 1f1b zb-1p interleaved:2 --devices 8 --mb 32
      ppsim jitter 1f1b eager-1f1b --devices 8 --mb 32 --cv 0.1 --slow-links 1 -o spread.svg
      ppsim jitter 1f1b zb-v --devices 8 --mb 32 --model llama3-8b --cluster dgx-h100 --tp 2
    """

    question: ClassVar[str] = "jitter"
    place: ClassVar[tuple[str, int]] = ("How long a step takes, and which schedule is best", 4)
    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            ("cp_of",),
            lambda g: bool(g["lengths"]),
            "{options} needs --lengths",
            "add --lengths FILE",
        ),
        Need(
            ("dask", "results"),
            lambda g: not g["lengths"],
            "{options} distributes samples of noise, and --lengths draws them in this process",
            "leave it out",
        ),
        Need(
            ("slowdown",),
            lambda g: bool(g["slow_devices"]),
            "{options} needs slow devices",
            "add --slow-devices 1",
        ),
        Need(
            ("link_slowdown",),
            lambda g: bool(g["slow_links"]),
            "{options} needs slow links",
            "add --slow-links 1",
        ),
        Need(
            ("cluster",),
            lambda g: bool(g["model"]),
            "{options} needs --model in jitter",
            "add --model NAME",
        ),
    )
    schedules: SeveralSchedules = group(SeveralSchedules, "Shape")
    shape: ShapeOptions = group(ShapeOptions, "Shape")
    costs: CostOptions = group(CostOptions, "Costs")
    modelled: ModelledOptions = group(ModelledOptions, "Costs")
    cluster: str | None = cluster_option(
        "The cluster of --model, such as dgx-h100, or a TOML file."
    )
    uneven: NoiseOptions = group(NoiseOptions, "Noise")
    replica_options: ReplicaOptions = group(ReplicaOptions, "Costs")
    lengths: LengthOptions = group(LengthOptions, "Lengths")
    samples: int = common("--samples", default=10_000, help="Number of iterations to simulate.")
    seed: int = option(
        "--seed", type=click.IntRange(min=0), default=0, help="Seed of the random numbers."
    )
    tasks: TaskOptions = group(TaskOptions, "Work")
    output: OutputOptions = group(OutputOptions, "Output")
    face: FaceOptions = group(FaceOptions, "Output")

    def check(self) -> None:
        """Raise InputError for a format that cannot show distributions."""
        from ppsim.show.files.chart import check_chart

        for _, suffix in find_targets(self.output):
            check_chart(suffix, "how makespans spread")


def jitter(schedules: Sequence[str], **options: Any) -> Jitter:
    """Time schedules many times on uneven hardware, in the unit of the costs.

    ``options`` are the options of ``ppsim jitter`` by name.

    Raises:
        InputError: an option is refused, or no schedule supports the shape.
    """
    return answer(ask(JitterRequest, {"names": schedules} | options))


def answer(request: JitterRequest) -> Jitter:
    """Sample the makespans of schedules under noise."""
    import numpy as np

    from ppsim.analysis.jitter import Noise

    network = NetworkOptions(cluster=request.cluster)
    costs, _ = price_by_model(request.costs, network, request.modelled, request.lengths.mbs)
    request = replace(request, costs=costs)
    rows = time_schedules(request.schedules.specs, request.shape, costs)
    timed = [(row.name, row.timeline.schedule) for row in rows if row.timeline]
    runs = {name: (schedule, build_costs(schedule, costs)) for name, schedule in timed}
    has_messages = any(np.any(prices.comm) for _, prices in runs.values())
    if request.uneven.slow_links and not has_messages:
        raise InputError(
            "--slow-links needs messages that take time", "add --comm 0.1, or --profile FILE"
        )
    noise = Noise(**asdict(request.uneven))
    alone: Alone = {}
    with progress() as report:
        if request.lengths.lengths is not None:
            sampled, alone = _sample_lengths(request, runs, noise, report)
        elif request.replica_options.replicas is None:
            sampled = _sample(request, runs, noise, request.seed, report)
        else:
            sampled = _sample_replicas(request, runs, noise, report)
    refused = tuple(row for row in rows if not row.timeline)
    inputs = inputs_of(TypedOptions.from_request(request), next(iter(runs.values()))[1])
    reduction = request.replica_options.t_reduce
    if reduction and request.replica_options.replicas is None and not alone:
        raise InputError("--t-reduce needs several replicas", "add --replicas 8")
    sampled = [_add_reduction(each, reduction) for each in sampled]
    alone = {
        cause: [_add_reduction(each, reduction) for each in rows] for cause, rows in alone.items()
    }
    return Jitter(request, tuple(sampled), noise, refused, inputs, alone)


def _sample(
    request: JitterRequest, runs: Runs, noise: Noise, seed: int, report: Report
) -> list[Sampled]:
    """Draw the samples of one replica: in this process, or as tasks if options ask for them."""
    from ppsim.analysis.jitter import jitter

    samples, tasks = request.samples, request.tasks
    if not (tasks.dask or tasks.results):
        return jitter(runs, noise, samples, seed, report)
    digests = {name: digest(*run) for name, run in runs.items()}
    valid_for = [asdict(noise), samples, seed, digests]
    return jitter(runs, noise, samples, seed, run=partial(_draw, tasks, valid_for, report))


def _sample_replicas(
    request: JitterRequest, runs: Runs, noise: Noise, report: Report
) -> list[Sampled]:
    """Draw the samples of every replica, and return the slowest of each."""
    for schedule, _ in runs.values():
        refuse_rounds(schedule, AFTER_ONE_STEP)
    replicas = request.replica_options.replicas
    assert replicas is not None
    return _slowest(
        [
            _sample(request, of_replica, noise, request.seed + SEED_STEP * r, report)
            for r, of_replica in enumerate(_replica_runs(runs, replicas, request.costs))
        ]
    )


@dataclass(frozen=True)
class Jitter(Answer[JitterRequest]):
    """Makespans of schedules over samples of uneven hardware.

    Attributes:
        sampled: the makespans of each schedule.
        noise: the noise of the hardware.
        refused: the schedules that refuse the shape.
        inputs: the command, version and settings that repeat the answer.
        alone: the makespans of each schedule by ``lengths`` alone and by ``noise`` alone; empty
            without lengths.
    """

    sampled: tuple[Sampled, ...]
    noise: Noise
    refused: tuple[Row, ...]
    inputs: Mapping[str, Any]
    alone: Alone

    @property
    def table(self) -> list[dict[str, Any]]:
        """The schedules as rows of numbers."""
        return list(self.json_object()["schedules"])

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.jitter/1``."""
        from ppsim.analysis.jitter import jitter_object, spread_object

        found = jitter_object(self.sampled, self.noise, self.request.seed, self.inputs)
        for at, row in enumerate(found["schedules"] if self.alone else ()):
            row["alone"] = {cause: spread_object(each[at]) for cause, each in self.alone.items()}
            row["deviation"] = spread_object(self.sampled[at])["deviation"]
        return found | {
            "refused": [{"name": row.name, "reason": row.reason} for row in self.refused]
        }

    @property
    def verdict(self) -> str:
        """The schedule with the least median, its spread, and how often the order holds."""
        sampled = self.sampled
        count = f"{len(sampled[0].makespans):,} samples"
        best = min(sampled, key=lambda s: s.percentile(50))
        if len(sampled) == 1:
            half, most = best.percentile(50), best.percentile(99)
            return (
                f"{best.name}: half of {count} stay within {format_number(half)} {best.unit}, "
                f"99% within {format_number(most)}"
            )
        from ppsim.analysis.jitter import count_wins, rate_ranking

        share = count_wins(sampled)[sampled.index(best)]
        middle = f"half of them within {format_number(best.percentile(50))} {best.unit}"
        return (
            f"{best.name} is fastest in {format_share(share)} of {count}, {middle}; the order of "
            f"all {len(sampled)} without noise holds in {format_share(rate_ranking(sampled))}"
        )

    def blocks(self) -> Iterator[Block]:
        """The table of percentiles; with lengths, also the table of causes."""
        yield ""
        yield self._table()
        if self.alone:
            yield ""
            yield self._table_of_causes()
        yield from (Line(f"{row.name} does not apply: {row.reason}") for row in self.refused)

    def bars(self) -> Bars:
        """The middle 98% of each schedule's makespans as bars, with a mark at the median."""
        from ppsim.show.drawing.card_bars import Bar, Bars

        def bar(each: Sampled) -> Bar:
            low, middle, high = map(each.percentile, (1, 50, 99))
            text = " ".join(map(format_number, (low, middle, high)))
            return Bar(each.name, high, text, low, middle)

        title = f"makespan ({self.sampled[0].unit}): p1, median, p99; the axis starts at the least"
        return Bars(title, [bar(each) for each in self.sampled])

    def writers(self, output: OutputOptions) -> Writers:
        """Return the writer of each -o: the distributions as a picture, or with the table as a
        page.
        """
        from ppsim.show.drawing.trust import draw_spread
        from ppsim.show.files.chart import save_chart

        table = self._table()
        save = partial(
            save_chart,
            partial(draw_spread, self._drawn()),
            output.width,
            title="How makespans spread on uneven hardware",
            sentences=self.verdict,
            inputs=self.inputs,
            headings=[heading.replace("\n", " ") for heading in table.headings],
            rows=table.rows,
        )
        return [(target, partial(save, target, suffix)) for target, suffix in find_targets(output)]

    def _drawn(self) -> list[Sampled]:
        """The samples to draw: of each schedule, and below it by lengths alone and noise alone."""
        drawn: list[Sampled] = []
        for at, each in enumerate(self.sampled):
            parts = [
                replace(rows[at], name=f"{each.name}, {what} alone")
                for what, rows in self.alone.items()
            ]
            drawn += [each, *parts]
        return drawn

    def _table_of_causes(self) -> Table:
        """The table of the spread of steps by lengths, by noise, and by both."""
        from ppsim.analysis.jitter import PERCENTILES, spread_object

        unit = self.sampled[0].unit
        headings = ["schedule\n", "spread by\n", f"deviation\n{unit}"]
        headings += [f"p{p}\n{unit}" for p in PERCENTILES]
        rows = list[list[str]]()
        for at, each in enumerate(self.sampled):
            for what, found in (*((w, r[at]) for w, r in self.alone.items()), ("both", each)):
                value = spread_object(found)
                times = (format_number(value[f"p{p}"]) for p in PERCENTILES)
                rows.append([each.name, what, format_number(value["deviation"]), *times])
        return Table(headings, rows)

    def _table(self) -> Table:
        """The table of percentiles, and of the share in which each schedule is the fastest."""
        from ppsim.analysis.jitter import PERCENTILES, count_wins

        unit = self.sampled[0].unit
        headings = [
            "schedule\n",
            *(f"{name}\n{unit}" for name in ("no noise", *(f"p{p}" for p in PERCENTILES))),
        ]
        headings += ["p99 over\nno noise", "fastest\nin"]
        rows = []
        wins = count_wins(self.sampled).tolist()
        for s, share in zip(self.sampled, wins, strict=True):
            late = format_change(s.percentile(99) / s.without_noise - 1) if s.without_noise else "-"
            times = (format_number(s.percentile(p)) for p in PERCENTILES)
            rows.append([s.name, format_number(s.without_noise), *times, late, format_share(share)])

        def tone(row: int, column: int) -> str:
            if column == 0:
                return "name"
            is_best = headings[column] == "fastest\nin" and wins[row] == max(wins)
            return "good" if is_best else ""

        return Table(headings, rows, spare=["p99 over\nno noise", f"p95\n{unit}"], tone=tone)


def _replica_runs(runs: Runs, replicas: Replicas, costs: CostOptions) -> Iterator[Runs]:
    """Yield the runs of each replica, with the costs of that replica."""
    costs_by_run = (replicas.costs(*run, costs) for run in runs.values())
    for costs_of_replica in zip(*costs_by_run, strict=True):
        yield {
            name: (schedule, prices)
            for (name, (schedule, _)), prices in zip(runs.items(), costs_of_replica, strict=True)
        }


def _sample_lengths(
    request: JitterRequest, runs: Runs, noise: Noise, report: Report
) -> tuple[list[Sampled], Alone]:
    """Draw steps of all replicas, and return the slowest replica of each step.

    Returned are the samples by lengths and noise, and by cause those of lengths alone and of noise
    alone. Lengths of a distribution are drawn again for each step; lengths of a file are the same
    in all.
    """
    from ppsim.inputs.profile.lengths import draw_factors, is_distribution

    costs, lengths, count = request.costs, request.lengths, request.replica_options.count
    schedules = [schedule for schedule, _ in runs.values()]
    for schedule in schedules:
        refuse_rounds(schedule, OF_ONE_STEP)
    if len({schedule.whole_microbatches for schedule in schedules}) > 1:
        raise InputError(
            "--lengths is for one number of microbatches, and these schedules have several",
            "--mb 8",
        )
    text, law = str(lengths.lengths), law_of(costs)
    shares = shares_of(lengths, schedules[0], count)
    is_drawn = is_distribution(text)
    if is_drawn and lengths.cp_of is not None:
        raise InputError(
            "--cp-of is for the microbatches of a file, and each sample draws others",
            "--lengths FILE",
        )
    load = None if is_drawn else find_load(lengths, schedules[0], count, costs)
    replicas = request.replica_options.replicas or Replicas(load.n_replicas if load else 1, ())
    by_cause: dict[str, list[list[Sampled]]] = {"lengths": [], "noise": [], "both": []}
    for r, slowdowns in enumerate(replicas.factors(schedules[0].n_devices)):
        slowed = {
            name: (schedule, _slowed_costs(prices, slowdowns))
            for name, (schedule, prices) in runs.items()
        }
        sample = partial(_sample_steps, request, r, report)
        if load is None:
            steps = draw_factors(text, shares, law, r, request.samples, padded=lengths.padded)
            sampled = _sample_drawn_lengths(sample, slowed, noise, steps)
        else:
            sampled = _sample_given_lengths(sample, slowed, noise, load, r)
        for cause, of_replica in sampled.items():
            by_cause[cause].append(of_replica)
    slowest = {cause: _slowest(of_replicas) for cause, of_replicas in by_cause.items()}
    return slowest.pop("both"), slowest


def _sample_steps(
    request: JitterRequest,
    replica: int,
    report: Report,
    runs: Runs,
    noise: Noise,
    factors: Floats | None = None,
) -> list[Sampled]:
    """Draw the steps of a replica; ``factors`` are those of its microbatches in each step."""
    from ppsim.analysis.jitter import jitter

    seed = request.seed + SEED_STEP * replica
    return jitter(runs, noise, request.samples, seed, report, factors=factors)


def _sample_drawn_lengths(
    sample: Callable[..., list[Sampled]], runs: Runs, noise: Noise, steps: Floats
) -> dict[str, list[Sampled]]:
    """Return the samples of a replica by cause; ``steps`` are factors drawn for each step."""
    from ppsim.analysis.jitter import Noise

    return {
        "lengths": sample(runs, Noise(cv=0.0), steps),
        "noise": sample(runs, noise),
        "both": sample(runs, noise, steps),
    }


def _sample_given_lengths(
    sample: Callable[..., list[Sampled]], runs: Runs, noise: Noise, load: Load, replica: int
) -> dict[str, list[Sampled]]:
    """Return the samples of a replica by cause; its lengths are the same in all steps."""
    import numpy as np

    as_given = {
        name: (schedule, load.costs(schedule, prices, replica))
        for name, (schedule, prices) in runs.items()
    }
    even = {
        name: (schedule, load.even_costs(schedule, prices))
        for name, (schedule, prices) in runs.items()
    }
    both = sample(as_given, noise)
    by_lengths = [
        replace(each, makespans=np.full(len(each.makespans), each.without_noise)) for each in both
    ]
    return {"lengths": by_lengths, "noise": sample(even, noise), "both": both}


def _slowed_costs(prices: Costs, factors: NDArray[np.float64]) -> Costs:
    """Return costs with the compute times of each device multiplied by a factor."""
    if (factors == 1).all():
        return prices
    return replace(prices, speed=(1.0 if prices.speed is None else prices.speed) / factors)


def _add_reduction(sampled: Sampled, time: float) -> Sampled:
    """Return samples with the time of the collectives that follow the slowest replica."""
    return replace(
        sampled, without_noise=sampled.without_noise + time, makespans=sampled.makespans + time
    )


def _slowest(sampled: list[list[Sampled]]) -> list[Sampled]:
    """Return the samples of the slowest replica, of each schedule; one list of ``sampled`` is one
    replica.
    """
    import numpy as np

    return [
        replace(
            replicas[0],
            without_noise=max(each.without_noise for each in replicas),
            makespans=np.max([each.makespans for each in replicas], axis=0),
        )
        for replicas in zip(*sampled, strict=True)
    ]


def _draw(
    tasks: TaskOptions,
    valid_for: object,
    report: Report,
    draw: Callable[[Chunk], Floats],
    chunks: Mapping[str, Chunk],
) -> dict[str, Floats]:
    """Draw the chunks of samples as tasks, and return the makespans of each."""
    import numpy as np

    def is_sound(key: str, row: Mapping[str, Any]) -> bool:
        chunk = chunks.get(key)
        if not matches(row, {"first": int, "makespans": [float]}):
            return False
        return chunk is None or len(row["makespans"]) == chunk.stop - chunk.first

    draw_chunk = partial(draw_row, draw)
    rows = finish_tasks(draw_chunk, chunks, tasks, valid_for, report, is_sound=is_sound)
    return {key: np.array(rows[key]["makespans"]) for key in chunks}


def draw_row(draw: Callable[[Chunk], Floats], chunk: Chunk) -> dict[str, Any]:
    """Draw a chunk of samples, and return it as a row of a results file."""
    return {"first": chunk.first, "makespans": draw(chunk).tolist()}


def digest(schedule: Schedule, costs: Costs) -> str:
    """Return a hash of a schedule and its costs, as text."""
    import numpy as np

    queues = (schedule.offsets, schedule.kind, schedule.stage, schedule.microbatch, schedule.pair)
    times = (costs.durations(schedule), costs.latencies(schedule))
    content = b"".join(np.ascontiguousarray(column).tobytes() for column in (*queues, *times))
    return sha256(content).hexdigest()
