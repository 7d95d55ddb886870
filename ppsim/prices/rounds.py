"""Schedules that go round: how many steps are shown, and what one takes without end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from ppsim.ask.blocks import Block, Line, Table
from ppsim.ask.groups import CostOptions
from ppsim.base.numbers import format_number, format_share
from ppsim.errors import InputError

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule
    from ppsim.core.timeline import Timeline
    from ppsim.engine.memory.usage import MemoryModel
    from ppsim.engine.simple.metrics import Round

STEPS = 4  # of a decoder that are shown where nobody says how many
MOST_EVENTS = 300_000  # ops of a round, above which nobody waits for its period


OF_STEPS = ("t_optimizer", "t_gather", "t_reduce_grad")  # times of what surrounds a training step


def add_steps(schedule: Schedule, costs: CostOptions) -> Schedule:
    """Return a schedule that goes round as often as the options ask for, a training step with its optimizer.

    Raises:
        InputError: the schedule cannot go round, or so many steps do not fit in memory.
    """
    from ppsim.core.rounds import repeat_rounds

    if schedule.n_rounds > 1:
        _refuse_steps(schedule, costs)
        return schedule
    steps = costs.steps or (STEPS if schedule.feeds_back else 1)
    wanted = costs.steps or costs.post_validation or any(getattr(costs, name) is not None for name in OF_STEPS)
    if wanted and not schedule.only_forwards:
        schedule = _add_optimizer(schedule, costs)
    elif costs.post_validation:
        raise InputError(f"{schedule.name} has no optimizer step to validate", "leave out --post-validation")
    return repeat_rounds(schedule, steps)


def _refuse_steps(schedule: Schedule, costs: CostOptions) -> None:
    """Refuse options of steps that a schedule of several steps has already (InputError)."""
    if costs.steps not in (None, schedule.n_rounds):
        raise InputError(f"{schedule.name} has {schedule.n_rounds} steps, not {costs.steps}", "leave out --steps")
    if costs.post_validation:
        raise InputError(f"{schedule.name} has its steps already", "leave out --post-validation")


def _add_optimizer(schedule: Schedule, costs: CostOptions) -> Schedule:
    """Add the optimizer step to one training step (InputError: an option has no meaning for its schedule)."""
    from ppsim.core.ops import Kind
    from ppsim.core.steps import add_optimizer

    if (schedule.kind == Kind.OPT).any():
        if costs.post_validation:
            raise InputError(f"{schedule.name} has its optimizer step already", "leave out --post-validation")
        return schedule
    if not schedule.flushes:
        _refuse_asynchronous(schedule, costs)
    return add_optimizer(
        schedule,
        barrier=schedule.flushes and not costs.post_validation,
        gathers=costs.t_gather is not None,
        reduces=costs.t_reduce_grad is not None,
    )


def _refuse_asynchronous(schedule: Schedule, costs: CostOptions) -> None:
    """Refuse what has no meaning where steps are never drained, or take more than two versions of the weights."""
    if costs.post_validation:
        why = f"{schedule.name} never waits for all devices, so --post-validation changes nothing"
        raise InputError(why, "leave it out")
    if costs.t_gather is not None:
        why = f"{schedule.name} runs forwards of the next step before this one ends, so no step starts with a gather"
        raise InputError(why, "leave out --t-gather")
    M, P = schedule.round_microbatches, schedule.n_devices
    if (costs.steps or 1) > 1 and M < P:
        why = f"{schedule.name} with {M} microbatches a step on {P} devices needs more than two versions of the weights"
        raise InputError(why, f"--mb {P} or more")


def goes_round(schedule: Schedule) -> bool:
    """Whether a schedule has a period.

    It is shown going round, ends with an optimizer step, runs forwards alone, or never flushes and two versions of the
    weights suffice for it.
    """
    from ppsim.core.ops import Kind

    if schedule.n_rounds > 1 or schedule.only_forwards or bool((schedule.kind == Kind.OPT).any()):
        return True
    return not schedule.flushes and schedule.round_microbatches >= schedule.n_devices


def measure_round(timeline: Timeline, costs: Costs, tokens: int | None) -> Round | None:
    """Measure what a round of a timeline's schedule takes without end; None where it does not go round."""
    from ppsim.analysis.period import find_around, find_period
    from ppsim.engine.simple.metrics import Round

    schedule = timeline.schedule
    events = len(schedule) // schedule.n_rounds
    if not goes_round(schedule) or costs.host_link or not 0 < events <= MOST_EVENTS:
        return None
    found, around = find_period(schedule, costs), find_around(timeline)
    counted = schedule.whole_microbatches * (tokens or 1)
    return Round(
        period=found.time,
        bound=min(found.time, max(found.bound, _bound_step(schedule, costs))),
        rate=counted / found.time if found.time else float("inf"),
        counts="tokens" if tokens else "batches" if schedule.feeds_back else "microbatches",
        bubble=found.bubble,
        fill=around.fill,
        drain=around.drain,
        why=found.why,
    )


