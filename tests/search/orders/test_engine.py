"""The search finds schedules that fit, and none worse than those it starts from."""

from contextlib import nullcontext
from itertools import pairwise

import numpy as np
import pytest

from ppsim.core.costs import Costs
from ppsim.core.schedule import place
from ppsim.schedules import generate
from ppsim.search.orders import anneal_kernel, engine
from ppsim.search.orders.engine import search
from ppsim.search.orders.improve import Member, cost_of, make_walk
from ppsim.search.orders.optimize import NamedSolution, Outcome
from ppsim.search.problem import Problem, Solution, evaluate, fits
from ppsim.search.rules.order_kernel import Orders
from ppsim.search.rules.orders import make_orders, read_orders, write_one_by_one, write_schedule
from tests.clock import ENDLESS
from tests.search.orders.prices import costs
from tests.search.orders.published import read_caps, read_v_caps


def test_unit_costs_on_four_devices():
    """Known from the issue: P=4, M=8, F=I=W=1 takes 27 with 4 activations and 24 with 7."""
    problems = [Problem(place("linear", 4, 4), 8, costs(4), cap) for cap in (4, 7)]
    found = [find(problem, bound=best) for problem, best in zip(problems, (27, 24), strict=True)]
    assert [solution.span for solution in found] == [27, 24]


def find(problem: Problem, **options) -> Solution:
    solution = search(problem, **options)
    assert solution is not None
    return solution


@pytest.mark.slow
@pytest.mark.parametrize(
    "placement", [place("linear", 3, 3), place("v", 3, 6), place("loop", 3, 6), place("v", 2, 6)]
)
def test_the_least_cap_is_enough_for_any_placement(placement):
    problem = Problem(placement, 3, costs(placement.n_stages, comm=0.5), cap=placement.n_chunks)
    solution = find(problem, rounds=0)
    assert fits(problem, solution.schedule)


def test_nothing_fits_less_than_one_activation_of_each_stage():
    assert search(Problem(place("v", 3, 6), 5, costs(6), cap=1.9)) is None


def test_a_seed_is_never_lost():
    """The result is at least as good as a known schedule, uneven costs included."""
    uneven = Costs(
        np.array([[1, 2, 3, 1], [3, 5, 4, 6], [2, 2, 3, 3], [1, 3, 1, 3]], float), comm=0.25
    )
    problem = Problem(place("linear", 4, 4), 12, uneven, cap=7)
    known = generate("zb-h2", stages=4, microbatches=12)
    reported: list[Solution] = []
    solution = find(problem, seeds=[known], rounds=0, report=reported.append)
    assert reported[0].origin == "zb-h2"
    assert solution.score("span") <= reported[0].score("span")
    assert reported[-1] is solution


def walk(problem: Problem, seed: int, moves: int) -> tuple[float, Orders]:
    """Anneal the schedule of one microbatch at a time, in CPython."""
    orders = make_orders(problem, write_one_by_one(problem))
    state = make_walk(problem, orders, seed, np.zeros(1, np.int64))
    cost = anneal_kernel.anneal(orders, state, moves, 12, 1.0, 0.1)
    best = [state.best[a:b].astype(np.int64) for a, b in pairwise(orders.offsets)]
    return cost, make_orders(problem, best)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "placement", [place("linear", 3, 3), place("v", 2, 4), place("loop", 2, 4)]
)
def test_a_walk_keeps_every_op_in_order_and_every_cap(placement):
    """Whatever it moves, each queue has its ops, no device waits forever and none holds more than
    its cap.
    """
    problem = Problem(
        placement, 5, costs(placement.n_stages, comm=0.5), cap=placement.n_chunks + 0.6, after_i=0.3
    )
    cost, orders = walk(problem, seed=3, moves=1500)
    schedule = write_schedule(
        problem, [orders.code[a:b].astype(np.int64) for a, b in pairwise(orders.offsets)]
    )
    assert fits(problem, schedule)
    found = evaluate(problem, schedule, "")
    assert cost == pytest.approx(found.span + 0.001 * found.makespan)
    assert cost < cost_of(problem, write_one_by_one(problem))


