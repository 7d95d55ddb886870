"""Data-parallel replicas of one schedule, some slower than others: who waits for whom where
gradients are reduced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Any

import click

from ppsim.ask.blocks import Block, Line
from ppsim.ask.groups import NetworkOptions
from ppsim.ask.options import option
from ppsim.base.numbers import format_number, format_share, plain_float, plain_int
from ppsim.base.text import shorten
from ppsim.errors import InputError
from ppsim.prices.build import costs_of_replica, draws_by_replica
from ppsim.prices.options import CostOptions, ask_costs
from ppsim.prices.timing import refuse_rounds, time_ops

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule
    from ppsim.core.timeline import Timeline
    from ppsim.engine.memory.usage import MemoryModel
    from ppsim.prices.data_parallel.lengths import Load

Slower = tuple[int, int | None, float]
AFTER_ONE_STEP = "replicas wait for each other after one step"
MOST = 4096
NAMED = 4  # devices that are named with the replica that comes last


@dataclass(frozen=True)
class Replicas:
    """The number of replicas, and the slowdown of some devices."""

    count: int  # R
    # replica, device or None for all of its devices, and the factor of each
    slower: tuple[Slower, ...]

    def __str__(self) -> str:
        """Return the text that ``--replicas`` parses."""
        slower = (
            f",{replica}{'' if device is None else f'.{device}'}={factor!r}"
            for replica, device, factor in self.slower
        )
        return f"{self.count}{''.join(slower)}"

    def factors(self, devices: int) -> NDArray[np.float64]:
        """Return the factors of the times of devices, shape (R, devices) (InputError: an unknown
        device).
        """
        import numpy as np

        found = np.ones((self.count, devices))
        for replica, device, factor in self.slower:
            if device is not None and device >= devices:
                raise InputError(
                    f"--replicas {replica}.{device}: there are {devices} devices",
                    "devices count from 0",
                )
            found[replica, slice(None) if device is None else device] *= factor
        return found

    def costs(
        self, schedule: Schedule, costs: Costs, options: CostOptions, load: Load | None = None
    ) -> Iterator[Costs]:
        """Yield the costs of each replica, whose microbatches take the factors that it draws, or
        its load.
        """
        for replica, row in enumerate(self.factors(schedule.n_devices)):
            drawn = costs_of_replica(schedule, costs, options, replica)
            own = load.costs(schedule, drawn, replica) if load else drawn
            yield slowed_costs(schedule, own, row)

    def first_alike(self, devices: int, options: CostOptions) -> list[int]:
        """Return the first replica whose ops take the times of each; replicas that draw factors all
        differ.
        """
        rows, drawn, first = (
            self.factors(devices),
            draws_by_replica(options),
            dict[tuple[bytes, int], int](),
        )
        return [first.setdefault((row.tobytes(), at * drawn), at) for at, row in enumerate(rows)]

    def equal_costs(self, schedule: Schedule, costs: Costs) -> list[Costs]:
        """Return the costs of replicas that have equal work, once for equal times."""
        rows = {row.tobytes(): row for row in self.factors(schedule.n_devices)}.values()
        return [slowed_costs(schedule, costs, row) for row in rows]

    def with_healthy(self, replica: int) -> Replicas:
        """Return the replicas without the slowdown of one."""
        return replace(self, slower=tuple(each for each in self.slower if each[0] != replica))


class ReplicaFactors(click.ParamType[Any]):
    """A number of replicas and which are slower, or a factor for each."""

    name = "replicas"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Replicas:
        """Parse ``8``, ``8,2=1.2,5.3=1.5`` or ``1,1,1.2``."""
        if isinstance(value, Replicas):
            return value
        text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        head, *rest = text.split(",")
        slower: list[Slower]
        try:
            if rest and not any("=" in part for part in rest):
                count, slower = (
                    1 + len(rest),
                    [(r, None, plain_float(part)) for r, part in enumerate((head, *rest))],
                )
            else:
                count, slower = plain_int(head), [_slower(part) for part in rest]
        except ValueError:
            self.fail(
                f"not replicas: '{shorten(text)}'; expected their number or factors, "
                f"e.g. 8, 8,2=1.2,5.3=1.5 or 1,1,1.2."
            )
        if not 1 <= count <= MOST or any(
            not 0 <= r < count or not f > 0 or not isfinite(f) for r, _, f in slower
        ):
            self.fail(
                f"'{shorten(text)}': 1 to {MOST} replicas, counted from 0, with factors above 0.",
                param,
                ctx,
            )
        return Replicas(count, tuple(slower))


def _slower(part: str) -> Slower:
    where, _, factor = part.partition("=")
    replica, dot, device = where.partition(".")
    return plain_int(replica), plain_int(device) if dot else None, plain_float(factor)


@dataclass(frozen=True)
class ReplicaOptions:
    """Data-parallel replicas, the slowest of which is shown."""

    replicas: Replicas | None = option(
        "--replicas",
        type=ReplicaFactors(),
        metavar="N,R=F,...",
        help="Data-parallel replicas, and factors of the times of slow ones: 8,2=1.2 (all of "
        "replica 2), 8,5.3=1.5 (device 3 of replica 5), or a factor for each: 1,1,1.2. Each draws "
        "a distribution of "
        "--mb-scale again. The slowest is shown, as it decides the step.",
    )
    t_reduce: float = option(
        "--t-reduce",
        type=click.FloatRange(0, 1e15),
        default=0.0,
        show_default=False,
        help="Time from the end of the slowest replica's pipeline to the end of the step: the "
        "collectives of "
        "replicas and the optimizer (0).",
    )

    @property
    def count(self) -> int | None:
        """The number of replicas; None if no option sets it."""
        return self.replicas.count if self.replicas else None


@dataclass(frozen=True)
class EvenStep:
    """The step of the same work in microbatches of equal times."""

    step: float  # of the slowest replica, without collectives
    work: float  # of the busiest device in it


@dataclass(frozen=True)
class StepEnds:
    """The end of the step on each device of each replica."""

    ends: NDArray[np.float64]  # shape (R, P)
    unit: str  # of times
    reduction: float = 0.0  # time of the collectives and the optimizer after the slowest replica
    even: EvenStep | None = None  # the same step without unequal lengths, where there are such

    @property
    def waits(self) -> NDArray[np.float64]:
        """Waits of each device for the same device of the last replica, before gradients are
        reduced, shape (R, P).
        """
        waits: NDArray[np.float64] = self.ends.max(axis=0) - self.ends
        return waits

    @property
    def slowest(self) -> int:
        """The replica that ends last."""
        return int(self.ends.max(axis=1).argmax())

    @property
    def time(self) -> float:
        """The time of the step: the slowest replica and the collectives after it."""
        return float(self.ends.max()) + self.reduction

    @property
    def step(self) -> str:
        """The step of all replicas: the slowest one's time plus the collectives."""
        return f"{format_number(self.time)} {self.unit}"

    @property
    def causes(self) -> dict[str, float]:
        """The time of the step by cause, which sums to it.

        Length between replicas is the time of the slowest above their mean, length within them the
        time of the mean above microbatches that are all alike; both may be below 0.
        """
        if self.even is None:
            return {}
        pipelines = self.ends.max(axis=1)
        slowest, mean = float(pipelines.max()), float(pipelines.mean())
        return {
            "work": self.even.work,
            "pipeline": self.even.step - self.even.work,
            "length between replicas": slowest - mean,
            "length within replicas": mean - self.even.step,
            "reduction": self.reduction,
        }

    def to_json(self) -> dict[str, Any]:
        """Return the object of JSON: times by replica, waits at the reduction by replica and
        device, the last replica.
        """
        causes = {"causes": self.causes} if self.even else {}
        reduction = {"reduction": self.reduction} if self.reduction else {}
        return {
            "makespans": self.ends.max(axis=1).tolist(),
            "step": self.time,
            "slowest": self.slowest,
            "waits": self.waits.tolist(),
            "last_by_device": self.ends.argmax(axis=0).tolist(),
            **reduction,
            **causes,
        }

    def lines(self) -> Iterator[Block]:
        """Return lines of text on the slowest replica and the waits for it."""
        fastest = format_number(float(self.ends.max(axis=1).min()))
        slowest = f"the slowest's (replica {self.slowest}); the fastest takes {fastest}"
        if self.reduction:
            slowest += f"; {format_number(self.reduction)} of it are collectives and the optimizer"
        yield Line(f"replicas   {len(self.ends)}: a step takes {self.step}, {slowest}", 11)
        waits, last = self.waits, self.ends.argmax(axis=0)
        worst = sorted(range(len(last)), key=lambda device: -float(waits[:, device].max()))[:NAMED]
        said = (
            f"device {d} for replica {last[d]}'s, up to {format_number(float(waits[:, d].max()))}"
            for d in worst
            if waits[:, d].max() > 0
        )
        text = ", ".join(said)
        yield Line(f"reduction  {f'waits on {text}' if text else 'nobody waits'}", 11)
        if self.even and self.time > 0:
            shares = (
                f"{format_share(time / self.time)} {cause}" for cause, time in self.causes.items()
            )
            yield Line(f"step       {', '.join(shares)}", 11)


