"""Chunks of a prompt: equal times, whole pages, never slower than one size, and a bound that none
beats.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.core.costs import costs_for
from ppsim.core.law import Law
from ppsim.core.schedule import Schedule
from ppsim.engine.simple.longest_path import simulate
from ppsim.schedules import generate
from ppsim.search.splits.chunks import Pipeline, cut_fixed, find_chunking

laws = st.builds(
    Law,
    st.floats(0, 50),
    st.floats(0, 0.01),
    st.floats(0.001, 0.1),
    st.floats(0, 1e-5),
)
pipelines = st.builds(
    lambda stages, latency: Pipeline(tuple(stages), latency),
    st.lists(st.floats(0.2, 3), min_size=1, max_size=5),
    st.floats(0, 5),
)


def timed(law: Law, sizes: tuple[int, ...], pipeline: Pipeline) -> float:
    """What the engine says of these chunks."""
    schedule: Schedule = generate(
        "forward-only", devices=len(pipeline.stages), microbatches=len(sizes)
    )
    costs = costs_for(schedule, tf=list(pipeline.stages), comm=pipeline.latency, per="stage")
    each = np.outer(pipeline.stages, law.times(sizes)).ravel()
    object.__setattr__(costs, "op_times", each)
    return simulate(schedule, costs).makespan


@given(laws, pipelines, st.integers(1, 5000), st.sampled_from([1, 16, 64]))
def test_equal_chunks_are_never_slower_than_the_best_of_one_size(law, pipeline, length, page):
    """Whole pages that make up the prompt, in the time that the engine says, at or above the
    bound.
    """
    found = find_chunking(length, page, law, pipeline)
    assert found.bound <= found.equal_times.time * (1 + 1e-9)
    assert found.equal_times.time <= found.fixed.time
    for cut in (found.equal_times, found.fixed):
        assert sum(cut.sizes) == length
        assert all(size % page == 0 for size in cut.sizes[:-1])
        assert cut.time == pytest.approx(timed(law, cut.sizes, pipeline))


@given(laws, pipelines, st.integers(1, 600), st.randoms(use_true_random=False))
def test_no_sizes_beat_the_bound(law, pipeline, length, random):
    """Random cuts at pages of 16 tokens."""
    pages = [*range(16, length, 16)]
    places = sorted(random.sample(pages, random.randint(0, len(pages))))
    sizes = tuple(np.diff([0, *places, length]).tolist())
    assert find_chunking(length, 16, law, pipeline).bound <= pipeline.time(law.times(sizes)) * (
        1 + 1e-9
    )


def test_every_size_is_tried():
    """On small prompts the best of one size is the best of all sizes, page by page."""
    law, pipeline = Law(3, 0.001, 0.05, 1e-4), Pipeline((1.0,) * 4, 0.5)
    found = find_chunking(1000, 10, law, pipeline)
    best = min(pipeline.time(law.times(cut_fixed(1000, size))) for size in range(10, 1001, 10))
    assert found.fixed.time == best
    assert found.equal_times.time < best


def test_equal_times_are_equal():
    """But for rounding to pages, and the last chunk, which is smaller."""
    law = Law(20, 4e-4, 0.05, 5e-7)
    found = find_chunking(131072, 64, law, Pipeline((1.0,) * 4))
    times = law.times(found.equal_times.sizes)
    assert len(found.equal_times.sizes) == 29
    assert np.ptp(times[:-1]) < 64 * (0.05 + 2 * 5e-7 * 131072)
    assert times[-1] <= times[:-1].max()
    assert found.equal_times.time < 0.971 * found.fixed.time