def test_the_same_seed_walks_the_same_way():
    problem = Problem(place("v", 2, 4), 4, costs(4, f=2, i=3, comm=0.5), cap=3)
    first, again, other = (walk(problem, seed, moves=400) for seed in (1, 1, 2))
    assert first[1].code.tolist() == again[1].code.tolist() != other[1].code.tolist()


@pytest.mark.slow
def test_small_optima_from_the_issue():
    """P=4, M=8, F=10, I=11, W=8, messages of 1: 283 with 4 activations, 245 with 8."""
    problems = [Problem(place("linear", 4, 4), 8, costs(4, 10, 11, 8, 1), cap) for cap in (4, 8)]
    found = [find(problem, bound=best) for problem, best in zip(problems, (283, 245), strict=True)]
    assert [solution.span for solution in found] == [283, 245]


@pytest.mark.slow
def test_rounds_make_a_search_repeatable():
    problem = Problem(place("v", 4, 8), 8, costs(8, 10, 11, 8, 1), cap=6)
    found = [find(problem, rounds=1, workers=2, seed=5).schedule for _ in range(2)]
    assert found[0].kind.tolist() == found[1].kind.tolist()
    assert found[0].stage.tolist() == found[1].stage.tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    "published", [p for p in read_v_caps() if p.span < np.inf][::3], ids=lambda p: p.name
)
def test_v_schedules_under_small_caps(published):
    """At least as good as the search of the controllable-memory paper's authors; the benchmarks run
    every row.
    """
    assert find(published.problem, time_limit=ENDLESS, bound=published.span).span <= published.span


@pytest.mark.slow
@pytest.mark.parametrize("published", read_caps()[::9], ids=lambda p: p.name)
def test_memory_curves_of_zb_and_zb_v(published):
    """At least as good as the search of the zero-bubble papers' authors, P up to 32 and M up to
    128.
    """
    assert (
        find(published.problem, time_limit=ENDLESS, bound=published.span * 1.0005).span
        <= published.span * 1.0005
    )


def test_a_search_without_time_has_a_schedule_by_rules_too():
    """The heuristic of even stages is as slow as one microbatch at a time where they are uneven and
    memory is short.
    """
    problem = Problem(
        place("linear", 8, 8), 24, Costs(np.linspace(9, 5, 32).reshape(4, 8), comm=1.0), cap=5
    )
    best = find(problem, time_limit=0, grace=60)
    assert best.origin == "list scheduling"


def test_a_search_asks_its_parts_to_end_in_time(monkeypatch):
    """Rules after half of it, walks with the limit, which a thread each core shares, and the rest
    after the grace.
    """
    problem, told = Problem(place("linear", 2, 2), 2, costs(2)), dict[str, float]()

    def collected(problem, seeds, deadline):
        told["rules"] = deadline
        return iter([Member(write_one_by_one(problem), "", 99.0)])

    def improved(problem, starts, seed, workers, until, run):
        told["walks"], told["workers"] = until, workers
        return iter([])

    monkeypatch.setattr(engine, "monotonic", lambda: 1000.0)
    monkeypatch.setattr(engine, "count_cores", lambda: 5)
    monkeypatch.setattr(engine, "end_by", lambda until: nullcontext(told.update(own=until)))
    monkeypatch.setattr(engine, "interrupt_at", lambda until: nullcontext(told.update(all=until)))
    monkeypatch.setattr(engine, "collect", collected)
    monkeypatch.setattr(engine, "improve", improved)
    find(problem, time_limit=20, grace=3)
    assert told == {"own": 1020, "all": 1023, "rules": 1010, "walks": 1020, "workers": 5}
    find(problem, time_limit=20, workers=2)
    assert told["workers"] == 2


