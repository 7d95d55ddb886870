"""Data-parallel replicas of one schedule, some slower than others: who waits for whom where gradients are reduced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Any

import click

from ppsim.base.numbers import format_number
from ppsim.errors import InputError
from ppsim.questions.blocks import Block, Line
from ppsim.questions.build import costs_of_replica, draws_by_replica
from ppsim.questions.groups import CostOptions, NetworkOptions
from ppsim.questions.options import option
from ppsim.questions.timing import time_ops

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule

Slower = tuple[int, int | None, float]
MOST = 4096
NAMED = 4  # devices that are named with the replica that comes last


@dataclass(frozen=True)
class Replicas:
    """How many there are, and how many times as long some devices take."""

    count: int  # R
    slower: tuple[Slower, ...]  # replica, device or None for all of its devices, and the factor of each

    def factors(self, devices: int) -> NDArray[np.float64]:
        """Shape (R, devices): how many times as long each device takes (InputError: there is no such device)."""
        import numpy as np

        found = np.ones((self.count, devices))
        for replica, device, factor in self.slower:
            if device is not None and device >= devices:
                raise InputError(f"--replicas {replica}.{device}: there are {devices} devices", "devices count from 0")
            found[replica, slice(None) if device is None else device] *= factor
        return found

    def costs(self, schedule: Schedule, costs: Costs, options: CostOptions) -> Iterator[Costs]:
        """Yield the costs of each replica, whose microbatches take the factors that it draws."""
        for replica, row in enumerate(self.factors(schedule.n_devices)):
            own = costs_of_replica(schedule, costs, options, replica)
            yield replace(own, each=own.durations(schedule) * row[schedule.device])

    def distinct_costs(self, schedule: Schedule, costs: Costs, options: CostOptions) -> list[Costs]:
        """The costs of the replicas, those with the same times once."""
        alike = self.first_alike(schedule.n_devices, options)
        return [own for at, own in enumerate(self.costs(schedule, costs, options)) if alike[at] == at]

    def first_alike(self, devices: int, options: CostOptions) -> list[int]:
        """The first replica whose ops take the times of each; replicas that draw factors all differ."""
        rows, drawn, first = self.factors(devices), draws_by_replica(options), dict[tuple[bytes, int], int]()
        return [first.setdefault((row.tobytes(), at * drawn), at) for at, row in enumerate(rows)]

    def without(self, replica: int) -> Replicas:
        """The replicas with one of them as fast as the costs say."""
        return replace(self, slower=tuple(each for each in self.slower if each[0] != replica))


class ReplicaFactors(click.ParamType[Any]):
    """A number of replicas and which are slower, or a factor for each."""

    name = "replicas"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Replicas:
        """Parse ``8``, ``8,2=1.2,5.3=1.5`` or ``1,1,1.2``."""
        if isinstance(value, Replicas):
            return value
        text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        head, *rest = text.split(",")
        slower: list[Slower]
        try:
            if rest and not any("=" in part for part in rest):
                count, slower = 1 + len(rest), [(r, None, float(part)) for r, part in enumerate((head, *rest))]
            else:
                count, slower = int(head), [_slower(part) for part in rest]
        except ValueError:
            self.fail(f"'{value}' is no number of replicas, nor a factor for each: 8, 8,2=1.2,5.3=1.5 or 1,1,1.2.")
        if not 1 <= count <= MOST or any(not 0 <= r < count or not f > 0 or not isfinite(f) for r, _, f in slower):
            self.fail(f"'{value}': 1 to {MOST} replicas, counted from 0, with factors above 0.", param, ctx)
        return Replicas(count, tuple(slower))


def _slower(part: str) -> Slower:
    where, _, factor = part.partition("=")
    replica, dot, device = where.partition(".")
    return int(replica), int(device) if dot else None, float(factor)


@dataclass(frozen=True)
class ReplicaOptions:
    """Data-parallel replicas beside the one that is shown."""

    replicas: Replicas | None = option(
        "--replicas",
        type=ReplicaFactors(),
        metavar="N,R=F,...",
        help="Data-parallel replicas, and how many times as long some take: 8,2=1.2 (all of replica 2), 8,5.3=1.5 "
        "(device 3 of replica 5), or a factor for each: 1,1,1.2. Each draws a distribution of --mb-scale anew.",
    )


@dataclass(frozen=True)
class Replicated:
    """When each device of each replica is done with its step."""

    ends: NDArray[np.float64]  # shape (R, P)
    unit: str  # of times

    @property
    def waits(self) -> NDArray[np.float64]:
        """Shape (R, P): how long each device waits for the same device of the last replica, to reduce gradients."""
        waits: NDArray[np.float64] = self.ends.max(axis=0) - self.ends
        return waits

    @property
    def slowest(self) -> int:
        """The replica that ends last."""
        return int(self.ends.max(axis=1).argmax())

    @property
    def step(self) -> str:
        """How long their step takes: as long as the slowest."""
        return f"{format_number(float(self.ends.max()))} {self.unit}"

    def to_json(self) -> dict[str, Any]:
        """What JSON says of it: times by replica, waits at the reduction by replica and device, who comes last."""
        return {
            "makespans": self.ends.max(axis=1).tolist(),
            "step": float(self.ends.max()),
            "slowest": self.slowest,
            "waits": self.waits.tolist(),
            "last_by_device": self.ends.argmax(axis=0).tolist(),
        }

    def lines(self) -> Iterator[Block]:
        """Who is slowest, and who waits for whom."""
        fastest = format_number(float(self.ends.max(axis=1).min()))
        slowest = f"the slowest's (replica {self.slowest}); the fastest takes {fastest}"
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


def time_replicas(
    schedule: Schedule,
    prices: Costs,
    network: NetworkOptions,
    costs: CostOptions,
    replicas: Replicas | None,
    *,
    to_torch: bool = False,
) -> Replicated | None:
    """Time every replica by the model that the options ask for; None for none.

    Replicas with the same factors are timed once, unless each draws factors for its microbatches.
    """
    import numpy as np

    if replicas is None:
        return None
    alike = replicas.first_alike(schedule.n_devices, costs)
    ends = np.zeros((len(alike), schedule.n_devices))
    for replica, own in enumerate(replicas.costs(schedule, prices, costs)):
        if alike[replica] < replica:
            ends[replica] = ends[alike[replica]]
            continue
        timeline, _ = time_ops(schedule, own, network, costs.links, to_torch=to_torch)
        np.maximum.at(ends[replica], schedule.device, timeline.end)
    return Replicated(ends, prices.unit)
