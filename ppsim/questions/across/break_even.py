"""Up to where advice holds: the times at which a rival takes as long as the schedule asked about.

Each is found by simulation: a time is doubled until the rival is no longer faster, and the interval
halved. Queues that follow costs are made again at every time tried, as ``run`` makes them, or keep
their order where that takes too long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppsim.analysis.changes import stretch_split
from ppsim.base.deadline import check_time
from ppsim.base.numbers import round_down
from ppsim.core.ops import Kind
from ppsim.errors import PpsimError
from ppsim.schedules import family_of

if TYPE_CHECKING:
    from ppsim.core.timeline import Timeline
    from ppsim.questions.across.whatif import Run

BUDGET = 2_000_000  # ops that are simulated to find all break-evens, a few seconds
DIGITS = 3  # of the times, rounded down so that each statement holds up to the printed time
HALVINGS = 11  # of the interval between two doublings: one two-thousandth of the time
RUNS = 40  # about as many simulations as two break-evens take
LARGEST = 16.0  # the most that I + W is stretched
# A search for queues costs as much as simulating so many times their ops: CPython searches a small
# schedule, machine code a large one.
SMALL, PER_OP_SMALL, PER_OP = 4_096, 50, 8
WALK = 1_000_000  # likewise in all, of a family that improves its orders by walks
DETAILED = 4  # likewise where sends and receives are ops


def price_of_search(ops: int, run: Run) -> int:
    """Return the cost of making and timing a run, in simulated ops."""
    timed = ops * (DETAILED if run.network.detailed else 1)
    timed *= run.loads.n_replicas if run.loads else 1
    if run.keeps_queues or not run.queues_follow_costs:
        return timed
    family = family_of(run.spec) if run.spec else None
    walked = WALK if family and family.walks else 0
    return timed + walked + (ops * PER_OP_SMALL if ops <= SMALL else ops * PER_OP)


def describe_limits(base: Run, rival: Run, timeline: Timeline) -> str:
    """Up to where a rival is faster, as the end of a sentence; empty where nothing is assumed.

    Args:
        base: the run asked about.
        rival: another schedule of it.
        timeline: of the rival.
    """
    assert base.schedule
    made, kept = timeline.schedule, ""
    splits = not (base.schedule.kind == Kind.W).any() and bool((made.kind == Kind.W).any())
    fixed = rival.network.cluster is not None and rival.network.detailed
    shorter = made.n_chunks > base.schedule.n_chunks and not fixed
    if not (splits or shorter):
        return ""
    runs = [replace(rival, schedule=made), base]
    if _price(runs) > BUDGET:
        runs = [replace(run, keeps_queues=True) for run in runs]
        kept = ", queues in this order" if any(run.is_kept for run in runs) else ""
        if _price(runs) > BUDGET:
            return "; up to which times was left out, as it takes long at this size"
    found = list(_split_limits(*runs)) if splits else []
    found += _message_limits(*runs) if shorter else []
    alone = " (each alone)" if len(found) > 1 else ""
    return f" as long as {' and '.join(found)}{alone}{kept}" if found else ""


def _price(runs: Sequence[Run]) -> int:
    """Return the cost of finding the limits of two runs, in simulated ops."""
    return RUNS * sum(price_of_search(len(run.schedule or ()), run) for run in runs)


def _split_limits(rival: Run, base: Run) -> Iterator[str]:
    """Return the range of a split backward's time, in full ones."""
    prices = rival.price(rival.schedule or rival.build())
    whole, halves = prices.time[Kind.B].sum(), prices.time[[Kind.I, Kind.W]].sum()
    if prices.each is not None or not (whole > 0 and halves > 0):
        return
    least = _per_microbatch(base)

    def lead(factor: float) -> float:
        return least - _per_microbatch(rival.edit(lambda costs: stretch_split(costs, factor)))

    limit = _find_end(lead, 1.0, 2.0, lambda factor: factor * 2, LARGEST)
    if limit is not None:
        yield f"I + W takes less than {round_down(limit * halves / whole, DIGITS)} B"


def _message_limits(rival: Run, base: Run) -> Iterator[str]:
    """Return the range of a message's time, or of its factor over the present one."""
    prices = base.price(base.schedule or base.build())
    if not (base.asked.gives_messages or base.costs.costs):
        now = base.costs.comm or 0.0

        def lead(time: float) -> float:
            both = (replace(r, costs=replace(r.costs, comm=time)) for r in (base, rival))
            return _per_microbatch(next(both)) - _per_microbatch(next(both))

        whole = _per_microbatch(base)
        first, most = now + whole / 16, now + 64 * whole
        limit = _find_end(lead, now, first, lambda time: now + 2 * (time - now), most)
        if limit is not None:
            yield f"a message takes less than {round_down(limit, DIGITS)} {prices.unit}"
        return
    if not np.any(prices.comm):
        return

    def lead_scaled(factor: float) -> float:
        both = (r.edit(lambda c: replace(c, comm=c.comm * factor)) for r in (base, rival))
        return _per_microbatch(next(both)) - _per_microbatch(next(both))

    limit = _find_end(lead_scaled, 1.0, 2.0, lambda factor: factor * 2, 1024.0)
    if limit is not None:
        yield f"messages take less than {round_down(limit, DIGITS)} times as long as now"


def _find_end(
    lead: Callable[[float], float],
    low: float,
    high: float,
    grow: Callable[[float], float],
    most: float,
) -> float | None:
    """The first value found up to which a lead lasts.

    None where it lasts to the most, or where a run is refused.
    """
    try:
        while lead(high) > 0:
            low, high = high, grow(high)
            if high > most:
                return None
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if lead(middle) > 0 else (low, middle)
    except PpsimError:
        return None
    return low


def _per_microbatch(run: Run) -> float:
    check_time()
    timeline = run.time()
    return timeline.makespan / timeline.schedule.run_microbatches
