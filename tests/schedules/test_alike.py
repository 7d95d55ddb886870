"""Schedules of the size of another one, by name: which are made, and which take too long."""

import pytest

from ppsim.schedules import generate, list_alike


@pytest.mark.parametrize(
    ("name", "devices", "microbatches", "left_out"),
    [
        ("1f1b", 4, 8, set()),
        ("1f1b", 8, 320, {"zb-2p", "zb-auto"}),
        ("interleaved", 4, 500, {"other group sizes"}),
    ],
)
def test_what_takes_long_is_not_made(name, devices, microbatches, left_out):
    """Searches for the best order of a large schedule, and further group sizes; all else is."""
    schedule = generate(name, devices=devices, microbatches=microbatches)
    found = list_alike(schedule)
    assert {other for other, made in found.items() if made is None} == left_out
    own = found[name]
    assert own is not None
    assert own.packed().tolist() == schedule.packed().tolist()
    queues = [(made.offsets.tobytes(), made.packed().tobytes()) for made in found.values() if made]
    assert len(queues) == len({*queues}) > 5
