"""The report of memory: what exceeds a cap and when, bars over time, curves of several schedules in
one unit.
"""

import numpy as np
import pytest

from ppsim.core.costs import costs_for
from ppsim.core.curve import Curve
from ppsim.engine.memory.report import (
    ASCII_LEVELS,
    bars,
    columns,
    find_excess,
    memory_object,
    report,
)
from ppsim.engine.memory.usage import BYTES, SHARES, activation_model, curves, share_unit
from ppsim.engine.simple.longest_path import simulate
from ppsim.schedules import generate


def reported(cap=None):
    """1F1B on two devices, two microbatches, F = 1, B = 2: 0F0 0F1 . 0B0 . 0B1; device 1 runs F and
    B in turn.
    """
    schedule = generate("1f1b", devices=2, microbatches=2)
    return report(simulate(schedule, costs_for(schedule)), activation_model(schedule), cap)


@pytest.mark.parametrize(("cap", "over"), [(None, []), (2, []), (1, [0]), (0, [0, 1])])
def test_what_holds_as_much_as_the_cap_fits(cap, over):
    assert [peak.device for peak in reported(cap).exceeding] == over


def test_an_excess_begins_with_the_op_that_takes_too_much():
    found = reported(1)
    excess = find_excess(found, found.exceeding[0])
    assert (excess.device, excess.time, found.label(excess.op), excess.excess) == (0, 1.0, "0F1", 1)
    assert found.fullest.device == 0
    assert found.label(-1) == "the start"
    made = memory_object(found, {}, [])
    assert (made["peak"], made["fits"], made["cap"]) == ([2, 1], False, 1)
    assert (made["peak_time"], made["peak_op"]) == ([1.0, 1.0], ["0F1", "1F0"])
    assert made["over"] == [{"device": 0, "time": 1.0, "op": "0F1", "excess": 1}]
    assert memory_object(reported(2), {}, [])["fits"]


def test_columns_hold_the_most_of_their_time():
    """Device 0 holds one until 1, two until 6 and one until 9; a column that ends where a step
    begins lacks it.
    """
    curve = Curve(
        "x", "", np.array([0, 3, 5]), np.array([0.0, 1, 6, 0, 4]), np.array([1.0, 2, 1, 0, 4])
    )
    assert columns(curve, 0, 9.0, 9).tolist() == [1, 2, 2, 2, 2, 2, 1, 1, 1]
    assert columns(curve, 0, 9.0, 3).tolist() == [2, 2, 1]
    assert columns(curve, 0, 9.0, 1).tolist() == [2]
    assert columns(curve, 1, 8.0, 4).tolist() == [0, 0, 4, 4]
    # a half of the largest peak, and a quarter, of eight levels
    assert bars(curve, 0, 9.0, 3, ASCII_LEVELS) == "==:"
    assert bars(curve, 1, 8.0, 2, ASCII_LEVELS) == " @"
    none = Curve("x", "", np.array([0, 1]), np.array([0.0]), np.array([0.0]))
    assert bars(none, 0, 1.0, 2, ASCII_LEVELS) == "  "


def curve_of(name, **options):
    schedule = generate(name, devices=2, microbatches=4, **options)
    return curves(simulate(schedule, costs_for(schedule)), activation_model(schedule)), schedule


def test_activations_of_stages_of_other_sizes_are_shares_of_the_model():
    """One of two stages of a device is half of its share; schedules with as many stages need no
    other unit.
    """
    plain, chunks = curve_of("1f1b"), curve_of("interleaved")
    same = share_unit([plain[0], plain[0]], [plain[1], plain[1]])
    assert [curve.unit for curve in same] == [plain[0].unit] * 2
    found = share_unit([plain[0], chunks[0]], [plain[1], chunks[1]])
    assert [curve.unit for curve in found] == [SHARES] * 2
    np.testing.assert_array_equal(found[0].value, plain[0].value)
    np.testing.assert_array_equal(found[1].value, chunks[0].value / 2)


def test_bytes_are_in_the_unit_of_the_largest_peak():
    one = Curve("x", BYTES, np.array([0, 1]), np.array([0.0]), np.array([2.0**20]))
    other = Curve(
        "x", BYTES, np.array([0, 1, 2]), np.array([0.0, 0.0]), np.array([3.0 * 2**30, 2.0**20])
    )
    schedule = generate("1f1b", devices=1, microbatches=1)
    found = share_unit([one, other], [schedule, schedule])
    assert [(curve.unit, curve.value.tolist()) for curve in found] == [
        ("GiB", [2**-10]),
        ("GiB", [3.0, 2**-10]),
    ]
