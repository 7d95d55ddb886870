"""Spans of Megatron's OpenTelemetry: a run exported as its guide names them reads back as that run."""

from __future__ import annotations

import pytest

from ppsim.core.costs import costs_for
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError
from ppsim.real.traces.read import read_run
from ppsim.schedules import generate
from tests.commands import invoke
from tests.real_runs import exported


@pytest.fixture
def timeline():
    schedule = generate("1f1b", devices=4, microbatches=8)
    return simulate(schedule, costs_for(schedule, tf=2, tb=5, comm=0.5))


@pytest.mark.parametrize("tensor", [1, 2])
def test_a_run_reads_back(tmp_path, timeline, tensor):
    """Ops, order and times in every step; of tensor-parallel ranks, which run the same ops, the first."""
    (tmp_path / "spans.json").write_text(exported(timeline, tensor=tensor))
    run = read_run([str(tmp_path / "spans.json")])
    assert [run.schedule.label(op) for op in range(64)] == [timeline.schedule.label(op) for op in range(64)]
    assert run.start.shape == (2, 64)
    assert (run.end - run.start)[1] == pytest.approx(timeline.end - timeline.start)
    assert (run.start - run.start.min(axis=1, keepdims=True))[1] == pytest.approx(timeline.start)


def test_what_was_taken_for_granted_is_said(tmp_path, timeline):
    (tmp_path / "spans.jsonl").write_text(exported(timeline))
    result = invoke("read", str(tmp_path / "spans.jsonl"))
    assert result.exit_code == 0
    assert "in the order of the forwards" in result.output
    assert "times of the host" in result.output


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("megatron.microbatch.", "other."), "no spans of microbatches"),
        (lambda text: text.replace("megatron.microbatch_id", "x"), "tells no megatron.microbatch_id"),
        (lambda text: text.replace("megatron.iteration", "x"), "is part of no megatron.train_step"),
        (lambda text: text.replace("dl.pipeline_parallel.rank", "x"), "do not tell its dl.pipeline_parallel.rank"),
        (lambda text: text.replace('"intValue": "7"', '"intValue": "6"'), "twice in step 1: spans do not tell chunks"),
        (lambda text: text.replace('"startTimeUnixNano": "1', '"startTimeUnixNano": "-1'), "is no whole number"),
        (lambda text: text.replace('"spanId"', '"id"', 1), "line 1"),
        (lambda text: text[:-9], "not whole or not JSON"),
        (lambda text: text.splitlines()[3], "pipeline rank 3 has spans, and rank 0 has none"),
        (lambda text: text.replace("microbatch.forward", "microbatch.backward", 1), "backward before its forward"),
    ],
)
def test_what_spans_do_not_tell_is_refused(tmp_path, timeline, change, message):
    (tmp_path / "spans.json").write_text(change(exported(timeline, steps=1)))
    with pytest.raises(InputError, match=message):
        read_run([str(tmp_path / "spans.json")])
