"""A suggested order of microbatches is as fast as it says, and never slower than the one given."""

from dataclasses import replace

import numpy as np
import pytest

from ppsim.analysis import reorder as module
from ppsim.analysis.reorder import PATIENCE, TRIES, reorder
from ppsim.core.costs import costs_for
from ppsim.engine.simple.longest_path import simulate
from ppsim.inputs.profile.scale import parse_scale
from ppsim.schedules import generate


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["1f1b", "gpipe", "zb-1p", "interleaved"])
def test_the_order_found_is_timed_by_simulation(name):
    schedule = generate(name, devices=4, microbatches=8)
    costs = replace(costs_for(schedule), scale=parse_scale(["lognormal:0.5:3"], 8))
    found = reorder(schedule, costs)
    assert sorted(found.order.tolist()) == list(range(8))
    assert found.given_makespan == pytest.approx(simulate(schedule, costs).makespan)
    assert costs.scale is not None
    moved = simulate(schedule, replace(costs, scale=costs.scale[:, found.order]))
    assert found.makespan == pytest.approx(moved.makespan)
    assert found.makespan <= found.given_makespan
    np.testing.assert_array_equal(found.order, reorder(schedule, costs).order)


def test_a_bad_order_is_improved():
    """Alternating long and short microbatches make every device wait in turn: another order is at
    least 5 % faster.
    """
    schedule = generate("1f1b", devices=4, microbatches=8)
    costs = replace(costs_for(schedule), scale=parse_scale(["2,0.5,2,0.5,2,0.5,2,0.5"], 8))
    found = reorder(schedule, costs)
    assert found.makespan < 0.95 * found.given_makespan


def test_sorted_orders_are_tried_first(monkeypatch):
    """As given, rising, falling, and with the longest in the middle or at both ends."""
    scale, rounds = np.array([[5.0, 1, 4, 2, 3]] * 5), list[list[list[float]]]()

    def time(schedule, costs):
        rounds.append([each.scale[0].tolist() for each in costs])
        return np.ones(len(costs))

    monkeypatch.setattr(module, "makespans", time)
    reorder(
        schedule := generate("1f1b", devices=2, microbatches=5),
        replace(costs_for(schedule), scale=scale),
    )
    assert rounds[0] == [
        [5, 1, 4, 2, 3],
        [1, 2, 3, 4, 5],
        [5, 4, 3, 2, 1],
        [1, 3, 5, 4, 2],
        [4, 2, 1, 3, 5],
    ]
    assert all(
        sum(a != b for a, b in zip(order, scale[0], strict=True)) == 2 for order in rounds[1]
    )


def test_equal_microbatches_stay_in_order():
    schedule = generate("1f1b", devices=2, microbatches=4)
    found = reorder(schedule, replace(costs_for(schedule), scale=np.ones((5, 4))))
    assert found.order.tolist() == [0, 1, 2, 3]
    # the sorted orders, and swaps for as long as none helps
    assert found.simulated == 5 + PATIENCE * TRIES


def test_one_microbatch_has_one_order():
    schedule = generate("1f1b", devices=2, microbatches=1)
    found = reorder(schedule, replace(costs_for(schedule), scale=np.full((5, 1), 2.0)))
    assert (found.order.tolist(), found.makespan, found.simulated) == ([0], found.given_makespan, 5)
