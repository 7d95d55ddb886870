"""What fits a cap at most, and how long a device that holds so little takes, by hand."""

import math

import numpy as np
import pytest

from ppsim.search.bounds.memory_bounds import _bound, _Device, _fill, _largest


def test_the_most_that_fits_a_cap_takes_the_last_op_in_part():
    """Three ops of 5 that hold 1 each, then of 4 that hold 2: of a cap of 4 one is left for half of
    a second one.
    """
    none = np.zeros(2)
    device = _Device(none, none, none, none, none, none, 4.0, 4, 3, 1.0, np.array([1.0, 2.0]))
    assert _fill(device, np.array([5.0, 4.0])) == 3 * 5 + 4 / 2
    assert _fill(device, np.array([1.0, 4.0])) == 2 * 4


def test_the_largest_are_taken_as_often_as_there_are():
    counts = np.array([0, 2, 3, 4, 9])
    assert _largest(np.array([4.0, 5.0]), 3, counts).tolist() == [0, 10, 15, 19, 15 + 12]


def drawn(seed: int) -> _Device:
    """A device with stages of any times, which holds less than all."""
    rng = np.random.default_rng(seed)
    V, M = int(rng.integers(1, 4)), int(rng.integers(2, 12))
    amounts = np.ones(V) if rng.random() < 0.5 else np.sort(rng.integers(1, 4, V)).astype(float)
    amounts = rng.permutation(amounts / amounts.min())
    cap = float(rng.integers(V, V * M)) + float(rng.choice([0.0, 0.5]))
    forward, gradient, rest, gap = rng.integers(1, 9, (4, V)).astype(float)
    gap *= rng.choice([1, 9])
    begin = np.cumsum(forward + gap)
    turn = begin[-1] + forward[-1] + np.cumsum((gradient + gap)[::-1])[::-1]
    after_i = float(rng.choice([0.0, 0.5, 1.0]))
    frees = gradient + (rest if after_i else 0)
    return _Device(begin, turn, forward, gradient, rest, frees, cap, int(cap), M, after_i, amounts)


def held_at_most(d: _Device, values: list[float], places: int) -> float:
    """The most work that so many places, which fit the cap together, can stand for."""
    ops = sorted(
        ((value, amount) for value, amount in zip(values, d.amounts, strict=True)), reverse=True
    )
    counted = sum(sorted([value for value, _ in ops] * d.microbatches, reverse=True)[:places])
    room, filled = d.cap, 0.0
    for value, amount in sorted(ops * d.microbatches, key=lambda op: -op[0] / op[1]):
        filled += value * min(1.0, room / amount)
        room -= amount * min(1.0, room / amount)
    return min(counted, filled)


def by_words(d: _Device) -> tuple[float, float]:
    """The times of the module's docstring, sum by sum."""
    V, M, K = len(d.begin), d.microbatches, d.places
    stages, N = range(V), V * M
    both = [d.gradient[s] + d.rest[s] for s in stages]
    total = M * sum(d.forward[s] + both[s] for s in stages)
    first = max(0.0, d.turn[V - 1] - d.begin[0] - held_at_most(d, list(d.forward), K))
    way_down = d.turn[0] + d.gradient[0] - d.begin[V - 1]
    wholes, untils = [], []
    # held whole as the last F starts, the others wait for their W
    for A in [K] if d.after_i == 1 else range(V, K + 1):
        waiting = min(N - A, math.floor((d.cap - A) / d.after_i + 1e-9)) if d.after_i else N - A
        late = max(d.rest) * waiting
        left = d.forward[V - 1] + held_at_most(d, both, A) + late
        wholes.append(first + total - left + max(way_down + d.rest[0], left))
        least = min(d.gradient)
        after = held_at_most(d, [each - least for each in both], A) + late
        untils.append(first + total + max(way_down - left, -after))
    trips = [d.turn[s] - d.begin[s] + d.gradient[s] for s in stages]
    most, empty = max(d.amounts), 0.0
    for step in range(1, math.ceil(d.cap / most - 1e-9)):
        empty += (min(d.forward) + min(d.frees)) * (d.cap - most * step)
    held = M * sum(d.amounts[s] * (trips[s] + d.after_i * d.rest[s]) for s in stages)
    last = 0.0
    if d.after_i == 1:  # the n-th F starts a round trip and W after the (n - K)-th
        rounds, over = (N - 1) // K, (N - 1) % K
        cycle = min(trips[s] + d.rest[s] for s in stages)
        last = rounds * cycle + over * min(d.forward)
        if rounds:
            last = max(
                last,
                (rounds - 1) * cycle + (K + over) * min(d.forward) + (1 + over) * min(both) + first,
            )
    whole = max(min(wholes), (held + empty) / d.cap, last + way_down + d.rest[0])
    return whole, max(min(untils), last + way_down)


def test_a_device_that_holds_little_takes_as_long_as_the_words_say():
    for device in map(drawn, range(200)):
        assert _bound(device) == pytest.approx(by_words(device), rel=1e-9), device
