"""Launchers are found by a scan: one file writes the launch flags of a software."""

from __future__ import annotations

import base64
import gzip
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ppsim.schedules import families
from ppsim.workload.layout.layout import build_layout
from ppsim.workload.model.model import read_trained
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans.launcher import launch_text, launcher_names, launcher_of
from ppsim.workload.plans.software import read_software
from tests.commands import answers_with

THIRD = """
from ppsim.errors import InputError
from ppsim.workload.plans.launcher import Launcher


def write(model, parallel, layout):
    if parallel.tp > 2:
        raise InputError("deepspeed divides tensors over two ranks here", "--tp 1,2")
    return [f"pipe_stages = {parallel.pp}", f"gas = {parallel.microbatches}"]


LAUNCHER = Launcher(
    title="DeepSpeed",
    software="deepspeed",
    schedules=("1f1b",),
    write=write,
    note=lambda parallel: f"DeepSpeed starts {parallel.gpus} processes",
)
"""
LINE = "plan --model llama3-8b --cluster dgx-h100 --gpus 16 --gbs 32 --pp 2"
PLAN = LINE.split()


def answers_with_third(launcher: str, folder: Path, *lines: list[str]) -> list[Any]:
    """Return what commands say in an interpreter that finds one more launcher, ``third``."""
    (folder / "third.py").write_text(launcher)
    return answers_with("ppsim.workload.plans.launch", folder, lines)


@pytest.mark.slow
def test_a_launcher_is_one_file(tmp_path):
    """Its name is a value of --flags; plans have its schedules, its flags and its note, and its
    page shows the others' flags as well.
    """
    plan, page, other, several = answers_with_third(
        THIRD,
        tmp_path,
        [*PLAN, "--flags", "third"],
        [*PLAN, "--flags", "third", "-o", "plans.html"],
        [*PLAN, "--flags", "third", "--software", "megatron-lm"],
        [*PLAN, "--flags", "third", "--tp", "4", "--layouts", "even"],
    )
    assert plan[0] == 0, plan
    assert "pipe_stages = " in plan[1]
    assert "DeepSpeed starts 16 processes" in plan[1]
    assert "1f1b" in plan[1]
    assert "zb" not in plan[1]
    assert page[0] == 0, page
    packed = re.search(r'"flags":"([^"]+)"', (tmp_path / "plans.html").read_text())
    assert packed
    flags = gzip.decompress(base64.b64decode(packed[1])).decode()
    assert all(title in flags for title in ("DeepSpeed", "Megatron-LM", "torchtitan"))
    assert other[0] == 2
    assert "--software deepspeed" in other[2]
    assert "deepspeed divides tensors over two ranks here" in several[1] + several[2]


def test_each_launcher_is_of_a_software_that_says_so():
    """The software of a plan that names none has these flags, or none of another launcher."""
    assert launcher_names() == ["megatron", "torchtitan"]
    known = {family.name for family in families()}
    for name in launcher_names():
        launcher = launcher_of(name)
        assert read_software(launcher.software).software.launched_by in ("", name)
        assert {*launcher.schedules} <= known


def test_flags_are_one_a_line_and_a_file_is_its_lines():
    """As a shell reads them, and as TOML does; a note says what flags leave out, and
    what tensor ranks need.
    """
    model, layout = read_trained("llama3-8b", None), build_layout([16, 16], 2, 0)
    parallel = Parallel(pp=2, microbatches=4, schedule="1f1b")
    flags = launch_text("megatron", model, parallel, layout)
    assert flags.startswith("--num-layers 32 \\\n  --hidden-size 4096 \\\n  --")
    assert shlex.split(flags.replace("\\\n", ""))[:3] == ["--num-layers", "32", "--hidden-size"]
    toml = tomllib.loads(launch_text("torchtitan", model, parallel, layout))
    assert toml["parallelism"]["pipeline_parallel_degree"] == 2
    note = launcher_of("megatron").note
    variable = "CUDA_DEVICE_MAX_CONNECTIONS=1"
    assert variable not in note(parallel)
    assert variable in note(Parallel(pp=2, tp=2, microbatches=4))
    assert "add rotary base" in note(parallel)
    assert launcher_of("torchtitan").note(parallel) == ""
