"""Stages of the user's own run for real, with the gradients of one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ppsim.core.costs import costs_for
from ppsim.core.ops import Kind
from ppsim.core.schedule import Schedule
from ppsim.engine.lowering.lower import lower
from ppsim.errors import InputError
from ppsim.real.calibration.processes import ranks
from ppsim.real.calibration.user_module import UserModule, make_stage
from ppsim.real.runs import own_runner
from ppsim.real.runs.turns import RunPlan, Settings
from ppsim.schedules import generate
from tests.commands import invoke, refused
from tests.real.runs.cases import plan_of

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm_processes")]
FILE = str(Path(__file__).parents[2] / "data" / "module.py")
NAMES = {
    2: ("1f1b", "zb-h2", "interleaved", "dualpipe-v", "dualpipe"),
    4: ("gpipe", "zb-1p", "looped-bfs", "1f1b-overlap"),
}


def _gradients(rank, say, meeting, entries, lowered, module):
    """One iteration of every queue; each one's gradients of this process's stages."""
    import torch

    from ppsim.real.runs import tasks
    from ppsim.real.runs.turns import join

    join(rank, meeting, Settings(), len(entries))
    for queue, low in zip(entries[rank], lowered, strict=True):
        task = tasks.ComputingTasks(low, rank, module)
        own_runner.run_queue(queue, task, 0)
        say({s: [p.grad.numpy() for p in stage.parameters()] for s, stage in task.module.items()})
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def reference(schedule: Schedule, module: UserModule) -> dict[int, list[np.ndarray]]:
    """Gradients of the whole model in one process, by plain autograd."""
    from ppsim.real.runs import tasks

    stages = [make_stage(module, s, schedule.n_stages, "cpu") for s in range(schedule.n_stages)]
    for m in range(schedule.n_microbatches):
        x = tasks.example_batch(stages[0].example, m)
        for stage in stages:
            x = stage.module(x)
        x.backward()
    return {
        s: [p.grad.numpy() for p in stage.module.parameters()] for s, stage in enumerate(stages)
    }


@pytest.mark.parametrize(("devices", "function"), [(2, "own"), (4, "stage"), (2, "several")])
def test_gradients_of_every_schedule_are_those_of_one_process(devices, function):
    """Float64, to 1e-12 of the largest; chunks, pairs and two replicas; also with the user's own
    functions.
    """
    pytest.importorskip("torch")
    module = UserModule(FILE, function)
    plans = [plan_of(name, devices, 2 * devices) for name in NAMES[devices]]
    entries = [[own_runner.entries_of(plan, device) for plan in plans] for device in range(devices)]
    got: list[list[Any]] = [[] for _ in range(devices)]
    with ranks(_gradients, devices, entries, [plan.lowered for plan in plans], module) as messages:
        for rank, found in messages:
            got[rank].append(found)
    for number, plan in enumerate(plans):
        for stage, wanted in reference(plan.lowered.compute, module).items():
            shares = [found[number][stage] for found in got if stage in found[number]]
            for parts, whole in zip(zip(*shares, strict=True), wanted, strict=True):
                assert np.abs(sum(parts) - whole).max() <= 1e-12 * np.abs(whole).max(), (
                    plan.name,
                    stage,
                )


def test_messages_and_steps_of_fsdp_are_the_users_where_there_are_functions_for_them():
    """Gradients are those of one process, doubled once by REDUCE_GRAD; three of four stages are
    gathered at once.
    """
    pytest.importorskip("torch")
    module, names = UserModule(FILE, "handled"), ("1f1b", "zb-h2", "dualpipe-v")
    four = generate("interleaved", devices=2, microbatches=4, chunks=4)
    plans = [plan_of(name) for name in names] + [
        RunPlan("4 chunks", lower(four, batch=True), costs_for(four))
    ]
    entries = [
        [own_runner.entries_of(plan, device, steps=True) for plan in plans] for device in range(2)
    ]
    freed = [[e.kind for e in entries[device][-1]].count(Kind.RESHARD) for device in range(2)]
    assert min(freed) > 4
    got: list[list[Any]] = [[] for _ in range(2)]
    with ranks(_gradients, 2, entries, [plan.lowered for plan in plans], module) as messages:
        for rank, found in messages:
            got[rank].append(found)
    for number, plan in enumerate(plans):
        for stage, wanted in reference(plan.lowered.compute, UserModule(FILE, "stage")).items():
            share = next(found[number][stage] for found in got if stage in found[number])
            for part, whole in zip(share, wanted, strict=True):
                assert np.abs(part - 2 * whole).max() <= 1e-12 * np.abs(whole).max(), (
                    plan.name,
                    stage,
                )


@pytest.mark.parametrize(
    ("schedules", "function", "options"),
    [
        (("1f1b", "interleaved"), "stage", ()),
        (("1f1b", "interleaved"), "handled", ()),
        (("zb-1p", "1f1b"), "stage", ("--runner", "torch")),
    ],
    ids=["own runner", "own messages and FSDP", "torch's runtime"],
)
def test_a_model_of_the_users_is_validated(schedules, function, options):
    """Schedules with different numbers of stages are priced by their own; prints stay off standard
    output.
    """
    pytest.importorskip("torch")
    words = (
        "--devices",
        "2",
        "--mb",
        "4",
        "--repeats",
        "2",
        "--module",
        f"{FILE}:{function}",
        "--tolerance",
        "100%",
    )
    result = invoke("validate", *schedules, *words, *options, "--json")
    assert result.exit_code in (0, 1), result.output
    value = json.loads(result.stdout)
    assert [row["name"] for row in value["schedules"]] == list(schedules)
    assert value["settings"]["module"] == f"{FILE}:{function}"
    assert value["settings"]["message_bytes"] == 3 * 6 * 8


def test_torchs_runtime_takes_no_functions_of_the_users():
    pytest.importorskip("torch")
    words = (
        "validate",
        "1f1b",
        "--devices",
        "2",
        "--mb",
        "4",
        "--runner",
        "torch",
        "--module",
        f"{FILE}:own",
    )
    error = refused(*words)
    assert isinstance(error, InputError)
    assert "torch's runtime cannot call your functions for F, B, I, W, FB" in str(error)
    assert error.hint == "--runner own"


def test_a_send_that_fails_names_its_stage():
    pytest.importorskip("torch")
    words = ("--devices", "2", "--mb", "2", "--repeats", "1", "--module", f"{FILE}:fails_to_send")
    said = f"process 0: {FILE}, SEND_F of stage 0, fails: OSError: no such link"
    assert str(refused("validate", "1f1b", *words)).startswith(said)


def test_code_that_fails_in_a_process_of_the_run_is_bad_input(tmp_path):
    """It names the process, the op and the line, and no process is left (see the tests of
    failures).
    """
    pytest.importorskip("torch")
    path = tmp_path / "late.py"
    path.write_text(
        "import multiprocessing, torch\n"
        "class Late(torch.nn.Linear):\n"
        "    def forward(self, x):\n"
        "        if multiprocessing.parent_process() and x.requires_grad:\n"
        "            raise ValueError('only in a run')\n"
        "        return super().forward(x)\n"
        "def stage(stage, stages, device):\n"
        "    return Late(4, 4), torch.randn(2, 4)\n"
    )
    error = refused(
        "validate", "1f1b", "--devices", "2", "--mb", "2", "--repeats", "1", "--module", str(path)
    )
    assert isinstance(error, InputError)
    assert (
        str(error) == f"process 1: {path}, F of stage 1, fails: ValueError: only in a run (line 5)"
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--ops", "timed"), "--module makes stages that compute"),
        (("--hidden", "64"), "--module makes the stages, so --hidden"),
        (("--runner", "partitioned"), "not those of --module"),
        (
            ("--profile", str(Path(FILE).parents[2] / "gallery" / "profile-cpu.toml")),
            "not of a module's stages",
        ),
    ],
)
def test_options_that_do_not_go_with_a_module_are_refused(words, says):
    assert says in str(
        refused("validate", "1f1b", "--devices", "2", "--mb", "2", "--module", FILE, *words)
    )


def test_only_a_pair_of_the_users_own_is_priced_as_one():
    """A run does the two ops of any other pair one after the other, so they cost what they cost
    alone.
    """
    pytest.importorskip("torch")
    from ppsim.real.calibration.user_ops import measure_stages

    for function, wanted in (("stage", set()), ("own", {0, 1})):
        module = UserModule(FILE, function)
        times, _ = measure_stages(
            module, 2, "cpu", repeats=1, warm_up=0, tick=lambda _: None, together=False
        )
        assert {op.stage for op in times if op.kind == "FB"} == wanted
