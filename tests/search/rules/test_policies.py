"""Schedules written by rules fit every cap, for any placement."""

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from ppsim.core.costs import Costs
from ppsim.core.schedule import Schedule, place
from ppsim.engine.simple.longest_path import simulate
from ppsim.search.orders.engine import collect
from ppsim.search.problem import Problem, evaluate, fits
from ppsim.search.rules import heuristics, zbv
from ppsim.search.rules import orders as rules
from ppsim.search.rules.heuristics import order_linear, write_linear
from ppsim.search.rules.orders import make_orders, write_one_by_one, write_schedule
from ppsim.search.rules.policies import make_policy, write_near_cap, write_policies
from ppsim.search.rules.policy_kernel import choose, pick, write
from tests.search.orders.prices import costs

PLACEMENTS = [place("linear", 4, 4), place("v", 3, 6), place("loop", 3, 6), place("loop", 2, 6)]
SLOW = [pytest.param(placement, marks=pytest.mark.slow) for placement in PLACEMENTS[1:]]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "placement", [PLACEMENTS[0], *SLOW], ids=lambda p: f"{p.name}-{p.n_devices}-{p.n_stages}"
)
@pytest.mark.parametrize("more", [0, 0.5, 3])
def test_rules_write_schedules_that_fit(placement, more):
    """Every one that is written holds to the cap and finishes; at least one is written."""
    cap = placement.n_chunks + more
    problem = Problem(placement, 3, costs(placement.n_stages, 2, 3, 1, 0.5), cap=cap, after_i=0.5)
    found = [write_schedule(problem, queues) for _, queues in write_policies(problem)]
    assert found
    assert all(
        fits(problem, schedule) and evaluate(problem, schedule, "").span > 0 for schedule in found
    )


@pytest.mark.slow
@pytest.mark.parametrize("placement", PLACEMENTS[:3], ids=lambda p: p.name)
@pytest.mark.parametrize("more", [0, 2])
def test_all_that_a_search_starts_from_fits_where_stages_hold_other_layers(placement, more):
    """Whatever heuristics, rules and seeds write holds no more layers than the cap; a stage may
    hold none.
    """
    layers = (3, 1, 0, 2, 2, 1)[: placement.n_stages]
    times = costs(placement.n_stages, 2, 3, 1, 0.5)
    least = Problem(placement, 3, times, layers=layers).least_caps.max()
    problem = Problem(placement, 3, times, cap=float(least + more), after_i=0.5, layers=layers)
    starts = [write_schedule(problem, member.queues) for member in collect(problem, [])]
    assert len(starts) > 1
    assert all(fits(problem, schedule) for schedule in starts)


@pytest.mark.parametrize(("layers", "cap"), [(None, 3.0), ((2, 2, 2, 2), 5.0), ((3, 1, 0, 2), 6.0)])
def test_the_rules_of_a_line_hold_their_caps_in_layers_and_skip_a_stage_without_any(layers, cap):
    """Each of the eight attempts ends, and no schedule is thrown away for its memory."""
    problem = Problem(
        place("linear", 4, 4), 6, costs(4, 2, 3, 1, 0.5), cap=cap, after_i=0.5, layers=layers
    )
    with np.errstate(all="raise"):
        found = [write_schedule(problem, queues) for _, queues in write_linear(problem)]
    assert len(found) == 8
    assert all(fits(problem, schedule) for schedule in found)
    tight = max(evaluate(problem, each, "").peak_activations.max() for each in found)
    assert tight > cap / 2


@pytest.mark.parametrize("cap", [2.0, (4.0, 8.0, 3.0, 8.0)], ids=["equal", "uneven"])
def test_a_tight_cap_has_schedules_that_come_near_it(cap):
    """The device with the least memory decides, also beside others with much; without a cap there
    are none.
    """
    problem = Problem(place("linear", 4, 4), 6, costs(4, 2, 3, 1, 0.5), cap=cap)
    found = [write_schedule(problem, queues) for _, queues in write_near_cap(problem)]
    assert found
    assert all(fits(problem, schedule) for schedule in found)
    assert not list(write_near_cap(replace(problem, cap=None)))


