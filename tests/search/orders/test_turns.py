"""The sure schedule of a search that comes late: a few microbatches, all of their backwards, then
the next.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ppsim.core.costs import Costs
from ppsim.core.schedule import place
from ppsim.search.orders.optimize import write_in_turns
from ppsim.search.problem import Problem, evaluate, fits


@pytest.mark.parametrize(("placement", "stages"), [("linear", 4), ("v", 8), ("loop", 12)])
@pytest.mark.parametrize(("cap", "turns"), [(None, 1), (2, 4), (3.5, 3), (1, 7)])
def test_turns_are_as_large_as_the_fullest_device_allows(placement, stages, cap, turns):
    """Seven microbatches on four devices, layers of stages unequal."""
    layers = tuple(1 + (stage == 1) for stage in range(stages))
    asked = Problem(
        place(placement, 4, stages), 7, Costs(np.ones((4, stages))), after_i=0.5, layers=layers
    )
    most = None if cap is None else cap * asked.least_caps.max()
    problem = replace(asked, cap=most)
    made = write_in_turns(problem)
    assert fits(problem, made)
    held = evaluate(problem, made, made.name).peak_activations.max() / asked.least_caps.max()
    assert -(-7 // held) == turns
    size = {1: 7, 3: 3, 4: 2, 7: 1}[turns]
    assert made.name == (
        "one microbatch at a time" if size == 1 else f"{size} microbatches at a time"
    )
