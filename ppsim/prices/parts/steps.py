"""Schedules that go round: how often, what comes back, and what their rate counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import click

from ppsim.ask.given import Need, never
from ppsim.ask.options import option
from ppsim.errors import InputError
from ppsim.prices.part import Asked, Part

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule
    from ppsim.schedules import Pricing

STEPS = 4  # of a decoder that are shown where nobody says how many


@dataclass(frozen=True)
class Steps(Part):
    """How often a schedule goes round; a decoder does where no option says so."""

    place: ClassVar[int] = 50
    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            ("steps", "feedback", "tokens"),
            never,
            "{options} is of a schedule that goes round, and this command knows one round",
            "ppsim run decode --steps 8 --feedback 0.5",
            ("optimize", "partition", "convert"),
        ),
        Need(
            ("tokens",),
            never,
            "{options} counts the rate of a schedule that goes round, and this command prints none",
            "ppsim run, compare or sweep",
            ("explain", "diff", "jitter", "memory"),
        ),
    )
    lacks: ClassVar[Mapping[str, str]] = {
        "feedback": "no loop to feed results back through; decode has",
        "tokens": "no rounds to have a rate; decode and forward-only have",
    }

    steps: int | None = option(
        "--steps",
        type=click.IntRange(min=1),
        help="Go round so many times: decode (4) makes a token of every batch in each step, forward-only runs all its "
        "microbatches again.",
    )
    feedback: float | None = option(
        "--feedback",
        type=click.FloatRange(min=0),
        help="Time until a step's result is back at the first stage (the latency of that link), for decode.",
    )
    tokens: int | None = option(
        "--tokens",
        type=click.IntRange(min=1, max=1 << 53),
        help="Tokens of a microbatch, or of a batch in flight in each step: the rate is in tokens.",
    )

    def add_ops(self, schedule: Schedule, price: Pricing) -> Schedule:
        """Return a schedule that goes round as often as the options ask for.

        Raises:
            InputError: the schedule cannot go round, or so many steps do not fit in memory.
        """
        if schedule.n_rounds > 1:
            if self.steps not in (None, schedule.n_rounds):
                what = f"{schedule.name} has {schedule.n_rounds} steps, not {self.steps}"
                raise InputError(what, "leave out --steps")
            return schedule
        steps = self.steps or (STEPS if schedule.feeds_back else 1)
        if steps == 1:
            return schedule
        if not schedule.only_forwards:
            raise InputError(f"{schedule.name} trains, and --steps is for decode and forward-only", "leave it out")
        from ppsim.core.rounds import repeat_rounds

        return repeat_rounds(schedule, steps)

    def change(self, schedule: Schedule, costs: Costs, asked: Asked) -> Costs:
        """Return the costs with the time of the way back."""
        return replace(costs, feedback=self.feedback)

    def used(self, schedule: Schedule, asked: Asked) -> set[str]:
        """Return which options are of rounds that the schedule has."""
        back, rate = {"feedback"} if schedule.feeds_back else set(), {"tokens"} if goes_round(schedule) else set()
        return back | rate


def goes_round(schedule: Schedule) -> bool:
    """Whether a schedule has a period: it is shown going round, or runs forwards alone, one after the other."""
    return schedule.n_rounds > 1 or schedule.only_forwards
