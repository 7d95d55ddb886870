"""A search's problem knows what fits it; a solution's numbers are the simulator's."""

import numpy as np
import pytest

from ppsim.core.costs import Costs
from ppsim.core.schedule import place
from ppsim.engine.memory.usage import curves, layer_model
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError
from ppsim.schedules import generate
from ppsim.search.problem import Problem, evaluate, fits, held_at_most, measure_held
from tests.search.orders.prices import costs


def test_a_schedule_fits_where_its_activations_do():
    """ZB-1P and 1F1B hold P activations: they fit a cap of P and not of P - 1."""
    for schedule in (generate(name, stages=4, microbatches=8) for name in ("zb-1p", "1f1b")):
        caps = (3, 4, None, (4, 4, 4, 4))
        fitting = [fits(Problem(place("linear", 4, 4), 8, costs(4), cap), schedule) for cap in caps]
        assert fitting == [False, True, True, True]
        assert not fits(Problem(place("linear", 4, 4), 9, costs(4)), schedule)
    assert not fits(
        Problem(place("linear", 4, 4), 8, costs(4)),
        generate("forward-only", stages=4, microbatches=8),
    )


def test_shares_of_activations_are_counted():
    """Device 0 of ZB-1P runs W at once; device 3 holds three W back, each for the share after I."""
    schedule = generate("zb-1p", stages=4, microbatches=8)
    assert held_at_most(schedule).tolist() == [4, 4, 4, 4]
    assert held_at_most(schedule, 0.5).tolist() == [4, 3.5, 3, 2.5]


def test_a_solution_has_the_simulators_numbers():
    problem = Problem(place("linear", 4, 4), 8, costs(4), cap=4)
    solution = evaluate(problem, generate("zb-1p", stages=4, microbatches=8), "zb-1p")
    assert (solution.makespan, solution.span, solution.origin) == (27, 27, "zb-1p")
    assert solution.score("span") == (27, 27)


def test_latencies_follow_the_placement():
    """On a V of two devices, stages 1 and 2 share a device."""
    comm = np.array([[0.0, 2.0], [3.0, 0.0]])
    problem = Problem(place("v", 2, 4), 1, costs(4, comm=comm))
    assert problem.latency.tolist() == [[0, 3], [2, 0], [0, 2], [3, 0]]


def test_the_least_cap_is_one_activation_of_each_stage():
    problem = Problem(place("v", 2, 4), 3, costs(4), cap=1.5)
    assert (problem.least_caps.tolist(), problem.is_feasible) == ([2, 2], False)


@pytest.mark.parametrize(("pair", "saves"), [(2.5, True), (3.0, False), (3.5, False)])
def test_a_pair_saves_time_against_the_shorter_backward(pair, saves):
    """F and B take 1 and 2 alone, I and W 2 each."""
    times = Costs(np.outer([1.0, 2.0, 2.0, 2.0], np.ones(2)), pair=np.full(2, pair))
    assert Problem(place("linear", 2, 2), 2, times).pairs == saves


@pytest.mark.parametrize("unit", [1.0, 2.0**60])
def test_what_a_pair_saves_is_a_share_of_it_in_any_unit_of_time(unit):
    """Of a pair of 3 a rounding of 2^-40 is nothing, and 2^-20 is something."""
    for saved, counts in ((2.0**-40, False), (2.0**-20, True)):
        times = Costs(
            unit * np.outer([1.0, 2.0, 1.0, 1.0], np.ones(2)), pair=unit * np.full(2, 3 - saved)
        )
        assert Problem(place("linear", 2, 2), 2, times).pairs == counts


def test_what_a_pair_saves_by_rounding_is_nothing():
    """0.1 - 0.3 / 2 + 0.2 - 0.3 / 2 is not quite zero; a stage on the other device takes no
    time.
    """
    times = Costs(np.outer([0.1, 0.2, 0.1, 0.1], [1.0, 0.0]), pair=np.array([0.3, 0.0]))
    assert 0.1 - 0.3 / 2 + (0.2 - 0.3 / 2) > 0
    assert not Problem(place("linear", 2, 2), 2, times).pairs


def test_layers_are_held_as_memory_counts_them():
    """Uneven stages on a V: each device's peak is that of the memory over time of the same
    layout.
    """
    layers = (1, 3, 0, 2)
    schedule = generate("zb-v", devices=2, microbatches=5)
    problem = Problem(place("v", 2, 4), 5, costs(4), cap=7, layers=layers)
    curve = curves(
        simulate(schedule, problem.costs), layer_model(schedule, ["t" * many for many in layers])
    )
    peaks = curve.peak.tolist()
    assert measure_held(problem, schedule).tolist() == peaks
    assert problem.least_caps.tolist() == [3, 3]
    assert fits(problem, schedule) == (max(peaks) <= 7)


@pytest.mark.parametrize(
    "arguments",
    [
        {"placement": place("bidirectional", 4, 4)},
        {"microbatches": 0},
        {"after_i": 1.5},
        {"costs": costs(3)},
        {"cap": (4, 4)},
        {"layers": (1, 2, 3)},
        {"layers": (1, 2, 3, -1)},
    ],
)
def test_a_problem_that_cannot_be_meant_is_refused(arguments):
    whole = {"placement": place("linear", 4, 4), "microbatches": 8, "costs": costs(4)}
    with pytest.raises(InputError):
        Problem(**whole | arguments)
