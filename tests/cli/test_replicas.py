"""Replicas of a simulated schedule, some slower: the step is the slowest's, and others wait for it at the reduction."""

import json

import pytest

from tests.commands import invoke, refused

SHAPE = ("--devices", "4", "--mb", "8")


def replicas(command, *words):
    return json.loads(invoke(command, "1f1b", *SHAPE, *words, "--json").output)["replicas"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("command", ["run", "explain"])
@pytest.mark.parametrize("how", [(), ("--comm", "0.25"), ("--p2p", "blocking", "--comm", "0.25")])
def test_each_replica_takes_what_it_takes_alone(command, how):
    found = replicas(command, "--replicas", "1,1,1.5", *how)
    slow = ("--tf", "1.5", "--ti", "1.5", "--tw", "1.5")
    alone = [json.loads(invoke("run", "1f1b", *SHAPE, *how, *more, "--json").output) for more in ((), slow)]
    assert found["makespans"] == pytest.approx([alone[0]["makespan"]] * 2 + [alone[1]["makespan"]])
    assert found["step"] == found["makespans"][2]
    assert (found["slowest"], found["last_by_device"]) == (2, [2] * 4)
    ends = [[0.0] * 4, [0.0] * 4]
    for end, value in zip(ends, alone, strict=True):
        for device, time in zip(value["ops"]["device"], value["ops"]["end"], strict=True):
            end[device] = max(end[device], time)
    assert found["waits"][0] == pytest.approx([slow - fast for fast, slow in zip(*ends, strict=True)])
    assert found["waits"][2] == [0.0] * 4


def test_one_slow_device_of_one_replica_is_as_its_speed():
    found = replicas("run", "--replicas", "3,1.2=2")
    alone = json.loads(invoke("run", "1f1b", *SHAPE, "--speed", "1,1,0.5,1", "--json").output)
    assert found["makespans"] == pytest.approx([33, alone["makespan"], 33])


def test_the_one_line_says_the_step_too():
    """1F1B of 2 devices and 2 microbatches takes 9; a replica half as slow again ends it."""
    line = invoke("run", "--schedule", "1f1b", "--devices", "2", "--mb", "2", "-q", "--replicas", "4,1=1.5").stdout
    assert line.endswith("step of 4 replicas 13.5 t_F\n")


def test_equal_replicas_wait_for_nobody():
    assert replicas("run", "--replicas", "4")["waits"] == [[0.0] * 4] * 4
    assert "nobody waits" in invoke("run", "1f1b", *SHAPE, "--replicas", "4").output


def test_jitter_takes_the_last_of_all_replicas():
    def percentiles(*words):
        value = json.loads(invoke("jitter", "1f1b", *SHAPE, "--samples", "400", *words, "--json").output)
        return value["schedules"][0]

    one, eight, slow = percentiles(), percentiles("--replicas", "8"), percentiles("--replicas", "8,3=2")
    assert percentiles("--replicas", "1") == one
    assert one["makespan"] == eight["makespan"] < slow["makespan"] == pytest.approx(66)
    assert one["p50"] < eight["p50"] < slow["p50"]


@pytest.mark.parametrize("given", ["0", "x", "2,5=1.5", "2,1=0", "2,1=nan", "1,-1", "2,1.9=2", "1,=2", "2,1=1=1", ""])
def test_what_is_no_replica_is_refused(given):
    result = invoke("run", "1f1b", *SHAPE, "--replicas", given)
    assert result.exit_code in (1, 2)
    assert result.exception is not None
    assert "internal error" not in result.output


def test_replicas_of_a_measured_run_are_its_own():
    from tests.real_runs import STRAGGLERS

    assert "states its times" in str(refused("explain", str(STRAGGLERS), "--replicas", "4"))
