"""How far the fitted model is from the runs that it was fitted on; slow, as it predicts a thousand of them."""

from __future__ import annotations

from pathlib import Path
from statistics import mean, median

import pytest

from ppsim.planning.efficiency import fitted
from ppsim.planning.published import against, read_table

pytestmark = pytest.mark.slow
DATA = Path(__file__).parents[1] / "data" / "published"
# Two runs that differ in one thing: recompute, layout and recompute lists, chunks, schedule.
PAIRS = [("p473", "p472"), ("p421", "p420"), ("p399", "p398"), ("p417", "p413"), ("p418", "p413")]


def table(name):
    return read_table(str(DATA / f"{name}.json.gz"))


def errors(rows):
    return [abs(row["error"]) for row in against(rows)[0] if "error" in row]


def test_megatrons_weak_scaling_is_within_eight_percent():
    """FLOP/s per GPU, mean absolute error."""
    rows, _ = against(table("megatron_weak_scaling"))
    assert mean(abs(1 / (1 + row["error"]) - 1) for row in rows) < 0.08


@pytest.mark.parametrize(("part", "most"), [("single", 0.08), ("multi", 0.12)])
def test_measured_a100_runs_are_within_eight_and_twelve_percent(part, most):
    """vTrain's measurements: on one node and on several."""
    found = errors([row for row in table("vtrain_a100") if f"ground_truth_{part}" in row["source"]])
    assert len(found) > 60
    assert mean(found) < most


def test_runs_with_a_pipeline_are_within_ten_percent():
    rows = [row for row in table("measured_runs") if row["tier"] in (1, 2) and (row["pp"] or 1) > 1]
    assert median(errors(rows)) < 0.1
    found = {row["id"]: row for row in against(rows)[0]}
    signs = {
        (fast, slow): [found[fast][key] < found[slow][key] for key in ("predicted_step_s", "measured_step_s")]
        for fast, slow in PAIRS
    }
    assert signs == {pair: [True, True] for pair in PAIRS}


def test_curves_say_what_they_were_fitted_on():
    said = (" runs, ", "no run", "no dense run")
    assert [curve.gpu for curve in fitted().curve if not any(text in curve.seen for text in said)] == []
