"""Devices on parts of one GPU: the same executor on a processor, and its GPU side against a stand-in for torch.cuda."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from ppsim.calibration.processes import ranks
from ppsim.cli import group
from ppsim.costs import costs_for
from ppsim.errors import InputError, MissingDependency, PpsimError
from ppsim.lowered import RECEIVES, SENDS
from ppsim.lowering import lower
from ppsim.ops import Kind
from ppsim.profile import Model
from ppsim.schedules import families, generate
from ppsim.validation.record import Measured, Record, dump, load
from ppsim.validation.turns import Plan, Settings
from tests.test_validate import assert_causal, reference

torch = pytest.importorskip("torch", reason="runs stages")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]

from ppsim.validation import pace, partitioned, runner, session, streams, tasks, torch_runner  # noqa: E402
from ppsim.validation.analyse import validate  # noqa: E402
from ppsim.validation.overlay import overlay_document  # noqa: E402
from tests.fake_cuda import FakeCuda  # noqa: E402

MODEL = Model(hidden=16, heads=2, sequence=8, microbatch_size=2, layers=2, dtype="float64", vocab=32)
SHAPE: dict[str, Any] = {"hidden": 16, "heads": 2, "sequence": 8, "microbatch_size": 2, "layers": 2, "vocab": 32}


def plan_of(name: str, devices: int = 2, microbatches: int = 4) -> Plan:
    schedule = generate(name, devices=devices, microbatches=microbatches)
    return Plan(name, lower(schedule), costs_for(schedule, unit="ms"))


def quiet(done: float, what: str) -> None:
    """No progress."""


# On a processor.


@pytest.mark.parametrize("name", [family.name for family in families()])
def test_every_schedule_finishes_with_the_gradients_of_plain_autograd(name):
    """Float64, to 1e-12 of the largest; replicas of a stage share the microbatches."""
    plan = plan_of(name)
    each = [tasks.computing(plan.lowered, device, MODEL) for device in range(2)]
    found = partitioned.follow(partitioned.issue_order(plan), each, streams.Serial(2), time.monotonic_ns())
    once = (plan.lowered.schedule.pair < 0) | (plan.lowered.schedule.pair > np.arange(len(plan.lowered.schedule)))
    assert sum(len(times) for times, _ in found.values()) == once.sum()
    for stage, wanted in reference(plan.lowered.compute).items():
        held = [task.module[stage].parameters() for task in each if stage in task.module]
        for parts, whole in zip(zip(*held, strict=True), wanted, strict=True):
            assert np.abs(sum(p.grad.numpy() for p in parts) - whole).max() <= 1e-12 * np.abs(whole).max()


@pytest.mark.parametrize(("name", "devices"), [*product(["zb-h2", "interleaved", "dualpipe", "dualpipe-v"], (2, 4))])
def test_the_host_issues_every_queue_in_its_order_and_nothing_before_its_input(name, devices):
    plan = plan_of(name, devices, 2 * devices)
    order = partitioned.issue_order(plan)
    for device in range(devices):
        assert [e.op for d, e in order if d == device] == [e.op for e in runner.entries_of(plan, device)]
    sent: set[tuple[int, int, int]] = set()
    for _, entry in order:
        assert sent.issuperset(entry.needs)
        if entry.kind in SENDS:
            sent.add(partitioned._received(entry))


def test_a_session_is_one_record_that_is_causal_and_survives_a_file(tmp_path):
    """The whole flow of a GPU, with all devices on one processor: ops alone, the run, the record, the comparison."""
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
        assert run.began.shape[0] == 2
        assert run.issued is None
        assert_causal(run, slack=0.002)
    result = validate(again)
    assert [v.run.name for v in result.verdicts] == ["1f1b", "dualpipe"]
    assert partitioned.LABEL in overlay_document(result, again).title


def _outgrows(rank, say, meeting, settings, devices, orders, plans):
    say((0, 0, {0: ([], 0), 1: ([], 0)}))
    raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 80 GiB")


def test_a_gpu_that_runs_out_of_memory_is_said_so():
    says = pytest.raises(PpsimError, match="rank 0 ran out of memory: CUDA out of memory")
    with says as caught, ranks(_outgrows, 1, None, 2, [], []) as messages:
        list(messages)
    assert "--hidden" in caught.value.hint


# Who sets the pace.


def run_with(ended_after_issue: float) -> Measured:
    """1F1B with ops of 10 ms one behind the other, each of whose ends is issued so many ms before it."""
    plan = plan_of("1f1b")
    n = len(plan.lowered.schedule)
    began = np.arange(n, dtype=float)[None, :] * 10
    ended = began + np.where(plan.lowered.schedule.kind <= Kind.W, 10.0, 0.0)
    return Measured("1f1b", plan.lowered, plan.costs, began, began, ended, ended.max(1), ended - ended_after_issue)


@pytest.mark.parametrize(("ahead", "bound"), [(50.0, False), (5.0, False), (0.5, True), (-0.1, True)])
def test_a_repetition_is_launch_bound_when_ops_end_as_soon_as_they_are_issued(ahead, bound):
    assert pace.launch_bound(run_with(ahead)).tolist() == [bound]


def test_launch_bound_repetitions_are_left_out_and_a_run_of_nothing_else_is_refused():
    good, bad = run_with(50.0), run_with(0.1)
    columns = {k: np.concatenate([getattr(good, k), getattr(bad, k)]) for k in ("posted", "began", "ended", "issued")}
    both = Measured("1f1b", good.lowered, good.costs, finished=np.zeros((2, 2)), **columns)
    (kept,), left_out = pace.paced_by_the_gpu([both])
    assert left_out == {"1f1b": 1}
    assert kept.issued is not None
    assert (kept.ended == good.ended).all()
    with pytest.raises(PpsimError, match="1f1b is launch-bound") as caught:
        pace.paced_by_the_gpu([bad])
    assert "--hidden" in caught.value.hint
    assert pace.paced_by_the_gpu([good]) == ([good], {})


def test_when_the_host_issued_survives_a_file(tmp_path):
    run = run_with(50.0)
    path = tmp_path / "run.json"
    path.write_bytes(dump(Record((run,), {}, {}), str(path)))
    again = load(str(path)).runs[0].issued
    assert again is not None
    assert run.issued is not None
    assert np.allclose(again, run.issued)


# What the command line says.


def refused(*words: str) -> PpsimError:
    shape = ("validate", "-s", "1f1b", "--devices", "2", "--mb", "4")
    error = CliRunner().invoke(group, [*shape, *words]).exception
    assert isinstance(error, PpsimError), error
    return error


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--runner", "partitioned", "--device", "cpu"), "--device cpu names none"),
        (("--runner", "partitioned", "--ops", "timed"), "--ops timed computes nothing"),
        (("--ops", "timed", "--device", "cuda"), "only takes time"),
    ],
)
def test_what_does_not_go_together_is_refused(words, says):
    assert says in str(refused(*words))


def test_without_a_gpu_asking_for_one_is_exit_3():
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    for words in (("--runner", "partitioned"), ("--device", "cuda")):
        assert refused(*words).exit_code == 3


def test_fewer_gpus_than_devices_point_to_the_partitioned_runner(monkeypatch):
    FakeCuda(gpus=1).install(monkeypatch)
    error = refused("--device", "cuda")
    assert "2 devices need a GPU each, and there are 1" in str(error)
    assert "--runner partitioned" in error.hint
    request = session.Request()
    assert session.device_of(request, 2) == "cpu"
    assert session.device_of(request, 1) == "cuda"


# The GPU's side, against a stand-in.


def test_parts_come_from_one_split_and_are_as_large_as_fit(monkeypatch):
    """Separate splits would give the same multiprocessors again; sizes that do not fit often enough are passed over."""
    fake = FakeCuda()
    fake.install(monkeypatch)
    lanes, sms = streams.split(4)
    assert [lane.name for lane in lanes] == ["lane 0", "lane 1", "lane 2", "lane 3"]
    assert sms == 32
    assert fake.split_calls == [(4, 33), (4, 32)]
    with pytest.raises(InputError, match="cannot be split in 133"):
        streams.split(133)


def test_without_the_driver_s_bindings_the_hint_installs_them(monkeypatch):
    FakeCuda().install(monkeypatch)
    monkeypatch.setitem(__import__("sys").modules, "cuda.bindings", None)
    with pytest.raises(MissingDependency) as caught:
        streams.split(2)
    assert "pip install cuda-bindings" in caught.value.hint


def test_a_driver_that_refuses_is_named(monkeypatch):
    def cuDeviceGet(number):  # noqa: N802
        return (100,)

    with pytest.raises(PpsimError, match="cuDeviceGet failed: 100"):
        streams._asked(cuDeviceGet, 0)


def test_a_message_is_recorded_then_waited_for_then_copied_then_waited_for(monkeypatch):
    """Sender's event, link waits, copy on the link, its event, receiver waits; memory is kept for both."""
    fake = FakeCuda()
    fake.install(monkeypatch)
    lanes = streams.Partitions(2)
    copied = []

    class Sent(torch.Tensor):  # type: ignore[misc, name-defined]
        def clone(self):
            copied.append(fake.current[-1].name)
            fake.log.append(("copy", fake.current[-1].name))
            return torch.zeros(3)

    fake.log.clear()
    message = lanes.carry(torch.zeros(3).as_subclass(Sent), 0, 1)
    with lanes.on(1):
        lanes.accept(message, 1)
    link = copied[0]
    assert [entry[:2] for entry in fake.log] == [
        ("record", "lane 0"),
        ("wait", link),
        ("copy", link),
        ("record", link),
        ("keep", link),
        ("wait", "lane 1"),
        ("keep", "lane 1"),
    ]
    records = [entry[2] for entry in fake.log if entry[0] == "record"]
    waits = [entry[2] for entry in fake.log if entry[0] == "wait"]
    assert records == waits
    assert link not in ("lane 0", "lane 1", fake.default.name)


