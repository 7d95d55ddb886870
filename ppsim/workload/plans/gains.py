"""Gains of one schedule over another in the same layout, with their uncertainty."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ppsim.base.numbers import format_change, format_number

# Largest error of a predicted gain in four cases of five, as a logarithm of the ratio of two steps.
# Fitted on published runs that differ in schedule only, with equal weight for each source; 70 of 78
# gains lie in the range given by other sources (python -m tests.benchmarks.measurements
# gain-ranges).
HALF = 0.061


@dataclass(frozen=True)
class Gain:
    """The relative gain in throughput of a schedule over another.

    Attributes:
        baseline: the name of the other schedule.
        share: the gain: 0.087 is 8.7% more training in the same time.
        low: lower end of the range that holds four gains in five; None if the range is not known.
        high: upper end of that range, or None.
    """

    baseline: str
    share: float
    low: float | None = None
    high: float | None = None

    @property
    def text(self) -> str:
        """The gain with its range, such as '+8.7% (3 to 14%)'."""
        gain = format_change(self.share)
        if self.low is None or self.high is None:
            return gain
        low, high = (format_number(round(100 * end)) for end in (self.low, self.high))
        return f"{gain} ({low} to {high}%)"

    def to_json(self) -> dict[str, float | str | None]:
        """Return the gain as keys of a JSON object."""
        return {
            "gain_over": self.baseline,
            "gain": self.share,
            "gain_low": self.low,
            "gain_high": self.high,
        }


def gain_of(over: str, base_s: float, step_s: float, *, is_sliced: bool = False) -> Gain:
    """Return the gain of a schedule over another one.

    Gains of schedules that cut sequences have no range: only three were measured, all over 1f1b and
    by one source, and all are 6 to 7 percentage points below the predictions.

    Args:
        over: the name of the other schedule.
        base_s: seconds of a step with the other schedule.
        step_s: seconds of a step with this schedule.
        is_sliced: whether one of both schedules cuts sequences into slices.
    """
    gain = base_s / step_s - 1
    if is_sliced:
        return Gain(over, gain)
    far = math.exp(HALF)
    return Gain(over, gain, (1 + gain) / far - 1, (1 + gain) * far - 1)
