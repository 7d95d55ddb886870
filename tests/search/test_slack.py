"""Sums of shares round: a billionth above a cap counts as within it in every search, and two as
above.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from ppsim.core.costs import Costs
from ppsim.core.ops import Kind, pack
from ppsim.core.schedule import place
from ppsim.errors import InputError
from ppsim.search.orders import anneal_kernel, kept
from ppsim.search.orders.improve import make_walk
from ppsim.search.orders.optimize import Outcome, write_in_turns
from ppsim.search.problem import Problem, evaluate, fits, is_held
from ppsim.search.rules import zbv
from ppsim.search.rules.heuristics import write_linear
from ppsim.search.rules.offload import add_waits
from ppsim.search.rules.orders import make_orders, write_one_by_one, write_schedule
from ppsim.search.rules.policies import make_policy
from ppsim.search.rules.policy_kernel import pick, write
from tests.search.orders.prices import costs

SLACK = 1e-9
Found = Callable[[float], Any]


def linear(cap: float | list[float]) -> Problem:
    return Problem(place("linear", 3, 3), 6, costs(3, 2, 3, 1, 0.5), cap)


def lists(queues: Iterable[np.ndarray]) -> list[list[int]]:
    return [queue.tolist() for queue in queues]


def greedy(cap: float) -> Any:
    """What the passes over a V of two devices come to for any costs."""
    time = np.array([[2.0, 1, 3, 1], [3, 2, 4, 2], [2, 1, 2, 1], [1, 1, 2, 1]])
    held = np.repeat([1.0, -0.5, -0.5], 2)[:, None] * np.ones(2)
    orders = zbv.list_orders(Costs(time, 0.5), 6, np.full(2, cap), held, compiled=False)
    return [(bubble, types.tolist()) for bubble, types in orders]


def by_rules(cap: float) -> Any:
    problem = linear(cap)
    orders, policy = make_orders(problem, write_one_by_one(problem)), make_policy(problem)
    policy.limit[:], policy.slack[:] = 6, 9.0
    return write(orders, policy), orders.code.tolist(), pick(orders, policy, 0, 0, 0.0, 6)


def by_heuristics(cap: float) -> Any:
    return [lists(queues) for _, queues in write_linear(linear(cap))]


def as_it_fits(cap: float) -> Any:
    problem, roomy = linear([cap, 9.0, 9.0]), linear(9)
    schedule = write_schedule(roomy, next(queues for _, queues in write_linear(linear(4))))
    return fits(problem, schedule), is_held(problem, schedule)


def reaches(cap: float) -> Any:
    """How far each op of one microbatch after the other may move."""
    problem = linear(cap)
    orders = make_orders(problem, write_one_by_one(problem))
    walk = make_walk(problem, orders, 1, np.zeros(1, np.int64))
    anneal_kernel.prepare(orders, walk)
    return [
        anneal_kernel.reachable_place(orders, walk, op, steps)
        for op in range(len(orders.code))
        for steps in (-5, 5)
    ]


def waits(cap: float) -> Any:
    queue = [int(pack(0, m)) | kind for m in range(4) for kind in (Kind.F, Kind.OFFLOAD)]
    return add_waits(queue, [1.0, -1.0] * 4, cap)


def in_turns(cap: float) -> Any:
    return lists(write_in_turns(linear(cap)).packed() for _ in range(1))


def read_again(cap: float) -> Any:
    """Whether a file's row is a schedule of the problem."""
    schedule = write_schedule(linear(9), next(queues for _, queues in write_linear(linear(4))))
    problem = linear([cap, 9.0, 9.0])
    row = kept.row_of(Outcome(problem, evaluate(problem, schedule, "rules"), 1.0, (), True, False))
    try:
        return kept.outcome_of(row, [problem], [[]]).value
    except InputError:
        return None


@pytest.mark.parametrize(
    ("found", "cap"),
    [
        (greedy, 5),
        (by_rules, 3),
        (by_heuristics, 3),
        (as_it_fits, 4),
        (reaches, 2),
        (waits, 2),
        (in_turns, 3),
        (read_again, 4),
    ],
)
def test_a_cap_that_is_short_by_rounding_holds_as_much(found: Found, cap: int):
    just, short = cap - SLACK, cap - 2 * SLACK
    assert just + SLACK == cap
    assert found(just) == found(cap)
    assert found(short) != found(cap)


@pytest.mark.parametrize("share", [1 - SLACK, 1 - 2 * SLACK])
def test_the_least_caps_are_enough_but_for_rounding(share):
    problem = Problem(place("linear", 2, 2), 2, costs(2), [9.0, share])
    assert problem.is_feasible == (share + SLACK >= 1)
