"""The maximum cycle mean of an event graph, exactly, by Howard's policy iteration.

Every event waits for one or more others, of the same round or of an earlier one. If rounds repeat
forever, event ``v`` happens every ``rate[v]`` units of time. That is the largest mean of all cycles
that lead to ``v``: the time of a cycle over the number of rounds that it spans (Cochet-Terrasson,
Cohen, Gaubert, McGettrick and Quadrat, 1998). The iteration ends with potentials under which no
edge is too long, which proves that no cycle has a larger mean than the returned one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Floats = NDArray[np.float64]
ROUNDING = 1e-12  # difference of sums of the same times, over the longest path
MOST_ITERATIONS = 10_000


@dataclass(frozen=True)
class Edges:
    """Edges of the event graph; columns of equal length."""

    source: Indices  # the awaited event
    target: Indices  # the event that waits
    time: Floats  # from the start of the source to the earliest start of the target
    rounds: Indices  # number of rounds from the source to the target


@dataclass(frozen=True)
class Rates:
    """The period of each event, and the cycle that decides the largest."""

    rate: Floats  # shape (events,), time from one round to the next
    period: float  # the largest rate: the time of the cycle over the rounds that it spans
    cycle: Indices  # the edges of that cycle; the target of each is the source of the next


class _Policy(NamedTuple):
    """The graph in which each event waits for one other only; columns of shape (events,)."""

    rate: Floats  # mean of the cycle that each event's chain leads back to
    value: Floats  # time of the chain to the cycle's root, minus rounds times the mean
    on_cycle: NDArray[np.bool_]  # whether the event is on its cycle
    root: Indices  # a fixed event of that cycle


def find_rates(events: int, edges: Edges, likely: NDArray[np.bool_] | None = None) -> Rates:
    """Return the period of each event.

    ``likely``, shape (edges,), marks edges that decide their target in some long run; a good start
    takes fewer iterations.

    Raises:
        ValueError: an event waits for none, or for itself within one round.
    """
    order = np.argsort(edges.target, kind="stable")
    source, target, rounds = edges.source[order], edges.target[order], edges.rounds[order]
    time = edges.time[order]
    first = np.searchsorted(target, np.arange(events))
    if len(target) == 0 or len(np.unique(target)) != events:
        raise ValueError("an event waits for none")
    chosen = first.copy()
    if likely is not None:
        marked = np.flatnonzero(likely[order])[::-1]
        chosen[target[marked]] = marked
    for _ in range(MOST_ITERATIONS):
        found = _evaluate(source[chosen], time[chosen], rounds[chosen])
        better = _improve(found, chosen, source, target, time, rounds, first)
        if better is None:
            cycle = order[_slowest_cycle(found, chosen, source)]
            spent = math.fsum(edges.time[cycle].tolist())
            return Rates(found.rate, spent / int(edges.rounds[cycle].sum()), cycle)
        chosen = better
    raise RuntimeError("policy iteration has no end")


def _evaluate(parent: Indices, time: Floats, rounds: Indices) -> _Policy:
    """Return the policy of each event's parent, following chains to their cycles by doubling."""
    events = len(parent)
    doublings = max(1, int(events).bit_length())
    far, least = parent.copy(), np.arange(events)
    for _ in range(doublings):
        least = np.minimum(least, least[far])
        far = far[far]
    on_cycle = np.zeros(events, np.bool_)
    on_cycle[far] = True
    root = least[far]  # the least event of the cycle, the same for all events that lead to it
    cycle = np.flatnonzero(on_cycle)
    spent = np.bincount(root[cycle], time[cycle], events)
    spanned = np.bincount(root[cycle], rounds[cycle], events)
    if (spanned[root] <= 0).any():
        raise ValueError("an event waits for itself within one round")
    rate = (spent / np.where(spanned > 0, spanned, 1))[root]
    value = time - rate * rounds
    jump = parent.copy()
    roots = np.unique(root)
    value[roots], jump[roots] = 0.0, roots
    for _ in range(doublings):
        value = value + value[jump]
        jump = jump[jump]
    return _Policy(rate, value, on_cycle, root)


def _improve(
    found: _Policy,
    chosen: Indices,
    source: Indices,
    target: Indices,
    time: Floats,
    rounds: Indices,
    first: Indices,
) -> Indices | None:
    """Return for each event the edge that makes it latest; None if no edge makes one later."""
    scale = ROUNDING * (np.abs(found.value).max() + time.max())
    slack = scale + ROUNDING * found.rate.max()
    slower = np.maximum.reduceat(found.rate[source], first)
    gains = slower > found.rate + slack
    wanted = np.where(gains, slower, found.rate)
    same = found.rate[source] >= wanted[target] - slack
    later = np.where(same, found.value[source] + time - found.rate[target] * rounds, -np.inf)
    if gains.any():  # the rate first
        later = np.where(gains[target], np.where(same, time, -np.inf), -np.inf)
        takes = gains
    else:
        takes = np.maximum.reduceat(later, first) > found.value + 4 * scale
    if not takes.any():
        return None
    best = np.maximum.reduceat(later, first)
    at = np.flatnonzero((later == best[target]) & takes[target])
    better = chosen.copy()
    better[target[at[::-1]]] = at[::-1]  # the first of equal ones
    return better


def _slowest_cycle(found: _Policy, chosen: Indices, source: Indices) -> Indices:
    """Return the edges of the cycle with the largest mean, in order."""
    event = int(found.root[int(np.argmax(found.rate))])
    cycle = [int(chosen[event])]
    while int(source[cycle[-1]]) != event:
        cycle.append(int(chosen[int(source[cycle[-1]])]))
    return np.array(cycle[::-1], np.int64)
