"""A faster order of unequal microbatches, found by simulating swaps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.core.costs import Costs
from ppsim.core.schedule import Schedule
from ppsim.engine.simple.batch import makespans
from ppsim.errors import InputError

# Swaps tried in a round, rounds without a gain after which the search ends, and most rounds.
TRIES, PATIENCE, MOST_ROUNDS = 64, 4, 60


@dataclass(frozen=True)
class MicrobatchOrder:
    """The best order found."""

    # shape (microbatches,): the given microbatch at each place, with all its slices
    order: NDArray[np.int64]
    given_makespan: float  # makespan in the given order
    makespan: float  # makespan in this order
    simulated: int  # number of simulated orders

    def to_json(self) -> dict[str, Any]:
        """Return ``reordered`` of ``ppsim run --reorder --json``."""
        return {"order": self.order.tolist(), "makespan": self.makespan, "tried": self.simulated}


def reorder(schedule: Schedule, costs: Costs, seed: int = 0) -> MicrobatchOrder:
    """Return the best order of microbatches found: from sorted orders, then by swaps.

    ``costs`` have factors of microbatches (``scale``). The same ``seed`` finds the same order.
    """
    assert costs.scale is not None
    if schedule.n_rounds > 1:
        raise InputError(
            f"{schedule.name} goes round, and --reorder orders the microbatches of one step",
            "--steps 1",
        )
    scale, slices = costs.scale, np.arange(schedule.n_slices)
    rng = np.random.default_rng(seed)
    m = schedule.whole_microbatches
    size = scale.sum(axis=0).reshape(m, -1).sum(axis=1)
    rising = np.argsort(size, kind="stable")
    folded = np.concatenate([rising[::2], rising[1::2][::-1]])
    starts = [np.arange(m), rising, rising[::-1], folded, np.roll(folded, m // 2)]
    best, tried, idle = starts[0], 0, 0

    def time(orders: list[NDArray[np.int64]]) -> NDArray[np.float64]:
        moved = [(order[:, None] * len(slices) + slices).ravel() for order in orders]
        return makespans(schedule, [replace(costs, scale=scale[:, order]) for order in moved])

    times = time(starts)
    before, tried = float(times[0]), len(starts)
    best, shortest = starts[int(np.argmin(times))], float(times.min())
    for _ in range(MOST_ROUNDS if m > 1 else 0):
        orders = [_swap(best, *rng.choice(m, 2, replace=False)) for _ in range(TRIES)]
        times = time(orders)
        tried += len(orders)
        if float(times.min()) < shortest * (1 - 1e-12):
            best, shortest, idle = orders[int(np.argmin(times))], float(times.min()), 0
        else:
            idle += 1
            if idle == PATIENCE:
                break
    return MicrobatchOrder(best, before, shortest, tried)


def _swap(order: NDArray[np.int64], a: int, b: int) -> NDArray[np.int64]:
    swapped = order.copy()
    swapped[[a, b]] = swapped[[b, a]]
    return swapped
