"""The front of span against memory asks for caps in turn, and ends where more memory helps no
more.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ppsim.base.deadline import TimeOver
from ppsim.core.schedule import place
from ppsim.search.orders import optimize
from ppsim.search.orders.optimize import Outcome, find_front
from ppsim.search.problem import Problem, Solution
from tests.search.orders.prices import costs

# A cap of one is two layers of the first placement, which needs 3 at least, and one stage of the
# other, which needs 4.
PROBLEMS = [
    Problem(place("linear", 3, 3), 1, costs(3), layers=(2, 6, 2)),
    Problem(place("loop", 3, 12), 1, costs(12)),
]


def front(monkeypatch, spans, most=7.0, held=10.0, limit=1000.0, signal=1000):
    """Fronts with a span of each cap, none where its time ends without one; what is asked, and caps
    of each search.

    Without a limit ten layers are held. A search takes 10 seconds, a first order one for each op; a
    signal comes after so many searches.
    """
    asked = dict[str, list[Any]]()

    def run(key, problems, known, seeds, limit):
        asked[key] = [problem.cap for problem in problems]
        cap = int(key.removeprefix("cap ")) if key != "largest cap" else None
        if cap is not None and cap not in spans:
            raise TimeOver
        assert list(seeds[:1]) == ([] if cap is None else ["largest cap"])
        span, schedule = most if cap is None else spans[cap], key
        made: Any = Solution(schedule, span, span, np.array([held if cap is None else cap]), "")
        return Outcome(problems[0], made, 0.0, (), solver=True, interrupted=False)

    monkeypatch.setattr(optimize, "OP_S", 1.0)
    monkeypatch.setattr(optimize, "time", SimpleNamespace(monotonic=lambda: 10.0 * len(asked)))
    monkeypatch.setattr(optimize, "first_signal", lambda: len(asked) >= signal)
    found = find_front(PROBLEMS, [[], []], [2, 1], run, limit)
    assert asked.pop("largest cap") == [None, None]
    return [(cap, outcome.value) for cap, outcome in found], asked


@pytest.mark.parametrize(
    ("spans", "most", "rows", "last"),
    [
        ({3: 9.0, 4: 7.0}, 7.0, [(3, 9), (4, 7)], 4),
        ({3: 8.0, 4: 7.5, 5: 7.0}, 7.0, [(3, 8), (4, 7.5), (5, 7)], 5),
        ({3: 9.0}, 7.0, [(3, 9), (5, 7)], 5),
        ({4: 8.0}, 7.0, [(4, 8), (5, 7)], 5),
        ({}, 7.0, [(5, 7)], 5),
        ({3: 8.0, 4: 7.0 + 1e-12}, 7.0, [(3, 8), (4, 7.0 + 1e-12)], 4),
        ({3: 0.0}, 0.0, [(3, 0)], 3),
    ],
)
def test_caps_up_to_the_first_as_good_as_the_largest(monkeypatch, spans, most, rows, last):
    """From the least that any placement needs, 3, to what is held without a limit, in layers as in
    stages.
    """
    found, asked = front(monkeypatch, spans, most)
    assert found == rows
    assert asked == {f"cap {cap}": [2 * cap, cap] for cap in range(3, last + 1)}


@pytest.mark.parametrize(
    ("limit", "caps", "late"),
    [(18, [], "3, 4"), (28, [3], "4"), (29, [3, 4], ""), (39, [3, 4, 5], "")],
)
def test_what_has_no_time_for_a_first_order_is_left_out_and_named(
    monkeypatch, recwarn, limit, caps, late
):
    """Nine ops of the smaller placement, after ten seconds for each search before; the largest is
    there.
    """
    found, asked = front(monkeypatch, {3: 10.0, 4: 9.0, 5: 8.0}, limit=limit)
    assert list(asked) == [f"cap {cap}" for cap in caps]
    assert found == [(cap, 13.0 - cap) for cap in caps] + [(5, 7.0)]
    said = [f"left out of the front, as the time ended: cap {late}"] if late else []
    assert [str(each.message) for each in recwarn] == said


@pytest.mark.parametrize(
    ("signal", "rows"), [(1, [(5, 7)]), (2, [(3, 10)]), (3, [(3, 10), (4, 9)])]
)
def test_after_a_signal_the_front_is_what_was_found(monkeypatch, signal, rows):
    assert front(monkeypatch, {3: 10.0, 4: 9.0, 5: 8.0}, signal=signal)[0] == rows


def test_where_the_least_is_all_that_is_held_there_is_one_search(monkeypatch):
    assert front(monkeypatch, {3: 7.0}, held=6.0) == ([(3, 7)], {})
