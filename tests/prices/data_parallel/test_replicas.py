"""Replicas of a simulated schedule, some slower: the step is the slowest's, and others wait for it
at the reduction.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

from ppsim.core.costs import costs_for
from ppsim.inputs.profile.scale import parse_scale
from ppsim.prices.data_parallel.replicas import slowed_costs
from ppsim.schedules import generate
from tests.commands import answer, invoke, refused

SHAPE = ("--devices", "4", "--mb", "8")


def replicas(command, *words):
    return json.loads(invoke(command, "1f1b", *SHAPE, *words, "--json").output)["replicas"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("command", ["run", "explain"])
@pytest.mark.parametrize("how", [(), ("--comm", "0.25"), ("--p2p", "blocking", "--comm", "0.25")])
def test_each_replica_takes_what_it_takes_alone(command, how):
    found = replicas(command, "--replicas", "1,1,1.5", *how)
    slow = ("--tf", "1.5", "--ti", "1.5", "--tw", "1.5")
    alone = [
        json.loads(invoke("run", "1f1b", *SHAPE, *how, *more, "--json").output)
        for more in ((), slow)
    ]
    assert found["makespans"] == pytest.approx([alone[0]["makespan"]] * 2 + [alone[1]["makespan"]])
    assert found["step"] == found["makespans"][2]
    assert (found["slowest"], found["last_by_device"]) == (2, [2] * 4)
    ends = [[0.0] * 4, [0.0] * 4]
    for end, value in zip(ends, alone, strict=True):
        for device, time in zip(value["ops"]["device"], value["ops"]["end"], strict=True):
            end[device] = max(end[device], time)
    assert found["waits"][0] == pytest.approx(
        [slow - fast for fast, slow in zip(*ends, strict=True)]
    )
    assert found["waits"][2] == [0.0] * 4


def test_one_slow_device_of_one_replica_is_as_its_speed():
    found = replicas("run", "--replicas", "3,1.2=2")
    alone = json.loads(invoke("run", "1f1b", *SHAPE, "--speed", "1,1,0.5,1", "--json").output)
    assert found["makespans"] == pytest.approx([33, alone["makespan"], 33])


def test_the_one_line_says_the_step_too():
    """1F1B of 2 devices and 2 microbatches takes 9; a replica half as slow again ends it."""
    line = invoke(
        "run", "--schedule", "1f1b", "--devices", "2", "--mb", "2", "-q", "--replicas", "4,1=1.5"
    ).stdout
    assert line.endswith("step of 4 replicas 13.5 t_F\n")


def test_a_slow_device_that_only_computes_is_slow_by_its_speed():
    """The durations are those of slowed ops either way; bounds know the speed alone. Times of
    single ops take no speed: they are multiplied.
    """
    schedule = generate("1f1b", stages=2, microbatches=4)
    factors = np.array([1.0, 2.0])
    costs = costs_for(schedule)
    each = replace(costs, op_times=np.arange(1.0, len(schedule) + 1))
    speed = slowed_costs(schedule, costs, factors).speed
    assert speed is not None
    assert speed.tolist() == [1.0, 0.5]
    assert slowed_costs(schedule, each, factors).speed is None
    for given in (costs, each):
        slowed = slowed_costs(schedule, given, factors).durations(schedule)
        assert slowed.tolist() == (given.durations(schedule) * factors[schedule.device]).tolist()


def test_equal_replicas_wait_for_nobody():
    assert replicas("run", "--replicas", "4")["waits"] == [[0.0] * 4] * 4
    assert "nobody waits" in invoke("run", "1f1b", *SHAPE, "--replicas", "4").output


@pytest.mark.sampled(4)
@pytest.mark.parametrize("how", [(), ("--p2p", "blocking", "--comm", "0.25")])
@pytest.mark.parametrize("command", ["run", "explain"])
def test_each_replica_draws_its_own_microbatches(command, how):
    """As a list of these factors gives them; again with the seed, however many replicas there
    are.
    """
    drawn = ("--mb-scale", "lognormal:0.5:1", *how)
    found = replicas(command, *drawn, "--replicas", "4")
    alone = []
    for replica in range(4):
        factors = parse_scale(["lognormal:0.5:1"], 8, replica=replica)[0]
        listed = ("--mb-scale", ",".join(map(repr, factors.tolist())), *how)
        alone.append(
            json.loads(invoke("run", "1f1b", *SHAPE, *listed, "--json").output)["makespan"]
        )
    assert found["makespans"] == pytest.approx(alone)
    assert len(set(alone)) == 4
    assert found["step"] == max(found["makespans"])
    assert "nobody waits" not in invoke(command, "1f1b", *SHAPE, *drawn, "--replicas", "4").output
    assert replicas(command, *drawn, "--replicas", "2")["makespans"] == found["makespans"][:2]
    other = replicas(command, "--mb-scale", "lognormal:0.5:2", *how, "--replicas", "4")["makespans"]
    assert not set(other) & set(alone)


@pytest.mark.parametrize(
    "shape", [("1f1b",), ("seq1f1b", "--slices", "2", "--slice-scale", "0.8,1.2")]
)
def test_the_step_of_drawn_factors_is_told_apart_by_cause(shape):
    """Work and pipeline are those of the mean of all factors; a slow device is part of both."""
    words = (*shape, "--devices", "4", "--mb", "8", "--mb-scale", "lognormal:0.5:1")
    found = json.loads(
        invoke("run", *words, "--replicas", "4,1.2=1.5", "--t-reduce", "2", "--json").output
    )["replicas"]
    causes = found["causes"]
    assert sum(causes.values()) == pytest.approx(found["step"])
    assert causes["reduction"] == 2
    factors = [parse_scale(["lognormal:0.5:1"], 8, replica=replica)[0] for replica in range(4)]
    mean = repr(float(sum(each.sum() for each in factors)) / 32)
    even = (*words[:-1], ",".join([mean] * 8), "--replicas", "2,1.2=1.5")
    alone = json.loads(invoke("run", *even, "--json").output)["replicas"]["step"]
    assert causes["work"] + causes["pipeline"] == pytest.approx(alone)


def test_factors_that_are_given_are_those_of_all_replicas():
    listed = ("--mb-scale", "W=1,2,1,2,1,2,1,2")
    assert replicas("run", *listed, "--replicas", "3")["waits"] == [[0.0] * 4] * 3
    drawn = replicas("run", *listed, "--mb-scale", "F=normal:0.2:3", "--replicas", "3,1=1.5")[
        "makespans"
    ]
    assert len(set(drawn)) == 3


def test_replicas_of_jitter_draw_their_own_microbatches():
    """Without noise the last of them is what ``run`` gives."""
    drawn = ("--mb-scale", "lognormal:0.5:1", "--replicas", "4")
    words = ("jitter", "1f1b", *SHAPE, "--cv", "0", "--samples", "5", *drawn, "--json")
    found = json.loads(invoke(*words).output)["schedules"][0]
    assert found["makespan"] == found["p50"] == pytest.approx(replicas("run", *drawn)["step"])


def test_replicas_take_the_order_that_is_written(tmp_path):
    words = ("run", "1f1b", *SHAPE, "--comm", "0.3", "--p2p", "batched", "--replicas", "2")
    value = json.loads(invoke(*words, "--lowered", "-o", str(tmp_path / "x.csv"), "--json").stdout)
    assert value["replicas"]["makespans"] == [value["makespan"]] * 2


def test_jitter_takes_the_last_of_all_replicas():
    def percentiles(*words):
        value = json.loads(
            invoke("jitter", "1f1b", *SHAPE, "--samples", "400", *words, "--json").output
        )
        return value["schedules"][0]

    one, eight, slow = (
        percentiles(),
        percentiles("--replicas", "8"),
        percentiles("--replicas", "8,3=2"),
    )
    assert percentiles("--replicas", "1") == one
    assert one["makespan"] == eight["makespan"] < slow["makespan"] == pytest.approx(66)
    assert one["p50"] < eight["p50"] < slow["p50"]


@pytest.mark.parametrize(
    "given", ["0", "x", "2,5=1.5", "2,1=0", "2,1=nan", "1,-1", "2,1.9=2", "1,=2", "2,1=1=1", ""]
)
def test_what_is_no_replica_is_refused(given):
    result = invoke("run", "1f1b", *SHAPE, "--replicas", given)
    assert result.exit_code in (1, 2)
    assert result.exception is not None
    assert "internal error" not in result.output


def test_replicas_of_a_measured_run_are_its_own():
    from tests.real_runs import STRAGGLERS

    assert "states its times" in str(refused("explain", str(STRAGGLERS), "--replicas", "4"))


SLOWEST = [
    ("--replicas", "3,1=1.3"),
    ("--replicas", "3,2.1=1.5,0=1.1", "--p2p", "overlap", "--comm", "0.5"),
    ("--replicas", "4", "--mb-scale", "lognormal:0.5:3"),
    ("--lengths", "uniform:100:900:7", "--replicas", "3"),
    ("--lengths", "uniform:100:900:7", "--replicas", "3,1=1.4", "--p2p", "blocking"),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("options", SLOWEST)
def test_run_compare_and_what_if_show_the_same_slowest_replica(options):
    """One request by four commands: the pipeline that ends last, whatever finds it, in their
    makespans and in the times of ops.
    """
    shape = ("--devices", "3", "--mb", "6", *options, "--json")
    ran = json.loads(answer("run", "1f1b", *shape)[1])
    compared = json.loads(answer("compare", "gpipe", "1f1b", *shape)[1])["schedules"]
    asked = ("--what-if", "schedule=1f1b")
    changed = json.loads(answer("explain", "gpipe", *shape, *asked)[1])["what_if"]
    explained = json.loads(answer("explain", "1f1b", *shape)[1])
    slowest = max(ran["replicas"]["makespans"])
    assert ran["makespan"] == explained["makespan"] == compared[1]["makespan"]
    assert max(ran["ops"]["end"]) == ran["makespan"]
    assert explained["simulated_makespan"] == explained["makespan"]
    assert ran["bound"] == compared[1]["bound"]
    assert compared[1]["makespan"] == pytest.approx(slowest, rel=1e-12)
    assert changed[0]["makespan"] == pytest.approx(slowest, rel=1e-12)


def test_a_what_if_refuses_what_its_request_does():
    """Replicas wait after one step, so several are refused in a change as in a run."""
    shape = ("--devices", "2", "--mb", "4", "--replicas", "2,1=1.2")
    said = str(refused("run", "1f1b", *shape, "--steps", "2"))
    assert "replicas wait for each other after one step" in said
    assert str(refused("explain", "1f1b", *shape, "--what-if", "steps=2")) == said
