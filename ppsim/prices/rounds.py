"""The steady state of schedules that repeat, and the batches in flight that a decoder can use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ppsim.ask.blocks import Block, Line, Table
from ppsim.base.numbers import format_number, format_share

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule
    from ppsim.core.timeline import Timeline
    from ppsim.engine.simple.metrics import Round

MOST_EVENTS = 300_000  # most ops of a round whose period is computed


def measure_round(timeline: Timeline, costs: Costs, tokens: int | None) -> Round | None:
    """Return the steady state of a timeline's schedule; None if that would take long."""
    schedule = timeline.schedule
    events = len(schedule) // schedule.n_rounds
    if costs.host_link or not 0 < events <= MOST_EVENTS:
        return None
    from ppsim.analysis.period import find_around, find_period
    from ppsim.engine.simple.metrics import Round

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
        reason=found.reason,
    )


def _bound_step(schedule: Schedule, costs: Costs) -> float:
    """Return a lower bound on a step that all devices end together; 0 for other rounds."""
    from ppsim.core.ops import Kind

    if not (schedule.kind == Kind.NORM).any():
        return 0.0
    from ppsim.core.rounds import take_rounds
    from ppsim.search.bounds.bounds import bound_schedule

    return bound_schedule(*take_rounds(schedule, costs, 1)).makespan


SAME = 1e-9  # relative difference of equal rates, by rounding
MOST_TRIED = 64  # numbers of batches in flight to try
MOST_SHOWN = 8  # rows of the table


@dataclass(frozen=True)
class BatchCount:
    """One number of batches in flight."""

    batches: int  # M
    period: float  # of a step
    rate: float  # batches or tokens per unit of time
    round_bubble: float  # idle share of a step


@dataclass(frozen=True)
class UsableBatches:
    """The number of batches in flight that a decoder can use."""

    tried_counts: tuple[BatchCount, ...]  # one batch in flight, two, ...
    # the least number with the highest rate; None if the rate still rises at the last one tried
    enough: int | None
    counts: str  # the unit of the rate

    def to_json(self) -> dict[str, Any]:
        """Return the keys of ``--json``."""
        return {
            "in_flight": [asdict(each) for each in self.tried_counts],
            "enough_in_flight": self.enough,
        }

    def blocks(self, asked_count: int, unit: str) -> Iterator[Block]:
        """Yield a table of rates around the number that is enough, and a line on that number."""
        rows = [
            [
                str(each.batches),
                format_number(each.period),
                format_number(each.rate),
                format_share(each.round_bubble),
            ]
            for each in self._shown_rows(asked_count)
        ]
        yield Table(
            ["in flight", f"period ({unit})", f"{self.counts} per {unit}", "bubble of a round"],
            rows,
        )
        most = self.tried_counts[-1]
        if self.enough is None:
            yield Line(f"more than {most.batches} batches in flight still raise the rate")
        else:
            yield Line(f"more than {self.enough} batches in flight do not raise the rate")

    def _shown_rows(self, asked_count: int) -> Sequence[BatchCount]:
        """Return the rows around the number that is enough, the first, and the requested one."""
        last = self.enough or len(self.tried_counts)
        near = range(max(1, last - MOST_SHOWN + 3), last + 2)
        return [
            each
            for each in self.tried_counts
            if each.batches in (1, asked_count) or each.batches in near
        ]


def find_enough(schedule: Schedule, make: Callable[[int], tuple[Schedule, Costs]]) -> int | None:
    """Return the least number of batches in flight with the highest rate.

    None if it is more than are tried, or if finding it would take long. ``make`` returns a decoder
    with so many batches, and its costs.
    """
    if schedule.n_stages * MOST_TRIED > MOST_EVENTS // 8:
        return None
    return find_usable_batches(make, None).enough


def find_usable_batches(
    make: Callable[[int], tuple[Schedule, Costs]], tokens: int | None
) -> UsableBatches:
    """Return the rates of numbers of batches in flight, and the least with the highest rate.

    The rate is highest once a device is always busy: further batches only wait there. ``make``
    returns a decoder with so many batches, and its costs.
    """
    from ppsim.analysis.period import find_period

    tried, enough = list[BatchCount](), None
    for batches in range(1, MOST_TRIED + 1):
        found = find_period(*make(batches))
        rate = batches * (tokens or 1) / found.time if found.time else float("inf")
        tried.append(BatchCount(batches, found.time, rate, found.bubble))
        if enough is not None:
            break
        if float(found.busy.max(initial=0.0)) >= found.time * (1 - SAME):
            enough = batches
    return UsableBatches(tuple(tried), enough, "tokens" if tokens else "batches")
