"""Training steps in a row, each with its optimizer step: closed forms and long runs."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.analysis.idle import arrivals, explain_idle
from ppsim.analysis.period import find_period
from ppsim.core.costs import Costs, costs_for
from ppsim.core.ops import Kind
from ppsim.core.rounds import repeat_rounds, take_rounds
from ppsim.core.schedule import Schedule
from ppsim.core.steps import add_optimizer
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure
from ppsim.schedules import families, generate
from ppsim.search.bounds.bounds import bound_schedule

TIMES = st.integers(1, 12).map(lambda n: n / 4)
WAITS = st.integers(0, 8).map(lambda n: n / 4)
NAMES = (
    "gpipe",
    "1f1b",
    "interleaved",
    "zb-h1",
    "zb-v",
    "looped-bfs",
    "chimera",
    "dualpipe",
    "seq1f1b",
    "v-half",
)
FLUSHING = [family.name for family in families() if family.flushes and family.interchangeable]


def made(
    name: str, P: int, M: int, *, barrier: bool, gathers: bool = False, reduces: bool = False
) -> Schedule:
    schedule = generate(name, devices=P, microbatches=M)
    return add_optimizer(schedule, barrier=barrier, gathers=gathers, reduces=reduces)


def prices(
    schedule: Schedule,
    optimizer: float | list[float] = 0.0,
    gather: float = 0.0,
    reduce: float = 0.0,
    tf: float | list[float] = 1.0,
    tb: float | None = None,
    comm: float = 0.0,
) -> Costs:
    others = {Kind.OPT: optimizer, Kind.GATHER: gather, Kind.REDUCE: reduce}
    return costs_for(schedule, others=others, tf=tf, tb=tb, comm=comm)


def growth(schedule: Schedule, costs: Costs, rounds: int = 60) -> float:
    """The mean time of a round late in a long run."""
    few, many = (simulate(*take_rounds(schedule, costs, n)).makespan for n in (rounds, 2 * rounds))
    return (many - few) / rounds


@given(
    st.sampled_from(NAMES),
    st.sampled_from([2, 4]),
    st.sampled_from([8, 12]),
    TIMES,
    TIMES,
    WAITS,
    WAITS,
)
def test_with_a_barrier_a_step_takes_its_makespan_and_the_optimizer(
    name, P, M, tf, tb, comm, optimizer
):
    """Exactly, whatever the schedule; every step of a run is alike, and the bound holds."""
    schedule = made(name, P, M, barrier=True)
    costs = prices(schedule, optimizer, tf=tf, tb=tb, comm=comm)
    alone = generate(name, devices=P, microbatches=M)
    step = simulate(alone, costs_for(alone, tf=tf, tb=tb, comm=comm)).makespan
    assert find_period(schedule, costs).time == pytest.approx(step + optimizer)
    three, prices_of_three = take_rounds(schedule, costs, 3)
    run = simulate(three, prices_of_three)
    assert run.makespan == pytest.approx(3 * (step + optimizer))
    assert bound_schedule(
        three, prices_of_three, measure(run).peak_activations
    ).makespan <= run.makespan * (1 + 1e-12)


@given(st.integers(1, 4), st.integers(1, 6), st.lists(WAITS, min_size=4, max_size=4))
def test_the_barrier_waits_for_the_longest_optimizer_step(P, M, times):
    schedule = made("1f1b", P, M, barrier=True)
    found = find_period(schedule, prices(schedule, times[:P], tf=1, tb=2))
    assert found.time == pytest.approx(3 * (M + P - 1) + max(times[:P]))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", FLUSHING)
def test_without_a_barrier_a_step_takes_the_longest_span(name):
    """Post-validation: what bubble_rate_span has always meant; spans may shrink in later steps,
    never grow.
    """
    P, M = 4, 8
    alone, schedule = generate(name, devices=P, microbatches=M), made(name, P, M, barrier=False)
    span = measure(simulate(alone, costs_for(alone))).span
    found = find_period(schedule, prices(schedule, 1.5))
    assert found.bound <= found.time <= span + 1.5 + 1e-9
    if name in ("gpipe", "1f1b", "zb-1p", "zb-2p", "interleaved"):
        assert found.time == pytest.approx(span + 1.5)
    assert growth(schedule, prices(schedule, 1.5)) == pytest.approx(found.time)


def test_zero_bubbles_parallelogram_is_kept_without_the_barrier_alone():
    """ZB-2P on 4 devices: no bubble with post-validation, P - 1 forwards more with a barrier."""
    for barrier, period in ((False, 25.0), (True, 28.0)):
        schedule = made("zb-2p", 4, 8, barrier=barrier)
        assert find_period(schedule, prices(schedule, 1.0)).time == pytest.approx(period)


@st.composite
def steps(draw: st.DrawFn) -> tuple[Schedule, Costs]:
    """Any schedule with gathers, reductions, uneven devices and links."""
    name, P, M = (
        draw(st.sampled_from(NAMES)),
        draw(st.sampled_from([2, 4])),
        draw(st.sampled_from([8, 12])),
    )
    flags = {key: draw(st.booleans()) for key in ("barrier", "gathers", "reduces")}
    schedule = made(name, P, M, **flags)
    stages = draw(st.lists(TIMES, min_size=schedule.n_stages, max_size=schedule.n_stages))
    links = np.array(draw(st.lists(WAITS, min_size=P * P, max_size=P * P))).reshape(P, P)
    optimizer = draw(st.lists(WAITS, min_size=P, max_size=P))
    costs = prices(schedule, optimizer, draw(WAITS), draw(WAITS), tf=stages)
    return schedule, replace(costs, comm=links)


@given(steps())
def test_the_period_is_the_limit_of_long_runs(case):
    schedule, costs = case
    assert growth(schedule, costs) == pytest.approx(find_period(schedule, costs).time)


@given(steps())
def test_idle_time_adds_up(case):
    """Causes share the idle time out; with a barrier some of it is the optimizer's, where devices
    differ at all.
    """
    schedule, costs = take_rounds(case[0], case[1], 3)
    timeline = simulate(schedule, costs)
    idle = explain_idle(timeline, arrivals(timeline, costs.latencies(schedule)))
    assert sum(idle.by_cause.values()) == pytest.approx(measure(timeline).idle.sum())


def test_every_step_has_its_fill_and_turnaround():
    """Causes of three steps are three times those of one; what was drain waits for the
    optimizer.
    """
    one = made("1f1b", 4, 8, barrier=True)
    found = []
    for steps in (1, 3):
        schedule, costs = take_rounds(one, prices(one, 2.0), steps)
        timeline = simulate(schedule, costs)
        found.append(explain_idle(timeline, arrivals(timeline, costs.latencies(schedule))).by_cause)
    assert found[1] == {cause: pytest.approx(3 * time) for cause, time in found[0].items()}
    assert {"fill", "turnaround", "optimizer"} < found[0].keys()


def test_gathers_and_reductions_overlap_all_but_the_first_and_the_last():
    """Interleaved: the first stage's gather and the last reduction are exposed; the other chunk's
    hide.
    """
    schedule = made("interleaved", 4, 8, barrier=True, gathers=True, reduces=True)
    alone = generate("interleaved", devices=4, microbatches=8)
    step = simulate(alone, costs_for(alone)).makespan
    found = find_period(schedule, prices(schedule, 1.0, gather=1.0, reduce=2.0))
    assert found.time == pytest.approx(step + 1.0 + (0.5 + 1.0))  # a stage is half a device's share


@given(st.integers(1, 6), st.integers(0, 6), TIMES, TIMES, WAITS)
def test_a_pipeline_that_is_never_drained(P, more, tf, tb, optimizer):
    """PipeDream-2BW: M (t_F + t_B) and the optimizer step, without a bubble; one fill and drain in
    any run.
    """
    M = P + more
    schedule = made("pipedream-2bw", P, M, barrier=False)
    found = find_period(schedule, prices(schedule, optimizer, tf=tf, tb=tb))
    period = M * (tf + tb) + optimizer
    assert found.time == pytest.approx(period)
    costs = prices(schedule, optimizer, tf=tf, tb=tb)
    assert simulate(*take_rounds(schedule, costs, 5)).makespan == pytest.approx(
        5 * period + (P - 1) * (tf + tb)
    )


@given(st.integers(1, 5), st.integers(0, 4), WAITS)
def test_never_drained_rounds_are_1f1b_of_all_their_microbatches(P, more, comm):
    """The queues of three rounds are those of one 1F1B with three times the microbatches."""
    M = P + more
    one = generate("pipedream-2bw", devices=P, microbatches=M)
    three, whole = repeat_rounds(one, 3), generate("1f1b", devices=P, microbatches=3 * M)
    for column in ("offsets", "kind", "stage", "microbatch"):
        assert np.array_equal(getattr(three, column), getattr(whole, column))
    costs = costs_for(one, comm=comm)
    assert growth(one, costs) == pytest.approx(find_period(one, costs).time)
    again = take_rounds(three, costs_for(three), 1)[0]
    assert np.array_equal(again.packed(), one.packed())


@pytest.mark.parametrize(
    ("barrier", "why"),
    [
        (True, "all devices end a step in 21, then the optimizer takes 2"),
        (False, "device 0 spans a step in 21, then its optimizer takes 2"),
    ],
)
def test_what_decides_the_period_is_named(barrier, why):
    schedule = made("1f1b", 4, 4, barrier=barrier)
    assert find_period(schedule, prices(schedule, 2.0)).reason == why


def test_times_of_durations_given_for_each_op_repeat_with_the_rounds():
    """Also where rounds are merged."""
    one = generate("pipedream-2bw", devices=3, microbatches=4)
    random = np.random.default_rng(3)
    costs = replace(costs_for(one), op_times=random.integers(1, 9, len(one)) / 4)
    schedule, repeated = take_rounds(one, costs, 3)
    assert repeated.op_times is not None
    assert costs.op_times is not None
    known = dict(
        zip(zip(one.device, one.kind, one.microbatch, strict=True), costs.op_times, strict=True)
    )
    cells = zip(schedule.device, schedule.kind, schedule.microbatch % 4, strict=True)
    assert repeated.op_times.tolist() == [known[cell] for cell in cells]
    assert growth(one, costs) == pytest.approx(find_period(one, costs).time)
