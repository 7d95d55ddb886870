"""Splits for pipelines that serve, against all splits one by one."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.search.splits.serving import split_for

NUMBERS = st.integers(1, 9).map(float)


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Layers and ends of random times and sizes; tokens and times of each range on each stage."""
    P, N = draw(st.integers(1, 4)), draw(st.integers(1, 7))
    times, sizes = (np.array(draw(st.lists(NUMBERS, min_size=N, max_size=N))) for _ in range(2))
    room = np.array(draw(st.lists(st.integers(5, 30), min_size=P, max_size=P)), np.float64)
    head = draw(NUMBERS)
    count = np.arange(N + 1)
    backwards = count[None, :] < count[:, None]
    of_times, of_sizes = (
        np.subtract.outer(s, s).T for s in (np.append(0, part.cumsum()) for part in (times, sizes))
    )
    tokens = room[:, None, None] - of_sizes[None]
    took = np.repeat(of_times[None], P, axis=0)
    took[-1] += head
    return np.where(backwards | (tokens < 0), -np.inf, tokens), np.where(backwards, np.inf, took)


@given(problems(), st.sampled_from(["tokens", "period"]))
def test_no_split_is_better(case, by):
    tokens, times = case
    P, N = tokens.shape[0], tokens.shape[1] - 1
    values = {}
    for inner in combinations(range(N + P - 1), P - 1):
        ends = [0, *(at - k for k, at in enumerate(inner)), N]
        ranges = list(enumerate(pairwise(ends)))
        fit = min(tokens[stage, a, b] for stage, (a, b) in ranges)
        longest = max(times[stage, a, b] for stage, (a, b) in ranges)
        if fit > -np.inf:
            layers = tuple(b - a for _, (a, b) in ranges)
            values[layers] = (-fit, longest) if by == "tokens" else (longest, -fit)
    found = split_for(tokens, times, by)
    if not values:
        assert found is None
    else:
        assert found is not None
        assert values[found] == pytest.approx(min(values.values()))
