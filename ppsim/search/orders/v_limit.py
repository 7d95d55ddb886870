"""The best order of a V placement within a memory cap: building blocks, then annealing.

Like the adaptive search of Qi et al. (arXiv 2405.15362, appendix A), it lists blocks of six slots
whose four passes move by equal steps, with another step from some device on. Blocks within the cap
are completed and timed with the given costs. Annealing the best of them improves orders if times
differ. It ends after a fixed number of moves, so that the same input gives the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from ppsim.base.compiled import can_compile
from ppsim.base.deadline import check_time
from ppsim.core.costs import Costs
from ppsim.core.ops import Kind, Packed
from ppsim.core.schedule import Placement, Schedule, place
from ppsim.search.bounds.bounds import bound_problem
from ppsim.search.orders.improve import HOT, anneal, cost_and_span
from ppsim.search.problem import ROUNDING, Problem
from ppsim.search.rules.blocks import Block, complete
from ppsim.search.rules.heuristics import write_v
from ppsim.search.rules.orders import (
    Queues,
    pack_queues,
    read_orders,
    write_one_by_one,
)
from ppsim.search.rules.zbv import order_zb_v

INTERVAL = 6
OPS_TRIED = 60_000  # ops of all completed blocks together, which take a few seconds
FEWEST_TRIED = 4
LARGE = 6000  # ops from which on few blocks are tried, so that rules write orders too
MOST_TURNS = 8  # choices of the device from which on a block takes another step
STARTS = 4  # orders that are annealed
MOVES, TIMINGS = 50_000, 10_000_000  # most moves of a walk; most op timings


def order_v(costs: Costs, devices: int, microbatches: int, limit: int) -> list[Packed]:
    """Return every device's ops in the order with the shortest span found within a memory cap.

    Costs are of two stages per device, stage s on device s or 2P - 1 - s; factors of microbatches
    are ignored. ``limit`` is the cap in activations of one stage, at least 2.

    Raises:
        TimeOver: a deadline is past.
    """
    placement = place("v", devices, 2 * devices)
    speed = np.ones(devices) if costs.speed is None else costs.speed
    time = costs.time / speed[placement.devices[0]]
    time[Kind.B] = time[Kind.I] + time[Kind.W]  # never one B
    comm = np.broadcast_to(np.asarray(costs.comm, np.float64), (devices, devices))
    return list(order_from(devices, microbatches, limit, time.tobytes(), comm.tobytes()))


@lru_cache(maxsize=256)
def order_from(P: int, M: int, limit: int, times: bytes, latencies: bytes) -> tuple[Packed, ...]:
    """Return the order for times and latencies given as bytes; see :func:`order_v`."""
    time = np.frombuffer(times).reshape(-1, 2 * P)
    comm = np.frombuffer(latencies).reshape(P, P)
    problem = Problem(place("v", P, 2 * P), M, Costs(time, comm), float(limit))
    # an order that attains the bound ends the search
    enough = bound_problem(problem).span * (1 + 2 * ROUNDING)
    starts: list[tuple[float, Queues]] = []
    for queues in _starts(problem, limit):
        check_time()
        cost, span = cost_and_span(problem, queues)
        starts.append((cost, queues))
        if span <= enough:
            return tuple(pack_queues(problem, queues))
    starts.sort(key=lambda start: start[0])
    best = starts[0]
    if can_compile():
        for nth, (_, queues) in enumerate(starts[:STARTS]):
            for hot in HOT:
                check_time()
                best = min(best, _walk(problem, queues, nth, hot), key=lambda found: found[0])
    return tuple(pack_queues(problem, best[1]))


def _starts(problem: Problem, limit: int) -> Iterator[Queues]:
    """Yield orders within the cap: ZB-V's, those of blocks and rules, and one at a time."""
    P, M = problem.n_devices, problem.microbatches
    if limit >= 2 * min(P, M):
        yield _read(problem.placement, M, order_zb_v(problem.costs, P, M, limit))
    within = _blocks_within(P, limit)
    completed_block = _completed_block_cached if 6 * P * M < LARGE else _completed_block
    for nth in within[: max(FEWEST_TRIED, OPS_TRIED // (6 * P * M))]:
        yield completed_block(P, M, nth)
    yield from (queues for _, queues in write_v(problem))
    if not within or (6 * P * M >= LARGE and can_compile()):
        from ppsim.search.rules.policies import write_near_cap

        yield from (queues for _, queues in write_near_cap(problem))
    yield write_one_by_one(problem)


@lru_cache(maxsize=8)
def _blocks(P: int) -> list[Block]:
    return list_blocks(place("v", P, 2 * P))


@lru_cache(maxsize=16)  # many costs are tried of one shape
def _blocks_within(P: int, limit: int) -> list[int]:
    """List the blocks within a limit, those that use the memory first: they fill most bubbles."""
    blocks = _blocks(P)
    within = [nth for nth, block in enumerate(blocks) if block.peaks.max() <= limit]
    return sorted(within, key=lambda nth: -int(blocks[nth].lifespans.sum()))


def _completed_block(P: int, M: int, nth: int) -> Queues:
    """Return the order of the n-th block, completed for all microbatches."""
    return _read(place("v", P, 2 * P), M, complete(_blocks(P)[nth], M))


_completed_block_cached = lru_cache(maxsize=512)(_completed_block)


def list_blocks(placement: Placement) -> list[Block]:
    """Return blocks of six slots whose passes move by equal steps, or shorter from a device on."""
    P = placement.n_devices
    found: dict[bytes, Block] = {}
    turns = np.unique(np.linspace(1, max(1, P - 2), MOST_TURNS).astype(int)).tolist()
    for places in permutations(range(1, INTERVAL), 3):
        for early in range(1, INTERVAL):
            for late in range(1, early + 1):
                for turn in turns if late < early else [P]:
                    down = np.concatenate(
                        [[0], np.cumsum(np.where(np.arange(P - 1) < turn, early, late))]
                    )
                    back = np.arange(P)
                    residues = (
                        np.array([down, places[0] - back, places[1] + down, places[2] - back])
                        % INTERVAL
                    )
                    if (np.diff(np.sort(residues, axis=0), axis=0) > 0).all():
                        block = _block_of_residues(placement, residues)
                        found.setdefault(block.forward.tobytes() + block.backward.tobytes(), block)
    return list(found.values())


def _block_of_residues(placement: Placement, residues: NDArray[np.integer]) -> Block:
    """Return the block whose ops take the first slot after their input with the given residue.

    ``residues`` has shape (passes, P).
    """
    P = placement.n_devices
    slots = np.zeros((4, P), np.int64)
    now = 0
    for number, row in enumerate(residues.tolist()):
        for device in range(P) if number % 2 == 0 else range(P - 1, -1, -1):
            now += (row[device] - now) % INTERVAL
            slots[number, device] = now
            now += 1
    down, back, turned, home = slots
    return Block(
        placement,
        INTERVAL,
        np.concatenate([down, back[::-1]]),
        np.concatenate([home, turned[::-1]]),
    )


def _walk(problem: Problem, queues: Queues, nth: int, hot: float) -> tuple[float, Queues]:
    """Anneal an order for a fixed number of moves; return the best order found, and its cost."""
    moves = max(100, min(MOVES, TIMINGS // sum(map(len, queues))))
    return anneal(problem, queues, nth + 1, np.zeros(1, np.int64), moves, hot)


def _read(placement: Placement, microbatches: int, queues: list[Packed]) -> Queues:
    return read_orders(Schedule.from_queues("block", placement, microbatches, queues))