def find_replicas(options: ReplicaOptions, load: Load | None) -> Replicas | None:
    """Return the replicas of the options, or of a load; None where there is one alone (InputError:
    an option is of several).
    """
    if load:
        return options.replicas or Replicas(load.n_replicas, ())
    if options.replicas is None and options.t_reduce:
        raise InputError("--t-reduce needs replicas", "add --replicas 8")
    return options.replicas


def time_each(
    replicas: Replicas,
    schedule: Schedule,
    prices: Costs,
    network: NetworkOptions,
    costs: CostOptions,
    load: Load | None = None,
    *,
    to_torch: bool = False,
) -> NDArray[np.float64]:
    """Return when each device of each replica ends, shape (R, P).

    Replicas with the same factors are timed once, unless each draws factors for its microbatches or
    has a ``load``.
    """
    import numpy as np

    alike = list(range(replicas.count)) if load else replicas.first_alike(schedule.n_devices, costs)
    ends = np.zeros((len(alike), schedule.n_devices))
    for replica, own in enumerate(replicas.costs(schedule, prices, costs, load)):
        if alike[replica] != replica:
            ends[replica] = ends[alike[replica]]
            continue
        timeline, _ = time_ops(schedule, own, network, costs.links, to_torch=to_torch)
        np.maximum.at(ends[replica], schedule.device, timeline.end)
    return ends