def test_an_f_that_lacks_memory_is_told_from_one_that_is_not_due():
    problem = Problem(place("linear", 2, 2), 3, costs(2), cap=1)
    orders, policy = make_orders(problem, write_one_by_one(problem)), make_policy(problem)
    found = []
    for limit, held in ((3, 0), (3, 1), (0, 1)):
        policy.limit[:], policy.held[:] = limit, held
        found.append(pick(orders, policy, 0, 0, 0.0, 3))
    assert found == [0, -2, -1]


def test_equal_costs_need_no_search():
    """With the memory for it, rules alone leave no bubble between a device's ops."""
    problem = Problem(place("linear", 4, 4), 8, costs(4), cap=7)
    assert (
        min(
            evaluate(problem, write_schedule(problem, q), "").span
            for _, q in write_policies(problem)
        )
        == 24
    )


@pytest.mark.parametrize(
    "placement", PLACEMENTS, ids=lambda p: f"{p.name}-{p.n_devices}-{p.n_stages}"
)
def test_who_never_waits_for_a_gradient_ends_when_the_order_does(placement):
    """A device that takes each F as it is ready starts every op as soon as the simulation of its
    order does.
    """
    draw, S, P = np.random.default_rng(3), placement.n_stages, placement.n_devices
    for _ in range(4):
        time = draw.integers(1, 9, (4, S)).astype(float)
        time[1] = time[2] + time[3]
        prices = Costs(time, comm=draw.integers(0, 6, (P, P)).astype(float))
        problem = Problem(placement, 4, prices)
        orders, policy = make_orders(problem, write_one_by_one(problem)), make_policy(problem)
        policy.limit[:], policy.late_first[:] = draw.integers(1, 5, S), draw.integers(0, 2, 2)
        policy.patience[:] = policy.slack[:] = np.inf
        assert write(orders, policy)
        made = write_schedule(
            problem, [orders.code[a:b].astype(np.int64) for a, b in pairwise(orders.offsets)]
        )
        assert simulate(made, prices).makespan == policy.busy.max()


def test_stages_that_take_no_time_warm_up_after_those_before():
    """A device with quick forwards runs no more of them than the device before: each attempt is an
    order that runs.
    """
    time = np.array(
        [[3.5, 0.0, 0.1, 3.5], [1.0, 3.3, 2.0, 4.0], [0.0, 1.3, 2.0, 2.0], [1.0, 2.0, 0.0, 2.0]]
    )
    queues = order_linear(Costs(time), devices=4, microbatches=5, limit=6)
    assert [len(queue) for queue in queues] == [15] * 4


def test_of_orders_the_fastest_is_taken_whose_span_is_no_longer(monkeypatch):
    """One's own takes 10 and 8; the shortest of all has a longer span, and of equals the first
    stays.
    """
    numbers = {
        0: (10.0, 8.0),
        1: (8.0, 9.0),
        2: (12.0, 7.0),
        3: (9.0, 8.0),
        4: (9.0, 7.0),
        5: (9.0, 7.0),
    }
    queues = {key: [np.array([key])] for key in numbers}
    monkeypatch.setattr(
        rules,
        "Schedule",
        SimpleNamespace(from_queues=lambda name, placement, M, made: int(made[0][0])),
    )
    monkeypatch.setattr(rules, "simulate", lambda made, costs: made)
    monkeypatch.setattr(
        rules,
        "measure",
        lambda made: SimpleNamespace(makespan=numbers[made][0], span=numbers[made][1]),
    )

    def taken(*others):
        found = rules.take_fastest(
            PLACEMENTS[0], 1, queues[0], [queues[each] for each in others], costs(4)
        )
        return int(found[0][0])

    assert [taken(each) for each in range(6)] == [0, 0, 0, 3, 4, 5]
    assert (taken(1, 2, 3, 4, 5), taken(5, 4, 3), taken(3, 2), taken()) == (4, 5, 3, 0)


