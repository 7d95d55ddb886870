"""Gains of one schedule over another in the same layout, and how sure they are."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ppsim.base.numbers import format_change, format_number

# How far a predicted gain is off in four cases of five, in logarithms of the ratio of two steps.
# Published runs that differ in schedule alone, each source counted alike; 70 of 78 gains lie in the
# range that the other sources give (python -m tests.benchmarks.measurements gain-ranges).
HALF = 0.061


@dataclass(frozen=True)
class Gain:
    """The gain of a schedule over another: the share of more training in the same time.

    Attributes:
        baseline: the name of the other schedule.
        share: the gain.
        low: its least in four cases of five; None where no measured gain says it.
        high: likewise, its most.
    """

    baseline: str
    share: float
    low: float | None = None
    high: float | None = None

    @property
    def text(self) -> str:
        """The gain with its range: +8.7% (3 to 14%)."""
        gain = format_change(self.share)
        if self.low is None or self.high is None:
            return gain
        low, high = (format_number(round(100 * end)) for end in (self.low, self.high))
        return f"{gain} ({low} to {high}%)"

    def to_json(self) -> dict[str, float | str | None]:
        """The keys of a row of JSON."""
        return {
            "gain_over": self.baseline,
            "gain": self.share,
            "gain_low": self.low,
            "gain_high": self.high,
        }


def gain_of(over: str, base_s: float, step_s: float, *, is_sliced: bool = False) -> Gain:
    """Return the gain of a step over that of another schedule.

    Gains of schedules that cut sequences into slices have no range: the three measured ones, over
    1f1b, are from one source, and all 6 to 7 points below the predicted ones.

    Args:
        over: the name of the other schedule.
        base_s: its step in seconds.
        step_s: of the schedule itself.
        is_sliced: whether one of them cuts sequences into slices.
    """
    gain = base_s / step_s - 1
    if is_sliced:
        return Gain(over, gain)
    far = math.exp(HALF)
    return Gain(over, gain, (1 + gain) / far - 1, (1 + gain) * far - 1)
