"""Schedules that repeat: the number of rounds, the ops around a training step, the feedback, the
unit of the rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import click

from ppsim.ask.given import Need, never
from ppsim.ask.groups import DETAILED, Value
from ppsim.ask.options import flag, option
from ppsim.errors import InputError
from ppsim.prices.part import Asked, TimesOfKinds

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule
    from ppsim.engine.memory.usage import MemoryModel
    from ppsim.schedules import Pricing

STEPS = 4  # of a decoder that are shown where nobody says how many


@dataclass(frozen=True)
class Steps(TimesOfKinds):
    """Repetitions of a schedule, and the ops around a training step; a decoder repeats without
    options.
    """

    place: ClassVar[int] = 50
    kinds: ClassVar[tuple[str, ...]] = ("t_optimizer", "t_gather", "t_reduce_grad")
    decides_ops: ClassVar[tuple[str, ...]] = ("steps", "post_validation", *kinds)
    adds_ops: ClassVar[tuple[str, ...]] = ("steps", "post_validation")
    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            ("post_validation", *kinds),
            lambda g: not g["grid"],
            "{options} cannot be combined with --grid, where every op of compute takes one slot",
        ),
        Need(
            ("post_validation", *kinds),
            lambda g: not any(g[name] for name in DETAILED),
            "{options} adds ops that only the simple model times, and messages as ops need the "
            "detailed model",
            "leave it out: where all devices end a step together, every step takes the makespan "
            "without the optimizer, and the longest --t-optimizer; or leave out the options of "
            "messages as ops",
        ),
        Need(
            ("steps", "tokens", "post_validation", *kinds),
            never,
            "{options} needs a schedule that repeats, and this command simulates one round",
            "ppsim run decode --steps 8 --feedback 0.5, or ppsim run 1f1b --steps 4 "
            "--t-optimizer 1",
            ("optimize", "partition", "convert"),
        ),
        Need(
            ("feedback",),
            lambda g: bool(g["serve"]) and g.command == "partition",
            "{options} needs a schedule that repeats, and this command simulates one round",
            "ppsim run decode --steps 8 --feedback 0.5, or ppsim partition decode --serve period",
            ("optimize", "partition", "convert"),
        ),
        Need(
            ("tokens",),
            never,
            "{options} scales the rate of a schedule that repeats, and this command prints no rate",
            "ppsim run, compare or sweep",
            ("explain", "diff", "jitter", "memory"),
        ),
    )
    lacks: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(kinds, "no optimizer step"),
        "feedback": "no loop to feed results back through; decode has",
        "tokens": "no rounds to have a rate; decode and forward-only have",
    }

    steps: int | None = option(
        "--steps",
        type=click.IntRange(min=1),
        help="Number of rounds: decode (4) makes a token of every batch in each round, "
        "forward-only runs all its microbatches again, and a training schedule runs a step with "
        "its optimizer step (1).",
    )
    t_optimizer: Value | None = option(
        "--t-optimizer",
        help="Time of the optimizer step that ends a training step, or one per device (0).",
    )
    post_validation: bool = flag(
        "--post-validation",
        help="Each device runs its optimizer step once its gradients are complete, without "
        "waiting for other devices.",
    )
    t_gather: Value | None = option(
        "--t-gather",
        help="FSDP: time to gather a stage's weights at the start of a step, in order of use and "
        "in parallel with compute.",
    )
    t_reduce_grad: Value | None = option(
        "--t-reduce-grad",
        help="Time to reduce a stage's gradients after its last backward of a step, in parallel "
        "with compute.",
    )
    feedback: float | None = option(
        "--feedback",
        type=click.FloatRange(min=0),
        help="Time until a step's result is back at the first stage (the latency of that link), "
        "for decode.",
    )
    tokens: int | None = option(
        "--tokens",
        type=click.IntRange(min=1, max=1 << 53),
        help="Tokens of a microbatch, or of a batch in flight in each step: the rate is in tokens.",
    )

    def add_ops(self, schedule: Schedule, price: Pricing) -> Schedule:
        """Return a schedule with as many rounds as the options ask for, a training step with its
        optimizer.

        Raises:
            InputError: the schedule cannot go round, or so many steps do not fit in memory.
        """
        if schedule.n_rounds > 1:
            self._refuse_steps(schedule)
            return schedule
        steps = self.steps or (STEPS if schedule.feeds_back else 1)
        wanted = (
            self.steps
            or self.post_validation
            or any(getattr(self, name) is not None for name in self.kinds)
        )
        if wanted and not schedule.only_forwards:
            schedule = self._add_optimizer(schedule)
        elif self.post_validation:
            raise InputError(
                f"{schedule.name} has no optimizer step to validate", "leave out --post-validation"
            )
        if steps == 1:
            return schedule
        from ppsim.core.rounds import repeat_rounds

        return repeat_rounds(schedule, steps)

    def _refuse_steps(self, schedule: Schedule) -> None:
        """Refuse options of steps that a schedule of several steps has already (InputError)."""
        if self.steps not in (None, schedule.n_rounds):
            raise InputError(
                f"{schedule.name} has {schedule.n_rounds} steps, not {self.steps}",
                "leave out --steps",
            )
        if self.post_validation:
            raise InputError(
                f"{schedule.name} has its steps already", "leave out --post-validation"
            )

    def _add_optimizer(self, schedule: Schedule) -> Schedule:
        """Add the optimizer step to one training step (InputError: an option has no meaning for its
        schedule).
        """
        from ppsim.core.ops import Kind

        if (schedule.kind == Kind.OPT).any():
            if self.post_validation:
                raise InputError(
                    f"{schedule.name} has its optimizer step already", "leave out --post-validation"
                )
            return schedule
        from ppsim.core.steps import add_optimizer

        if not schedule.flushes:
            self._refuse_asynchronous(schedule)
        return add_optimizer(
            schedule,
            barrier=schedule.flushes and not self.post_validation,
            gathers=self.t_gather is not None,
            reduces=self.t_reduce_grad is not None,
        )

    def _refuse_asynchronous(self, schedule: Schedule) -> None:
        """Refuse options without meaning where steps are never drained, and steps that need more
        than two versions of the weights.
        """
        name, M, P = schedule.name, schedule.round_microbatches, schedule.n_devices
        if self.post_validation:
            why = f"{name} never waits for all devices, so --post-validation changes nothing"
            raise InputError(why, "leave it out")
        if self.t_gather is not None:
            why = (
                f"{name} runs forwards of the next step before this one ends, so no step starts "
                f"with a gather"
            )
            raise InputError(why, "leave out --t-gather")
        if (self.steps or 1) > 1 and schedule.needs_more_versions:
            why = (
                f"{name} with {M} microbatches a step on {P} devices needs more than two "
                f"versions of the weights"
            )
            raise InputError(why, f"--mb {P} or more")

    def change(self, schedule: Schedule, costs: Costs, asked: Asked) -> Costs:
        """Return the costs with the times of ops around a step, and of the way back."""
        return replace(super().change(schedule, costs, asked), feedback=self.feedback)

    def used(self, schedule: Schedule, asked: Asked) -> set[str]:
        """Return the options of steps or rounds that affect the schedule."""
        used = super().used(schedule, asked)
        if schedule.feeds_back:
            used.add("feedback")
        if has_period(schedule):
            used.add("tokens")
        return used

    def keep(self, held: MemoryModel, schedule: Schedule, asked: Asked) -> MemoryModel:
        """Return the memory of stages with the weights' older versions, which steps that are never
        drained still need.
        """
        older = schedule.weight_versions - 1
        if not older or "weights" not in held.static:
            return held
        return replace(
            held, static={**held.static, "older weights": older * held.static["weights"]}
        )


def has_period(schedule: Schedule) -> bool:
    """Return True if a schedule has a period.

    It is shown going round, ends with an optimizer step, runs forwards alone, or never flushes;
    none of them where two versions of the weights do not suffice for it.
    """
    if schedule.needs_more_versions:
        return False
    from ppsim.core.ops import Kind

    ends_steps = bool((schedule.kind == Kind.OPT).any())
    return schedule.n_rounds > 1 or schedule.only_forwards or ends_steps or not schedule.flushes
