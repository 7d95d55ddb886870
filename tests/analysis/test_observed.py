"""What is read off the times of a run is what made them, where it was simulated; medians hold
against noise.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.analysis.critical_path import critical_path
from ppsim.analysis.idle import arrivals, explain_idle
from ppsim.analysis.observed import observe, previous_op_ends
from ppsim.core.costs import costs_for
from ppsim.core.ops import Kind
from ppsim.core.schedule import NONE
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure
from ppsim.schedules import generate
from ppsim.search.rules.offload import add_offload
from tests.cases import EIGHTHS, FEW, PLAIN, costs, schedules


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "zb-1p", "dualpipe-v"])
def test_a_simulated_run_is_explained_by_its_times_alone(name):
    """With one latency everywhere, causes found from times are those found from costs, and so are
    the costs.
    """
    schedule = generate(name, devices=4, microbatches=8)
    times = costs_for(schedule, tf=1.25, ti=1.5, tw=0.75, comm=0.375)
    timeline = simulate(schedule, times)
    found = observe(replace(timeline, bound=np.full_like(timeline.bound, NONE)))
    known = explain_idle(timeline, arrivals(timeline, times.latencies(schedule)))
    read = explain_idle(found.timeline, found.arrival)
    np.testing.assert_allclose(read.by_device, known.by_device, rtol=0, atol=1e-9)
    assert simulate(schedule, found.costs).makespan == timeline.makespan


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PLAIN)
@FEW
@given(st.data())
def test_causes_sum_to_the_idle_time_whatever_the_times(name, data):
    """Times that no model made, with ops held up at random, are explained without a rest; the path
    ends last.
    """
    schedule = data.draw(schedules(name))
    times = data.draw(costs(schedule, EIGHTHS))
    timeline = simulate(schedule, times)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    # later ops later, so that none overlaps the one before
    held_up = np.sort(rng.exponential(0.5, len(schedule)))
    late = np.zeros(len(schedule))
    late[np.argsort(timeline.start, kind="stable")] = held_up
    second = schedule.second_of_pairs
    late[second] = late[second - 1] = np.maximum(late[second], late[second - 1])
    for device in range(schedule.n_devices):
        queue = schedule.queue(device)
        late[queue] = np.maximum.accumulate(late[queue])
    found = observe(replace(timeline, start=timeline.start + late, end=timeline.end + late))
    idle = explain_idle(found.timeline, found.arrival)
    expected = measure(found.timeline).idle
    np.testing.assert_allclose(
        idle.by_device.sum(axis=1), expected, rtol=0, atol=1e-9 * found.timeline.makespan
    )
    path = critical_path(found.timeline)
    assert found.timeline.end[path].max() == found.timeline.makespan
    assert found.timeline.bound[path[0]] == NONE


def test_one_slow_message_moves_no_latency():
    """A message that took ten times as long is waiting for that message; its link's latency
    stays.
    """
    schedule = generate("1f1b", devices=2, microbatches=8)
    timeline = simulate(schedule, costs_for(schedule, comm=0.5))
    slow = next(op for op in range(len(schedule)) if schedule.label(op) == "1F0")
    late = 4.5 * (timeline.start >= timeline.start[slow])
    found = observe(replace(timeline, start=timeline.start + late, end=timeline.end + late))
    assert np.asarray(found.costs.comm)[1, 0] == 0.5


def test_a_link_that_nobody_waited_for_is_as_fast_as_the_others():
    """Device 0 is always busy when a gradient arrives, so how long that took shows nowhere."""
    schedule = generate("1f1b", devices=2, microbatches=4)
    timeline = simulate(schedule, costs_for(schedule, tf=[10.0, 1.0], tb=[100.0, 1.0], comm=0.5))
    assert np.asarray(observe(timeline).costs.comm).tolist() == [[0.0, 0.5], [0.5, 0.0]]


def test_a_link_is_no_slower_than_its_ops_show():
    """The first gradient was used 3 after it was made, whatever messages on the other link take."""
    schedule = generate("1f1b", devices=2, microbatches=4)
    links = np.array([[0.0, 9.0], [0.5, 0.0]])
    times = replace(costs_for(schedule, tf=[14.0, 1.0], tb=[100.0, 1.0]), comm=links)
    timeline = simulate(schedule, times)
    assert np.asarray(observe(timeline).costs.comm).tolist() == [[0.0, 9.0], [3.0, 0.0]]


@pytest.mark.parametrize("name", ["vocab-1", "bpipe"])
def test_messages_beside_copies_and_collectives_take_what_their_link_does(name):
    """One that waits for a busy device was there before: no longer than its link takes, no later
    than its op.
    """
    schedule = generate(name, devices=4, microbatches=8)
    timeline = simulate(schedule, costs_for(schedule, comm=0.375))
    latencies = observe(timeline).latencies
    sent = latencies > 0
    assert sent.sum() > 2 * 8
    assert latencies[sent].max() == 0.375
    waited = timeline.start - timeline.end[schedule.dependency.clip(0)]
    assert (latencies[sent] <= waited[sent] + 1e-12).all()


def test_copies_take_the_time_of_their_stage():
    """Of four stages on two devices, each with its own times; the last keeps what it needs at
    once.
    """
    schedule = generate("interleaved", devices=2, chunks=2, microbatches=4)
    others = {
        Kind.OFFLOAD: np.array([0.25, 0.5, 0.125, 9.0]),
        Kind.RELOAD: np.array([0.5, 0.25, 0.75, 9.0]),
    }
    prices = replace(costs_for(schedule), others=others)
    found = observe(simulate(add_offload(schedule, prices, 2), prices)).costs.others
    assert found[Kind.OFFLOAD].tolist() == [0.25, 0.5, 0.125, 0.0]
    assert found[Kind.RELOAD].tolist() == [0.5, 0.25, 0.75, 0.0]


def test_received_inputs_are_taken_as_they_are():
    """Where it is known when an input was received, what the device waits beyond that is the
    host's.
    """
    schedule = generate("1f1b", devices=2, microbatches=4)
    timeline = simulate(schedule, costs_for(schedule, comm=0.5))
    need = schedule.dependency
    received = np.where(schedule.crosses, timeline.end[need] + 0.25, np.nan)
    found = observe(timeline, received)
    idle = explain_idle(found.timeline, found.arrival).by_cause
    whole = explain_idle(
        timeline, arrivals(timeline, costs_for(schedule, comm=0.5).latencies(schedule))
    ).by_cause
    assert idle["message"] == whole["message"] / 2
    assert idle["host"] == whole["message"] / 2
    assert set(np.unique(found.costs.comm)) == {0.0, 0.25}


def test_host_time_between_ops_is_part_of_the_costs():
    """A gap whose input had arrived long before is the host's; the run is timed again with it."""
    schedule = generate("gpipe", devices=1, microbatches=4)
    timeline = simulate(schedule, costs_for(schedule))
    late = 0.125 * np.arange(len(schedule))
    held = replace(timeline, start=timeline.start + late, end=timeline.end + late)
    found = observe(held)
    assert explain_idle(found.timeline, found.arrival).by_cause == {"host": 0.125 * 7}
    assert simulate(schedule, found.costs).makespan == held.makespan


