"""The detailed model: its limits, its order of modes, its agreement with a slow second model, its
deadlocks.
"""

from dataclasses import replace
from math import inf, isinf

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ppsim.core.costs import Costs, costs_for
from ppsim.core.draft import Draft
from ppsim.core.lowered import Lowered
from ppsim.core.ops import Kind
from ppsim.engine.detailed.execute import execute
from ppsim.engine.detailed.spec import CHANNELS, MODES, Host, Network
from ppsim.engine.lowering.lower import lower
from ppsim.engine.lowering.matching import match_messages
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import Deadlock, InvalidSchedule
from ppsim.inputs.check.checks import check
from ppsim.schedules import generate
from tests.cases import PLAIN, costs, schedules
from tests.engine.detailed.network_oracle import execute_slowly

# Eighths add and compare without rounding; times above zero give every op a place.
TIMES = st.integers(1, 40).map(lambda n: n / 8)
ORDERS = ("early", "even-first", "torch", "deferred", "prefetch:0", "prefetch:1", "prefetch:3")
any_schedule = st.sampled_from(PLAIN).flatmap(schedules).filter(lambda s: len(s) < 160)


@st.composite
def runs(draw: st.DrawFn) -> tuple[Lowered, Costs]:
    schedule = draw(any_schedule)
    given_costs = draw(costs(schedule, TIMES))
    lowered = lower(schedule, draw(st.sampled_from(ORDERS)), batch=draw(st.booleans()))
    assume(in_order(lowered))
    return lowered, given_costs


def in_order(lowered: Lowered) -> bool:
    """Whether the messages of each link are received as they are sent, which ``deferred`` does not
    promise.
    """
    try:
        match_messages(lowered)
    except InvalidSchedule:
        return False
    return True


hosts = st.builds(Host, *[st.sampled_from((0.0, 0.125, 0.5))] * 7)


def outcome(lowered: Lowered, given_costs: Costs, network: Network) -> float:
    """The makespan, infinite for a deadlock."""
    try:
        return execute(lowered, given_costs, network).makespan
    except Deadlock:
        return inf


@pytest.mark.sampled(4)
@pytest.mark.parametrize("devices", [4, 8])
@pytest.mark.parametrize("latency", [0.125, 0.5, 1.0])
@pytest.mark.parametrize(("name", "pays"), [("1f1b", 2), ("eager-1f1b", 0)])
def test_steady_period(name, pays, devices, latency):
    """Under latency c, a microbatch of 1F1B takes F + B + 2c (P - 1) / P, one of Eager 1F1B F +
    B.
    """
    schedule = generate(name, devices=devices, microbatches=10 * devices)
    lowered = lower(schedule)
    starts = execute(lowered, costs_for(schedule, tf=1, tb=2), Network(alpha=latency)).compute.start
    backwards = starts[(schedule.kind == Kind.B) & (schedule.device == 0)]
    period = (backwards[6 * devices] - backwards[5 * devices]) / devices
    assert period == pytest.approx(3 + pays * latency * (devices - 1) / devices, rel=1e-12)


@given(
    any_schedule.flatmap(lambda s: st.tuples(st.just(s), costs(s, TIMES))), st.sampled_from(ORDERS)
)
def test_latency_mode_is_the_simple_model(case, order):
    """Every op starts and ends as in the simple model, bit for bit, whatever the order of sends and
    receives.
    """
    schedule, given_costs = case
    assume(in_order(lower(schedule, order)))
    run = execute(lower(schedule, order), given_costs, Network(alpha=given_costs.comm))
    simple = simulate(schedule, given_costs)
    np.testing.assert_array_equal(run.compute.start, simple.start)
    np.testing.assert_array_equal(run.compute.end, simple.end)
    assert run.makespan == simple.makespan


@given(runs())
def test_overlap_over_a_perfect_network_is_no_communication(case):
    """With infinite bandwidth and no latency, overlapped messages cost nothing."""
    lowered, given_costs = case
    free = simulate(lowered.compute, replace(given_costs, comm=0.0))
    run = execute(lowered, given_costs, Network("overlap"))
    np.testing.assert_array_equal(run.compute.start, free.start)


