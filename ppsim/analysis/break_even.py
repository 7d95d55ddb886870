"""Break-even: the time of an op or of a message at which two schedules take equally long.

If the backwards of one schedule are split, and the queues are fixed, its time never falls as I and
W grow, so there is at most one break-even. A longer message delays both schedules, and their order
may change several times. Then the sentence names the range of times nearest to the current one in
which a schedule is faster.

:class:`Side` may also generate the queues again for every time that is tried. That is slow, so a
search may be limited to times above the current one, for the first end of an advantage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

import numpy as np

from ppsim.analysis.changes import stretch_split
from ppsim.base.deadline import check_time
from ppsim.base.numbers import format_number, round_down, round_up
from ppsim.core.costs import Costs
from ppsim.core.ops import Kind
from ppsim.core.schedule import Schedule

SPLIT, MESSAGE = "split", "message"
LEAST, MOST = 1 / 16, 16.0  # range of I + W that is searched, in full backwards
# Message times that are tried, in times per microbatch of the first schedule.
MESSAGES = (0.0, *(2.0**power for power in range(-9, 7)))
# Times that are tried above the current one: factors on I + W and on messages, and times added to a
# message, in times per microbatch.
SPLITS_ABOVE = tuple(2.0**power for power in range(5))
FACTORS_ABOVE = tuple(2.0**power for power in range(11))
ADDED_ABOVE = (0.0, *(2.0**power for power in range(-4, 7)))
FAR = 10.0  # ratio to the current time, in either direction, from which on a time is far
# Relative accuracy of a break-even: in a full search, and above the current time only.
CLOSE, CLOSE_ABOVE = 1e-7, 1e-4
EQUAL = 1e-12  # relative difference of times that count as equal
RUNS = 40  # approximate number of simulations of each schedule
BUDGET = 1_000_000  # ops that are simulated for one comparison, a second or two


@dataclass(frozen=True)
class BreakEven:
    """The times at which the order of two schedules changes.

    Attributes:
        of: the quantity: ``split``, the time of I + W, or ``message``, the time of a message.
        at: the times, ascending, at which the order of the two changes.
        below: whether the schedule is faster below the first of them.
        unit: of these times and of ``now``: ``B``, full backwards; ``now``, multiples of the
            current time; or the unit of the costs.
        now: the current time.
        order: 1 if the schedule is faster at the current time, -1 if slower, else 0.
    """

    of: str
    at: tuple[float, ...]
    below: bool
    unit: str
    now: float
    order: int

    def text(self, name: str, base: str) -> str:
        """Return a sentence that compares schedule ``name`` with ``base``.

        It is empty if the order of the two changes only far from the current time.
        """
        low, high = self._nearest_range()
        if self.order <= 0 and self._is_far(low, high):
            return ""
        by_factor = self.unit == "now"
        unit = " times as long as now" if by_factor else f" {self.unit}".rstrip()
        now = "" if by_factor else f" (now {format_number(self.now)})"
        times = f"{_range_text(low, high, self.now)}{unit}{now}"
        noun = "I + W" if self.of == SPLIT else "messages" if by_factor else "a message"
        if self.order > 0:
            verb = "take" if by_factor else "takes"
            return f"{name} is faster than {base} as long as {noun} {verb} {times}"
        order = f"slower than {base}" if self.order else f"as fast as {base}"
        return f"{name} is {order} now; it would be faster if {noun} took {times}"

    def _nearest_range(self) -> tuple[float | None, float | None]:
        """Return the range of times nearest to the current one in which the schedule is faster.

        An end is None if the range is open there.
        """
        between = [*pairwise([None, *self.at, None])][0 if self.below else 1 :: 2]
        return min(between, key=lambda ends: self._distance(*ends))

    def _distance(self, low: float | None, high: float | None) -> float:
        """Return the distance of the current time from a range, 0 inside."""
        return max(0.0, (low or 0.0) - self.now, self.now - (math.inf if high is None else high))

    def _is_far(self, low: float | None, high: float | None) -> bool:
        """Return True if a range is more than a factor ``FAR`` from the current time."""
        if self.now == 0:
            return False
        return (low or 0.0) > FAR * self.now or (high is not None and high * FAR < self.now)


Change = Callable[[Costs], Costs]


@dataclass(frozen=True)
class Side:
    """One of two schedules.

    Attributes:
        schedule: its queues at the current costs.
        costs: the current costs.
        time: returns the time of a step after a change of the costs, with these queues or with
            queues generated for the changed costs.
    """

    schedule: Schedule
    costs: Costs
    time: Callable[[Change], float]

    def time_with(self, change: Change) -> float:
        """Return the time of a step after a change of the costs."""
        check_time()
        return self.time(change)

    @property
    def now(self) -> float:
        """The time of a step at the current costs."""
        return self.time_with(lambda costs: costs)

    @property
    def is_split(self) -> bool:
        """Whether backwards run as I and W."""
        return bool((self.schedule.kind == Kind.W).any())


def break_evens(
    base: Side,
    rival: Side,
    *,
    of: Collection[str] = (SPLIT, MESSAGE),
    only_above: bool = False,
) -> Iterator[BreakEven]:
    """Yield the break-evens of two schedules.

    Args:
        base: the schedule that others are compared with.
        rival: another schedule.
        of: the quantities; leave messages out if they have no latencies.
        only_above: search only for the first time above the current one at which the rival is no
            longer faster, less accurately.
    """
    if SPLIT in of and base.is_split != rival.is_split:
        yield from _of_split(base, rival, only_above=only_above)
    if MESSAGE in of and base.schedule.n_chunks != rival.schedule.n_chunks:
        yield from _of_messages(base, rival, only_above=only_above)


def price_of(base: Schedule, rival: Schedule) -> int:
    """Return the number of ops to simulate for the break-evens of two schedules."""
    return RUNS * (len(base) + len(rival))


def _of_split(base: Side, rival: Side, *, only_above: bool) -> Iterator[BreakEven]:
    """Yield the break-even of I + W, in full backwards, of the schedule that splits them."""
    if base.costs.op_times is not None or rival.costs.op_times is not None:
        return
    split, whole = (base, rival) if base.is_split else (rival, base)
    full = float(split.costs.time[Kind.B].sum())
    halves = float(split.costs.time[[Kind.I, Kind.W]].sum())
    if not (full > 0 and halves > 0):
        return
    now, least = halves / full, whole.now
    sign = 1 if split is rival else -1

    @cache
    def lead(value: float) -> float:
        return sign * (least - split.time_with(lambda costs: stretch_split(costs, value / now)))

    points = {LEAST, *(2.0**power for power in range(-2, 4)), now, MOST}
    if only_above:
        points = {now * factor for factor in SPLITS_ABOVE}
    yield from _find_break_even(
        BreakEven(SPLIT, (), sign > 0, "B", now, 1),
        lead,
        points,
        least,
        only_above=only_above,
    )


def _of_messages(base: Side, rival: Side, *, only_above: bool) -> Iterator[BreakEven]:
    """Yield the break-even of a message's time, or of a factor on latencies if links differ."""
    latencies = np.unique(np.concatenate([_latencies(base.costs), _latencies(rival.costs)]))
    positive = latencies[latencies > 0]
    whole = base.now
    # Times that are tried are relative to the time of a microbatch, also if they are factors.
    longest = whole / base.schedule.run_microbatches
    if len(positive) > 1:
        now, unit, longest = 1.0, "now", longest / float(positive.max())
    else:
        now, unit = float(positive.max(initial=0.0)), base.costs.unit

    @cache
    def lead(value: float) -> float:
        def change(costs: Costs) -> Costs:
            comm = value if now == 0 else np.asarray(costs.comm) * (value / now)
            return replace(costs, comm=comm)

        return base.time_with(change) - rival.time_with(change)

    points = {*(longest * each for each in MESSAGES), now}
    if only_above and unit == "now":
        points = {*FACTORS_ABOVE}
    elif only_above:
        points = {now + longest * each for each in ADDED_ABOVE}
    yield from _find_break_even(
        BreakEven(MESSAGE, (), True, unit, now, 1),
        lead,
        points,
        whole,
        only_above=only_above,
    )


