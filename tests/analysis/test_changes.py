"""Changed costs keep what they do not change, and the work that they move is neither lost nor
made.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.analysis.changes import adapt_costs, change_time, level_stages, move_work
from ppsim.core.costs import Costs
from ppsim.core.ops import Kind
from ppsim.errors import InputError
from ppsim.schedules import generate
from tests.cases import EIGHTHS, costs

SCHEDULE = generate("dualpipe-v", devices=4, microbatches=8)


@given(costs(SCHEDULE, EIGHTHS), st.integers(0, 7), st.integers(0, 7), st.integers(0, 8))
def test_work_moves_from_stage_to_stage(times, source, target, eighths):
    """Of every kind, what one stage loses the other has more; all else stays."""
    moved = move_work(times, source, target, eighths / 8)
    for before, after in ((times.time, moved.time), (times.pair, moved.pair)):
        if before is None or after is None:
            assert before is after
            continue
        part = before[..., source] * eighths / 8
        expected = before.copy()
        expected[..., source] -= part
        expected[..., target] += part
        np.testing.assert_allclose(after, expected)
    assert (moved.scale is times.scale, moved.speed is times.speed) == (True, True)


@given(costs(SCHEDULE, EIGHTHS))
def test_levelled_stages_do_the_same_work(times):
    level = level_stages(times)
    np.testing.assert_allclose(level.time.sum(axis=1), times.time.sum(axis=1))
    assert (np.ptp(level.time, axis=1) == 0).all()
    assert (level.scale is times.scale, level.speed is times.speed) == (True, True)


def test_measured_costs_are_taken_to_another_schedule():
    """Kinds that were not measured follow from B, or B from them; unknown links take the median of
    known ones.
    """
    time = np.array([[1.0, 1.0], [3.0, 3.0], [0.0, 0.0], [0.0, 0.0]])
    measured = Costs(time, np.array([[0.0, 0.5], [0.0, 0.0]]))
    split = adapt_costs(measured, generate("zb-1p", devices=2, microbatches=4))
    assert split.time[[Kind.I, Kind.W]].tolist() == [[1.5, 1.5], [1.5, 1.5]]
    assert np.asarray(split.comm).tolist() == [[0.0, 0.5], [0.5, 0.0]]
    halves = Costs(np.array([[1.0, 1.0], [0.0, 0.0], [2.0, 2.0], [1.0, 1.0]]))
    assert adapt_costs(halves, generate("1f1b", devices=2, microbatches=4)).time[
        Kind.B
    ].tolist() == [3.0, 3.0]
    with pytest.raises(InputError, match="measured for 2 stages, and interleaved has 4"):
        adapt_costs(measured, generate("interleaved", devices=2, microbatches=4))


def test_messages_that_take_no_time_take_none_elsewhere():
    """A median needs links that took some; on its own a device sends itself nothing."""
    measured = Costs(np.ones((4, 2)), np.zeros((2, 2)))
    assert (
        np.asarray(adapt_costs(measured, generate("1f1b", devices=2, microbatches=2)).comm).tolist()
        == [[0, 0]] * 2
    )
    some = Costs(np.ones((4, 3)), np.array([[0.0, 4.0, 0.0], [1.0, 0.0, 2.0], [0.0, 0.0, 0.0]]))
    known = np.asarray(adapt_costs(some, generate("1f1b", devices=3, microbatches=2)).comm)
    assert known.tolist() == [[0, 4, 2], [1, 0, 2], [2, 2, 0]]


@pytest.mark.parametrize(
    ("kind", "value", "rows", "pair"),
    [
        (Kind.B, 9, [[2, 2], [6, 9], [2, 3], [4, 6], [2, 2]], 11),  # 8 x (2 + 9) / (2 + 6)
        (Kind.I, 5, [[2, 2], [6, 9], [2, 5], [4, 4], [2, 2]], 11),
        (Kind.W, 1, [[2, 2], [6, 3], [2, 2], [4, 1], [2, 2]], 5),
        (Kind.F, 4, [[2, 4], [6, 6], [2, 2], [4, 4], [2, 4]], 10),
        (Kind.R, 1, [[2, 2], [6, 6], [2, 2], [4, 4], [2, 1]], 8),
    ],
)
def test_what_followed_from_a_time_follows_its_change(kind, value, rows, pair):
    """B stays I + W, which keep their shares of it; R stays F; a pair grows as F and B together
    do.
    """
    time = np.repeat([[2.0], [6], [2], [4], [2]], 2, axis=1)
    found = change_time(Costs(time, pair=np.array([8.0, 8.0])), kind, [1], value)
    assert found.time.tolist() == rows
    assert found.pair is not None
    assert found.pair.tolist() == [8, pair]


def test_what_did_not_follow_from_a_time_stays():
    time = np.array([[2.0], [7], [2], [4], [3]])
    assert change_time(Costs(time), Kind.B, [0], 9).time.ravel().tolist() == [2, 9, 2, 4, 3]
    assert change_time(Costs(time), Kind.F, [0], 9).time.ravel().tolist() == [9, 7, 2, 4, 3]
    nothing = np.array([[0.0], [0], [0], [0], [0]])
    found = change_time(Costs(nothing, pair=np.array([3.0])), Kind.B, [0], 4)
    assert found.time.ravel().tolist() == [0, 4, 2, 2, 0]
    assert found.pair is not None
    assert found.pair.tolist() == [3]