@given(any_schedule.flatmap(lambda s: st.tuples(st.just(s), costs(s, TIMES))), TIMES)
def test_overlap_with_latency_alone_is_the_latency_mode(case, latency):
    """Receives posted ahead and channels that nothing queues for: a message costs its latency and
    no more.
    """
    schedule, given_costs = case
    lowered = lower(schedule, f"prefetch:{len(schedule)}")
    free, overlap = (
        execute(lowered, given_costs, Network(mode, "message", alpha=latency)).compute.start
        for mode in ("latency", "overlap")
    )
    np.testing.assert_array_equal(overlap, free)


@given(
    runs(),
    hosts,
    TIMES,
    TIMES | st.just(inf),
    st.sampled_from(CHANNELS),
    st.sampled_from((-1.0, 8.0)),
)
def test_each_mode_is_no_faster_than_the_one_before(case, host, alpha, beta, channel, eager):
    """blocking, batched, overlap, latency: what holds a device up less never takes longer."""
    lowered, given_costs = case
    # bandwidth is not divided
    assume(isinf(beta) or not (channel == "message" or (lowered.batch >= 0).any()))
    times = [
        outcome(
            lowered, given_costs, Network(mode, channel, alpha, beta, eager, message=8.0, host=host)
        )
        for mode in MODES
    ]
    latency, overlap, blocking, batched = times
    rounding = 1 + 1e-12  # of bytes / beta
    assert latency <= overlap * rounding
    assert overlap <= batched * rounding
    assert batched <= blocking * rounding


@given(
    runs(),
    hosts,
    st.sampled_from(MODES),
    st.sampled_from(CHANNELS),
    st.sampled_from((0.0, 0.125, 1.0)),
    st.sampled_from((inf, 4.0)),
    st.sampled_from((-1.0, 8.0)),
    st.sampled_from((0.0, 0.25)),
)
def test_agrees_with_a_second_model(case, host, mode, channel, alpha, beta, eager, late):
    """Start of every op, makespan and deadlock as a model without events finds them."""
    lowered, given_costs = case
    assume(channel != "message" or isinf(beta))
    network = Network(mode, channel, alpha, beta, eager, message=8.0, late=late, host=host)
    assume(not (mode in ("overlap", "batched") and (lowered.batch >= 0).any() and not isinf(beta)))
    starts, makespan = execute_slowly(lowered, given_costs, network)
    if isinf(makespan):
        with pytest.raises(Deadlock, match="deadlocks: "):
            execute(lowered, given_costs, network)
        return
    run = execute(lowered, given_costs, network)
    own = run.timeline.start if mode != "latency" else run.compute.start
    expected = [t for t in starts if not isinf(t)]
    np.testing.assert_array_equal(own, expected)
    assert run.makespan == makespan


@given(any_schedule, st.sampled_from(ORDERS[:3]), st.booleans(), st.integers(0, 3), st.booleans())
def test_orders_cut_from_one_sequence_finish_in_every_mode(
    schedule, order, batch, unshard, reduce_grad
):
    """early, even-first and torch, with and without batches and FSDP ops."""
    lowered = lower(schedule, order, batch=batch, unshard=unshard, reduce_grad=reduce_grad)
    for mode in MODES:
        execute(lowered, costs_for(schedule), Network(mode, alpha=0.5, beta=4.0, message=1.0))


@given(any_schedule, st.sampled_from(ORDERS), st.sampled_from(("overlap", "batched", "blocking")))
def test_deadlocks_are_those_that_check_finds(schedule, order, mode):
    """Executing and checking are two programs, and agree on every order in every mode."""
    lowered = lower(schedule, order, batch=mode == "batched")
    faults = check(Draft.from_schedule(lowered.schedule), [mode]).faults
    try:
        finished = not isinf(outcome(lowered, costs_for(schedule), Network(mode)))
    except InvalidSchedule:
        finished = False
    assert finished == (not faults)
