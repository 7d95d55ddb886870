"""Schedules by heuristics, from which searches start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ppsim.base.compiled import call, can_compile, view
from ppsim.core.costs import Costs
from ppsim.core.ops import Kind, Packed
from ppsim.core.schedule import Placement, Schedule, place
from ppsim.search.problem import Problem, evaluate, fits
from ppsim.search.rules import linear_kernel
from ppsim.search.rules.orders import KINDS, Queues, pack_queues, take_fastest
from ppsim.search.rules.zbv import SECOND, list_orders

# Stages x microbatches for which CPython writes all attempts in a quarter of a second.
COMPILE_HEURISTICS_ABOVE = 1000


def time_table(problem: Problem) -> NDArray[np.float64]:
    """Return the durations of F, I and W, shape (3, stages)."""
    return problem.costs.time[KINDS].astype(np.float64)


def is_linear(placement: Placement) -> bool:
    """Return True if device d has stage d and no other."""
    return bool(np.array_equal(placement.devices[0], np.arange(placement.n_devices)))


def is_v(placement: Placement) -> bool:
    """Return True if device d has stages d and S - 1 - d."""
    there = np.arange(placement.n_devices)
    return bool(np.array_equal(placement.devices[0], np.concatenate([there, there[::-1]])))


def write_linear(problem: Problem) -> Iterator[tuple[str, Queues]]:
    """Yield name and queues of each attempt for one stage per device that fits the caps.

    See :mod:`ppsim.search.rules.linear_kernel`.
    """
    devices, microbatches = problem.n_devices, problem.microbatches
    amounts = problem.amounts.astype(np.float64)
    # in activations of one F
    caps = np.divide(problem.caps, amounts, out=np.full(devices, np.inf), where=amounts > 0)
    for flags in product((False, True), (True, False), (True, False)):
        line = linear_kernel.Line(
            time=time_table(problem),
            latency=problem.latency,
            cap=caps,
            change=np.array([1.0, problem.after_i - 1.0, -problem.after_i]),
            queue=np.zeros((devices, 3 * microbatches), np.int64),
            end=np.zeros((2, devices, microbatches)),
            done=np.zeros((3, devices), np.int64),
            free=np.zeros(devices),
            held=np.zeros(devices),
            idle=np.zeros(devices),
            wanted=np.zeros(devices, np.int64),
        )
        # CPython runs fastest over views
        pays = pays_to_compile(problem)
        table = line if pays else view(line)
        if call(linear_kernel.schedule_line, table, *flags, parts=linear_kernel.PARTS, pays=pays):
            yield "zero-bubble heuristic", [line.queue[d] * devices + d for d in range(devices)]


def order_linear(
    costs: Costs,  # of one stage per device; attempts ignore factors of microbatches
    devices: int,  # P
    microbatches: int,  # M
    limit: float,  # memory cap in activations
    after_i: float = 1.0,  # share of an activation that is still held between I and W
    known: Sequence[list[Packed]] = (),  # orders that run; they may exceed the cap
) -> list[Packed]:
    """Return the best order of one stage per device: of eight attempts the one with the least span.

    Another attempt, one for equal times, or an order of ``known`` replaces it if it has a shorter
    makespan and no longer span.

    Returns:
        The queue of each device.
    """
    placement = place("linear", devices, devices)

    def made(queues: list[Packed]) -> Schedule:
        return Schedule.from_queues("attempt", placement, microbatches, queues)

    time = costs.time / (1.0 if costs.speed is None else costs.speed)
    time[Kind.B] = time[Kind.I] + time[Kind.W]  # never one B
    problem = Problem(placement, microbatches, Costs(time, costs.comm), limit, after_i)
    attempts = write_linear(problem), equal_attempts(devices, microbatches, limit, after_i)
    for_costs, for_equal = ([pack_queues(problem, queues) for _, queues in x] for x in attempts)
    best = min(for_costs, key=lambda queues: evaluate(problem, made(queues), "").span)
    fitting = [queues for queues in known if fits(problem, made(queues))]
    others = [*for_costs, *for_equal, *fitting]
    return take_fastest(placement, microbatches, best, others, costs)


@lru_cache(maxsize=2)  # for many costs of one shape, with caps of P and 2P activations
def equal_attempts(
    devices: int, microbatches: int, limit: float, after_i: float
) -> list[tuple[str, Queues]]:
    """Return the attempts of :func:`write_linear` for equal times."""
    time = np.ones((4, devices))
    time[Kind.B] = 2.0
    placement = place("linear", devices, devices)
    return list(write_linear(Problem(placement, microbatches, Costs(time), limit, after_i)))


def write_v(problem: Problem) -> Iterator[tuple[str, Queues]]:
    """Yield name and queues of each attempt for a V placement that fits the caps.

    See :mod:`ppsim.search.rules.zbv_kernel`.
    """
    stages, here = problem.n_stages, np.arange(problem.n_devices)[:, None]
    # of types per device
    codes = np.arange(len(SECOND)) // 2 * stages + np.where(SECOND, stages - 1 - here, here)
    compiled = pays_to_compile(problem)
    held = problem.changes[KINDS].ravel()[codes.T]
    for _, types in list_orders(
        problem.costs, problem.microbatches, problem.caps, held, compiled=compiled
    ):
        yield (
            "zero-bubble V heuristic",
            [row[order] for row, order in zip(codes, types, strict=True)],
        )


def pays_to_compile(problem: Problem) -> bool:
    """Return True if a problem is large enough to load the compiled kernels."""
    return problem.n_stages * problem.microbatches > COMPILE_HEURISTICS_ABOVE and can_compile()
