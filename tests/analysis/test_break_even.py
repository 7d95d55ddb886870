"""Break-even: at the times that are said, the order of two schedules changes, and nowhere else."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import ppsim
from ppsim.analysis.break_even import MESSAGE, RUNS, SPLIT, BreakEven, Side, break_evens
from ppsim.core.costs import Costs, costs_for
from ppsim.core.ops import Kind
from ppsim.core.schedule import Schedule
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError
from ppsim.schedules import generate, interchangeable_families
from tests.commands import invoke

FAMILIES = sorted(family.name for family in interchangeable_families() if not family.uses_costs)
AROUND = 1e-5  # share by which a time is less or more than a break-even


def makespan(schedule: Schedule, costs: Costs) -> float:
    return simulate(schedule, costs).makespan


def side_of(name: str, devices: int, count: int, **costs: Any) -> Side:
    schedule = generate(name, devices=devices, microbatches=count)
    return fixed(schedule, costs_for(schedule, **costs))


def fixed(schedule: Schedule, costs: Costs) -> Side:
    """A side that keeps its queues."""
    return Side(schedule, costs, lambda change: makespan(schedule, change(costs)))


def changed(side: Side, limit: BreakEven, value: float) -> Costs:
    """The costs of a side where an op or a message takes another time, made again."""
    costs = side.costs
    if limit.of == MESSAGE:
        return replace(costs, comm=value)
    time = costs.time.copy()
    if side.is_split:
        time[[Kind.I, Kind.W]] *= value * time[Kind.B].sum() / time[[Kind.I, Kind.W]].sum()
    return replace(costs, time=time)


def lead(base: Side, rival: Side, limit: BreakEven, value: float) -> float:
    """How much earlier the rival ends."""
    return makespan(base.schedule, changed(base, limit, value)) - makespan(
        rival.schedule, changed(rival, limit, value)
    )


shapes = st.tuples(
    st.sampled_from(FAMILIES),
    st.sampled_from(FAMILIES),
    st.sampled_from([2, 4, 8]),
    st.integers(1, 24),
    st.floats(0.5, 2.0),
    st.sampled_from([0.0, 0.1, 1.5]),
)


def sides_of(shape):
    """The sides of two schedules of a drawn shape; the example is passed over where one refuses."""
    base_name, name, devices, count, backward, comm = shape
    times = {"ti": backward, "tw": backward * 0.9, "tb": 2 * backward, "comm": comm}
    try:
        base = side_of(base_name, devices, count, **times)
        rival = side_of(name, devices, count, **times)
    except InputError:
        assume(False)
    return base, rival


def is_faster(limit, value):
    """Whether a limit says that the rival is faster where an op or a message takes that time."""
    return (sum(each < value for each in limit.at) % 2 == 0) == limit.below


@given(shapes, st.lists(st.floats(0.0, 1.0), min_size=4, max_size=4))
def test_the_order_changes_at_a_break_even_and_between_two_it_does_not(shape, shares):
    """A bit less and a bit more, simulated again; and at four times of each stretch between."""
    base, rival = sides_of(shape)
    for limit in break_evens(base, rival):
        for value in limit.at:
            less = lead(base, rival, limit, value * (1 - AROUND))
            more = lead(base, rival, limit, value * (1 + AROUND))
            rounding = 1e-9 * makespan(base.schedule, base.costs)
            if is_faster(limit, value * (1 - AROUND)):
                assert less > 0, (limit, value)
                assert more <= rounding, (limit, value)
            else:
                assert less <= rounding, (limit, value)
                assert more >= -rounding, (limit, value)
                assert less < more, (limit, value)
        edges = [0.0 if limit.of == MESSAGE else 0.1, *limit.at, limit.at[-1] * 1.2]
        for low, high in pairwise(edges):
            for share in shares:
                value = low + share * (high - low)
                if min(abs(value / each - 1) for each in limit.at) < 1e-4:
                    continue
                ahead = lead(base, rival, limit, value)
                if is_faster(limit, value):
                    assert ahead > -1e-9, (limit, value)
                else:
                    assert ahead < 1e-9, (limit, value)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "1f1b"])
def test_each_schedule_that_splits_or_has_chunks_is_compared(name):
    """Where the order changes at all, a break-even says so."""
    base, rival = side_of("1f1b", 4, 16), side_of(name, 4, 16)
    found = {limit.of: limit for limit in break_evens(base, rival)}
    split = BreakEven(SPLIT, (1.0,), True, "B", 1.0, 0)
    if rival.is_split:
        signs = {np.sign(lead(base, rival, split, value)) for value in (0.07, 15.9)}
        assert (SPLIT in found) == (signs == {-1, 1})
    else:
        assert SPLIT not in found
    if rival.schedule.n_chunks == 1:
        assert MESSAGE not in found


def test_what_is_said_can_be_worked_out_by_hand():
    """Two devices and one microbatch, a backward of 2 against I and W of 1 each."""
    base = side_of("1f1b", 2, 1, tf=1, tb=2, ti=1, tw=1)
    rival = side_of("zb-1p", 2, 1, tf=1, tb=2, ti=1, tw=1)
    # 2 F and 2 B take 6. 2 F, 2 I and the last W take 2 + 3 f, with I and W f times as long.
    (limit,) = break_evens(base, rival)
    assert (limit.of, limit.below, limit.unit, limit.now) == (SPLIT, True, "B", 1.0)
    assert limit.at[0] == pytest.approx(4 / 3, rel=1e-6)
    said = limit.text("zb-1p", "1f1b")
    assert said == "zb-1p is faster than 1f1b as long as I + W takes less than 1.33 B (now 1)"
    (other,) = break_evens(rival, base)
    assert (limit.order, other.order) == (1, -1)
    assert other.text("1f1b", "zb-1p") == (
        "1f1b is slower than zb-1p now; it would be faster if I + W took more than 1.34 B (now 1)"
    )


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        (
            BreakEven(MESSAGE, (0.5304,), True, "t_F", 0.1, 1),
            "a is faster than b as long as a message takes less than 0.53 t_F (now 0.1)",
        ),
        (
            BreakEven(MESSAGE, (2.0, 3.0), True, "ms", 1.0, 1),
            "a is faster than b as long as a message takes less than 2 ms (now 1)",
        ),
        (
            BreakEven(MESSAGE, (2.0, 3.0), False, "ms", 2.5, 1),
            "a is faster than b as long as a message takes between 2 and 3 ms (now 2.5)",
        ),
        (
            BreakEven(MESSAGE, (2.0, 3.0), False, "ms", 1.0, -1),
            "a is slower than b now; it would be faster if a message took between 2 and 3 ms "
            "(now 1)",
        ),
        (
            BreakEven(MESSAGE, (2.0, 3.0), True, "ms", 2.9, -1),
            "a is slower than b now; it would be faster if a message took more than 3 ms (now 2.9)",
        ),
        (
            BreakEven(MESSAGE, (2.0,), False, "ms", 0.0, 0),
            "a is as fast as b now; it would be faster if a message took more than 2 ms (now 0)",
        ),
        (
            BreakEven(MESSAGE, (2.5,), True, "now", 1.0, 1),
            "a is faster than b as long as messages take less than 2.5 times as long as now",
        ),
        (
            BreakEven(MESSAGE, (2.5,), False, "now", 1.0, -1),
            "a is slower than b now; it would be faster if messages took more than 2.5 times as "
            "long as now",
        ),
        (
            BreakEven(SPLIT, (1.0565,), True, "B", 1.055, 1),
            "a is faster than b as long as I + W takes less than 1.056 B (now 1.055)",
        ),
    ],
)
def test_a_sentence_says_what_is_so_now_and_up_to_where(limit, says):
    """Of several stretches the one nearest to the present time; no end contradicts that time."""
    assert limit.text("a", "b") == says


@pytest.mark.parametrize(
    ("limit", "is_said"),
    [
        (BreakEven(MESSAGE, (19.6, 40.7), False, "ms", 0.94, -1), False),
        (BreakEven(MESSAGE, (0.09,), True, "ms", 0.94, -1), False),
        (BreakEven(MESSAGE, (9.3, 40.7), False, "ms", 0.94, -1), True),
        (BreakEven(MESSAGE, (250.0,), True, "ms", 0.47, 1), True),
    ],
)
def test_a_slower_schedule_has_no_sentence_of_times_ten_times_the_present(limit, is_said):
    """No cluster's messages take twenty times as long; where a schedule is faster, any limit says
    how safe that is.
    """
    assert bool(limit.text("a", "b")) == is_said


def test_compare_says_first_that_a_schedule_is_slower_now():
    """The sentence and the table agree, and so does a run with the time that it names."""
    words = ["compare", "1f1b", "dualpipe-v", "--devices", "4", "--mb", "64"]
    shown = " ".join(invoke(*words, "--comm", "3").stdout.split())
    start = "dualpipe-v is slower than 1f1b now; it would be faster if a message took less than "
    assert start in shown
    limit, unit, now = shown.split(start)[1].split()[:3]
    assert (unit, now) == ("t_F", "(now")
    for comm, order in (("3", -1), (limit, 1)):
        rows = json.loads(invoke(*words, "--comm", comm, "--json").stdout)["schedules"]
        assert np.sign(rows[0]["makespan"] - rows[1]["makespan"]) == order
        (found,) = [each for each in rows[1]["break_even"] if each["of"] == MESSAGE]
        assert found["order"] == order


def test_compare_says_it_where_people_and_programs_read():
    """In the terminal and in JSON; the time simulated again is the same for both."""
    words = ["compare", "1f1b", "zb-1p", "zb-v", "--devices", "4", "--mb", "8"]
    shown = " ".join(invoke(*words).stdout.split())
    assert "zb-1p is faster than 1f1b as long as I + W takes less than" in shown
    assert "zb-v is faster than 1f1b as long as a message takes less than" in shown
    rows = json.loads(invoke(*words, "--json").stdout)["schedules"]
    assert rows[0]["break_even"] == []
    (split,) = rows[1]["break_even"]
    same = {"of": SPLIT, "at": [], "below": True, "unit": "B", "now": 1.0, "order": 1}
    assert split | {"at": []} == same
    at = split["at"][0]
    for share, order in ((1 - 1e-4, True), (1 + 1e-4, False)):
        halves = str(share * at)
        costs = ["--ti", halves, "--tw", halves, "--tb", "2"]
        again = json.loads(invoke(*words, *costs, "--json").stdout)
        times = [row["makespan"] for row in again["schedules"]]
        assert (times[1] < times[0]) == order


def test_what_has_no_single_time_has_no_break_even():
    """A function of Python gives each op its own time; a decoder goes round; replicas differ."""
    schedule = generate("1f1b", devices=2, microbatches=2)
    each = replace(costs_for(schedule), op_times=np.ones(len(schedule)))
    side = fixed(schedule, each)
    assert list(break_evens(side, side_of("zb-1p", 2, 2))) == []
    words = ["compare", "1f1b", "zb-1p", "--devices", "4", "--mb", "8", "--replicas", "2,1=1.5"]
    assert "as long as" not in invoke(*words).stdout


@given(shapes)
def test_above_the_present_time_the_first_end_of_an_advantage_is_found(shape):
    """It is the first time of the whole search above the present one, as far as it is said."""
    base, rival = sides_of(shape)
    every = {limit.of: limit for limit in break_evens(base, rival)}
    above = {limit.of: limit for limit in break_evens(base, rival, only_above=True)}
    for what, limit in above.items():
        assert (limit.below, limit.order) == (True, 1)
        assert limit.at[0] > limit.now
        less = lead(base, rival, limit, limit.at[0] * (1 - 2e-4))
        more = lead(base, rival, limit, limit.at[0] * (1 + 2e-4))
        assert less > 0 >= more - 1e-9 * makespan(base.schedule, base.costs)
        assert every[what].order == 1
    for what, limit in every.items():
        ends = [each for each in limit.at if each > limit.now]
        largest = 16 * limit.now if what == SPLIT else limit.now + 60
        if (
            limit.order == 1
            and len(ends) == 1
            and ends[0] < largest
            and is_faster(limit, limit.now)
        ):
            assert what in above


def test_above_the_present_time_a_slower_schedule_has_no_end():
    """Nothing is said of an advantage that is not there."""
    base = side_of("zb-1p", 4, 8, tf=1, tb=2, ti=1, tw=1)
    rival = side_of("1f1b", 4, 8, tf=1, tb=2, ti=1, tw=1)
    assert [limit.order for limit in break_evens(base, rival)] == [-1]
    assert list(break_evens(base, rival, only_above=True)) == []


def test_queues_that_are_made_again_move_the_break_even():
    """A side says itself with which queues its time at other costs is that of."""
    rival = side_of("zb-1p", 4, 8, tf=1, tb=2, ti=1, tw=1)
    base = side_of("1f1b", 4, 8, tf=1, tb=2, ti=1, tw=1)
    (kept,) = break_evens(base, rival, only_above=True)
    better = Side(rival.schedule, rival.costs, lambda change: rival.time(change) * 0.9)
    (made_again,) = break_evens(base, better, only_above=True)
    assert made_again.at[0] > kept.at[0] * 1.05


def test_how_closely_a_break_even_is_found():
    """Also where times are no pieces of straight lines."""
    whole, split = side_of("1f1b", 2, 1), side_of("zb-1p", 2, 1, tf=1, tb=2, ti=1, tw=1)
    base = Side(whole.schedule, whole.costs, lambda change: 7.0)
    now = split.costs.time[Kind.I, 0]
    rival = Side(
        split.schedule,
        split.costs,
        lambda change: 4 * float(change(split.costs).time[Kind.I, 0] / now) ** 2,
    )
    for only_above, off in ((False, 1e-7), (True, 1e-4)):
        (limit,) = break_evens(base, rival, of=(SPLIT,), only_above=only_above)
        assert limit.at[0] == pytest.approx(np.sqrt(7) / 2, rel=2 * off)


@pytest.mark.parametrize("only_above", [False, True])
def test_where_both_take_as_long_for_a_while_the_advantage_ends_at_its_start(only_above):
    """Here from three to five times the present I + W."""
    whole, split = side_of("1f1b", 2, 1), side_of("zb-1p", 2, 1, tf=1, tb=2, ti=1, tw=1)
    base = Side(whole.schedule, whole.costs, lambda change: 7.0)
    now = split.costs.time[Kind.I, 0]

    def time(change):
        factor = float(change(split.costs).time[Kind.I, 0] / now)
        return 7.0 + min(factor - 3, 0.0) + max(factor - 5, 0.0)

    rival = Side(split.schedule, split.costs, time)
    (limit,) = break_evens(base, rival, of=(SPLIT,), only_above=only_above)
    assert limit.at == pytest.approx((3 * limit.now,), rel=2e-4 if only_above else 2e-7)


def test_where_links_differ_the_end_is_a_factor():
    """Of all messages together, above the present time as in all times."""
    base, rival = side_of("1f1b", 4, 8), side_of("zb-v", 4, 8)
    links = np.full((4, 4), 0.2)
    links[0, 1] = links[1, 0] = 0.4
    base, rival = (fixed(side.schedule, replace(side.costs, comm=links)) for side in (base, rival))
    (every,) = break_evens(base, rival, of=(MESSAGE,))
    (above,) = break_evens(base, rival, of=(MESSAGE,), only_above=True)
    assert (above.unit, above.now) == (every.unit, every.now) == ("now", 1.0)
    assert above.at == pytest.approx(every.at[:1], rel=1e-3)


def test_compare_times_the_baseline_once_at_each_length_of_messages(monkeypatch):
    """However many schedules are compared with it."""
    timed: list[tuple[str, float]] = []
    module: Any = import_module("ppsim.questions.across.break_even")
    time_ops = module.time_ops

    def listed(schedule, costs, *options):
        timed.append((schedule.name, float(costs.comm)))
        return time_ops(schedule, costs, *options)

    monkeypatch.setattr(module, "time_ops", listed)
    rivals = ("interleaved", "zb-v", "v-half")
    answer: Any = ppsim.compare(["1f1b", *rivals], devices=4, microbatches=8, comm=0.1)
    assert any(row["break_even"] for row in answer.to_json()["schedules"])
    own = [comm for name, comm in timed if name == "1f1b"]
    assert len(own) == len({*own}) > 10
    assert {name for name, _ in timed} == {"1f1b", *rivals}


def test_compare_says_where_queues_that_follow_costs_keep_their_order():
    """``run`` makes the queues of zb-v again at other costs, which takes long at this size; v-half
    has the same at all costs.
    """
    shape = ("--devices", "8", "--mb", "20")
    shown = invoke("compare", "1f1b", "zb-v", "v-half", *shape).stdout
    limits = [line for line in shown.splitlines() if "as long as" in line]
    assert {line.split()[0] for line in limits} == {"zb-v", "v-half"}
    for line in limits:
        assert line.endswith(", with ops in this order") is line.startswith("zb-v")
    turned = invoke("compare", "zb-v", "1f1b", *shape).stdout
    assert "it would be faster if a message took more than 2.79 t_F (now 0), with ops in" in turned


@pytest.mark.sampled(8)
@pytest.mark.parametrize("size", [("4", "8"), ("8", "20"), ("3", "6")])
@pytest.mark.parametrize("more", [[], ["--comm", "0.2"], ["--tf", "1.2"]])
def test_compare_and_explain_name_the_same_times(size, more):
    """Of a schedule whose queues follow costs, with queues that are made again or kept."""
    shape = ("--devices", size[0], "--mb", size[1], *more)
    advice = " ".join(invoke("explain", "1f1b", *shape).stdout.split())
    rival = re.search(r"first: use (\S+),", advice)
    assert rival
    compared = invoke("compare", "1f1b", rival[1], *shape).stdout
    limits = re.findall(r"as long as (I \+ W|a message) takes less than ([\d.]+)", compared)
    sentence = advice[advice.index("first:") : advice.index("1F1B")]
    said = re.findall(r"(I \+ W|a message) takes less than ([\d.]+)", sentence)
    assert said == limits
    assert len(said) == 2
    assert ("with ops in this order" in sentence) == ("with ops in this order" in compared)


@pytest.mark.parametrize("option", ["--comm", "--ti"])
def test_compare_names_the_time_at_which_runs_are_as_fast(option):
    """Where queues are made again, at each time as ``run`` makes them."""
    shape = ("--devices", "4", "--mb", "8")
    rows = json.loads(invoke("compare", "1f1b", "zb-v", *shape, "--json").stdout)["schedules"]
    of = MESSAGE if option == "--comm" else SPLIT
    (limit,) = [each for each in rows[1]["break_even"] if each["of"] == of]
    assert "with ops in this order" not in invoke("compare", "1f1b", "zb-v", *shape).stdout
    for share, order in ((0.99, -1), (1.01, 1)):
        time = str(limit["at"][0] * share)
        words = {"1f1b": ["--comm", time], "zb-v": ["--comm", time]}
        if of == SPLIT:
            words = {"1f1b": ["--tb", "2"], "zb-v": ["--ti", time, "--tw", time]}
        one, other = (
            json.loads(invoke("run", name, *shape, *more, "--json").stdout)["makespan"]
            for name, more in words.items()
        )
        assert np.sign(other - one) == order


@pytest.mark.parametrize(("spare", "left"), [(0, ["zb-v"]), (-1, ["zb-1p", "zb-v"])])
def test_compare_leaves_out_break_evens_that_its_budget_does_not_allow(spare, left, monkeypatch):
    """The first rivals are searched as far as it goes: each costs so many simulations of both."""
    shape = ("--devices", "4", "--mb", "8")
    ops = 4 * 8 * (2 + 3)  # of 1f1b and zb-1p
    monkeypatch.setattr("ppsim.analysis.break_even.BUDGET", RUNS * ops + spare)
    shown = invoke("compare", "1f1b", "zb-1p", "zb-v", *shape).stdout
    said = f"the break-evens of {', '.join(left)} take long to find at this size"
    assert said in shown
    assert ("zb-1p is faster than 1f1b as long as I + W takes less than" in shown) == (not spare)
