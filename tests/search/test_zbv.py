"""ZB-V's greedy order runs whatever stages and messages cost, and follows what they cost."""

from functools import partial

import numpy as np
import pytest

from ppsim.core.costs import costs_for
from ppsim.core.schedule import place
from ppsim.schedules import generate
from ppsim.search import zbv
from ppsim.search.heuristics import write_v
from ppsim.search.orders import write_schedule
from ppsim.search.problem import Problem, fits
from ppsim.simulation.longest_path import simulate
from ppsim.simulation.metrics import measure, peak_activations
from tests.search.prices import costs as prices


@pytest.mark.parametrize("seed", range(40))
def test_any_costs_lead_to_an_order_that_runs_within_the_limit(seed):
    """Uneven stages and long messages, with which the greedy passes contradict themselves, give an order as well."""
    draw = np.random.default_rng(seed)
    P, M = int(draw.integers(1, 7)), int(draw.integers(1, 16))
    tf, ti, tw = draw.uniform(0, 5, (3, 2 * P))
    costs = partial(costs_for, tf=tf, ti=ti, tw=tw, comm=float(draw.choice([0, 0.1, 5, 50])))
    schedule = generate("zb-v", devices=P, microbatches=M, costs=costs)
    simulate(schedule, costs(schedule))
    assert peak_activations(schedule).max() <= min(2 * M, 2 * P)


@pytest.mark.parametrize("name", ["zb-v", "v-auto"])
def test_a_limit_of_all_activations_is_no_limit(name):
    """Fewer microbatches than devices may all be held, whatever the limit says."""
    schedule = generate(name, devices=4, microbatches=3, limit=6)
    assert peak_activations(schedule).max() <= 6
    assert simulate(schedule, costs_for(schedule)).makespan == 11.5


def test_the_order_follows_the_costs():
    """With the costs known the span is shorter than with the order for equal times."""
    costs = partial(costs_for, tf=3, ti=4, tw=2, comm=0.5)
    known = generate("zb-v", devices=4, microbatches=12, costs=costs)
    equal = generate("zb-v", devices=4, microbatches=12)
    spans = [measure(simulate(schedule, costs(schedule))).span for schedule in (known, equal)]
    assert spans[0] < spans[1]


@pytest.mark.slow
def test_machine_code_orders_as_python_does(monkeypatch):
    """The compiled pass and the plain one give the same queues."""
    schedule = generate("zb-v", devices=3, microbatches=7)
    costs = costs_for(schedule, tf=3, ti=4, tw=2, comm=1)
    plain = zbv.order_zb_v(costs, 3, 7, 6)
    monkeypatch.setattr(zbv, "COMPILE_ORDERING_ABOVE", 0)
    coded = zbv.order_zb_v(costs, 3, 7, 6)
    assert all(map(np.array_equal, plain, coded))


def test_the_heuristic_keeps_each_devices_own_cap_with_shares_counted():
    """Two devices may hold more than the others, and half of an activation is held between I and W."""
    caps = [8.0, 10.0, 8.0, 9.5]
    problem = Problem(place("v", 4, 8), 10, prices(8, 10, 11, 8, comm=1), caps, after_i=0.5)
    queues = [queues for _, queues in write_v(problem)]
    assert queues
    assert all(fits(problem, write_schedule(problem, each)) for each in queues)
