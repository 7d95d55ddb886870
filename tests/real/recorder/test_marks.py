"""Marks of any loop are written as a table of ops, which the reader takes; nothing is noted outside
of a recording.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import count
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import ppsim
from ppsim.real.runs import streams
from ppsim.record import op, record

ROWS = [("F", 0), ("F", 1), ("B", 0), ("B", 1)]


@pytest.fixture
def ticks(monkeypatch):
    """A clock that ticks one ms at each reading."""
    clock = count(0, 1_000_000)
    monkeypatch.setattr("time.monotonic_ns", lambda: next(clock))
    monkeypatch.setattr(streams.Wall, "mark", lambda self: next(clock))


def lines(folder, name="replica0.device0"):
    return [json.loads(line) for line in (folder / f"{name}.ops.jsonl").read_text().splitlines()]


def loop(steps, stage=0):
    for _ in range(steps):
        for kind, microbatch in ROWS:
            with op(kind, stage, microbatch):
                pass


def test_marks_are_rows_and_steps_are_counted(tmp_path, ticks):
    """An op's times are those of its block; the second run of the same op is the second
    iteration.
    """
    with record(tmp_path, device=0):
        loop(2)
    header, *rows = lines(tmp_path)
    assert (header["schema"], header["unit"], header["device"], header["replica"]) == (
        "ppsim.ops/1",
        "ms",
        0,
        0,
    )
    assert [(row["iteration"], row["kind"], row["microbatch"]) for row in rows] == [
        (i, *r) for i in (0, 1) for r in ROWS
    ]
    assert all(row["end"] - row["start"] == 1 for row in rows)
    assert all(row["stage"] == 0 for row in rows)


def test_a_pause_between_two_readings_moves_no_clock(tmp_path, monkeypatch):
    """A process that is held up as it reads the time of day tells the same epoch as one that is
    not.
    """
    clock, day, held = count(0, 10), 1_700_000_000_000_000_000, iter([0, 5_000_000, 5_000_000])
    paused = 0

    def monotonic():
        nonlocal paused
        paused += next(held, 0)
        return next(clock) + paused

    monkeypatch.setattr("time.monotonic_ns", monotonic)
    monkeypatch.setattr("time.time_ns", lambda: day + next(clock) + paused)
    with record(tmp_path, device=0):
        loop(1)
    assert lines(tmp_path)[0]["epoch"] == pytest.approx(day / 1e9, abs=1e-6)


def test_what_is_recorded_is_read(tmp_path):
    """Two processes of a pipeline, each with a file, are one run of a schedule with a name."""
    for device in range(2):
        with record(tmp_path, device=device):
            loop(3, stage=device)
    found = ppsim.read(str(tmp_path)).to_json()
    assert (found["schedule"], found["devices"], found["microbatches"]) == ("gpipe", 2, 2)
    assert [each["number"] for each in found["iterations"]] == [0, 1, 2]


def test_nothing_is_noted_outside(tmp_path):
    loop(1)
    with record(tmp_path, device=0):
        loop(1)
    loop(1)
    assert len(lines(tmp_path)) == 1 + len(ROWS)
    assert record.active is None


def test_an_op_that_fails_is_no_op(tmp_path):
    """The error passes, and what ran before it is kept."""
    with pytest.raises(ZeroDivisionError), record(tmp_path, device=0):
        fail_after(loop)
    assert len(lines(tmp_path)) == 1 + len(ROWS)
    assert record.active is None


def fail_after(work):
    work(1)
    with op("F", 0, 7):
        _ = 1 / 0


def test_a_forward_beside_a_backward_is_a_pair(tmp_path, ticks):
    """Both have the times of the two together, as the format writes pairs; other ops that overlap
    keep their own.
    """
    with record(tmp_path, device=0):
        with op("F", 0, 1), op("B", 1, 0):
            pass
        with op("B", 0, 0), op("R", 0, 0):
            pass
    first, second, third, fourth = lines(tmp_path)[1:]
    assert (first["start"], first["end"]) == (second["start"], second["end"])
    assert first["end"] - first["start"] == 3
    assert (third["start"], third["end"]) != (fourth["start"], fourth["end"])


def test_ops_are_written_while_it_runs(tmp_path, monkeypatch):
    """Marks are not held until the end: a process that is killed leaves what it wrote."""
    from ppsim.real.recorder import notes

    monkeypatch.setattr(notes, "EVERY_S", -1.0)
    with record(tmp_path, device=0) as recording:
        loop(20)
        assert len(recording.rows) <= 1
        while recording.file.writer.waiting:
            time.sleep(0.001)
        assert len(lines(tmp_path)) >= 80
    assert len(lines(tmp_path)) == 81


def test_names_of_your_own_pass_as_text(tmp_path):
    with record(tmp_path, device=0):
        loop(1)
        with op('OPTIMIZER "step"\n'):
            pass
    assert lines(tmp_path)[-1] | {"start": 0, "end": 0} == {
        "iteration": 0,
        "stage": -1,
        "kind": 'OPTIMIZER "step"\n',
        "microbatch": -1,
        "start": 0,
        "end": 0,
    }


def test_an_empty_recording_warns(tmp_path):
    with pytest.warns(UserWarning, match="saw no op"), record(tmp_path / "new"):
        pass
    assert not (tmp_path / "new").exists()


@pytest.fixture
def megatron(monkeypatch):
    """Megatron's schedules module with what the hooks call: forwards and backwards by global name,
    as it does.
    """
    torch, absent = ModuleType("torch"), SimpleNamespace(is_available=lambda: False)
    torch.__version__, torch.is_grad_enabled = "2", lambda: True  # type: ignore[attr-defined]
    torch.cuda = torch.distributed = absent  # type: ignore[attr-defined]
    schedules, core = (
        ModuleType("megatron.core.pipeline_parallel.schedules"),
        ModuleType("megatron.core"),
    )
    mesh = SimpleNamespace(
        get_pipeline_model_parallel_rank=lambda: 1,
        get_pipeline_model_parallel_world_size=lambda: 2,
        get_data_parallel_rank=lambda: 3,
        get_tensor_model_parallel_rank=lambda: 0,
        get_context_parallel_rank=lambda: 0,
        get_virtual_pipeline_model_parallel_rank=lambda: None,
    )
    core.parallel_state = mesh  # type: ignore[attr-defined]
    schedules.forward_step = lambda function, data, model, count, *_, **__: ([object()], 5)  # type: ignore[attr-defined]
    schedules.backward_step = lambda inputs, outputs, *_: None  # type: ignore[attr-defined]
    for name, module in (
        ("torch", torch),
        ("megatron", ModuleType("megatron")),
        ("megatron.core", core),
        (schedules.__name__, schedules),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    return schedules


def run_megatron(schedules, chunks, microbatches=2):
    made = [
        (
            schedules.forward_step(
                None, None, None, microbatches, vp_stage=chunk if chunks > 1 else None
            )[0]
        )
        for chunk in range(chunks)
        for _ in range(microbatches)
    ]
    for outputs in reversed(made):
        schedules.backward_step(None, outputs, None)


@pytest.mark.parametrize("chunks", [1, 2])
def test_megatrons_ops_are_told_apart(chunks, megatron, tmp_path):
    """Forwards count microbatches and steps, a backward is that of the forward whose output it
    has.
    """
    original = megatron.forward_step
    with record(tmp_path, steps=2):
        for _ in range(3):
            run_megatron(megatron, chunks)
    assert megatron.forward_step is original
    header, *rows = lines(tmp_path, "replica3.device1")
    assert (header["device"], header["replica"], header["devices"]) == (1, 3, 2)
    assert {row["iteration"] for row in rows} == {0, 1}
    stages = [1 + 2 * chunk for chunk in range(chunks)]
    forwards = [(s, "F", m) for s in stages for m in (0, 1)]
    backwards = [(s, "B", m) for s, _, m in reversed(forwards)]
    assert [(row["stage"], row["kind"], row["microbatch"]) for row in rows] == 2 * (
        forwards + backwards
    )


def test_a_forward_without_a_chunk_is_of_the_chunk_that_megatron_is_at(megatron, tmp_path):
    """Versions that pass no ``vp_stage`` keep it in their parallel state."""
    mesh = sys.modules["megatron.core"].parallel_state
    mesh.get_virtual_pipeline_model_parallel_rank = lambda: 2
    with record(tmp_path, steps=1):
        run_megatron(megatron, 1)
    _, *rows = lines(tmp_path, "replica3.device1")
    assert {row["stage"] for row in rows} == {1 + 2 * 2}


def test_megatrons_other_ranks_of_a_device_are_not_recorded(megatron, tmp_path):
    sys.modules["megatron.core"].parallel_state.get_tensor_model_parallel_rank = lambda: 1
    with pytest.warns(UserWarning, match="saw no op"), record(tmp_path):
        run_megatron(megatron, 1)


@pytest.mark.parametrize(
    ("ranks", "replica"),
    [
        ([0, 1, 2, 3], 0),
        ([4, 5, 6, 7], 1),
        ([0, 4], 0),
        ([3, 7], 3),
        ([1, 3], 1),
        ([4, 6], 2),
        ([5, 7], 3),
        ([2], 2),
    ],
)
def test_replicas_are_numbered_by_their_mesh(ranks, replica):
    """Of 8 ranks: pipelines of neighbours, of strides, and of a mesh whose middle is the
    pipeline.
    """
    from ppsim.real.recorder.torch_hooks import replica_of

    assert replica_of(ranks) == replica


def test_times_of_a_gpu_stay_exact(monkeypatch):
    """A long recording counts from an event that has passed: differences of events are in single
    precision.
    """

    class Event:
        def __init__(self, ms):
            self.ms = ms

        def elapsed_time(self, other):
            return float(np.float32(other.ms - self.ms))

    clock = streams.Events()
    clock._zero, clock._at = Event(0.0), 0
    for second in range(1, 2000):
        clock.rebase(Event(second * 1000.0))
    assert abs(clock.ns(Event(2_000_000.001)) - 2_000_000_001_000) < 200
