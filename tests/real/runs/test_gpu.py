"""What runs on GPUs, against a stand-in for torch.cuda and the driver; and on a real GPU where
there is one.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ppsim.core.costs import costs_for
from ppsim.core.ops import RECEIVES, SENDS
from ppsim.engine.lowering.lower import lower
from ppsim.errors import InputError, MissingDependency, PpsimError
from ppsim.real.runs.lanes import lower_lanes
from ppsim.real.runs.record import load
from ppsim.real.runs.record_file import Link
from ppsim.real.runs.turns import RunPlan, Settings
from ppsim.schedules import generate
from ppsim.search.rules.offload import add_offload
from tests.commands import invoke
from tests.real.runs.cases import MODEL, SHAPE, assert_causal, plan_of, quiet, reference, run_with

torch = pytest.importorskip("torch", reason="runs stages")
pytestmark = pytest.mark.torch

from ppsim.real.runs import own_runner, partitioned, session, streams, tasks, torch_runner, turns  # noqa: E402
from tests.fake_cuda import FakeCuda  # noqa: E402


def test_parts_come_from_one_split_and_are_as_large_as_fit(monkeypatch):
    """Separate splits would give the same multiprocessors again; sizes that do not fit often enough
    are passed over.
    """
    fake = FakeCuda()
    fake.install(monkeypatch)
    lanes, sms = streams.split(4)
    assert [lane.name for lane in lanes] == ["lane 0", "lane 1", "lane 2", "lane 3"]
    assert sms == 32
    assert fake.split_calls == [(4, 33), (4, 32)]
    with pytest.raises(InputError, match="cannot be split into 133 parts"):
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
        streams._driver_result(cuDeviceGet, 0)


def test_a_message_is_recorded_then_waited_for_then_copied_then_waited_for(monkeypatch):
    """Sender's event, link waits, copy on the link, its event, receiver waits; memory is kept for
    both.
    """
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
    with lanes.use_stream(1):
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
        each = [tasks.ComputingTasks(plan.lowered, device, MODEL, "cuda") for device in range(2)]
        order = partitioned.order_entries(plan)
        lanes.sync()
        fake.log.clear()
        partitioned.run_queues(order, each, lanes, time.monotonic_ns())
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


def test_copies_to_the_host_run_on_streams_of_their_own_and_are_waited_for(monkeypatch):
    """A copy out waits for its op, a copy back for the copy out, and the backward for the copy
    back.
    """
    fake = FakeCuda()
    mode = fake.install(monkeypatch)
    plain = generate("1f1b", devices=2, microbatches=4)
    schedule = add_offload(plain, costs_for(plain, tf=6, ti=6, tw=6, unit="ms"), 1)
    plan = RunPlan("1f1b", lower_lanes(schedule), costs_for(schedule, tf=6, ti=6, tw=6, unit="ms"))
    with mode:
        lanes = streams.Partitions(2)
        each = [tasks.ComputingTasks(plan.lowered, device, MODEL, "cuda") for device in range(2)]
        lanes.sync()
        fake.log.clear()
        turns = partitioned.run_queues(
            partitioned.order_entries(plan), each, lanes, time.monotonic_ns()
        )
    assert {op for device in turns.values() for op, *_ in device[0]} == set(
        range(len(plan.lowered.schedule))
    )
    recorded = {event: stream for what, stream, event in _events(fake.log, "record")}
    waited = {(stream, recorded[event]) for what, stream, event in _events(fake.log, "wait")}
    copies = {stream for stream in recorded.values() if stream.startswith("stream")}
    part = "lane 0"
    assert any(stream in copies and of == part for stream, of in waited)
    assert any(stream in copies and of in copies and of != stream for stream, of in waited)
    assert any(stream == part and of in copies for stream, of in waited)


def _events(log, kind):
    return [entry for entry in log if entry[0] == kind]


@pytest.mark.parametrize("slower", [1.0, 4.0])
def test_a_session_on_parts_of_a_gpu_runs_every_line_and_refuses_what_the_host_paced(
    monkeypatch, slower
):
    """A device as fast as the host that issues is launch-bound; one that is four times slower is
    measured.
    """
    mode = FakeCuda(slower=slower).install(monkeypatch)

    def at_once(worker, count, *arguments, limit_s=0.0):
        said: list[object] = []
        worker(0, said.append, "nowhere", *arguments)
        return _given([(0, message) for message in said])

    monkeypatch.setattr("ppsim.real.calibration.processes.ranks", at_once)
    monkeypatch.setattr("ppsim.real.runs.turns.ranks", at_once)
    monkeypatch.setattr("ppsim.real.calibration.clock.FLUSH_BYTES", {"cuda": 1 << 20})
    monkeypatch.setitem(os.environ, "CUDA_DEVICE_MAX_CONNECTIONS", "32")
    words = ["--runner", "partitioned", "--repeats", "2", "--warm-up", "1"]
    words += [w for k, v in SHAPE.items() for w in (_option(k), str(v))]
    shape = [
        "validate",
        "-s",
        "1f1b",
        "-s",
        "zb-1p",
        "--devices",
        "2",
        "--mb",
        "4",
        "--tolerance",
        "10000%",
    ]
    with mode:
        result = invoke(*shape, *words)
    if slower == 1.0:
        assert "launch-bound" in str(result.exception)
        return
    assert result.exit_code == 0, result.output
    assert partitioned.LABEL in result.output
    assert "a device is 64 multiprocessors" in result.output
    assert "the host had issued all ops after" in result.output


def test_a_session_with_a_gpu_each_measures_in_bfloat16_and_says_how_far_ahead_the_host_was(
    monkeypatch,
):
    mode = FakeCuda(gpus=2).install(monkeypatch)
    monkeypatch.setattr("ppsim.real.calibration.clock.FLUSH_BYTES", {"cuda": 1 << 20})
    monkeypatch.setattr(session, "_measure_link", lambda size, device, report: Link())
    asked = []

    def ran(plans, settings, tick):
        asked.append(settings)
        return [run_with(50.0)], ""

    monkeypatch.setitem(session.RUNNERS, "own", ran)
    with mode:
        record, _ = session.measure_session(
            [generate("1f1b", devices=2, microbatches=4)], _tiny(), quiet
        )
    assert (asked[0].device, asked[0].model.dtype) == ("cuda", "bfloat16")
    assert record.settings["cores"] == 0
    assert record.settings["launch_bound"] == {}
    assert 0 < record.settings["issued_share"]["1f1b"] < 1
    assert record.provenance["device"] == "a GPU that is none"


def _tiny() -> session.Request:
    return session.Request(**SHAPE)


def test_a_pair_is_issued_on_two_streams_that_meet_before_and_after(monkeypatch):
    from ppsim.real.calibration import ops

    fake = FakeCuda()
    fake.install(monkeypatch)
    side = f"stream {fake.streams + 1}"
    issued = []
    fake.log.clear()
    ops.run_together(
        lambda: issued.append(fake.current[-1].name),
        lambda: issued.append(fake.current[-1].name),
        "cuda",
    )
    assert issued == [side, fake.default.name]
    assert fake.log == [("wait", side, fake.default.name), ("wait", fake.default.name, side)]


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


def _like_a_gpu_each(prepare, rank, say, meeting, settings, devices, *work):
    """A rank of a runner for GPUs, whose GPU is a stand-in and whose nccl is gloo."""
    from torch import distributed

    from ppsim.real.calibration import links

    patch = pytest.MonkeyPatch()
    mode = FakeCuda(gpus=devices, slower=4.0).install(patch)
    patch.setitem(links.BACKEND, "cuda", "gloo")
    new_group = distributed.new_group
    patch.setattr(
        distributed, "new_group", lambda members, backend: new_group(members, backend="gloo")
    )
    with mode:
        turns.take_turns(prepare, rank, say, meeting, settings, devices, *work)


@pytest.mark.usefixtures("warm_processes")
@pytest.mark.parametrize("which", [own_runner, torch_runner], ids=["own", "torch"])
def test_with_a_gpu_each_times_are_those_of_events(monkeypatch, which):
    """Two real ranks. Ours has a channel for each direction, so both may send first, and batches
    are undone.
    """
    plans = [plan_of("1f1b"), plan_of("dualpipe-v")]
    if which is own_runner:
        plans.append(plan_of("dualpipe"))
        plans[-1] = RunPlan(
            "dualpipe", lower(plans[-1].lowered.compute, batch=True), plans[-1].costs
        )
    else:
        plans = [
            RunPlan(p.name, torch_runner.lower_as_torch(p.lowered.compute), p.costs) for p in plans
        ]
    monkeypatch.setattr(which, "take_turns", _like_a_gpu_each)
    model = replace(MODEL, dtype="float32")
    runs, failure = which.run_all(plans, Settings(repeats=2, warm_up=1, model=model, device="cuda"))
    assert failure == ""
    assert [run.name for run in runs] == [plan.name for plan in plans]
    for run in runs:
        assert run.issued is not None
        assert (run.issued < run.end.max(axis=1, keepdims=True)).all()
        assert run.start.shape[0] == 2
        assert (run.end >= run.start).all()
        assert (run.start >= run.posted).all()


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["1f1b", "zb-1p", "dualpipe-v"])
def test_on_a_gpu_every_schedule_has_the_gradients_of_one_stream(name):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    pytest.importorskip("cuda.bindings", reason="splits the GPU")
    plan = plan_of(name)
    lanes = streams.Partitions(2)
    each = [tasks.ComputingTasks(plan.lowered, device, MODEL, "cuda") for device in range(2)]
    lanes.settle()
    lanes.sync()
    partitioned.run_queues(partitioned.order_entries(plan), each, lanes, time.monotonic_ns())
    for stage, wanted in reference(plan.lowered.compute, "cuda").items():
        held = next(task.module[stage] for task in each if stage in task.module)
        for p, whole in zip(held.parameters(), wanted, strict=True):
            assert np.abs(p.grad.cpu().numpy() - whole).max() <= 1e-9 * np.abs(whole).max()


@pytest.mark.gpu
def test_on_a_gpu_the_partitioned_runner_leaves_a_labelled_record(tmp_path: Path):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    pytest.importorskip("cuda.bindings", reason="splits the GPU")
    size = ["--hidden", "4096", "--heads", "32", "--seq", "2048", "--layers", "1", "--repeats", "2"]
    words = [
        "-s",
        "1f1b",
        "-s",
        "gpipe",
        "--devices",
        "4",
        "--mb",
        "8",
        "--runner",
        "partitioned",
        *size,
    ]
    path = tmp_path / "run.json.gz"
    result = invoke("validate", *words, "--tolerance", "1000%", "--record", str(path))
    assert result.exit_code == 0, result.output
    assert load(str(path)).settings["emulation"] == partitioned.LABEL


@pytest.mark.gpu
@pytest.mark.parametrize("which", ["own", "torch"])
def test_with_a_real_gpu_each_a_run_ends_and_is_causal(tmp_path: Path, which):
    if torch.cuda.device_count() < 2:
        pytest.skip("fewer than two CUDA devices")
    size = ["--hidden", "2048", "--heads", "16", "--seq", "1024", "--repeats", "2"]
    words = [
        "-s",
        "gpipe",
        "-s",
        "zb-1p",
        "--devices",
        "2",
        "--mb",
        "4",
        "--device",
        "cuda",
        "--runner",
        which,
        *size,
    ]
    path = tmp_path / "run.json.gz"
    result = invoke("validate", *words, "--tolerance", "1000%", "--record", str(path))
    assert result.exit_code == 0, result.output
    for run in load(str(path)).runs:
        assert_causal(run, slack=0.1)  # two clocks, each placed on the host's
