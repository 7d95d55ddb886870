"""Rounds of walks: where each starts, what is kept, and what its random numbers begin with."""

from itertools import islice
from time import monotonic, sleep

import numpy as np
import pytest

from ppsim.core.schedule import place
from ppsim.search.orders import improve as module
from ppsim.search.orders.improve import Member, anneal, cost_of, improve, make_walk
from ppsim.search.problem import Problem
from ppsim.search.rules.order_kernel import MODULUS
from ppsim.search.rules.orders import make_orders, write_one_by_one
from tests.search.orders.prices import costs

PROBLEM = Problem(place("linear", 2, 2), 2, costs(2))


@pytest.mark.parametrize("elsewhere", [False, True])
def test_every_other_walk_starts_from_the_best_and_the_rest_in_turn(monkeypatch, elsewhere):
    """A pool has the six best; a walk that ends higher changes nothing, and answers come in any
    order.
    """
    begun = list[tuple[str, int, int]]()

    def walk(problem, start, seed, nth, stop):
        begun.append((start.origin, seed, nth))
        assert stop[0] == (len(begun) == 1)  # but for the first, which compiles, there is time
        return Member(start.queues, start.origin, start.cost - 50 if nth == 4 else start.cost + 1)

    monkeypatch.setattr(module, "_walk", walk)
    starts = [Member([], f"{cost}", cost) for cost in range(7, 0, -1)]
    run = (
        (lambda function, tasks: reversed([*enumerate(map(function, tasks))]))
        if elsewhere
        else None
    )
    found = list(islice(improve(PROBLEM, starts, 7, 3, monotonic() + 1000, run), 5))
    assert [member and (member.origin, member.cost) for member in found] == [
        None,
        ("3", -47),
        None,
        None,
        None,
    ]
    origins = "112 131 435 363 331".replace(" ", "")  # 3 became the first, 1 the second
    assert sorted(begun[1:], key=lambda each: each[2]) == [
        (o, 7_000_021 + n, n) for n, o in enumerate(origins)
    ]
    assert not list(improve(PROBLEM, starts, 7, 3, 0.0))


def test_walks_are_stopped_at_the_deadline(monkeypatch):
    stopped = list[int]()

    def walk(problem, start, seed, nth, stop):
        while not stop[0]:
            sleep(0.001)
        stopped.append(int(stop[0]))
        return start

    until = monotonic() + 0.05
    monkeypatch.setattr(module, "_walk", walk)
    assert list(improve(PROBLEM, [Member([], "", 1.0)], 1, 2, until)) == [None]
    assert stopped == [1, 1, 1]


def test_random_numbers_begin_with_any_state_but_zero():
    """States of a Lehmer generator are 1 to its modulus - 1, one for each seed."""
    orders = make_orders(PROBLEM, write_one_by_one(PROBLEM))
    seeds = (0, 1, MODULUS - 2, MODULUS - 1)
    states = [
        int(make_walk(PROBLEM, orders, seed, np.zeros(1, np.int64)).random[0]) for seed in seeds
    ]
    assert states == [1, 2, MODULUS - 1, 1]


def test_heat_is_in_mean_durations_of_ops(monkeypatch):
    """F, I and W of 1, 2 and 6 take 3 in the mean; a walk ends at a twentieth of what it begins
    with.
    """
    problem, heats = Problem(place("linear", 2, 2), 2, costs(2, 1, 2, 6)), list[float]()

    def kernel(function, orders, walk, moves, longest, hot, cold, **parts):
        heats.extend((hot, cold))
        return 1.0

    monkeypatch.setattr(module, "call", kernel)
    anneal(problem, write_one_by_one(problem), 1, np.zeros(1, np.int64), 100, 0.5)
    assert heats == pytest.approx([1.5, 0.075])


@pytest.mark.parametrize(("timings", "moves"), [(1199, 100), (1212, 101), (12_000, 1000)])
def test_a_walk_times_as_much_as_it_may_and_a_hundred_orders_at_least(monkeypatch, timings, moves):
    """Two stages and two microbatches are twelve ops; what was improved already keeps its name."""
    asked = list[tuple[int, float]]()

    def anneal(problem, queues, seed, stop, moves, hot):
        asked.append((moves, hot))
        return 3.0, queues

    monkeypatch.setattr(module, "anneal", anneal)
    monkeypatch.setattr(module, "TIMINGS_OF_A_WALK", timings)
    start, stop = Member(write_one_by_one(PROBLEM), "rules", 9.0), np.zeros(1, np.int64)
    for nth in range(4):
        start = module._walk(PROBLEM, start, 1, nth, stop)
        assert (start.origin, start.cost) == ("rules, improved", 3.0)
    assert asked == [(moves, module.HOT[0])] * 2 + [(moves, module.HOT[1])] * 2


@pytest.mark.parametrize("large", [False, True])
def test_only_what_is_large_is_timed_by_machine_code(monkeypatch, large):
    monkeypatch.setattr(module, "pays_to_compile", lambda problem: large)

    def machine_code(orders, walk, *others):
        walk.reached[0] = 17.0
        return 17.0

    monkeypatch.setattr(module, "load", lambda *given, parts: machine_code)
    assert cost_of(PROBLEM, write_one_by_one(PROBLEM)) == pytest.approx(
        17 if large else 10 + 0.001 * 10
    )  # span, and a little of the makespan
