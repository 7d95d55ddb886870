"""The command for a lent GPU on its stand-in, and what it recorded on a real one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from ppsim.real.runs.record import Record, load
from ppsim.real.traces.read import read_run
from ppsim.real.validation.analyse import validate
from ppsim.real.validation.verdict import Validation
from ppsim.schedules import recognise
from tests.commands import ROOT, invoke
from tests.gpu.__main__ import main as command
from tests.real.runs.cases import assert_causal
from tests.warm_processes import warm_context

DATA = ROOT / "tests" / "data" / "gpu"
GPUS = {"h100": "NVIDIA H100 80GB HBM3", "h200": "NVIDIA H200"}
RECORDS = [
    f"{gpu}/{name}" for gpu in GPUS for name in ("partitioned-p2", "partitioned-p4", "offload")
]


@cache
def recorded(name: str) -> Record:
    return load(str(DATA / f"{name}.json.gz"))


@cache
def validated(name: str) -> Validation:
    return validate(recorded(name))


class Forked:
    """A process of a part that has torch when it starts, as ``subprocess.Popen`` gives one."""

    def __init__(self, words: list[str], *, stdout: Any, **_: Any) -> None:
        context: Any = warm_context()
        given = (dict(os.environ), stdout.name, words[3:])
        self._process = context.Process(target=_run_words, args=given)
        self._process.start()
        self.pid: int = self._process.pid

    def wait(self, limit: float | None = None) -> int:
        self._process.join(limit)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a part", limit or 0.0)
        code: int = self._process.exitcode
        return code


def _run_words(environment: dict[str, str], log: str, words: list[str]) -> None:
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    with open(log, "ab") as file:
        for ours in (1, 2):
            os.dup2(file.fileno(), ours)
    command.main(words, standalone_mode=False)


@pytest.mark.slow
@pytest.mark.torch
def test_every_part_runs_on_the_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each part ends by itself and leaves numbers; all files together are few and small."""
    pytest.importorskip("torch")
    monkeypatch.setattr(
        "tests.gpu.__main__.subprocess", SimpleNamespace(**vars(subprocess) | {"Popen": Forked})
    )
    words = [str(tmp_path), "--device", "stand-in", "--minutes", "30"]
    ran = CliRunner().invoke(command, words, catch_exceptions=False)
    assert len(ran.stdout.splitlines()) <= 11 + 60
    assert "FAILED" not in ran.stdout, ran.stdout
    assert "exit code" not in ran.stdout, ran.stdout
    files = list(tmp_path.iterdir())
    assert len(files) == 8
    assert sum(path.stat().st_size for path in files) < 40 << 20
    results = json.loads((tmp_path / "results.json").read_text())
    assert {"split", "layers", "copies", "recorder", "gradients"} < results.keys()


@pytest.mark.slow
@pytest.mark.torch
def test_a_part_is_a_process_that_may_fail(tmp_path: Path):
    """The command goes on after it, and says so in its table: here a GPU is missing."""
    words = [sys.executable, "-m", "tests.gpu", str(tmp_path), "--only", "copies"]
    ran = subprocess.run(
        words,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"^copies +\d+ s +exit code 1$", ran.stdout, re.M)
    assert re.search(r"MISS FAILED: \w+: .*\(\w+\.py:\d+\)", ran.stdout)


@pytest.mark.torch
def test_a_deferred_backward_gives_autograd_s_gradients():
    torch = pytest.importorskip("torch", reason="computes gradients")
    from ppsim.inputs.profile.profile import Workload
    from ppsim.real.calibration import stage
    from ppsim.real.calibration.stage_ops import stage_ops
    from tests.gpu.deferred import deferred_ops

    model = Workload(16, 2, 8, 1, 2, "float64", 0)
    modules = []
    for make in (lambda module: stage_ops(module, first=False), deferred_ops):
        torch.manual_seed(0)
        module = stage.layers(model, 2, "cpu")
        ops, x = make(module), stage.activations(model, "cpu")
        for _ in range(2):
            out = ops.forward(x)
            ops.backward_weight(ops.backward_input(x, out, torch.ones_like(out))[1])
        modules.append(module)
    for one, other in zip(*(module.parameters() for module in modules), strict=True):
        assert torch.equal(one.grad, other.grad)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", RECORDS)
def test_runs_on_parts_of_a_gpu_are_predicted_within_the_goals(name):
    """Replay within 3 %, costs from other schedules' runs within 8 % (medians); no op before its
    input.
    """
    record, result = recorded(name), validated(name)
    assert record.provenance["device"] == GPUS[name.split("/")[0]]
    assert np.median(result.errors("replay")) <= 0.03
    assert np.median(result.errors("held-out")) <= 0.08
    for run in record.runs:
        if run.lowered.compute.has_lanes:  # marks of different streams are in no order
            continue
        # a GPU's events are half a microsecond apart, a message's leave is the host's
        assert_causal(run, slack=0.03)


@pytest.mark.slow
def test_schedules_on_parts_of_a_gpu_are_ranked():
    """Of pairs more than 2 % apart, 95 % are."""
    results = [validated(name) for name in RECORDS]
    assert sum(result.pairs for result in results) >= 40
    assert sum(result.ranked_right for result in results) >= 0.95 * sum(
        result.pairs for result in results
    )


@pytest.mark.parametrize("gpu", GPUS)
def test_copies_to_the_host_were_run(gpu: str):
    lanes = [run.lowered.compute.has_lanes for run in recorded(f"{gpu}/offload").runs]
    assert lanes == [False, True, False, True]


@pytest.mark.parametrize("gpu", GPUS)
def test_a_trace_of_a_gpu_shows_every_backward(gpu: str):
    """Autograd launches a backward's kernels from a thread that the GPU's own spans do not
    cover.
    """
    run = read_run([str(DATA / gpu / "trace.json.gz")])
    schedule = run.schedule
    assert (schedule.n_devices, schedule.n_stages, schedule.n_microbatches) == (1, 4, 8)
    assert recognise(schedule) == "interleaved"
    took = run.end - run.start
    forward, backward = took[:, schedule.kind == 0], took[:, schedule.kind == 1]
    assert forward.size == backward.size == 32
    assert 2.0 < np.median(backward) / np.median(forward) < 3.0


@pytest.mark.parametrize("gpu", GPUS)
def test_the_profile_of_a_gpu_prices_schedules(gpu: str):
    profile = f"gallery/profile-{gpu}.toml"
    words = ["compare", "1f1b", "zb-1p", "--devices", "4", "--mb", "8", "--profile", profile]
    result = invoke(*words, "--json")
    assert result.exit_code == 0, result.output