def _find_break_even(
    limit: BreakEven,
    lead: Callable[[float], float],
    points: Collection[float],
    whole: float,
    *,
    only_above: bool,
) -> Iterator[BreakEven]:
    """Yield a break-even with the times at which the lead changes its sign, if there are any.

    Args:
        limit: the quantity, and its current time.
        lead: returns the rival's lead at a time.
        points: times that are tried.
        whole: the time of a step, to which rounding is relative.
        only_above: as in :func:`break_evens`.
    """
    if only_above:
        found = _find_crossings(lead, sorted(points), whole, CLOSE_ABOVE, first=True)
        if found and lead(limit.now) > 0:
            yield replace(limit, at=tuple(found), below=True)
        return
    found = _find_crossings(lead, sorted(points), whole, CLOSE, first=limit.of == SPLIT)
    if found:
        # for split backwards the order changes once, for messages possibly several times
        below = limit.below if limit.of == SPLIT else lead(found[0] * (1 - 1e-3)) > 0
        order = _order(lead(limit.now), whole)
        yield replace(limit, at=tuple(found), below=below, order=order)


def _order(lead: float, whole: float) -> int:
    """Return the sign of a lead, 0 if it is due to rounding."""
    return 0 if abs(lead) <= EQUAL * whole else int(math.copysign(1, lead))


