"""The period of schedules that go round: closed forms, long runs, and bounds under attack."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.analysis.period import find_around, find_period
from ppsim.core.costs import Costs, costs_for
from ppsim.core.rounds import repeat_rounds, take_rounds
from ppsim.core.schedule import Schedule
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError
from ppsim.schedules import generate
from ppsim.search.bounds.bounds import bound_schedule

TIMES = st.integers(1, 12).map(lambda n: n / 4)
LATENCIES = st.integers(0, 8).map(lambda n: n / 4)


def growth(schedule: Schedule, costs: Costs, rounds: int = 60) -> float:
    """The mean time of a round late in a long run, over as many rounds as any cycle of a small
    schedule spans.
    """
    few, many = (simulate(*take_rounds(schedule, costs, n)).makespan for n in (rounds, 2 * rounds))
    return (many - few) / rounds


@given(st.integers(1, 6), st.integers(1, 9), TIMES, LATENCIES)
def test_equal_batches_and_stages(P, M, time, latency):
    """A step takes max(M t, P (t + c)), and the bound is attained; on one device nothing is
    sent.
    """
    schedule = generate("decode", devices=P, microbatches=M)
    latency *= P > 1
    found = find_period(schedule, costs_for(schedule, tf=time, comm=latency))
    assert found.time == pytest.approx(max(M * time, P * (time + latency)))
    assert found.bound == found.time
    assert found.bubble == pytest.approx(1 - M * time / found.time)


@given(st.integers(1, 5), st.lists(TIMES, min_size=1, max_size=7))
def test_batches_of_different_sizes(P, factors):
    """Without messages a round takes max(sum, P times the longest)."""
    schedule = generate("decode", devices=P, microbatches=len(factors))
    found = find_period(schedule, replace(costs_for(schedule), scale=np.tile(factors, (5, 1))))
    assert found.time == pytest.approx(max(sum(factors), P * max(factors)))


@st.composite
def decoders(draw: st.DrawFn) -> tuple[Schedule, Costs]:
    """Any placement, uneven stages, links, batches and feedback."""
    P, V, M = draw(st.integers(1, 4)), draw(st.integers(1, 2)), draw(st.integers(1, 5))
    name = draw(st.sampled_from(["decode", "forward-only"]))
    schedule = generate(
        name, devices=P, chunks=V, microbatches=M, placement=draw(st.sampled_from(["loop", "v"]))
    )
    stages = draw(st.lists(TIMES, min_size=P * V, max_size=P * V))
    links = np.array(draw(st.lists(LATENCIES, min_size=P * P, max_size=P * P))).reshape(P, P)
    factors = draw(st.lists(TIMES, min_size=M, max_size=M))
    costs = costs_for(schedule, tf=stages, per="stage")
    feedback = draw(st.none() | LATENCIES)
    return schedule, replace(costs, comm=links, scale=np.tile(factors, (5, 1)), feedback=feedback)


@given(decoders())
def test_the_period_is_the_limit_of_long_runs(case):
    """As many rounds more as a cycle may span take as many periods more."""
    assert growth(*case) == pytest.approx(find_period(*case).time)


@given(decoders(), st.randoms(use_true_random=False))
def test_no_order_of_the_batches_beats_the_bound(case, random):
    """Random queues, another on every device: the bound holds, the period is still that of long
    runs.
    """
    schedule, costs = case
    bound = find_period(schedule, costs).bound
    queues = []
    M = schedule.n_microbatches
    for device in range(schedule.n_devices):
        of_stages = schedule.packed()[schedule.queue(device)].reshape(-1, M)
        queues.append(np.concatenate([row[random.sample(range(M), M)] for row in of_stages]))
    shuffled = schedule.with_queues(queues)
    found = find_period(shuffled, costs)
    assert found.time >= bound * (1 - 1e-12)
    assert found.bound == pytest.approx(bound)
    assert growth(shuffled, costs) == pytest.approx(found.time)


@given(decoders(), st.integers(1, 5))
def test_no_run_is_shorter_than_its_bound(case, rounds):
    """Of the makespan: a batch alone attains it, as its steps follow each other."""
    schedule, costs = take_rounds(case[0], case[1], rounds)
    bound, makespan = bound_schedule(schedule, costs).makespan, simulate(schedule, costs).makespan
    assert bound <= makespan * (1 + 1e-12)
    if schedule.feeds_back and schedule.whole_microbatches == 1:
        assert bound == pytest.approx(makespan)


def test_the_identity_with_the_looped_schedule():
    """A decode loop through looped-bfs, as people ran it: 4.8, 5 and 6 a step, less its empty
    backwards' messages.
    """
    for M, step in ((4, 4.8), (5, 5.0), (6, 6.0)):
        decode = generate("decode", devices=4, microbatches=M)
        assert find_period(decode, costs_for(decode, comm=0.2)).time == pytest.approx(step)
        long = [generate("looped-bfs", devices=4, chunks=n, microbatches=M) for n in (65, 64)]
        ends = [
            simulate(each, costs_for(each, tf=1, tb=0, comm=0.2, per="stage")).makespan
            for each in long
        ]
        assert ends[0] - ends[1] - 0.8 == pytest.approx(step)
        repeated = simulate(repeat_rounds(decode, 64), costs_for(decode, comm=0.2)).makespan
        assert repeated == pytest.approx(ends[1] - (64 * 4 - 1) * 0.2)


@pytest.mark.parametrize(
    ("M", "options", "why"),
    [
        (4, {"comm": 0.2}, "a batch travels around in 4.8"),
        (5, {"comm": 0.2}, "every device is always busy"),
        (6, {"tf": [1, 1, 2, 1]}, "device 2 is always busy"),
    ],
)
def test_the_cycle_that_decides_is_named(M, options, why):
    """In words a reader knows from a picture."""
    schedule = generate("decode", devices=4, microbatches=M)
    assert find_period(schedule, costs_for(schedule, **options)).reason == why


def test_a_batch_of_its_own_size_is_named():
    """vLLM 57433: 7, 13, 2 and 10 sequences in four batches take 6.5, where 8 in each take 4."""
    schedule = generate("decode", devices=4, microbatches=4)
    found = find_period(
        schedule, replace(costs_for(schedule), scale=np.tile(np.array([7, 13, 2, 10]) / 8, (5, 1)))
    )
    assert (found.time, found.reason) == (6.5, "batch 1 travels around")
    assert found.batches.tolist() == [3.5, 6.5, 1.0, 5.0]


def test_a_cycle_through_several_devices_is_told():
    """Two devices whose orders differ wait for each other."""
    schedule = generate("forward-only", devices=2, chunks=2, microbatches=1, placement="v")
    found = find_period(schedule, costs_for(schedule, comm=1.0))
    assert found.time == 4.0
    assert found.bound == 1.0
    assert found.reason.startswith("a cycle through several devices: ")


def test_fill_and_drain():
    """The first batch takes P forwards to its first token, the last as many from its last start."""
    schedule = generate("decode", devices=4, microbatches=6)
    timeline = simulate(*take_rounds(schedule, costs_for(schedule, comm=0.5), 3))
    assert find_around(timeline) == (5.5, 5.5)
    training = generate("1f1b", devices=4, microbatches=8)
    assert find_around(simulate(training, costs_for(training))) == (4.0, 8.0)


def test_a_shared_link_to_the_host_has_no_period():
    """There the time of a copy decides which is next, and no graph of events says it."""
    schedule = generate("forward-only", devices=2, microbatches=2)
    with pytest.raises(InputError, match="share a link"):
        find_period(schedule, costs_for(schedule, host_link=2))


def test_rounds_keep_what_a_round_is():
    """Numbers of microbatches grow by M; a round of a schedule that goes round is the round it was
    made of.
    """
    schedule = generate("decode", devices=2, microbatches=3)
    twice = repeat_rounds(schedule, 2)
    assert (twice.n_microbatches, twice.whole_microbatches, twice.n_rounds) == (6, 3, 2)
    assert twice.dependency.tolist()[:6] == [-1, -1, -1, 6, 7, 8]
    again = take_rounds(twice, costs_for(twice), 1)[0]
    for column in ("offsets", "kind", "stage", "microbatch", "pair"):
        assert np.array_equal(getattr(again, column), getattr(schedule, column))
    with pytest.raises(InputError, match="has several rounds already"):
        repeat_rounds(twice, 2)
    with pytest.raises(InputError, match="more than fits"):
        repeat_rounds(schedule, 100_000_000)
