"""Many samples at once are the same runs one by one, to the last bit."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.core.costs import costs_for
from ppsim.core.ops import Kind, pack
from ppsim.core.schedule import Schedule, place
from ppsim.engine.simple import batch
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import Deadlock
from ppsim.schedules import generate
from tests.cases import FLOATS, PLAIN, SOME, costs, schedules
from tests.lanes import random_costs, with_lanes

NAMES = PLAIN


@pytest.mark.parametrize("name", NAMES)
@SOME
@given(data=st.data())
def test_makespans_are_those_of_single_runs(name, data):
    """Every schedule, any costs: the batch and ``simulate`` agree exactly."""
    schedule = data.draw(schedules(name))
    many = data.draw(st.lists(costs(schedule, FLOATS), min_size=1, max_size=5))
    assert batch.makespans(schedule, many).tolist() == [simulate(schedule, c).makespan for c in many]


@pytest.mark.parametrize("name", NAMES)
@SOME
@given(data=st.data())
def test_every_op_ends_when_the_single_run_ends_it(name, data):
    """Not the makespan alone: each op's end is the same number."""
    schedule = data.draw(schedules(name))
    one = data.draw(costs(schedule, FLOATS))
    levels = batch.find_levels(schedule)
    ends = batch.find_ends(levels, one.durations(schedule)[:, None], one.latencies(schedule)[:, None])
    assert ends[1:, 0].tolist() == simulate(schedule, one).end[levels.op].tolist()


@pytest.mark.parametrize("name", ["1f1b", "zb-1p", "1f1b-overlap", "1f1b-plus"])
@pytest.mark.parametrize("shared", [0, 2])
@SOME
@given(st.integers(0, 10**6))
def test_streams_end_as_single_runs_do(name, shared, seed):
    """Copies and ops on all devices too, by levels or, where devices share a link, one by one."""
    rng = random.Random(seed)
    plus = name == "1f1b-plus"
    schedule = generate(name, devices=4, microbatches=6) if plus else with_lanes(name, 4, 4, rng, late=1)
    many = [random_costs(schedule, rng, shared) for _ in range(3)]
    try:
        wanted = [simulate(schedule, each).makespan for each in many]
    except Deadlock:
        return
    assert batch.makespans(schedule, many).tolist() == wanted


@pytest.mark.parametrize("name", NAMES)
def test_levels_hold_each_op_once_and_never_its_own_input(name):
    """The order is complete, and what a row waits for stands in an earlier level."""
    schedule = generate(name, devices=4, microbatches=12)
    levels = batch.find_levels(schedule)
    led = np.union1d(levels.op, levels.op[schedule.pair[levels.op] >= 0] + 1)
    assert led.tolist() == list(range(len(schedule)))
    level = np.searchsorted(levels.bounds, np.arange(len(levels.op) + 1), side="right")
    level[0] = -1
    assert (level[levels.before] < level[1:]).all()
    assert (level[levels.needs] < level[levels.target]).all()


def test_chunks_cover_every_sample_in_order():
    """However many samples, each is drawn once and stands in its place."""
    for count in (0, 1, 15, 16, 17, 100):
        result = batch.run_in_chunks(
            lambda first, stop: np.arange(first, stop, dtype=np.float64), count, batch.IN_FLIGHT // 16
        )
        assert result.tolist() == list(range(count))


def test_no_costs_give_no_makespans():
    """An empty batch is an empty answer."""
    assert batch.makespans(generate("1f1b", stages=2, microbatches=2), []).tolist() == []


def test_a_schedule_that_cannot_finish_is_refused():
    """A backward ahead of its forward is a deadlock here too."""
    queue = pack(0, np.zeros(2, np.int64)) | np.array([Kind.B, Kind.F])
    stuck = Schedule.from_queues("stuck", place("linear", 1, 1), 1, [queue])
    with pytest.raises(Deadlock):
        batch.makespans(stuck, [costs_for(stuck)])
