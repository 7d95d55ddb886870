"""Gains of one schedule over another, as people read them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from ppsim.workload.plans.gains import HALF, Gain, gain_of
from ppsim.workload.plans.published import against, read_table

RUNS = Path(__file__).parents[2] / "data" / "published" / "measured_runs_4.json.gz"


@pytest.mark.parametrize(
    ("gain", "says"),
    [
        (Gain("1f1b", 0.088, 0.028, 0.151), "+8.8% (3 to 15%)"),
        (Gain("1f1b", 0.0, -0.055, 0.058), "0.0% (−6 to 6%)"),
        (Gain("1f1b", -0.0598, -0.1119, -0.0045), "−6.0% (−11 to 0%)"),
        (Gain("1f1b", -0.02), "−2.0%"),
        (Gain("1f1b", 0.087, -0.038, 0.228, False), "+8.7% (−4 to 23%, unchecked)"),
    ],
)
def test_a_gain_and_its_range_have_the_same_minus(gain, says):
    """A true minus, and none before zero."""
    assert gain.text == says


def test_gains_of_sliced_sequences_have_twice_the_range_and_hold_the_three_that_were_measured():
    """Seq1F1B over 1F1B on A100; no other source has such runs, so the range is unchecked."""
    steps: dict[str, dict[str, Any]] = {}
    for row in against([r for r in read_table(str(RUNS)) if r.get("set") != "faulty"])[0]:
        job, _, schedule = row["id"].rpartition("-")
        steps.setdefault(job, {})[schedule] = row
    pairs = [both for both in steps.values() if {"1f1b", "seq1f1b"} <= both.keys()]
    assert len(pairs) == 3
    for both in pairs:
        plain, sliced = (both[name] for name in ("1f1b", "seq1f1b"))
        modelled = (row["modelled_step_s"] for row in (plain, sliced))
        gain = gain_of("1f1b", *modelled, is_sliced=True)
        measured = plain["measured_step_s"] / sliced["measured_step_s"] - 1
        assert gain.low is not None
        assert gain.high is not None
        assert gain.low < measured < gain.share
        assert not gain.checked
        assert (1 + gain.high) / (1 + gain.low) == pytest.approx(math.exp(4 * HALF))
    assert gain_of("1f1b", 1.1, 1.0).checked