def _find_crossings(
    lead: Callable[[float], float],
    points: Sequence[float],
    whole: float,
    close: float,
    *,
    first: bool,
) -> list[float]:
    """Return the values at which a lead changes its sign.

    Args:
        lead: returns the lead at a value.
        points: values that are tried, ascending.
        whole: the time of a step, to which rounding is relative.
        close: relative accuracy.
        first: return the first value only.
    """
    signed: list[tuple[float, float]] = []
    found = []
    for point in points:
        here = lead(point)
        if abs(here) <= EQUAL * whole:
            continue
        if signed and signed[-1][1] * here < 0:
            found.append(_refine(lead, signed[-1], (point, here), whole, close))
            if first:
                break
        signed.append((point, here))
    return found


def _refine(
    lead: Callable[[float], float],
    low: tuple[float, float],
    high: tuple[float, float],
    whole: float,
    close: float,
) -> float:
    """Return the value in an interval at which a lead changes its sign.

    Steps alternate between secants, as times are piecewise linear, and bisection.
    """
    sign = math.copysign(1.0, low[1])
    by_secant = True
    while high[0] - low[0] > close * high[0]:
        middle = (low[0] + high[0]) / 2
        if by_secant:
            share = low[1] / (low[1] - high[1])
            middle = low[0] + min(max(share, close / 4), 1 - close / 4) * (high[0] - low[0])
        here = lead(middle)
        if abs(here) <= EQUAL * whole:
            # both take equally long; the lead may have ended before
            before = middle * (1 - close / 2)
            there = lead(before) if before > low[0] else low[1]
            if there * sign > EQUAL * whole:
                return middle
            high = before, -sign * EQUAL * whole
        elif here * sign > 0:
            low = middle, here
        else:
            high = middle, here
        by_secant = not by_secant
    return low[0]


def _latencies(costs: Costs) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the latencies between different devices."""
    comm = np.asarray(costs.comm, np.float64)
    if comm.ndim == 0:
        return comm.reshape(1)
    return np.asarray(comm[~np.eye(len(comm), dtype=np.bool_)], np.float64)


def _range_text(low: float | None, high: float | None, now: float) -> str:
    """Return a range of times as text, rounded inwards.

    Ends have three digits, or four if one is near the current time.
    """
    is_near = any(end is not None and abs(end - now) < 0.01 * end for end in (low, high))
    digits = 4 if is_near else 3
    least = low and round_up(low, digits)
    most = high and round_down(high, digits)
    if least is None:
        return f"less than {most}"
    if most is None:
        return f"more than {least}"
    return f"between {least} and {most}"
