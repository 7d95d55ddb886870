"""Simulated annealing of schedules, in rounds on all cores."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ppsim.base.compiled import call, load, view
from ppsim.search.orders import anneal_kernel
from ppsim.search.orders.anneal_kernel import Walk
from ppsim.search.problem import Problem
from ppsim.search.rules.heuristics import pays_to_compile
from ppsim.search.rules.order_kernel import MODULUS, Orders
from ppsim.search.rules.orders import KINDS, Queues, make_orders

if TYPE_CHECKING:
    from ppsim.base.workers import Map

# Op timings of a walk, about 5 ns each, so that a round takes about half a second.
TIMINGS_OF_A_WALK = 80_000_000
# Temperatures at the start of walks, in mean op durations: high ones change a schedule a lot, low
# ones polish it. With many ops, a walk has too few moves per op for high ones.
HOT, MANY_OPS, HOT_OF_MANY = (1.0, 0.3, 0.1), 2000, (0.02, 0.1, 0.005)
COLD = 0.05  # temperature at the end of a walk over that at its start
LONGEST = 16  # places by which a move shifts an op at most
POOL = 6  # schedules that walks start from
IMPROVED = ", improved"
# weights in the cost: of the devices' mean span, and of the time that is not the objective
MEAN, OTHER = 0.3, 0.001


@dataclass
class Member:
    """Queues that walks start from, and their cost."""

    queues: Queues
    origin: str
    cost: float


Task = tuple[Problem, Member, int, int]


def improve(
    problem: Problem,
    starts: list[Member],
    seed: int,
    workers: int,
    deadline: float,
    run: Map | None = None,
) -> Iterator[Member | None]:
    """Improve schedules in rounds; yield the best of a round if it beats all before, else None.

    The same seed and number of workers give the same rounds, except for one that the deadline cuts
    short. ``run`` maps walks over other workers, which finish a round that has begun; by default
    walks run in threads of this process.
    """
    if monotonic() >= deadline:  # before anything is compiled
        return
    pool = sorted(starts, key=lambda member: member.cost)[:POOL]
    best = pool[0].cost
    stop = np.zeros(1, np.int64)
    turn = 0
    begun = monotonic()
    _walk(problem, pool[0], seed, 0, np.ones(1, np.int64))  # compiles in this thread, once
    # compiling took too long, or CPython is too slow
    if 2 * monotonic() - begun > deadline:
        return
    with ThreadPoolExecutor(workers) as threads:
        while monotonic() < deadline:
            # Every other walk starts from the best schedule, the others from all in turn.
            chosen = [0 if nth % 2 else nth // 2 % len(pool) for nth in range(turn, turn + workers)]
            tasks = [
                (problem, pool[c], seed * 1_000_003 + nth, nth)
                for nth, c in enumerate(chosen, turn)
            ]
            turn += workers
            if run is None:
                ended = _walk_here(threads, tasks, stop, deadline)
            else:  # they end in any order
                ended = [
                    member for _, member in sorted(run(walk_alone, tasks), key=lambda pair: pair[0])
                ]
            for c, member in zip(chosen, ended, strict=True):
                if member.cost < pool[c].cost:
                    pool[c] = member
            pool.sort(key=lambda member: member.cost)
            better = pool[0].cost < best
            best = pool[0].cost
            yield pool[0] if better else None


def _walk_here(
    threads: ThreadPoolExecutor, tasks: list[Task], stop: NDArray[np.int64], deadline: float
) -> list[Member]:
    """Run walks in threads, and stop them at the deadline; return their results."""
    walks = [threads.submit(_walk, *task, stop) for task in tasks]
    try:
        if wait(walks, timeout=max(0.0, deadline - monotonic())).not_done:
            stop[0] = 1
    except BaseException:
        stop[0] = 1
        raise
    return [walk.result() for walk in walks]


def walk_alone(task: Task) -> Member:
    """Run one walk to its end, in a worker process."""
    return _walk(*task, np.zeros(1, np.int64))


def cost_of(problem: Problem, queues: Queues) -> float:
    """Return the cost that walks minimize; infinite if the queues deadlock."""
    return cost_and_span(problem, queues)[0]


def cost_and_span(problem: Problem, queues: Queues) -> tuple[float, float]:
    """Return the cost that walks minimize, and the longest time from a device's first start to its
    last end; both infinite if the queues deadlock.
    """
    orders = make_orders(problem, queues)
    walk = make_walk(problem, orders, 1, np.zeros(1, np.int64))
    no_moves = orders, walk, 0, LONGEST, 1.0, 1.0
    compiled = None
    if pays_to_compile(problem):
        compiled = load(anneal_kernel.anneal, *no_moves, parts=anneal_kernel.PARTS)
    cost = compiled(*no_moves) if compiled else anneal_kernel.find_cost(view(orders), view(walk))
    if cost < 0:
        return float("inf"), float("inf")
    first, last = orders.offsets[:-1], orders.offsets[1:] - 1
    busy = last >= first
    span = (orders.end[last[busy]] - orders.start[first[busy]]).max(initial=0.0)
    return float(walk.reached[0]), float(span)


def make_walk(problem: Problem, orders: Orders, seed: int, stop: NDArray[np.int64]) -> Walk:
    """Make the arrays of a walk."""
    n = len(orders.code)
    weights = (1.0, OTHER) if problem.objective == "span" else (OTHER, 1.0)
    return Walk(
        change=problem.changes[KINDS].ravel(),
        cap=problem.caps,
        held=np.zeros(n),
        place=np.zeros(n, np.int64),
        path=np.zeros(n, np.int64),
        best=orders.code.copy(),
        random=np.array([seed % (MODULUS - 1) + 1]),
        weights=np.array([*weights, MEAN]),
        log=np.zeros((2, problem.microbatches), np.int64),
        reached=np.zeros(1),
        stop=stop,
    )


def _walk(problem: Problem, start: Member, seed: int, nth: int, stop: NDArray[np.int64]) -> Member:
    origin, ops = start.origin, sum(map(len, start.queues))
    temperatures = HOT if ops < MANY_OPS else HOT_OF_MANY
    hot = temperatures[nth // 2 % len(temperatures)]
    cost, better = anneal(
        problem, start.queues, seed, stop, max(100, TIMINGS_OF_A_WALK // ops), hot
    )
    return Member(better, origin if origin.endswith(IMPROVED) else origin + IMPROVED, cost)


def anneal(
    problem: Problem, queues: Queues, seed: int, stop: NDArray[np.int64], moves: int, hot: float
) -> tuple[float, Queues]:
    """Anneal an order from ``hot`` (in mean op durations); return the least cost and its order."""
    orders = make_orders(problem, queues)
    walk = make_walk(problem, orders, seed, stop)
    hot *= max(float(orders.time.mean()), 1e-300)
    cost = float(
        call(
            anneal_kernel.anneal,
            orders,
            walk,
            moves,
            LONGEST,
            hot,
            COLD * hot,
            parts=anneal_kernel.PARTS,
        )
    )
    return cost, np.split(walk.best.astype(np.int64), orders.offsets[1:-1])
