"""Steps of a job are predicted from its other steps, unequal sequences by the first stage's
forwards.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

from ppsim.core.costs import Costs
from ppsim.core.job import Job
from ppsim.engine.simple.batch import makespans_with_gaps
from ppsim.engine.simple.longest_path import simulate
from ppsim.real.traces.read import read_run
from ppsim.real.validation.jobs import validate_job
from ppsim.schedules import generate
from tests.commands import invoke, refused
from tests.real_runs import STRAGGLERS

COMM = 0.5


def job_of(took, name="1f1b") -> Job:
    """A job of a schedule with the times of its ops, shape (K, R, ops)."""
    schedule = generate(name, devices=4, microbatches=8)
    ran = [
        [
            simulate(schedule, Costs(np.ones((5, schedule.n_stages)), comm=COMM, op_times=each))
            for each in step
        ]
        for step in took(schedule)
    ]
    start, end = (
        np.array([[getattr(t, part) for t in step] for step in ran]) for part in ("start", "end")
    )
    none = np.empty((*start.shape[:2], 4, 0))
    transfer = np.where(schedule.crosses, COMM, 0.0) * np.ones(start.shape)
    numbers = np.arange(start.shape[1]), np.arange(start.shape[0])
    return Job(schedule, *numbers, start, end, transfer, (), none, none, {}, "ms")


def uneven(schedule, *, worker=1.0):
    """Times of ops whose microbatches differ in length from step to step, stage by stage on a line
    of their own.
    """
    length = np.random.default_rng(1).lognormal(0, 0.4, (6, 3, 8))[..., schedule.microbatch]
    slow = np.where((np.arange(3)[:, None] == 1) & (schedule.device == 2), worker, 1.0)
    return (2 + schedule.stage + (5 + schedule.stage * schedule.kind) * length) * slow


def errors(job):
    return {name: float(np.median(np.abs(each))) for name, each in validate_job(job).errors.items()}


@pytest.mark.slow
def test_a_production_job_is_predicted_within_half_a_percent():
    job = read_run([str(STRAGGLERS)]).job
    assert job is not None
    found = errors(job)
    assert found["replay"] < 0.0005
    assert found["held-out"] < 0.005
    assert found["held-out"] < found["+ worker"] < found["stage and kind"]


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", ["1f1b", "zb-v"])
def test_microbatches_of_any_length_follow_from_the_first_stage(name):
    found = errors(job_of(uneven, name))
    assert found["replay"] == pytest.approx(0, abs=1e-6)
    assert found["+ microbatch"] == pytest.approx(0, abs=1e-6)
    assert found["held-out"] == pytest.approx(0, abs=1e-6)
    assert found["stage and kind"] > 0.03


def test_a_slow_worker_needs_its_factor():
    job = job_of(lambda schedule: uneven(schedule, worker=3.0))
    found = {
        name: float(np.median(np.abs(each[:, 1])))
        for name, each in validate_job(job).errors.items()
    }
    assert found["held-out"] < 0.05 < found["+ microbatch"]


def test_one_step_has_nothing_to_be_held_out_from():
    job = job_of(uneven).select(np.array([2]))
    assert validate_job(job).own
    assert errors(job)["replay"] == pytest.approx(0, abs=1e-6)


def test_gaps_delay_ops_and_not_their_messages():
    schedule = generate("1f1b", devices=4, microbatches=8)
    took = np.random.default_rng(2).uniform(1, 2, (5, len(schedule)))
    gaps = np.random.default_rng(3).uniform(0, 0.4, len(schedule))
    latency = np.where(schedule.crosses, COMM, 0.0) * np.ones(took.shape)
    for row, found in zip(took, makespans_with_gaps(schedule, took, gaps, latency), strict=True):
        end, head = np.zeros(len(schedule)), schedule.offsets[:-1].copy()
        while (head < schedule.offsets[1:]).any():
            for device in range(4):
                op = int(head[device])
                need = schedule.dependency[op] if op < schedule.offsets[device + 1] else -9
                if need == -9 or (need >= 0 and not end[need]):
                    continue
                free = end[op - 1] + gaps[op] if op > schedule.offsets[device] else 0.0
                end[op] = max(free, end[need] + latency[0, op] if need >= 0 else 0.0) + row[op]
                head[device] += 1
        assert found == pytest.approx(end.max())


@pytest.mark.slow
def test_validate_takes_a_table_and_says_which_term_explains_what():
    value = json.loads(
        invoke("validate", "--trace", str(STRAGGLERS), "--unit", "s", "--json").output
    )
    assert value["errors"]["held-out"]["median"] < 0.01
    assert value["errors"]["replay"]["median"] < 0.005
    assert (value["passed"], value["replicas"], value["unit"]) == (True, 2, "s")
    text = invoke("validate", "--trace", str(STRAGGLERS)).output
    verdict = text.splitlines()[0]
    assert verdict.startswith(
        "held-out predictions are off by 0.36% (median), 6.38% (worst) of the measured makespan"
    )
    assert verdict.endswith("of steps of 2 replicas: within the tolerance of 10%")
    told = refused(
        "validate", "--trace", str(STRAGGLERS), "-s", "gpipe", "--devices", "4", "--mb", "4"
    )
    assert "is not a run of gpipe" in str(told)
    assert (
        invoke("validate", "--trace", str(STRAGGLERS), "--tolerance", "0.1%", "-q").exit_code == 1
    )


def test_two_replicas_that_differ_do_not_change_each_other():
    job = job_of(uneven)
    one = replace(
        job,
        replicas=job.replicas[:1],
        **{n: getattr(job, n)[:, :1] for n in ("start", "end", "transfer")},
    )
    one = replace(one, step_op_start=job.step_op_start[:, :1], step_op_end=job.step_op_end[:, :1])
    assert np.allclose(
        validate_job(one).errors["replay"], validate_job(job).errors["replay"][:, :1], atol=1e-9
    )


def test_a_replica_whose_ops_take_no_time_is_predicted_to_take_none():
    """Its messages still take theirs. Where nothing takes any, no error is relative to it: 0."""
    idle = job_of(lambda schedule: uneven(schedule) * (np.arange(3) != 1)[:, None])
    found = validate_job(idle).errors
    assert found["replay"] == pytest.approx(0, abs=1e-6)
    assert found["held-out"][:, 1] == pytest.approx(0, abs=1e-6)
    assert np.abs(found["held-out"]).max() < 0.05
    assert (found["stage and kind"][:, 1] > 1).all()
    still = {name: getattr(idle, name).copy() for name in ("start", "end", "transfer")}
    for times in still.values():
        times[:, 1] = 0.0
    for errors_of in validate_job(replace(idle, **still)).errors.values():
        assert np.isfinite(errors_of).all()
        assert (errors_of[:, 1] == 0).all()
