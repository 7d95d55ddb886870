"""The critical path decides the makespan; slack and gains are what a second simulation would
find.
"""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.analysis.changes import with_times
from ppsim.analysis.critical_path import STEP, critical_path, path_text, sensitivity, slack_of
from ppsim.core.costs import Costs, costs_for
from ppsim.core.lanes import groups_of
from ppsim.core.schedule import NONE
from ppsim.engine.simple.batch import find_ends, find_order
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import Deadlock
from ppsim.schedules import generate
from tests.cases import EIGHTHS, FEW, PLAIN, costs, schedules
from tests.lanes import random_costs, with_lanes

FAMILIES = PLAIN


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", FAMILIES)
@FEW
@given(st.data())
def test_the_path_reaches_from_zero_to_the_makespan(name, data):
    """Durations and messages along the path add up to the makespan, whatever the costs."""
    schedule = data.draw(schedules(name))
    times = data.draw(costs(schedule, EIGHTHS))
    timeline = simulate(schedule, times)
    path, latency = critical_path(timeline), times.latencies(schedule)
    length = 0.0
    for op, before in zip(path.tolist(), [NONE, *path.tolist()], strict=False):
        members = [op] if schedule.pair[op] == NONE else [op, op + 1]
        carried = [
            latency[m]
            for m in members
            if before != NONE and schedule.dependency[m] in (before, before + 1)
        ]
        sent = (
            max(carried, default=0.0)
            if before != NONE and schedule.device[before] != schedule.device[op]
            else 0.0
        )
        assert timeline.start[op] == length + sent
        length += sent + timeline.end[op] - timeline.start[op]
    assert length == timeline.makespan


@pytest.mark.parametrize("name", ["1f1b", "zb-1p", "1f1b-overlap"])
@FEW
@given(st.integers(0, 10**6))
def test_streams_slip_as_far_as_their_slack(name, seed):
    """The same of copies and of ops on all devices, and the path goes through them from zero to the
    makespan.
    """
    rng = random.Random(seed)
    schedule = with_lanes(name, 4, 4, rng, late=1)
    times = random_costs(schedule, rng)
    try:
        timeline = simulate(schedule, times)
    except Deadlock:
        return
    latencies, path = times.latencies(schedule), critical_path(timeline)
    assert timeline.start[path[0]] == 0
    waited = timeline.start[path[1:]] - timeline.end[path[:-1]]
    crossed = schedule.device[path[1:]] != schedule.device[path[:-1]]
    assert ((waited == 0) | ((waited == times.comm) & crossed)).all()
    found, group = slack_of(timeline, latencies), groups_of(schedule)
    assert (found.slack[path] == 0).all()
    op, durations = rng.randrange(len(schedule)), times.durations(schedule)
    for more in (0.0, 1.0):
        longer = durations + np.where(group == group[op], found.slack[op] + more, 0.0)
        slipped = simulate(schedule, replace(times, op_times=longer))
        assert slipped.makespan == pytest.approx(timeline.makespan + more)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", FAMILIES)
@FEW
@given(st.data())
def test_slack_is_as_far_as_an_op_can_slip(name, data):
    """An op that takes its slack longer leaves the makespan as it is; beyond that, the iteration
    grows by the rest.
    """
    schedule = data.draw(schedules(name))
    times = data.draw(costs(schedule, EIGHTHS))
    timeline, latencies = simulate(schedule, times), times.latencies(schedule)
    found = slack_of(timeline, latencies)
    op = data.draw(st.integers(0, len(schedule) - 1))
    op = op - 1 if NONE != schedule.pair[op] < op else op
    order, durations = find_order(schedule), times.durations(schedule)
    for more, expected in ((0.0, 0.0), (1.0, 1.0)):
        longer = durations.copy()
        longer[op] += found.slack[op] + more
        end = find_ends(order, longer[:, None], latencies[:, None])
        assert end.max() == pytest.approx(timeline.makespan + expected)
    assert (found.slack >= 0).all()
    assert (found.slack[critical_path(timeline)] == 0).all()
    assert found.paths >= 1