def time_replicas(
    schedule: Schedule,
    prices: Costs,
    network: NetworkOptions,
    costs: CostOptions,
    options: ReplicaOptions,
    load: Load | None = None,
    *,
    to_torch: bool = False,
) -> StepEnds | None:
    """Time every replica by the model that the options ask for; None for none."""
    replicas = find_replicas(options, load)
    if replicas is None:
        return None
    refuse_rounds(schedule, AFTER_ONE_STEP)
    ends = time_each(replicas, schedule, prices, network, costs, load, to_torch=to_torch)
    if load is None and not draws_by_replica(costs):
        return StepEnds(ends, prices.unit, options.t_reduce)
    means = (
        load.even_costs(schedule, prices)
        if load
        else _even_draws(schedule, prices, costs, replicas.count)
    )
    even = replicas.equal_costs(schedule, means)
    step = max(
        time_ops(schedule, own, network, costs.links, to_torch=to_torch)[0].makespan for own in even
    )
    work = max(float(busy_times(schedule, own).max()) for own in even)
    return StepEnds(ends, prices.unit, options.t_reduce, EvenStep(step, work))


def _even_draws(schedule: Schedule, prices: Costs, costs: CostOptions, replicas: int) -> Costs:
    """Return the costs where every microbatch takes the mean of the factors that all replicas
    draw.
    """
    import numpy as np

    drawn = [
        costs_of_replica(schedule, prices, costs, replica).scale for replica in range(replicas)
    ]
    scale = np.array([each for each in drawn if each is not None])  # (R, kinds, M x K)
    by_slice = scale.reshape(*scale.shape[:2], -1, schedule.n_slices).mean(axis=(0, 2))
    return replace(prices, scale=np.tile(by_slice, schedule.whole_microbatches))


