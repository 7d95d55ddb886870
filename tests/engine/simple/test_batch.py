"""Many samples at once are the same runs one by one, to the last bit."""

import random
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.core.costs import costs_for
from ppsim.core.lanes import find_senders, groups_of, list_waits
from ppsim.core.ops import Kind, pack
from ppsim.core.schedule import Schedule, place
from ppsim.engine.simple import batch
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import Deadlock
from ppsim.schedules import generate
from ppsim.search.rules.offload import add_offload
from tests.cases import FLOATS, PLAIN, SOME, costs, schedules
from tests.lanes import random_costs, with_lanes

NAMES = PLAIN


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NAMES)
@SOME
@given(data=st.data())
def test_makespans_are_those_of_single_runs(name, data):
    """Every schedule, any costs: the batch and ``simulate`` agree exactly."""
    schedule = data.draw(schedules(name))
    many = data.draw(st.lists(costs(schedule, FLOATS), min_size=1, max_size=5))
    assert batch.makespans(schedule, many).tolist() == [
        simulate(schedule, c).makespan for c in many
    ]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NAMES)
@SOME
@given(data=st.data())
def test_every_op_ends_when_the_single_run_ends_it(name, data):
    """Not the makespan alone: each op's end is the same number."""
    schedule = data.draw(schedules(name))
    one = data.draw(costs(schedule, FLOATS))
    order = batch.find_order(schedule)
    ends = batch.find_ends(
        order, one.durations(schedule)[:, None], one.latencies(schedule)[:, None]
    )
    assert ends[order.row, 0].tolist() == simulate(schedule, one).end.tolist()


@pytest.mark.parametrize("name", ["1f1b", "zb-1p", "1f1b-overlap", "1f1b-plus"])
@pytest.mark.parametrize("shared", [0, 2])
@SOME
@given(st.integers(0, 10**6))
def test_streams_end_as_single_runs_do(name, shared, seed):
    """Copies and ops on all devices too, by levels or, where devices share a link, one by one."""
    rng = random.Random(seed)
    plus = name == "1f1b-plus"
    schedule = (
        generate(name, devices=4, microbatches=6) if plus else with_lanes(name, 4, 4, rng, late=1)
    )
    many = [random_costs(schedule, rng, shared) for _ in range(3)]
    try:
        wanted = [simulate(schedule, each).makespan for each in many]
    except Deadlock:
        return
    assert batch.makespans(schedule, many).tolist() == wanted


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [*NAMES, "vocab-2", "bpipe", "1f1b-plus"])
def test_the_order_holds_each_op_once_and_after_its_inputs(name):
    """The order is complete, and whatever a row waits for stands before it."""
    schedule = generate(name, devices=4, microbatches=12)
    order = batch.find_order(schedule)
    rows = order.rows
    assert np.unique(order.row).tolist() == list(range(1, len(rows.op) + 1))
    assert (order.row[rows.op] == np.arange(1, len(rows.op) + 1)).all()
    target = np.repeat(np.arange(1, len(rows.op) + 1), np.diff(rows.inputs_at))
    assert (rows.previous < np.arange(1, len(rows.op) + 1)).all()
    assert (rows.needs < target).all()
    waits, group = list_waits(schedule), groups_of(schedule)
    wanted = {(group[op], group[need]) for op, need in zip(waits.op, waits.need, strict=True)}
    lane = zip(rows.op, rows.previous, strict=True)
    found = {(op, rows.op[before - 1]) for op, before in lane if before}
    found |= {
        (rows.op[row - 1], rows.op[need - 1]) for row, need in zip(target, rows.needs, strict=True)
    }
    assert found == {(op, need) for op, need in wanted if op != need}


def test_chunks_cover_every_sample_in_order():
    """However many samples, each is drawn once and stands in its place."""
    for count in (0, 1, 15, 16, 17, 100):
        result = batch.run_in_chunks(
            lambda first, stop: np.arange(first, stop, dtype=np.float64),
            count,
            batch.IN_FLIGHT // 16,
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


def gapped(schedule, duration, latency, gap, earliest):
    """The end of every op where lanes need a gap before it, by repeated relaxation."""
    waits, group, end = list_waits(schedule), groups_of(schedule), np.zeros(len(schedule))
    for _ in range(len(schedule)):
        begin = earliest.copy()
        for op, need, on_lane, message in zip(*waits, strict=True):
            if group[op] != group[need]:
                more = gap[op] if on_lane and op == group[op] else latency[op] * message
                begin[op] = max(begin[op], end[need] + more)
        latest = np.zeros(len(schedule))
        np.maximum.at(latest, group, begin)
        now = latest[group] + duration[group]
        if (now == end).all():
            return end
        end = now
    raise AssertionError("it does not settle")


@pytest.mark.parametrize("above", [sys.maxsize, pytest.param(-1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["1f1b", "dualpipe-v", "vocab-2", "bpipe", "copied"])
def test_gaps_and_earliest_starts_hold_on_every_lane(name, above, monkeypatch):
    """In arrays of CPython and in machine code, with a column for each sample or one for all."""
    monkeypatch.setattr(batch, "COMPILE_REPLAY_ABOVE", above)
    schedule = generate("1f1b" if name == "copied" else name, devices=3, microbatches=6)
    if name == "copied":
        schedule = add_offload(schedule, costs_for(schedule), 1)
    group, draw = groups_of(schedule), np.random.default_rng(1)
    shape = (len(schedule), 3)
    duration, gap, earliest = (draw.integers(0, 9, shape)[group] / 8 for _ in range(3))
    latency = np.where(find_senders(schedule)[:, None] >= 0, draw.integers(0, 9, shape) / 8, 0.0)
    order = batch.find_order(schedule)
    for few in (3, 1):
        lag, least = latency[:, :few], gap[:, :few]
        found = batch.find_ends(order, duration, lag, earliest, least)[order.row]
        for k in range(3):
            columns = (duration[:, k], lag[:, k % few], least[:, k % few], earliest[:, k])
            assert found[:, k].tolist() == gapped(schedule, *columns).tolist()
    times = (duration.T, gap.T, latency.T)
    wanted = batch.find_ends(order, duration, latency, gaps=gap).max(axis=0)
    assert batch.makespans_with_gaps(schedule, *times).tolist() == wanted.tolist()
    assert (wanted > batch.find_ends(order, duration, latency).max(axis=0)).all()
