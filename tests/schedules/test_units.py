"""Orders that follow costs do not follow the unit of these."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from ppsim.core.costs import Costs, costs_for, count_in_steps
from ppsim.schedules import families, generate

TIMES: list[dict[str, Any]] = [
    {"tf": 0.7, "ti": 0.1, "tw": 0.1, "comm": 0.0},
    {"tf": 0.1, "ti": 1.1, "tw": 0.3, "comm": 0.1},
    {"tf": 0.3, "ti": 0.3, "tw": 0.1, "comm": 0.1},
    {"tf": 0.7, "ti": 1.1, "tw": 0.2, "comm": 0.2},
]
ORDERED = [
    family.name
    for family in families()
    if family.uses_costs and not family.name.startswith("vocab")
]


@pytest.mark.sampled(24)
@pytest.mark.parametrize("name", ORDERED)
@pytest.mark.parametrize("factor", [3, 10, 0.1])
def test_costs_in_another_unit_give_the_same_order(name, factor):
    """Times 3, 10 and 0.1: ties that rounding breaks one way or the other are broken as before."""
    for times in TIMES:
        scaled = {key: value * factor for key, value in times.items()}
        for devices, microbatches in ((2, 5), (3, 6)):
            shape = {"devices": devices, "microbatches": microbatches}
            first = generate(name, costs=partial(costs_for, **times), **shape)
            second = generate(name, costs=partial(costs_for, **scaled), **shape)
            for column in ("kind", "stage", "microbatch", "offsets"):
                assert np.array_equal(getattr(first, column), getattr(second, column)), (
                    times,
                    shape,
                )


def test_times_are_counted_in_the_largest_step_that_they_have_in_common():
    """0.1, 0.2 and 0.3 are 1, 2 and 3; what has no common step is exact to a billionth of the
    longest.
    """
    found = count_in_steps(Costs(np.array([[0.3], [0.3], [0.1], [0.2]]), 0.1))
    assert found.time[:4].ravel().tolist() == [3, 3, 1, 2]
    assert found.comm == 1
    rough = np.array([[np.pi], [np.e], [1.0], [0.0]])
    found = count_in_steps(Costs(rough))
    assert (found.time == np.rint(found.time)).all()
    assert np.allclose(found.time[:4] / found.time[0, 0], rough / np.pi, rtol=0, atol=1e-9)
    nothing = Costs(np.zeros((4, 2)))
    assert count_in_steps(nothing) is nothing
