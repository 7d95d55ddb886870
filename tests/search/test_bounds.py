"""Lower bounds: never above what any schedule reaches, and equal to known optima."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.core.costs import Costs
from ppsim.core.recompute import add_recompute
from ppsim.core.schedule import Schedule, place
from ppsim.schedules import families, generate
from ppsim.search.bounds import Bounds, bound_problem, bound_schedule
from ppsim.search.problem import Problem
from ppsim.simulation.longest_path import simulate
from ppsim.simulation.metrics import measure
from tests.cases import EIGHTHS, FEW, FLOATS, costs, schedules

NAMES = [family.name for family in families()]


def problem(devices, microbatches, times, comm=0.0, cap=None, placement="linear", chunks=1, **more):
    f, i, w = times
    stages = devices * chunks
    time = np.array([[f], [i + w], [i], [w]], float) * np.ones(stages)
    return Problem(place(placement, devices, stages), microbatches, Costs(time, float(comm)), cap, **more)


def assert_below(schedule: Schedule, prices: Costs) -> None:
    """No bound exceeds what the schedule reaches: with any memory, with that of its peak, with each device's own."""
    found = measure(simulate(schedule, prices))
    for caps in (None, float(found.peak_activations.max()), found.peak_activations):
        bounds = bound_schedule(schedule, prices, caps)
        assert bounds.makespan <= found.makespan * (1 + 1e-9)
        assert bounds.span <= found.span * (1 + 1e-9)


@pytest.mark.parametrize("name", NAMES)
@FEW
@given(data=st.data())
def test_no_schedule_beats_its_bounds(name, data):
    """Whatever its ops cost: by stage, link, pair, microbatch and device; with recompute or without."""
    schedule = data.draw(schedules(name))
    assert_below(schedule, data.draw(costs(schedule, st.one_of(EIGHTHS, FLOATS))))


@pytest.mark.parametrize(
    ("shape", "span", "makespan"),
    [
        ((4, 8, (1, 1, 1), 0, 4), 27, 27),
        ((4, 8, (1, 1, 1), 0, 7), 24, 27),
        ((4, 8, (10, 11, 8), 1, 4), 283, 283),
        ((4, 8, (10, 11, 8), 1, 8), 245, 265),
        ((4, 8, (1, 1, 1), 0, 1), 72, 72),
        ((4, 8, (1, 1, 1), 0, 4, "v", 2), 59, 59),
        ((4, 8, (1, 1, 1), 0, 6, "v", 2), 53, 53),
        ((4, 8, (1, 1, 1), 0, 8, "v", 2), 48, 51),
    ],
)
def test_bounds_equal_known_optima(shape, span, makespan):
    """Optima that constraint solvers, and searches of the papers' authors, found."""
    assert bound_problem(problem(*shape)) == Bounds(makespan, span)


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_gpipe_and_1f1b_are_as_fast_as_full_backwards_allow(name):
    """With full backwards and equal stages no order of one stage per device beats (M + P - 1)(t_F + t_B)."""
    schedule = generate(name, devices=6, microbatches=12)
    prices = Costs(np.array([[1.0], [2.0], [1.0], [1.0]]) * np.ones(6))
    assert bound_schedule(schedule, prices).makespan == 17 * 3 == simulate(schedule, prices).makespan


def test_what_recompute_holds_is_no_limit_on_forwards():
    """The peak counts from R on, so that it says nothing about F, even where R takes no time."""
    schedule = add_recompute(generate("eager-1f1b", devices=4, microbatches=8))
    time = np.array([[1.0], [3.0], [1.0], [2.0], [0.0]]) * np.ones(4)
    assert_below(schedule, Costs(time))


def test_each_microbatch_may_have_the_shorter_backward():
    """DualPipe-V has full and split backwards; which is shorter depends on the microbatch's factors."""
    schedule = generate("dualpipe-v", devices=2, microbatches=4)
    scale = np.ones((5, 4))
    scale[1], scale[2] = [1, 9, 1, 9], [9, 1, 9, 1]
    assert_below(schedule, Costs(np.ones((5, 4)), scale=scale))


def test_forwards_alone_do_not_come_back():
    """A device's span ends with its own last forward."""
    assert_below(generate("forward-only", devices=4, microbatches=2), Costs(np.ones((5, 4)), 3.0))
