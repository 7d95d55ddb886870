"""Stages cost what their layers take."""

import numpy as np
import pytest

from ppsim.errors import InputError
from ppsim.workload.layout.costs import LayerTimes, layout_costs, stage_forwards
from ppsim.workload.layout.layout import read_layout


def test_each_letter_adds_its_time():
    """By hand: E 0.5, layers 2, MTP 3, every L 4."""
    layout = read_layout("Et|tt||tm|LL", 5)
    assert stage_forwards(layout, LayerTimes(2.0, 0.5, 4.0, 3.0)).tolist() == [
        2.5,
        4.0,
        0.0,
        5.0,
        8.0,
    ]
    assert stage_forwards(layout, LayerTimes(2.0)).tolist() == [2.0, 4.0, 0.0, 4.0, 0.0]


def test_layers_may_have_times_of_their_own():
    layout = read_layout("Et|tt||tm|LL", 5)
    times = LayerTimes([1.0, 2.0, 4.0, 9.0], head=0.5)
    assert stage_forwards(layout, times).tolist() == [1.0, 6.0, 0.0, 9.0 + 4.0, 1.0]
    with pytest.raises(InputError, match="3 times for 4 layers"):
        stage_forwards(layout, LayerTimes([1.0, 2.0, 4.0]))


def test_backwards_are_in_proportion_and_halved():
    costs = layout_costs(read_layout("Et|ttL", 2), LayerTimes(2.0, b_over_f=3.0), comm=0.5)
    assert costs.time.tolist() == [[2.0, 4.0], [6.0, 12.0], [3.0, 6.0], [3.0, 6.0], [2.0, 4.0]]
    assert (costs.comm, costs.unit) == (0.5, "t_layer")


@pytest.mark.parametrize("name", ["layer", "embedding", "head", "mtp", "b_over_f"])
@pytest.mark.parametrize("value", [-1.0, np.inf, np.nan, 1e200])
def test_a_time_that_is_none_is_refused(name, value):
    with pytest.raises(InputError, match="must be zero or more"):
        LayerTimes(**{name: value})
