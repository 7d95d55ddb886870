"""The range of times in which advice holds: the break-even of a rival and the explained schedule.

If a schedule's order depends on costs, it is ordered again for every time tried, as ``run`` orders
it; if that would take too long, it keeps its order.
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

BUDGET = 2_000_000  # simulated ops that all break-evens may cost, a few seconds
DIGITS = 3  # of the printed times, which are rounded down so that the advice holds up to them
# The cost of ordering a schedule by its costs, in simulated ops for each of its ops: schedules of
# up to SMALL ops run in CPython, larger ones in machine code.
SMALL, PER_OP_SMALL, PER_OP = 4_096, 50, 8
WALK = 1_000_000  # further cost, in simulated ops, of a family that improves its orders by walks
DETAILED = 4  # factor of the cost of a simulation with sends and receives as ops


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
    """Return the times up to which a rival is faster, as the end of a sentence.

    Empty if its advantage depends on no assumption: it neither splits backwards that the run does
    not split, nor sends more messages.

    Args:
        base: the explained run.
        rival: the same run with another schedule.
        timeline: the timeline of the rival.
    """
    assert base.schedule
    schedule, kept = timeline.schedule, ""
    splits = not (base.schedule.kind == Kind.W).any() and bool((schedule.kind == Kind.W).any())
    # a cluster file then gives the times of messages, and the costs have no effect on them
    fixed = rival.network.cluster is not None and rival.network.detailed
    has_more_messages = schedule.n_chunks > base.schedule.n_chunks and not fixed
    assumptions = (SPLIT,) * splits + (MESSAGE,) * has_more_messages
    if not assumptions:
        return ""
    runs = [replace(rival, schedule=schedule), base]
    if _search_cost(runs) > BUDGET:
        runs = [replace(run, keeps_queues=True) for run in runs]
        kept = ", queues in this order" if any(run.is_kept for run in runs) else ""
        if _search_cost(runs) > BUDGET:
            return "; the times up to which that holds take long to find at this size"
    limits = list(_limits(*runs, of=assumptions))
    alone = " (each alone)" if len(limits) > 1 else ""
    return f" as long as {' and '.join(limits)}{alone}{kept}" if limits else ""


def _search_cost(runs: Sequence[Run]) -> int:
    """Return the cost of finding the limits of two runs, in simulated ops."""
    return RUNS * sum(price_of_search(len(run.schedule or ()), run) for run in runs)


def _limits(rival: Run, base: Run, *, of: Sequence[str]) -> Iterator[str]:
    """Yield the range of each time as text; none for a time that a run cannot have."""
    microbatches = (base.schedule or base.build()).run_microbatches
    sides = [_side_of(run, microbatches) for run in (base, rival)]
    for what in of:
        try:
            for limit in break_evens(*sides, of=(what,), only_above=True):
                yield _limit_text(limit, by_factor=base.asked.gives_messages)
        except PpsimError:
            continue


def _side_of(run: Run, microbatches: int) -> Side:
    """Return a run as one side of a break-even: its time for a number of microbatches, with ops
    ordered again under changed costs.
    """
    schedule = run.schedule or run.build()

    def time(change: Change) -> float:
        timeline = run.edit(change).time()
        return timeline.makespan / timeline.schedule.run_microbatches * microbatches

    return Side(schedule, run.price(schedule), time)


def _limit_text(limit: BreakEven, *, by_factor: bool) -> str:
    """Return the range of a time as text; ``by_factor``: of messages as a factor of the present."""
    most = limit.at[0]
    if limit.of == SPLIT:
        return f"I + W takes less than {round_down(most, DIGITS)} B"
    if limit.unit == "now" or (by_factor and limit.now):
        factor = most if limit.unit == "now" else most / limit.now
        return f"messages take less than {round_down(factor, DIGITS)} times as long as now"
    return f"a message takes less than {round_down(most, DIGITS)} {limit.unit}"
