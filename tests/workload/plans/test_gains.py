"""Gains of one schedule over another, as people read them."""

from __future__ import annotations

import pytest

from ppsim.workload.plans.gains import Gain


@pytest.mark.parametrize(
    ("gain", "says"),
    [
        (Gain("1f1b", 0.088, 0.028, 0.151), "+8.8% (3 to 15%)"),
        (Gain("1f1b", 0.0, -0.055, 0.058), "0.0% (−6 to 6%)"),
        (Gain("1f1b", -0.0598, -0.1119, -0.0045), "−6.0% (−11 to 0%)"),
        (Gain("1f1b", -0.02), "−2.0%"),
    ],
)
def test_a_gain_and_its_range_have_the_same_minus(gain, says):
    """A true minus, and none before zero."""
    assert gain.text == says