@pytest.mark.parametrize(
    ("late", "idle", "chosen"),
    [(4.0, 0.0, "W"), (3.5, 0.0, ""), (3.5, 1.5, "W"), (3.5, 1.0, ""), (4.5, 0.0, "W")],
)
def test_a_w_runs_where_it_ends_before_the_next_input_or_a_device_has_idled_enough(
    late, idle, chosen
):
    """It takes 4, and devices may idle 4.5 in all; the next gradient arrives ``late``, and an F is
    not due.
    """
    problem = Problem(place("linear", 2, 2), 3, costs(2, 1, 2, 4))
    orders, policy = make_orders(problem, write_one_by_one(problem)), make_policy(problem)
    orders.result[:] = -1.0
    policy.slack[:], policy.idle[:] = 4.5, idle
    policy.done[:4], policy.waiting[:, 0] = (2, 2, 1, 2), (1, 0)  # F and F, I and I of either stage
    orders.result[3 * 3 + 1] = 10 + late  # the second I of stage 1
    assert choose(orders, policy, 0, 10.0, 3) == (4 if chosen else -1)
    assert chosen or policy.wake[0] == 10 + late


def test_an_f_goes_where_no_i_comes_before_it_ends():
    """F take 1: one at 10 delays an I that comes before 11, which it does as long as the device is
    not patient.
    """
    problem = Problem(place("linear", 2, 2), 3, costs(2, 1, 2, 4))
    orders, policy = make_orders(problem, write_one_by_one(problem)), make_policy(problem)
    policy.limit[:], policy.done[:4] = 3, (1, 1, 0, 1)
    found = []
    for patience, comes in ((0.0, 11.0), (0.0, 10.5), (0.5, 10.5), (0.25, 10.5)):
        orders.result[:] = -1.0
        policy.patience[:], orders.result[3 * 3] = patience, comes
        found.append(choose(orders, policy, 0, 10.0, 3))
    assert found == [0, -1, 0, -1]


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("compiles", [False, True])
def test_machine_code_orders_what_is_large_where_there_is_some(monkeypatch, large, compiles):
    run = zbv.list_orders
    asked, problem = list[bool](), Problem(place("v", 2, 4), 3, costs(4))
    for module in (heuristics, zbv):
        monkeypatch.setattr(module, "can_compile", lambda: compiles)
    monkeypatch.setattr(heuristics, "COMPILE_HEURISTICS_ABOVE", 11 if large else 12)
    monkeypatch.setattr(zbv, "machine_code_pays", lambda *given: large)

    def listed(*given, compiled):
        asked.append(compiled)
        return run(*given, compiled=False)

    monkeypatch.setattr(zbv, "list_orders", listed)
    zbv.equal_orders.cache_clear()
    assert heuristics.pays_to_compile(problem) == (large and compiles)
    zbv.order_zb_v(problem.costs, 2, 3, 4)
    assert asked == [large and compiles] * 2


@pytest.mark.parametrize("seed", range(6))
def test_no_attempt_of_the_heuristics_has_a_shorter_span(seed):
    """Eight attempts on a line, four passes over a V: of any costs the least span is taken, or a
    shorter one.
    """
    rng = np.random.default_rng(seed)
    time = rng.integers(1, 9, (4, 4)).astype(float)
    time[1] = time[2] + time[3]
    prices = Costs(time, comm=0.25)

    def span(placement, queues):
        return evaluate(
            Problem(placement, 6, prices), Schedule.from_queues("", placement, 6, queues), ""
        ).span

    line = Problem(place("linear", 4, 4), 6, prices, 5)
    found = span(line.placement, order_linear(prices, devices=4, microbatches=6, limit=5))
    assert found <= min(
        evaluate(line, write_schedule(line, q), "").span for _, q in heuristics.write_linear(line)
    )
    v, limits, held = (
        place("v", 2, 4),
        np.full(2, 6.0),
        np.repeat([1.0, 0.0, -1.0], 2)[:, None] * np.ones(2),
    )
    equal = Costs(np.ones((4, 4)))  # where what they cost leads to none
    passes = (
        list(zbv.list_orders(each, 6, limits, held, compiled=False)) for each in (prices, equal)
    )
    best = min(next(filter(None, passes)), key=lambda each: each[0])
    assert span(v, zbv.order_zb_v(prices, 2, 6, 6)) <= span(v, zbv.queues_of(best[1]))
