"""Gaps of a device are its idle time, each with the op after it; labels name ops."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.analysis.explain import explain
from ppsim.analysis.idle import arrivals, explain_idle
from ppsim.analysis.views import device_lines, find_op, gap_before, gaps_of, op_lines, view_object
from ppsim.core.costs import costs_for
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError
from ppsim.schedules import generate
from tests.cases import EIGHTHS, FEW, PLAIN, costs, schedules


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PLAIN)
@FEW
@given(st.data())
def test_gaps_are_the_idle_time_of_a_device(name, data):
    """Their times sum to it, their parts to them; each lies between the end of an op and the start
    of the next.
    """
    schedule = data.draw(schedules(name))
    times = data.draw(costs(schedule, EIGHTHS))
    timeline = simulate(schedule, times)
    idle = explain_idle(timeline, arrivals(timeline, times.latencies(schedule)))
    device = data.draw(st.integers(0, schedule.n_devices - 1))
    gaps = gaps_of(idle, device)
    assert sum(gap.end - gap.start for gap in gaps) == pytest.approx(idle.by_device[device].sum())
    queue = schedule.queue(device)
    ends = {0.0, *timeline.end[queue].tolist()}
    for gap in gaps:
        assert sum(part.time for part in gap.parts) == pytest.approx(gap.end - gap.start)
        assert gap.start in ends
        assert gap.end == (timeline.start[gap.op] if gap.op >= 0 else timeline.makespan)
        assert gap.op < 0 or gap_before(idle, gap.op) == gap


def test_ops_are_found_by_their_labels():
    schedule = generate("dualpipe-v", devices=2, microbatches=4)
    for op in range(len(schedule)):
        first = op - 1 if -1 != schedule.pair[op] < op else op
        assert find_op(schedule, f" {schedule.label(op).lower()}") == first
    assert find_op(schedule, "b1@2") == find_op(schedule, "2B1")
    for text in ("F", "B1@", "2F", "2X0", "9F0", "0F99", ""):
        with pytest.raises(InputError):
            find_op(schedule, text)


def explained(name="1f1b", microbatches=2, **times):
    schedule = generate(name, devices=2, microbatches=microbatches)
    costs = costs_for(schedule, **times)
    return explain(simulate(schedule, costs), costs)


def test_a_device_is_told_by_its_gaps():
    """Two devices, two microbatches, F = 1, B = 2, half a unit of latency: 0F0 0F1 . 0B0 . 0B1; 1F0
    1B0 1F1 1B1.

    Device 1 is idle for 1.5 at first, and for 2.5 when device 0 ends with its last backward at 10.
    """
    assert device_lines(explained(comm=0.5), 1) == [
        "device 1: idle 4 of 10 t_F",
        "  drain 2.5, fill 1, message 0.5",
        "  0 to 1.5 (1.5) before 1F0: fill 1 (0F0), message 0.5 (1F0)",
        "  7.5 to 10 (2.5) after its last op: drain 2.5 (nothing is left to do)",
    ]
    assert device_lines(explained(comm=0.5), 0) == [
        "device 0: idle 4 of 10 t_F",
        "  turnaround 2.5, message 1, compute 0.5",
        "  2 to 5 (3) before 0B0: turnaround 0.5 (1F0), turnaround 2 (1B0), message 0.5 (0B0)",
        "  7 to 8 (1) before 0B1: compute 0.5 (1B1), message 0.5 (0B1)",
    ]


def test_a_part_that_is_rounding_is_left_out_of_others_and_not_alone():
    lines = device_lines(explained(comm=1e-9), 1)
    assert lines[2] == "  0 to 1 (1) before 1F0: fill 1 (0F0)"
    gaps = device_lines(explained(tf=[1e-9, 1.0], tb=2.0), 1)
    assert gaps[2].startswith("  0 to 0 (0) before 1F0: fill 0 (0F0)")


def test_an_op_is_told_by_what_it_waits_for_and_what_waits_for_it():
    found = explained(comm=0.5)
    schedule = found.timeline.schedule
    assert op_lines(found, find_op(schedule, "0B0")) == [
        "0B0 on device 0: 5 to 7 t_F",
        "  waits for: 1B0, its input, from device 1, which ends at 4.5",
        "  idle before it: 3: turnaround 0.5 (1F0), turnaround 2 (1B0), message 0.5 (0B0)",
        "  slack: 1 t_F",
        "  its result goes to: no other op",
    ]
    assert op_lines(found, find_op(schedule, "1B0"))[1:4] == [
        "  waits for: 1F0, the op before it on the device, which ends at 2.5",
        "  idle before it: none",
        "  slack: 0: any delay delays the iteration",
    ]
    assert op_lines(found, find_op(schedule, "0F0"))[1] == "  waits for: nothing"
    assert op_lines(found, find_op(schedule, "0F1"))[-1] == "  its result goes to: 1F1"


def test_views_as_an_object():
    found = explained(comm=0.5)
    made = view_object(found, 0, find_op(found.timeline.schedule, "0B0"))
    assert [(gap["before"], gap["start"], gap["end"]) for gap in made["gaps"]] == [
        ("0B0", 2, 5),
        ("0B1", 7, 8),
    ]
    assert made["gaps"][0]["parts"] == [
        {"cause": "turnaround", "time": 0.5, "op": "1F0"},
        {"cause": "turnaround", "time": 2.0, "op": "1B0"},
        {"cause": "message", "time": 0.5, "op": "0B0"},
    ]
    assert made["op"] == {
        "op": "0B0",
        "device": 0,
        "start": 5.0,
        "end": 7.0,
        "waits_for": "1B0",
        "gap": made["gaps"][0],
        "slack": 1.0,
        "result_to": [],
    }
    last = view_object(found, 1, find_op(found.timeline.schedule, "0F0"))
    assert last["gaps"][-1]["before"] is None
    assert last["gaps"][-1]["parts"][0]["op"] is None
    assert (last["op"]["waits_for"], last["op"]["gap"], last["op"]["result_to"]) == (
        None,
        None,
        ["1F0"],
    )
    assert view_object(found, None, None) == {}


def test_a_pair_is_named_by_both_ops_and_has_the_users_of_both():
    found = explained("dualpipe-v", 6)
    schedule = found.timeline.schedule
    pair = next(op for op in range(len(schedule)) if schedule.pair[op] > op)
    name = f"{schedule.label(pair)}+{schedule.label(pair + 1)}"
    assert op_lines(found, pair)[0].startswith(f"{name} on device {schedule.device[pair]}")
    users = [
        schedule.label(op)
        for op in range(len(schedule))
        if schedule.dependency[op] in (pair, pair + 1)
    ]
    assert view_object(found, None, pair)["op"]["result_to"] == users


def test_there_are_devices_from_zero_on():
    found = explained()
    with pytest.raises(InputError) as refused:
        gaps_of(found.idle, 2)
    assert refused.value.hint == "a device from 0 to 1"
    with pytest.raises(InputError):
        gaps_of(found.idle, -1)
    with pytest.raises(InputError) as refused:
        find_op(found.timeline.schedule, "5F0")
    assert refused.value.hint == "a stage from 0 to 1, one of F, B, and a microbatch from 0 to 1"
