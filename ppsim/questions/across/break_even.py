"""Break-evens of two runs, for ``compare`` and ``explain``: up to which times of ops and messages
one is faster than the other.

They are first found with the queues of now. Where queues follow costs, ``run`` makes them again at
other times: then the first time above the present one is looked for again with queues that are made
again at every time tried, as far as a budget goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ppsim.analysis.break_even import (
    MESSAGE,
    RUNS,
    SPLIT,
    BreakEven,
    Change,
    Side,
    break_evens,
)
from ppsim.base.numbers import round_down
from ppsim.core.ops import Kind
from ppsim.errors import PpsimError
from ppsim.prices.timing import time_ops
from ppsim.schedules import family_of

if TYPE_CHECKING:
    from ppsim.core.timeline import Timeline
    from ppsim.questions.across.whatif import Run

BUDGET = 2_000_000  # ops that are simulated to find all break-evens, a few seconds
# ops that queues which are made again may cost: less than half of a small comparison
SEARCH_BUDGET = 250_000
SEARCHES = 15  # about as often queues are made again for a pair
DIGITS = 3  # of the times, rounded down so that what is said up to one holds
# A search for queues costs as much as simulating so many times their ops: CPython searches a small
# schedule, machine code a large one.
SMALL, PER_OP_SMALL, PER_OP = 4_096, 50, 8
WALK = 1_000_000  # likewise in all, of a family that improves its orders by walks
DETAILED = 4  # likewise where sends and receives are ops


@dataclass(frozen=True)
class Limit:
    """A break-even of two runs.

    Attributes:
        found: it.
        is_kept: whether it is of the queues of now, where ``run`` makes others at other times.
    """

    found: BreakEven
    is_kept: bool


def price_of_search(ops: int, run: Run) -> int:
    """Return the cost of making and timing a run, in simulated ops."""
    timed = _price_of_timing(ops, run)
    if not run.makes_queues_again:
        return timed
    family = family_of(run.spec) if run.spec else None
    walked = WALK if family and family.walks else 0
    return timed + walked + (ops * PER_OP_SMALL if ops <= SMALL else ops * PER_OP)


def _price_of_timing(ops: int, run: Run) -> int:
    """Return the cost of timing the queues of a run, in simulated ops."""
    replicas = run.loads.n_replicas if run.loads else 1
    return ops * (DETAILED if run.network.detailed else 1) * replicas


class Pairs:
    """The break-evens of runs with one that they are compared with, timed once at each time."""

    def __init__(self, base: Run, beside: float = 0.0) -> None:
        """Take the run that others are compared with.

        Args:
            base: the run, with its schedule.
            beside: the time of its step that is not its makespan.
        """
        assert base.schedule
        self._base = base
        self._microbatches = base.schedule.run_microbatches
        self._sides = self._sides_of(base, beside)
        self._searched = 0  # simulated ops that queues which were made again cost

    def price(self, rival: Run) -> int:
        """Return the cost of finding the break-evens with the queues of now, in simulated ops."""
        runs = (self._base, rival)
        return RUNS * sum(_price_of_timing(len(run.schedule or ()), run) for run in runs)

    def find(self, rival: Run, of: Sequence[str], beside: float = 0.0) -> Iterator[Limit]:
        """Yield the break-evens of a rival with the base; none of a time at which a run is
        refused.
        """
        sides = self._sides_of(rival, beside)
        follows = any(run.makes_queues_again for run in (self._base, rival))
        again = follows and self._may_search(rival)
        for what in of:
            try:
                for kept in break_evens(self._sides.kept, sides.kept, of=(what,)):
                    limit = self._search(kept, sides) if again else Limit(kept, follows)
                    if limit.found.at:  # else its order is that of now at all times
                        yield limit
            except PpsimError:
                continue

    def _may_search(self, rival: Run) -> bool:
        """Return whether the budget allows to make the queues of a pair again, and spend it."""
        price = SEARCHES * sum(
            price_of_search(len(run.schedule or ()), run)
            for run in (self._base, rival)
            if run.makes_queues_again
        )
        fits = self._searched + price <= SEARCH_BUDGET
        self._searched += price if fits else 0
        return fits

    def _search(self, limit: BreakEven, sides: _Sides) -> Limit:
        """Return a break-even whose first time above the present one is of queues that are made
        again; as it is where a run is refused.
        """
        below = tuple(time for time in limit.at if time <= limit.now)
        if below == limit.at or not limit.order:
            return Limit(limit, is_kept=True)
        pair = (self._sides.made_again, sides.made_again)
        slower, faster = pair if limit.order > 0 else pair[::-1]
        try:
            found = [*break_evens(slower, faster, of=(limit.of,), only_above=True)]
        except PpsimError:
            return Limit(limit, is_kept=True)
        above = (each.at[0] for each in found)
        return Limit(replace(limit, at=(*below, *above)), is_kept=bool(below))

    def _sides_of(self, run: Run, beside: float) -> _Sides:
        """Return a run that keeps its queues, and that makes them again where they follow costs."""
        kept = self._side_of(replace(run, keeps_queues=True), beside)
        return _Sides(kept, self._side_of(run, beside) if run.makes_queues_again else kept)

    def _side_of(self, run: Run, beside: float) -> Side:
        """Return a run timed for as many microbatches as the base, once at each time."""
        schedule = run.schedule or run.build()
        prices = run.price(schedule)
        simple = not (run.makes_queues_again or run.loads or run.replicas)
        times: dict[tuple[bytes, bytes], float] = {}

        def time(change: Change) -> float:
            changed = change(prices)
            key = np.asarray(changed.comm).tobytes(), changed.time.tobytes()
            if key not in times:
                if simple:
                    timeline, _ = time_ops(schedule, changed, run.network, run.costs.links)
                else:
                    timeline = run.edit(change).time()
                count = timeline.schedule.run_microbatches
                times[key] = timeline.makespan / count * self._microbatches
            return times[key] + beside

        return Side(schedule, prices, time)


class _Sides(NamedTuple):
    """A run with the queues of now, and with queues that are made again at every time."""

    kept: Side
    made_again: Side


def describe_limits(base: Run, rival: Run, timeline: Timeline) -> str:
    """Up to where a rival is faster, as the end of a sentence; empty where nothing is assumed.

    Args:
        base: the run asked about.
        rival: another schedule of it.
        timeline: of the rival.
    """
    assert base.schedule
    made = timeline.schedule
    splits = not (base.schedule.kind == Kind.W).any() and bool((made.kind == Kind.W).any())
    # a cluster's file gives the times of messages then, whatever the costs say
    fixed = rival.network.cluster is not None and rival.network.detailed
    shorter = made.n_chunks > base.schedule.n_chunks and not fixed
    if not (splits or shorter):
        return ""
    pairs, rival = Pairs(base), replace(rival, schedule=made)
    if pairs.price(rival) > BUDGET:
        return "; up to which times was left out, as it takes long at this size"
    limits = [*pairs.find(rival, (SPLIT,) * splits + (MESSAGE,) * shorter)]
    by_factor = base.asked.gives_messages
    said = [text for each in limits if (text := _words(each.found, by_factor=by_factor))]
    if not said:
        return ""
    alone = " (each alone)" if len(said) > 1 else ""
    kept = ", queues in this order" if any(each.is_kept for each in limits) else ""
    return f" as long as {' and '.join(said)}{alone}{kept}"


def _words(limit: BreakEven, *, by_factor: bool) -> str:
    """Return the range of a time in words, of messages ``by_factor`` of the present one; empty
    where the rival is faster at all longer times.
    """
    most = next((time for time in limit.at if time > limit.now), None)
    if most is None or limit.order <= 0:
        return ""
    if limit.of == SPLIT:
        return f"I + W takes less than {round_down(most, DIGITS)} B"
    if limit.unit == "now" or (by_factor and limit.now):
        factor = most if limit.unit == "now" else most / limit.now
        return f"messages take less than {round_down(factor, DIGITS)} times as long as now"
    return f"a message takes less than {round_down(most, DIGITS)} {limit.unit}"
