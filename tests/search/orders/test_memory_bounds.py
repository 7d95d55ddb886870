"""What fits a cap at most, by hand."""

import numpy as np

from ppsim.search.bounds.memory_bounds import _Device, _fill, _largest


def test_the_most_that_fits_a_cap_takes_the_last_op_in_part():
    """Three ops of 5 that hold 1 each, then of 4 that hold 2: of a cap of 4 one is left for half of a second one."""
    none = np.zeros(2)
    device = _Device(none, none, none, none, none, none, 4.0, 4, 3, 1.0, np.array([1.0, 2.0]))
    assert _fill(device, np.array([5.0, 4.0])) == 3 * 5 + 4 / 2
    assert _fill(device, np.array([1.0, 4.0])) == 2 * 4


def test_the_largest_are_taken_as_often_as_there_are():
    counts = np.array([0, 2, 3, 4, 9])
    assert _largest(np.array([4.0, 5.0]), 3, counts).tolist() == [0, 10, 15, 19, 15 + 12]
