"""Break-even: the time of an op or of a message at which two schedules take equally long.

Both schedules keep the order of their queues. Where backwards of one of the two are split, its time
never falls as I and W grow, so at most one time decides. A longer message delays both, and the
order of the two may change more than once: then the sentence names the stretch of times in which
a schedule is faster that is nearest to the present time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from ppsim.analysis.changes import stretch_split
from ppsim.base.deadline import check_time
from ppsim.base.numbers import format_number, round_down, round_up
from ppsim.core.costs import Costs
from ppsim.core.ops import Kind
from ppsim.core.schedule import Schedule

SPLIT, MESSAGE = "split", "message"
LEAST, MOST = 1 / 16, 16.0  # the least and the most that I + W takes, in full backwards
# Message times that are tried, in times per microbatch of the first schedule.
MESSAGES = (0.0, *(2.0**power for power in range(-9, 7)))
FAR = 10.0  # ratio of a time and the present one, either way, from which the time is far
CLOSE = 1e-7  # how far a break-even is off, as a share of it
EQUAL = 1e-12  # difference of two times that only rounding leaves, as a share of them
RUNS = 40  # about as many simulations of each schedule as a pair takes
BUDGET = 1_000_000  # ops that are simulated for one comparison, a second or two


@dataclass(frozen=True)
class BreakEven:
    """Up to or from which time a schedule is faster than another.

    Attributes:
        of: what takes that time: ``split``, I and W of a microbatch, or ``message``.
        at: the times, ascending: at each the order of the two changes.
        below: whether the schedule is faster below the first of them.
        unit: of these and of ``now``: B, full backwards; ``now``, times as long as now; or the unit
            of the costs.
        now: the value in the costs given.
        order: 1 where the schedule is faster at the costs given, -1 where it is slower, else 0.
    """

    of: str
    at: tuple[float, ...]
    below: bool
    unit: str
    now: float
    order: int

    def text(self, name: str, base: str) -> str:
        """Return the sentence about a schedule of this name and another one; empty where the order
        of the two changes only at times that are far from the present ones.
        """
        low, high = self._stretch()
        if self.order <= 0 and self._is_far(low, high):
            return ""
        by_factor = self.unit == "now"
        unit = " times as long as now" if by_factor else f" {self.unit}".rstrip()
        now = "" if by_factor else f" (now {format_number(self.now)})"
        times = f"{_range_text(low, high, self.now)}{unit}{now}"
        what = "I + W" if self.of == SPLIT else "messages" if by_factor else "a message"
        if self.order > 0:
            verb = "take" if by_factor else "takes"
            return f"{name} is faster than {base} as long as {what} {verb} {times}"
        order = f"slower than {base}" if self.order else f"as fast as {base}"
        return f"{name} is {order} now; it would be faster if {what} took {times}"

    def _stretch(self) -> tuple[float | None, float | None]:
        """Return the ends of the stretch of times in which the schedule is faster that is nearest
        to the present time; None at an end that is open.
        """
        between = [*pairwise([None, *self.at, None])][0 if self.below else 1 :: 2]
        return min(between, key=lambda ends: self._distance(*ends))

    def _distance(self, low: float | None, high: float | None) -> float:
        """Return how far the present time lies outside a stretch."""
        return max(0.0, (low or 0.0) - self.now, self.now - (math.inf if high is None else high))

    def _is_far(self, low: float | None, high: float | None) -> bool:
        """Return whether a stretch begins above, or ends below, ``FAR`` times the present time."""
        if self.now == 0:
            return False
        return (low or 0.0) > FAR * self.now or (high is not None and high * FAR < self.now)


@dataclass(frozen=True)
class Side:
    """One of two schedules.

    Attributes:
        schedule: its queues.
        costs: what its ops cost.
        time: gives its makespan at any costs.
        beside: time of a step that is not the makespan's.
    """

    schedule: Schedule
    costs: Costs
    time: Callable[[Schedule, Costs], float]
    beside: float = 0.0

    def at(self, costs: Costs) -> float:
        """Return the time of its step at other costs."""
        check_time()
        return self.time(self.schedule, costs) + self.beside

    @property
    def is_split(self) -> bool:
        """Whether backwards run as I and W."""
        return bool((self.schedule.kind == Kind.W).any())


def break_evens(base: Side, rival: Side, *, messages: bool = True) -> Iterator[BreakEven]:
    """Yield the times at which a rival takes as long as the schedule that it is compared with.

    Args:
        base: the schedule that others are compared with.
        rival: another one.
        messages: whether messages are latencies, which may be longer or shorter.
    """
    if base.costs.each is not None or rival.costs.each is not None:
        return
    if base.is_split != rival.is_split:
        yield from _of_split(base, rival)
    if messages and base.schedule.n_chunks != rival.schedule.n_chunks:
        yield from _of_messages(base, rival)


def price_of(base: Schedule, rival: Schedule) -> int:
    """Return what the break-evens of two schedules cost to find, in ops simulated."""
    return RUNS * (len(base) + len(rival))


def _of_split(base: Side, rival: Side) -> Iterator[BreakEven]:
    """The time of I and W, in full backwards, of the schedule that splits them."""
    split, whole = (base, rival) if base.is_split else (rival, base)
    full = float(split.costs.time[Kind.B].sum())
    halves = float(split.costs.time[[Kind.I, Kind.W]].sum())
    if not (full > 0 and halves > 0):
        return
    now, least = halves / full, whole.at(whole.costs)
    sign = 1 if split is rival else -1

    def lead(value: float) -> float:
        return sign * (least - split.at(stretch_split(split.costs, value / now)))

    points = sorted({LEAST, *(2.0**power for power in range(-2, 4)), now, MOST})
    found = _find_crossings(lead, points, least, first=True)
    if found:
        yield BreakEven(SPLIT, tuple(found), sign > 0, "B", now, _order(lead(now), least))


def _of_messages(base: Side, rival: Side) -> Iterator[BreakEven]:
    """The time of a message; where links differ, how many times as long as now they take."""
    latencies = np.unique(np.concatenate([_latencies(base.costs), _latencies(rival.costs)]))
    positive = latencies[latencies > 0]
    whole = base.at(base.costs)
    # Times that are tried follow the length of a microbatch, also where they are factors.
    longest = whole / base.schedule.run_microbatches
    if len(positive) > 1:
        now, unit, longest = 1.0, "now", longest / float(positive.max())
    else:
        now, unit = float(positive.max(initial=0.0)), base.costs.unit

    def change(costs: Costs, value: float) -> Costs:
        if now == 0:
            return replace(costs, comm=value)
        return replace(costs, comm=np.asarray(costs.comm) * (value / now))

    def lead(value: float) -> float:
        return base.at(change(base.costs, value)) - rival.at(change(rival.costs, value))

    points = sorted({*(longest * each for each in MESSAGES), now})
    found = _find_crossings(lead, points, whole)
    if found:
        below = lead(found[0] * (1 - 1e-3)) > 0
        yield BreakEven(MESSAGE, tuple(found), below, unit, now, _order(lead(now), whole))


def _order(lead: float, whole: float) -> int:
    """Return the sign of a lead, 0 where it is a part of the whole time that rounding leaves."""
    return 0 if abs(lead) <= EQUAL * whole else int(math.copysign(1, lead))


def _find_crossings(
    lead: Callable[[float], float], points: Sequence[float], whole: float, *, first: bool = False
) -> list[float]:
    """Find the values between which a lead changes its sign.

    Args:
        lead: by how much one is faster.
        points: values that are tried, ascending.
        whole: a time of which a part that rounding leaves is none.
        first: whether there is at most one.
    """
    signed: list[tuple[float, float]] = []
    found = []
    for point in points:
        here = lead(point)
        if abs(here) <= EQUAL * whole:
            continue
        if signed and signed[-1][1] * here < 0:
            found.append(_refine(lead, signed[-1], (point, here), whole))
            if first:
                break
        signed.append((point, here))
    return found


def _refine(
    lead: Callable[[float], float],
    low: tuple[float, float],
    high: tuple[float, float],
    whole: float,
) -> float:
    """Narrow the interval in which a lead changes its sign: by secants, as times are piecewise
    linear, and by halves.
    """
    sign = math.copysign(1.0, low[1])
    by_secant = True
    while high[0] - low[0] > CLOSE * high[0]:
        middle = (low[0] + high[0]) / 2
        if by_secant:
            share = low[1] / (low[1] - high[1])
            middle = low[0] + min(max(share, CLOSE / 4), 1 - CLOSE / 4) * (high[0] - low[0])
        here = lead(middle)
        if abs(here) <= EQUAL * whole:
            # both take as long; the lead may have ended before
            before = middle * (1 - CLOSE / 2)
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
    """The latencies between different devices."""
    comm = np.asarray(costs.comm, np.float64)
    if comm.ndim == 0:
        return comm.reshape(1)
    return np.asarray(comm[~np.eye(len(comm), dtype=np.bool_)], np.float64)


def _range_text(low: float | None, high: float | None, now: float) -> str:
    """Return a range of times in words, rounded so that it lies inside: to three digits, or to four
    where an end is near the present time.
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
