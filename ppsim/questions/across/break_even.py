"""The range in which advice holds: the times at which a rival is as fast as the schedule asked
about.

Queues that follow costs are made again at every time tried, as ``run`` makes them, or keep their
order where that takes too long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ppsim.analysis.break_even import MESSAGE, RUNS, SPLIT, BreakEven, Change, Side, break_evens
from ppsim.base.numbers import round_down
from ppsim.core.ops import Kind
from ppsim.errors import PpsimError
from ppsim.schedules import family_of

if TYPE_CHECKING:
    from ppsim.core.timeline import Timeline
    from ppsim.questions.across.whatif import Run

BUDGET = 2_000_000  # ops that are simulated to find all break-evens, a few seconds
DIGITS = 3  # of the times, rounded down so that what is said up to one holds
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
    # a cluster's file gives the times of messages then, whatever the costs say
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
    found = list(_limits(*runs, of=(SPLIT,) * splits + (MESSAGE,) * shorter))
    alone = " (each alone)" if len(found) > 1 else ""
    return f" as long as {' and '.join(found)}{alone}{kept}" if found else ""


def _price(runs: Sequence[Run]) -> int:
    """Return the cost of finding the limits of two runs, in simulated ops."""
    return RUNS * sum(price_of_search(len(run.schedule or ()), run) for run in runs)


def _limits(rival: Run, base: Run, *, of: Sequence[str]) -> Iterator[str]:
    """Yield the range of each time in words; nothing where a run with a longer one is refused."""
    microbatches = (base.schedule or base.build()).run_microbatches
    sides = [_side_of(run, microbatches) for run in (base, rival)]
    for what in of:
        try:
            for limit in break_evens(*sides, of=(what,), only_above=True):
                yield _words(limit, by_factor=base.asked.gives_messages)
        except PpsimError:
            continue


def _side_of(run: Run, microbatches: int) -> Side:
    """Return a run whose queues are made again where they follow costs, timed for a number of
    microbatches.
    """
    schedule = run.schedule or run.build()

    def time(change: Change) -> float:
        timeline = run.edit(change).time()
        return timeline.makespan / timeline.schedule.run_microbatches * microbatches

    return Side(schedule, run.price(schedule), time)


def _words(limit: BreakEven, *, by_factor: bool) -> str:
    """Return the range of a time in words, of messages ``by_factor`` of the present one."""
    most = limit.at[0]
    if limit.of == SPLIT:
        return f"I + W takes less than {round_down(most, DIGITS)} B"
    if limit.unit == "now" or (by_factor and limit.now):
        factor = most if limit.unit == "now" else most / limit.now
        return f"messages take less than {round_down(factor, DIGITS)} times as long as now"
    return f"a message takes less than {round_down(most, DIGITS)} {limit.unit}"
