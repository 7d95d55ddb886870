"""Runs whose files show ops alone: gaps and latencies come back, and predictions with them are
right.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ppsim.core.costs import Costs, costs_for
from ppsim.core.timeline import Timeline
from ppsim.engine.detailed.execute import execute
from ppsim.engine.detailed.spec import Host, Network
from ppsim.engine.lowering.lower import lower
from ppsim.engine.simple.terms import measure_terms
from ppsim.real.validation.insitu import average_overheads
from ppsim.real.validation.predict import Overheads
from ppsim.schedules import generate
from tests.commands import invoke, refused
from tests.real_runs import PRIMUS, dump_primus

GAP, LATENCY = 0.8, 1.1


def noisy_runs(
    name: str, iterations: int, *, devices=4, mb=8, slow=-1, mode="latency", **options
) -> list[Timeline]:
    """Time iterations with a gap between ops, a latency of messages and noise of 2 %; one may be
    half as fast.
    """
    schedule = generate(name, devices=devices, microbatches=mb, **options)
    lowered, costs = lower(schedule), costs_for(schedule, tf=60.0, tb=75.0, unit="ms")
    rng = np.random.default_rng(3)
    network = Network(mode=mode, alpha=LATENCY, host=Host(gap=GAP))
    runs = []
    for number in range(iterations):
        each = (
            costs.durations(schedule)
            * rng.normal(1.0, 0.02, len(schedule))
            * (2.0 if number == slow else 1.0)
        )
        runs.append(execute(lowered, Costs(costs.time, unit="ms", op_times=each), network).compute)
    return runs


def kineto(folder: Path, runs: list[Timeline]) -> str:
    """Write runs as torch's profiler would with spans of ops and none of messages, one step after
    the other.
    """
    folder.mkdir()
    schedule = runs[0].schedule
    for device in range(schedule.n_devices):
        events = [
            {
                "ph": "X",
                "cat": "gpu_user_annotation",
                "name": f"PP:{schedule.label(op)}",
                "ts": 1e3 * (float(run.start[op]) + step * 1e5),
                "dur": 1e3 * float(run.end[op] - run.start[op]),
            }
            for step, run in enumerate(runs)
            for op in range(*schedule.queue(device).indices(len(schedule)))
        ]
        content = {"traceEvents": events, "distributedInfo": {"rank": device}, "host_name": "h"}
        (folder / f"rank{device}.json").write_text(json.dumps(content))
    return str(folder)


def validated(*words: str) -> dict[str, Any]:
    return json.loads(invoke("validate", *words, "--tolerance", "100%", "--json").output)


@pytest.mark.parametrize(
    ("name", "options"), [("1f1b", {}), ("interleaved", {"chunks": 2}), ("zb-1p", {})]
)
def test_gaps_and_latencies_come_back_whatever_one_slow_iteration_does(name, options):
    runs = noisy_runs(name, 9, slow=4, **options)
    start, end = (np.array([getattr(run, side) for run in runs]) for side in ("start", "end"))
    terms = measure_terms(runs[0].schedule, start, end)
    assert terms.typical_gap == pytest.approx(GAP, abs=0.01)
    assert all(
        spread.median == pytest.approx(LATENCY, abs=0.01) for spread in terms.latencies.values()
    )
    assert len(terms.latencies) >= 2 * (runs[0].schedule.n_devices - 1)
    assert np.allclose(terms.gap[terms.gap > 0], GAP, atol=0.01)


def test_a_run_without_idle_time_between_ops_has_no_gap():
    """The bubble of a pipeline is no gap."""
    run = execute(
        lower(schedule := generate("1f1b", devices=4, microbatches=8)),
        costs_for(schedule, tf=1.0, tb=2.0),
        Network(mode="latency"),
    ).compute
    terms = measure_terms(schedule, run.start[None], run.end[None])
    assert terms.typical_gap == pytest.approx(0.0, abs=1e-12)
    assert terms.typical_latency == pytest.approx(0.0, abs=1e-12)


@pytest.mark.slow
def test_the_real_run_on_eight_gpus_is_predicted_without_an_option():
    value = validated("--trace", str(PRIMUS))
    (step,) = value["schedules"]
    assert step["name"].startswith("1f1b step ")
    assert abs(step["errors"]["replay"]) < 0.002
    assert abs(step["errors"]["held-out"]) < 0.015
    assert value["settings"]["gap_ms"] == pytest.approx(0.79, abs=0.02)
    assert value["settings"]["latency_ms"] == pytest.approx(0.76, abs=0.05)


@pytest.mark.slow
def test_all_iterations_of_the_real_run_are_predicted():
    value = validated("--trace", str(PRIMUS), "--iteration", "4-20")
    assert [step["name"] for step in value["schedules"]] == [
        f"1f1b step {number}" for number in range(4, 21)
    ]
    assert value["errors"]["replay"]["worst"] < 0.01
    assert value["errors"]["held-out"]["median"] < 0.015


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "options"), [("1f1b", {}), ("interleaved", {"chunks": 2})])
@pytest.mark.parametrize("write", [dump_primus, kineto])
def test_a_run_that_shows_no_messages_is_replayed(write, name, options, tmp_path):
    value = validated(
        "--trace", write(tmp_path / "run", noisy_runs(name, 6, **options)), "--iteration", "all"
    )
    assert {step["name"].split(" ")[0] for step in value["schedules"]} == {name}
    assert value["errors"]["replay"]["worst"] < 0.002
    assert value["errors"]["held-out"]["worst"] < 0.03


@pytest.mark.slow
def test_two_chunks_per_rank_are_predicted_where_messages_queue(tmp_path):
    """Messages of a link go one after the other, beside compute."""
    runs = noisy_runs("interleaved", 6, devices=8, mb=16, chunks=2, mode="overlap")
    value = validated("--trace", dump_primus(tmp_path / "run", runs), "--iteration", "all")
    assert value["schedules"][0]["name"].startswith("interleaved step")
    assert value["errors"]["nominal"]["median"] > 0.02
    assert value["errors"]["held-out"]["median"] < 0.015
    assert value["errors"]["replay"]["median"] < 0.015


def test_a_run_of_another_schedule_is_refused():
    words = ("validate", "--trace", str(PRIMUS), "--mb", "16", "--devices")
    assert "is not a run of gpipe: on device 0 it shows 0B0" in str(
        refused(*words, "8", "-s", "gpipe")
    )
    assert "shows 8 devices, and 1f1b has 4" in str(refused(*words, "4", "-s", "1f1b"))


@pytest.mark.slow
def test_predicted_ops_wait_and_compute_as_long_as_measured_ones_in_total():
    """The classes of a device's time add up to the makespan, for both sides."""
    value = validated("--trace", str(PRIMUS))
    per_device = np.array(value["residuals"]["per_device"])
    off = value["predicted"]["makespan"] - value["measured"]["makespan"]
    assert np.allclose(per_device.sum(axis=1), off)
    assert (per_device[:, 1] == 0).all()


def test_one_slow_step_of_a_run_does_not_move_its_overheads():
    usual = Overheads(announce=1.0, copy=2.0, receive=3.0, gap=4.0, preamble=5.0, latency=6.0)
    slow = Overheads(*(100.0,) * 6)
    assert average_overheads([usual, usual, slow], of_steps=True) == usual
    assert average_overheads([usual, slow]).gap == 52.0
