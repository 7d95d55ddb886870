"""Costs that a function of Python gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ppsim.ask.options import given_object
from ppsim.prices.part import Asked, Source

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule


@dataclass(frozen=True)
class FunctionOfSchedule(Source):
    """The function of a schedule's costs that :meth:`ppsim.Costs.of` returns."""

    place: ClassVar[int] = 140
    called_by: ClassVar[tuple[str, ...]] = ("costs",)
    reads: ClassVar[tuple[str, ...]] = ("layout",)  # whose layers are held

    costs: Callable[[Schedule], Costs] | None = given_object(
        "ppsim.core.costs.Prices",
        "Times of all ops: Costs.of(F=1, B=2, comm=0.1), or Costs.of a function.",
    )

    def price(self, schedule: Schedule, asked: Asked) -> Costs:
        """Return the function's costs of a schedule."""
        assert self.costs
        return self.costs(schedule)