def costs_of_slowest(
    schedule: Schedule,
    prices: Costs,
    costs: CostOptions,
    options: ReplicaOptions,
    load: Load | None,
    at: int,
) -> Costs:
    """Return the costs of the replica that ends last, with its draws or its load, and how slow its
    devices are.
    """
    replicas = find_replicas(options, load)
    if replicas is None:
        return prices
    drawn = costs_of_replica(schedule, prices, costs, at)
    own = load.costs(schedule, drawn, at) if load else drawn
    return slowed_costs(schedule, own, replicas.factors(schedule.n_devices)[at])


def slowed_costs(schedule: Schedule, costs: Costs, factors: NDArray[np.float64]) -> Costs:
    """Return the costs where each device takes ``factors`` times as long, shape (devices,).

    Devices that only compute are slow by their speed, of which bounds know; others by the duration
    of each op.
    """
    if (factors == 1).all():
        return costs
    if costs.op_times is not None or schedule.has_lanes:
        return replace(costs, op_times=costs.durations(schedule) * factors[schedule.device])
    return replace(costs, speed=(1.0 if costs.speed is None else costs.speed) / factors)


@dataclass(frozen=True)
class LoadedRuns:
    """The runs of replicas whose microbatches are of different lengths.

    Attributes:
        schedule: of all of them.
        prices: the costs of mean microbatches.
        costs: the options of these.
        load: the lengths.
        options: how slow replicas are.
        network: how messages are carried.
        links: latencies of single links that differ.
    """

    schedule: Schedule
    prices: Costs
    costs: CostOptions
    load: Load
    options: ReplicaOptions
    network: NetworkOptions
    links: tuple[str, ...] = ()

    def hold(
        self, held: MemoryModel, twice: MemoryModel | None = None, tokens: float | None = None
    ) -> Iterator[tuple[Timeline, MemoryModel]]:
        """Yield the timeline of each replica, with its memory model.

        Args:
            held: the memory of a mean microbatch, or of one with so many ``tokens``.
            twice: the memory of a microbatch twice as long, where that is not twice as much.
            tokens: of the microbatch that ``held`` is of, where a model tells them.
        """
        from ppsim.engine.memory.usage import resize

        for replica, sizes in enumerate(self.load.sizes(tokens)):
            own = costs_of_slowest(
                self.schedule, self.prices, self.costs, self.options, self.load, replica
            )
            timeline, _ = time_ops(self.schedule, own, self.network, self.links)
            yield timeline, resize(held, sizes, twice)


def list_held(
    run: Timeline | LoadedRuns, costs: CostOptions, *, in_bytes: bool
) -> list[tuple[Timeline, MemoryModel]]:
    """Return the timeline of each replica of a run, with what its stages hold.

    Args:
        run: one timeline, or replicas with microbatches of different lengths.
        costs: the options of costs.
        in_bytes: whether memory is in bytes where there are some, else it counts activations.
    """
    held = ask_costs(costs).hold(run.schedule, in_bytes=in_bytes)
    return [*run.hold(held)] if isinstance(run, LoadedRuns) else [(run, held)]


def most_held(runs: Sequence[tuple[Timeline, MemoryModel]]) -> tuple[float, str]:
    """Return the most that a device of any of these replicas holds in a unit of ``--cap``, and its
    name: bytes, layers or activations.
    """
    from ppsim.engine.memory.usage import activations_per_unit, curves

    peak = max(float(curves(*each).peak.max()) for each in runs)
    timeline, held = runs[0]
    return peak / activations_per_unit(timeline.schedule, held.unit), held.unit


def busy_times(schedule: Schedule, costs: Costs) -> NDArray[np.float64]:
    """Return how long each device computes, shape (P,); a pair counts once."""
    import numpy as np

    from ppsim.core.ops import COMPUTE

    counted = schedule.leads & (schedule.kind < len(COMPUTE))
    took = np.where(counted, costs.durations(schedule), 0.0)
    return np.bincount(schedule.device, took, schedule.n_devices).astype(np.float64)
