"""Price, energy and goodput of plans, from what a cluster file says of running it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ppsim.engine.detailed.cluster import Operation
from ppsim.workload.hardware.hardware import machines
from ppsim.workload.plans.operation import goodput, step_kwh, step_price
from tests.commands import invoke

QUICK = [
    "plan",
    "--model",
    "llama3-8b",
    "--gpus",
    "8",
    "--gbs",
    "8",
    "--seq",
    "4096",
    "--pp",
    "1",
    "--tp",
    "1,2",
]


def test_a_step_costs_its_gpu_hours():
    operation = Operation(price_per_gpu_hour=2.0, watts_per_gpu=1000)
    assert step_price(operation, 100, 36.0) == pytest.approx(2.0)
    assert step_kwh(operation, 100, 36.0) == pytest.approx(1.0)
    assert (
        step_price(Operation(), 8, 1.0),
        step_kwh(Operation(), 8, 1.0),
        goodput(Operation(), 8),
    ) == (None,) * 3


def test_no_other_interval_of_checkpoints_loses_less():
    """Of 16,384 GPUs one fails every 2.8 hours (Llama 3, arXiv 2407.21783, which kept more than 90
    % effective).
    """
    operation = Operation(gpu_hours_per_failure=45600, checkpoint_s=5, restart_s=300)
    share, interval = goodput(operation, 16384) or (0.0, 0.0)
    assert 0.9 < share < 0.95
    between = 45600 * 3600 / 16384
    others = np.geomspace(1, between, 1000)
    lost = 5 / others + (others / 2 + 300) / between
    assert 1 - share <= lost.min() * (1 + 1e-12)
    assert others[lost.argmin()] == pytest.approx(interval, rel=0.01)
    assert goodput(Operation(gpu_hours_per_failure=1, restart_s=1e9), 8) == (0.0, 0.0)


def test_a_plan_says_what_the_cluster_file_allows(tmp_path):
    text = Path(machines()["dgx-h100"]).read_text()
    path = tmp_path / "mine.toml"
    path.write_text(
        text
        + "\n[operation]\nprice_per_gpu_hour = 2.5\nwatts_per_gpu = 1275\ngpu_hours_per_failure = "
        "45600\n"
    )
    found = json.loads(invoke(*QUICK, "--cluster", str(path), "--json").stdout)["plans"][0]
    assert found["price"] == pytest.approx(2.5 * 8 * found["step_s"] / 3600)
    assert found["kwh"] == pytest.approx(1.275 * 8 * found["step_s"] / 3600)
    shown = invoke(*QUICK, "--cluster", str(path)).stdout
    assert "a step costs" in shown
    assert "of the time trains" in shown
    assert "a step costs" not in invoke(*QUICK, "--cluster", "dgx-h100").stdout
    path.write_text(text + "\n[operation]\nprice_per_gpu_hour = -1\n")
    assert "must be more than 0" in str(invoke(*QUICK, "--cluster", str(path)).exception)


def test_replicas_may_be_given():
    rows = json.loads(invoke(*QUICK, "--cluster", "dgx-h100", "--dp", "4", "--json").stdout)[
        "plans"
    ]
    assert {row["dp"] for row in rows} == {4}
    assert "leave out --dp" in str(
        getattr(invoke(*QUICK, "--cluster", "dgx-h100", "--dp", "3").exception, "hint", "")
    )