def _bound_step(schedule: Schedule, costs: Costs) -> float:
    """Bound a step whose optimizer step waits for all devices; 0 for rounds without this wait."""
    from ppsim.core.ops import Kind
    from ppsim.core.rounds import take_rounds
    from ppsim.search.bounds.bounds import bound_schedule

    if not (schedule.kind == Kind.NORM).any():
        return 0.0
    return bound_schedule(*take_rounds(schedule, costs, 1)).makespan


def keep_versions(held: MemoryModel, schedule: Schedule) -> MemoryModel:
    """Return what stages hold with the weights' older versions, which steps that are never drained still need."""
    older = schedule.weight_versions - 1
    if not older or "weights" not in held.static:
        return held
    return replace(held, static={**held.static, "older weights": older * held.static["weights"]})


SAME = 1e-9  # relative difference of rates that only rounding keeps apart
MOST_TRIED = 64  # numbers of batches in flight
MOST_SHOWN = 8  # rows of the table


@dataclass(frozen=True)
class InFlight:
    """One number of batches in flight."""

    batches: int  # M
    period: float  # of a step
    rate: float  # batches or tokens per unit of time
    round_bubble: float  # idle share of a step


@dataclass(frozen=True)
class HowMany:
    """How many batches in flight a decoder can use."""

    tried: tuple[InFlight, ...]  # from one on
    enough: int | None  # the first number beyond which nothing is gained; None where none that was tried is
    counts: str  # what the rate counts

    def to_json(self) -> dict[str, Any]:
        """The objects of ``--json``."""
        return {"in_flight": [asdict(each) for each in self.tried], "enough_in_flight": self.enough}

    def blocks(self, own: int, unit: str) -> Iterator[Block]:
        """A table around the first number beyond which nothing is gained, and that number."""
        rows = [
            [
                str(each.batches),
                format_number(each.period),
                format_number(each.rate),
                format_share(each.round_bubble),
            ]
            for each in self._shown(own)
        ]
        yield Table(["in flight", f"period ({unit})", f"{self.counts} per {unit}", "bubble of a round"], rows)
        most = self.tried[-1]
        if self.enough is None:
            yield Line(f"more than {most.batches} batches in flight still gain")
        else:
            yield Line(f"from {self.enough} in flight on nothing more is gained")

    def _shown(self, own: int) -> Sequence[InFlight]:
        """The rows around the answer, with the first and the one asked about."""
        last = self.enough or len(self.tried)
        near = range(max(1, last - MOST_SHOWN + 3), last + 2)
        return [each for each in self.tried if each.batches in (1, own) or each.batches in near]


def find_how_many(make: Callable[[int], tuple[Schedule, Costs]], tokens: int | None) -> HowMany:
    """Find how many batches in flight are enough; ``make`` gives a decoder and its costs with so many.

    The rate has reached its limit where a device is always busy, as more batches only wait there.
    """
    from ppsim.analysis.period import find_period

    tried, enough = list[InFlight](), None
    for batches in range(1, MOST_TRIED + 1):
        found = find_period(*make(batches))
        rate = batches * (tokens or 1) / found.time if found.time else float("inf")
        tried.append(InFlight(batches, found.time, rate, found.bubble))
        if enough is not None:
            break
        if float(found.busy.max(initial=0.0)) >= found.time * (1 - SAME):
            enough = batches
    return HowMany(tuple(tried), enough, "tokens" if tokens else "batches")