def test_every_op_is_between_marks_on_its_own_lane_and_after_its_message(monkeypatch):
    fake = FakeCuda()
    mode = fake.install(monkeypatch)
    plan = plan_of("1f1b")
    with mode:
        lanes = streams.Partitions(2)
        each = [tasks.computing(plan.lowered, device, MODEL, "cuda") for device in range(2)]
        order = partitioned.issue_order(plan)
        lanes.sync()
        fake.log.clear()
        partitioned.follow(order, each, lanes, time.monotonic_ns())
    told = iter([entry for entry in fake.log if entry[0] in ("mark", "wait")])
    for device, entry in order:
        assert next(told)[:2] == ("mark", f"lane {device}")
        if entry.kind in SENDS:
            assert next(told)[0] == "wait"
        elif entry.kind not in RECEIVES:
            for _ in entry.needs:
                assert next(told)[:2] == ("wait", f"lane {device}")
            assert next(told)[:2] == ("mark", f"lane {device}")
            assert next(told)[:2] == ("mark", f"lane {device}")
    assert next(told, None) is None


@pytest.mark.parametrize("slower", [1.0, 4.0])
def test_a_session_on_parts_of_a_gpu_runs_every_line_and_refuses_what_the_host_paced(monkeypatch, slower):
    """A device as fast as the host that issues is launch-bound; one that is four times slower is measured."""
    mode = FakeCuda(slower=slower).install(monkeypatch)

    def at_once(worker, count, *arguments, limit_s=0.0):
        said: list[object] = []
        worker(0, said.append, "nowhere", *arguments)
        return _given([(0, message) for message in said])

    monkeypatch.setattr("ppsim.calibration.processes.ranks", at_once)
    monkeypatch.setattr("ppsim.validation.turns.ranks", at_once)
    monkeypatch.setattr("ppsim.calibration.clock.FLUSH_BYTES", {"cuda": 1 << 20})
    monkeypatch.setitem(os.environ, "CUDA_DEVICE_MAX_CONNECTIONS", "32")
    words = ["--runner", "partitioned", "--repeats", "2", "--warm-up", "1"]
    words += [w for k, v in SHAPE.items() for w in (_option(k), str(v))]
    shape = ["validate", "-s", "1f1b", "-s", "zb-1p", "--devices", "2", "--mb", "4", "--tolerance", "10000%"]
    with mode:
        result = CliRunner().invoke(group, [*shape, *words])
    if slower == 1.0:
        assert "launch-bound" in str(result.exception)
        return
    assert result.exit_code == 0, result.output
    assert partitioned.LABEL in result.output
    assert "a device is 64 multiprocessors" in result.output
    assert "the host had issued all ops after" in result.output