@pytest.mark.parametrize("name", ["1f1b", "zb-1p", "dualpipe-v", "dualpipe"])
def test_a_device_is_free_when_all_before_have_ended(name):
    """Both ops of a pair begin when the op before the pair is over, whatever ran long before it."""
    schedule = generate(name, devices=4, microbatches=8)
    timeline = simulate(schedule, costs_for(schedule, tf=1.25, ti=1.5, tw=0.75, comm=0.375))
    late = replace(
        timeline, end=timeline.end + np.random.default_rng(1).uniform(0, 3, len(schedule))
    )
    found = previous_op_ends(late)
    for device in range(4):
        queue = schedule.queue(device)
        for op in range(queue.start, queue.stop):
            first = op - 1 if NONE != schedule.pair[op] < op else op
            assert found[op] == late.end[queue.start : first].max(initial=0.0)


def test_a_pair_waits_for_the_later_of_its_inputs():
    """Of two inputs the one that arrived last is what both ops of a pair waited for."""
    schedule = generate("dualpipe-v", devices=4, microbatches=12)
    timeline = simulate(schedule, costs_for(schedule, tf=1.25, ti=1.5, tw=0.75, comm=0.375))
    found = observe(replace(timeline, bound=np.full_like(timeline.bound, NONE)))
    np.testing.assert_array_equal(found.timeline.bound, timeline.bound)


def test_costs_are_medians_by_kind_and_stage_and_a_pairs_its_own():
    """A pair of two stages takes the mean of theirs; what ran only in pairs has half of one."""
    schedule = generate("dualpipe-v", devices=2, microbatches=12)
    times = costs_for(
        schedule,
        tf=[1.0, 2.0, 3.0, 4.0],
        ti=[2.0, 3.0, 4.0, 5.0],
        tw=1.0,
        tfb=[2.5, 4.5, 6.5, 8.5],
        per="stage",
    )
    timeline = simulate(schedule, times)
    found = observe(timeline).costs
    assert found.pair is not None
    assert found.pair.tolist() == [5.5] * 4  # of stages 0 and 3, or 1 and 2
    used = np.zeros(found.time.shape, bool)
    used[schedule.kind, schedule.stage] = True
    alone = np.zeros(found.time.shape, bool)
    alone[schedule.kind[schedule.pair == NONE], schedule.stage[schedule.pair == NONE]] = True
    assert found.time[alone] == pytest.approx(times.time[alone])
    only = used & ~alone
    assert found.time[only] == pytest.approx(
        np.broadcast_to(found.pair, found.time.shape)[only] / 2
    )
    assert found.time[4] == pytest.approx(found.time[0])  # without an R, it is another F
