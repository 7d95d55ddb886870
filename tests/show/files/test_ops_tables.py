"""A run written as a table of ops and read back is the run, in each format."""

import json
from pathlib import Path

import numpy as np
import pytest

from ppsim.real.traces.read import read_run
from tests.commands import invoke, refused
from tests.real_runs import PRIMUS, STRAGGLERS

SUFFIXES = ("csv", "jsonl", "parquet")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_all_replicas_and_collectives_of_a_job_come_back(suffix, tmp_path):
    target = tmp_path / f"x.ops.{suffix}"
    invoke("convert", str(STRAGGLERS), "-o", str(target))
    meant, back = read_run([str(STRAGGLERS)]).job, read_run([str(target)]).job
    assert meant is not None
    assert back is not None
    assert (back.step_ops, back.unit) == (meant.step_ops, "s")
    for name in (
        "iterations",
        "replicas",
        "start",
        "end",
        "transfer",
        "step_op_start",
        "step_op_end",
    ):
        assert np.allclose(
            getattr(back, name), getattr(meant, name), rtol=0, atol=1e-12, equal_nan=True
        ), name


@pytest.mark.sampled(5)
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", ["dualpipe-v", "1f1b"])
def test_a_simulated_run_comes_back_with_its_pairs_and_unit(name, suffix, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shape = ("--devices", "4", "--mb", "8", "--tf", "1", "--ti", "1.25", "--comm", "0.25", "-q")
    invoke("run", "-s", name, *shape, "-o", f"x.ops.{suffix}", "-o", "x.json")
    run, value = read_run([f"x.ops.{suffix}"]), json.loads(Path("x.json").read_text())
    assert run.unit == "t_F"
    assert run.start[0].tolist() == value["ops"]["start"]
    assert run.schedule.pair.tolist() == value["ops"]["pair"]
    assert f"{name}: 4 devices" in invoke("read", f"x.ops.{suffix}").output


@pytest.mark.slow
def test_a_run_of_one_replica_is_written_whole_or_one_iteration(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    invoke("convert", str(PRIMUS), "-o", "all.ops.csv")
    invoke("convert", str(PRIMUS), "-o", "one.ops.csv", "--iteration", "7")
    whole, one, meant = (
        read_run(["all.ops.csv"]),
        read_run(["one.ops.csv"]),
        read_run([str(PRIMUS)]),
    )
    assert whole.iterations.tolist() == meant.iterations.tolist()
    assert np.allclose(whole.end, meant.end - meant.start.min(axis=1, keepdims=True))
    assert len(one.iterations) == 1
    assert np.allclose(one.makespans, meant.select("7").makespans)


def test_a_schedule_without_times_is_timed_and_its_unit_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    invoke("run", "-s", "1f1b", "--devices", "4", "--mb", "8", "-q", "-o", "x.csv")
    invoke("convert", "x.csv", "-o", "x.ops.csv", "--tf", "2", "--unit", "ms")
    assert read_run(["x.ops.csv"]).unit == "ms"
    assert "has times, so --tf cannot be given too" in str(
        refused("convert", "x.ops.csv", "-o", "y.csv", "--tf", "1")
    )
    invoke("convert", "x.ops.csv", "-o", "y.csv", "--lossy")
    assert Path("y.csv").read_text() == Path("x.csv").read_text()
