"""Latencies of messages: one for all links, and links that differ."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from ppsim.ask.options import common, option
from ppsim.prices.part import Asked, Part

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule


@dataclass(frozen=True)
class Links(Part):
    """Latencies of messages between two devices."""

    place: ClassVar[int] = 40
    called_by: ClassVar[tuple[str, ...]] = ("links",)

    comm: float | None = common("--comm", help="Latency of a message between two devices (0).")
    links: tuple[str, ...] = option(
        "--link",
        multiple=True,
        metavar="A-B=LATENCY[,GB/s]",
        help="Latency of one link that differs, and its bandwidth: 6-7=30, or 6-7=0.1,25GB/s; A>B "
        "for one direction; repeatable.",
    )

    def change(self, schedule: Schedule, costs: Costs, asked: Asked) -> Costs:
        """Return the costs with the latencies of single links, unless a cluster gives all
        latencies.

        The ``message`` of the network is the size of messages.
        """
        network = asked.network
        if network and network.cluster:
            return costs
        from ppsim.base.units import parse_size
        from ppsim.engine.detailed.links import change_latencies, parse_link

        changes = [parse_link(text, schedule.n_devices) for text in self.links]
        size = float(parse_size(network.message)[0]) if network and network.message else None
        return replace(
            costs, comm=change_latencies(costs.comm, schedule.n_devices, costs.unit, changes, size)
        )
