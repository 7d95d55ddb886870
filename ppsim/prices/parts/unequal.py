"""Microbatches, and slices of their sequences, that take different times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from ppsim.ask.options import option
from ppsim.ask.types import NumberTexts
from ppsim.prices.part import Asked, Part, refuse_factors

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule


@dataclass(frozen=True)
class Unequal(Part):
    """Factors of the times of microbatches and of slices."""

    place: ClassVar[int] = 70
    called_by: ClassVar[tuple[str, ...]] = ("mb_scale", "slice_scale")
    lacks: ClassVar[Mapping[str, str]] = {"slice_scale": "no slices of sequences"}

    mb_scale: tuple[NumberTexts, ...] = option(
        "--mb-scale",
        multiple=True,
        metavar="[KINDS=]FACTORS",
        help="Factors of the times of microbatches: 1,1.3,0.8,..., a file, or lognormal:0.2:SEED "
        "(uniform, normal); with 0 a microbatch takes no time; W=... is for one kind of op; "
        "repeatable. Schedules with slices also accept a factor for each slice. For decode a "
        "shorter list repeats.",
    )
    slice_scale: tuple[NumberTexts, ...] = option(
        "--slice-scale",
        multiple=True,
        metavar="[KINDS=]FACTORS",
        help="Factors of the times of a sequence's slices: 0.7,0.9,1.1,1.3, a file, or "
        "attention:0.3 (attention's share of a forward; without a number, the share of the "
        "model of --profile); W=... is for one kind of op; repeatable.",
    )

    def change(self, schedule: Schedule, costs: Costs, asked: Asked) -> Costs:
        """Return the costs of replica 0."""
        return self.change_replica(schedule, costs, asked, 0)

    def change_replica(self, schedule: Schedule, costs: Costs, asked: Asked, replica: int) -> Costs:
        """Return the costs with a replica's factors, which may be drawn for it alone."""
        import numpy as np

        from ppsim.inputs.profile.scale import parse_scale, parse_slice_scale

        refuse_factors(costs)
        scale: Any = None
        if self.mb_scale:
            one = parse_scale(
                self.mb_scale,
                schedule.round_microbatches,
                schedule.n_slices,
                replica,
                cycles=schedule.feeds_back,
            )
            scale = np.tile(one, schedule.n_rounds)
        if self.slice_scale and schedule.n_slices > 1:
            of_slices = parse_slice_scale(
                self.slice_scale, schedule.n_slices, asked.attention_share()
            )
            pieces = schedule.n_microbatches // schedule.n_slices
            scale = np.tile(of_slices, pieces) * (1.0 if scale is None else scale)
        return costs if scale is None else replace(costs, scale=scale)

    @property
    def draws_by_replica(self) -> bool:
        """True if each data-parallel replica draws separate factors for its microbatches."""
        from ppsim.inputs.profile.scale import is_drawn

        return any(map(is_drawn, self.mb_scale))

    def used(self, schedule: Schedule, asked: Asked) -> set[str]:
        """Return the options of slices that affect the schedule."""
        return {"slice_scale"} if schedule.n_slices > 1 else set()
