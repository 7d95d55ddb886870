"""Steps of a job are its pipelines by the simple model, joined by collectives that end together."""

from dataclasses import replace

import numpy as np
import pytest

from ppsim.core.costs import Costs
from ppsim.core.job import StepOp
from ppsim.core.lanes import groups_of
from ppsim.core.schedule import NONE
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.steps import StepTimes, time_pipelines, time_steps
from ppsim.schedules import generate


def random_times(schedule, between=(), steps=3, replicas=2, seed=0):
    draw = np.random.default_rng(seed)
    ops = draw.uniform(1, 2, (steps, replicas, len(schedule)))
    ops[..., schedule.second_of_pairs] = ops[..., schedule.first_of_pairs]
    transfer = np.where(schedule.crosses, draw.uniform(0, 0.3, ops.shape), 0.0)
    return StepTimes(
        ops, transfer, draw.uniform(0, 3, (steps, replicas, schedule.n_devices, len(between)))
    )


def oracle(schedule, ops, transfer, ready):
    """End of each op of one pipeline, one at a time."""
    end, done, head = (
        np.zeros(len(schedule)),
        np.zeros(len(schedule), bool),
        schedule.offsets[:-1].copy(),
    )
    while not done.all():
        for device in range(schedule.n_devices):
            queue = schedule.queue(device)
            op = int(head[device])
            if op >= queue.stop:
                continue
            members = schedule.members(op)
            needs = [
                (m, int(schedule.dependency[m])) for m in members if schedule.dependency[m] != NONE
            ]
            if all(done[need] for _, need in needs):
                start = max(
                    [end[op - 1] if op > queue.start else 0.0, ready[device][schedule.chunk[op]]]
                )
                start = max([start, *(end[need] + transfer[m] for m, need in needs)])
                for m in members:
                    end[m], done[m] = start + ops[m], True
                head[device] += len(members)
    return end


@pytest.mark.parametrize("name", ["1f1b", "zb-v", "dualpipe-v"])
def test_without_collectives_a_step_is_its_slowest_replica(name):
    schedule = generate(name, devices=4, microbatches=8)
    times = random_times(schedule)
    ready = np.zeros((4, schedule.n_stages))
    ends = [
        [oracle(schedule, times.ops[k, r], times.transfer[k, r], ready) for r in range(2)]
        for k in range(3)
    ]
    assert np.allclose(time_steps(schedule, (), times), np.max(ends, axis=(1, 2)))
    plain = replace(Costs(np.ones((5, schedule.n_stages))), op_times=times.ops[0, 0])
    no_messages = StepTimes(times.ops, times.transfer * 0, times.step_ops)
    assert time_pipelines(schedule, (), no_messages)[0, 0].max() == pytest.approx(
        simulate(schedule, plain).makespan
    )


def test_collectives_end_together_and_wait_for_the_last():
    schedule = generate("interleaved", devices=2, microbatches=4, chunks=2)
    between = (
        StepOp("gather 0", "replicas", communicates=True, before_chunk=True, chunk=0),
        StepOp("gather 1", "replicas", communicates=True, before_chunk=True, chunk=1),
        StepOp("own"),
        StepOp("tied", "ends", communicates=True),
        StepOp("reduce", "replicas", communicates=True),
        StepOp("clip", "all", communicates=True),
    )
    times = random_times(schedule, between)
    times.step_ops[:, :, 1, 2] = np.nan  # which device 1 does not do
    found = time_pipelines(schedule, between, times)
    for k in range(3):
        took = times.step_ops[k]
        gather = took[..., 0]
        ready = np.stack([gather, gather.max(axis=0) + took[..., 1]], axis=-1)  # (R, P, chunks)
        end = np.zeros((2, 2))
        for r in range(2):
            ends = oracle(schedule, times.ops[k, r], times.transfer[k, r], ready[r])
            end[r] = [ends[schedule.queue(d)].max() for d in range(2)]
        end[:, 0] += took[:, 0, 2]
        end = end.max(axis=1, keepdims=True) + took[..., 3]
        end = end.max(axis=0, keepdims=True) + took[..., 4]
        end = end.max() + took[..., 5]
        assert np.allclose(found[k], end)


@pytest.mark.parametrize("name", ["vocab-2", "bpipe"])
def test_a_step_of_several_lanes_ends_with_its_last_op(name):
    """Copies and collectives count: without collectives between pipelines, a step is one
    simulation.
    """
    schedule = generate(name, devices=4, microbatches=8)
    group, draw = groups_of(schedule), np.random.default_rng(0)
    ops = draw.uniform(1, 2, (2, 1, len(schedule)))[..., group]
    times = StepTimes(ops, np.zeros(ops.shape), np.zeros((2, 1, 4, 0)))
    base = Costs(np.ones((5, schedule.n_stages)))
    runs = [simulate(schedule, replace(base, op_times=ops[k, 0])) for k in range(2)]
    assert time_steps(schedule, (), times).tolist() == [run.makespan for run in runs]
    ends = [[run.end[schedule.queue(device)].max() for device in range(4)] for run in runs]
    assert time_pipelines(schedule, (), times)[:, 0].tolist() == ends
