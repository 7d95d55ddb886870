"""The maximum cycle mean, against every cycle of small random graphs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.analysis.cycles import Edges, find_rates


def edges_of(rows: list[tuple[int, int, float, int]]) -> Edges:
    source, target, time, rounds = zip(*rows, strict=True)
    return Edges(np.array(source), np.array(target), np.array(time, float), np.array(rounds))


def all_means(events: int, rows: list[tuple[int, int, float, int]]) -> dict[frozenset[int], float]:
    """The largest mean of the simple cycles through each set of events."""
    found: dict[frozenset[int], float] = {}

    def walk(start: int, at: int, seen: tuple[int, ...], time: float, rounds: int) -> None:
        for source, target, took, spans in rows:
            if source != at or target < start:
                continue
            if target == start:
                key, mean = frozenset(seen), (time + took) / (rounds + spans)
                found[key] = max(mean, found.get(key, 0.0))
            elif target not in seen:
                walk(start, target, (*seen, target), time + took, rounds + spans)

    for start in range(events):
        walk(start, start, (start,), 0.0, 0)
    return found


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, float, int]]]:
    """Edges within a round lead to later events alone; every event waits for one at least."""
    events = draw(st.integers(1, 6))
    time = st.integers(0, 9).map(float)
    rows = [
        (draw(st.integers(0, events - 1)), v, draw(time), draw(st.integers(1, 2)))
        for v in range(events)
    ]
    for _ in range(draw(st.integers(0, 8))):
        u, v = draw(st.integers(0, events - 1)), draw(st.integers(0, events - 1))
        rows.append((u, v, draw(time), draw(st.integers(0 if u < v else 1, 2))))
    return events, rows


@given(graphs())
def test_the_period_is_the_largest_mean_of_all_cycles(graph):
    """The largest of every simple cycle, and the cycle returned has it."""
    events, rows = graph
    found = find_rates(events, edges_of(rows))
    assert found.period == pytest.approx(max(all_means(events, rows).values()), abs=1e-9)
    own = [rows[edge] for edge in found.cycle]
    assert all(before[1] == after[0] for before, after in zip(own, own[1:] + own[:1], strict=True))
    assert sum(row[2] for row in own) / sum(row[3] for row in own) == pytest.approx(
        found.period, abs=1e-9
    )


@given(graphs())
def test_an_event_is_as_slow_as_the_slowest_cycle_that_leads_to_it(graph):
    """Its rate is the limit of its starts, round after round."""
    events, rows = graph
    found = find_rates(events, edges_of(rows))
    rounds = 400
    start = np.zeros((rounds, events))
    for n in range(rounds):
        for v in range(events):  # within a round edges lead to later events
            came = [start[n - h, u] + time for u, target, time, h in rows if target == v and n >= h]
            start[n, v] = max(came, default=0.0)
    assert (start[-1] - start[-61]) / 60 == pytest.approx(found.rate, abs=1e-9)


def test_a_graph_that_cannot_go_round_is_refused():
    """An event that waits for nothing would happen at once for ever; one that waits for itself
    never.
    """
    with pytest.raises(ValueError, match="waits for none"):
        find_rates(2, edges_of([(0, 0, 1.0, 1)]))
    with pytest.raises(ValueError, match="within one round"):
        find_rates(1, edges_of([(0, 0, 1.0, 0)]))
