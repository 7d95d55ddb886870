"""Forwards that run again before their backward: ``--recompute``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ppsim.ask.options import common
from ppsim.ask.types import RecomputeRules
from ppsim.errors import InputError
from ppsim.prices.part import Asked, Part

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule
    from ppsim.engine.memory.usage import MemoryModel
    from ppsim.schedules import Pricing


@dataclass(frozen=True)
class Recompute(Part):
    """Recompute ops, of whole forwards or of a part of each; a schedule of a file may have them
    already.
    """

    place: ClassVar[int] = 150
    decides_ops: ClassVar[tuple[str, ...]] = ("recompute",)

    recompute: bool | str = common(
        "--recompute",
        type=RecomputeRules(),
        default=False,
        metavar="[full|none|first:N|window:N|layers:N|modules:A,B]",
        help="Run forwards again (R) before their backward, as soon as their device is free: all "
        "(full, and without a "
        "value), those of the first N microbatches, all but the first N of each window of forwards "
        "in flight, the "
        "first N layers of each stage, or modules (core_attn, mlp, ...) of every layer; or one per "
        "stage: full*2,none. "
        "A part takes its layers' time (of a layout, model or profile) or --tr. For recompute "
        "inside the backward, "
        "which waits for the gradient first, give a longer --tb instead.",
    )

    def add_ops(self, schedule: Schedule, price: Pricing) -> Schedule:
        """Add the ops that run forwards again."""
        if not self.recompute:
            return schedule
        from ppsim.core.recompute import add_recompute

        if schedule.only_forwards and self.recompute != "none":
            raise InputError(
                f"{schedule.name} has no backward to run forwards again for",
                "leave out --recompute",
            )
        return add_recompute(schedule, "full" if self.recompute is True else self.recompute)

    def change(self, schedule: Schedule, costs: Costs, asked: Asked) -> Costs:
        """Return the costs with the time of ops that run a part of a forward again."""
        if not isinstance(self.recompute, str):
            return costs
        from ppsim.prices.recompute_part import PartlyRecomputed

        times = None if asked.measured else asked.source.layer_times()
        return PartlyRecomputed(schedule, self.recompute, asked).time(costs, times)

    def keep(self, held: MemoryModel, schedule: Schedule, asked: Asked) -> MemoryModel:
        """Return the memory of stages whose forwards keep less, as a part of them runs again."""
        from ppsim.prices.recompute_part import PartlyRecomputed

        return PartlyRecomputed(schedule, self.recompute, asked).keep(held)
