"""Copies of activations to the host and to other devices, and their times."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import click

from ppsim.ask.given import Need
from ppsim.ask.groups import Value
from ppsim.ask.options import option
from ppsim.ask.types import Offload, OffloadRules
from ppsim.errors import InputError
from ppsim.prices.part import Asked, TimesOfKinds

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.ops import Kind
    from ppsim.core.schedule import Schedule
    from ppsim.schedules import Pricing


@dataclass(frozen=True)
class Copies(TimesOfKinds):
    """Copies of activations: a rule that adds the ops, and their times."""

    place: ClassVar[int] = 20
    kinds: ClassVar[tuple[str, ...]] = ("t_offload", "t_reload", "t_evict")
    called_by: ClassVar[tuple[str, ...]] = ("offload", *kinds, "host_link", "host_link_shared")
    decides_ops: ClassVar[tuple[str, ...]] = ("offload",)
    adds_ops: ClassVar[tuple[str, ...]] = ("offload",)
    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            ("host_link",),
            lambda g: g["t_offload"] is None and g["t_reload"] is None,
            "{options} gives the times of copies, as --t-offload and --t-reload do",
            "leave one of them out",
        ),
    )
    lacks: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(kinds, ""),
        "host_link": "no copies to a host",
        "host_link_shared": "no copies to a host that take time",
    }

    offload: Offload | None = option(
        "--offload",
        type=OffloadRules(),
        metavar="[N|all|30%]",
        help="Copy activations to the host after their forward and back before their backward: "
        "those of N chunks of every device, of all (also without a value), or of a share.",
    )
    t_offload: Value | None = option(
        "--t-offload", help="Time of a copy of an activation to the host (0)."
    )
    t_reload: Value | None = option("--t-reload", help="Time of a copy back from the host (0).")
    t_evict: Value | None = option(
        "--t-evict", help="Time of a copy of an activation to another device, and of one back (0)."
    )
    host_link: str | None = option(
        "--host-link",
        metavar="GB/s",
        help="Bandwidth of a device's link to its host in each direction, such as 55GB/s: gives "
        "copies their times; needs bytes of --profile or --model.",
    )
    host_link_shared: int | None = option(
        "--host-link-shared",
        type=click.IntRange(min=1),
        metavar="N",
        help="N devices share a link to their host, which carries one copy at a time in each "
        "direction (1).",
    )

    def add_ops(self, schedule: Schedule, price: Pricing) -> Schedule:
        """Add copies to the host of the activations that have time for them."""
        if self.offload is None:
            return schedule
        from ppsim.search.rules.offload import add_offload

        return add_offload(
            schedule, price(schedule), parse_offload(self.offload, schedule.n_chunks)
        )

    def orders_by_costs(self) -> bool:
        """Return True if copies are added, whose places depend on times."""
        return self.offload is not None

    def change(self, schedule: Schedule, costs: Costs, asked: Asked) -> Costs:
        """Return the costs with the times of copies, as given or by the bandwidth of the host's
        link.
        """
        costs = super().change(schedule, costs, asked)
        if self.host_link_shared:
            costs = replace(costs, host_link=self.host_link_shared)
        if self.host_link:
            costs = replace(
                costs, others={**costs.others, **self._times_by_bytes(schedule, costs, asked)}
            )
        return costs

    def _times_by_bytes(self, schedule: Schedule, costs: Costs, asked: Asked) -> dict[Kind, Any]:
        """Times of copies between a device and its host, by the bytes of a stage's activation.

        Raises:
            InputError: not a bandwidth, nothing gives bytes, or the times of ops have no unit of
                time.
        """
        from ppsim.base.times import MICROSECONDS
        from ppsim.base.units import parse_size
        from ppsim.core.ops import Kind
        from ppsim.engine.memory.usage import BYTES

        text = self.host_link or ""
        rate, in_bytes = parse_size(text.removesuffix("/s")) if text.endswith("/s") else (0, False)
        if not (rate and in_bytes):
            raise InputError(f"--host-link: not a bandwidth: '{text[:40]}'", "e.g. 55GB/s")
        if costs.unit not in MICROSECONDS:
            what = f"--host-link needs times in a unit of time, and theirs is {costs.unit}"
            raise InputError(what, "--tf 2.5 --unit ms, or --profile FILE")
        held = asked.hold(schedule)
        if held.unit != BYTES:
            what = "--host-link needs the bytes of an activation, and nothing gives them"
            raise InputError(
                what,
                "--profile FILE with activations, or ppsim memory --model NAME, or "
                "--t-offload TIME",
            )
        took = held.activations / rate * (1e6 / MICROSECONDS[costs.unit])
        return {Kind.OFFLOAD: took, Kind.RELOAD: took}

    def used(self, schedule: Schedule, asked: Asked) -> set[str]:
        """Return the options of copies that affect the schedule."""
        import numpy as np

        from ppsim.core.ops import Kind

        used = super().used(schedule, asked)
        if np.isin(schedule.kind, (Kind.OFFLOAD, Kind.RELOAD)).any():
            used.add("host_link")
            if self.host_link or np.any(self.t_offload) or np.any(self.t_reload) or asked["costs"]:
                used.add("host_link_shared")
        return used

    def lack(self, name: str) -> str:
        """Return the feature that an option needs and the schedule lacks."""
        return super().lack(name) + " that end in time" * (
            name == "host_link" and bool(self.offload)
        )


def parse_offload(text: str, chunks: int) -> float:
    """Parse --offload: how many of a device's chunks leave it (InputError: more than it has, or not
    a number).
    """
    if text == "all":
        return float(chunks)
    share = re.fullmatch(r"(\d{1,3}(?:\.\d{1,9})?)%", text, re.ASCII)
    if share and float(share[1]) <= 100:
        return chunks * float(share[1]) / 100
    if re.fullmatch(r"\d{1,6}", text, re.ASCII) and int(text) <= chunks:
        return float(text)
    have = "1 chunk" if chunks == 1 else f"{chunks} chunks"
    number = "0 or 1" if chunks == 1 else f"a whole number from 0 to {chunks}"
    raise InputError(
        f"--offload {text[:20]}: a device has {have}", f"{number}, all, or a share such as 50%"
    )
