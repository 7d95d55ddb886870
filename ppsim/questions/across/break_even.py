"""Break-evens of two runs, for ``compare`` and ``explain``: the times of ops and messages up to
which one is faster than the other.

They are found with the present order of ops first. If a schedule's order depends on costs, the
first time above the present one is then searched again, with ops ordered for every time tried, as
``run`` orders them; if that would take too long, the schedule keeps its order.
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

BUDGET = 2_000_000  # simulated ops that all break-evens may cost, a few seconds
# simulated ops that ordering schedules again may cost: less than half of a small comparison
SEARCH_BUDGET = 250_000
SEARCHES = 15  # usual number of times at which a pair is ordered again
DIGITS = 3  # of the printed times, which are rounded down so that the advice holds up to them
# The cost of ordering a schedule by its costs, in simulated ops for each of its ops: schedules of
# up to SMALL ops run in CPython, larger ones in machine code.
SMALL, PER_OP_SMALL, PER_OP = 4_096, 50, 8
WALK = 1_000_000  # further cost, in simulated ops, of a family that improves its orders by walks
DETAILED = 4  # factor of the cost of a simulation with sends and receives as ops


@dataclass(frozen=True)
class Limit:
    """A break-even of two runs.

    Attributes:
        found: the break-even.
        is_kept: True if a run keeps its present order there, although ``run`` would order its ops
            again at other times.
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
    """Return the cost of timing the present order of a run, in simulated ops."""
    replicas = run.loads.n_replicas if run.loads else 1
    return ops * (DETAILED if run.network.detailed else 1) * replicas


class Pairs:
    """The break-evens of rivals with one run, the base, which is timed once at each time."""

    def __init__(self, base: Run, outside_pipeline: float = 0.0) -> None:
        """Time the base.

        Args:
            base: the run that rivals are compared with, with its schedule.
            outside_pipeline: the time of its step that is not its makespan.
        """
        assert base.schedule
        self._base = base
        self._microbatches = base.schedule.run_microbatches
        self._sides = self._sides_of(base, outside_pipeline)
        self._searched = 0  # simulated ops that queues which were made again cost

    def price(self, rival: Run) -> int:
        """Return the cost of finding break-evens with the present order, in simulated ops."""
        runs = (self._base, rival)
        return RUNS * sum(_price_of_timing(len(run.schedule or ()), run) for run in runs)

    def find(self, rival: Run, of: Sequence[str], outside_pipeline: float = 0.0) -> Iterator[Limit]:
        """Yield the break-evens of a rival with the base; none of a time at which a run is refused.

        Args:
            rival: the run, with its schedule.
            of: the times that vary: the split of backwards, messages.
            outside_pipeline: the time of its step that is not its makespan.
        """
        sides = self._sides_of(rival, outside_pipeline)
        follows = any(run.makes_queues_again for run in (self._base, rival))
        again = follows and self._may_search(rival)
        for what in of:
            try:
                for kept in break_evens(self._sides.kept, sides.kept, of=(what,)):
                    limit = self._search(kept, sides) if again else Limit(kept, follows)
                    if limit.found.at:  # else the same run is faster at all times
                        yield limit
            except PpsimError:
                continue

    def _may_search(self, rival: Run) -> bool:
        """Return whether the budget allows to order a pair again, and spend it if it does."""
        price = SEARCHES * sum(
            price_of_search(len(run.schedule or ()), run)
            for run in (self._base, rival)
            if run.makes_queues_again
        )
        fits = self._searched + price <= SEARCH_BUDGET
        self._searched += price if fits else 0
        return fits

    def _search(self, limit: BreakEven, sides: _Sides) -> Limit:
        """Return a break-even whose first time above the present one is found with ops ordered
        again at every time; the given one if a run is refused.
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

    def _sides_of(self, run: Run, outside_pipeline: float) -> _Sides:
        """Return a run in its present order, and ordered again if its order depends on costs."""
        kept = self._side_of(replace(run, keeps_queues=True), outside_pipeline)
        if not run.makes_queues_again:
            return _Sides(kept, kept)
        return _Sides(kept, self._side_of(run, outside_pipeline))

    def _side_of(self, run: Run, outside_pipeline: float) -> Side:
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
            return times[key] + outside_pipeline

        return Side(schedule, prices, time)


class _Sides(NamedTuple):
    """A run in its present order, and with ops ordered again at every time."""

    kept: Side
    made_again: Side


def describe_limits(base: Run, rival: Run, timeline: Timeline) -> str:
    """Return the times up to which a rival is faster, as the end of a sentence.

    Empty if its advantage depends on no assumption: it neither splits backwards that the run does
    not split, nor sends more messages.

    Args:
        base: the explained run.
        rival: the same run with another schedule.
        timeline: the timeline of the rival.
    """
    assert base.schedule
    schedule = timeline.schedule
    splits = not (base.schedule.kind == Kind.W).any() and bool((schedule.kind == Kind.W).any())
    # a cluster file then gives the times of messages, and the costs have no effect on them
    fixed = rival.network.cluster is not None and rival.network.detailed
    has_more_messages = schedule.n_chunks > base.schedule.n_chunks and not fixed
    assumptions = (SPLIT,) * splits + (MESSAGE,) * has_more_messages
    if not assumptions:
        return ""
    pairs, rival = Pairs(base), replace(rival, schedule=schedule)
    if pairs.price(rival) > BUDGET:
        return "; the times up to which that holds take long to find at this size"
    limits = list(pairs.find(rival, assumptions))
    by_factor = base.asked.gives_messages
    texts = [text for each in limits if (text := _limit_text(each.found, by_factor=by_factor))]
    if not texts:
        return ""
    alone = " (each alone)" if len(texts) > 1 else ""
    kept = ", with ops in this order" if any(each.is_kept for each in limits) else ""
    return f" as long as {' and '.join(texts)}{alone}{kept}"


def _limit_text(limit: BreakEven, *, by_factor: bool) -> str:
    """Return the range of a time as text, empty if the rival is faster at all longer times.

    With ``by_factor``, the time of messages is a factor of the present one.
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
