"""What a healthy run would take: the authors' numbers of a production job, and runs whose slowdown
is known.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

from ppsim.analysis.mending import mend, slowest_link
from ppsim.analysis.slowdown import find_slowdown, slowdown_object
from ppsim.core.job import Job, StepOp
from ppsim.engine.simple.longest_path import simulate
from ppsim.real.traces.read import read_run
from ppsim.schedules import generate
from tests.real_runs import STRAGGLERS, simulated

AUTHORS = json.loads((STRAGGLERS.parent / "stragglers.json").read_text())["ST"]


@pytest.fixture(scope="module")
def production():
    job = read_run([str(STRAGGLERS)]).job
    assert job is not None
    return find_slowdown(job)


@pytest.mark.slow
def test_a_production_job_is_as_its_authors_found_it(production):
    found = slowdown_object(production)
    assert np.allclose(production.steps, AUTHORS["nodelay"], rtol=1e-5)
    assert found["ideal_step"] == pytest.approx(AUTHORS["ideal"], rel=1e-3)
    assert found["slowdown"] == pytest.approx(AUTHORS["S"], rel=1e-3)
    assert found["last_stage_share"] == pytest.approx(AUTHORS["M_S"], abs=1e-3)
    assert found["slowest_workers_share"] == pytest.approx(AUTHORS["M_W"], abs=1e-3)
    by_replica = [AUTHORS["by_replica"][str(r)] for r in range(2)]
    assert np.allclose(found["slowdown_by_replica"], by_replica, rtol=1e-3)
    assert np.allclose(
        found["slowdown_by_device"], [AUTHORS["by_stage"][str(s)] for s in range(4)], rtol=1e-3
    )
    for name, value in found["slowdown_by_kind"].items():
        theirs = AUTHORS["by_kind"].get(name) or AUTHORS["by_kind"][name.split("-")[0] + "-pp-comm"]
        assert value == pytest.approx(theirs, rel=1e-3), name
    assert found["slowest"][0] == {
        "replica": 1,
        "device": 3,
        "slowdown": pytest.approx(1.1778, abs=1e-3),
    }


def test_its_last_stage_is_what_to_mend(production):
    best = mend(production)[0]
    assert best.text == "device 3 in all replicas as the others"
    assert best.step / production.steps.mean() - 1 == pytest.approx(-0.185, abs=0.002)
    assert slowest_link(production)[:3] == (1, 3, 2)  # type: ignore[index]


def job_of(name="1f1b", replicas=4, steps=3, between=(), **options) -> Job:
    """A job whose replicas all ran the same."""
    timeline = simulated(name, **{"tb": 60.0, "comm": 0.5} | options)
    shape = (steps, replicas, len(timeline.schedule))
    devices = (steps, replicas, timeline.schedule.n_devices, len(between))
    start, end = (np.broadcast_to(times, shape).copy() for times in (timeline.start, timeline.end))
    begun = np.broadcast_to(timeline.makespan, devices).copy()
    return Job(
        timeline.schedule,
        np.arange(replicas),
        np.arange(steps),
        start,
        end,
        np.where(timeline.schedule.crosses, 0.5, 0.0) * np.ones(shape),
        between,
        begun,
        begun + 5.0,
        {},
        "ms",
    )


@pytest.mark.parametrize("name", ["1f1b", "zb-v", "dualpipe-v", "interleaved"])
def test_a_job_of_equals_is_healthy(name):
    between = (StepOp("grads-reduce-scatter", "replicas", communicates=True),)
    job = job_of(name, between=between, **({"chunks": 2} if name == "interleaved" else {}))
    found = find_slowdown(job)
    assert found.steps == pytest.approx(job.steps)
    assert found.slowdown == pytest.approx(1)
    assert np.allclose(found.by_worker_steps, 1)
    assert np.allclose(list(found.by_kind.values()), 1)
    assert all(change.step == pytest.approx(found.ideal_step) for change in mend(found))


def slower(job: Job, replica: int, device: int, factor: float) -> Job:
    """The job with one slow worker, each replica timed again."""
    own = (np.arange(len(job.replicas))[:, None] == replica) & (job.schedule.device == device)
    took = (job.end - job.start) * np.where(own, factor, 1.0)
    from ppsim.core.costs import Costs

    ran = [
        simulate(job.schedule, Costs(np.ones((5, job.schedule.n_stages)), comm=0.5, op_times=row))
        for row in took[0]
    ]
    start, end = (
        np.broadcast_to([getattr(t, n) for t in ran], took.shape).copy() for n in ("start", "end")
    )
    return replace(job, start=start, end=end)


def test_one_slow_worker_is_named_and_mending_it_takes_the_slowdown_away():
    job = slower(job_of(), 2, 1, 1.5)
    found = find_slowdown(job)
    assert found.slowest[0] == (2, 1)
    assert found.steps == pytest.approx(job.steps)
    # the mean that all then take has the slow ones in it
    assert 1 <= found.slowest_workers_share < 1.1
    assert found.by_worker[2, 1] == pytest.approx(found.slowdown, rel=0.02)
    best = mend(found)[0]
    assert best.step == pytest.approx(found.ideal_step, rel=0.02)
    assert "replica 2's device 1" in {
        change.text.partition(" as ")[0] for change in mend(found)[:3]
    }


def test_stages_split_evenly_and_balanced_sequences_mend_what_they_say():
    schedule = generate("1f1b", devices=4, microbatches=8)
    job = job_of()
    longer = np.where(schedule.stage == 3, 2.0, 1.0) * (job.end - job.start)
    uneven = find_slowdown(replace(job, end=job.start + longer))
    even = next(change for change in mend(uneven) if change.text == "stages split evenly")
    assert even.step == pytest.approx(uneven.ideal_step)
    # all of replica 1's
    length = np.where((np.arange(4)[:, None] == 1) | (schedule.microbatch < 0), 2.0, 1.0)
    skewed = find_slowdown(replace(job, end=job.start + length * (job.end - job.start)))
    dealt = {change.text.partition(",")[0]: change for change in mend(skewed)}
    deal = dealt["microbatches dealt again among replicas"]
    assert deal.step < 0.8 * skewed.steps.mean()
    assert sorted(pair for row in deal.order for pair in row) == [
        (r, m) for r in range(4) for m in range(8)
    ]
    assert [sum(r == 1 for r, _ in row) for row in deal.order] == [2, 2, 2, 2]
    assert dealt["each replica's microbatches"].step == pytest.approx(skewed.steps.mean())


def test_a_slow_link_is_named():
    job = job_of()
    job.transfer[:, 3, (job.schedule.device == 2) & (job.schedule.kind == 0)] = 20.0
    found = find_slowdown(job)
    link = slowest_link(found)
    assert link is not None
    assert link == (3, 1, 2, 40.0)
    change = next(
        change for change in mend(found) if change.text == "replica 3's link 1>2 as the others"
    )
    assert change.step == pytest.approx(found.ideal_step)