def test_what_fits_smaller_caps_is_written_while_there_is_time(monkeypatch):
    """Heuristics for the cap itself however late; the shares of it, and rules but for one, before
    the deadline.
    """
    caps = list[list[float]]()
    problem = Problem(place("linear", 4, 4), 8, costs(4), cap=6)

    def write(capped):
        caps.append(capped.caps.tolist())
        return []

    monkeypatch.setattr(engine, "write_linear", write)
    for deadline, tried in ((np.inf, 1.0), (-np.inf, 0.0)):
        caps.clear()
        found = len(list(engine.rule_queues(problem, deadline)))
        assert caps[0] == [6.0] * 4
        shares = [5 - 5 * nth / engine.SMALLER_CAPS for nth in range(engine.SMALLER_CAPS)]
        assert [each[0] - 1 for each in caps] == pytest.approx(shares if tried else shares[:1])
        assert found > 2 if tried else found == 2


def test_walks_go_on_until_the_bound_is_attained(monkeypatch):
    """A round without gain does not end them, one that comes to the optimum does: 24 on four
    devices.
    """
    problem, rounds = Problem(place("linear", 4, 4), 8, costs(4), 7), list[int]()
    best = find(problem, bound=24, time_limit=ENDLESS)
    queues = read_orders(best.schedule)

    def walked(*_: object):
        for number, found in enumerate((None, Member(queues, "walk", best.span), None)):
            rounds.append(number)
            yield found

    slow = Member(write_one_by_one(problem), "one by one", 99.0)
    monkeypatch.setattr(engine, "collect", lambda *_: iter([slow]))
    monkeypatch.setattr(engine, "improve", walked)
    assert find(problem, bound=24).span == 24
    assert rounds == [0, 1]


def test_the_best_known_is_the_fastest_of_those_that_fit():
    problem = Problem(place("linear", 4, 4), 8, costs(4), 4)
    slow, fast = (
        evaluate(problem, generate(name, devices=4, microbatches=8), name)
        for name in ("1f1b", "zb-1p")
    )
    both = sorted((slow, fast), key=lambda each: each.score(problem.objective))
    assert both[0].span < both[1].span
    for fits_first, fits_second, best in (
        (True, True, both[0]),
        (False, True, both[1]),
        (False, False, None),
    ):
        known = (NamedSolution(both[0], fits_first), NamedSolution(both[1], fits_second))
        assert Outcome(problem, both[0], 0.0, known, True, False).best_known is best


def test_the_work_of_the_busiest_device_ends_a_search(monkeypatch):
    """F of 2, and B of 4 where I and W take 3 and 2, I and W of 1 and 2 where B takes 4: 3 x 6 and
    3 x 5.
    """
    time = np.array([[2.0, 2.0], [4.0, 4.0], [3.0, 1.0], [2.0, 2.0]])
    assert engine.busiest(Problem(place("linear", 2, 2), 3, Costs(time))) == 18
    assert engine.busiest(Problem(place("loop", 1, 2), 3, Costs(time))) == 33
    monkeypatch.setattr(engine, "improve", lambda *_: pytest.fail("goes on"))
    assert find(Problem(place("loop", 1, 2), 3, costs(2)), bound=0.0).span == 3 * 2 * 3


def test_full_backwards_are_written_where_any_stage_has_them(monkeypatch):
    """Each schedule once more, W behind its I on the stage whose B is shorter and where it was on
    the other.
    """
    time = np.array([[1.0, 1.0], [2.0, 1.5], [1.0, 1.0], [1.0, 1.0]])
    problem = Problem(place("linear", 2, 2), 2, Costs(time), 2)
    once = list(engine._candidate_queues(problem, -np.inf))
    found = [queues for _, queues in engine.rule_queues(problem, -np.inf)]
    assert len(found) == 2 * len(once)
    for queues in found[len(once) :]:
        codes = queues[1].tolist()
        assert all(codes[n + 1] == 5 for n, code in enumerate(codes) if code == 3)
