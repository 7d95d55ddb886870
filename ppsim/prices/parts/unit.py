"""The name of the unit that times are in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ppsim.ask.options import option
from ppsim.prices.part import Part


@dataclass(frozen=True)
class Unit(Part):
    """The unit of times, which sources read."""

    place: ClassVar[int] = 100
    called_by: ClassVar[tuple[str, ...]] = ("unit",)

    unit: str | None = option(
        "--unit",
        help="Name of the times' unit (t_F); ms, us, ns or s where a --cluster gives real times.",
    )