def _option(name: str) -> str:
    return {"sequence": "--seq", "microbatch_size": "--mbs"}.get(name, f"--{name}")


class _given:  # noqa: N801
    """Messages that have all been said, in place of processes that say them."""

    def __init__(self, messages):
        self.messages = messages

    def __enter__(self):
        return iter(self.messages)

    def __exit__(self, *_):
        return None


def _like_a_gpu_each(rank, say, meeting, settings, devices, *work):
    """A rank of a runner for GPUs, whose GPU is a stand-in and whose nccl is gloo."""
    from torch import distributed

    from ppsim.calibration import links

    patch = pytest.MonkeyPatch()
    mode = FakeCuda(gpus=devices, slower=4.0).install(patch)
    patch.setitem(links.BACKEND, "cuda", "gloo")
    new_group = distributed.new_group
    patch.setattr(distributed, "new_group", lambda members, backend: new_group(members, backend="gloo"))
    worker = runner._worker if len(work) == 2 else torch_runner._worker
    with mode:
        worker(rank, say, meeting, settings, devices, *work)


@pytest.mark.parametrize("which", [runner, torch_runner], ids=["own", "torch"])
def test_with_a_gpu_each_times_are_those_of_events(monkeypatch, which):
    """Two real ranks. Ours has a channel for each direction, so both may send first, and batches are undone."""
    plans = [plan_of("1f1b"), plan_of("dualpipe-v")]
    if which is runner:
        plans.append(plan_of("dualpipe"))
        plans[-1] = Plan("dualpipe", lower(plans[-1].lowered.compute, batch=True), plans[-1].costs)
    else:
        plans = [Plan(p.name, torch_runner.lowered_by_torch(p.lowered.compute), p.costs) for p in plans]
    monkeypatch.setattr(which, "_worker", _like_a_gpu_each)
    model = replace(MODEL, dtype="float32")
    runs, failure = which.run_all(plans, Settings(repeats=2, warm_up=1, model=model, device="cuda"))
    assert failure == ""
    assert [run.name for run in runs] == [plan.name for plan in plans]
    for run in runs:
        assert run.issued is not None
        assert (run.issued < run.ended.max(axis=1, keepdims=True)).all()
        assert run.began.shape[0] == 2
        assert (run.ended >= run.began).all()
        assert (run.began >= run.posted).all()


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["1f1b", "zb-1p", "dualpipe-v"])
def test_on_a_gpu_every_schedule_has_the_gradients_of_one_stream(name):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    pytest.importorskip("cuda.bindings", reason="splits the GPU")
    plan = plan_of(name)
    lanes = streams.Partitions(2)
    each = [tasks.computing(plan.lowered, device, MODEL, "cuda") for device in range(2)]
    lanes.settle()
    lanes.sync()
    partitioned.follow(partitioned.issue_order(plan), each, lanes, time.monotonic_ns())
    for stage, wanted in reference(plan.lowered.compute).items():
        held = next(task.module[stage] for task in each if stage in task.module)
        for p, whole in zip(held.parameters(), wanted, strict=True):
            assert np.abs(p.grad.cpu().numpy() - whole).max() <= 1e-9 * np.abs(whole).max()


@pytest.mark.gpu
def test_on_a_gpu_the_partitioned_runner_leaves_a_labelled_record(tmp_path: Path):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    pytest.importorskip("cuda.bindings", reason="splits the GPU")
    size = ["--hidden", "4096", "--heads", "32", "--seq", "2048", "--layers", "1", "--repeats", "2"]
    words = ["-s", "1f1b", "-s", "gpipe", "--devices", "4", "--mb", "8", "--runner", "partitioned", *size]
    path = tmp_path / "run.json.gz"
    result = CliRunner().invoke(group, ["validate", *words, "--tolerance", "1000%", "--record", str(path)])
    assert result.exit_code == 0, result.output
    assert load(str(path)).settings["emulation"] == partitioned.LABEL
