"""Devices on parts of one GPU: order, gradients and record of the executor, here on a processor;
what set the pace.
"""

from __future__ import annotations

import sys
import time
from itertools import product

import numpy as np
import pytest

from ppsim.core.ops import SENDS
from ppsim.errors import PpsimError
from ppsim.real.calibration.processes import ranks
from ppsim.real.runs.record import Measured, Record, dump, load
from ppsim.schedules import generate
from tests.cases import PLAIN
from tests.commands import refused
from tests.real.runs.cases import MODEL, SHAPE, assert_causal, plan_of, quiet, reference, run_with
from tests.refresh_records import FOLDER

torch = pytest.importorskip("torch", reason="runs stages")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm_processes")]

from ppsim.real.runs import own_runner, partitioned, session, streams, tasks  # noqa: E402
from ppsim.real.validation.analyse import validate  # noqa: E402
from ppsim.real.validation.overlay import overlay_document  # noqa: E402
from tests.fake_cuda import FakeCuda  # noqa: E402

# On a processor.


@pytest.mark.parametrize("name", PLAIN)
def test_every_schedule_finishes_with_the_gradients_of_plain_autograd(name):
    """Float64, to 1e-12 of the largest; replicas of a stage share the microbatches; forwards alone
    leave none.
    """
    plan = plan_of(name)
    each = [tasks.ComputingTasks(plan.lowered, device, MODEL) for device in range(2)]
    found = partitioned.run_queues(
        partitioned.order_entries(plan), each, streams.Serial(2), time.monotonic_ns()
    )
    once = (plan.lowered.schedule.pair < 0) | (
        plan.lowered.schedule.pair > np.arange(len(plan.lowered.schedule))
    )
    assert sum(len(times) for times, _ in found.values()) == once.sum()
    if plan.lowered.schedule.only_forwards:
        assert all(
            p.grad is None
            for task in each
            for module in task.module.values()
            for p in module.parameters()
        )
        return
    for stage, wanted in reference(plan.lowered.compute).items():
        held = [task.module[stage].parameters() for task in each if stage in task.module]
        for parts, whole in zip(zip(*held, strict=True), wanted, strict=True):
            assert (
                np.abs(sum(p.grad.numpy() for p in parts) - whole).max()
                <= 1e-12 * np.abs(whole).max()
            )


@pytest.mark.parametrize(
    ("name", "devices"), [*product(["zb-h2", "interleaved", "dualpipe", "dualpipe-v"], (2, 4))]
)
def test_the_host_issues_every_queue_in_its_order_and_nothing_before_its_input(name, devices):
    plan = plan_of(name, devices, 2 * devices)
    order = partitioned.order_entries(plan)
    for device in range(devices):
        assert [e.op for d, e in order if d == device] == [
            e.op for e in own_runner.entries_of(plan, device)
        ]
    sent: set[tuple[int, int, int]] = set()
    for _, entry in order:
        assert sent.issuperset(entry.needs)
        if entry.kind in SENDS:
            sent.add(partitioned._receive_of(entry))


def test_a_session_is_one_record_that_is_causal_and_survives_a_file(tmp_path):
    """The whole flow of a GPU, with all devices on one processor: ops alone, the run, the record,
    the comparison.
    """
    request = session.Request(runner="partitioned", device="cpu", repeats=2, warm_up=1, **SHAPE)
    schedules = [generate(name, devices=2, microbatches=4) for name in ("1f1b", "dualpipe")]
    record, failure = session._measure(schedules, request, quiet)
    assert failure == ""
    assert record.settings["emulation"] == partitioned.LABEL
    assert record.settings["interference"] > 0
    path = tmp_path / "run.json.gz"
    path.write_bytes(dump(record, str(path)))
    again = load(str(path))
    for run in again.runs:
        assert run.start.shape[0] == 2
        assert run.issued is None
        assert_causal(run, slack=0.002)
    result = validate(again)
    assert [v.run.name for v in result.verdicts] == ["1f1b", "dualpipe"]
    assert partitioned.LABEL in overlay_document(result, again).title


def _outgrows(rank, say, meeting, settings, devices, orders, plans):
    say((0, 0, {0: ([], 0), 1: ([], 0)}))
    raise RuntimeError(
        "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 80 GiB"
    )


def test_a_gpu_that_runs_out_of_memory_is_said_so():
    says = pytest.raises(PpsimError, match="process 0 ran out of memory: CUDA out of memory")
    with says as caught, ranks(_outgrows, 1, None, 2, [], []) as messages:
        list(messages)
    assert "--hidden" in caught.value.hint


# Who sets the pace.


@pytest.mark.parametrize(
    ("ahead", "bound"), [(50.0, False), (5.0, False), (0.5, True), (-0.1, True)]
)
def test_a_repetition_is_launch_bound_when_ops_end_as_soon_as_they_are_issued(ahead, bound):
    assert session.launch_bound(run_with(ahead)).tolist() == [bound]


def test_launch_bound_repetitions_are_left_out_and_a_run_of_nothing_else_is_refused():
    good, bad = run_with(50.0), run_with(0.1)
    columns = {
        k: np.concatenate([getattr(good, k), getattr(bad, k)])
        for k in ("posted", "start", "end", "issued")
    }
    both = Measured("1f1b", good.lowered, good.costs, device_end=np.zeros((2, 2)), **columns)
    (kept,), left_out = session.drop_launch_bound([both])
    assert left_out == {"1f1b": 1}
    assert kept.issued is not None
    assert (kept.end == good.end).all()
    with pytest.raises(PpsimError, match="1f1b is launch-bound") as caught:
        session.drop_launch_bound([bad])
    assert "--hidden" in caught.value.hint
    assert session.drop_launch_bound([good]) == ([good], {})


def test_when_the_host_issued_survives_a_file(tmp_path):
    run = run_with(50.0)
    path = tmp_path / "run.json"
    kept = load(str(FOLDER / "timed-p2.json.gz"))
    path.write_bytes(dump(Record((run,), kept.settings, kept.provenance), str(path)))
    again = load(str(path)).runs[0].issued
    assert again is not None
    assert run.issued is not None
    assert np.allclose(again, run.issued)


# What the command line says.


SMALL = ("validate", "-s", "1f1b", "--devices", "2", "--mb", "4")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--runner", "partitioned", "--device", "cpu"), "--device cpu excludes it"),
        (("--runner", "partitioned", "--ops", "timed"), "--ops timed computes nothing"),
        (("--ops", "timed", "--device", "cuda"), "only sleeps and uses no GPU"),
    ],
)
def test_what_does_not_go_together_is_refused_before_torch_is_looked_for(words, says, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert says in str(refused(*SMALL, *words))


def test_without_a_gpu_asking_for_one_is_exit_3():
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    for words in (("--runner", "partitioned"), ("--device", "cuda")):
        assert refused(*SMALL, *words).exit_code == 3


def test_fewer_gpus_than_devices_point_to_the_partitioned_runner(monkeypatch):
    FakeCuda(gpus=1).install(monkeypatch)
    error = refused(*SMALL, "--device", "cuda")
    assert "2 devices need a GPU each, and there are 1" in str(error)
    assert "--runner partitioned" in error.hint
    request = session.Request()
    assert session.device_of(request, 2) == "cpu"
    assert session.device_of(request, 1) == "cuda"