def test_critical_paths_are_counted():
    """GPipe on one device has one path; on two with equal times, every lattice path through the
    grid of its ops.
    """
    schedule = generate("gpipe", devices=1, microbatches=3)
    assert slack_of(simulate(schedule, costs_for(schedule)), np.zeros(len(schedule))).paths == 1
    schedule = generate("gpipe", devices=2, microbatches=2)
    timeline = simulate(schedule, costs_for(schedule))
    # Two ways through the forwards (0F0 1F0 1F1 or 0F0 0F1 1F1), two through the backwards.
    assert slack_of(timeline, np.zeros(len(schedule))).paths == 4


@pytest.mark.parametrize("name", ["1f1b", "zb-1p", "dualpipe-v"])
def test_gains_are_those_of_a_simulation(name):
    """Each gain equals the makespan's fall where that time alone is a hundredth shorter."""
    schedule = generate(name, devices=4, microbatches=8)
    times = costs_for(schedule, tf=[1 + s / 8 for s in range(schedule.n_stages)], comm=0.2)
    before = simulate(schedule, times).makespan
    gains = {gain.what: gain.gain for gain in sensitivity(schedule, times)}
    assert [*gains.values()] == sorted(gains.values(), reverse=True)
    faster = times.time.copy()
    faster[0, 1] *= 1 - STEP
    assert gains["F of stage 1"] == pytest.approx(
        before - simulate(schedule, replace(times, time=faster)).makespan
    )
    links = np.full((4, 4), 0.2)
    links[0, 1] *= 1 - STEP
    assert gains["messages from device 0 to 1"] == pytest.approx(
        before - simulate(schedule, replace(times, comm=links)).makespan
    )


def test_the_path_is_told_in_few_words():
    schedule = generate("1f1b", devices=4, microbatches=8)
    path = critical_path(simulate(schedule, costs_for(schedule)))
    assert path_text(schedule, path) == [
        "F0 on devices 0 to 3",
        "device 3: (B F)x7",
        "B7 on devices 3 to 0",
    ]


def test_paths_name_repetitions_pairs_and_turns():
    """Up to four kinds that repeat are counted; a run of devices ends where its direction, kind or
    microbatch does.
    """
    chunks = generate("interleaved", devices=2, microbatches=4)
    loop = path_text(chunks, critical_path(simulate(chunks, costs_for(chunks, comm=5.0))))
    assert loop[0] == "F0 on devices 0 to 1"
    zb = generate("zb-1p", devices=1, microbatches=4)
    assert path_text(zb, critical_path(simulate(zb, costs_for(zb)))) == ["device 0: (F I W)x4"]
    gpipe = generate("gpipe", devices=1, microbatches=3)
    assert path_text(gpipe, critical_path(simulate(gpipe, costs_for(gpipe)))) == [
        "device 0: Fx3 Bx3"
    ]
    one = generate("gpipe", devices=1, microbatches=1)
    assert path_text(one, critical_path(simulate(one, costs_for(one)))) == ["device 0: F B"]
    pairs = generate("dualpipe-v", devices=2, microbatches=8)
    text = path_text(pairs, critical_path(simulate(pairs, costs_for(pairs))))
    assert any("F&B" in piece for piece in text)


def test_a_pair_takes_its_share_of_what_its_op_takes_longer():
    """F is a third of F and B: with F a half longer, a pair takes a sixth longer; W has no part in
    it.
    """
    schedule = generate("dualpipe-v", devices=2, microbatches=8)
    times = costs_for(schedule, tf=1.0, tb=2.0, tfb=2.4)
    assert times.pair is not None

    def longer(kind, factor, table=times.time):
        changed = table.copy()
        changed[kind, 1] *= factor
        return with_times(replace(times, time=table), changed)

    found = longer(0, 1.5)
    assert found.time[0, 1] == times.time[0, 1] * 1.5
    assert found.pair is not None
    assert found.pair[1] == pytest.approx(times.pair[1] * (1 + 0.5 / 3))
    assert found.pair[0] == times.pair[0]
    assert longer(3, 1.5).pair == pytest.approx(times.pair)
    assert longer(0, 2.0, times.time * 0).pair == pytest.approx(times.pair)


def test_an_empty_schedule_has_an_empty_path():
    schedule = generate("1f1b", devices=1, microbatches=1)
    empty = replace(
        schedule, offsets=np.zeros(2, np.int64), **{c: getattr(schedule, c)[:0] for c in COLUMNS}
    )
    assert len(critical_path(simulate(empty, Costs(np.ones((4, 1)))))) == 0


COLUMNS = ("kind", "stage", "microbatch", "pair")
