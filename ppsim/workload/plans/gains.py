"""Gains of one schedule over another in the same layout, with their uncertainty."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ppsim.base.numbers import format_change, format_number

# Largest error of a predicted gain in four cases of five, as a logarithm of the ratio of two steps.
# Fitted on published runs that differ in schedule only, with equal weight for each source; 70 of 78
# gains lie in the range given by other sources (python -m tests.benchmarks.measurements
# gain-ranges).
HALF = 0.056
# The same for schedules that cut sequences into slices: twice as much, as nothing checks it. Three
# gains were measured, by one source; the predicted ones are 0.053 to 0.056 too high.
UNCHECKED = 2 * HALF


@dataclass(frozen=True)
class Gain:
    """The relative gain in throughput of a schedule over another.

    Attributes:
        baseline: the name of the other schedule.
        share: the gain: 0.087 is 8.7% more training in the same time.
        low: lower end of the range that holds four gains in five; None without a range.
        high: upper end of that range, or None.
        checked: whether the range was checked with the gains of sources that it was not fitted on.
    """

    baseline: str
    share: float
    low: float | None = None
    high: float | None = None
    checked: bool = True

    @property
    def text(self) -> str:
        """The gain with its range, such as '+8.7% (3 to 14%)' or '+8.7% (−4 to 23%, unchecked)'."""
        gain = format_change(self.share)
        if self.low is None or self.high is None:
            return gain
        low, high = (format_number(round(100 * end)) for end in (self.low, self.high))
        return f"{gain} ({low} to {high}%{'' if self.checked else ', unchecked'})"

    def to_json(self) -> dict[str, float | str | bool | None]:
        """Return the gain as keys of a JSON object."""
        return {
            "gain_over": self.baseline,
            "gain": self.share,
            "gain_low": self.low,
            "gain_high": self.high,
            "gain_checked": self.checked,
        }


def gain_of(over: str, base_s: float, step_s: float, *, is_sliced: bool = False) -> Gain:
    """Return the gain of a schedule over another one, with its range.

    Args:
        over: the name of the other schedule.
        base_s: seconds of a step with the other schedule.
        step_s: seconds of a step with this schedule.
        is_sliced: whether one of both schedules cuts sequences into slices.
    """
    gain = base_s / step_s - 1
    far = math.exp(UNCHECKED if is_sliced else HALF)
    return Gain(over, gain, (1 + gain) / far - 1, (1 + gain) * far - 1, not is_sliced)
