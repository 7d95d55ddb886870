"""Times of ops as numbers: ``--tf``, ``--tb`` and the like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ppsim.ask.groups import Value
from ppsim.ask.options import common, option
from ppsim.prices.part import COSTS, Asked, Source

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule
    from ppsim.engine.memory.usage import MemoryModel


@dataclass(frozen=True)
class Numbers(Source):
    """Times of ops as numbers, which count where no other part gives them."""

    place: ClassVar[int] = 10
    lacks: ClassVar[Mapping[str, str]] = {
        "tb": "no full backward",
        "ti": "no I, and --tb gives its full backward",
        "tw": "no W, and --tb gives its full backward",
        "tfb": "no pairs of F and B",
        "tr": "no R; --recompute adds them",
    }

    tf: Value | None = common(
        "--tf",
        help="Time of a forward (1), or one per stage: 1,1.3*2,1 (2*3 is 2,2,2); in ms: --unit ms.",
    )
    tb: Value | None = common("--tb", help="Time of a full backward (ti + tw).")
    ti: Value | None = common("--ti", help="Time of a backward for the input (1).")
    tw: Value | None = common("--tw", help="Time of a backward for the weights (1).")
    tfb: Value | None = option("--tfb", help="Time of a fused pair of F and B (tf + tb).")
    tr: Value | None = option("--tr", help="Time of a recompute (tf).")

    def price(self, schedule: Schedule, asked: Asked) -> Costs:
        """Return the costs: times as given, defaults for the others."""
        from ppsim.core.costs import costs_for

        return costs_for(schedule, **asked.given_values(*COSTS))

    def used(self, schedule: Schedule, asked: Asked) -> set[str]:
        """Return the times of kinds of op that the schedule has, or whose sum or difference it
        needs.
        """
        import numpy as np

        from ppsim.core.ops import Kind

        has = np.bincount(schedule.kind, minlength=len(Kind)) > 0
        backward, halves = has[Kind.B], has[Kind.I] or has[Kind.W]
        summed = backward and self.tb is None
        used = {
            "tb": backward or (halves and (self.ti is None or self.tw is None)),
            "ti": has[Kind.I]
            or summed
            or (has[Kind.W] and self.tw is None and self.tb is not None),
            "tw": has[Kind.W]
            or summed
            or (has[Kind.I] and self.ti is None and self.tb is not None),
            "tfb": self.tfb is not None
            and ((schedule.kind == Kind.B) & (schedule.pair >= 0)).any(),
            "tr": has[Kind.R],
        }
        return {name for name, is_used in used.items() if is_used}

    def hold(self, schedule: Schedule, asked: Asked) -> MemoryModel:
        """Return activations of one stage and microbatch."""
        from ppsim.engine.memory.usage import activation_model

        return activation_model(schedule)
