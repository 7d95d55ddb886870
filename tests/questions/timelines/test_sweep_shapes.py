"""The shapes of a sweep are listed as far as they are timed."""

import tracemalloc

from tests.commands import refused


def test_a_sweep_of_too_many_shapes_is_refused_before_they_are_listed():
    """Of 200 million shapes, as many are made as a sweep takes, and one."""
    grid = ("--devices", "1:10000", "--mb", "1:10000")
    tracemalloc.start()
    try:
        error = refused("sweep", "1f1b", "gpipe", *grid)
        largest = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(error) == "a sweep times at most 10,000 shapes, and these are more"
    assert largest < 64 << 20
