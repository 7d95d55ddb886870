"""Heat maps of sweeps: which cell holds which row, what is best, and how dark it is."""

import numpy as np
import pytest

from ppsim.analysis.heat import heat_map, shades_of
from ppsim.engine.simple.columns import columns_of


def test_shades_go_from_the_least_to_the_most():
    found = shades_of(np.array([[3.0, np.nan], [4.0, 7.0]]))
    np.testing.assert_array_equal(found, [[0.0, np.nan], [0.25, 1.0]])
    assert shades_of(np.array([2.0, 2.0])).tolist() == [0.0, 0.0]


def test_cells_are_those_of_their_rows_and_the_best_of_as_many_devices():
    """Rows by devices, columns by microbatches; a schedule that does not apply has no number and is
    never best.
    """
    columns = columns_of("sweep")[:1]
    key = columns[0].key
    times = {
        ("a", 2, 4): 5.0,
        ("b", 2, 4): 3.0,
        ("a", 2, 8): 6.0,
        ("b", 4, 4): 9.0,
        ("a", 4, 8): 4.0,
        ("b", 4, 8): 4.0,
    }
    rows = [
        {
            "name": name,
            "devices": devices,
            "microbatches": m,
            "applies": True,
            "unit": "ms",
            key: time,
        }
        for (name, devices, m), time in times.items()
    ]
    rows.insert(0, {"name": "c", "devices": 2, "microbatches": 2, "applies": False})
    found = heat_map(columns, rows)
    assert found.rows == (("a", 2), ("b", 2), ("b", 4), ("a", 4))
    assert (found.microbatches, found.unit) == ((4, 8), "ms")
    np.testing.assert_array_equal(found.values[0], [[5, 6], [3, np.nan], [9, 4], [np.nan, 4]])
    assert found.best[0].tolist() == [[False, True], [True, False], [True, True], [False, True]]


@pytest.mark.parametrize("shape", [(1, 1), (2, 3)])
def test_nothing_known_has_no_shade(shape):
    assert np.isnan(shades_of(np.full(shape, np.nan))).all()
