"""Queues as generators write them."""

import numpy as np
import pytest

from ppsim.core.builder import B, F, I, Queue, W, stream


def test_a_queue_that_leaves_ops_over_is_a_fault_of_its_generator():
    """The streams and their rests are named; a pattern that wants more than there is says how
    many.
    """
    q = Queue(forward=stream(0, 3), backward=stream(0, 3))
    q.repeat(2, F, B)
    with pytest.raises(ValueError, match=r"streams left over: \{'forward': 1, 'backward': 1\}"):
        q.build()
    with pytest.raises(ValueError, match="stream 'forward' has 1 entries left, 2 are needed"):
        q.repeat(2, F)


def test_a_pattern_of_no_repetitions_adds_nothing():
    """Zero or less: the queue is what it was."""
    queues = []
    for times in (0, -1):
        q = Queue(forward=stream(0, 2), backward=stream(0, 2))
        q.repeat(times, F, I, W)
        q.repeat(2, F)
        q.repeat(times, F)
        q.repeat(2, I, W)
        queues.append(q.build())
    assert np.array_equal(queues[0], queues[1])
    assert len(queues[0]) == 6
