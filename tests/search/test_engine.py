"""The search finds schedules that fit, and none worse than those it starts from."""

import numpy as np
import pytest

from ppsim.core.costs import Costs
from ppsim.core.schedule import place
from ppsim.schedules import generate
from ppsim.search.engine import search
from ppsim.search.problem import Problem, Solution, fits
from tests.search.test_problem import costs


def test_unit_costs_on_four_devices():
    """Known from the issue: P=4, M=8, F=I=W=1 takes 27 with 4 activations and 24 with 7."""
    problems = [Problem(place("linear", 4, 4), 8, costs(4), cap) for cap in (4, 7)]
    found = [find(problem, bound=best) for problem, best in zip(problems, (27, 24), strict=True)]
    assert [solution.span for solution in found] == [27, 24]


def find(problem: Problem, **options) -> Solution:
    solution = search(problem, **options)
    assert solution is not None
    return solution


@pytest.mark.parametrize("placement", [place("linear", 3, 3), place("v", 3, 6), place("loop", 3, 6), place("v", 2, 6)])
def test_the_least_cap_is_enough_for_any_placement(placement):
    problem = Problem(placement, 5, costs(placement.n_stages, comm=0.5), cap=placement.n_chunks)
    solution = find(problem, time_limit=0.2)
    assert fits(problem, solution.schedule)


def test_nothing_fits_less_than_one_activation_of_each_stage():
    assert search(Problem(place("v", 3, 6), 5, costs(6), cap=1.9)) is None


def test_a_seed_is_never_lost():
    """The result is at least as good as a known schedule, uneven costs included."""
    uneven = Costs(np.array([[1, 2, 3, 1], [3, 5, 4, 6], [2, 2, 3, 3], [1, 3, 1, 3]], float), comm=0.25)
    problem = Problem(place("linear", 4, 4), 12, uneven, cap=7)
    known = generate("zb-h2", stages=4, microbatches=12)
    reported: list[Solution] = []
    solution = find(problem, seeds=[known], time_limit=0.5, report=reported.append)
    assert reported[0].origin == "zb-h2"
    assert solution.score("span") <= reported[0].score("span")
    assert reported[-1] is solution
