"""The front of span against memory asks for caps in turn, and ends where more memory helps no more."""

from typing import Any

import numpy as np
import pytest

from ppsim.base.deadline import TimeOver
from ppsim.core.schedule import place
from ppsim.search.orders.optimize import Outcome, find_front
from ppsim.search.problem import Problem, Solution
from tests.search.orders.prices import costs


@pytest.mark.parametrize(
    ("spans", "front"),
    [
        ({1: 9.0, 2: 7.0}, [(1, 9), (2, 7)]),
        ({1: 9.0, 2: 8.0, 3: 7.5, 4: 7.0 + 1e-12}, [(1, 9), (2, 8), (3, 7.5), (4, 7)]),
        ({1: 9.0}, [(1, 9), (5, 7)]),
        ({2: 8.0, 3: 7.5}, [(2, 8), (3, 7.5), (5, 7)]),
        ({}, [(5, 7)]),
    ],
)
def test_caps_up_to_the_first_as_good_as_the_largest(spans, front):
    """Without a limit 5 are held and the span is 7; the time of a cap that has no span here ends without one."""
    problem, asked = Problem(place("linear", 3, 3), 5, costs(3)), list[str]()

    def run(key, problems, known, seeds, limit):
        asked.append(key)
        cap = problems[0].cap
        if cap is not None and cap not in spans:
            raise TimeOver
        span, schedule = spans.get(cap, 7.0), key
        made: Any = Solution(schedule, span, span, np.array([5.0 if cap is None else cap]), "")
        assert seeds == () or seeds[0] == "largest cap"
        return Outcome(problems[0], made, 0.0, (), solver=True, interrupted=False)

    found = find_front([problem], [[]], [1], run, 60.0)
    assert [(cap, pytest.approx(outcome.value)) for cap, outcome in found] == front
    last = int(front[-1][0]) if front[-1][0] in spans else 5
    assert asked == ["largest cap", *(f"cap {cap}" for cap in range(1, last + 1))]
