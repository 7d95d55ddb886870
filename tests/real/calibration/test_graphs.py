"""Ops that the host paces are measured again as CUDA graphs, here with a stand-in for
torch.cuda.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ppsim.inputs.profile.costs import costs_from
from ppsim.inputs.profile.profile import Profile, Provenance, Workload, read, write
from ppsim.inputs.profile.text import op_rows, summary
from ppsim.schedules import generate

torch = pytest.importorskip("torch", reason="measuring needs torch")
pytestmark = pytest.mark.torch

from ppsim.real.calibration import calibrate, clock, graphs, ops  # noqa: E402
from tests.fake_cuda import FakeCuda  # noqa: E402

SMALL = Workload(
    hidden=16, heads=2, sequence=8, microbatch_size=2, layers=1, dtype="float32", vocab=32
)


def measured(monkeypatch, slower: float, capture=None):
    """Rows of all ops, then those of graphs; the stand-in's device is ``slower`` times as slow as
    the host.
    """
    mode = FakeCuda(slower=slower).install(monkeypatch)
    monkeypatch.setattr(clock, "FLUSH_BYTES", {"cuda": 1 << 20})
    monkeypatch.setattr(
        torch.cuda, "make_graphed_callables", capture or (lambda module, sample: module)
    )
    with mode:
        rows = ops.measure_ops(SMALL, "cuda", repeats=2, warm_up=1, tick=lambda _: None)
        return rows, graphs.measure_graphs(SMALL, rows, repeats=2, warm_up=1)


def test_every_launch_bound_forward_and_backward_gets_a_row_that_says_it_is_a_graph(monkeypatch):
    captured = []

    def capture(module, sample):
        captured.append((len(list(module.parameters())), tuple(sample[0].shape)))
        return module

    rows, graphed = measured(monkeypatch, 0.05, capture)
    assert {row.launch for row in rows} == {"eager"}
    assert {row.launch for row in graphed} == {"graph"}
    bound = {(r.part, r.kind, r.layers, r.cache) for r in rows if r.launch_bound}
    wanted = {key for key in bound if key[1] in ("F", "B") and (key[0], key[2]) != ("layers", 0)}
    assert wanted
    assert {(r.part, r.kind, r.layers, r.cache) for r in graphed} == wanted
    assert all(row.n == 2 and row.host_ms > 0 for row in graphed)
    assert len(captured) == len({(part, *rest) for part, _, *rest in wanted}), (
        "F and B come from one capture"
    )
    assert all(parameters for parameters, _ in captured), "their gradients are part of it"


def test_ops_that_the_gpu_paces_are_not_measured_again(monkeypatch):
    rows, graphed = measured(monkeypatch, 4.0, capture=lambda *_: pytest.fail("nothing to capture"))
    assert not any(row.launch_bound for row in rows)
    assert graphed == []


def test_what_torch_cannot_capture_keeps_its_launch_bound_row(monkeypatch):
    def refuse(module, sample):
        raise RuntimeError("operation not permitted when stream is capturing")

    rows, graphed = measured(monkeypatch, 0.05, refuse)
    assert rows
    assert graphed == []


def test_a_profile_keeps_both_rows_and_costs_come_from_the_eager_one(monkeypatch, tmp_path):
    rows, graphed = measured(monkeypatch, 0.05)
    made = Provenance(
        "m", "c", 2, 1, 0.0, "a GPU", "unknown", "2.13", "3.11", "1", "2026-01-01", "x"
    )
    profile = Profile(made, SMALL, (*rows, *graphed))
    write(profile, str(tmp_path / "p.toml"))
    again = read(str(tmp_path / "p.toml"))
    assert [op.launch for op in again.op] == [op.launch for op in profile.op]
    names = [row[0] for row in op_rows(again)]
    assert sum(name.endswith(", as a graph") for name in names) == len(graphed) > 0
    assert "launch-bound" in "\n".join(" ".join(row) for row in op_rows(again))
    slow = replace(profile, op=(*rows, *(replace(op, median_ms=9e3, p90_ms=9e3) for op in graphed)))
    schedule = generate("1f1b", devices=2, microbatches=4)
    assert (
        costs_from(slow, schedule).time
        == costs_from(Profile(made, SMALL, tuple(rows)), schedule).time
    ).all()
    assert summary(slow) == summary(Profile(made, SMALL, tuple(rows)))


def test_calibrate_on_a_gpu_measures_graphs_too(monkeypatch):
    mode = FakeCuda(gpus=1, slower=0.05).install(monkeypatch)
    monkeypatch.setattr(clock, "FLUSH_BYTES", {"cuda": 1 << 20})
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", lambda module, sample: module)
    monkeypatch.setattr("ppsim.real.calibration.links.measure_links", lambda *_, **__: [])
    with mode:
        profile = calibrate.calibrate(
            calibrate.CalibrationPlan(SMALL, "cuda", 2, 1, (1024,), "ppsim")
        )
    assert profile is not None
    assert {op.launch for op in profile.op} == {"eager", "graph"}
    assert profile.provenance.device == "a GPU that is none"


@pytest.mark.gpu
def test_on_a_gpu_a_graph_is_issued_faster_than_its_ops():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    rows = ops.measure_ops(SMALL, "cuda", repeats=3, warm_up=2, tick=lambda _: None)
    graphed = graphs.measure_graphs(SMALL, rows, repeats=3, warm_up=2)
    assert {row.kind for row in graphed} == {"F", "B"}
